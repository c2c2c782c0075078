//! Runs many seeds of the soak on all cores, or one seed with its trace. `cargo xtask soak` builds
//! and runs it.

use clap::Parser;
use foldwire_tests::options::number;
use foldwire_tests::soak::{SoakTally, replay, run};
use indicatif::{ProgressBar, ProgressStyle};
use std::io::Write as _;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// Seeds that a thread takes at a time.
const BATCH: u64 = 64;
/// Most failures that are printed.
const MOST_SHOWN: usize = 20;

const EXAMPLES: &str = "\
Examples:
  cargo xtask soak                             10000 seeds
  cargo xtask soak --seeds 1000000             a million
  cargo xtask soak --seeds 1000000 --from 5e6  another million
  cargo xtask soak --minutes 60 --seeds 1e9    as many as an hour allows
  cargo xtask soak --seed 9263                 one, with everything that happens in it
  cargo xtask soak --json > soak.json";

/// Simulate runs in which ranks, links and frames fail, and check every rank
#[derive(Parser)]
#[command(name = "cargo xtask soak", after_help = EXAMPLES)]
struct Cli {
    /// Number of seeds
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = number(0..=u64::MAX))]
    seeds: u64,
    /// The first seed
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = number(0..=u64::MAX))]
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

fn main() -> ExitCode {
    let cli = Cli::parse();
    match cli.seed {
        Some(seed) => show(seed),
        None => soak(&cli),
    }
}

fn show(seed: u64) -> ExitCode {
    let verdict = replay(seed);
    println!("{}", verdict.trace);
    print_tally(&verdict.tally, None);
    match verdict.failure {
        None => {
            println!("\nseed {seed} keeps all promises");
            ExitCode::SUCCESS
        }
        Some(failure) => {
            println!("\n{failure}");
            ExitCode::FAILURE
        }
    }
}

/// A seed that broke a guarantee, and the description of the failure.
type SeedFailure = (u64, String);

fn soak(cli: &Cli) -> ExitCode {
    // A panic counts as a failure. It is printed when its seed runs alone.
    std::panic::set_hook(Box::new(|_| {}));
    let n_threads = cli.threads.or(thread::available_parallelism().ok().map(usize::from));
    let bar = ProgressBar::new(cli.seeds);
    let style = ProgressStyle::with_template(
        "{bar:30} {human_pos} of {human_len} seeds, {per_sec}, {eta} left{msg}",
    );
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    let start = Instant::now();
    let limit = cli.minutes.map(|minutes| Duration::from_secs_f64(60.0 * minutes));
    let (next, stop) = (AtomicU64::new(0), AtomicBool::new(false));
    let sum = Mutex::new((SoakTally::default(), Vec::<SeedFailure>::new()));
    thread::scope(|scope| {
        for _ in 0..n_threads.unwrap_or(1).max(1) {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    let first = next.fetch_add(BATCH, Ordering::Relaxed);
                    if first >= cli.seeds {
                        return;
                    }
                    let (tally, failures) = batch(cli.from, first..cli.seeds.min(first + BATCH));
                    bar.inc(tally.n_seeds);
                    let mut sum = sum.lock().unwrap_or_else(PoisonError::into_inner);
                    sum.0 += tally;
                    sum.1.extend(failures);
                    if !sum.1.is_empty() {
                        bar.set_message(format!(", {} failed", sum.1.len()));
                    }
                    if limit.is_some_and(|limit| start.elapsed() >= limit) {
                        stop.store(true, Ordering::Relaxed);
                    }
                }
            });
        }
    });
    bar.finish_and_clear();
    let (tally, mut failures) = sum.into_inner().unwrap_or_else(PoisonError::into_inner);
    failures.sort();
    if cli.json {
        print_json(&tally, &failures, start.elapsed());
    } else {
        print_tally(&tally, Some(start.elapsed()));
        print_failures(&failures);
    }
    if failures.is_empty() && tally.n_seeds > 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn batch(from: u64, seeds: std::ops::Range<u64>) -> (SoakTally, Vec<SeedFailure>) {
    let (mut tally, mut failures) = (SoakTally::default(), Vec::new());
    for seed in seeds.map(|seed| from.wrapping_add(seed)) {
        let verdict = run(seed);
        tally += verdict.tally;
        failures.extend(verdict.failure.map(|failure| (seed, failure)));
    }
    (tally, failures)
}

fn print_tally(tally: &SoakTally, took: Option<Duration>) {
    let mut rows = vec![
        ("seeds", tally.n_seeds),
        ("failures", tally.n_failures),
        ("calls of single ranks", tally.n_calls),
        ("messages beside calls", tally.n_messages),
        ("frames and other events", tally.n_events),
        ("polls of ranks", tally.n_polls),
        ("virtual seconds", tally.time.as_secs()),
    ];
    if let Some(took) = took {
        rows.push(("seconds", took.as_secs()));
        rows.push(("seeds per second", (tally.n_seeds as f64 / took.as_secs_f64()) as u64));
    }
    let sections = [
        ("run", rows),
        ("what went wrong", tally.troubles.iter().map(|(&kind, &n)| (kind, n)).collect()),
        ("how calls ended", tally.outcomes.iter().map(|(&kind, &n)| (kind, n)).collect()),
        ("calls by form", tally.forms.iter().map(|(&form, &[n, _])| (form, n)).collect()),
        ("successes by form", tally.forms.iter().map(|(&form, &[_, n])| (form, n)).collect()),
    ];
    for (title, rows) in sections {
        println!("\n{title}");
        for (name, n) in rows {
            println!("  {name:<26}{n:>14}");
        }
    }
}

fn print_failures(failures: &[SeedFailure]) {
    for (seed, failure) in failures.iter().take(MOST_SHOWN) {
        println!("\n{failure}to replay it: cargo xtask soak --seed {seed}");
    }
    if failures.len() > MOST_SHOWN {
        println!("\nand {} more", failures.len() - MOST_SHOWN);
    }
}

fn print_json(tally: &SoakTally, failures: &[SeedFailure], took: Duration) {
    let failures = failures.iter().map(|(seed, failure)| {
        let replay = format!("cargo xtask soak --seed {seed}");
        serde_json::json!({ "seed": seed, "failure": failure, "replay": replay })
    });
    let json = serde_json::json!({
        "seeds": tally.n_seeds,
        "failures": failures.collect::<Vec<_>>(),
        "calls": tally.n_calls,
        "messages": tally.n_messages,
        "events": tally.n_events,
        "polls": tally.n_polls,
        "virtual_seconds": tally.time.as_secs_f64(),
        "seconds": took.as_secs_f64(),
        "troubles": tally.troubles,
        "outcomes": tally.outcomes,
        "forms": tally.forms,
    });
    // Ignore the error: it means that the reader closed the output.
    let _ = writeln!(std::io::stdout(), "{json:#}");
}
