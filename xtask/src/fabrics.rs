//! What needs an MPI library or libfabric: tests, lints and documentation of the backends over them, as far as
//! this machine has them.
//!
//! A program is bound to one MPI library when it is built, so each has a target folder of its own.

use crate::machine::{Available, MPICH, Mpi, OPEN_MPI};
use crate::steps::Steps;
use std::process::Command;

/// The members of the workspace that need more than Rust.
pub(crate) const PACKAGES: [&str; 4] =
    ["foldwire-mpi", "foldwire-mpi-native", "foldwire-libfabric", "libfabric-sys"];

const MISSING: &str = "not installed (`cargo xtask packages` says what is needed)";

/// The MPI libraries: name, programs, target folder, whether they are here.
fn libraries(here: Available) -> [(&'static str, &'static Mpi, &'static str, bool); 2] {
    [
        ("Open MPI", &OPEN_MPI, "target/openmpi", here.openmpi),
        ("MPICH", &MPICH, "target/mpich", here.mpich),
    ]
}

/// cargo with these words for an MPI library.
fn cargo(steps: &Steps, mpi: &Mpi, target: &str, words: &str) -> Command {
    let mut command = steps.cargo(words);
    command.args(["--target-dir", target]);
    command.env("MPICC", mpi.mpicc().unwrap_or("mpicc"));
    command.env("FOLDWIRE_MPIRUN", mpi.mpirun().unwrap_or("mpirun"));
    command
}

/// Runs the tests of all fabrics that are here.
pub(crate) fn test(steps: &mut Steps, here: Available) -> anyhow::Result<()> {
    for (name, mpi, target, is_here) in libraries(here) {
        if !is_here {
            steps.skip(name, MISSING);
            continue;
        }
        let units = "test -p foldwire-mpi -p foldwire-mpi-native";
        steps.run(&format!("{name}, crates"), &mut cargo(steps, mpi, target, units))?;
        let suite = "test -p foldwire-tests --features mpi --test mpi";
        steps.run(&format!("{name}, suite"), &mut cargo(steps, mpi, target, suite))?;
        // What it says of the library itself is in the crates' tests.
        if name == "Open MPI" {
            let bench = "test -p foldwire-bench --features mpi --test bench";
            steps.run(&format!("{name}, bench"), &mut cargo(steps, mpi, target, bench))?;
        }
    }
    if !here.libfabric {
        steps.skip("libfabric", MISSING);
        return Ok(());
    }
    steps.run(
        "libfabric, crates",
        &mut steps.cargo("test -p libfabric-sys -p foldwire-libfabric"),
    )?;
    steps.run(
        "libfabric, suite",
        &mut steps.cargo("test -p foldwire-tests --features libfabric --test libfabric"),
    )?;
    steps.run(
        "libfabric, bench",
        &mut steps.cargo("test -p foldwire-bench --features libfabric --test bench --test info"),
    )?;
    Ok(())
}

/// Lints them.
pub(crate) fn lint(steps: &mut Steps, here: Available) -> anyhow::Result<()> {
    let strict = ["--all-targets", "--", "-D", "warnings"];
    // These see nothing of the library itself: once is enough.
    let mut others =
        "-p foldwire-bench -p foldwire-tests --features foldwire-bench/mpi,foldwire-tests/mpi";
    for (name, mpi, target, is_here) in libraries(here) {
        if !is_here {
            steps.skip(&format!("lints, {name}"), MISSING);
            continue;
        }
        let words = format!("clippy -p foldwire-mpi -p foldwire-mpi-native {others}");
        steps.run(&format!("lints, {name}"), cargo(steps, mpi, target, &words).args(strict))?;
        others = "";
    }
    if !here.libfabric {
        steps.skip("lints, libfabric", MISSING);
        return Ok(());
    }
    let words = "clippy -p libfabric-sys -p foldwire-libfabric -p foldwire-bench -p foldwire-tests \
                 --features foldwire-bench/libfabric,foldwire-tests/libfabric";
    steps.run("lints, libfabric", steps.cargo(words).args(strict))?;
    Ok(())
}

/// Builds their documentation.
pub(crate) fn document(steps: &mut Steps, here: Available) -> anyhow::Result<()> {
    let strict = ("RUSTDOCFLAGS", "-D warnings");
    if let Some((_, mpi, target, _)) = libraries(here).into_iter().find(|library| library.3) {
        let words = "doc --no-deps -p foldwire-mpi -p foldwire-mpi-native";
        steps
            .run("documentation, MPI", cargo(steps, mpi, target, words).env(strict.0, strict.1))?;
    }
    if here.libfabric {
        let words = "doc --no-deps -p libfabric-sys -p foldwire-libfabric";
        steps.run("documentation, libfabric", steps.cargo(words).env(strict.0, strict.1))?;
    }
    Ok(())
}
