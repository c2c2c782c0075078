//! Runs unmodified programs with the standard ABI of MPI 5. Uses the MPICH 5 that
//! `cargo xtask packages --current-mpi` installs, or one whose `mpicc_abi` and
//! `mpirun` are in the path.

#[path = "../../tests/programs/mod.rs"]
mod programs;

use foldwire_preload::Standard;
use programs::{MpiUnderTest, constants_of, current};

const LIBRARY: MpiUnderTest = MpiUnderTest {
    name: "the standard ABI of MPI 5",
    compilers: &[current!("mpich/bin/mpicc_abi"), "mpicc_abi"],
    fortran: &[],
    launchers: &[current!("mpich/bin/mpirun"), "mpirun"],
    launcher_version_text: "HYDRA",
    file: "libfoldwire_preload_mpi_abi.so",
    launcher_is_hydra: true,
    // It has none, so non-blocking calls are passed on.
    progress_callbacks_since: None,
    constants: constants_of::<Standard>,
};

programs::tests!(LIBRARY);
