//! The MPI backend: the library that this program is linked with.

use super::section::ReportSection;

#[cfg(feature = "mpi")]
pub(super) fn section() -> ReportSection {
    let (major, minor) = mpi::environment::version();
    let library = match mpi::environment::library_version() {
        // Open MPI includes the final NUL in the length.
        Ok(text) => {
            text.trim_end_matches('\0').lines().next().unwrap_or_default().trim().to_owned()
        }
        Err(error) => format!("its name is no text: {error}"),
    };
    ReportSection::backend("mpi")
        .property("library", library)
        .property("standard", format!("{major}.{minor}"))
}

#[cfg(not(feature = "mpi"))]
pub(super) fn section() -> ReportSection {
    ReportSection::absent_backend(
        "mpi",
        "an MPI library with mpicc, such as libopenmpi-dev or libmpich-dev, and libclang-dev",
    )
}
