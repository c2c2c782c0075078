//! Unmodified programs of Open MPI.

#[path = "../../tests/programs/mod.rs"]
mod programs;

use programs::Library;

const LIBRARY: Library = Library {
    name: "Open MPI",
    compilers: &["mpicc.openmpi", "mpicc"],
    fortran: &["mpifort.openmpi", "mpifort"],
    launchers: &["mpirun.openmpi", "mpirun"],
    says: "Open MPI",
    file: "libfoldwire_preload_openmpi.so",
    is_mpich: false,
};

programs::tests!(LIBRARY);
