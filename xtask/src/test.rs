//! `cargo xtask test`: everything that must pass.

use crate::steps::Steps;
use crate::{bare_metal, fabrics, fuzz, loom, machine, packages, sanitize};

pub(crate) fn run(steps: &mut Steps) -> anyhow::Result<()> {
    let missing = packages::install(steps)?;
    if !missing.is_empty() {
        eprintln!("{}", packages::advice(&missing));
    }
    let here = machine::available();
    // All features of core are `std`, `alloc` and `rayon`; the steps after it take them away again.
    steps.run("workspace", &mut steps.cargo_on_workspace("test --no-fail-fast"))?;
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
    loom::run(steps, &loom::Args::default())?;
    fuzz::briefly(steps)?;
    sanitize::briefly(steps)?;
    fabrics::test(steps, here)?;
    #[cfg(target_os = "linux")]
    crate::cluster::test(steps)?;
    steps.run(
        "documentation",
        steps.cargo_on_workspace("doc --no-deps").env("RUSTDOCFLAGS", "-D warnings"),
    )?;
    fabrics::document(steps, here)
}
