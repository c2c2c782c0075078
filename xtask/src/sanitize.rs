//! `cargo xtask sanitize` and `cargo xtask valgrind`: run the tests of `unsafe` code under memory
//! checkers.
//!
//! AddressSanitizer runs with nightly's precompiled standard library. So it sees accesses in our
//! code and in generic code, but not in the standard library's compiled functions. ThreadSanitizer
//! does not work in this way: it does not see the standard library's locks, and reports all
//! accesses that they guard. loom and `cargo xtask stress` are used instead.
//!
//! Valgrind supports AVX2 but not AVX-512, and reports that to programs. So its run covers the
//! levels up to AVX2.

use crate::nightly::Nightly;
use anyhow::{Context, ensure};
use foldwire_steps::Steps;
use std::process::{Command, Stdio};

/// The packages with `unsafe` code that need no system libraries: kernels, and the rings between
/// threads and between processes.
const CORE: &str = "-p foldwire";
const RINGS: &str = "-p foldwire-threads -p foldwire-messaging";

/// Runs `cargo xtask sanitize`.
pub(crate) fn address(steps: &mut Steps) -> anyhow::Result<()> {
    address_of(steps, "address sanitizer", &format!("{CORE} {RINGS}"))
}

fn address_of(steps: &mut Steps, name: &str, packages: &str) -> anyhow::Result<()> {
    let nightly = Nightly::find()?;
    let target = format!("--target {} --target-dir target/address", nightly.host);
    let mut command = steps.cargo(&format!("+nightly test --lib {packages} {target}"));
    steps.run_tests(name, command.env("RUSTFLAGS", "-Zsanitizer=address")).map(drop)
}

/// Runs core's tests without features in `cargo xtask deep`, under the sanitizer if there is a
/// nightly toolchain. Core's `unsafe` code is the same with all features, and is compiled only
/// once. The rings need core, but not the code that takes long to optimize.
pub(crate) fn run_briefly(steps: &mut Steps) -> anyhow::Result<()> {
    const NO_FEATURES: &str = "--no-default-features";
    if let Err(reason) = Nightly::find() {
        steps.skip("address sanitizer", &format!("{reason:#}"));
        let mut core = steps.cargo(&format!("test --lib {CORE} {NO_FEATURES}"));
        return steps.run_tests("core, no features", &mut core).map(drop);
    }
    let core = format!("{CORE} {NO_FEATURES}");
    address_of(steps, "core, no features, address sanitizer", &core)?;
    let rings = format!("{RINGS} --config profile.dev.package.foldwire.opt-level=0");
    address_of(steps, "rings, address sanitizer", &rings)
}

/// Runs `cargo xtask valgrind`: the kernels' tests under memcheck.
pub(crate) fn valgrind(steps: &mut Steps) -> anyhow::Result<()> {
    let advice = "valgrind does not run; install it (Debian: `apt install valgrind`)";
    let mut version = Command::new("valgrind");
    let version = version.arg("--version").stdout(Stdio::null()).status().context(advice)?;
    ensure!(version.success(), advice);
    let host = Command::new("rustc").arg("-vV").output().context("cannot run rustc")?;
    let host = String::from_utf8_lossy(&host.stdout).into_owned();
    let host =
        host.lines().find_map(|line| line.strip_prefix("host: ")).context("rustc has no host")?;
    let runner = format!("CARGO_TARGET_{}_RUNNER", host.to_uppercase().replace(['-', '.'], "_"));
    let mut command =
        steps.cargo("test -p foldwire --lib --target-dir target/valgrind -- kernel::");
    // Do not check for leaks: the harness's threads keep memory until the end.
    command.env(runner, "valgrind --quiet --error-exitcode=99 --leak-check=no");
    steps.run_tests("valgrind", &mut command).map(drop)
}
