//! `cargo xtask ci`: checks formatting and lints, then runs the tests of `cargo xtask test` and
//! the long ones of `cargo xtask deep`.

use crate::fabrics::BuildScope;
use crate::{bare_metal, deep, fabrics, machine, packages, test, width};
use foldwire_steps::Steps;

pub(crate) fn run(steps: &mut Steps) -> anyhow::Result<()> {
    lint(steps)?;
    test::run(steps)?;
    deep::run(steps, &deep::Args::default())
}

/// `cargo xtask lint`: checks formatting, lints and documentation of everything that can be built
/// here, and that crates compile with fewer features.
pub(crate) fn lint(steps: &mut Steps) -> anyhow::Result<()> {
    packages::install(steps)?;
    let here = machine::available();
    steps.run("format", &mut steps.cargo("fmt --all --check"))?;
    steps.run("format, fuzz", &mut steps.cargo("fmt --manifest-path fuzz/Cargo.toml --check"))?;
    let root = steps.root().to_owned();
    steps.check("width of lines", || width::check(&root))?;
    let mut lints = fabrics::cargo_on(steps, here, BuildScope::All, "clippy --all-targets");
    steps.run("lints", lints.args(["--", "-D", "warnings"]))?;
    let lints =
        "clippy --manifest-path fuzz/Cargo.toml --no-default-features --all-targets -- -D warnings";
    steps.run("lints, fuzz", &mut steps.cargo(lints))?;
    // Check each crate alone: in the whole workspace, the features of all members add up.
    // Encryption is a feature that is off by default. `cargo xtask deep` also runs core's tests
    // without features.
    let core = "check -p foldwire --no-default-features";
    for (name, words) in [
        ("core, no features", format!("{core} --tests")),
        ("core, alloc", format!("{core} --features alloc --tests")),
        ("core, std", format!("{core} --features std")),
        ("TCP, no encryption", "check -p foldwire-tcp --all-targets".to_owned()),
    ] {
        steps.run(name, &mut steps.cargo(&words))?;
    }
    bare_metal::lint(steps)?;
    fabrics::lint(steps, here)?;
    let mut documentation = fabrics::cargo_on(steps, here, BuildScope::All, "doc --no-deps");
    steps.run("documentation", documentation.env("RUSTDOCFLAGS", "-D warnings"))?;
    Ok(())
}
