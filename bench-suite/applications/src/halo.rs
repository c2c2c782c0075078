//! `foldwire halo`: a wave simulation whose ranks exchange border planes after each step, without
//! and with compression.
//!
//! It follows the AWP-ODC case of the MPC-OPT and ZFP-OPT papers (Q. Zhou et al., IPDPS 2021). The
//! simulation is the one of [`foldwire_wave`], divided among ranks along its slowest dimension. Its
//! source emits a pulse (a *shot*) at regular intervals, so that waves never die away. A run on one
//! rank is the reference. A run with uncompressed planes must have its bits. Errors of compressed
//! planes travel on through the field, so the field has no guaranteed bound. Errors are measured
//! after the last step.

use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use foldwire::{DType, Error, Plan, Rank, Report};
use foldwire_arguments::{HaloArgs, coding};
use foldwire_fields::usage::{UsageError, usage};
use foldwire_wave::{Ground, Survey};
use foldwire_workbench::memory::take_turns;
use foldwire_workbench::picture::Gallery;
use foldwire_workbench::quality::Quality;
use foldwire_workbench::table::{self, Columns};
use foldwire_workbench::{progress, ranks, streams};
use indicatif::ProgressBar;
use serde::Serialize;
use serde_json::json;

use crate::borders::HaloPlanes;
use crate::runs::{CostRow, RunCost};

/// Results of one way to exchange planes.
#[derive(Debug, Serialize)]
struct HaloRow {
    /// `raw`, or the error bound.
    exchange: String,
    steps: usize,
    /// Seconds per step on the slowest rank.
    step_s: f64,
    #[serde(flatten)]
    cost: CostRow,
    /// Time of the raw run / time of this run.
    speedup_raw: f64,
    /// Errors of the field after the last step.
    #[serde(flatten)]
    quality: Quality,
}

/// Runs the subcommand: results on stdout, everything else on stderr.
///
/// # Errors
/// Usage errors, failed calls, and pictures that cannot be written. Also if an uncompressed run has
/// other bits than a run on one rank.
pub fn run(args: &HaloArgs) -> anyhow::Result<()> {
    let &[y, z, x] = args.shape.sizes() else {
        bail!(usage!("--shape needs three numbers, such as 96x96x96"));
    };
    // A survey has a source for each rank. Here all ranks share the field of one source.
    let ground = Survey { shape: [y, z, x], ..Survey::new(1) }.ground();
    if (0..args.ranks).any(|rank| ground.slab(args.ranks, rank).is_none()) {
        let message =
            format!("{} ranks have too few planes each; ask for fewer --ranks", args.ranks);
        bail!(UsageError::new(message));
    }
    let plans = coding::variants(&args.codec, &args.bound, DType::F32)?;
    let n_runs = 1 + plans.len() * args.repeat;
    let progress = progress::bar("simulating", n_runs * args.steps);
    let alone = simulate(&ground, args, 1, &Plan::raw(), &progress)?;
    let runs = take_turns(&plans, args.repeat, |(name, plan)| {
        simulate(&ground, args, args.ranks, plan, &progress).with_context(|| name.clone())
    })?;
    progress.finish_and_clear();
    let exact: Vec<f64> = alone.field.iter().map(|&value| value.into()).collect();
    let mut rows: Vec<HaloRow> = Vec::new();
    for ((name, _), runs) in plans.iter().zip(&runs) {
        let time_of_raw = rows.first().map(|row| row.cost.time_s);
        rows.push(row(name, args, runs, &exact, time_of_raw));
    }
    streams::results(args.json, || json!({ "rows": rows }), || render(&rows))?;
    let is_same =
        |run: &HaloRun| run.field.iter().zip(&alone.field).all(|(a, b)| a.to_bits() == b.to_bits());
    ensure!(
        runs[0].iter().all(is_same),
        "without compression the field has other bits than on one rank"
    );
    if !args.no_pictures {
        let mut gallery = Gallery::open(&args.out, &exact, &args.shape)?;
        let largest = rows.iter().map(|row| row.quality.max_error).fold(0.0, f64::max);
        for (at, ((name, _), runs)) in plans.iter().zip(&runs).enumerate().skip(1) {
            let title = format!("halos, {name}");
            gallery.add(&format!("halo-{at}"), &title, &runs[0].field, largest)?;
        }
        streams::remark(format_args!("pictures: {}", gallery.finish()?.display()));
    }
    Ok(())
}

/// Measurements and final field of one run.
#[derive(Default)]
struct HaloRun {
    cost: RunCost,
    field: Vec<f32>,
}

/// Runs the simulation on `n_ranks` ranks.
fn simulate(
    ground: &Ground,
    args: &HaloArgs,
    n_ranks: usize,
    plan: &Plan,
    progress: &ProgressBar,
) -> anyhow::Result<HaloRun> {
    progress.set_message(format!("{n_ranks} ranks"));
    let world = ranks::world(n_ranks, args.link.bytes_per_s());
    let ranks = world.run(|mut comm| -> Result<_, Error> {
        let rank = comm.rank();
        let mut slab = ground.slab(n_ranks, rank.index()).ok_or(Error::Internal)?;
        let (mut exchanging, mut report) = (Duration::ZERO, Report::default());
        comm.barrier()?;
        let started = Instant::now();
        for _ in 0..args.steps {
            slab.step();
            let begun = Instant::now();
            let (own, theirs) = slab.halos();
            report += HaloPlanes { own, theirs }.exchange(&mut comm, plan)?;
            exchanging += begun.elapsed();
            if rank == Rank(0) {
                progress.inc(1);
            }
        }
        let time = started.elapsed();
        Ok((RunCost { time, exchanging, report }, slab.snapshot()))
    });
    let ranks = ranks::results(ranks)?;
    let mut outcome = HaloRun::default();
    for (cost, planes) in ranks {
        outcome.cost.add(&cost, n_ranks);
        outcome.field.extend(planes);
    }
    Ok(outcome)
}

fn row(
    name: &str,
    args: &HaloArgs,
    runs: &[HaloRun],
    exact: &[f64],
    time_of_raw: Option<f64>,
) -> HaloRow {
    let ranks = (args.ranks, &args.link);
    let (cost, run) = CostRow::new(ranks, runs, |run| &run.cost, |_| args.steps);
    HaloRow {
        exchange: name.to_owned(),
        steps: args.steps,
        step_s: cost.time_s / args.steps as f64,
        speedup_raw: time_of_raw.map_or(1.0, |raw| raw / cost.time_s),
        cost,
        quality: Quality::of(&run.field, exact),
    }
}

fn render(rows: &[HaloRow]) -> String {
    Columns::of(rows)
        .text("exchange", "", |row| &row.exchange)
        .number("run", "s", |row| format!("{:.2}", row.cost.time_s))
        .number("step", "ms", |row| format!("{:.2}", row.step_s * 1e3))
        .number("exchange", "ms a step", |row| format!("{:.2}", row.cost.exchange_s * 1e3))
        .number("speed-up", "x raw", |row| format!("{:.2}", row.speedup_raw))
        .number("wire", "all ranks", |row| table::bytes(row.cost.wire_bytes))
        .number("ratio", "", |row| format!("{:.2}", row.cost.ratio))
        .number("max error", "of the field", |row| table::scientific(row.quality.max_error))
        .maybe("PSNR", "dB", |row| row.quality.psnr_db.map(|x| format!("{x:.1}")))
        .maybe("NRMSE", "", |row| row.quality.nrmse.map(table::scientific))
        .render()
}
