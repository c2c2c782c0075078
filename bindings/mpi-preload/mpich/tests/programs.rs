//! Unmodified programs of MPICH.

#[path = "../../tests/programs/mod.rs"]
mod programs;

use programs::Library;

const LIBRARY: Library = Library {
    name: "MPICH",
    compilers: &["mpicc.mpich", "mpicc"],
    fortran: &["mpifort.mpich", "mpifort"],
    launchers: &["mpirun.mpich", "mpirun"],
    says: "HYDRA",
    file: "libfoldwire_preload_mpich.so",
    is_mpich: true,
};

programs::tests!(LIBRARY);
