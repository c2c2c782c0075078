//! `cargo xtask stress`: runs short groups of threads one after another, and checks each against
//! the oracle.

use crate::fuzz::time;
use foldwire_steps::Steps;
use std::time::Duration;

const EXAMPLES: &str = "\
Examples:
  cargo xtask stress --time 1h
  cargo xtask stress --time 5m --seed 7";

/// Options of `cargo xtask stress`.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Time to run: a number with s, m or h
    #[arg(long, value_name = "TIME", default_value = "5m", value_parser = time)]
    time: Duration,
    /// First seed of the random choices
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
}

pub(crate) fn run(steps: &mut Steps, args: &Args) -> anyhow::Result<()> {
    let mut command =
        steps.cargo("test --release -p foldwire-tests --test all stress:: -- --nocapture");
    command.env("FOLDWIRE_STRESS_SECONDS", args.time.as_secs().to_string());
    command.env("FOLDWIRE_STRESS_SEED", args.seed.to_string());
    steps.run_tests("stress", &mut command).map(drop)
}
