//! Runs unmodified programs with Open MPI: with the system's version, and with the version that
//! `cargo xtask packages --current-mpi` installs. The latter runs only the basic tests of calls:
//! neither those of settings, tools and constants, nor Fortran, whose modules depend on the
//! compiler.

#[path = "../../tests/programs/mod.rs"]
mod programs;

use foldwire_preload::OpenMpi;
use programs::{MpiUnderTest, constants_of, current};

const LIBRARY: MpiUnderTest = MpiUnderTest {
    name: "Open MPI",
    compilers: &["mpicc.openmpi", "mpicc"],
    fortran: &["mpifort.openmpi", "mpifort"],
    launchers: &["mpirun.openmpi", "mpirun"],
    launcher_version_text: "Open MPI",
    file: "libfoldwire_preload_openmpi.so",
    launcher_is_hydra: false,
    progress_callbacks_since: Some([1, 0]),
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

/// The basic tests of calls, with the current version.
mod current {
    use super::{CURRENT, programs};

    programs::tests_of_calls!(CURRENT);
}
