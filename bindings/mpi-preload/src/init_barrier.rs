//! Barrier of all ranks in `MPI_Init`, which also compares their settings.
//!
//! A rank on which this library is not loaded does not wait here. Its next MPI calls would receive
//! messages of Foldwire that it does not understand. So the ranks with the library wait for all
//! ranks before the program continues, and warn if that takes long. They never stop waiting: a
//! missing rank may only be late, and a rank that stopped waiting could not inform the others. The
//! ranks wait in a non-blocking all-reduce, so the MPI library needs no special support.

use std::time::{Duration, Instant};

use foldwire::op::OpCode;
use foldwire_messaging::Backoff;

use crate::ffi::library::{MpiApi, MpiErrorCode};

/// Time after which a rank warns. MPI libraries complete `MPI_Init` much sooner.
const WARN_AFTER: Duration = Duration::from_secs(5);

/// Waits for all ranks of the program. Returns whether they have equal settings.
pub(crate) fn wait_for_all_ranks(
    mpi: &dyn MpiApi,
    (rank, size): (usize, usize),
    fingerprint: u64,
) -> Result<bool, MpiErrorCode> {
    if size == 1 {
        return Ok(true);
    }
    // Only these two ranks warn, so that a large job prints two lines at most. If one of them lacks
    // the library, the other one still warns.
    let mut warns = rank == 0 || rank == size - 1;
    let (start, mut backoff) = (Instant::now(), Backoff::default());
    let mut wait = || {
        if warns && start.elapsed() >= WARN_AFTER {
            warns = false;
            eprintln!(
                "foldwire: rank {rank} has waited {} s in MPI_Init for other ranks; do all of them \
                 have the library (LD_PRELOAD)?",
                WARN_AFTER.as_secs()
            );
        }
        backoff.wait(Duration::from_millis(1));
    };
    // The maximum of the complements is the complement of the minimum. All fingerprints are equal
    // if their maximum is their minimum.
    let own = fingerprint as i64;
    let mut largest = [own, !own];
    let world = mpi.handles().comm_world;
    mpi.all_reduce_polling(world, &mut largest, OpCode::Max, &mut wait)?;
    let is_agreed = largest[0] == !largest[1];
    if rank == 0 && !is_agreed {
        eprintln!(
            "foldwire: ranks have different settings (variables FOLDWIRE_…) or versions of the \
             library; all calls go to the MPI library"
        );
    }
    Ok(is_agreed)
}
