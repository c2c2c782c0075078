//! What we keep beside each of the program's communicators: whether its ranks agree, and, once a
//! call is long enough, a communicator of ours between the same ranks.
//!
//! A number is kept as an attribute that copies do not get, so that it goes when the communicator
//! does, and one that MPI gives the same handle later is another. The ranks agree at the first
//! collective of the table on a communicator, whatever its length and the settings: a point that
//! all of them reach alike even if their settings differ. Ours is made at the first call that may
//! be taken, since libraries have room for few.

use std::collections::BTreeMap;
use std::ffi::c_int;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use foldwire::op::OpCode;
use foldwire::{Communicator, Config};
use foldwire_messaging::{Endpoint, Options};

use crate::decide::Why;
use crate::ffi::abi::Handle;
use crate::ffi::library::{Code, Mpi};
use crate::ffi::requests::Comm;
use crate::net::Wire;

/// A communicator's, for the one thread that may call its collectives.
pub(crate) type Shadow = Arc<Mutex<Standing>>;

/// How far a communicator has come.
pub(crate) enum Standing {
    /// All its calls are passed on.
    Outside(Why),
    /// The ranks agree; no call was long enough yet.
    Agreed { rank: usize, size: usize },
    /// Ours is there.
    Up(Box<Up>),
}

/// A communicator of ours.
pub(crate) struct Up {
    pub(crate) comm: Communicator<Endpoint<Wire>>,
    /// Whether all ranks share memory.
    pub(crate) is_near: bool,
}

/// All of them, by their numbers, which begin with 1.
#[derive(Default)]
pub(crate) struct Shadows {
    all: Mutex<BTreeMap<usize, Shadow>>,
    n_made: AtomicUsize,
}

pub(crate) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // What a panic has left is passed on or fails; nothing of it is unsafe.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shadows {
    /// That of a communicator, made at its first collective.
    pub(crate) fn of(
        &self,
        mpi: &'static dyn Mpi,
        comm: Handle,
        key: c_int,
        fingerprint: u64,
    ) -> Result<Shadow, Code> {
        if let Some(number) = mpi.number_of_comm(comm, key)?
            && let Some(shadow) = locked(&self.all).get(&number)
        {
            return Ok(Arc::clone(shadow));
        }
        let shadow = Arc::new(Mutex::new(Standing::new(mpi, comm, fingerprint)?));
        let number = self.n_made.fetch_add(1, Ordering::Relaxed) + 1;
        mpi.set_number_of_comm(comm, key, number)?;
        locked(&self.all).insert(number, Arc::clone(&shadow));
        Ok(shadow)
    }

    /// Ends that of a communicator that is about to be freed.
    pub(crate) fn end(&self, mpi: &dyn Mpi, comm: Handle, key: c_int) {
        if let Ok(Some(number)) = mpi.number_of_comm(comm, key) {
            let shadow = locked(&self.all).remove(&number);
            drop(shadow);
        }
    }

    /// Ends all of them, in the order in which they were made.
    pub(crate) fn end_all(&self) {
        loop {
            let first = locked(&self.all).pop_first();
            if first.is_none() {
                return;
            }
        }
    }
}

impl Standing {
    fn new(mpi: &dyn Mpi, comm: Handle, fingerprint: u64) -> Result<Self, Code> {
        if mpi.is_inter(comm)? {
            return Ok(Self::Outside(Why::Communicator));
        }
        let (rank, size) = mpi.rank_and_size(comm)?;
        if size == 1 {
            return Ok(Self::Outside(Why::Communicator));
        }
        // The largest of the numbers and of their complements: the largest and the smallest.
        let own = fingerprint as i64;
        let mut largest = [own, !own];
        mpi.all_reduce(comm, &mut largest, OpCode::Max)?;
        if largest[0] == !largest[1] {
            Ok(Self::Agreed { rank, size })
        } else {
            Ok(Self::Outside(Why::Disagreement))
        }
    }

    /// Sees that ours is there, if the ranks agree. All of them call it at the same call.
    pub(crate) fn bring_up(&mut self, mpi: &'static dyn Mpi, comm: Handle) -> Result<(), Code> {
        let Self::Agreed { rank, size } = *self else { return Ok(()) };
        let up = Up::new(mpi, comm, rank, size);
        let mut all_up = [i64::from(up.is_ok())];
        mpi.all_reduce(comm, &mut all_up, OpCode::Min)?;
        *self = match up {
            Ok(up) if all_up == [1] => Self::Up(Box::new(up)),
            _ => Self::Outside(Why::Disagreement),
        };
        Ok(())
    }
}

impl Up {
    /// `Err` on all ranks, or as good as that: the caller asks them.
    fn new(mpi: &'static dyn Mpi, comm: Handle, rank: usize, size: usize) -> Result<Self, ()> {
        let raw = mpi.split(comm, rank).map_err(drop)?;
        let ours = Comm::new(mpi, raw, rank, size);
        let mut nodes = vec![i64::MAX; size];
        nodes[rank] = mpi.lowest_near(raw, rank).map_err(drop)?;
        mpi.all_reduce(raw, &mut nodes, OpCode::Min).map_err(drop)?;
        let is_near = nodes.iter().all(|&node| node == 0);
        let endpoint = Endpoint::new(Wire::new(ours, nodes), Options::default()).map_err(drop)?;
        // Ranks of a program may come as late as they like; MPI has no limit either.
        let config = Config::default().with_timeout(Config::NEVER);
        let comm = Communicator::with_config(endpoint, config).map_err(drop)?;
        Ok(Self { comm, is_near })
    }
}
