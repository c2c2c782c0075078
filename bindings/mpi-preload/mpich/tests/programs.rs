//! Runs unmodified programs with MPICH: with the system's version, and with the version that
//! `cargo xtask packages --current-mpi` installs. The latter runs only the basic tests of calls:
//! neither those of settings, tools and constants, nor Fortran, whose modules depend on the
//! compiler.

#[path = "../../tests/programs/mod.rs"]
mod programs;

use foldwire_preload::Mpich;
use programs::{MpiUnderTest, constants_of, current};

const LIBRARY: MpiUnderTest = MpiUnderTest {
    name: "MPICH",
    compilers: &["mpicc.mpich", "mpicc"],
    fortran: &["mpifort.mpich", "mpifort"],
    launchers: &["mpirun.mpich", "mpirun"],
    launcher_version_text: "HYDRA",
    file: "libfoldwire_preload_mpich.so",
    launcher_is_hydra: true,
    progress_callbacks_since: Some([4, 3]),
    constants: constants_of::<Mpich>,
};

const CURRENT: MpiUnderTest = MpiUnderTest {
    name: "MPICH 5",
    compilers: &[current!("mpich/bin/mpicc")],
    fortran: &[],
    launchers: &[current!("mpich/bin/mpirun")],
    ..LIBRARY
};

programs::tests!(LIBRARY);
programs::fortran_tests!(LIBRARY);

/// The basic tests of calls, with the current version.
mod current {
    use super::{CURRENT, programs};

    programs::tests_of_calls!(CURRENT);
}
