//! Tests of devices without a GPU: on a simulated one, and by the compiler NVRTC from PyPI.

use crate::fabrics::{self, BuildScope};
use crate::machine::MachineParts;
use crate::test::LONG;
use anyhow::Context;
use foldwire_steps::Steps;
use std::fs;
use std::path::PathBuf;
use std::process::Command;

/// Folder below the workspace's root.
const FOLDER: &str = "target/nvrtc";
/// The last major version that compiles for compute capability 7.0.
const PACKAGE: &str = "nvidia-cuda-nvrtc-cu12==12.8.93";

/// Test programs of the crates for devices, but for the one that needs NVRTC.
const PROGRAMS: [&str; 9] = [
    "coded",
    "collectives",
    "conformance",
    "endless",
    "faults",
    "fz_light",
    "page_locks",
    "pool",
    "presets",
];

/// Runs all short tests on a simulated device, if there is a C++ compiler for the kernels.
///
/// # Errors
/// If a test fails.
pub(crate) fn short_tests(steps: &mut Steps, here: MachineParts) -> anyhow::Result<()> {
    let name = "devices";
    let compiler = std::env::var_os("CXX").unwrap_or_else(|| "c++".into());
    if Command::new(compiler).arg("--version").output().is_err() {
        steps.skip(name, "there is no C++ compiler (Debian: `apt install g++`)");
        return Ok(());
    }
    // In this scope all that the other tests use is built already.
    let mut tests = fabrics::cargo_on(steps, here, BuildScope::Bindings, "test");
    PROGRAMS.iter().for_each(|program| _ = tests.args(["--test", program]));
    steps.run(name, tests.args(["--", "--skip", LONG])).map(drop)
}

/// Runs the long tests on a simulated device, and on a GPU if there is one. Installs NVRTC, unless
/// it is installed, and compiles every kernel for every architecture.
///
/// # Errors
/// If the package cannot be downloaded, or a kernel does not compile or spills.
pub(crate) fn long_tests(steps: &mut Steps) -> anyhow::Result<()> {
    // NVRTC follows.
    let words = "test -p foldwire-cuda -p foldwire-cuda-host \
                 -- long:: ffi:: --skip long::every_kernel";
    steps.run_tests("kernels and collectives on a simulated device", &mut steps.cargo(words))?;
    let words = "test -p foldwire-benchmark -p foldwire-stack --lib \
                 --features foldwire-benchmark/simulated,foldwire-stack/simulated \
                 -- device:: benchmark::tests";
    steps.run_tests("bench and stack on a simulated device", &mut steps.cargo(words))?;
    let home = steps.root().join(FOLDER);
    let mut pip = Command::new("python3");
    pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--retries", "1"]);
    pip.args(["--break-system-packages", "--upgrade", "--target"]).arg(&home).arg(PACKAGE);
    let library = || find(home.join("nvidia/cuda_nvrtc/lib"));
    if library().is_err()
        && let Err(error) = steps.run(PACKAGE, &mut pip)
    {
        steps.skip("kernels by NVRTC", &format!("{error:#}"));
        return Ok(());
    }
    // All of them take minutes.
    if !steps.has_time_for("kernels by NVRTC") {
        return Ok(());
    }
    let mut test = steps.cargo("test -p foldwire-cuda --test nvrtc -- --nocapture");
    steps.run("kernels by NVRTC", test.env("FOLDWIRE_NVRTC", library()?)).map(drop)
}

/// Returns the path of the library in a folder.
fn find(folder: PathBuf) -> anyhow::Result<PathBuf> {
    let entries = fs::read_dir(&folder).with_context(|| folder.display().to_string())?;
    let is_library = |path: &PathBuf| {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        name.starts_with("libnvrtc.so")
    };
    let mut paths = entries.flatten().map(|entry| entry.path());
    paths.find(is_library).with_context(|| format!("no libnvrtc.so in {}", folder.display()))
}
