//! What programs are here, found by trying them.

use std::process::{Command, Stdio};

/// An MPI library by its programs, which have different names on different systems.
pub struct Mpi {
    mpicc: [&'static str; 2],
    mpicc_version: &'static str,
    mpicc_says: &'static str,
    mpirun: [&'static str; 2],
    mpirun_says: &'static str,
}

/// Open MPI.
pub const OPEN_MPI: Mpi = Mpi {
    mpicc: ["mpicc.openmpi", "mpicc"],
    mpicc_version: "--showme:version",
    mpicc_says: "Open MPI",
    mpirun: ["mpirun.openmpi", "mpirun"],
    mpirun_says: "Open MPI",
};

/// MPICH.
pub const MPICH: Mpi = Mpi {
    mpicc: ["mpicc.mpich", "mpicc"],
    mpicc_version: "-v",
    mpicc_says: "MPICH",
    mpirun: ["mpirun.mpich", "mpirun"],
    mpirun_says: "HYDRA",
};

impl Mpi {
    /// Its compiler wrapper.
    pub fn mpicc(&self) -> Option<&'static str> {
        self.mpicc.into_iter().find(|program| says(program, &[self.mpicc_version], self.mpicc_says))
    }

    /// Its launcher.
    pub fn mpirun(&self) -> Option<&'static str> {
        self.mpirun.into_iter().find(|program| says(program, &["--version"], self.mpirun_says))
    }
}

/// Whether a program runs, succeeds, and says a word.
pub fn says(program: &str, args: &[&str], word: &str) -> bool {
    let output = Command::new(program).args(args).stdin(Stdio::null()).output();
    output.is_ok_and(|output| {
        let said = [output.stdout, output.stderr].concat();
        output.status.success() && String::from_utf8_lossy(&said).contains(word)
    })
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    #[test]
    fn a_program_counts_when_it_succeeds_and_says_the_word() {
        assert!(says("sh", &["-c", "echo Open MPI >&2"], "Open MPI"));
        assert!(!says("sh", &["-c", "echo MPICH"], "Open MPI"));
        assert!(!says("sh", &["-c", "echo Open MPI; exit 1"], "Open MPI"));
        assert!(!says("a-program-that-is-not-installed", &[], ""));
    }
}
