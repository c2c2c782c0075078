//! Foldwire over MPI. It works with every library that the crate `mpi` (rsmpi) supports, and is
//! tested with Open MPI and MPICH.
//!
//! An MPI program needs three lines:
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
//! *Design.* [`join`] duplicates the communicator, so that Foldwire's messages never match the
//! program's receives. Frames travel by `MPI_Isend` and `MPI_Irecv`. One `MPI_Testsome` in each
//! poll advances all of them, so there are no threads and `MPI_THREAD_FUNNELED` suffices. Every
//! `link_depth`-th frame is sent by `MPI_Issend`, which keeps a fast sender from filling a slow
//! receiver's memory. Between ranks of one node, frames pass through shared memory
//! ([`Messages::share_memory`]).
//!
//! *Other backends.* Ranks of another backend, such as libfabric's, can exchange their addresses
//! over MPI by [`OverMpi`].
//!
//! *Order of drops.* Drop Foldwire's communicators before the `Universe`, like MPI's own. Dropping
//! one waits until its messages are delivered, as `MPI_Finalize` does.
//!
//! *Errors* are returned as values: the duplicate has `MPI_ERRORS_RETURN`. The effect of a lost
//! process depends on the library: most launchers end the whole job, and few libraries report the
//! loss to other ranks. A reported loss is `PeerLost`; otherwise the call ends by its time limit.

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

/// Error of an [`Endpoint`].
pub type EndpointError = foldwire_messaging::Error<Error>;

/// Makes a transport between the ranks of `communicator`, with default settings. All ranks call it
/// together.
///
/// # Errors
/// As [`join_with`].
pub fn join(communicator: &impl Communicator) -> Result<Endpoint, EndpointError> {
    join_with(communicator, Options::default())
}

/// As [`join`], with explicit settings, which must be the same on all ranks.
///
/// # Errors
/// The communicator cannot be duplicated, frames are too small, or there is no memory.
pub fn join_with(
    communicator: &impl Communicator,
    options: Options,
) -> Result<Endpoint, EndpointError> {
    let messages = Messages::new(MpiRequests::duplicate(communicator)?);
    let all_gather = |mine: &[u8]| OverMpi(communicator).all_gather(mine);
    Endpoint::new(messages.share_memory(options.frame_bytes, all_gather)?, options)
}
