//! The transport of all communicators, chosen here and nowhere else: threads of this process.
//!
//! Ranks meet by a token that one of them made: whoever comes first makes the world, and each takes
//! its endpoint out of it. A token says of which process it is, and ranks of another one get
//! `FW_UNSUPPORTED`. With a transport between processes [`Wire`] becomes a choice of two, which
//! [`join`] makes by the token's second byte.

use std::collections::BTreeMap;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::process;
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};
use std::time::UNIX_EPOCH;

use foldwire_threads::{Endpoint, World};

use crate::border::Fault;
use crate::ffi::types::{FW_UNIQUE_ID_BYTES, FW_UNSUPPORTED};

/// What communicators run over.
pub(crate) type Wire = Endpoint;
/// What ranks have in common.
pub(crate) type Token = [u8; FW_UNIQUE_ID_BYTES];

/// Most ranks of a process: each may have a link to every other one.
const MAX_RANKS: usize = 1024;
const MAGIC: u8 = b'F';
/// Ranks are threads of one process.
const THREADS: u8 = 1;

/// Who is waited for in this process.
struct Meeting {
    /// What no other process has.
    process: u64,
    n_tokens: u64,
    /// Of each token that is not used up, the endpoints that are not taken yet; none before the
    /// first rank has come.
    waiting: BTreeMap<u64, Vec<Option<Wire>>>,
}

static MEETING: LazyLock<Mutex<Meeting>> = LazyLock::new(|| {
    // The standard library's keys are random.
    let mut hasher = RandomState::new().build_hasher();
    hasher.write_u32(process::id());
    hasher.write_u128(UNIX_EPOCH.elapsed().unwrap_or_default().as_nanos());
    let process = hasher.finish();
    Mutex::new(Meeting { process, n_tokens: 0, waiting: BTreeMap::new() })
});

fn meeting() -> MutexGuard<'static, Meeting> {
    MEETING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The endpoints of so many ranks.
pub(crate) fn all(n_ranks: usize) -> Result<Vec<Wire>, Fault> {
    if (1..=MAX_RANKS).contains(&n_ranks) {
        Ok(World::new(n_ranks).endpoints())
    } else {
        Err(Fault::argument(format!("{n_ranks} ranks; a process has 1 to {MAX_RANKS}")))
    }
}

/// A token that nobody has come with.
pub(crate) fn token() -> Token {
    let mut meeting = meeting();
    meeting.n_tokens += 1;
    let number = meeting.n_tokens;
    meeting.waiting.insert(number, Vec::new());
    let mut token = [0; FW_UNIQUE_ID_BYTES];
    (token[0], token[1]) = (MAGIC, THREADS);
    token[8..16].copy_from_slice(&meeting.process.to_le_bytes());
    token[16..24].copy_from_slice(&number.to_le_bytes());
    token
}

/// The endpoint of a rank of those that come with this token.
pub(crate) fn join(token: &Token, n_ranks: usize, rank: usize) -> Result<Wire, Fault> {
    let number = |at: usize| u64::from_le_bytes(std::array::from_fn(|byte| token[at + byte]));
    if token[..2] != [MAGIC, THREADS] {
        return Err(Fault::argument("this unique id was not made by fwGetUniqueId"));
    }
    let mut meeting = meeting();
    if number(8) != meeting.process {
        let message = "this unique id was made in another process; so far ranks are threads of one \
                       process, those of several need a transport that is not there yet";
        return Err(Fault::new(FW_UNSUPPORTED, message));
    }
    let used = || Fault::argument("all ranks of this unique id have come; make another one");
    let places = meeting.waiting.get_mut(&number(16)).ok_or_else(used)?;
    if places.is_empty() {
        *places = all(n_ranks)?.into_iter().map(Some).collect();
    }
    let size = places.len();
    if n_ranks != size {
        let message = format!("{n_ranks} ranks here, {size} by whoever came first");
        return Err(Fault::argument(message));
    }
    let place = places.get_mut(rank).ok_or_else(|| {
        Fault::argument(format!("rank {rank} does not exist; there are {size} ranks"))
    })?;
    let taken = || Fault::argument(format!("rank {rank} has come already"));
    let wire = place.take().ok_or_else(taken)?;
    if places.iter().all(Option::is_none) {
        meeting.waiting.remove(&number(16));
    }
    Ok(wire)
}
