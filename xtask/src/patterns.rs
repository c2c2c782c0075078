//! `cargo xtask patterns`: puts every bit pattern of `f32` through codecs and bounds (`patterns.rs`
//! of foldwire-tests).
//!
//! Built with the release profile, since there are 2³² patterns for each case and order. The tests
//! of foldwire-tests take some of the patterns, with debug assertions and overflow checks.

use crate::soak::number;
use foldwire_steps::Steps;
use std::process::Command;

const EXAMPLES: &str = "\
Examples:
  cargo xtask patterns                                  everything: two hours on two cores
  cargo xtask patterns --every 64                       a slice of everything, in minutes
  cargo xtask patterns --case fz-light --every 8        every bound of one codec
  cargo xtask patterns --case 'fz-light abs:1e-3' --level avx512,scalar
  cargo xtask patterns --case szx --order mixed --from 1e9 --to 2e9
  cargo xtask patterns --list                           the cases by name
  cargo xtask patterns --json > patterns.json";

/// Options of `cargo xtask patterns`.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Run only the cases whose name begins with NAME [default: all]
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    case: Vec<String>,
    /// Orders of the patterns: consecutive, mixed, scattered [default: all]
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    order: Vec<String>,
    /// Kernel levels, which must agree: scalar, avx2, avx512 [default: all levels of this machine]
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    level: Vec<String>,
    /// The first position in the order
    #[arg(long, value_name = "N", default_value = "0", value_parser = number)]
    from: u64,
    /// The position after the last one [default: all 2³²]
    #[arg(long, value_name = "N", value_parser = number)]
    to: Option<u64>,
    /// Take only one batch of 4096 patterns in N
    #[arg(long, value_name = "N", default_value = "1", value_parser = number)]
    every: u64,
    /// Number of threads [default: one for each core]
    #[arg(long, value_name = "N")]
    threads: Option<usize>,
    /// List the cases, and run none
    #[arg(long)]
    list: bool,
    /// Print the figures as JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(steps: &mut Steps, args: &Args) -> anyhow::Result<()> {
    let words = "build --quiet --release -p foldwire-tests --features programs --bin patterns \
                 --target-dir target";
    steps.run("build", &mut steps.cargo(words))?;
    let mut command = Command::new(steps.root().join("target/release/patterns"));
    command.args(words_of(args)).current_dir(steps.root());
    steps.run("patterns", &mut command).map(|_| ())
}

fn words_of(args: &Args) -> Vec<String> {
    let lists = [("--case", &args.case), ("--order", &args.order), ("--level", &args.level)];
    let lists = lists.into_iter().filter(|(_, names)| !names.is_empty());
    let lists = lists.flat_map(|(name, names)| [name.to_owned(), names.join(",")]);
    let numbers = [
        ("--from", Some(args.from)),
        ("--to", args.to),
        ("--every", Some(args.every)),
        ("--threads", args.threads.map(|n| n as u64)),
    ];
    let numbers =
        numbers.into_iter().filter_map(|(name, n)| Some([name.to_owned(), n?.to_string()]));
    let flags = [("--list", args.list), ("--json", args.json)];
    let flags = flags.into_iter().filter(|(_, is_given)| *is_given);
    lists.chain(numbers.flatten()).chain(flags.map(|(name, _)| name.to_owned())).collect()
}
