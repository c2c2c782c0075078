//! Detects which optional parts of the project can be used on this machine.

use foldwire_steps::programs::{MPICH, MpiPrograms, OPEN_MPI, prints};

/// Optional parts, and whether they can be used here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MachineParts {
    /// Open MPI: its compiler wrapper and its mpirun run.
    pub(crate) openmpi: bool,
    /// MPICH: its compiler wrapper and its mpirun run.
    pub(crate) mpich: bool,
    /// libfabric 1.11 or newer, with headers.
    pub(crate) libfabric: bool,
    /// Network namespaces with shaped links.
    pub(crate) namespaces: bool,
}

/// Tries every part. Takes some tenths of a second.
pub(crate) fn available() -> MachineParts {
    let has = |mpi: &MpiPrograms| mpi.mpicc().is_some() && mpi.mpirun().is_some();
    MachineParts {
        openmpi: has(&OPEN_MPI),
        mpich: has(&MPICH),
        libfabric: prints("pkg-config", &["--atleast-version", "1.11", "libfabric"], ""),
        namespaces: has_namespaces(),
    }
}

impl MachineParts {
    /// Returns the name of each part, and whether it can be used.
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

#[cfg(target_os = "linux")]
fn has_namespaces() -> bool {
    foldwire_cluster::probe().is_ok()
}

/// Only Linux has network namespaces.
#[cfg(not(target_os = "linux"))]
fn has_namespaces() -> bool {
    false
}
