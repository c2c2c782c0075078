//! `foldwire transpose`: x + xᵀ of a square matrix that ranks divide by rows, over an all-to-all.
//!
//! It follows the Dask case of the MPC-OPT and ZFP-OPT papers (Q. Zhou et al., IPDPS 2021). Rank r
//! sends rank s the block of r's rows and s's columns. Rank s transposes the received blocks and
//! adds them to its rows. Without compression every value must have the bits of the exact sum. With
//! a bound, a value may be off by at most the bound plus the rounding of one addition.

use std::time::Instant;

use anyhow::{Context, bail, ensure};
use foldwire::layout::share;
use foldwire::{Communicator, DType, Error, Plan, Transport};
use foldwire_arguments::{TransposeArgs, coding};
use foldwire_fields::usage::UsageError;
use foldwire_workbench::data::FieldSource;
use foldwire_workbench::memory::take_turns;
use foldwire_workbench::table::{self, Columns};
use foldwire_workbench::{infinite, progress, ranks, streams};
use serde::Serialize;
use serde_json::json;

use crate::runs::{CostRow, RunCost};

/// Results of one way to exchange blocks.
#[derive(Debug, Serialize)]
struct TransposeRow {
    /// `raw`, or the error bound.
    exchange: String,
    /// Number of rows, and of columns, of the matrix.
    side: usize,
    #[serde(flatten)]
    cost: CostRow,
    /// Time of the raw run / time of this run.
    speedup_raw: f64,
    /// Largest error of a result, over all runs.
    #[serde(serialize_with = "infinite::serialize")]
    max_err: f64,
    /// Largest allowed error.
    allowed: f64,
}

/// Runs the subcommand: results on stdout, everything else on stderr.
///
/// # Errors
/// Usage errors, failed calls, and results beyond their bound.
pub fn run(args: &TransposeArgs) -> anyhow::Result<()> {
    let matrix = Matrix::new(args)?;
    let plans = coding::variants(&args.codec, &args.bound, DType::F32)?;
    let progress = progress::bar("transposing", plans.len() * args.repeat);
    let runs = take_turns(&plans, args.repeat, |(name, plan)| {
        progress.set_message(name.clone());
        let run = matrix.add_transposed(args, plan).with_context(|| name.clone());
        progress.inc(1);
        run
    })?;
    progress.finish_and_clear();
    let mut rows: Vec<TransposeRow> = Vec::new();
    for ((name, _), runs) in plans.iter().zip(&runs) {
        let raw = rows.first().map(|row| row.cost.time_s);
        rows.push(row(name, args, matrix.side, runs, raw));
    }
    streams::results(args.json, || json!({ "rows": rows }), || render(&rows))?;
    for row in &rows {
        let TransposeRow { exchange, max_err, allowed, .. } = row;
        ensure!(max_err <= allowed, "{exchange}: off by {max_err:e}, {allowed:e} is allowed");
    }
    Ok(())
}

/// The whole square matrix. Each rank reads its rows from it.
struct Matrix {
    side: usize,
    values: Vec<f32>,
    /// Largest magnitude of a value.
    magnitude: f64,
}

/// Measurements and errors of one run.
#[derive(Default)]
struct TransposeRun {
    cost: RunCost,
    max_err: f64,
    allowed: f64,
}

impl Matrix {
    fn new(args: &TransposeArgs) -> anyhow::Result<Self> {
        let side = args.side;
        let data = FieldSource::open(args.field.as_deref())?.data::<f32>(1);
        let mut values = foldwire_fields::memory::zeroed(side * side)?;
        data.fill(0, 0, &mut values);
        if let Some(at) = values.iter().position(|value| !value.is_finite()) {
            let message = format!("{}: value {at} is not finite", data.about());
            bail!(UsageError::new(message));
        }
        Ok(Self { side, values, magnitude: data.magnitude() })
    }

    /// Computes x + xᵀ on all ranks, and compares each value with the exact sum.
    fn add_transposed(&self, args: &TransposeArgs, plan: &Plan) -> anyhow::Result<TransposeRun> {
        let world = ranks::world(args.ranks, args.link.bytes_per_s());
        let ranks = world.run(|mut comm| self.rank(&mut comm, plan));
        let mut outcome = TransposeRun::default();
        for rank in ranks::results(ranks)? {
            outcome.cost.add(&rank.cost, args.ranks);
            outcome.max_err = outcome.max_err.max(rank.max_err);
            outcome.allowed = outcome.allowed.max(rank.allowed);
        }
        Ok(outcome)
    }

    /// Runs one rank.
    fn rank<X: Transport>(
        &self,
        comm: &mut Communicator<X>,
        plan: &Plan,
    ) -> Result<TransposeRun, Error> {
        let (side, size, rank) = (self.side, comm.size(), comm.rank().index());
        let own = share(side, size, rank);
        let mut sum = self.values[own.start * side..own.end * side].to_vec();
        // One block per rank: this rank sends that rank's columns, and receives that rank's rows.
        let counts: Vec<usize> =
            (0..size).map(|other| own.len() * share(side, size, other).len()).collect();
        let [mut send, mut recv] = [vec![0.0_f32; sum.len()], vec![0.0_f32; sum.len()]];
        comm.barrier()?;
        let started = Instant::now();
        let mut blocks = send.as_mut_slice();
        for (other, &count) in counts.iter().enumerate() {
            let columns = share(side, size, other);
            let (block, rest) = blocks.split_at_mut(count);
            for (block, row) in block.chunks_exact_mut(columns.len().max(1)).zip(sum.chunks(side)) {
                block.copy_from_slice(&row[columns.clone()]);
            }
            blocks = rest;
        }
        let begun = Instant::now();
        let report = comm.all_to_all_v(&send, &counts, &mut recv, &counts, plan)?;
        let exchanging = begun.elapsed();
        let mut blocks = recv.as_slice();
        for (other, &count) in counts.iter().enumerate() {
            // This block holds this rank's columns of that rank's rows.
            let (block, rest) = blocks.split_at(count);
            add_transposed(&mut sum, side, share(side, size, other).start, block);
            blocks = rest;
        }
        let time = started.elapsed();
        let max_err = self.error(&sum, own.start);
        // The addition rounds in the exact sum too, so a raw call allows no error at all.
        let rounding = f64::from(f32::EPSILON) * (2.0 * self.magnitude + report.bound);
        let allowed = if report.bound > 0.0 { report.bound + rounding } else { 0.0 };
        Ok(TransposeRun { cost: RunCost { time, exchanging, report }, max_err, allowed })
    }

    /// Largest error in rows of x + xᵀ that begin with row `first`; infinite if a value is NaN and
    /// should not be.
    fn error(&self, sum: &[f32], first: usize) -> f64 {
        let mut error: f64 = 0.0;
        for (row, values) in sum.chunks(self.side).enumerate() {
            for (column, &value) in values.iter().enumerate() {
                let at = first + row;
                let want =
                    self.values[at * self.side + column] + self.values[column * self.side + at];
                // A maximum with NaN is the other number.
                let off = match f64::from((value - want).abs()) {
                    _ if value.to_bits() == want.to_bits() => 0.0,
                    off if off.is_nan() => f64::INFINITY,
                    off => off,
                };
                error = error.max(off);
            }
        }
        error
    }
}

/// Adds the transpose of a block to rows of `side` values, beginning at column `first`.
fn add_transposed(rows: &mut [f32], side: usize, first: usize, block: &[f32]) {
    /// Number of block rows processed together, so that reads and writes stay in the cache.
    const TOGETHER: usize = 16;
    let n_rows = rows.len() / side;
    for (nth, block) in block.chunks((n_rows * TOGETHER).max(1)).enumerate() {
        for (at, row) in rows.chunks_mut(side).enumerate() {
            let columns = &mut row[first + nth * TOGETHER..];
            let values = block.iter().skip(at).step_by(n_rows);
            columns.iter_mut().zip(values).for_each(|(sum, value)| *sum += value);
        }
    }
}

fn row(
    name: &str,
    args: &TransposeArgs,
    side: usize,
    runs: &[TransposeRun],
    time_of_raw: Option<f64>,
) -> TransposeRow {
    let (cost, run) =
        CostRow::new((args.ranks, &args.link), runs, |run: &TransposeRun| &run.cost, |_| 1);
    TransposeRow {
        exchange: name.to_owned(),
        side,
        speedup_raw: time_of_raw.map_or(1.0, |raw| raw / cost.time_s),
        cost,
        // Maximum over all runs, since none of them may be wrong.
        max_err: runs.iter().map(|run| run.max_err).fold(0.0, f64::max),
        allowed: run.allowed,
    }
}

fn render(rows: &[TransposeRow]) -> String {
    Columns::of(rows)
        .text("exchange", "", |row| &row.exchange)
        .number("x + xᵀ", "ms", |row| format!("{:.2}", row.cost.time_s * 1e3))
        .number("all-to-all", "ms", |row| format!("{:.2}", row.cost.exchange_s * 1e3))
        .number("speed-up", "x raw", |row| format!("{:.2}", row.speedup_raw))
        .number("wire", "all ranks", |row| table::bytes(row.cost.wire_bytes))
        .number("ratio", "", |row| format!("{:.2}", row.cost.ratio))
        .number("max error", "", |row| table::scientific(row.max_err))
        .number("allowed", "", |row| table::scientific(row.allowed))
        .render()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_a_number_and_should_be_is_off_by_all() {
        // x + xᵀ overflows in one place.
        let matrix = Matrix { side: 2, values: vec![3e38, 1.0, 2.0, 4.0], magnitude: 3e38 };
        let error = |sum: &[f32]| matrix.error(sum, 0);
        let inf = f32::INFINITY;
        assert_eq!(error(&[inf, 3.0, 3.0, 8.0]), 0.0);
        assert_eq!(error(&[inf, 3.5, 2.75, 8.0]), 0.5);
        assert_eq!(error(&[f32::NAN, 3.0, 3.0, 8.0]), f64::INFINITY);
        assert_eq!(error(&[inf, f32::NAN, 3.0, 8.0]), f64::INFINITY);
        assert_eq!(matrix.error(&[3.0, f32::NAN], 1), f64::INFINITY);
    }
}
