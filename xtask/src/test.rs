//! `cargo xtask test`: everything that must pass.

use crate::steps::Steps;
use crate::{bare_metal, loom};

pub(crate) fn run(steps: &mut Steps) -> anyhow::Result<()> {
    // All features of core are `std`, `alloc` and `rayon`; the steps after it take them away again.
    steps.run(
        "workspace, all features",
        &mut steps.cargo("test --workspace --all-features --no-fail-fast"),
    )?;
    // Each alone, as resolved features of the whole workspace are a union.
    steps.run("core, no features", &mut steps.cargo("test -p foldwire --no-default-features"))?;
    steps.run(
        "core, alloc",
        &mut steps.cargo("test -p foldwire --no-default-features --features alloc --lib"),
    )?;
    steps.run(
        "core, std",
        &mut steps.cargo("check -p foldwire --no-default-features --features std"),
    )?;
    bare_metal::run(steps)?;
    loom::run(steps)?;
    steps.run(
        "documentation",
        steps.cargo("doc --workspace --all-features --no-deps").env("RUSTDOCFLAGS", "-D warnings"),
    )?;
    #[cfg(target_os = "linux")]
    crate::cluster::test(steps)?;
    Ok(())
}
