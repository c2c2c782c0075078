//! `foldwire papers errors`: how the errors of one compression are distributed, by codec (ZCCL's
//! figures 5 and 6).

use anyhow::bail;
use foldwire::Float;
use foldwire::bound::ValueRange;
use foldwire::codec::{CodecParams, Loss};
use foldwire_arguments::coding::CodecArg;
use foldwire_arguments::papers::PaperErrorsArgs;
use foldwire_fields::usage::usage;
use foldwire_workbench::data::FieldSource;
use foldwire_workbench::table::Columns;
use foldwire_workbench::threads::Pool;
use foldwire_workbench::{streams, with_float};
use serde::Serialize;
use serde_json::json;

use super::operands::CodecSetup;
use crate::accuracy::errors::{ErrorSummary, Errors, Histogram};
use crate::codec::quantum;

/// Half-width of a histogram, in bounds.
const REACH: f64 = 1.25;

/// Errors of one codec, in units of the bound.
#[derive(Debug, Serialize)]
struct ErrorsRow {
    codec: String,
    ratio: f64,
    #[serde(flatten)]
    summary: ErrorSummary,
    /// Share of the values with errors up to the bound.
    within_bound: f64,
    /// Share within two deviations of the mean; 95.44 % of a normal distribution.
    within_two_deviations: f64,
    histogram: Histogram,
}

/// Runs the experiment.
pub(super) fn run(args: &PaperErrorsArgs) -> anyhow::Result<()> {
    let source = FieldSource::open(args.field.as_deref())?;
    with_float!(super::wide(&source)?, T => show::<T>(args, &source))
}

fn show<T: Float + Into<f64>>(args: &PaperErrorsArgs, source: &FieldSource) -> anyhow::Result<()> {
    super::check_lossy(&args.codec, T::DTYPE)?;
    let data = source.data::<T>(1);
    let mut rows = Vec::new();
    let mut faults = Vec::new();
    for &coding in &args.codec {
        let row = measure(coding, args, data.base(), data.shape())?;
        if coding.codec.loss() == Loss::Bound && row.summary.worst > 1.0 {
            faults.push(format!("{coding}: an error of {:.6} bounds", row.summary.worst));
        }
        rows.push(row);
    }
    let text = || {
        let data = super::describe(&data);
        let about = format!("Errors of one compression at {}, in bounds: {data}", args.bound);
        format!("{about}\n\n{}", render(&rows))
    };
    let json = || json!({ "bound": args.bound.to_string(), "rows": rows });
    streams::results(args.json, json, text)?;
    let drawn = foldwire_workbench::draw!(args.plot, distribution(args.bound, &rows));
    super::report(&faults).and(drawn)
}

/// Measures a codec at the bound. A codec without a bound gets the first setting that keeps it, or
/// the last one.
fn measure<T: Float + Into<f64>>(
    coding: CodecArg,
    args: &PaperErrorsArgs,
    values: &[T],
    shape: &[usize],
) -> anyhow::Result<ErrorsRow> {
    let range = ValueRange::of(values);
    let bound = args.bound.absolute(range)?;
    if bound == 0.0 {
        bail!(usage!("the values are all equal, so they have no errors"));
    }
    let exact: Vec<f64> = values.iter().map(|&x| x.into()).collect();
    let params = CodecParams::new(quantum::<T>(coding, args.bound, range)?).with_shape(shape);
    let candidates = match coding.codec.loss() {
        Loss::Bound => vec![coding],
        _ => super::settings::<T>(coding),
    };
    let mut found = None;
    for coding in candidates {
        let setup = CodecSetup { coding, params, bound, pool: Pool::ONE, n_rounds: 0 };
        let (ratio, decoded) = setup.decoded(values)?;
        let errors = Errors::new(&decoded, &exact, bound);
        let summary = errors.summary().ok_or_else(|| usage!("no value is finite"))?;
        found = Some((coding, ratio, errors, summary));
        if summary.worst <= 1.0 {
            break;
        }
    }
    let (coding, ratio, errors, summary) = found.expect("a codec has at least one candidate");
    Ok(ErrorsRow {
        codec: coding.to_string(),
        ratio,
        summary,
        within_bound: errors.share_within(1.0),
        within_two_deviations: errors.share_around(summary.bias, 2.0 * summary.deviation),
        histogram: errors.histogram(REACH),
    })
}

fn render(rows: &[ErrorsRow]) -> String {
    let table = Columns::of(rows)
        .text("codec", "", |row| &row.codec)
        .number("ratio", "", |row| format!("{:.2}", row.ratio))
        .number("worst", "", |row| format!("{:.4}", row.summary.worst))
        .number("mean", "", |row| format!("{:+.4}", row.summary.bias))
        .number("sigma", "", |row| format!("{:.4}", row.summary.deviation))
        .number("within", "bound, %", |row| format!("{:.2}", 100.0 * row.within_bound))
        .number("within", "2 sigma, %", |row| format!("{:.2}", 100.0 * row.within_two_deviations));
    let note = "A normal error has 95.44 % within 2 sigma, and by ZCCL's theory a sigma of 0.3333; \
                a uniform one\nhas 100 % and 0.5774.\n";
    table.render() + note
}

#[cfg(feature = "plots")]
fn distribution(
    bound: foldwire::Bound,
    rows: &[ErrorsRow],
) -> crate::accuracy::bars::ErrorDistributionPlot {
    use crate::accuracy::bars::{DistributionPanel, ErrorDistributionPlot};
    use foldwire_workbench::plot::colour;
    use plotters::style::{BLACK, RGBColor};

    let panel = |(nth, row): (usize, &ErrorsRow)| {
        let ErrorSummary { bias, deviation, .. } = row.summary;
        DistributionPanel {
            caption: format!("{}, ratio {:.1}", row.codec, row.ratio),
            colour: colour(nth),
            histogram: row.histogram.clone(),
            normals: [(bias, deviation), (0.0, 1.0 / 3.0)],
        }
    };
    ErrorDistributionPlot {
        title: format!("errors of one compression within {bound}"),
        legend: [
            ("normal, measured mean and sigma", BLACK),
            ("normal, ZCCL's sigma", RGBColor(0, 114, 178)),
        ],
        panels: rows.iter().enumerate().map(panel).collect(),
    }
}
