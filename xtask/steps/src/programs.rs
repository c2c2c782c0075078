//! Detects installed programs by running them.

use std::process::{Command, Stdio};

/// Programs of an MPI library. Their names differ between systems, and `mpicc` may belong to any
/// library. A program therefore counts only if it prints the library's name.
pub struct MpiPrograms {
    mpicc: [&'static str; 2],
    mpicc_version: &'static str,
    mpicc_prints: &'static str,
    mpirun: [&'static str; 2],
    mpirun_prints: &'static str,
}

/// Open MPI.
pub const OPEN_MPI: MpiPrograms = MpiPrograms {
    mpicc: ["mpicc.openmpi", "mpicc"],
    mpicc_version: "--showme:version",
    mpicc_prints: "Open MPI",
    mpirun: ["mpirun.openmpi", "mpirun"],
    mpirun_prints: "Open MPI",
};

/// MPICH.
pub const MPICH: MpiPrograms = MpiPrograms {
    mpicc: ["mpicc.mpich", "mpicc"],
    mpicc_version: "-v",
    mpicc_prints: "MPICH",
    mpirun: ["mpirun.mpich", "mpirun"],
    mpirun_prints: "HYDRA",
};

impl MpiPrograms {
    /// Returns the library's compiler wrapper, if it runs.
    pub fn mpicc(&self) -> Option<&'static str> {
        self.mpicc
            .into_iter()
            .find(|program| prints(program, &[self.mpicc_version], self.mpicc_prints))
    }

    /// Returns the library's launcher, if it runs.
    pub fn mpirun(&self) -> Option<&'static str> {
        self.mpirun.into_iter().find(|program| prints(program, &["--version"], self.mpirun_prints))
    }
}

/// Returns whether a program runs, succeeds, and prints `word`.
pub fn prints(program: &str, args: &[&str], word: &str) -> bool {
    let output = Command::new(program).args(args).stdin(Stdio::null()).output();
    output.is_ok_and(|output| {
        let printed = [output.stdout, output.stderr].concat();
        output.status.success() && String::from_utf8_lossy(&printed).contains(word)
    })
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    #[test]
    fn a_program_counts_if_it_succeeds_and_prints_the_word() {
        assert!(prints("sh", &["-c", "echo Open MPI >&2"], "Open MPI"));
        assert!(!prints("sh", &["-c", "echo MPICH"], "Open MPI"));
        assert!(!prints("sh", &["-c", "echo Open MPI; exit 1"], "Open MPI"));
        assert!(!prints("a-program-that-is-not-installed", &[], ""));
    }
}
