//! The MPI library's own collectives and algorithms, with which `foldwire bench --backend mpi`
//! compares Foldwire.
//!
//! [`Native`] calls `MPI_Allreduce` and similar functions on slices. [`variants`] lists the
//! algorithms that the library offers for a collective. Each is a [`CollectiveVariant`]: one of
//! MPI's functions (a [`FunctionForm`], such as `MPI_Allgather` or `MPI_Allgatherv`), and values of
//! the library's control variables (MPI 4.0, section 15.3). [`Tuned`] is a communicator for one
//! variant, and [`ActiveVariant`] makes its calls. Both set the variables only while the library
//! reads them, and then restore them.
//!
//! | library | variables | when they are read |
//! |---|---|---|
//! | Open MPI | `coll_tuned_<function>_algorithm`, `…_segmentsize` | when a communicator is made, if `coll_tuned_use_dynamic_rules` was set before `MPI_Init` ([`required_environment`]) |
//! | MPICH | `MPIR_CVAR_<FUNCTION>_INTRA_ALGORITHM`, `…_POSIX_INTRA_ALGORITHM`, `…_DEVICE_COLLECTIVE` | at each call |
//!
//! Other libraries have only their default. Some settings cannot change at run time, and keep the
//! values with which the user started the program: Open MPI's component for collectives (`tuned`,
//! `han`, …), thresholds, and the fan-outs of trees.

mod error;
mod ffi;
mod mpich;
mod native;
mod open_mpi;
mod variant;

pub use error::{BufferSide, Error};
pub use native::{Buffers, Call, FunctionForm, Native, Operation};
pub use variant::{
    ActiveVariant, CollectiveVariant, Tuned, library, required_environment, variants,
};
