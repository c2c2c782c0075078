//! Compiles the kernels and the device that runs them, for the host.

fn main() {
    for folder in ["../kernels", "../shim"] {
        println!("cargo::rerun-if-changed={folder}");
    }
    // Without optimisation the tests would take minutes. Contraction to fused operations would
    // change results.
    cc::Build::new()
        .cpp(true)
        .std("c++17")
        .opt_level(2)
        .debug(false)
        .flag("-ffp-contract=off")
        .warnings(true)
        .extra_warnings(true)
        .include("../shim")
        .files(["../shim/machine.cpp", "../shim/kernels.cpp"])
        .compile("foldwire_cuda_host");
}
