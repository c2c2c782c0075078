//! Unmodified programs of Open MPI.

#[path = "../../tests/programs/mod.rs"]
mod programs;

use foldwire_preload::OpenMpi;
use programs::{Library, constants_of};

const LIBRARY: Library = Library {
    name: "Open MPI",
    compilers: &["mpicc.openmpi", "mpicc"],
    fortran: &["mpifort.openmpi", "mpifort"],
    launchers: &["mpirun.openmpi", "mpirun"],
    says: "Open MPI",
    file: "libfoldwire_preload_openmpi.so",
    is_hydra: false,
    calls_back_since: Some([1, 0]),
    constants: constants_of::<OpenMpi>,
};

programs::tests!(LIBRARY);
programs::fortran_tests!(LIBRARY);
