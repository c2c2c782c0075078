//! `cargo xtask loom`: the threads backend's lock-free parts, model-checked.

use anyhow::ensure;
use foldwire_steps::Steps;

const EXAMPLES: &str = "\
Examples:
  cargo xtask loom            as `cargo xtask deep` does it
  cargo xtask loom --deeper   one preemption more in each model, which takes many minutes";

/// Options of `cargo xtask loom`.
#[derive(Debug, Default, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Allow one preemption more in every model that bounds them
    #[arg(long)]
    pub(crate) deeper: bool,
}

pub(crate) fn run(steps: &mut Steps, args: &Args) -> anyhow::Result<()> {
    // A target folder of its own: other flags would rebuild everything in the usual one each time.
    // The models run none of core's kernels, which take longest to optimise.
    let words = "test -p foldwire-threads --lib --target-dir target/loom \
        --config profile.dev.package.foldwire.opt-level=0 -- loom --nocapture";
    let mut command = steps.cargo(words);
    command.env("RUSTFLAGS", "--cfg loom");
    command.env("FOLDWIRE_LOOM_MORE", if args.deeper { "1" } else { "0" });
    let tests = steps.run("loom", &mut command)?;
    ensure!(
        tests.passed > 0,
        "foldwire-threads has no test whose name contains `loom`: nothing was model-checked"
    );
    Ok(())
}
