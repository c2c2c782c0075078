//! `foldwire train`: a neural network that several ranks train together. They average their
//! gradients after each step, without and with compression.
//!
//! The training is data-parallel: every rank has the whole network and its share of each batch. One
//! group call averages the gradients of all layers. Each layer's weights and biases have a bound
//! relative to their own range, so that small gradients survive. Then all ranks take the same step.
//! A collective leaves the same bits on all ranks, so all ranks end with the same weights. The
//! command checks this. Compression changes how the loss falls; unbiased rounding and error
//! feedback reduce this effect.
//!
//! | file | what it does |
//! |---|---|
//! | `dataset` | the training data: the values of a plane |
//! | `exchange` | averaging of gradients |
//! | `neural_net`, `adam` | the network and its gradient; the optimizer |

mod adam;
mod dataset;
mod exchange;
mod neural_net;

use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use foldwire::{Error, Rank, Report, SharedCommunicator};
use foldwire_arguments::TrainArgs;
use foldwire_fields::usage::usage;
use foldwire_workbench::data::FieldSource;
use foldwire_workbench::memory::take_turns;
#[cfg(feature = "plots")]
use foldwire_workbench::plot::{Curves, Legend};
use foldwire_workbench::table::{self, Columns};
use foldwire_workbench::{progress, ranks, room, streams};
use indicatif::ProgressBar;
use serde::Serialize;
use serde_json::json;

use crate::runs::{CostRow, RunCost};
use adam::Adam;
use dataset::{N_INPUTS, PlaneDataset};
use exchange::{GradientExchange, gradient_buffer};
use neural_net::NeuralNet;

/// Initial learning rate. It falls linearly to zero.
const RATE: f32 = 4e-3;
/// Largest number of points of a curve.
const MAX_POINTS: usize = 40;
/// Number of arrays on a rank with a value for each weight and bias: the network, the gradient, and
/// the optimizer's two running means.
const N_COPIES: usize = 4;

/// Results of one way to average gradients.
#[derive(Debug, Serialize)]
struct TrainRow {
    #[serde(flatten)]
    exchange: GradientExchange,
    dtype: String,
    steps: usize,
    batch: usize,
    /// Seconds per step on the slowest rank.
    step_s: f64,
    #[serde(flatten)]
    cost: CostRow,
    /// Time of the raw run / time of this run.
    speedup_raw: f64,
    /// Mean square error on held-out samples before training. The samples' variance is about 1.
    loss_start: f64,
    /// Mean square error on held-out samples after training.
    loss_end: f64,
    /// Loss at the end / loss of the raw run at the end.
    loss_of_raw: f64,
    curve: Vec<LossPoint>,
}

/// Mean loss of consecutive batches.
#[derive(Debug, Serialize)]
struct LossPoint {
    /// Step in the middle of these batches.
    step: usize,
    loss: f64,
}

/// Runs the subcommand: results on stdout, everything else on stderr.
///
/// # Errors
/// Usage errors, failed calls, and plots that cannot be written. Also if ranks end with different
/// weights, if a loss is NaN or infinite, or if the uncompressed run does not learn.
pub fn run(args: &TrainArgs) -> anyhow::Result<()> {
    if args.batch < args.ranks {
        let message = format!("{} samples are too few for {} ranks", args.batch, args.ranks);
        bail!(usage!("{message}; ask for a larger --batch"));
    }
    let widths = [N_INPUTS, args.width, args.width, 1];
    let n_values = NeuralNet::n_values(&widths);
    room::check((N_COPIES * size_of::<f32>() * n_values) as u128 * args.ranks as u128)
        .map_err(|error| usage!("{error}; ask for a smaller --width"))?;
    let dataset = PlaneDataset::new(&FieldSource::open(args.field.as_deref())?)?;
    let net = NeuralNet::new(&widths);
    let loss_start = dataset.loss(&net);
    let exchanges = GradientExchange::all(args);
    let progress = progress::bar("training", exchanges.len() * args.repeat * args.steps);
    let runs = take_turns(&exchanges, args.repeat, |exchange| {
        progress.set_message(exchange.name.clone());
        let outcome = train(&net, &dataset, args, exchange, &progress);
        outcome.with_context(|| exchange.name.clone())
    })?;
    progress.finish_and_clear();
    let mut rows: Vec<TrainRow> = Vec::new();
    for (exchange, runs) in exchanges.iter().zip(&runs) {
        let row = row(exchange, args, runs, loss_start, rows.first());
        rows.push(row);
    }
    let links = match args.link.bytes_per_s() {
        Some(_) => format!("over links of {}", args.link),
        None => "at the speed of memory".to_owned(),
    };
    let about = format!(
        "{}; a network of {n_values} values, gradients in {}, ranks: {}, {links}",
        dataset.about(),
        args.dtype,
        args.ranks
    );
    streams::results(
        args.json,
        || json!({ "about": about, "n_values": n_values, "rows": rows }),
        || format!("# {about}\n\n{}", render(&rows)),
    )?;
    for (row, runs) in rows.iter().zip(&runs) {
        runs.iter()
            .try_for_each(|run| agree(&run.digests))
            .with_context(|| row.exchange.name.clone())?;
    }
    check(&rows)?;
    foldwire_workbench::draw!(args.plot, picture(dataset.about(), &rows))
}

/// Measurements and losses of one run.
#[derive(Default)]
struct TrainRun {
    cost: RunCost,
    /// Loss of each batch.
    losses: Vec<f64>,
    /// Loss on held-out samples at the end.
    loss: f64,
    /// Digest of each rank's weights at the end.
    digests: Vec<u64>,
}

/// Trains the network on all ranks.
fn train(
    net: &NeuralNet,
    dataset: &PlaneDataset,
    args: &TrainArgs,
    exchange: &GradientExchange,
    progress: &ProgressBar,
) -> anyhow::Result<TrainRun> {
    let world = ranks::world(args.ranks, args.link.bytes_per_s());
    let ranks = world.run_endpoints(|endpoint| -> Result<_, Error> {
        let comm = SharedCommunicator::new(endpoint, net.arrays().count())?;
        let (mut net, mut gradient, mut workspace) = (net.clone(), net.zeroed(), net.workspace());
        let (mut adam, mut buffer) = (Adam::new(&net), gradient_buffer(&net, args.dtype));
        let share = comm.share(args.batch);
        // With this weight, the average over ranks is the average over the batch, even if shares
        // differ in size.
        let weight = comm.size() as f32 / args.batch as f32;
        let (mut exchanging, mut report) = (Duration::ZERO, Report::default());
        let mut losses = Vec::with_capacity(args.steps);
        comm.barrier()?;
        let started = Instant::now();
        for step in 0..args.steps {
            gradient.arrays_mut().for_each(|array| array.fill(0.0));
            let errors = share.clone().map(|at| {
                let number = (step * args.batch + at) as u64;
                f64::from(dataset.add_gradient(&net, number, weight, &mut workspace, &mut gradient))
            });
            losses.push(errors.sum::<f64>() / args.batch as f64);
            buffer.load(&gradient);
            let begun = Instant::now();
            report += buffer.average(&comm, exchange, step)?;
            exchanging += begun.elapsed();
            buffer.store(&mut gradient);
            let left = (args.steps - step) as f32 / args.steps as f32;
            adam.step(&mut net, &gradient, RATE * left);
            if comm.rank() == Rank(0) {
                progress.inc(1);
            }
        }
        let time = started.elapsed();
        Ok((RunCost { time, exchanging, report }, losses, net))
    });
    let ranks = ranks::results(ranks)?;
    let mut outcome = TrainRun {
        losses: vec![0.0; args.steps],
        loss: ranks.first().map_or(f64::NAN, |(.., net)| dataset.loss(net)),
        ..TrainRun::default()
    };
    for (cost, losses, net) in ranks {
        outcome.cost.add(&cost, args.ranks);
        outcome.losses.iter_mut().zip(losses).for_each(|(sum, loss)| *sum += loss);
        outcome.digests.push(net.digest());
    }
    Ok(outcome)
}

fn row(
    exchange: &GradientExchange,
    args: &TrainArgs,
    runs: &[TrainRun],
    loss_start: f64,
    raw: Option<&TrainRow>,
) -> TrainRow {
    let ranks = (args.ranks, &args.link);
    let (cost, run) = CostRow::new(ranks, runs, |run| &run.cost, |_| args.steps);
    TrainRow {
        exchange: exchange.clone(),
        dtype: args.dtype.to_string(),
        steps: args.steps,
        batch: args.batch,
        step_s: cost.time_s / args.steps as f64,
        speedup_raw: raw.map_or(1.0, |raw| raw.cost.time_s / cost.time_s),
        cost,
        loss_start,
        loss_end: run.loss,
        loss_of_raw: raw.map_or(1.0, |raw| run.loss / raw.loss_end),
        curve: curve(&run.losses),
    }
}

/// Means of the losses over consecutive batches.
fn curve(losses: &[f64]) -> Vec<LossPoint> {
    let n_each = losses.len().div_ceil(MAX_POINTS).max(1);
    let stretches = losses.chunks(n_each).enumerate();
    let points = stretches.map(|(at, losses)| LossPoint {
        step: at * n_each + losses.len() / 2,
        loss: losses.iter().sum::<f64>() / losses.len() as f64,
    });
    points.collect()
}

/// Checks that all ranks ended with the same bits.
///
/// # Errors
/// If a rank has a different digest than rank 0.
fn agree(digests: &[u64]) -> anyhow::Result<()> {
    let other = digests.iter().position(|digest| *digest != digests[0]);
    ensure!(other.is_none(), "rank {} ended with other weights than rank 0", other.unwrap_or(0));
    Ok(())
}

/// Checks that the network learned.
///
/// # Errors
/// If a loss is NaN or infinite, or the loss of the raw run did not fall.
fn check(rows: &[TrainRow]) -> anyhow::Result<()> {
    for row in rows {
        let is_finite = row.curve.iter().all(|point| point.loss.is_finite());
        ensure!(
            is_finite && row.loss_end.is_finite(),
            "{}: the loss is NaN or infinite",
            row.exchange.name
        );
    }
    for TrainRow { loss_start, loss_end, .. } in rows.iter().take(1) {
        ensure!(
            loss_end < loss_start,
            "without compression the network did not learn: its loss went from {loss_start:.3} to \
             {loss_end:.3}; ask for more --steps"
        );
    }
    Ok(())
}

/// Loss over steps, one curve per exchange.
#[cfg(feature = "plots")]
fn picture(about: &str, rows: &[TrainRow]) -> Curves<'static> {
    let line = |row: &TrainRow| {
        let points = row.curve.iter().map(|point| (point.step as f64, point.loss));
        (row.exchange.name.clone(), points.collect())
    };
    let axes = ["steps", "loss of a batch"];
    Curves::of_magnitudes(about.to_owned(), axes, rows.iter().map(line), Legend::UpperRight)
}

fn render(rows: &[TrainRow]) -> String {
    Columns::of(rows)
        .text("exchange", "", |row| &row.exchange.name)
        .number("run", "s", |row| format!("{:.2}", row.cost.time_s))
        .number("step", "ms", |row| format!("{:.2}", row.step_s * 1e3))
        .number("exchange", "ms a step", |row| format!("{:.2}", row.cost.exchange_s * 1e3))
        .number("speed-up", "x raw", |row| format!("{:.2}", row.speedup_raw))
        .number("wire", "all ranks", |row| table::bytes(row.cost.wire_bytes))
        .number("ratio", "", |row| format!("{:.2}", row.cost.ratio))
        .number("loss", "at first", |row| format!("{:.4}", row.loss_start))
        .number("loss", "at last", |row| format!("{:.4}", row.loss_end))
        .number("loss", "x raw", |row| format!("{:.3}", row.loss_of_raw))
        .render()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trained(loss_start: f64, loss_end: f64) -> TrainRow {
        let args: &[&str] = &["foldwire", "train", "--steps", "3"];
        let cli = <foldwire_arguments::Cli as clap::Parser>::parse_from(args);
        let foldwire_arguments::Command::Train(args) = cli.command else {
            unreachable!("it is train")
        };
        let outcome = TrainRun {
            cost: RunCost {
                time: Duration::from_millis(6),
                exchanging: Duration::from_millis(3),
                report: Report::default(),
            },
            losses: vec![loss_start, loss_end, loss_end],
            loss: loss_end,
            digests: vec![1; 4],
        };
        row(&GradientExchange::all(&args)[0], &args, &[outcome], loss_start, None)
    }

    #[test]
    fn ranks_with_other_weights_are_found() {
        agree(&[7, 7, 7]).unwrap();
        let message = agree(&[7, 7, 8, 7]).unwrap_err().to_string();
        assert!(message.contains("rank 2"), "{message}");
    }

    #[test]
    fn a_network_that_does_not_learn_is_an_error() {
        check(&[trained(1.0, 0.5)]).unwrap();
        for (end, says) in [(1.0, "did not learn"), (f64::NAN, "NaN or infinite")] {
            let message = check(&[trained(1.0, end)]).unwrap_err().to_string();
            assert!(message.contains(says), "{message}");
        }
        // A compressed run that diverges is shown in the table, but is no error.
        check(&[trained(1.0, 0.5), trained(1.0, 2.0)]).unwrap();
    }

    #[test]
    fn a_curve_has_the_means_of_stretches() {
        let losses: Vec<f64> = (0..100).map(f64::from).collect();
        let curve = curve(&losses);
        assert_eq!((curve.len(), curve[0].step, curve[33].step), (34, 1, 99));
        assert_eq!((curve[0].loss, curve[1].loss, curve[33].loss), (1.0, 4.0, 99.0));
    }
}
