//! `foldwire climate`: a flow on a sphere whose ranks exchange halos and transpose fields in each
//! step, with each method of the climate model CAM to compress messages.
//!
//! It follows the climate model CAM, the Community Atmosphere Model (V. Santhosh Kumar et al.,
//! Parallel Computing 2008): values in double precision, compressed messages between neighbours,
//! and a compressed all-to-all. The *perturbation growth test* (J. Rosinski and D. Williamson,
//! 1997) judges the result: the error of a method may not grow faster than the effect of changing
//! the last bit of the initial state. [`foldwire_sphere`] computes the flow.
//!
//! A run on one rank is the reference. Lossless methods must have its bits at every sample.
//!
//! | file | what it does |
//! |---|---|
//! | `exchange` | the exchanges of the time steps with one method |
//! | `growth` | errors over time, and the test |

mod exchange;
mod growth;

use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use foldwire::{Error, Rank, Report};
use foldwire_arguments::{CaseArg, ClimateArgs};
use foldwire_fields::dims::Dims;
use foldwire_fields::usage::UsageError;
use foldwire_sphere::{Sphere, TestCase};
use foldwire_workbench::memory::median;
use foldwire_workbench::picture::Gallery;
#[cfg(feature = "plots")]
use foldwire_workbench::plot::{Curves, Legend};
use foldwire_workbench::table::{self, Align, Table};
use foldwire_workbench::{progress, ranks, room, streams};
use indicatif::ProgressBar;
use serde::Serialize;

use exchange::{CompressionMethod, MeteredExchange};
use growth::{ErrorGrowth, FACTOR};

/// Largest number of samples of the heights, at which errors are measured.
const MAX_SAMPLES: usize = 40;
/// Memory that a run and its messages need besides samples, in arrays as long as the heights.
const N_ARRAYS: usize = 40;

/// Results of one method.
#[derive(Debug, Serialize)]
struct ClimateRow {
    exchange: String,
    ranks: usize,
    link: String,
    steps: usize,
    /// Seconds per step, median over steps and runs.
    step_s: f64,
    /// Seconds of exchanges per step, mean over steps, runs and ranks.
    exchange_s: f64,
    /// Bytes sent by all ranks together, before compression.
    raw_bytes: u64,
    /// Bytes sent by all ranks together, after compression.
    wire_bytes: u64,
    /// Change of the bytes sent, relative to the raw run: 0 if equal, −0.5 if half.
    size_change: f64,
    /// Time per step of the raw run / time per step of this run.
    speedup_raw: f64,
    has_bits_of_one_rank: bool,
    /// Relative change of the water volume: volume at the end / volume at the beginning − 1.
    mass_change: f64,
    #[serde(flatten)]
    growth: ErrorGrowth,
}

/// Runs the subcommand: results on stdout, everything else on stderr.
///
/// # Errors
/// Usage errors, failed calls, and pictures that cannot be written. Also if a lossless method
/// changes a bit.
pub fn run(args: &ClimateArgs) -> anyhow::Result<()> {
    let sphere = sphere(args)?;
    let methods: Vec<(String, CompressionMethod)> = CompressionMethod::of_cam()
        .into_iter()
        .map(|(name, method)| (name.to_owned(), method))
        .chain(
            args.bound.iter().map(|&bound| (bound.to_string(), CompressionMethod::within(bound))),
        )
        .collect();
    let n_runs = 2 + methods.len() * args.repeat;
    let progress = progress::bar("flowing", n_runs * args.steps);
    let alone = simulate(&sphere, args, (1, 0.0), &methods[0].1, &progress)?;
    let perturbed =
        simulate(&sphere, args, (1, args.perturbation), &methods[0].1, &progress)?.samples;
    let perturbed = ErrorGrowth::of(&sphere, &alone.samples, &perturbed, None);
    let mut rows: Vec<ClimateRow> = Vec::new();
    let mut runs: Vec<Vec<ClimateRun>> = methods.iter().map(|_| Vec::new()).collect();
    // Take turns, so that disturbances of the machine affect all methods alike.
    for _ in 0..args.repeat {
        for ((name, method), runs) in methods.iter().zip(&mut runs) {
            progress.set_message(name.clone());
            let mut run = simulate(&sphere, args, (args.ranks, 0.0), method, &progress)
                .with_context(|| name.clone())?;
            run.compare(&sphere, &alone.samples, &perturbed);
            runs.push(run);
        }
    }
    progress.finish_and_clear();
    for ((name, _), runs) in methods.iter().zip(&mut runs) {
        let row = row(name, args, &sphere, runs, rows.first());
        rows.push(row);
    }
    let about = about(args, &sphere, &perturbed);
    if args.json {
        let object = serde_json::json!({ "about": about, "factor": FACTOR,
            "perturbation": args.perturbation, "perturbed": perturbed, "rows": rows });
        streams::write(&format!("{object}\n"))?;
    } else {
        streams::write(&format!("{about}\n{}", render(&rows)))?;
    }
    for (row, (_, method)) in rows.iter().zip(&methods) {
        let is_right = row.has_bits_of_one_rank || !method.is_exact();
        ensure!(
            is_right,
            "{}: this method is lossless, but changed bits of the heights",
            row.exchange
        );
    }
    if let Some(file) = &args.plot {
        let path = file.path();
        foldwire_workbench::draw!(file, picture(args, &perturbed, &rows))
            .with_context(|| format!("{}: the plot cannot be written", path.display()))?;
        streams::remark(format_args!("plot: {}", path.display()));
    }
    if !args.no_pictures {
        let lossy = rows.iter().zip(&runs).filter(|(row, _)| !row.has_bits_of_one_rank);
        let lossy: Vec<_> = lossy.map(|(row, runs)| (row.exchange.as_str(), &runs[0])).collect();
        draw(args, &alone, &lossy)?;
    }
    Ok(())
}

fn sphere(args: &ClimateArgs) -> anyhow::Result<Sphere> {
    let usage = |message: String| Err(UsageError::new(message).into());
    let &[n_rows, n_columns] = args.shape.sizes() else {
        return usage("--shape needs two numbers, such as 64x128".to_owned());
    };
    let n_values = n_rows as u128 * n_columns as u128 * args.levels as u128;
    // Samples of the reference and of one other run are in memory at a time.
    let need = n_values * (N_ARRAYS + 2 * MAX_SAMPLES + args.repeat) as u128 * 8;
    if let Err(error) = room::check(need) {
        return usage(format!("{error}; ask for a smaller --shape"));
    }
    let case = match args.case {
        CaseArg::Steady => TestCase::Steady,
        CaseArg::Mountain => TestCase::Mountain,
        CaseArg::Wave => TestCase::Wave,
    };
    let Some(sphere) = Sphere::new([n_rows, n_columns], args.levels, case) else {
        return usage(format!(
            "{} is no grid: at least 4 rows and 8 columns, an even number, are needed",
            args.shape
        ));
    };
    if args.ranks > n_rows.min(n_columns) {
        return usage(format!(
            "{} ranks have too few rows each; ask for fewer --ranks",
            args.ranks
        ));
    }
    Ok(sphere)
}

/// Measurements and samples of one run.
struct ClimateRun {
    /// Duration of each step on rank 0.
    steps: Vec<Duration>,
    /// Mean over ranks.
    exchanging: Duration,
    /// Sum over all ranks and steps.
    report: Report,
    /// Samples: the time in days, and the heights of all rows. After `compare` only the last one
    /// remains.
    samples: Vec<(f64, Vec<f64>)>,
    growth: Option<ErrorGrowth>,
}

impl ClimateRun {
    /// Computes the errors, and drops all samples but the last.
    fn compare(&mut self, sphere: &Sphere, exact: &[(f64, Vec<f64>)], perturbed: &ErrorGrowth) {
        self.growth = Some(ErrorGrowth::of(sphere, exact, &self.samples, Some(perturbed)));
        self.samples.drain(..self.samples.len() - 1);
    }
}

/// Runs the simulation on `n_ranks` ranks. `perturbation` is the relative change of the initial
/// heights.
fn simulate(
    sphere: &Sphere,
    args: &ClimateArgs,
    (n_ranks, perturbation): (usize, f64),
    method: &CompressionMethod,
    progress: &ProgressBar,
) -> anyhow::Result<ClimateRun> {
    let world = ranks::world(n_ranks, args.link.bytes_per_s());
    let every = args.steps.div_ceil(MAX_SAMPLES);
    let ranks = world.run(|mut comm| -> Result<_, Error> {
        let rank = comm.rank();
        let mut band = sphere.band(n_ranks, rank.index(), perturbation).ok_or(Error::Internal)?;
        let mut exchange = MeteredExchange::new(&mut comm, method);
        let (mut steps, mut samples) = (Vec::with_capacity(args.steps), Vec::new());
        for step in 1..=args.steps {
            let begun = Instant::now();
            band.step(&mut exchange)?;
            steps.push(begun.elapsed());
            if step % every == 0 || step == args.steps {
                samples.push((step, band.heights().to_vec()));
            }
            if rank == Rank(0) {
                progress.inc(1);
            }
        }
        Ok((steps, exchange.exchanging, exchange.report, samples))
    });
    let mut outcome = ClimateRun {
        steps: Vec::new(),
        exchanging: Duration::ZERO,
        report: Report::default(),
        samples: Vec::new(),
        growth: None,
    };
    for (rank, ended) in ranks.into_iter().enumerate() {
        let (steps, exchanging, report, samples) = ended?;
        outcome.exchanging += exchanging / n_ranks as u32;
        outcome.report += report;
        if rank == 0 {
            outcome.steps = steps;
            let days = |step| step as f64 * sphere.seconds_of_step() / 86_400.0;
            outcome.samples = samples.into_iter().map(|(step, rows)| (days(step), rows)).collect();
        } else {
            let all = outcome.samples.iter_mut().zip(samples);
            all.for_each(|((_, all), (_, rows))| all.extend(rows));
        }
    }
    Ok(outcome)
}

fn row(
    name: &str,
    args: &ClimateArgs,
    sphere: &Sphere,
    runs: &mut [ClimateRun],
    raw: Option<&ClimateRow>,
) -> ClimateRow {
    let steps: Vec<Duration> = runs.iter().flat_map(|run| run.steps.clone()).collect();
    let step_s = median(&steps).as_secs_f64();
    let exchanging: Duration = runs.iter().map(|run| run.exchanging).sum();
    let has_bits =
        runs.iter().all(|run| run.growth.as_ref().is_some_and(|growth| growth.has_same_bits));
    let run = &mut runs[0];
    let wire_bytes = run.report.wire_bytes;
    let (_, heights) = run.samples.last().expect("a run has its last step");
    ClimateRow {
        exchange: name.to_owned(),
        ranks: args.ranks,
        link: args.link.to_string(),
        steps: args.steps,
        step_s,
        exchange_s: exchanging.as_secs_f64() / steps.len() as f64,
        raw_bytes: run.report.raw_bytes,
        wire_bytes,
        // A single rank sends nothing.
        size_change: raw
            .filter(|raw| raw.wire_bytes > 0)
            .map_or(0.0, |raw| wire_bytes as f64 / raw.wire_bytes as f64 - 1.0),
        speedup_raw: raw.map_or(1.0, |raw| raw.step_s / step_s),
        has_bits_of_one_rank: has_bits,
        mass_change: sphere.mass(heights) / sphere.mass(&sphere.initial(0.0)) - 1.0,
        growth: run.growth.take().expect("runs were compared"),
    }
}

/// Description of the run, as comment lines above the table.
fn about(args: &ClimateArgs, sphere: &Sphere, perturbed: &ErrorGrowth) -> String {
    let days = args.steps as f64 * sphere.seconds_of_step() / 86_400.0;
    let links = match args.link.bytes_per_s() {
        Some(_) => format!("over links of {}", args.link),
        None => "at the speed of memory".to_owned(),
    };
    format!(
        "# {} x {} points, {:.1} days in {} steps, ranks: {}, {links}\n\
         # initial heights off by {:.1e} of themselves: RMS {} m at the end; what stays below \
         {FACTOR} times as much passes\n",
        args.shape,
        args.levels,
        days,
        args.steps,
        args.ranks,
        args.perturbation,
        table::scientific(perturbed.rms_m),
    )
}

/// Errors over time: one curve per lossy method, and one for the perturbed run.
#[cfg(feature = "plots")]
fn picture(args: &ClimateArgs, perturbed: &ErrorGrowth, rows: &[ClimateRow]) -> Curves<'static> {
    let line = |name: &str, growth: &ErrorGrowth| {
        // A logarithmic axis has no 0.
        let points = growth.curve.iter().filter(|point| point.rms_m > 0.0);
        (name.to_owned(), points.map(|point| (point.day, point.rms_m)).collect())
    };
    let of_rows = rows.iter().filter(|row| !row.has_bits_of_one_rank);
    Curves {
        caption: format!("{} x {} points, {} ranks", args.shape, args.levels, args.ranks),
        x: "days",
        y: "RMS difference of heights from the exact run, m",
        lines: std::iter::once(line("perturbed at the beginning", perturbed))
            .chain(of_rows.map(|row| line(&row.exchange, &row.growth)))
            .collect(),
        legend: Legend::LowerRight,
    }
}

/// Draws the first level's heights after the last step, with north at the top.
fn draw(
    args: &ClimateArgs,
    alone: &ClimateRun,
    lossy: &[(&str, &ClimateRun)],
) -> anyhow::Result<()> {
    let [_, n_columns] = args.shape.sizes() else { unreachable!("the shape was checked") };
    let first_level = |run: &ClimateRun| -> Vec<f64> {
        let (_, heights) = run.samples.last().expect("a run has its last step");
        let rows = heights.chunks_exact(n_columns * args.levels).rev();
        rows.flat_map(|row| row[..*n_columns].to_vec()).collect()
    };
    let exact = first_level(alone);
    let dims: Dims = args.shape.clone();
    let mut gallery = Gallery::open(&args.out, &exact, &dims)?;
    for (name, run) in lossy {
        let heights = first_level(run);
        let errors = heights.iter().zip(&exact).map(|(a, b)| (a - b).abs());
        // Each picture has its own scale, because errors differ by orders of magnitude.
        let largest = errors.fold(0.0, f64::max);
        let file = format!("climate-{}", name.replace(':', "-"));
        gallery.add(&file, &format!("{name}, within {largest:.0e} m"), &heights, largest)?;
    }
    streams::remark(format_args!("pictures: {}", gallery.finish()?.display()));
    Ok(())
}

fn render(rows: &[ClimateRow]) -> String {
    let mut table = Table::new(&[
        ("exchange", "", Align::Left),
        ("step", "ms", Align::Right),
        ("exchange", "ms", Align::Right),
        ("speed-up", "x raw", Align::Right),
        ("wire", "all ranks", Align::Right),
        ("size", "% of raw", Align::Right),
        ("bits of", "one rank", Align::Left),
        ("mass", "change", Align::Right),
        ("RMS error", "m, at last", Align::Right),
        ("worst", "x perturbed", Align::Right),
        ("growth", "test", Align::Left),
    ]);
    for row in rows {
        table.row(&[
            row.exchange.clone(),
            format!("{:.2}", row.step_s * 1e3),
            format!("{:.2}", row.exchange_s * 1e3),
            format!("{:.2}", row.speedup_raw),
            table::bytes(row.wire_bytes),
            format!("{:+.1}", row.size_change * 100.0),
            if row.has_bits_of_one_rank { "yes" } else { "no" }.to_owned(),
            table::scientific(row.mass_change),
            table::scientific(row.growth.rms_m),
            table::scientific(row.growth.worst),
            if row.growth.passes { "passes" } else { "fails" }.to_owned(),
        ]);
    }
    table.render()
}
