//! `cargo xtask soak`: runs the soak of foldwire-tests over any number of seeds. For each seed, the
//! soak draws a group, a network, calls and faults. It runs them on the simulator, and checks that
//! every rank gets the right result or a typed error in time.
//!
//! Few seeds run in the tests' build, which is often there already. Many seeds are worth a build of
//! their own. Both keep all checks: an overflow is a finding too.

use crate::fabrics::BuildScope;
use crate::{fabrics, machine};
use foldwire_steps::Steps;
use std::ffi::OsString;
use std::process::Command;

const EXAMPLES: &str = "\
Examples:
  cargo xtask soak                             10000 seeds
  cargo xtask soak --seeds 1000000             a million
  cargo xtask soak --seeds 1000000 --from 5e6  another million
  cargo xtask soak --minutes 60 --seeds 1e9    as many as an hour allows
  cargo xtask soak --seed 9263                 one, with everything that happens in it
  cargo xtask soak --json > soak.json";

/// Most seeds that run in the tests' build.
const MOST_IN_TESTS_BUILD: u64 = 30_000;

/// Options of `cargo xtask soak`.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Number of seeds
    #[arg(long, value_name = "N", default_value = "10000", value_parser = number)]
    seeds: u64,
    /// The first seed
    #[arg(long, value_name = "N", default_value = "0", value_parser = number)]
    from: u64,
    /// Stop after this many minutes, even if seeds are left
    #[arg(long, value_name = "M")]
    minutes: Option<f64>,
    /// Run this seed alone, and print its trace
    #[arg(long, value_name = "S", conflicts_with_all = ["seeds", "from", "minutes", "json"])]
    seed: Option<u64>,
    /// Number of threads [default: one for each core]
    #[arg(long, value_name = "N")]
    threads: Option<usize>,
    /// Print the figures as JSON
    #[arg(long)]
    json: bool,
}

/// Parses a whole number, which may be written as 1e6.
pub(crate) fn number(text: &str) -> Result<u64, String> {
    let whole = |x: f64| (0.0..=1e15).contains(&x) && x.fract() == 0.0;
    let short = || text.parse().ok().filter(|&x| whole(x)).map(|x| x as u64);
    text.parse()
        .ok()
        .or_else(short)
        .ok_or_else(|| "a whole number is needed, such as 1000000 or 1e6".into())
}

/// Runs the seeds after those of the tests, in `cargo xtask deep`.
pub(crate) fn run_in_deep(steps: &mut Steps) -> anyhow::Result<()> {
    let (seed, minutes, threads, json) = (None, None, None, false);
    run(steps, &Args { seeds: 10_000, from: 4000, minutes, seed, threads, json })
}

pub(crate) fn run(steps: &mut Steps, args: &Args) -> anyhow::Result<()> {
    let is_long = args.seed.is_none() && args.seeds > MOST_IN_TESTS_BUILD;
    let (mut build, program) = if is_long {
        let words = "build --profile soak -p foldwire-tests --features programs --bin soak";
        (steps.cargo(&format!("{words} --target-dir target")), "target/soak/soak")
    } else {
        // Cargo builds a package's programs together with its integration tests. The program uses
        // the features of the tests, so most of it is already built.
        let words = "test --no-run --quiet --test all --target-dir target";
        let here = machine::available();
        (fabrics::cargo_on(steps, here, BuildScope::Fabrics, words), "target/debug/soak")
    };
    steps.run("build", &mut build)?;
    let mut command = Command::new(steps.root().join(program));
    command.args(words_of(args)).current_dir(steps.root());
    steps.run("soak", &mut command).map(|_| ())
}

fn words_of(args: &Args) -> Vec<OsString> {
    let numbers = [
        ("--seeds", Some(args.seeds)),
        ("--from", Some(args.from)),
        ("--threads", args.threads.map(|n| n as u64)),
    ];
    let numbers = numbers.map(|(name, n)| (name, n.map(|n| n.to_string())));
    let minutes = ("--minutes", args.minutes.map(|minutes| minutes.to_string()));
    let options: Vec<(&str, Option<String>)> = match args.seed {
        Some(seed) => vec![("--seed", Some(seed.to_string()))],
        None => numbers.into_iter().chain([minutes]).collect(),
    };
    let given = options.into_iter().filter_map(|(name, value)| Some([name.to_owned(), value?]));
    let json = args.json.then(|| "--json".to_owned());
    given.flatten().chain(json).map(OsString::from).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_may_be_short() {
        assert_eq!(number("1000000"), Ok(1_000_000));
        assert_eq!(number("5e6"), Ok(5_000_000));
        assert_eq!(number(&u64::MAX.to_string()), Ok(u64::MAX));
        assert!(["-1", "1.5", "1e99", "many"].into_iter().all(|text| number(text).is_err()));
    }
}
