//! Tests of the header, and of programs in C, C++ and Fortran that use it. They are one test
//! target, so that it is linked once.

#[cfg(target_os = "linux")]
mod fortran;
mod header;
#[cfg(target_os = "linux")]
mod install;
#[cfg(target_os = "linux")]
mod mpi;
#[cfg(target_os = "linux")]
mod processes;
#[cfg(target_os = "linux")] // names of libraries, flags of linkers
mod programs;

/// Returns the folder of the package.
fn package() -> &'static std::path::Path {
    std::path::Path::new(env!("CARGO_MANIFEST_DIR"))
}

#[test]
fn a_panic_does_not_cross_the_border() {
    let result = foldwire_c::errors::catch_errors(|| panic!("on purpose"));
    assert_eq!(result, foldwire_c::ffi::types::FW_INTERNAL_ERROR);
}
