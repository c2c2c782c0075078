//! Unmodified programs of Open MPI: the one that the system has, and the one that
//! `cargo xtask packages --current-mpi` installs, whose Fortran modules hang on the compiler.

#[path = "../../tests/programs/mod.rs"]
mod programs;

use foldwire_preload::OpenMpi;
use programs::{MpiUnderTest, constants_of, current};

const LIBRARY: MpiUnderTest = MpiUnderTest {
    name: "Open MPI",
    compilers: &["mpicc.openmpi", "mpicc"],
    fortran: &["mpifort.openmpi", "mpifort"],
    launchers: &["mpirun.openmpi", "mpirun"],
    version_text: "Open MPI",
    file: "libfoldwire_preload_openmpi.so",
    is_hydra: false,
    calls_back_since: Some([1, 0]),
    constants: constants_of::<OpenMpi>,
};

const CURRENT: MpiUnderTest = MpiUnderTest {
    name: "Open MPI 5",
    compilers: &[current!("openmpi/bin/mpicc")],
    fortran: &[],
    launchers: &[current!("openmpi/bin/mpirun")],
    ..LIBRARY
};

programs::tests!(LIBRARY);
programs::fortran_tests!(LIBRARY);

/// Those of today's Open MPI.
mod current {
    use super::{CURRENT, programs};

    programs::tests_of_calls!(CURRENT);
}
