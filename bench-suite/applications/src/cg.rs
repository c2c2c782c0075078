//! `foldwire cg`: conjugate gradients on several ranks, with compressed borders and reproducible
//! dot products.
//!
//! Ranks divide a grid along its slowest dimension. In each iteration neighbours exchange the
//! border planes of the search direction, and an all-reduce or an all-gather sums two dot products.
//!
//! *Dot products.* The rounding of a sum of per-rank sums depends on the number of ranks, and so
//! does every later number. *Reproducible* dot products avoid that. Each rank sums each of its
//! planes in a fixed order, and an exact all-gather gives these sums to all ranks. Every rank then
//! adds them in the same order. If border planes are not compressed, the whole solution then has
//! the bits of a run on one rank. The command checks this.
//!
//! *Borders.* The bound is relative to the value range of the planes, so errors shrink as the
//! search direction does. With compression, the residual that the solver updates differs from the
//! true residual. The table shows the true residual of the final solution. (V. Simoncini, D. Szyld,
//! "Theory of inexact Krylov subspace methods", SIAM J. Sci. Comput. 25, 2003.)

mod solver;

use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use foldwire::layout::share;
use foldwire::{Communicator, Error, Op, Plan, Report, Transport};
use foldwire_arguments::CgArgs;
use foldwire_fields::dims::Dims;
use foldwire_fields::usage::{UsageError, usage};
use foldwire_fields::with_values;
use foldwire_workbench::memory::take_turns;
#[cfg(feature = "plots")]
use foldwire_workbench::plot::{Curves, Legend};
use foldwire_workbench::table::{self, Columns};
use foldwire_workbench::{infinite, input, progress, ranks, streams};
use indicatif::ProgressBar;
use serde::Serialize;
use serde_json::json;

use crate::runs::{CostRow, RunCost};
use solver::{Grid, GridSlab};

/// Method that sums dot products over ranks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum DotMethod {
    /// All-reduce of one sum per rank.
    Plain,
    /// All-gather of one sum per plane, which every rank adds in the same order.
    Reproducible,
}

impl DotMethod {
    const fn name(self) -> &'static str {
        match self {
            Self::Plain => "plain",
            Self::Reproducible => "reproducible",
        }
    }
}

/// A combination of settings to solve with.
#[derive(Debug, Clone)]
struct SolverVariant {
    dots: DotMethod,
    /// `raw`, or the error bound.
    borders: String,
    plan: Plan,
}

/// Results of one [`SolverVariant`].
#[derive(Debug, Serialize)]
struct CgRow {
    dots: DotMethod,
    borders: String,
    iterations: usize,
    /// Seconds per iteration on the slowest rank.
    iteration_s: f64,
    /// Seconds of sums of dot products over ranks, per iteration, mean over ranks.
    dots_s: f64,
    /// A step is an iteration, and its exchange one of border planes.
    #[serde(flatten)]
    cost: CostRow,
    /// Time per iteration of the first row / time per iteration of this row.
    speedup: f64,
    /// True residual of the solution: √(r·r / f·f).
    #[serde(serialize_with = "infinite::serialize")]
    residual: f64,
    /// True if the solution has the bits of a run on one rank.
    has_bits_of_one_rank: bool,
    /// Residual √(r·r / f·f) after each iteration, as the solver computes it.
    residuals: Vec<f64>,
}

/// Runs the subcommand: results on stdout, everything else on stderr.
///
/// # Errors
/// Usage errors, failed calls, and a plot that cannot be written. Also if an uncompressed run does
/// not reach the tolerance, or a reproducible uncompressed run has other bits than a run on one
/// rank.
pub fn run(args: &CgArgs) -> anyhow::Result<()> {
    let grid = grid(args)?;
    if args.ranks > grid.shape[0] {
        let message = format!(
            "{} planes are too few for {} ranks; ask for fewer --ranks",
            grid.shape[0], args.ranks
        );
        bail!(UsageError::new(message));
    }
    let variant = |dots, borders: String, plan| SolverVariant { dots, borders, plan };
    let alone = variant(DotMethod::Reproducible, "raw".to_owned(), Plan::raw());
    let mut variants =
        vec![variant(DotMethod::Plain, "raw".to_owned(), Plan::raw()), alone.clone()];
    let bounds = args.bound.iter();
    variants.extend(
        bounds.map(|&bound| {
            variant(DotMethod::Reproducible, bound.to_string(), Plan::foldwire(bound))
        }),
    );
    let progress = progress::bar("solving", 1 + variants.len() * args.repeat);
    let alone = solve(&grid, args, 1, &alone, &progress)?;
    let runs = take_turns(&variants, args.repeat, |variant| {
        let name = || format!("{} dot products, borders {}", variant.dots.name(), variant.borders);
        solve(&grid, args, args.ranks, variant, &progress).with_context(name)
    })?;
    progress.finish_and_clear();
    let mut rows: Vec<CgRow> = Vec::new();
    for (variant, runs) in variants.iter().zip(&runs) {
        let first = rows.first().map(|row| row.iteration_s);
        rows.push(row(variant, args, runs, &alone, first));
    }
    streams::results(args.json, || json!({ "rows": rows }), || render(&rows))?;
    let drawn = foldwire_workbench::draw!(args.plot, picture(args, &grid, &rows));
    for row in rows.iter().filter(|row| row.borders == "raw") {
        let CgRow { dots, iterations, residual, .. } = row;
        ensure!(
            *residual <= 2.0 * args.tolerance,
            "{} dot products: a residual of {residual:.2e} after {iterations} iterations; allow \
             more by --iterations, or ask for a larger --tolerance",
            dots.name()
        );
    }
    let is_right = |row: &CgRow| {
        row.dots == DotMethod::Plain || row.borders != "raw" || row.has_bits_of_one_rank
    };
    ensure!(rows.iter().all(is_right), "the solution has other bits than that of one rank alone");
    drawn
}

fn grid(args: &CgArgs) -> anyhow::Result<Grid> {
    let wants_three = |dims: &Dims| {
        <[usize; 3]>::try_from(dims.sizes())
            .map_err(|_| usage!("{dims}: a grid needs three dimensions, such as 64x64x64"))
    };
    Ok(match &args.field {
        None => Grid::of_charges(wants_three(&args.shape)?),
        Some(path) => {
            let field = input::read(path, None)?;
            let values: Vec<f64> = with_values!(&field.values, values => {
                values.iter().map(|&value| foldwire::Float::to_f64(value)).collect()
            });
            if let Some(at) = values.iter().position(|value| !value.is_finite()) {
                let message = format!("{}: value {at} is not finite", field.name);
                bail!(UsageError::new(message));
            }
            Grid::of_field(wants_three(&field.dims)?, &values)
        }
    })
}

/// Measurements and solution of one run.
struct CgRun {
    cost: RunCost,
    /// Time of sums, mean over ranks.
    summing: Duration,
    residuals: Vec<f64>,
    residual: f64,
    solution: Vec<f64>,
}

/// Solves the system on `n_ranks` ranks.
fn solve(
    grid: &Grid,
    args: &CgArgs,
    n_ranks: usize,
    variant: &SolverVariant,
    progress: &ProgressBar,
) -> anyhow::Result<CgRun> {
    progress.set_message(format!("{n_ranks} ranks, borders {}", variant.borders));
    let world = ranks::world(n_ranks, args.link.bytes_per_s());
    let ranks = world.run(|comm| {
        let planes = |rank| share(grid.shape[0], n_ranks, rank);
        let slab = GridSlab::new(grid, planes(comm.rank().index()));
        let counts: Vec<usize> = (0..n_ranks).map(|rank| planes(rank).len()).collect();
        let outcome = RankSolver { comm, slab, counts, dots: variant.dots, plan: variant.plan };
        outcome.solve(args.tolerance, args.iterations)
    });
    progress.inc(1);
    let mut ranks = ranks::results(ranks)?.into_iter();
    let first = ranks.next().context("there are no ranks")?;
    let mut cost = RunCost::default();
    cost.add(&first.cost, n_ranks);
    let mut all = CgRun { cost, ..first };
    for rank in ranks {
        all.cost.add(&rank.cost, n_ranks);
        all.summing += rank.summing;
        all.solution.extend(rank.solution);
    }
    Ok(CgRun { summing: all.summing / n_ranks as u32, ..all })
}

/// One rank's communicator, planes and settings.
struct RankSolver<'g, X: Transport> {
    comm: Communicator<X>,
    slab: GridSlab<'g>,
    /// Number of planes of each rank.
    counts: Vec<usize>,
    dots: DotMethod,
    plan: Plan,
}

impl<X: Transport> RankSolver<'_, X> {
    /// Iterates until the residual is below the tolerance, at most `max_iterations` times.
    fn solve(mut self, tolerance: f64, max_iterations: usize) -> Result<CgRun, Error> {
        let (mut exchanging, mut summing) = (Duration::ZERO, Duration::ZERO);
        let (mut report, mut residuals) = (Report::default(), Vec::new());
        self.comm.barrier()?;
        let started = Instant::now();
        let initial = self.sum(self.slab.residual_squares(), &mut summing)?;
        // r·r, the square of the residual's norm.
        let mut squares = initial;
        while squares > tolerance * tolerance * initial && residuals.len() < max_iterations {
            let plan = self.plan;
            report += self.exchange(&plan, &mut exchanging)?;
            self.slab.multiply();
            let along = self.sum(self.slab.direction_products(), &mut summing)?;
            self.slab.step(squares / along);
            let before = squares;
            squares = self.sum(self.slab.residual_squares(), &mut summing)?;
            self.slab.update_direction(squares / before);
            residuals.push((squares / initial).sqrt());
        }
        let time = started.elapsed();
        self.slab.set_direction_to_solution();
        self.exchange(&Plan::raw(), &mut Duration::default())?;
        self.slab.multiply();
        self.slab.set_residual();
        let squares = self.sum(self.slab.residual_squares(), &mut Duration::default())?;
        let residual = if initial > 0.0 { (squares / initial).sqrt() } else { 0.0 };
        let solution = self.slab.into_solution();
        let cost = RunCost { time, exchanging, report };
        Ok(CgRun { cost, summing, residuals, residual, solution })
    }

    /// Sends this rank's border planes to its neighbours and receives theirs.
    fn exchange(&mut self, plan: &Plan, time: &mut Duration) -> Result<Report, Error> {
        let begun = Instant::now();
        let report = self.slab.halos().exchange(&mut self.comm, plan)?;
        *time += begun.elapsed();
        Ok(report)
    }

    /// Sums the given per-plane sums over all planes of all ranks.
    fn sum(&mut self, planes: Vec<f64>, time: &mut Duration) -> Result<f64, Error> {
        let begun = Instant::now();
        let sum = match self.dots {
            DotMethod::Plain => self.comm.all_reduce_scalar(planes.iter().sum(), Op::Sum)?,
            DotMethod::Reproducible => {
                let mut all = vec![0.0; self.counts.iter().sum()];
                self.comm.all_gather_v(&planes, &mut all, &self.counts, &Plan::raw())?;
                all.iter().sum()
            }
        };
        *time += begun.elapsed();
        Ok(sum)
    }
}

fn row(
    variant: &SolverVariant,
    args: &CgArgs,
    runs: &[CgRun],
    alone: &CgRun,
    first: Option<f64>,
) -> CgRow {
    let n_iterations = |run: &CgRun| run.residuals.len();
    let (cost, run) = CostRow::new((args.ranks, &args.link), runs, |run| &run.cost, n_iterations);
    let n_iterations = n_iterations(run);
    let each = |time: Duration| time.as_secs_f64() / n_iterations.max(1) as f64;
    let is_same = |run: &CgRun| {
        run.solution.iter().zip(&alone.solution).all(|(a, b)| a.to_bits() == b.to_bits())
    };
    CgRow {
        dots: variant.dots,
        borders: variant.borders.clone(),
        iterations: n_iterations,
        iteration_s: each(run.cost.time),
        dots_s: each(run.summing),
        cost,
        speedup: first.map_or(1.0, |first| first / each(run.cost.time)),
        residual: run.residual,
        has_bits_of_one_rank: runs.iter().all(is_same),
        residuals: run.residuals.clone(),
    }
}

/// Residuals over time, one curve per variant.
#[cfg(feature = "plots")]
fn picture(args: &CgArgs, grid: &Grid, rows: &[CgRow]) -> Curves<'static> {
    let line = |row: &CgRow| {
        let points = row.residuals.iter().zip(1..);
        let points = points.map(|(&residual, at)| (f64::from(at) * row.iteration_s, residual));
        let name = format!("{} dot products, borders {}", row.dots.name(), row.borders);
        (name, points.collect())
    };
    let points = args.about(&grid.shape);
    let caption = format!("conjugate gradients on {points} points, {} ranks", args.ranks);
    let axes = ["seconds", "residual, as the solver sees it"];
    Curves::of_magnitudes(caption, axes, rows.iter().map(line), Legend::UpperRight)
}

fn render(rows: &[CgRow]) -> String {
    let ms = |seconds: f64| format!("{:.3}", seconds * 1e3);
    Columns::of(rows)
        .text("dot products", "", |row| row.dots.name())
        .text("borders", "", |row| &row.borders)
        .number("iterations", "", |row| row.iterations)
        .number("run", "s", |row| format!("{:.2}", row.cost.time_s))
        .number("iteration", "ms", |row| ms(row.iteration_s))
        .number("exchange", "ms", |row| ms(row.cost.exchange_s))
        .number("dots", "ms", |row| ms(row.dots_s))
        .number("speed-up", "an iteration", |row| format!("{:.2}", row.speedup))
        .number("wire", "all ranks", |row| table::bytes(row.cost.wire_bytes))
        .number("ratio", "", |row| format!("{:.2}", row.cost.ratio))
        .number("residual", "true", |row| table::scientific(row.residual))
        .text("bits of", "one rank", |row| if row.has_bits_of_one_rank { "yes" } else { "no" })
        .render()
}
