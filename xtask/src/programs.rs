//! `cargo xtask soak` and `cargo xtask patterns`: build a program of foldwire-tests, and run it
//! with the options that follow. `--help` is the program's own.

use crate::fabrics::BuildScope;
use crate::{fabrics, machine};
use foldwire_steps::Steps;
use std::ffi::{OsStr, OsString};
use std::process::Command;

/// Options of the program.
#[derive(Debug, clap::Args)]
#[command(disable_help_flag = true)]
pub(crate) struct Args {
    /// Options of the program; `--help` lists them
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "OPTION")]
    pub(crate) words: Vec<OsString>,
}

/// Runs the soak: for each seed it draws a group, a network, calls and faults, runs them on the
/// simulator, and checks that every rank gets the right result or a typed error in time.
///
/// The usual number of seeds runs in the tests' build, which is often there already. Many seeds are
/// worth a build of their own. Both keep all checks: an overflow is a finding too.
pub(crate) fn soak(steps: &mut Steps, words: &[impl AsRef<OsStr>]) -> anyhow::Result<()> {
    let says_how_many = |word: &OsStr| {
        let word = word.to_string_lossy();
        word.starts_with("--seeds") || word.starts_with("--minutes")
    };
    if words.iter().any(|word| says_how_many(word.as_ref())) {
        let build = "build --profile soak -p foldwire-tests --features programs --bin soak \
                     --target-dir target";
        let build = steps.cargo(build);
        return run(steps, build, "soak", "soak", words);
    }
    // Cargo builds a package's programs together with its integration tests. The program uses the
    // features of the tests, so most of it is already built.
    let build = "test --no-run --quiet --test all --target-dir target";
    let build = fabrics::cargo_on(steps, machine::available(), BuildScope::Fabrics, build);
    run(steps, build, "debug", "soak", words)
}

/// Puts every bit pattern of `f32` through codecs and bounds (`patterns.rs` of foldwire-tests).
///
/// Built with the release profile, since there are 2³² patterns for each case and order. The tests
/// of foldwire-tests take some of the patterns, with debug assertions and overflow checks.
pub(crate) fn patterns(steps: &mut Steps, words: &[impl AsRef<OsStr>]) -> anyhow::Result<()> {
    let build = "build --quiet --release -p foldwire-tests --features programs --bin patterns \
                 --target-dir target";
    let build = steps.cargo(build);
    run(steps, build, "release", "patterns", words)
}

fn run(
    steps: &mut Steps,
    mut build: Command,
    folder: &str,
    program: &str,
    words: &[impl AsRef<OsStr>],
) -> anyhow::Result<()> {
    steps.run("build", &mut build)?;
    let mut command = Command::new(steps.root().join("target").join(folder).join(program));
    command.args(words).current_dir(steps.root());
    steps.run(program, &mut command).map(|_| ())
}
