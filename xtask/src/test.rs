//! `cargo xtask test`: what must pass before a change is committed, in minutes. What takes longer,
//! and finds what this does not, is [`deep`](crate::deep).

use crate::steps::Steps;
use crate::{bare_metal, fabrics, machine, packages};

pub(crate) fn run(steps: &mut Steps) -> anyhow::Result<()> {
    let missing = packages::install(steps)?;
    if !missing.is_empty() {
        eprintln!("{}", packages::advice(&missing));
    }
    let here = machine::available();
    fabrics::skip_what_is_missing(steps, here);
    // All features that can be built here; the steps after it take them away again.
    let mut tests = fabrics::cargo_on_workspace(steps, here, "test --no-fail-fast");
    // Five processes on two cores take as long as all the others; `deep` runs them.
    steps.run("workspace", tests.env(fabrics::SUITE_SIZES, "1,2,3"))?;
    // Each alone, as resolved features of the whole workspace are a union.
    steps.run("core, no features", &mut steps.cargo("test -p foldwire --no-default-features"))?;
    steps.run(
        "core, alloc",
        &mut steps.cargo("check -p foldwire --no-default-features --features alloc --tests"),
    )?;
    steps.run(
        "core, std",
        &mut steps.cargo("check -p foldwire --no-default-features --features std"),
    )?;
    bare_metal::run(steps)?;
    let mut documentation = fabrics::cargo_on_workspace(steps, here, "doc --no-deps");
    steps.run("documentation", documentation.env("RUSTDOCFLAGS", "-D warnings"))?;
    Ok(())
}
