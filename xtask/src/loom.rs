//! `cargo xtask loom`: model-checks the lock-free parts: of the threads backend, and the ring
//! between ranks of a node.

use foldwire_steps::Steps;

const EXAMPLES: &str = "\
Examples:
  cargo xtask loom            as `cargo xtask deep` does it
  cargo xtask loom --deeper   one more preemption in each model, which takes many minutes";

/// Options of `cargo xtask loom`.
#[derive(Debug, Default, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Allow one more preemption in every model that bounds them
    #[arg(long)]
    pub(crate) deeper: bool,
}

pub(crate) fn run(steps: &mut Steps, args: &Args) -> anyhow::Result<()> {
    // Use a separate target folder: other flags would rebuild everything in the usual folder each
    // time. The models run none of core's kernels, which take longest to optimize.
    let words = "test -p foldwire-threads -p foldwire-messaging --lib --target-dir target/loom \
        --config profile.dev.package.foldwire.opt-level=0 -- loom --nocapture";
    let mut command = steps.cargo(words);
    command.env("RUSTFLAGS", "--cfg loom");
    command.env("FOLDWIRE_LOOM_MORE", if args.deeper { "1" } else { "0" });
    steps.run_tests("loom", &mut command).map(drop)
}
