//! `cargo xtask loom`: the threads backend's lock-free parts, model-checked.

use crate::steps::Steps;
use anyhow::ensure;

pub(crate) fn run(steps: &mut Steps) -> anyhow::Result<()> {
    // A target folder of its own: other flags would rebuild everything in the usual one each time.
    let words = "test --release -p foldwire-threads --lib --target-dir target/loom -- loom";
    let tests = steps.run("loom", steps.cargo(words).env("RUSTFLAGS", "--cfg loom"))?;
    ensure!(
        tests.passed > 0,
        "foldwire-threads has no test whose name contains `loom`: nothing was model-checked"
    );
    Ok(())
}
