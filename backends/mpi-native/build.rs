//! Compiles a C function for the constant that bindgen cannot read. Uses the MPI library that the
//! crate `mpi` finds, by the same search (`MPICC`, else `mpicc`, else pkg-config).

fn main() {
    println!("cargo:rerun-if-changed=src/ffi/in_place.c");
    println!("cargo:rerun-if-env-changed=MPICC");
    let library = build_probe_mpi::probe().unwrap_or_else(|errors| {
        let reasons: Vec<_> = errors.iter().map(ToString::to_string).collect();
        panic!("no MPI library was found; install one, or set MPICC\n{}", reasons.join("\n"))
    });
    let mut build = cc::Build::new();
    build.file("src/ffi/in_place.c").includes(&library.include_paths);
    if let Some(mpicc) = library.mpicc {
        build.compiler(mpicc);
    }
    build.compile("foldwire_mpi_native");
}
