//! Foldwire in unmodified MPI programs, by `LD_PRELOAD`.
//!
//! README.md leads from a fresh machine to a first result. This crate has the common code of the
//! libraries for `LD_PRELOAD`. There is one library for each family of MPI libraries (`open-mpi/`,
//! `mpich/`, `mpi-abi/`), each of a few lines. A collective of the program passes through these
//! modules:
//!
//! | module | content |
//! |---|---|
//! | [`ffi`] | exported functions of C and Fortran; MPI's functions; the program's arrays; all `unsafe` code |
//! | [`filter`] | fast check for calls that certainly go to the MPI library |
//! | [`guard`] | stops panics, and restores the floating-point environment |
//! | `state` | state of a process between `MPI_Init` and `MPI_Finalize` |
//! | `init_barrier` | barrier in `MPI_Init` that detects ranks without the library |
//! | `comm_state` | state of each communicator, with Foldwire's own communicator |
//! | `call`, [`signature`] | arguments of a call, and element types of its buffers |
//! | [`agree`] | agreement of ranks that each know only a part of a call; pure |
//! | [`mod@decide`], [`settings`], [`rules`] | decision whether Foldwire takes a call; pure |
//! | `execute`, `transport` | Foldwire's collective on the program's buffers, over messages of the MPI library |
//! | `queue`, `background` | non-blocking calls and their progress |
//! | `negotiate` | non-blocking calls on which the ranks must agree first |
//! | `message_consent`, [`obstacle`], `messages`, [`compressed_message`] | point-to-point messages |
//! | [`report`] | report at the end of the program |
//!
//! *Loss by consent.* Without a bound in the environment nothing is lossy.
//!
//! *Equal decisions.* Whether a call is taken depends only on facts that are equal on all ranks:
//! those that MPI requires to be equal, settings that the ranks have compared, and facts that they
//! have exchanged. Local facts (addresses, overlaps, gaps) decide only how a rank copies its data.
//!
//! *Threads.* The state of a communicator is behind a lock, which the thread that calls a
//! collective on it holds. All other locks are held briefly. Only the program's threads call MPI,
//! so the thread level that the program requested suffices. A thread in MPI advances non-blocking
//! calls, unless another thread holds their lock.

pub mod agree;
mod background;
pub mod call;
mod comm_state;
pub mod compressed_message;
pub mod decide;
mod execute;
pub mod ffi;
pub mod filter;
pub mod guard;
mod init_barrier;
mod message_consent;
mod messages;
mod negotiate;
pub mod obstacle;
mod queue;
pub mod report;
pub mod rules;
pub mod settings;
pub mod signature;
mod state;
mod transport;

pub use ffi::abi::{Mpich, OpenMpi, Standard};
