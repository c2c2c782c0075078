//! Creation of communicators from unique ids: one, or all those of a group. Each waits for all its
//! ranks.

use std::thread;
use std::time::Duration;

use foldwire::Config;

use crate::endpoint::SharedEndpoint;
use crate::errors::ApiError;
use crate::ffi::memory::CommOut;
use crate::ffi::types::{FW_INTERNAL_ERROR, FW_MISMATCH, FW_NO_ROOM};
use crate::handle_table;
use crate::transport::{self, AnyTransport, UniqueIdBytes};

/// Arguments of an fwCommInitRank.
pub(crate) struct PendingJoin {
    pub(crate) unique_id: UniqueIdBytes,
    pub(crate) n_ranks: usize,
    pub(crate) rank: usize,
    pub(crate) config: Config,
    pub(crate) n_calls: usize,
    pub(crate) place: CommOut,
}

/// Returns the longest wait for other ranks.
pub(crate) fn limit_of(config: &Config) -> Duration {
    config.deadline.map_or(config.timeout, |deadline| config.timeout.min(deadline))
}

/// Creates all communicators, or none if one fails.
pub(super) fn all(joins: Vec<PendingJoin>) -> Result<(), ApiError> {
    check(&joins)?;
    let mut made = Vec::new();
    let result = endpoints(&joins).and_then(|endpoints| {
        for (transport, PendingJoin { config, n_calls, .. }) in endpoints.into_iter().zip(&joins) {
            made.push(SharedEndpoint::create(transport, *config, *n_calls)?);
        }
        Ok(())
    });
    match result {
        Ok(()) => joins.into_iter().zip(made).for_each(|(mut join, handle)| join.place.put(handle)),
        Err(_) => made.into_iter().for_each(handle_table::remove),
    }
    result
}

/// Checks all arguments, without using up a unique id.
///
/// # Errors
/// If an argument is invalid, or two calls with the same id contradict each other.
fn check(joins: &[PendingJoin]) -> Result<(), ApiError> {
    for (at, PendingJoin { unique_id, n_ranks, rank, config, .. }) in joins.iter().enumerate() {
        transport::check(unique_id, *n_ranks, *rank, limit_of(config))?;
        for other in joins[..at].iter().filter(|other| other.unique_id == *unique_id) {
            if other.n_ranks != *n_ranks {
                let message = format!(
                    "two calls of a group have the same unique id, but {n_ranks} and {} ranks",
                    other.n_ranks
                );
                return Err(ApiError::new(FW_MISMATCH, message));
            }
            if other.rank == *rank {
                return Err(ApiError::argument(format!("rank {rank} appears twice in one group")));
            }
        }
    }
    Ok(())
}

/// Creates the endpoints of all ranks. Joining blocks until all ranks have come, so each rank joins
/// in a temporary thread.
fn endpoints(joins: &[PendingJoin]) -> Result<Vec<AnyTransport>, ApiError> {
    let join = |unique_id: &UniqueIdBytes, n_ranks, rank, config: &Config| {
        transport::join(unique_id, n_ranks, rank, limit_of(config))
    };
    if let [PendingJoin { unique_id, n_ranks, rank, config, .. }] = joins {
        return Ok(vec![join(unique_id, *n_ranks, *rank, config)?]);
    }
    thread::scope(|scope| {
        let threads: Vec<_> = joins
            .iter()
            .map(|PendingJoin { unique_id, n_ranks, rank, config, .. }| {
                let (n_ranks, rank) = (*n_ranks, *rank);
                let thread = thread::Builder::new();
                thread.spawn_scoped(scope, move || join(unique_id, n_ranks, rank, config))
            })
            .collect();
        let none = |error| {
            ApiError::new(FW_NO_ROOM, format!("cannot create a thread for a rank: {error}"))
        };
        let panicked =
            |_| ApiError::new(FW_INTERNAL_ERROR, "a panic while a rank joined; please report it");
        let outcomes: Vec<_> = threads
            .into_iter()
            .map(|thread| thread.map_err(none)?.join().map_err(panicked)?)
            .collect();
        outcomes.into_iter().collect()
    })
}
