//! How ranks meet in `MPI_Init`, so that somebody says why a job stands still, or why no call is
//! taken.
//!
//! A rank without the library passes `MPI_Init` alone, and what it calls next would meet calls of
//! ours that it knows nothing of. The others therefore wait for all ranks before the program goes
//! on, and say so when that takes long. They go on waiting: how late a rank is, is no answer, and
//! some ranks that gave up could not tell the rest. What they wait for is an all-reduce that does
//! not block, and so nothing that a library would have to do otherwise.

use std::time::{Duration, Instant};

use foldwire::op::OpCode;
use foldwire_messaging::Patience;

use crate::ffi::library::{MpiApi, MpiErrorCode};

/// MPI libraries bring their ranks to the end of `MPI_Init` within much less.
const WARN_AFTER: Duration = Duration::from_secs(5);

/// Waits for all ranks of the program. Whether they have the same settings.
pub(crate) fn wait_for_all_ranks(
    mpi: &dyn MpiApi,
    (rank, size): (usize, usize),
    fingerprint: u64,
) -> Result<bool, MpiErrorCode> {
    if size == 1 {
        return Ok(true);
    }
    // One of these two has the library, unless it is missing at both ends.
    let mut warns = rank == 0 || rank == size - 1;
    let (start, mut patience) = (Instant::now(), Patience::default());
    let mut wait = || {
        if warns && start.elapsed() >= WARN_AFTER {
            warns = false;
            eprintln!(
                "foldwire: rank {rank} has waited {} s in MPI_Init for other ranks; do all of them \
                 have the library (LD_PRELOAD)?",
                WARN_AFTER.as_secs()
            );
        }
        patience.rest(Duration::from_millis(1));
    };
    let own = fingerprint as i64;
    let mut largest = [own, !own];
    let world = mpi.handles().comm_world;
    mpi.all_reduce_polling(world, &mut largest, OpCode::Max, &mut wait)?;
    let is_agreed = largest[0] == !largest[1];
    if rank == 0 && !is_agreed {
        eprintln!(
            "foldwire: ranks have different settings (variables FOLDWIRE_…) or versions of the \
             library; calls between them are passed on"
        );
    }
    Ok(is_agreed)
}
