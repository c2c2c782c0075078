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

use crate::decide::{PassReason, RankPlacement};
use crate::execute::FoldwireComm;
use crate::ffi::abi::MpiHandle;
use crate::ffi::library::{MpiApi, MpiErrorCode};
use crate::ffi::private_comm::PrivateComm;
use crate::queue::CallQueue;
use crate::rules::{MatchedNames, RuleList};
use crate::transport::PreloadEndpoint;

/// A communicator's, for the one thread that may call its collectives.
pub(crate) type SharedCommState = Arc<Mutex<CommState>>;

/// How far a communicator has come.
pub(crate) enum CommState {
    /// All its calls are passed on.
    PassedOn(PassReason),
    /// No call was long enough yet.
    Pending(PendingComm),
    /// Ours is there.
    Ready(Box<ReadyComm>),
}

/// What is known of a communicator without one of ours.
#[derive(Clone, Copy)]
pub(crate) struct PendingComm {
    pub(crate) rank: usize,
    pub(crate) size: usize,
    /// Whether a call that was not waited for would have been taken.
    pub(crate) is_setup_due: bool,
}

/// A communicator of ours.
pub(crate) struct ReadyComm {
    /// Calls that are not waited for. They go before the communicator.
    pub(crate) queue: CallQueue,
    pub(crate) comm: FoldwireComm,
    /// The same to MPI, whose collectives on it meet none of our messages.
    pub(crate) raw: MpiHandle,
    pub(crate) placement: RankPlacement,
    /// Which rows of the rules its name fits.
    pub(crate) names: MatchedNames,
}

/// All of them, by their numbers, which begin with 1.
#[derive(Default)]
pub(crate) struct CommStates {
    all: Mutex<BTreeMap<usize, SharedCommState>>,
    n_made: AtomicUsize,
}

pub(crate) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // What a panic has left is passed on or fails; nothing of it is unsafe.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl CommStates {
    /// That of a communicator, made at its first collective. No rank hears of another in this.
    pub(crate) fn of(
        &self,
        mpi: &dyn MpiApi,
        comm: MpiHandle,
    ) -> Result<SharedCommState, MpiErrorCode> {
        if let Some(number) = mpi.comm_number(comm)?
            && let Some(state) = locked(&self.all).get(&number)
        {
            return Ok(Arc::clone(state));
        }
        let state = Arc::new(Mutex::new(CommState::new(mpi, comm)?));
        let number = self.n_made.fetch_add(1, Ordering::Relaxed) + 1;
        mpi.set_comm_number(comm, number)?;
        locked(&self.all).insert(number, Arc::clone(&state));
        Ok(state)
    }

    /// Takes out that of a communicator that is about to be freed.
    pub(crate) fn take(&self, mpi: &dyn MpiApi, comm: MpiHandle) -> Option<SharedCommState> {
        let number = mpi.comm_number(comm).ok()??;
        locked(&self.all).remove(&number)
    }

    /// Takes out the one that was made first.
    pub(crate) fn take_first(&self) -> Option<SharedCommState> {
        locked(&self.all).pop_first().map(|(_, state)| state)
    }

    /// All of them, in the order in which they were made.
    pub(crate) fn all(&self) -> Vec<SharedCommState> {
        locked(&self.all).values().cloned().collect()
    }
}

impl CommState {
    fn new(mpi: &dyn MpiApi, comm: MpiHandle) -> Result<Self, MpiErrorCode> {
        if mpi.is_inter(comm)? {
            return Ok(Self::PassedOn(PassReason::Communicator));
        }
        let (rank, size) = mpi.rank_and_size(comm)?;
        if size == 1 || !mpi.is_within_world(comm)? {
            return Ok(Self::PassedOn(PassReason::Communicator));
        }
        Ok(Self::Pending(PendingComm { rank, size, is_setup_due: false }))
    }

    /// Sees that ours is there. All ranks call it at the same call.
    pub(crate) fn set_up(
        &mut self,
        mpi: &'static dyn MpiApi,
        comm: MpiHandle,
        rules: &RuleList,
    ) -> Result<(), MpiErrorCode> {
        let Self::Pending(PendingComm { rank, size, .. }) = *self else { return Ok(()) };
        let fitting =
            if rules.have_names() { rules.matching_names(&mpi.comm_name(comm)?) } else { 0 };
        let ready = ReadyComm::new(mpi, comm, (rank, size), MatchedNames::Known(fitting));
        // The smallest of a number and of its complement: the smallest and the largest.
        let mut smallest = [i64::from(ready.is_ok()), fitting, !fitting];
        mpi.all_reduce(comm, &mut smallest, OpCode::Min)?;
        let [all_ready, least, most] = smallest;
        *self = match ready {
            Ok(ready) if all_ready == 1 && least == !most => Self::Ready(Box::new(ready)),
            _ => Self::PassedOn(PassReason::Disagreement),
        };
        Ok(())
    }

    /// True if the next call that is waited for is to bring ours up.
    pub(crate) const fn is_setup_due(&self) -> bool {
        matches!(self, Self::Pending(PendingComm { is_setup_due: true, .. }))
    }

    /// The rank and the number of ranks, or why all calls are passed on.
    pub(crate) fn rank_and_size(&self) -> Result<(usize, usize), PassReason> {
        match self {
            Self::PassedOn(reason) => Err(*reason),
            Self::Pending(low) => Ok((low.rank, low.size)),
            Self::Ready(ready) => Ok((ready.comm.rank().index(), ready.comm.size())),
        }
    }

    /// Ours, or why calls are passed on.
    pub(crate) fn ready(&mut self) -> Result<&mut ReadyComm, PassReason> {
        match self {
            Self::PassedOn(reason) => Err(*reason),
            Self::Pending(_) => Err(PassReason::Disagreement),
            Self::Ready(ready) => Ok(ready),
        }
    }
}

impl ReadyComm {
    /// `Err` on all ranks, or as good as that: the caller asks them.
    fn new(
        mpi: &'static dyn MpiApi,
        comm: MpiHandle,
        (rank, size): (usize, usize),
        names: MatchedNames,
    ) -> Result<Self, ()> {
        let raw = mpi.split(comm, rank).map_err(drop)?;
        let mut nodes = vec![i64::MAX; size];
        let found = mpi.lowest_rank_on_node(raw, rank).and_then(|lowest| {
            nodes[rank] = lowest;
            mpi.all_reduce(raw, &mut nodes, OpCode::Min)
        });
        let is_near = nodes.iter().all(|&node| node == 0);
        // It frees the communicator, whatever was found.
        let private = PrivateComm::new(mpi, raw, rank, nodes);
        found.map_err(drop)?;
        let options = Options::default();
        let all_gather = |mine: &[u8]| all_gather(mpi, raw, (rank, size), mine);
        let messages = Messages::new(private).share_memory(options.frame_bytes, all_gather)?;
        let mut others = (0..size).filter(|&other| other != rank).map(Rank::new);
        let hand_over = others.all(|other| messages.shares_memory_with(other));
        let placement = RankPlacement::of(size, is_near, hand_over);
        let endpoint = PreloadEndpoint::new(messages, options).map_err(drop)?;
        // Ranks of a program may come as late as they like; MPI has no limit either.
        let config = Config::default().with_timeout(Config::NEVER);
        let comm = SharedCommunicator::with_config(endpoint, config, 1).map_err(drop)?;
        Ok(Self { queue: CallQueue::default(), comm, raw, placement, names })
    }
}

/// Longest that ranks may give to [`all_gather`].
const MAX_GIVEN_BYTES: usize = 63;
/// Bytes of it in a number: none is as large as what others have there.
const BYTES_PER_NUMBER: usize = 7;
/// Numbers of each rank: first how many bytes.
const N_NUMBERS: usize = 1 + MAX_GIVEN_BYTES / BYTES_PER_NUMBER;

/// What each rank has given, by the library's reduction, which every library has.
fn all_gather(
    mpi: &'static dyn MpiApi,
    comm: MpiHandle,
    (rank, size): (usize, usize),
    mine: &[u8],
) -> Result<Vec<Vec<u8>>, ()> {
    let mut all = vec![i64::MAX; size * N_NUMBERS];
    let numbers = &mut all[rank * N_NUMBERS..][..N_NUMBERS];
    numbers[0] = mine.len().min(MAX_GIVEN_BYTES) as i64;
    for (number, bytes) in numbers[1..].iter_mut().zip(mine.chunks(BYTES_PER_NUMBER)) {
        let mut whole = [0; 8];
        whole[..bytes.len()].copy_from_slice(bytes);
        *number = i64::from_le_bytes(whole);
    }
    mpi.all_reduce(comm, &mut all, OpCode::Min).map_err(drop)?;
    let given = all.chunks_exact(N_NUMBERS).map(|numbers| {
        let bytes = numbers[1..].iter().flat_map(|number| {
            let whole = number.to_le_bytes();
            whole.into_iter().take(BYTES_PER_NUMBER)
        });
        bytes.take(numbers[0].clamp(0, MAX_GIVEN_BYTES as i64) as usize).collect()
    });
    Ok(given.collect())
}
