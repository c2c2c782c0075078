//! Puts all bit patterns of `f32` through codecs and bounds, on all cores. `cargo xtask patterns`
//! builds and runs it.

use clap::Parser;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use foldwire::kernel::Level;
use foldwire_tests::options::number;
use foldwire_tests::patterns::{
    BATCH, N_PATTERNS, PatternCase, PatternFailure, PatternOrder, PatternTally, Trial,
};
use indicatif::{ProgressBar, ProgressStyle};
use std::io::Write as _;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// Batches that a thread takes at a time.
const PART: u64 = 1024;

const EXAMPLES: &str = "\
Examples:
  cargo xtask patterns                                  everything: two hours on two cores
  cargo xtask patterns --every 64                       a slice of everything, in minutes
  cargo xtask patterns --case fz-light --every 8        every bound of one codec
  cargo xtask patterns --case 'fz-light abs:1e-3' --level avx512,scalar
  cargo xtask patterns --case szx --order mixed --from 1e9 --to 2e9
  cargo xtask patterns --list                           the cases by name
  cargo xtask patterns --json > patterns.json";

/// Put every bit pattern of f32 through codecs and bounds, at all kernel levels
#[derive(Parser)]
#[command(name = "cargo xtask patterns", after_help = EXAMPLES)]
struct Cli {
    /// Run only the cases whose name begins with NAME [default: all]
    #[arg(long, value_delimiter = ',', value_name = "NAME")]
    case: Vec<String>,
    /// Orders of the patterns [default: all]
    #[arg(long, value_delimiter = ',', value_name = "NAME",
        value_parser = one_of(&PatternOrder::ALL, PatternOrder::name))]
    order: Vec<PatternOrder>,
    /// Kernel levels, which must agree [default: all levels of this machine]
    #[arg(long, value_delimiter = ',', value_name = "NAME",
        value_parser = one_of(&Level::ALL, Level::name))]
    level: Vec<Level>,
    /// The first position in the order
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = number(0..=N_PATTERNS - 1))]
    from: u64,
    /// The position after the last one
    #[arg(long, value_name = "N", default_value_t = N_PATTERNS,
        value_parser = number(1..=u64::MAX))]
    to: u64,
    /// Take only one batch of 4096 patterns in N
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = number(1..=1 << 20))]
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

/// Parses the name of one of `all`.
fn one_of<T: Copy + Send + Sync + 'static>(
    all: &'static [T],
    name: fn(T) -> &'static str,
) -> impl TypedValueParser<Value = T> {
    let names = all.iter().map(|&one| name(one));
    PossibleValuesParser::new(names).try_map(move |given| {
        all.iter().copied().find(|&one| name(one) == given).ok_or("no such name")
    })
}

/// Results of one case in one order.
struct PatternRow {
    case: PatternCase,
    order: PatternOrder,
    tally: PatternTally,
    failures: Vec<PatternFailure>,
    /// Sum of the threads' times.
    time: Duration,
}

fn main() -> ExitCode {
    let mut cli = Cli::parse();
    let is_asked =
        |case: &PatternCase| cli.case.is_empty() || cli.case.iter().any(|name| begins(case, name));
    let cases: Vec<_> = PatternCase::all().into_iter().filter(is_asked).collect();
    if cli.list {
        let names: String = cases.iter().map(|case| format!("{case}\n")).collect();
        // Ignore the error: it means that the reader closed the output.
        let _ = std::io::stdout().write_all(names.as_bytes());
        return ExitCode::SUCCESS;
    }
    if cli.order.is_empty() {
        cli.order = PatternOrder::ALL.to_vec();
    }
    if cli.level.is_empty() {
        cli.level = Level::available().collect();
    }
    if let Some(level) = cli.level.iter().find(|level| !level.is_available()) {
        eprintln!("error: this machine has no {level}");
        return ExitCode::from(2);
    }
    if cases.is_empty() || cli.from >= cli.to {
        eprintln!("error: nothing to do; --list names the cases, and --from must be below --to");
        return ExitCode::from(2);
    }
    let start = Instant::now();
    let rows = run(&cli, &cases);
    if cli.json {
        print_json(&cli, &rows, start.elapsed());
    } else {
        print_table(&cli, &rows, start.elapsed());
    }
    if rows.iter().all(|row| row.failures.is_empty()) {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

fn begins(case: &PatternCase, name: &str) -> bool {
    let case = case.to_string();
    // Compare whole words: one codec's name may be the beginning of another's.
    case == name || case.starts_with(&format!("{name} ")) || case.starts_with(&format!("{name}:"))
}

fn run(cli: &Cli, cases: &[PatternCase]) -> Vec<PatternRow> {
    let pairs = cases.iter().flat_map(|&case| cli.order.iter().map(move |&order| (case, order)));
    let rows = pairs.map(|(case, order)| {
        let (tally, failures, time) = (PatternTally::default(), Vec::new(), Duration::ZERO);
        Mutex::new(PatternRow { case, order, tally, failures, time })
    });
    let rows: Vec<Mutex<PatternRow>> = rows.collect();
    let n_batches = (cli.to.min(N_PATTERNS) - cli.from).div_ceil(BATCH as u64);
    let n_batches = n_batches.div_ceil(cli.every);
    let n_parts = n_batches.div_ceil(PART);
    let bar = ProgressBar::new(rows.len() as u64 * n_batches * BATCH as u64);
    let style = ProgressStyle::with_template(
        "{bar:30} {percent}% of {human_len} values, {per_sec}, {eta} left: {msg}",
    );
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    let (next, stop) = (AtomicU64::new(0), AtomicBool::new(false));
    let n_threads = cli.threads.or(thread::available_parallelism().ok().map(usize::from));
    thread::scope(|scope| {
        for _ in 0..n_threads.unwrap_or(1).max(1) {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    let Some(row) = rows.get((index / n_parts) as usize) else { return };
                    let (case, order) = {
                        let row = row.lock().unwrap_or_else(PoisonError::into_inner);
                        (row.case, row.order)
                    };
                    bar.set_message(format!("{case}, {}", order.name()));
                    let first = index % n_parts * PART;
                    let begun = Instant::now();
                    let result = part(cli, &case, order, first..n_batches.min(first + PART));
                    bar.inc((n_batches.min(first + PART) - first) * BATCH as u64);
                    let mut row = row.lock().unwrap_or_else(PoisonError::into_inner);
                    row.time += begun.elapsed();
                    match result {
                        Ok(tally) => row.tally += tally,
                        Err(failure) => {
                            row.failures.push(failure);
                            stop.store(true, Ordering::Relaxed);
                        }
                    }
                }
            });
        }
    });
    bar.finish_and_clear();
    let rows = rows.into_iter().map(|row| row.into_inner().unwrap_or_else(PoisonError::into_inner));
    rows.filter(|row| row.tally.n_values > 0 || !row.failures.is_empty()).collect()
}

/// Runs some batches of a case, up to the first that breaks a guarantee.
fn part(
    cli: &Cli,
    case: &PatternCase,
    order: PatternOrder,
    batches: std::ops::Range<u64>,
) -> Result<PatternTally, PatternFailure> {
    let mut trial = Trial::new(case, &cli.level);
    let mut tally = PatternTally::default();
    for batch in batches {
        tally += trial.batch(order, (cli.from + batch * cli.every * BATCH as u64) as u32)?;
    }
    Ok(tally)
}

/// Names of the levels that ran.
fn levels(cli: &Cli) -> Vec<&'static str> {
    cli.level.iter().map(|level| level.name()).collect()
}

fn print_table(cli: &Cli, rows: &[PatternRow], took: Duration) {
    let mut text = format!(
        "{:<24}{:<13}{:>14}{:>9}{:>12}{:>12}{:>8}{:>10}{:>8}\n",
        "case", "order", "values", "changed", "exceptions", "in a block", "ratio", "worst", "ns"
    );
    for PatternRow { case, order, tally, time, .. } in rows {
        let n = (tally.n_values as f64).max(1.0);
        let percent = |part: u64| format!("{:.2}%", 100.0 * part as f64 / n);
        let (exceptions, in_a_block) = match tally.n_exceptions {
            // The codec does not count exceptions, or there were none.
            0 => ["-", "-"].map(str::to_owned).into(),
            n => (percent(n), format!("{:.1}", n as f64 / tally.n_blocks as f64)),
        };
        text += &format!(
            "{:<24}{:<13}{:>14}{:>9}{:>12}{:>12}{:>8.2}{:>10.6}{:>8.2}\n",
            case.to_string(),
            order.name(),
            tally.n_values,
            percent(tally.n_changed),
            exceptions,
            in_a_block,
            4.0 * n / (tally.n_bytes as f64).max(1.0),
            tally.worst,
            time.as_secs_f64() * 1e9 / n,
        );
    }
    let values: u64 = rows.iter().map(|row| row.tally.n_values).sum();
    text += &format!(
        "\n{values} values at {} in {:.0} s. worst: largest error / bound; ns: for each value and \
        thread\n",
        levels(cli).join(", "),
        took.as_secs_f64()
    );
    for failure in rows.iter().flat_map(|row| &row.failures) {
        text += &format!("\n{failure}\n");
    }
    // Ignore the error: it means that the reader closed the output.
    let _ = std::io::stdout().write_all(text.as_bytes());
}

fn print_json(cli: &Cli, rows: &[PatternRow], took: Duration) {
    let json_rows = rows.iter().map(|PatternRow { case, order, tally, failures, time }| {
        serde_json::json!({
            "case": case.to_string(),
            "codec": case.codec.name(),
            "bound": case.requirement.to_string(),
            "order": order.name(),
            "values": tally.n_values,
            "not_finite": tally.n_not_finite,
            "changed": tally.n_changed,
            "bytes": tally.n_bytes,
            "blocks_with_exceptions": tally.n_blocks,
            "exceptions": tally.n_exceptions,
            "worst": tally.worst,
            "thread_seconds": time.as_secs_f64(),
            "failures": failures.iter().map(ToString::to_string).collect::<Vec<_>>(),
        })
    });
    let json = serde_json::json!({
        "levels": levels(cli),
        "from": cli.from,
        "to": cli.to.min(N_PATTERNS),
        "every": cli.every,
        "seconds": took.as_secs_f64(),
        "rows": json_rows.collect::<Vec<_>>(),
    });
    // Ignore the error: it means that the reader closed the output.
    let _ = writeln!(std::io::stdout(), "{json:#}");
}
