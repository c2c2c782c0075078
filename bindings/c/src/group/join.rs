//! Ranks of unique ids: one, or those of a group, each of which waits for all others.

use std::thread;
use std::time::Duration;

use foldwire::Config;

use crate::border::Fault;
use crate::family::Family;
use crate::ffi::memory::CommPlace;
use crate::ffi::types::{FW_INTERNAL_ERROR, FW_MISMATCH, FW_NO_ROOM};
use crate::handles;
use crate::wire::{self, Token, Wire};

/// A rank that is to be made.
pub(crate) struct Joining {
    pub(crate) token: Token,
    pub(crate) n_ranks: usize,
    pub(crate) rank: usize,
    pub(crate) config: Config,
    pub(crate) n_calls: usize,
    pub(crate) place: CommPlace,
}

/// How long ranks are waited for.
pub(crate) fn limit_of(config: &Config) -> Duration {
    config.deadline.map_or(config.timeout, |deadline| config.timeout.min(deadline))
}

/// Makes all of them or, if one fails, none.
pub(super) fn all(joins: Vec<Joining>) -> Result<(), Fault> {
    check(&joins)?;
    let mut made = Vec::new();
    let founded = wires(&joins).and_then(|wires| {
        for (wire, Joining { config, n_calls, .. }) in wires.into_iter().zip(&joins) {
            made.push(Family::found(wire, *config, *n_calls)?);
        }
        Ok(())
    });
    match founded {
        Ok(()) => joins.into_iter().zip(made).for_each(|(mut join, handle)| join.place.put(handle)),
        Err(_) => made.into_iter().for_each(handles::remove),
    }
    founded
}

/// # Errors
/// A fault if one of them cannot be, or two do not go together. No id is used up.
fn check(joins: &[Joining]) -> Result<(), Fault> {
    for (at, Joining { token, n_ranks, rank, config, .. }) in joins.iter().enumerate() {
        wire::check(token, *n_ranks, *rank, limit_of(config))?;
        for other in joins[..at].iter().filter(|other| other.token == *token) {
            if other.n_ranks != *n_ranks {
                let message = format!("{n_ranks} ranks and {} of one unique id", other.n_ranks);
                return Err(Fault::new(FW_MISMATCH, message));
            }
            if other.rank == *rank {
                return Err(Fault::argument(format!("rank {rank} twice in one group")));
            }
        }
    }
    Ok(())
}

/// Their endpoints. Threads that only wait play ranks of this one while they come together.
fn wires(joins: &[Joining]) -> Result<Vec<Wire>, Fault> {
    let join = |token: &Token, n_ranks, rank, config: &Config| {
        wire::join(token, n_ranks, rank, limit_of(config))
    };
    if let [Joining { token, n_ranks, rank, config, .. }] = joins {
        return Ok(vec![join(token, *n_ranks, *rank, config)?]);
    }
    thread::scope(|scope| {
        let threads: Vec<_> = joins
            .iter()
            .map(|Joining { token, n_ranks, rank, config, .. }| {
                let (n_ranks, rank) = (*n_ranks, *rank);
                let thread = thread::Builder::new();
                thread.spawn_scoped(scope, move || join(token, n_ranks, rank, config))
            })
            .collect();
        let none = |error| Fault::new(FW_NO_ROOM, format!("no thread for a rank: {error}"));
        let panicked = |_| Fault::new(FW_INTERNAL_ERROR, "a panic while a rank joined");
        let outcomes: Vec<_> = threads
            .into_iter()
            .map(|thread| thread.map_err(none)?.join().map_err(panicked)?)
            .collect();
        outcomes.into_iter().collect()
    })
}
