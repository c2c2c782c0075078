//! `foldwire codec`: measures codecs alone, on fields in files.
//!
//! A measurement has a field, bound, codec, kernel level and number of threads. `measure` times
//! encode, decode, fold and combine. For comparison, it times memcpy and a plain read of the same
//! array. It also checks every decoded value. `report` makes tables. With `--plot`, `curve`
//! measures sizes and errors over bounds and settings, and `plot` draws them. With `--ratios`,
//! `ratios` compares sizes alone.
//!
//! The run fails, after its results are shown, if a codec breaks a guarantee:
//!
//! - a value is beyond its bound, or a NaN changed;
//! - a fold differs from the combine;
//! - kernel levels encode different bytes.

mod curve;
#[cfg(feature = "cuda")]
mod device;
pub(crate) mod measure;
#[cfg(feature = "plots")]
mod plot;
mod ratios;
mod report;

use std::fmt;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::bail;
use foldwire::bound::{BoundError, ValueRange};
use foldwire::codec::{CodecParams, Loss, Prediction};
use foldwire::kernel::Level;
use foldwire::threads::Threads;
use foldwire::{Bound, Float, Quantum};
use foldwire_arguments::coding::CodecArg;
use foldwire_arguments::values::each_once;
use foldwire_arguments::{CodecArgs, ShapeArg};
use foldwire_fields::field::{Field, SMALLER};
use foldwire_fields::usage::{UsageError, usage};
use foldwire_fields::with_values;
use foldwire_workbench::device::{DeviceOption, open};
use foldwire_workbench::plot::PlotFile;
use foldwire_workbench::{input, memory, progress, room, streams, threads};
use indicatif::ProgressBar;
use serde_json::json;

use crate::peers::{DEFAULT_PATH, PeerTable};
use curve::CurvePoint;
use measure::{CodecBench, CodecMeasurements};

/// Largest fraction of time lost to other programs at which speeds are reliable.
const LARGE_DISTURBANCE: f64 = 0.05;

/// Results of one measurement.
#[derive(Debug, serde::Serialize)]
struct CodecRow {
    field: String,
    dtype: &'static str,
    /// Size of the field.
    n_bytes: usize,
    #[serde(serialize_with = "report::as_text")]
    bound: Bound,
    /// Bound in the unit of the data; 0 if the field has no range.
    bound_abs: f64,
    #[serde(serialize_with = "report::as_text")]
    codec: CodecArg,
    #[serde(serialize_with = "report::as_text")]
    level: Place,
    threads: usize,
    #[serde(flatten)]
    measured: CodecMeasurements,
}

/// Machine part that ran a codec.
#[derive(Clone, Copy, Debug)]
enum Place {
    /// On the host, with the kernels of this level.
    Host(Level),
    /// On a device.
    Device,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Host(level) => level.fmt(f),
            Self::Device => f.pad("device"),
        }
    }
}

/// Runs the subcommand. Results go to stdout, everything else to stderr.
///
/// # Errors
///
/// Usage errors and output that cannot be written. Also, after everything is printed, guarantees
/// that the codec broke.
pub fn run(args: &CodecArgs) -> anyhow::Result<()> {
    let levels = levels(&args.level, &Level::available().collect::<Vec<_>>())?;
    let peers = PeerTable::load(args.peers.as_deref())?;
    let mut fields =
        args.field.iter().map(|path| input::read(path, None)).collect::<Result<Vec<_>, _>>()?;
    if let Some(mib) = args.tile {
        fields.iter_mut().for_each(|field| field.tile(mib << 20));
    }
    tell_apart(&mut fields, &args.field);
    for field in &fields {
        with_values!(&field.values, values => check(args, field, values)?);
    }
    fields.iter_mut().for_each(|field| input::forget_missing(field, args.fill));
    if args.ratios {
        let mut rows = Vec::new();
        for field in &fields {
            rows.extend(with_values!(&field.values, values => {
                ratios::of_field(field, values, args)?
            }));
        }
        return Ok(streams::write(&ratios::table(&rows))?);
    }
    let device = open(args.device.as_deref())?;
    let threads = pools(&args.threads)?;
    let variants = CodecVariants { codings: args.codings(), levels, threads, device };
    let n_rows = variants.codings.len() * variants.levels.len() * variants.threads.len();
    let progress = progress::bar("measuring", fields.len() * args.bound.len() * n_rows);
    let (start, waited) = (Instant::now(), memory::waited());
    let (mut rows, mut points) = (Vec::new(), Vec::new());
    for field in &fields {
        progress.set_message(field.name.clone());
        with_values!(&field.values, values => {
            let mut bench = bench(field, values, args, &variants)?;
            rows.extend(measure_field(field, values, args, &variants, &mut bench, &progress)?);
            if args.plot.is_some() {
                let n_points = curve::n_points(values, &variants.codings);
                progress.inc_length(n_points as u64);
                let codings = &variants.codings;
                let of_field =
                    curve::of_field(field, values, args, codings, &mut bench, &progress)?;
                points.extend(of_field);
            }
        });
    }
    progress.finish_and_clear();
    for field in &fields {
        let dtype = field.values.dtype();
        let left_out = variants.codings.iter().filter(|coding| !coding.is_for(dtype));
        let names: Vec<_> = left_out.map(CodecArg::to_string).collect();
        if !names.is_empty() {
            let names = names.join(", ");
            streams::remark(format_args!("note: {}: not for {dtype}: {names}", field.name));
        }
    }
    let share = disturbance(waited, memory::waited(), start.elapsed());

    if args.json {
        streams::write(&format!("{}\n", json!({ "rows": rows, "curves": points })))?;
    } else {
        streams::write(&report::all(&rows, &points, &peers))?;
        if peers.is_empty() && !rows.is_empty() {
            streams::remark(format_args!(
                "note: {DEFAULT_PATH} is not there, so no other compressor is compared; --peers \
                names such a table"
            ));
        }
    }
    let drawn = args.plot.as_ref().map_or(Ok(()), |file| draw(file, &fields, &points));
    if share > LARGE_DISTURBANCE && !rows.is_empty() {
        streams::remark(format_args!(
            "note: other programs had the processor for {:.0} % of the time; measure again when \
            the machine is idle",
            100.0 * share
        ));
    }
    let mut faults = faults(&rows);
    faults.extend(curve::faults(&points));
    if !faults.is_empty() {
        bail!("the codec broke its promises; please report this\n  {}", faults.join("\n  "));
    }
    drawn
}

/// Rejects codecs that the user named and that do not support the type. Also rejects options that
/// have no effect.
fn check<T: Float>(args: &CodecArgs, field: &Field, values: &[T]) -> Result<(), UsageError> {
    let of_field = |error| usage!("{}: {error}", field.name);
    for coding in args.codings() {
        if args.is_named(coding) {
            coding.check(T::DTYPE).map_err(of_field)?;
        }
    }
    let predicts = args.codings().iter().any(|coding| coding.codec.takes_shape());
    // `--ratios` measures all codecs, each with its best prediction.
    let unused = [
        ("--shape", args.shape != ShapeArg::OfFile && !(predicts || args.ratios)),
        ("--predictor", args.predictor != Prediction::default() && !predicts),
    ];
    if let Some((unused, _)) = unused.iter().find(|(_, is_unused)| *is_unused) {
        return Err(usage!(
            "{unused} is for codecs that predict values from other rows: --codec dense, fz-nd"
        ));
    }
    match &args.shape {
        ShapeArg::Given(dims) if dims.n_values() != values.len() => Err(of_field(usage!(
            "holds {} values, but --shape {dims} are {}; the shape is that of each file, \
                 slowest dimension first",
            values.len(),
            dims.n_values()
        ))),
        _ => Ok(()),
    }
}

/// Draws the curves. If there are several fields, each has its own file.
fn draw(file: &PlotFile, fields: &[Field], points: &[CurvePoint]) -> anyhow::Result<()> {
    for (nth, Field { name, .. }) in fields.iter().enumerate() {
        if fields[..nth].iter().any(|known| known.name == *name) {
            continue;
        }
        let file = if fields.len() == 1 { file.clone() } else { file.of(&name.replace('/', "-")) };
        let points: Vec<_> = points.iter().filter(|point| point.field == *name).collect();
        foldwire_workbench::draw!(Some(file), plot::DistortionPlot { field: name, points })?;
    }
    Ok(())
}

/// Returns the fraction of time spent waiting for a processor; 0 if it is unknown.
fn disturbance(before: Option<Duration>, after: Option<Duration>, elapsed: Duration) -> f64 {
    let waited = after.zip(before).map_or(Duration::ZERO, |(after, before)| after - before);
    waited.as_secs_f64() / elapsed.as_secs_f64().max(1e-9)
}

/// Returns the requested levels without duplicates, or the best available level.
fn levels(requested: &[Level], available: &[Level]) -> Result<Vec<Level>, UsageError> {
    if requested.is_empty() {
        return Ok(available.last().copied().into_iter().collect());
    }
    if let Some(level) = requested.iter().find(|level| !available.contains(level)) {
        let names: Vec<_> = available.iter().map(|level| level.name()).collect();
        return Err(usage!("this machine cannot run --level {level}; it has {}", names.join(", ")));
    }
    Ok(each_once(requested.iter().copied()))
}

/// Names a field by its path if another field's file has the same name in another folder.
fn tell_apart(fields: &mut [Field], paths: &[PathBuf]) {
    let names: Vec<String> = fields.iter().map(|field| field.name.clone()).collect();
    for (at, field) in fields.iter_mut().enumerate() {
        let is_namesake = |other: usize| names[other] == names[at] && paths[other] != paths[at];
        if (0..names.len()).any(is_namesake) {
            field.name = paths[at].display().to_string();
        }
    }
}

/// Codecs, levels and threads to measure.
struct CodecVariants {
    codings: Vec<CodecArg>,
    levels: Vec<Level>,
    threads: Vec<Threads>,
    /// The codecs run there instead, if there is one.
    device: DeviceOption,
}

/// Returns a thread pool for each requested number of threads, without duplicates.
fn pools(requested: &[usize]) -> anyhow::Result<Vec<Threads>> {
    let numbers = each_once(requested.iter().copied());
    Ok(numbers.into_iter().map(threads::of).collect::<Result<_, _>>()?)
}

/// Allocates the memory for measurements on a field, if it is available.
fn bench<'a, T: Float + Into<f64>>(
    field: &Field,
    values: &'a [T],
    args: &CodecArgs,
    variants: &CodecVariants,
) -> Result<CodecBench<'a, T>, UsageError> {
    let n_bytes = CodecBench::<T>::n_bytes(values.len(), &variants.codings).ok_or_else(|| {
        usage!(
            "{}: {} values are too many for one frame; measure on a piece of the file (under 4 GB)",
            field.name,
            values.len()
        )
    })?;
    room::check(n_bytes)
        .map_err(|error| usage!("to measure on {}: {error}; {SMALLER}", field.name))?;
    Ok(CodecBench::new(values, &variants.codings, args.repeat))
}

/// Returns the quantization step that collectives use for a codec. A codec without a lattice gets
/// the bound itself.
pub(crate) fn quantum<T: Float>(
    coding: CodecArg,
    bound: Bound,
    value_range: Option<ValueRange>,
) -> Result<Quantum, BoundError> {
    if coding.codec.has_lattice() {
        bound.quantum::<T>(value_range)
    } else {
        Quantum::new::<T>(bound.absolute(value_range)?)
    }
}

fn measure_field<T: Float + Into<f64>>(
    field: &Field,
    values: &[T],
    args: &CodecArgs,
    variants: &CodecVariants,
    bench: &mut CodecBench<'_, T>,
    progress: &ProgressBar,
) -> anyhow::Result<Vec<CodecRow>> {
    let value_range = ValueRange::of(values);
    let mut rows = Vec::new();
    for (nth, &bound) in args.bound.iter().enumerate() {
        let bound_abs = bound.absolute(value_range)?;
        for &codec in &variants.codings {
            // A codec without a bound has the same result at every bound.
            let is_done = nth > 0 && codec.codec.loss() != Loss::Bound;
            for &level in &variants.levels {
                for &threads in &variants.threads {
                    progress.inc(1);
                    if is_done || !codec.is_for(T::DTYPE) {
                        continue;
                    }
                    let params = CodecParams::new(quantum::<T>(codec, bound, value_range)?)
                        .with_prediction(args.predictor)
                        .at(level)
                        .on(threads);
                    let params = args.shape.tell(params, &field.dims, values);
                    rows.push(CodecRow {
                        field: field.name.clone(),
                        dtype: field.values.dtype().name(),
                        n_bytes: field.values.n_bytes(),
                        bound,
                        bound_abs,
                        codec,
                        level: match variants.device {
                            None => Place::Host(level),
                            Some(_) => Place::Device,
                        },
                        threads: measure::n_threads::<T>(codec, params, values.len()),
                        measured: match &variants.device {
                            #[cfg(feature = "cuda")]
                            Some(device) => bench.run_on(device, codec, bound_abs, params)?,
                            _ => bench.run(codec, bound_abs, params)?,
                        },
                    });
                }
            }
        }
    }
    Ok(rows)
}

/// Returns everything that is wrong in these results, one line each.
fn faults(rows: &[CodecRow]) -> Vec<String> {
    let mut faults = Vec::new();
    for (at, row) in rows.iter().enumerate() {
        let mut fault = |what: &str| {
            let CodecRow { field, bound, codec, level, threads, .. } = row;
            let on = if *threads == 1 { String::new() } else { format!(", {threads} threads") };
            faults.push(format!("{field} by {codec} at {bound}, level {level}{on}: {what}"));
        };
        row.measured.faults().iter().for_each(|what| fault(what));
        let is_same = |other: &&CodecRow| {
            (&other.field, other.bound, other.codec) == (&row.field, row.bound, row.codec)
        };
        if let Some(first) = rows[..at].iter().find(is_same)
            && first.measured.digest != row.measured.digest
        {
            fault(&format!("other bytes than level {}, {} threads", first.level, first.threads));
        }
    }
    faults
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_best_level_is_the_default_and_each_comes_once() {
        let two = [Level::Scalar, Level::Avx2];
        assert_eq!(levels(&[], &two), Ok(vec![Level::Avx2]));
        let requested = [Level::Avx2, Level::Scalar, Level::Avx2];
        assert_eq!(levels(&requested, &two), Ok(vec![Level::Avx2, Level::Scalar]));
    }

    #[test]
    fn a_level_that_the_machine_lacks_is_an_error_of_use() {
        let message = levels(&[Level::Avx512], &[Level::Scalar, Level::Avx2]).unwrap_err();
        assert!(message.to_string().ends_with("--level avx512; it has scalar, avx2"), "{message}");
    }

    #[test]
    fn files_of_one_name_are_told_apart() {
        let dir = tempfile::tempdir().unwrap();
        let paths = ["a/x.f32", "b/x.f32", "b/y.f32", "b/y.f32"].map(|name| dir.path().join(name));
        let mut fields = Vec::new();
        for (i, path) in paths.iter().enumerate() {
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, (i as f32).to_le_bytes()).unwrap();
            fields.push(Field::read(path, None).unwrap());
        }
        tell_apart(&mut fields, &paths);
        let names: Vec<_> = fields.iter().map(|field| &*field.name).collect();
        let [first, second] = [&paths[0], &paths[1]].map(|path| path.to_str().unwrap());
        assert_eq!(names, [first, second, "y.f32", "y.f32"]);
    }

    #[test]
    fn waiting_is_a_share_of_the_time() {
        let ms = |ms| Some(Duration::from_millis(ms));
        assert_eq!(disturbance(ms(100), ms(300), Duration::from_millis(800)), 0.25);
        assert_eq!(disturbance(None, None, Duration::from_millis(800)), 0.0);
    }

    /// Covers a value beyond its bound, and levels that encode different bytes.
    #[test]
    fn broken_promises_are_faults() {
        let row = |level, digest, values_over_bound| CodecRow {
            field: "a.f32".into(),
            dtype: "f32",
            n_bytes: 4,
            bound: Bound::Absolute(1.0),
            bound_abs: 1.0,
            codec: "fz-light".parse().unwrap(),
            level: Place::Host(level),
            threads: 1,
            measured: CodecMeasurements {
                digest,
                values_over_bound,
                ..CodecMeasurements::default()
            },
        };
        assert!(faults(&[row(Level::Scalar, 1, 0), row(Level::Avx2, 1, 0)]).is_empty());
        let found = faults(&[row(Level::Scalar, 1, 2), row(Level::Avx2, 3, 0)]);
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(
            found[0].starts_with("a.f32 by fz-light at abs:1, level scalar: 2 values"),
            "{found:?}"
        );
        assert!(
            found[1].ends_with("level avx2: other bytes than level scalar, 1 threads"),
            "{found:?}"
        );
    }
}
