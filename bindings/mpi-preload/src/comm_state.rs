//! State that Foldwire keeps for each communicator of the program: whether its calls may be taken,
//! and Foldwire's own communicator between the same ranks.
//!
//! A number identifies the state. It is stored as an MPI attribute of the communicator, which
//! duplicates do not inherit. So it vanishes with the communicator, and a later communicator with
//! the same handle gets a new state.
//!
//! MPI libraries support few communicators, so Foldwire's own is created late: at the first
//! blocking call that may be taken, or at the first blocking call after a non-blocking one that
//! could have been taken.
//!
//! *Ranks of other worlds.* The ranks of this `MPI_COMM_WORLD` have met in `MPI_Init` and compared
//! their settings. Spawned, accepted or joined processes have not. So all calls on a communicator
//! with such processes go to the MPI library. Each rank detects this without communication, and all
//! ranks reach the same result: if two ranks belong to different worlds, each sees the other as
//! foreign.

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

/// Shared state of a communicator. MPI allows only one thread at a time to call its collectives.
pub(crate) type SharedCommState = Arc<Mutex<CommState>>;

/// State of a communicator: calls go to the MPI library, or can be taken later or now.
pub(crate) enum CommState {
    /// All calls go to the MPI library.
    PassedOn(PassReason),
    /// No blocking call was long enough yet, so there is no Foldwire communicator.
    Pending(PendingComm),
    /// The Foldwire communicator exists.
    Ready(Box<ReadyComm>),
}

/// Facts about a communicator without a Foldwire communicator.
#[derive(Clone, Copy)]
pub(crate) struct PendingComm {
    pub(crate) rank: usize,
    pub(crate) size: usize,
    /// True after a non-blocking call that could have been taken.
    pub(crate) is_setup_due: bool,
}

/// A Foldwire communicator between the ranks of a communicator of the program.
pub(crate) struct ReadyComm {
    /// Non-blocking calls. Declared first, so that they are dropped before the communicator.
    pub(crate) queue: CallQueue,
    pub(crate) comm: FoldwireComm,
    /// MPI communicator that carries Foldwire's messages. Collectives on it do not interfere with
    /// these point-to-point messages.
    pub(crate) raw: MpiHandle,
    pub(crate) placement: RankPlacement,
    /// Rows of the rules that the communicator's name matches.
    pub(crate) names: MatchedNames,
}

/// States of all communicators, by their numbers from 1 on.
#[derive(Default)]
pub(crate) struct CommStates {
    all: Mutex<BTreeMap<usize, SharedCommState>>,
    n_made: AtomicUsize,
}

pub(crate) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // After a panic, calls are passed on or fail. No `unsafe` code relies on this data.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl CommStates {
    /// Returns the state of a communicator, and creates it at the first collective. Involves no
    /// other rank.
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

    /// Removes and returns the state of a communicator that the program is about to free.
    pub(crate) fn take(&self, mpi: &dyn MpiApi, comm: MpiHandle) -> Option<SharedCommState> {
        let number = mpi.comm_number(comm).ok()??;
        locked(&self.all).remove(&number)
    }

    /// Removes and returns the oldest state.
    pub(crate) fn take_first(&self) -> Option<SharedCommState> {
        locked(&self.all).pop_first().map(|(_, state)| state)
    }

    /// All states in the order of their creation.
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

    /// Creates the Foldwire communicator if possible. All ranks call this at the same collective.
    pub(crate) fn set_up(
        &mut self,
        mpi: &'static dyn MpiApi,
        comm: MpiHandle,
        rules: &RuleList,
    ) -> Result<(), MpiErrorCode> {
        let Self::Pending(PendingComm { rank, size, .. }) = *self else { return Ok(()) };
        let matched =
            if rules.have_names() { rules.matching_names(&mpi.comm_name(comm)?) } else { 0 };
        let ready = ReadyComm::new(mpi, comm, (rank, size), MatchedNames::Known(matched));
        // All ranks must match the same rules. The minimum of the complements is the complement of
        // the maximum, so one minimum finds both extremes.
        let mut smallest = [i64::from(ready.is_ok()), matched, !matched];
        mpi.all_reduce(comm, &mut smallest, OpCode::Min)?;
        let [all_ready, least, not_most] = smallest;
        *self = match ready {
            Ok(ready) if all_ready == 1 && least == !not_most => Self::Ready(Box::new(ready)),
            _ => Self::PassedOn(PassReason::Disagreement),
        };
        Ok(())
    }

    /// True if the next blocking call should create the Foldwire communicator.
    pub(crate) const fn is_setup_due(&self) -> bool {
        matches!(self, Self::Pending(PendingComm { is_setup_due: true, .. }))
    }

    /// Returns this rank and the number of ranks, or the reason why all calls are passed on.
    pub(crate) fn rank_and_size(&self) -> Result<(usize, usize), PassReason> {
        match self {
            Self::PassedOn(reason) => Err(*reason),
            Self::Pending(pending) => Ok((pending.rank, pending.size)),
            Self::Ready(ready) => Ok((ready.comm.rank().index(), ready.comm.size())),
        }
    }

    /// Returns the Foldwire communicator, or the reason why calls are passed on.
    pub(crate) fn ready(&mut self) -> Result<&mut ReadyComm, PassReason> {
        match self {
            Self::PassedOn(reason) => Err(*reason),
            Self::Pending(_) => Err(PassReason::Disagreement),
            Self::Ready(ready) => Ok(ready),
        }
    }
}

impl ReadyComm {
    /// `Err` here need not mean `Err` on all ranks. The caller compares the results of all ranks.
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
        // Frees `raw` when dropped, also after an error.
        let private = PrivateComm::new(mpi, raw, rank, nodes);
        found.map_err(drop)?;
        let options = Options::default();
        let all_gather = |mine: &[u8]| all_gather(mpi, raw, (rank, size), mine);
        let messages = Messages::new(private).share_memory(options.frame_bytes, all_gather)?;
        let mut others = (0..size).filter(|&other| other != rank).map(Rank::new);
        let hand_over = others.all(|other| messages.shares_memory_with(other));
        let placement = RankPlacement::of(size, is_near, hand_over);
        let endpoint = PreloadEndpoint::new(messages, options).map_err(drop)?;
        // Like MPI, wait without limit for ranks that call late.
        let config = Config::default().with_timeout(Config::NEVER);
        let comm = SharedCommunicator::with_config(endpoint, config, 1).map_err(drop)?;
        Ok(Self { queue: CallQueue::default(), comm, raw, placement, names })
    }
}

/// Largest number of bytes that a rank may pass to [`all_gather`].
const MAX_GIVEN_BYTES: usize = 63;
/// Bytes in each number. With 7 bytes, a number is less than `i64::MAX`, which the other ranks
/// contribute in its place to the minimum.
const BYTES_PER_NUMBER: usize = 7;
/// Numbers for each rank. The first is the number of bytes that the rank passes.
const N_NUMBERS: usize = 1 + MAX_GIVEN_BYTES / BYTES_PER_NUMBER;

/// Gathers `mine` of all ranks by `MPI_Allreduce`, which is the only collective that Foldwire needs
/// from the library here.
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
