//! `cargo xtask ci`: formatting and lints, then everything that must pass.

use crate::steps::Steps;
use crate::{bare_metal, test};

pub(crate) fn run(steps: &mut Steps) -> anyhow::Result<()> {
    steps.run("format", &mut steps.cargo("fmt --all --check"))?;
    steps.run("format, fuzz", &mut steps.cargo("fmt --manifest-path fuzz/Cargo.toml --check"))?;
    steps.run(
        "lints",
        &mut steps.cargo("clippy --workspace --all-targets --all-features -- -D warnings"),
    )?;
    bare_metal::lint(steps)?;
    test::run(steps)
}
