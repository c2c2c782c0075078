//! What we keep beside each of the program's communicators: whether its ranks are ours, and, once a
//! call is long enough, a communicator of ours between the same ranks.
//!
//! A number is kept as an attribute that copies do not get, so that it goes when the communicator
//! does, and one that MPI gives the same handle later is another. Ours is made at the first call
//! that is waited for and may be taken, or that follows one that might have been but is not waited
//! for, since libraries have room for few.
//!
//! *Strangers.* Ranks of this `MPI_COMM_WORLD` have met in `MPI_Init` and compared their settings.
//! Nobody knows that of other processes, which the program may have spawned, accepted or joined. A
//! communicator with such ranks, however it came about, is the MPI library's. Each rank finds that
//! out by itself, and all find the same: ranks of two worlds are strangers to each other.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use foldwire::op::OpCode;
use foldwire::{Config, Rank, SharedCommunicator};
use foldwire_messaging::{Messages, Options};

use crate::decide::{Ranks, Why};
use crate::ffi::abi::Handle;
use crate::ffi::library::{Code, Mpi};
use crate::ffi::requests::Comm;
use crate::line::Line;
use crate::net::Wire;
use crate::rules::{Names, Rules};
use crate::taken::Ours;

/// A communicator's, for the one thread that may call its collectives.
pub(crate) type Shadow = Arc<Mutex<Standing>>;

/// How far a communicator has come.
pub(crate) enum Standing {
    /// All its calls are passed on.
    Outside(Why),
    /// No call was long enough yet.
    Low(Low),
    /// Ours is there.
    Up(Box<Up>),
}

/// What is known of a communicator without one of ours.
#[derive(Clone, Copy)]
pub(crate) struct Low {
    pub(crate) rank: usize,
    pub(crate) size: usize,
    /// Whether a call that was not waited for would have been taken.
    pub(crate) is_wanted: bool,
}

/// A communicator of ours.
pub(crate) struct Up {
    /// Calls that are not waited for. They go before the communicator.
    pub(crate) line: Line,
    pub(crate) comm: Ours,
    /// The same to MPI, whose collectives on it meet none of our messages.
    pub(crate) raw: Handle,
    pub(crate) ranks: Ranks,
    /// Which rows of the rules its name fits.
    pub(crate) names: Names,
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
    /// That of a communicator, made at its first collective. No rank hears of another in this.
    pub(crate) fn of(&self, mpi: &dyn Mpi, comm: Handle) -> Result<Shadow, Code> {
        if let Some(number) = mpi.number_of_comm(comm)?
            && let Some(shadow) = locked(&self.all).get(&number)
        {
            return Ok(Arc::clone(shadow));
        }
        let shadow = Arc::new(Mutex::new(Standing::new(mpi, comm)?));
        let number = self.n_made.fetch_add(1, Ordering::Relaxed) + 1;
        mpi.set_number_of_comm(comm, number)?;
        locked(&self.all).insert(number, Arc::clone(&shadow));
        Ok(shadow)
    }

    /// Takes out that of a communicator that is about to be freed.
    pub(crate) fn take(&self, mpi: &dyn Mpi, comm: Handle) -> Option<Shadow> {
        let number = mpi.number_of_comm(comm).ok()??;
        locked(&self.all).remove(&number)
    }

    /// Takes out the one that was made first.
    pub(crate) fn take_first(&self) -> Option<Shadow> {
        locked(&self.all).pop_first().map(|(_, shadow)| shadow)
    }

    /// All of them, in the order in which they were made.
    pub(crate) fn all(&self) -> Vec<Shadow> {
        locked(&self.all).values().cloned().collect()
    }
}

impl Standing {
    fn new(mpi: &dyn Mpi, comm: Handle) -> Result<Self, Code> {
        if mpi.is_inter(comm)? {
            return Ok(Self::Outside(Why::Communicator));
        }
        let (rank, size) = mpi.rank_and_size(comm)?;
        if size == 1 || !mpi.is_within_world(comm)? {
            return Ok(Self::Outside(Why::Communicator));
        }
        Ok(Self::Low(Low { rank, size, is_wanted: false }))
    }

    /// Sees that ours is there. All ranks call it at the same call.
    pub(crate) fn bring_up(
        &mut self,
        mpi: &'static dyn Mpi,
        comm: Handle,
        rules: &Rules,
    ) -> Result<(), Code> {
        let Self::Low(Low { rank, size, .. }) = *self else { return Ok(()) };
        let fitting = if rules.have_names() { rules.that_fit(&mpi.name_of_comm(comm)?) } else { 0 };
        let up = Up::new(mpi, comm, (rank, size), Names::Known(fitting));
        // The smallest of a number and of its complement: the smallest and the largest.
        let mut smallest = [i64::from(up.is_ok()), fitting, !fitting];
        mpi.all_reduce(comm, &mut smallest, OpCode::Min)?;
        let [all_up, least, most] = smallest;
        *self = match up {
            Ok(up) if all_up == 1 && least == !most => Self::Up(Box::new(up)),
            _ => Self::Outside(Why::Disagreement),
        };
        Ok(())
    }

    /// True if the next call that is waited for is to bring ours up.
    pub(crate) const fn is_wanted(&self) -> bool {
        matches!(self, Self::Low(Low { is_wanted: true, .. }))
    }

    /// The rank and the number of ranks, or why all calls are passed on.
    pub(crate) fn place(&self) -> Result<(usize, usize), Why> {
        match self {
            Self::Outside(why) => Err(*why),
            Self::Low(low) => Ok((low.rank, low.size)),
            Self::Up(up) => Ok((up.comm.rank().index(), up.comm.size())),
        }
    }

    /// Ours, or why calls are passed on.
    pub(crate) fn up(&mut self) -> Result<&mut Up, Why> {
        match self {
            Self::Outside(why) => Err(*why),
            Self::Low(_) => Err(Why::Disagreement),
            Self::Up(up) => Ok(up),
        }
    }
}

impl Up {
    /// `Err` on all ranks, or as good as that: the caller asks them.
    fn new(
        mpi: &'static dyn Mpi,
        comm: Handle,
        (rank, size): (usize, usize),
        names: Names,
    ) -> Result<Self, ()> {
        let raw = mpi.split(comm, rank).map_err(drop)?;
        let mut nodes = vec![i64::MAX; size];
        let found = mpi.lowest_near(raw, rank).and_then(|lowest| {
            nodes[rank] = lowest;
            mpi.all_reduce(raw, &mut nodes, OpCode::Min)
        });
        let is_near = nodes.iter().all(|&node| node == 0);
        // It frees the communicator, whatever was found.
        let ours = Comm::new(mpi, raw, rank, nodes);
        found.map_err(drop)?;
        let options = Options::default();
        let all_gather = |mine: &[u8]| all_gather(mpi, raw, (rank, size), mine);
        let messages = Messages::new(ours).share_memory(options.frame_bytes, all_gather)?;
        let mut others = (0..size).filter(|&other| other != rank).map(Rank::new);
        let hand_over = others.all(|other| messages.shares_memory_with(other));
        let ranks = Ranks::of(size, is_near, hand_over);
        let endpoint = Wire::new(messages, options).map_err(drop)?;
        // Ranks of a program may come as late as they like; MPI has no limit either.
        let config = Config::default().with_timeout(Config::NEVER);
        let comm = SharedCommunicator::with_config(endpoint, config, 1).map_err(drop)?;
        Ok(Self { line: Line::default(), comm, raw, ranks, names })
    }
}

/// Longest that ranks may give to [`all_gather`].
const MOST_GIVEN: usize = 63;
/// Bytes of it in a number: none is as large as what others have there.
const PER_NUMBER: usize = 7;
/// Numbers of each rank: first how many bytes.
const N_NUMBERS: usize = 1 + MOST_GIVEN / PER_NUMBER;

/// What each rank has given, by the library's reduction, which every library has.
fn all_gather(
    mpi: &'static dyn Mpi,
    comm: Handle,
    (rank, size): (usize, usize),
    mine: &[u8],
) -> Result<Vec<Vec<u8>>, ()> {
    let mut all = vec![i64::MAX; size * N_NUMBERS];
    let numbers = &mut all[rank * N_NUMBERS..][..N_NUMBERS];
    numbers[0] = mine.len().min(MOST_GIVEN) as i64;
    for (number, bytes) in numbers[1..].iter_mut().zip(mine.chunks(PER_NUMBER)) {
        let mut whole = [0; 8];
        whole[..bytes.len()].copy_from_slice(bytes);
        *number = i64::from_le_bytes(whole);
    }
    mpi.all_reduce(comm, &mut all, OpCode::Min).map_err(drop)?;
    let given = all.chunks_exact(N_NUMBERS).map(|numbers| {
        let bytes = numbers[1..].iter().flat_map(|number| {
            let whole = number.to_le_bytes();
            whole.into_iter().take(PER_NUMBER)
        });
        bytes.take(numbers[0].clamp(0, MOST_GIVEN as i64) as usize).collect()
    });
    Ok(given.collect())
}
