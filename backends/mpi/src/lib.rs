//! Foldwire over MPI: any library that the crate `mpi` (rsmpi) works with; tested with Open MPI and
//! MPICH.
//!
//! An MPI program adopts it in three lines:
//!
//! ```no_run
//! # let universe = mpi::initialize().unwrap();
//! # let world = universe.world();
//! # let mut data = vec![1.0f32; 1000];
//! use foldwire as fw; // `use foldwire::Communicator` would shadow rsmpi's trait of that name
//!
//! let mut comm = fw::Communicator::new(foldwire_mpi::join(&world)?)?;
//! comm.all_reduce(&mut data, fw::Op::Sum, &fw::Plan::foldwire(fw::Bound::Relative(1e-4)))?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! *What it does.* [`join`] duplicates the communicator, so that no message of Foldwire's meets one
//! of the program's. Frames travel by `MPI_Isend` and `MPI_Irecv`, and one `MPI_Testsome` in each
//! poll moves all of them along: no threads, `MPI_THREAD_FUNNELED` suffices. Every `link_depth`-th
//! frame goes by `MPI_Issend`, which keeps a fast sender from filling a slow receiver's memory.
//! Between ranks of one node frames pass in memory that they share ([`Messages::share_memory`]).
//!
//! *Order of the end.* Drop communicators of Foldwire's before the `Universe`, as those of MPI's.
//! Dropping one waits until what it sent is delivered, as `MPI_Finalize` does.
//!
//! *Errors* come back as values: the duplicate has `MPI_ERRORS_RETURN`. What a lost process means
//! is the library's affair: most launchers end the whole job, and few libraries tell others of it.
//! Where they do, it is `PeerLost`; where not, the call ends by its time limit.

mod error;
mod exchange;
mod ffi;

pub use error::Error;
pub use exchange::OverMpi;
pub use ffi::MpiRequests;
pub use foldwire_messaging::{Messages, Options};

use foldwire_bootstrap::Exchange;
use mpi::topology::Communicator;

/// The transport over MPI.
pub type Endpoint = foldwire_messaging::Endpoint<Messages<MpiRequests>>;

foldwire::compile_calls!(Endpoint);

/// Why an [`Endpoint`] failed.
pub type EndpointError = foldwire_messaging::Error<Error>;

/// A transport between the ranks of `communicator`, with default settings. All ranks call it
/// together.
///
/// # Errors
/// As [`join_with`].
pub fn join(communicator: &impl Communicator) -> Result<Endpoint, EndpointError> {
    join_with(communicator, Options::default())
}

/// As [`join`], with these settings, which must be the same on all ranks.
///
/// # Errors
/// When the communicator cannot be duplicated, frames are too small, or there is no memory.
pub fn join_with(
    communicator: &impl Communicator,
    options: Options,
) -> Result<Endpoint, EndpointError> {
    let messages = Messages::new(MpiRequests::duplicate(communicator)?);
    let all_gather = |mine: &[u8]| OverMpi(communicator).all_gather(mine);
    Endpoint::new(messages.share_memory(options.frame_bytes, all_gather)?, options)
}
