//! `foldwire climate`: a flow on a sphere whose ranks exchange halos, transpose fields and gather
//! heights, with each method of the climate model CAM to compress messages.
//!
//! It follows the climate model CAM, the Community Atmosphere Model (V. Santhosh Kumar et al.,
//! Parallel Computing 34, 2008): values in double precision, compressed messages between
//! neighbours, a compressed all-to-all and a compressed gather. The *perturbation growth test* (J.
//! Rosinski and D. Williamson, 1997) judges the result: a method may not lead further away than a
//! change of the last bit of the initial state. [`foldwire_sphere`] computes the flow.
//!
//! There are two series of runs, because messages should be long, and errors need weeks to grow.
//! Levels are independent layers, and CAM's methods treat each value by itself. So the growth of
//! errors in the first level is the same without the other levels, and takes a fraction of the
//! time.
//!
//! A run on one rank is the reference. Lossless methods must have its bits at every sample.
//!
//! | file | what it does |
//! |---|---|
//! | `simulate` | a run on several ranks |
//! | `exchange` | the exchanges of the time steps with one method |
//! | `messages` | sizes and times of messages |
//! | `growth` | errors over time, and the test |

mod exchange;
mod growth;
mod messages;
mod simulate;

use anyhow::{Context, ensure};
use foldwire_arguments::{CaseArg, ClimateArgs};
use foldwire_fields::dims::Dims;
use foldwire_fields::usage::UsageError;
use foldwire_sphere::{Sphere, TestCase};
use foldwire_workbench::memory::take_turns;
use foldwire_workbench::picture::Gallery;
#[cfg(feature = "plots")]
use foldwire_workbench::plot::{Curves, Legend};
use foldwire_workbench::table::{self, Columns};
use foldwire_workbench::{progress, room, streams};
use serde::Serialize;

use exchange::CompressionMethod;
use growth::{ErrorGrowth, FACTOR, GROWN_FACTOR, GrowthTest};
use messages::MessageRow;
use simulate::{ClimateRun, Experiment};

/// Largest number of samples of the heights, at which errors are measured.
const MAX_SAMPLES: usize = 80;
/// Memory that a run and its messages need besides samples, in arrays as long as the heights.
const N_ARRAYS: usize = 80;

/// Results of one method.
#[derive(Debug, Serialize)]
struct ClimateRow {
    exchange: String,
    ranks: usize,
    link: String,
    steps: usize,
    days: f64,
    #[serde(flatten)]
    messages: MessageRow,
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
    let [sphere, top] = [args.levels, 1].map(|n_levels| sphere(args, n_levels));
    let (sphere, top) = (sphere?, top?);
    let methods: Vec<(String, CompressionMethod)> = CompressionMethod::of_cam()
        .into_iter()
        .map(|(name, method)| (name.to_owned(), method))
        .chain(
            args.bound.iter().map(|&bound| (bound.to_string(), CompressionMethod::within(bound))),
        )
        .collect();
    let n_steps = |days: f64| (days * 86_400.0 / top.seconds_of_step()).round() as usize;
    let (n_before, n_growth) = (n_steps(args.spin_up), n_steps(args.days).max(1));
    let n_all = 2 * n_before
        + (2 + methods.len()) * n_growth
        + (1 + methods.len() * args.repeat) * args.steps;
    let progress = progress::bar("flowing", n_all);

    let before = top.state_after(n_before, || progress.inc(1));
    let growth = Experiment {
        sphere: &top,
        state: &before,
        n_ranks: 1,
        n_steps: n_growth,
        link_rate: None,
        sample_every: n_growth.div_ceil(MAX_SAMPLES),
        gather_every: None,
        progress: &progress,
    };
    let (_, raw) = &methods[0];
    let alone = growth.run(raw)?;
    let perturbed = before.clone().perturbed(args.perturbation);
    let perturbed = Experiment { state: &perturbed, ..growth }.run(raw)?;
    let exact = heights_at_end(&alone).to_vec();
    let test = GrowthTest::new(&top, alone.samples, &perturbed.samples);
    let (mut grown, mut ends) = (Vec::new(), Vec::new());
    for (name, method) in &methods {
        progress.set_message(format!("{name}: growth"));
        let run = Experiment { n_ranks: args.ranks, ..growth }.run(method);
        let run = run.with_context(|| name.clone())?;
        grown.push(test.judge(&run.samples));
        ends.push(heights_at_end(&run).to_vec());
    }

    progress.set_message("all levels");
    let before = sphere.state_after(n_before, || progress.inc(1));
    let messages = Experiment {
        sphere: &sphere,
        state: &before,
        n_steps: args.steps,
        sample_every: args.steps,
        gather_every: Some(args.gather_every),
        ..growth
    };
    let of_all_levels = messages.run(raw)?;
    let link_rate = args.link.bytes_per_s();
    let messages = Experiment { n_ranks: args.ranks, link_rate, ..messages };
    let runs = take_turns(&methods, args.repeat, |(name, method)| {
        progress.set_message(format!("{name}: messages"));
        messages.run(method).with_context(|| name.clone())
    })?;
    progress.finish_and_clear();

    let mass = |heights: &[f64]| top.mass(heights);
    let mut rows: Vec<ClimateRow> = Vec::new();
    for (((name, _), growth), (runs, end)) in methods.iter().zip(grown).zip(runs.iter().zip(&ends))
    {
        rows.push(ClimateRow {
            exchange: name.clone(),
            ranks: args.ranks,
            link: args.link.to_string(),
            steps: args.steps,
            days: args.days,
            messages: MessageRow::new(args.ranks, runs, rows.first().map(|raw| &raw.messages)),
            has_bits_of_one_rank: growth.has_same_bits
                && runs.iter().all(|run| has_bits(run, &of_all_levels)),
            mass_change: mass(end) / mass(top.initial().heights()) - 1.0,
            growth,
        });
    }
    print(args, &test, &rows)?;
    for (row, (_, method)) in rows.iter().zip(&methods) {
        let is_right = row.has_bits_of_one_rank || !method.is_exact();
        ensure!(
            is_right,
            "{}: this method is lossless, but changed bits of the heights",
            row.exchange
        );
    }
    foldwire_workbench::draw!(args.plot, picture(args, &test.perturbed, &rows))?;
    if !args.no_pictures {
        let lossy = rows.iter().zip(&ends).filter(|(row, _)| !row.has_bits_of_one_rank);
        let lossy: Vec<_> = lossy.map(|(row, end)| (row.exchange.as_str(), &end[..])).collect();
        draw(args, &exact, &lossy)?;
    }
    Ok(())
}

fn sphere(args: &ClimateArgs, n_levels: usize) -> anyhow::Result<Sphere> {
    let usage = |message: String| Err(UsageError::new(message).into());
    let &[n_rows, n_columns] = args.shape.sizes() else {
        return usage("--shape needs two numbers, such as 64x128".to_owned());
    };
    let n_values = n_rows as u128 * n_columns as u128;
    // Two runs on one level have their samples in memory, and two runs on all levels their arrays.
    let n_arrays = (N_ARRAYS + 3 * args.repeat) as u128 * n_levels as u128;
    let need = n_values * (n_arrays + 2 * MAX_SAMPLES as u128) * 8;
    if let Err(error) = room::check(need) {
        return usage(format!("{error}; ask for a smaller --shape"));
    }
    let case = match args.case {
        CaseArg::Steady => TestCase::Steady,
        CaseArg::Mountain => TestCase::Mountain,
        CaseArg::Wave => TestCase::Wave,
        CaseArg::Jets => TestCase::Jets,
    };
    let Some(sphere) = Sphere::new([n_rows, n_columns], n_levels, case) else {
        return usage(format!(
            "{} is no grid: at least 4 rows and 8 columns, an even number, are needed",
            args.shape
        ));
    };
    if args.ranks > n_rows {
        return usage(format!(
            "{} ranks have too few rows each; ask for fewer --ranks",
            args.ranks
        ));
    }
    Ok(sphere)
}

fn heights_at_end(run: &ClimateRun) -> &[f64] {
    let (_, heights) = run.samples.last().expect("a run has its last step");
    heights
}

/// Returns whether a run has the bits of the run on one rank, also where rank 0 gathered them.
fn has_bits(run: &ClimateRun, alone: &ClimateRun) -> bool {
    let bits = |heights: &[f64]| heights.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
    let want = bits(heights_at_end(alone));
    bits(heights_at_end(run)) == want && bits(&run.gathered) == want
}

fn print(args: &ClimateArgs, test: &GrowthTest<'_>, rows: &[ClimateRow]) -> anyhow::Result<()> {
    let about = about(args, test, rows);
    let json = || {
        serde_json::json!({ "about": about, "factor": FACTOR,
            "grown_factor": GROWN_FACTOR, "grown_from_day": test.grown_from_day(),
            "variability_m": test.variability_m, "perturbation": args.perturbation,
            "perturbed": test.perturbed, "rows": rows })
    };
    let of_messages = rows.iter().map(|row| (row.exchange.as_str(), &row.messages));
    let text = || format!("{about}\n{}\n{}", messages::render(of_messages), render(rows));
    Ok(streams::results(args.json, json, text)?)
}

/// Description of the run, as comment lines above the tables.
fn about(args: &ClimateArgs, test: &GrowthTest<'_>, rows: &[ClimateRow]) -> String {
    let links = match args.link.bytes_per_s() {
        Some(_) => format!("over links of {}", args.link),
        None => "at the speed of memory".to_owned(),
    };
    let verdict = match test.grown_from_day() {
        Some(day) => format!(
            "that is no more alike than two days of one run, which differ by {} m, from day \
             {day:.1} on: since then a method passes with at most {GROWN_FACTOR} times as much",
            table::scientific(test.variability_m),
        ),
        None => format!(
            "that is far from the {} m by which two days of one run differ: a method passes with \
             at most {FACTOR} times as much at all times",
            table::scientific(test.variability_m),
        ),
    };
    format!(
        "# {} points, ranks: {}, after {} days of spin-up\n\
         # messages: {} levels, {} steps {links}; longest: {}\n\
         # growth: 1 level, {} days; heights off by {:.1e} of themselves lead to RMS {} m at the \
         end;\n#   {verdict}\n",
        args.shape,
        args.ranks,
        args.spin_up,
        args.levels,
        args.steps,
        rows[0].messages.lengths(args),
        args.days,
        args.perturbation,
        table::scientific(test.perturbed.rms_m),
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
    let lines = std::iter::once(line("perturbed at the beginning", perturbed))
        .chain(of_rows.map(|row| line(&row.exchange, &row.growth)));
    let caption = format!("{} points, {} ranks", args.shape, args.ranks);
    let axes = ["days", "RMS difference of heights from the exact run, m"];
    Curves::of_magnitudes(caption, axes, lines, Legend::LowerRight)
}

/// Draws the first level's heights at the end, with north at the top.
fn draw(args: &ClimateArgs, exact: &[f64], lossy: &[(&str, &[f64])]) -> anyhow::Result<()> {
    let [_, n_columns] = args.shape.sizes() else { unreachable!("the shape was checked") };
    let from_north = |heights: &[f64]| -> Vec<f64> {
        heights.chunks_exact(*n_columns).rev().flatten().copied().collect()
    };
    let exact = from_north(exact);
    let dims: Dims = args.shape.clone();
    let mut gallery = Gallery::open(&args.out, &exact, &dims)?;
    for (name, heights) in lossy {
        let heights = from_north(heights);
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
    Columns::of(rows)
        .text("growth", "", |row| &row.exchange)
        .text("bits of", "one rank", |row| if row.has_bits_of_one_rank { "yes" } else { "no" })
        .number("mass", "change", |row| table::scientific(row.mass_change))
        .number("RMS error", "m, at last", |row| table::scientific(row.growth.rms_m))
        .maybe("grown", "day", |row| row.growth.grown_day.map(|day| format!("{day:.1}")))
        .number("worst", "x perturbed", |row| table::scientific(row.growth.worst))
        .maybe("grown", "x perturbed", |row| row.growth.grown.map(|ratio| format!("{ratio:.2}")))
        .text("growth", "test", |row| if row.growth.passes { "passes" } else { "fails" })
        .render()
}
