//! Foldwire under unmodified MPI programs, by `LD_PRELOAD`.
//!
//! README.md has the way from a fresh machine to a first result. This library is what the libraries
//! for `LD_PRELOAD` have in common, of which there is one for each family of MPI libraries
//! (`open-mpi/`, `mpich/`, `mpi-abi/`); they say no more than which family it is. A collective of
//! the program's goes through these rooms:
//!
//! | module | what it is |
//! |---|---|
//! | [`ffi`] | the table of functions, expanded to names of C and Fortran; MPI's functions; the program's arrays; all `unsafe` code |
//! | [`filters`] | which calls are passed on for certain |
//! | [`guard`] | no panic leaves, and the floating-point environment is the program's again |
//! | `state` | a process between `MPI_Init` and `MPI_Finalize` |
//! | `greet` | whether all ranks have the library, as far as that can be said |
//! | `shadow` | whether a communicator's ranks agree, and a communicator of ours beside it |
//! | `call`, [`signature`] | which buffers count, what their values are |
//! | [`agree`] | what ranks tell each other where each knows only a part; pure |
//! | [`mod@decide`], [`settings`], [`rules`] | who carries it out; pure |
//! | `taken`, `net` | core's collective on those buffers, by messages of the MPI library's |
//! | `line`, `background` | calls that are not waited for, and how they move along |
//! | `asked` | those of them of which ranks tell each other first |
//! | [`report`] | what is said at the end |
//!
//! *Loss by consent.* Without a bound in the environment nothing is lossy.
//!
//! *All ranks alike.* Whether a call is taken hangs on nothing but what MPI makes equal on all
//! ranks, on settings that they have compared, and on what they have told each other. What only one
//! rank knows (where its arrays lie, whether they overlap or have gaps) decides how it copies,
//! never who carries the call out.
//!
//! *Threads.* What is kept of a communicator is behind a lock that its one caller holds; all else
//! is shared briefly. MPI is called by the program's threads only, so what it allows them suffices.
//! Whoever is in MPI moves calls along that are not waited for, unless another holds their lock.

pub mod agree;
mod background;
pub mod call;
mod comm_state;
pub mod decide;
mod execute;
pub mod ffi;
pub mod filter;
pub mod guard;
mod init_barrier;
mod negotiate;
mod queue;
pub mod report;
pub mod rules;
pub mod settings;
pub mod signature;
mod state;
mod transport;

pub use ffi::abi::{Mpich, OpenMpi, Standard};
