//! `foldwire sim --validate`: compares predicted with measured times.
//!
//! | file | source of the measured times |
//! |---|---|
//! | `threads` | runs between threads of this process |
//! | `fabric` | results of `foldwire bench` on any fabric |
//! | `results` | parser of these results |

mod fabric;
mod results;
mod threads;

use anyhow::bail;
use foldwire_arguments::SimArgs;
use foldwire_fields::usage::usage;
use foldwire_workbench::data::FieldSource;
use foldwire_workbench::table::{self, Columns};
use foldwire_workbench::{streams, with_float};
use serde::Serialize;
use serde_json::{Value, json};

/// Runs the requested comparison. Results go to stdout, everything else to stderr.
///
/// # Errors
/// Calls that fail, results that cannot be compared, and output that cannot be written.
pub(super) fn run(args: &SimArgs, source: &FieldSource) -> anyhow::Result<()> {
    let files = args.validate.as_deref().unwrap_or_default();
    if files.is_empty() && !args.fabric.is_empty() {
        bail!(usage!(
            "--fabric goes with files of measured times: --validate RESULTS.json --fabric …"
        ));
    }
    let comparison = if files.is_empty() {
        with_float!(source.dtype(args.dtype), T => threads::compare::<T>(args, source)?)
    } else {
        fabric::compare(args, files, source)?
    };
    Ok(streams::results(args.json, || comparison.json(), || comparison.text())?)
}

/// A configuration, measured and predicted.
#[derive(Debug, Clone, Serialize)]
struct ValidationRow {
    ranks: usize,
    collective: &'static str,
    preset: &'static str,
    n_bytes: usize,
    link: String,
    latency_s: f64,
    /// Seconds of CPU time for waking up a rank.
    wake_s: f64,
    /// Median of the runs.
    measured_s: f64,
    /// Fastest and slowest run.
    measured_range_s: [f64; 2],
    predicted_s: f64,
    /// Predicted / measured − 1.
    error: f64,
}

/// All configurations, and what they have in common.
#[derive(Debug)]
struct Comparison {
    /// Lines before the table, for people.
    head: Vec<String>,
    /// The same for programs, as an object.
    about: Value,
    rows: Vec<ValidationRow>,
}

impl Comparison {
    /// Returns the median and the largest error, regardless of sign.
    fn errors(&self) -> (f64, f64) {
        let mut errors: Vec<f64> = self.rows.iter().map(|row| row.error.abs()).collect();
        errors.sort_unstable_by(f64::total_cmp);
        (errors[errors.len() / 2], errors[errors.len() - 1])
    }

    /// Returns one JSON object.
    fn json(&self) -> Value {
        let (median_error, largest_error) = self.errors();
        let mut object = self.about.clone();
        object["median_error"] = json!(median_error);
        object["largest_error"] = json!(largest_error);
        object["rows"] = json!(self.rows);
        object
    }

    /// Returns header, table and summary.
    fn text(&self) -> String {
        let head: String = self.head.iter().map(|line| format!("# {line}\n")).collect();
        let (median, largest) = self.errors();
        format!(
            "{head}\n{}\nmedian error {:.1} %, largest {:.1} %, {} configurations\n",
            table(&self.rows),
            100.0 * median,
            100.0 * largest,
            self.rows.len()
        )
    }
}

fn table(rows: &[ValidationRow]) -> String {
    let ms = |seconds: f64| format!("{:.2}", seconds * 1e3);
    Columns::of(rows)
        .number("ranks", "", |row| row.ranks)
        .text("collective", "", |row| row.collective)
        .text("preset", "", |row| row.preset)
        .number("size", "", |row| table::bytes(row.n_bytes as u64))
        .number("link", "", |row| &row.link)
        .number("latency", "µs", |row| format!("{:.0}", row.latency_s * 1e6))
        .number("wake", "µs", |row| format!("{:.0}", row.wake_s * 1e6))
        .number("measured", "ms", |row| ms(row.measured_s))
        .number("(fastest–slowest)", "ms", |row| row.measured_range_s.map(ms).join("–"))
        .number("predicted", "ms", |row| ms(row.predicted_s))
        .number("error", "%", |row| format!("{:+.1}", 100.0 * row.error))
        .render()
}

/// Finds the seconds x at which the increasing `predicted(x)` equals `measured`. Returns 0 if
/// `predicted(0)` is already larger. The predicted time contains x at least once, so x is searched
/// for between 0 and `measured`.
fn bisect(measured: f64, predicted: impl Fn(f64) -> anyhow::Result<f64>) -> anyhow::Result<f64> {
    let (mut low, mut high) = (0.0, measured);
    for _ in 0..40 {
        let middle = f64::midpoint(low, high);
        if predicted(middle)? < measured { low = middle } else { high = middle }
    }
    Ok(low)
}
