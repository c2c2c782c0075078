//! Unmodified programs of MPICH.

#[path = "../../tests/programs/mod.rs"]
mod programs;

use foldwire_preload::Mpich;
use programs::{Library, constants_of};

const LIBRARY: Library = Library {
    name: "MPICH",
    compilers: &["mpicc.mpich", "mpicc"],
    fortran: &["mpifort.mpich", "mpifort"],
    launchers: &["mpirun.mpich", "mpirun"],
    says: "HYDRA",
    file: "libfoldwire_preload_mpich.so",
    is_hydra: true,
    constants: constants_of::<Mpich>,
};

programs::tests!(LIBRARY);
programs::fortran_tests!(LIBRARY);
