//! `foldwire stack`: sums one image volume per rank, with every preset over the same links.
//!
//! A preset is a plan that imitates a published system, or Foldwire's own plan. Image stacking is
//! the application of the ZCCL, hZCCL and gZCCL papers: each rank holds an image volume, and an
//! all-reduce sums them. The input is simulated by [`foldwire_wave`] or read from files.
//! `benchmark` runs and times the presets for each bound. This module checks, draws and prints the
//! results. `summary` writes a sentence about them, and `papers` holds the figures that the authors
//! of these systems report.

#![warn(clippy::print_stdout, clippy::print_stderr)]

mod benchmark;
mod papers;
mod summary;

use std::time::Duration;

use anyhow::bail;
use foldwire::{Bound, DType, Float, Preset, Report};
use foldwire_arguments::StackArgs;
use foldwire_fields::dims::Dims;
use foldwire_fields::field::FieldValues;
use foldwire_fields::usage::{UsageError, usage};
use foldwire_fields::with_values;
use foldwire_wave::Survey;
use foldwire_workbench::input::{self, DEFAULT_RANKS, Inputs, typed};
use foldwire_workbench::picture::Gallery;
use foldwire_workbench::quality::{self, Quality};
use foldwire_workbench::table::{self, Columns};
use foldwire_workbench::threads::Pools;
use foldwire_workbench::{device, progress, room, streams};
use serde::Serialize;

use benchmark::{PresetBenchmark, PresetOutcome};

/// Results of one preset, a row of the table.
#[derive(Debug, Serialize)]
struct StackRow {
    preset: &'static str,
    #[serde(skip)]
    title: &'static str,
    ranks: usize,
    dtype: &'static str,
    link: String,
    bound: String,
    /// Absolute bound on each operand.
    bound_abs: f64,
    /// Median time in seconds, from the first rank's start to the last rank's end.
    time_s: f64,
    /// Time of each run in seconds.
    times_s: Vec<f64>,
    /// Bytes of the array / time, in 1e9 bytes/s.
    algbw_gbps: f64,
    /// algbw · 2(n − 1)/n, as defined by nccl-tests.
    busbw_gbps: f64,
    /// Bytes sent by all ranks together.
    wire_bytes: u64,
    /// The same bytes before compression.
    raw_bytes: u64,
    ratio: f64,
    /// Threads that rank 0 computed on.
    threads: u16,
    /// Time of the raw preset / time of this preset, if the raw preset ran.
    speedup_raw: Option<f64>,
    /// Seconds in each part of the median run, mean over ranks.
    encode_s: f64,
    fold_s: f64,
    decode_s: f64,
    wait_s: f64,
    #[serde(flatten)]
    shares: Shares,
    verbatim_blocks: u64,
    /// Largest error that a value of the result may have by the library's guarantee, plus the
    /// rounding error of the sum.
    bound_worst: f64,
    /// True if all ranks hold the same bits.
    same_bits: bool,
    #[serde(flatten)]
    quality: Quality,
}

/// Shares of a run's time, mean over ranks, as ZCCL and hZCCL divide it. They add up to 1.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
struct Shares {
    /// Encoding and decoding, as separate steps; copying of raw values.
    compress: f64,
    /// Waiting for frames and for links.
    communicate: f64,
    /// Adding, and all of a pass that decompresses, adds and compresses.
    compute: f64,
    /// The rest: ranks start and end at different times.
    other: f64,
}

impl Shares {
    fn of<T>(outcome: &PresetOutcome<T>) -> Self {
        let all = outcome.reported.as_secs_f64().max(1e-9) * outcome.reports.len() as f64;
        let share = |part: fn(&Report) -> Duration| {
            let total: Duration = outcome.reports.iter().map(part).sum();
            total.as_secs_f64() / all
        };
        let compress = share(|report| report.encode + report.decode);
        let (communicate, compute) = (share(Report::waiting), share(|report| report.fold));
        Self { compress, communicate, compute, other: 1.0 - compress - communicate - compute }
    }
}

/// Runs the subcommand: results on stdout, everything else on stderr.
///
/// # Errors
/// Usage errors, failed calls, and results or pictures that cannot be written. Also if a result
/// breaks a guarantee.
pub fn run(args: &StackArgs) -> anyhow::Result<()> {
    let inputs = inputs(args)?;
    let (volumes, dtype) = (&inputs.volumes[..], inputs.volumes[0].dtype());
    for note in &inputs.notes {
        streams::remark(format_args!("note: {note}"));
    }
    streams::remark(format_args!(
        "{} ranks, {} values of {} ({}, {}) each: {}",
        volumes.len(),
        inputs.dims.n_values(),
        dtype,
        inputs.dims,
        table::bytes(volumes[0].n_bytes() as u64),
        inputs.source
    ));
    if let Some(note) = args.presets().note(dtype) {
        streams::remark(format_args!("note: {note}"));
    }
    let exact = with_values!(&volumes[0], first => input::exact_sum(&typed(first, volumes)));
    let presets = args.presets().of(dtype);
    let pools = (0..volumes.len()).map(|_| Pools::new(args.threads, &presets));
    let pools = pools.collect::<Result<Vec<_>, _>>()?;
    let (mut rows, mut drawn) = (Vec::new(), Ok(()));
    for &bound in &args.bound {
        let contestants = (&presets[..], &pools[..]);
        let (of_bound, is_drawn) = with_values!(&volumes[0], first => {
            compare(args, bound, contestants, (&typed(first, volumes), &exact), &inputs)?
        });
        drawn = drawn.and(is_drawn);
        if !args.json {
            let between = if rows.is_empty() { "" } else { "\n" };
            streams::write(&format!("{between}{}", render(&of_bound, args.bound.len() > 1)))?;
            if args.papers {
                streams::write(&format!("\n{}", render_shares(&of_bound)))?;
            }
        }
        rows.extend(of_bound);
    }
    if args.json {
        let mut object = serde_json::json!({ "rows": rows });
        if args.papers {
            object["papers"] = serde_json::json!(papers::all());
        }
        streams::write(&format!("{object}\n"))?;
    } else if args.papers {
        streams::write(&format!("\n{}", papers::render()))?;
    }
    // An error of the pictures is returned only now, so that it does not suppress the results.
    drawn?;
    for row in &rows {
        // Presets that run as published do not guarantee equal bits on all ranks.
        anyhow::ensure!(
            row.same_bits || args.as_published,
            "{} at {}: ranks hold different results",
            row.preset,
            row.bound
        );
        anyhow::ensure!(
            row.quality.is_within(row.bound_worst),
            "{} at {}: the error {:e} exceeds the promised {:e} ({} values should be infinite or \
            NaN, and differ)",
            row.preset,
            row.bound,
            row.quality.max_error,
            row.bound_worst,
            row.quality.mismatched_nonfinite,
        );
    }
    if !args.json {
        streams::write(&summary::sentences(&rows, &args.link.words(), args.bound.len() > 1))?;
    }
    Ok(())
}

/// Loads the operands: the user's files, or simulated images.
fn inputs(args: &StackArgs) -> anyhow::Result<Inputs> {
    if !args.input.is_empty() {
        let inputs = input::load(&args.input, args.dims.as_ref(), args.ranks, args.fill)?;
        let volumes = &inputs.volumes;
        args.presets().check(volumes[0].dtype())?;
        let n_results = args.presets().of(volumes[0].dtype()).len();
        check_room(volumes.len(), n_results, volumes[0].n_bytes(), &inputs.dims)?;
        return Ok(inputs);
    }
    let &[y, z, x] = args.shape.sizes() else {
        bail!(usage!("--shape needs three numbers, such as 176x128x176"));
    };
    let n_shots = args.ranks.unwrap_or(DEFAULT_RANKS);
    let survey = Survey { shape: [y, z, x], n_shots, hz: args.hz, time: args.time };
    let dims = survey.dims();
    args.presets().check(DType::F32)?;
    let n_results = args.presets().of(DType::F32).len();
    // Unlike the user's files, the images are not in memory yet.
    check_room(survey.n_shots, n_results + 1, dims.n_values() * size_of::<f32>(), &dims)?;
    let cache = args.cache.clone().or_else(foldwire_wave::default_cache);
    let images = survey.images(cache.as_deref());
    Ok(Inputs {
        volumes: images.volumes.into_iter().map(FieldValues::F32).collect(),
        dims: survey.dims(),
        source: survey.describe(),
        notes: images.notes,
    })
}

/// Checks that `n_arrays` arrays of `n_bytes` on each rank fit in memory, together with their exact
/// sum.
fn check_room(
    n_ranks: usize,
    n_arrays: usize,
    n_bytes: usize,
    dims: &Dims,
) -> Result<(), UsageError> {
    let arrays = (n_ranks * n_arrays) as u128 * n_bytes as u128;
    let exact = (dims.n_values() * size_of::<f64>()) as u128;
    room::check(arrays + exact).map_err(|error| {
        usage!(
            "{n_arrays} arrays of {} on each of {n_ranks} ranks: {error}; ask for fewer --ranks or \
            presets",
            table::bytes(n_bytes as u64)
        )
    })
}

/// Runs the presets with this bound, checks their results and draws them. Returns drawing errors
/// separately.
fn compare<T: Float + Into<f64>>(
    args: &StackArgs,
    bound: Bound,
    (presets, pools): (&[Preset], &[Pools]),
    (volumes, exact): (&[&[T]], &[f64]),
    inputs: &Inputs,
) -> anyhow::Result<(Vec<StackRow>, anyhow::Result<()>)> {
    #[cfg_attr(not(feature = "cuda"), expect(unused_variables, reason = "there is none"))]
    let device = device::open(args.device.as_deref())?;
    let benchmark = PresetBenchmark {
        presets: presets.to_vec(),
        bound,
        link: args.link.bytes_per_s(),
        repeat: args.repeat,
        as_published: args.as_published,
        shape: inputs.dims.sizes().to_vec(),
        n_threads: args.threads.unwrap_or(1),
        pools: pools.to_vec(),
        #[cfg(feature = "cuda")]
        device,
    };
    let progress = progress::bar(&format!("running at {bound}"), benchmark.n_runs());
    let outcomes = benchmark.run(volumes, &progress)?;
    progress.finish_and_clear();
    let raw = presets.iter().position(|&preset| preset == Preset::Raw);
    let raw_time = raw.map(|i| outcomes[i].time());
    let mut rows: Vec<StackRow> = Vec::new();
    for (preset, outcome) in presets.iter().zip(&outcomes) {
        rows.push(row((*preset, bound), args, outcome, (volumes, exact), raw_time, inputs));
    }
    let results: Vec<_> = outcomes.into_iter().map(|outcome| outcome.result).collect();
    let drawn =
        if args.no_pictures { Ok(()) } else { draw(args, bound, (exact, inputs), &rows, &results) };
    Ok((rows, drawn))
}

/// Draws the results of these rows.
fn draw<T: Float + Into<f64>>(
    args: &StackArgs,
    bound: Bound,
    (exact, inputs): (&[f64], &Inputs),
    rows: &[StackRow],
    results: &[Vec<T>],
) -> anyhow::Result<()> {
    // Some systems do not allow a colon in a file name.
    let folder = match args.bound.len() {
        1 => args.out.clone(),
        _ => args.out.join(bound.to_string().replace(':', "-")),
    };
    let mut gallery = Gallery::open(&folder, exact, &inputs.dims)?;
    let bounds = rows.iter().map(|row| row.bound_worst).filter(|bound| bound.is_finite());
    let largest = bounds.fold(0.0, f64::max);
    for (row, result) in rows.iter().zip(results) {
        // Pictures show errors in units of the result's bound. Two kinds of results use the largest
        // bound of all results instead. The bound of exact results covers only rounding, so their
        // pictures would show noise. Results of some codecs have no bound.
        let has_own_bound = row.bound_abs > 0.0 && row.bound_worst.is_finite();
        let unit = if has_own_bound { row.bound_worst } else { largest };
        gallery.add(row.preset, row.title, result, unit)?;
    }
    streams::remark(format_args!("pictures: {}", gallery.finish()?.display()));
    Ok(())
}

/// Largest rounding error of a sum of these volumes in `T`.
fn rounding<T: Float + Into<f64>>(volumes: &[&[T]]) -> f64 {
    let magnitude = |volume: &&[T]| {
        let values = volume.iter().map(|&x| Into::<f64>::into(x).abs());
        values.filter(|x| x.is_finite()).fold(0.0, f64::max)
    };
    let largest: f64 = volumes.iter().map(magnitude).sum();
    foldwire::bound::rounding::<T>(volumes.len(), largest)
}

/// Evaluates the outcome of one preset.
fn row<T: Float + Into<f64>>(
    (preset, bound): (Preset, Bound),
    args: &StackArgs,
    outcome: &PresetOutcome<T>,
    (volumes, exact): (&[&[T]], &[f64]),
    raw_time: Option<Duration>,
    inputs: &Inputs,
) -> StackRow {
    let ranks = outcome.reports.len();
    let time_s = outcome.time().as_secs_f64();
    let algbw_gbps = inputs.volumes[0].n_bytes() as f64 / time_s / 1e9;
    let mean = |part: fn(&Report) -> Duration| {
        let total: Duration = outcome.reports.iter().map(part).sum();
        total.as_secs_f64() / ranks as f64
    };
    let raw_bytes: u64 = outcome.reports.iter().map(|r| r.raw_bytes).sum();
    let wire_bytes: u64 = outcome.reports.iter().map(|r| r.wire_bytes).sum();
    let report = &outcome.reports[0];
    let bound_worst = report.worst_case.unwrap_or(f64::INFINITY) + rounding(volumes);
    // A sum may overflow if its operands' magnitudes, plus the permitted error, exceed the largest
    // finite value.
    let error = if bound_worst.is_finite() { bound_worst } else { 0.0 };
    let most = quality::largest::<T>() - error;
    let may_overflow = |at: usize| {
        let magnitudes = volumes.iter().map(|volume| Into::<f64>::into(volume[at]).abs());
        magnitudes.filter(|value| value.is_finite()).sum::<f64>() > most
    };
    StackRow {
        preset: preset.name(),
        title: preset.title(),
        ranks,
        dtype: inputs.volumes[0].dtype().name(),
        link: args.link.to_string(),
        bound: bound.to_string(),
        bound_abs: report.bound,
        time_s,
        times_s: outcome.times.iter().map(Duration::as_secs_f64).collect(),
        algbw_gbps,
        busbw_gbps: algbw_gbps * 2.0 * (ranks as f64 - 1.0) / ranks as f64,
        wire_bytes,
        raw_bytes,
        // A single rank sends nothing.
        ratio: if wire_bytes == 0 { 1.0 } else { raw_bytes as f64 / wire_bytes as f64 },
        threads: report.threads,
        speedup_raw: raw_time.map(|raw| raw.as_secs_f64() / time_s),
        encode_s: mean(|r| r.encode),
        fold_s: mean(|r| r.fold),
        decode_s: mean(|r| r.decode),
        wait_s: mean(Report::waiting),
        shares: Shares::of(outcome),
        verbatim_blocks: outcome.reports.iter().map(|r| r.blocks.verbatim).sum(),
        bound_worst,
        same_bits: outcome.same_bits,
        quality: Quality::of_sums(&outcome.result, exact, may_overflow),
    }
}

/// Renders the rows of one bound as a table. With several bounds, a title names the bound.
fn render(rows: &[StackRow], has_several_bounds: bool) -> String {
    let ms = |seconds: f64| format!("{:.1}", seconds * 1e3);
    let table = Columns::of(rows)
        .text("preset", "", |row| row.title)
        .number("time", "ms", |row| ms(row.time_s))
        .maybe("speed-up", "x raw", |row| row.speedup_raw.map(|times| format!("{times:.2}")))
        .number("algbw", "GB/s", |row| format!("{:.3}", row.algbw_gbps))
        .number("wire", "all ranks", |row| table::bytes(row.wire_bytes))
        .number("ratio", "", |row| format!("{:.2}", row.ratio))
        .number("threads", "", |row| row.threads)
        .number("encode", "ms", |row| ms(row.encode_s))
        .number("fold", "ms", |row| ms(row.fold_s))
        .number("decode", "ms", |row| ms(row.decode_s))
        .number("wait", "ms", |row| ms(row.wait_s))
        .number("worst case", "", |row| table::scientific(row.bound_worst))
        .number("max error", "", |row| table::scientific(row.quality.max_error))
        .maybe("PSNR", "dB", |row| row.quality.psnr_db.map(|x| format!("{x:.1}")))
        .maybe("NRMSE", "", |row| row.quality.nrmse.map(table::scientific));
    let title = rows.first().filter(|_| has_several_bounds);
    let title = title.map_or_else(String::new, |row| format!("bound {}\n", row.bound));
    title + &table.render()
}

/// Renders the shares of the time, as the papers' tables VII do.
fn render_shares(rows: &[StackRow]) -> String {
    let percent = |share: f64| format!("{:.1}", 100.0 * share);
    let table = Columns::of(rows)
        .text("preset", "", |row| row.title)
        .number("compress", "%", |row| percent(row.shares.compress))
        .number("communicate", "%", |row| percent(row.shares.communicate))
        .number("compute", "%", |row| percent(row.shares.compute))
        .number("other", "%", |row| percent(row.shares.other));
    let note = "Where one pass decompresses, adds and compresses, it counts as compute; in raw \
                rows compress is copying.\n";
    table.render() + note
}
