//! `cargo xtask instructions`: counts the instructions of a call with valgrind. The counts are the
//! same on every machine of one kind.

use anyhow::{Context, bail, ensure};
use foldwire_steps::Steps;
use std::process::Command;

/// A call, and its recorded number of instructions on each rank. Recorded with Rust 1.95,
/// `--release`, x86-64.
struct CountedCall {
    ranks: u64,
    count: u64,
    plan: &'static str,
    /// True if the call is prepared once.
    prepared: bool,
    recorded: u64,
}

const fn case(ranks: u64, count: u64, plan: &'static str, recorded: u64) -> CountedCall {
    CountedCall { ranks, count, plan, prepared: false, recorded }
}

const CASES: [CountedCall; 6] = [
    case(2, 1, "raw", 2_489),
    CountedCall { prepared: true, ..case(2, 1, "raw", 2_266) },
    case(8, 1, "raw", 4_872),
    case(2, 1024, "foldwire", 24_049),
    case(8, 1024, "foldwire", 51_839),
    case(2, 1024, "auto", 20_741),
];

/// Number of first calls that are not counted, because they also make preparations.
const FIRST: u64 = 100;
/// Number of calls that are counted.
const COUNTED: u64 = 1000;

pub(crate) fn run(steps: &mut Steps) -> anyhow::Result<()> {
    let words = "build --release -p foldwire-tests --features programs --bin instructions";
    steps.run("build", &mut steps.cargo(words))?;
    println!(
        "{:>5} {:>9}  {:<13} {:>12} {:>9}  ratio",
        "ranks", "bytes", "plan", "a rank", "before"
    );
    let mut grown = false;
    for case in &CASES {
        let taken = count(steps, case, FIRST + COUNTED)? - count(steps, case, FIRST)?;
        let taken = taken / (COUNTED * case.ranks);
        let ratio = taken as f64 / case.recorded as f64;
        let &CountedCall { ranks, count, plan, prepared, recorded } = case;
        let n_bytes = 4 * count;
        let plan = if prepared { format!("{plan}, prepared") } else { plan.to_owned() };
        println!("{ranks:>5} {n_bytes:>9}  {plan:<13} {taken:>12} {recorded:>9}  {ratio:.2}");
        grown |= ratio > 1.2;
    }
    ensure!(
        !grown,
        "a call takes more than 1.2 times the count recorded in xtask/src/instructions.rs"
    );
    Ok(())
}

/// Counts the instructions of the whole program with `n_calls` calls.
fn count(steps: &Steps, case: &CountedCall, n_calls: u64) -> anyhow::Result<u64> {
    let mut command = Command::new("valgrind");
    command.args(["--tool=callgrind", "--callgrind-out-file=/dev/null"]);
    command.arg(steps.root().join("target/release/instructions"));
    for (name, value) in [("ranks", case.ranks), ("count", case.count), ("calls", n_calls)] {
        command.arg(format!("--{name}={value}"));
    }
    command.arg(format!("--plan={}", case.plan));
    command.args(case.prepared.then_some("--prepared"));
    let output = command.output().context("valgrind: `cargo xtask packages` installs it")?;
    let said = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() {
        bail!("{said}");
    }
    let collected = said.lines().find_map(|line| line.split_once("Collected : "));
    let (_, number) = collected.with_context(|| format!("valgrind counted nothing: {said}"))?;
    Ok(number.trim().parse()?)
}
