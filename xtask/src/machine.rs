//! What this machine has of the project's optional parts, found by trying them.

use anyhow::Context;
use std::process::{Command, Stdio};

/// What can be used here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Available {
    /// Open MPI: its compiler wrapper and its mpirun run.
    pub(crate) openmpi: bool,
    /// MPICH: its compiler wrapper and its mpirun run.
    pub(crate) mpich: bool,
    /// libfabric 1.11 or newer, with headers.
    pub(crate) libfabric: bool,
    /// Network namespaces with shaped links: [`namespaces`].
    pub(crate) namespaces: bool,
}

/// Tries everything; takes some tenths of a second.
pub(crate) fn available() -> Available {
    let has = |mpi: &Mpi| mpi.mpicc().is_some() && mpi.mpirun().is_some();
    Available {
        openmpi: has(&OPEN_MPI),
        mpich: has(&MPICH),
        libfabric: says("pkg-config", &["--atleast-version", "1.11", "libfabric"], ""),
        namespaces: namespaces().is_ok(),
    }
}

impl Available {
    /// Parts and whether they can be used.
    pub(crate) fn parts(self) -> [(&'static str, bool); 4] {
        let Self { openmpi, mpich, libfabric, namespaces } = self;
        [
            ("Open MPI", openmpi),
            ("MPICH", mpich),
            ("libfabric", libfabric),
            ("emulated cluster", namespaces),
        ]
    }
}

/// An MPI library by its programs, which have different names on different systems.
pub(crate) struct Mpi {
    mpicc: [&'static str; 2],
    mpicc_version: &'static str,
    mpicc_says: &'static str,
    mpirun: [&'static str; 2],
    mpirun_says: &'static str,
}

/// Open MPI.
pub(crate) const OPEN_MPI: Mpi = Mpi {
    mpicc: ["mpicc.openmpi", "mpicc"],
    mpicc_version: "--showme:version",
    mpicc_says: "Open MPI",
    mpirun: ["mpirun.openmpi", "mpirun"],
    mpirun_says: "Open MPI",
};

/// MPICH.
pub(crate) const MPICH: Mpi = Mpi {
    mpicc: ["mpicc.mpich", "mpicc"],
    mpicc_version: "-v",
    mpicc_says: "MPICH",
    mpirun: ["mpirun.mpich", "mpirun"],
    mpirun_says: "HYDRA",
};

impl Mpi {
    /// Its compiler wrapper.
    pub(crate) fn mpicc(&self) -> Option<&'static str> {
        self.mpicc.into_iter().find(|program| says(program, &[self.mpicc_version], self.mpicc_says))
    }

    /// Its launcher.
    pub(crate) fn mpirun(&self) -> Option<&'static str> {
        self.mpirun.into_iter().find(|program| says(program, &["--version"], self.mpirun_says))
    }
}

/// Makes a network namespace with a shaped device and removes it.
///
/// # Errors
/// Why it cannot be done here.
#[cfg(target_os = "linux")]
pub(crate) fn namespaces() -> anyhow::Result<()> {
    crate::cluster::probe().context("network namespaces cannot be made here")
}

/// As there are none but on Linux.
#[cfg(not(target_os = "linux"))]
pub(crate) fn namespaces() -> anyhow::Result<()> {
    anyhow::bail!("network namespaces exist only on Linux")
}

/// Whether a program runs, succeeds, and says a word.
fn says(program: &str, args: &[&str], word: &str) -> bool {
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
