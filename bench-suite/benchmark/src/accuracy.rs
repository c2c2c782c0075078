//! `foldwire accuracy`: measures how the error of a reduction grows with the number of ranks.
//!
//! All ranks run on this thread, each with its own data. A row has a number of ranks, a pipeline
//! and a schedule. It holds the errors of the reduced values, in units of the bound on operands. It
//! also holds the worst case that the library states, and the predictions of two theories. The
//! command fails, after all results are shown, if an error exceeds the stated worst case or ranks
//! have different bits.
//!
//! | file | what it does |
//! |---|---|
//! | `operands` | the ranks' inputs, and the exact reduction |
//! | `local_ranks` | the ranks, and an all-reduce among them |
//! | `errors`, `theory` | measured and predicted errors |
//! | `output` | the table and JSON |
//! | `plot`, `bars` | plots of errors over ranks, and of their distribution |

#[cfg(feature = "plots")]
pub(crate) mod bars;
pub(crate) mod errors;
mod local_ranks;
mod operands;
mod output;
#[cfg(feature = "plots")]
mod plot;
mod theory;

use anyhow::{Context, bail};
use foldwire::bound::{rounding, underflow};
use foldwire::codec::Loss;
use foldwire::pipeline::Pipeline;
use foldwire::schedule::ProgramSpec;
use foldwire::select::{self, Network};
use foldwire::{Collective, Float, Op, Plan, Quantum, Rank};
use foldwire_arguments::{AccuracyArgs, OpArg, reduces};
use foldwire_fields::usage::{UsageError, usage};
use foldwire_workbench::data::{Data, FieldSource};
use foldwire_workbench::{progress, quality, room, streams, with_float};
use serde::Serialize;

use errors::{ErrorSummary, Errors, Histogram};
use local_ranks::{AllReduceMethod, LocalRanks, MAX_FRAME};
use operands::RankArrays;
use theory::Theory;

/// Half-width of a histogram, in standard deviations of the theory with the larger errors.
const REACH: f64 = 3.5;

/// Results for one number of ranks, pipeline and schedule. Errors are in units of `bound`.
#[derive(Debug, Serialize)]
struct AccuracyRow {
    ranks: usize,
    pipeline: &'static str,
    schedule: &'static str,
    /// True if the library chooses this schedule by default.
    is_chosen: bool,
    /// Bound on each operand, in the unit of the data.
    bound: f64,
    #[serde(flatten)]
    summary: ErrorSummary,
    /// The worst case that the library states.
    stated: f64,
    /// Largest rounding error, which may add to the stated worst case.
    rounding: f64,
    /// Prediction of ZCCL's theory.
    zccl: Theory,
    /// Prediction of the theory of uniform errors.
    uniform: Theory,
    /// Fraction of the values with errors up to `zccl.line`. ZCCL's theory predicts 95.44 %.
    within_zccl: f64,
    /// The same for `uniform.line`.
    within_uniform: f64,
    mismatched_nonfinite: usize,
    /// Number of ranks whose bits differ from rank 0's.
    n_others: usize,
    /// Present only in rows that are drawn.
    #[serde(skip_serializing_if = "Option::is_none")]
    histogram: Option<Histogram>,
}

/// Parameters that all rows share.
#[derive(Debug, Serialize)]
struct AccuracySetting {
    op: &'static str,
    codec: String,
    dtype: String,
    count: usize,
    bound: String,
    seed: u64,
    data: String,
}

/// Runs the subcommand. Results go to stdout, everything else to stderr.
///
/// # Errors
/// Usage errors, calls that fail, and plots that cannot be written. Also, after all results are
/// shown, errors beyond the stated worst case.
pub fn run(args: &AccuracyArgs) -> anyhow::Result<()> {
    let source = FieldSource::open(args.field.as_deref())?;
    with_float!(source.dtype(args.dtype), T => show::<T>(args, &source))
}

fn show<T: Float + Into<f64>>(args: &AccuracyArgs, source: &FieldSource) -> anyhow::Result<()> {
    let codec = args.codec;
    if codec.codec.loss() != Loss::Bound || !codec.is_for(T::DTYPE) {
        let message = format!("codec {codec} keeps no bound on {}, so its errors", T::DTYPE);
        bail!(usage!("{message} cannot be measured in units of the bound; try fz-light"));
    }
    if let Some(schedule) = args.schedules().find(|&named| !reduces(named)) {
        let message =
            format!("schedule {} has no all-reduce, and not both reduce", schedule.name());
        bail!(usage!("{message} and broadcast"));
    }
    let data = source.data::<T>(1);
    let setting = AccuracySetting {
        op: args.op.name(),
        codec: codec.to_string(),
        dtype: T::DTYPE.to_string(),
        count: args.count,
        bound: args.bound.to_string(),
        seed: args.seed,
        data: data.about().to_owned(),
    };
    let rows = measure(args, &data)?;
    streams::results(
        args.json,
        || output::json(&setting, &rows),
        || output::text(&setting, &rows),
    )?;
    let (setting, rows) = (&setting, &rows[..]);
    let drawn = foldwire_workbench::draw!(args.plot, plot::ErrorGrowthPlot { setting, rows });
    let drawn = drawn.and(foldwire_workbench::draw!(args.histogram, distribution(setting, rows)));
    let faults = faults(rows);
    if !faults.is_empty() {
        bail!("the library broke its promises; please report this\n  {}", faults.join("\n  "));
    }
    drawn
}

/// Returns the plot of rows that have a histogram.
#[cfg(feature = "plots")]
fn distribution(setting: &AccuracySetting, rows: &[AccuracyRow]) -> bars::ErrorDistributionPlot {
    use plotters::style::{BLACK, RGBColor};

    let AccuracySetting { op, codec, bound, .. } = setting;
    let drawn: Vec<_> = rows.iter().filter_map(|row| Some((row, row.histogram.clone()?))).collect();
    let of = drawn
        .first()
        .map_or_else(String::new, |(row, _)| format!(", {} ranks, {}", row.ranks, row.schedule));
    let panel = |(row, histogram): (&AccuracyRow, Histogram)| bars::DistributionPanel {
        caption: row.pipeline.to_owned(),
        colour: colour(row.pipeline),
        histogram,
        normals: [(0.0, row.zccl.deviation), (0.0, row.uniform.deviation)],
    };
    bars::ErrorDistributionPlot {
        title: format!("errors of {op} by {codec} within {bound}{of}"),
        legend: [
            ("normal, ZCCL's deviation", RGBColor(0, 114, 178)),
            ("normal, that of uniform errors", BLACK),
        ],
        panels: drawn.into_iter().map(panel).collect(),
    }
}

fn measure<T: Float + Into<f64>>(
    args: &AccuracyArgs,
    data: &Data<T>,
) -> anyhow::Result<Vec<AccuracyRow>> {
    let pipelines = args.pipelines();
    let ranks = args.ranks.n_bytes();
    let progress = progress::bar("reducing", ranks.len() * pipelines.len());
    let methods = |plan: &Plan, n: usize| {
        let chosen = chosen::<T>(plan, args.op, n, args.count);
        let requested = args.schedules().filter_map(AllReduceMethod::of);
        let is_requested = args.schedules().any(|named| named.name() == chosen.name());
        let added = (args.adds_chosen() && !is_requested).then_some(chosen);
        (chosen, requested.chain(added))
    };
    let plan = |pipeline| args.codec.of_plan(Plan::raw().compressed(pipeline, args.bound));
    for (&n, &pipeline) in ranks.iter().flat_map(|n| pipelines.iter().map(move |of| (n, of))) {
        for method in methods(&plan(pipeline), n).1 {
            room::check(method.n_bytes::<T>(args.codec, n, args.count)).map_err(|error| {
                let what = format!("{n} ranks by {}: {error}", method.name());
                usage!("{what}; ask for fewer --ranks or a smaller --count")
            })?;
        }
    }
    let mut rows = Vec::new();
    for &n in ranks {
        let operands = RankArrays::new(data, n, args.count, args.seed);
        let exact = operands.exact(args.op);
        for &pipeline in &pipelines {
            let plan = plan(pipeline);
            let (chosen, methods) = methods(&plan, n);
            for (nth, method) in methods.enumerate() {
                progress.set_message(format!("{n} ranks, {}, {}", pipeline.name, method.name()));
                let mut local_ranks = LocalRanks::new(method, args.codec, n, args.count)?;
                let outcome = local_ranks.all_reduce(operands.arrays(), args.op, &plan)?;
                if outcome.bound == 0.0 {
                    let message = "the values are all equal, or the bound is too small for them, \
                                   so that nothing is lost; give another --bound, such as abs:0.1";
                    bail!(UsageError::new(message));
                }
                let magnitude = operands.magnitude() + outcome.bound;
                let is_sum = matches!(args.op, OpArg::Sum | OpArg::Avg);
                if is_sum && n as f64 * magnitude > quality::largest::<T>() {
                    let message = format!(
                        "sums of {n} values of up to {magnitude:e} are beyond the range of {}, and \
                         have no errors; scale the field, or ask for fewer --ranks",
                        T::DTYPE
                    );
                    bail!(UsageError::new(message));
                }
                let errors = Errors::new(&outcome.result, &exact, outcome.bound);
                let half_step = Quantum::new::<T>(outcome.bound)?.step() / (2.0 * outcome.bound);
                let zccl = Theory::zccl(args.op, n);
                let uniform = Theory::uniform(args.op, n, half_step);
                let rounding = allowance::<T>(args.op, n, magnitude);
                let is_drawn = Some(&n) == ranks.last() && nth == 0;
                rows.push(AccuracyRow {
                    ranks: n,
                    pipeline: pipeline.name,
                    schedule: method.name(),
                    is_chosen: method.name() == chosen.name(),
                    bound: outcome.bound,
                    summary: errors.summary().context("no value of the result is finite")?,
                    stated: outcome.stated / outcome.bound,
                    rounding: rounding / outcome.bound,
                    zccl,
                    uniform,
                    within_zccl: errors.share_within(zccl.line),
                    within_uniform: errors.share_within(uniform.line),
                    mismatched_nonfinite: errors.mismatched_nonfinite,
                    n_others: outcome.n_others,
                    histogram: is_drawn
                        .then(|| errors.histogram(REACH * uniform.deviation.max(zccl.deviation))),
                });
            }
            progress.inc(1);
        }
    }
    progress.finish_and_clear();
    Ok(rows)
}

/// Returns the schedule that the library chooses if links are as fast as memory.
fn chosen<T: Float>(plan: &Plan, op: OpArg, n_ranks: usize, count: usize) -> AllReduceMethod {
    let call = ProgramSpec::new(Collective::AllReduce, n_ranks, Rank(0));
    let network = Network { link_rate: None, frame_bytes: MAX_FRAME };
    let code = Op::<T>::from(op).code();
    AllReduceMethod::AllReduce(select::schedule(call, code, plan, count * T::BYTES, network))
}

/// Returns the largest rounding error beyond the stated worst case. No value, including its error,
/// is larger than `magnitude`.
fn allowance<T: Float>(op: OpArg, n_ranks: usize, magnitude: f64) -> f64 {
    match op {
        OpArg::Sum => rounding::<T>(n_ranks, n_ranks as f64 * magnitude),
        OpArg::Avg => rounding::<T>(n_ranks, magnitude) + underflow::<T>(n_ranks),
        _ => rounding::<T>(n_ranks, magnitude),
    }
}

/// Returns everything that is wrong in these results, one line each.
fn faults(rows: &[AccuracyRow]) -> Vec<String> {
    let mut faults = Vec::new();
    for row in rows {
        let AccuracyRow { ranks, pipeline, schedule, summary, stated, rounding, .. } = row;
        let mut fault = |what: String| {
            faults.push(format!("{ranks} ranks, {pipeline}, {schedule}: {what}"));
        };
        if summary.worst > stated + rounding {
            fault(format!(
                "an error of {:.6} bounds, beyond the {stated:.6} stated and {rounding:.6} of \
                 rounding",
                summary.worst
            ));
        }
        if row.mismatched_nonfinite > 0 {
            let n = row.mismatched_nonfinite;
            fault(format!("{n} NaNs or infinities that came out as something else"));
        }
        if row.n_others > 0 {
            fault(format!("{} ranks hold other bits than rank 0", row.n_others));
        }
    }
    faults
}

/// Returns the colour of a pipeline, by its index in the library's list.
#[cfg(feature = "plots")]
fn colour(name: &str) -> plotters::style::RGBColor {
    use foldwire_workbench::plot;

    let is_it = |known: &Pipeline| known.name == name;
    let nth = foldwire::pipeline::ALL.iter().position(is_it).unwrap_or(0);
    plot::colour(nth)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(worst: f64, mismatched_nonfinite: usize, n_others: usize) -> AccuracyRow {
        AccuracyRow {
            ranks: 4,
            pipeline: "fused",
            schedule: "ring",
            is_chosen: true,
            bound: 0.5,
            summary: ErrorSummary { worst, ..ErrorSummary::default() },
            stated: 4.0,
            rounding: 0.25,
            zccl: Theory::zccl(OpArg::Sum, 4),
            uniform: Theory::uniform(OpArg::Sum, 4, 1.0),
            within_zccl: 1.0,
            within_uniform: 1.0,
            mismatched_nonfinite,
            n_others,
            histogram: None,
        }
    }

    #[test]
    fn an_error_beyond_the_stated_worst_case_is_a_fault() {
        assert!(faults(&[row(4.25, 0, 0)]).is_empty());
        let found = faults(&[row(4.3, 0, 0), row(f64::INFINITY, 1, 0), row(0.0, 0, 2)]);
        assert_eq!(found.len(), 4, "{found:?}");
        assert!(found[0].starts_with("4 ranks, fused, ring: an error of 4.300000"), "{found:?}");
        assert!(found[3].ends_with("2 ranks hold other bits than rank 0"), "{found:?}");
    }

    #[test]
    fn the_allowance_for_rounding_grows_with_sums() {
        let of = |op| allowance::<f32>(op, 100, 1.0);
        assert!(of(OpArg::Sum) > 99.0 * of(OpArg::Max) && of(OpArg::Avg) >= of(OpArg::Max));
    }
}
