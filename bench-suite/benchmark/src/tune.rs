//! `foldwire tune`: measures this machine's speed with each codec, for automatic plans.
//!
//! Each primitive of a codec is measured as for the cost model (`sim/measure.rs`), on as many
//! threads as ranks compute at once. The measurement passes the field's shape to the codec, because
//! automatic plans find the shape by a search.
//!
//! An automatic plan uses one number C for each codec: bytes per second of a rank that spends half
//! of its time on data movement and half on reduction ([`foldwire::select`]). In an all-reduce
//! along a ring of many ranks, a rank folds and later decodes nearly the whole array, which takes
//! 1/fold + 1/decode seconds a byte. The model takes 1.5/C for it. So 1/C is (1/fold + 1/decode) /
//! 1.5 + 1/h, where h is the rate of forwarding frames. C is smaller if ranks share cores.
//!
//! The fixed cost of a message comes from all-reduces of a short array between two threads, with
//! one message in each direction. It is the time of such a call, less the time that its bytes take
//! at that speed.

use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::thread::available_parallelism;
use std::time::Instant;

use anyhow::Context;
use foldwire::bound::ValueRange;
use foldwire::codec::CodecId;
use foldwire::kernel::Level;
use foldwire::select::Speeds;
use foldwire::{Bound, DType, Float, Op, Plan, Quantum, Rank, schedule};
use foldwire_arguments::TuneArgs;
use foldwire_fields::usage::{UsageError, usage};
use foldwire_threads::World;
use foldwire_workbench::data::{Data, FieldSource};
use foldwire_workbench::table::Columns;
use foldwire_workbench::{files, progress, ranks, streams, with_float};
use serde::Serialize;

use crate::bench::row::median;
use crate::sim::measure::MeasurementTask;

/// Bytes of a rank's array, more than the rank's part of the caches.
const ARRAY_BYTES: usize = 8 << 20;
/// Bytes of a frame, as in the backends.
const FRAME_BYTES: usize = 260 << 10;
/// Rate of forwarding (h above), in bytes of values per second. All-reduces of 16 MiB between 4
/// threads on 2 cores took longer than their codecs explain; this rate explains the rest.
const FORWARD_RATE: f64 = 15e9;
const FILE: &str = "speeds.toml";
/// Bytes of the short array.
const SHORT_BYTES: usize = 1 << 10;
/// Number of short calls in a measurement.
const IN_A_ROW: u32 = 64;
/// Number of measurements. Their median counts.
const ROUNDS: usize = 31;
/// Number of passes over the array in a short call: a rank encodes, reduces and decodes the array.
const PASSES_PER_CALL: f64 = 3.0;

/// A codec's speeds, in 1e9 bytes of values per second.
#[derive(Debug, Clone, Copy, Serialize)]
struct SpeedRow {
    codec: &'static str,
    encode: f64,
    decode: f64,
    fold: f64,
    combine: f64,
    /// Raw bytes / compressed bytes of one operand.
    ratio: f64,
    /// C, the rate that automatic plans use.
    moves_and_reduces: f64,
    /// Fixed cost of a message, in µs.
    message: f64,
}

/// Runs the subcommand. Results go to stdout, everything else to stderr.
///
/// # Errors
/// Usage errors, and output and files that cannot be written.
pub fn run(args: &TuneArgs) -> anyhow::Result<()> {
    let source = FieldSource::open(args.field.as_deref())?;
    with_float!(source.dtype(args.dtype), T => tune::<T>(args, &source))
}

fn tune<T: Float>(args: &TuneArgs, source: &FieldSource) -> anyhow::Result<()> {
    let cores = available_parallelism().map_or(1, NonZero::get);
    let ranks = args.ranks.unwrap_or(cores);
    let busy = ranks.min(cores);
    let data = source.data::<T>(ranks);
    let codecs = codecs(T::DTYPE);
    let bar = progress::bar("measuring", codecs.len());
    let (mut speeds, mut rows) = (Speeds::default(), Vec::new());
    let calls = short_calls(args.bound, &codecs, &data)?;
    let mut exact_s = 0.0;
    for (&codec, call_s) in codecs.iter().zip(calls) {
        bar.set_message(codec.name());
        let task = MeasurementTask {
            codec,
            setting: 0,
            bound: args.bound,
            size: ranks.max(2),
            reduces: true,
            frame_bytes: FRAME_BYTES,
            busy,
            array_bytes: ARRAY_BYTES * ranks / busy,
        };
        let costs = task.costs(&data)?;
        let share = busy as f64 / ranks as f64;
        let rate = share * moves_and_reduces(costs.speeds.fold, costs.speeds.decode);
        // No codec's message costs less than an uncompressed one.
        let bytes_s = PASSES_PER_CALL * SHORT_BYTES as f64 / (2.0 * rate);
        let own_s = (call_s - bytes_s).max(0.0);
        exact_s = if codec == CodecId::Raw { own_s } else { exact_s };
        let message_s = own_s.max(exact_s);
        speeds = speeds.with(codec, rate).with_message(codec, message_s);
        let gbps = costs.speeds.map(|speed| speed / 1e9);
        let ratio = if codec == CodecId::Raw { 1.0 } else { T::BYTES as f64 / costs.wire.width(1) };
        rows.push(SpeedRow {
            codec: codec.name(),
            encode: gbps.encode,
            decode: gbps.decode,
            fold: gbps.fold,
            combine: gbps.combine,
            ratio,
            moves_and_reduces: rate / 1e9,
            message: message_s * 1e6,
        });
        bar.inc(1);
    }
    bar.finish_and_clear();
    let about = format!(
        "{ranks} ranks on {cores} cores, {} of {} at {}, {}",
        Level::best(),
        T::DTYPE,
        args.bound,
        data.about()
    );
    let path = if args.dry_run { None } else { args.output.clone().or_else(default_file) };
    let others: Vec<_> = Speeds::codecs().filter(|codec| !codecs.contains(codec)).collect();
    if !others.is_empty() {
        let names: Vec<_> = others.iter().map(|codec| codec.name()).collect();
        streams::remark(format_args!(
            "note: not for {}, so neither measured nor in the file: {}",
            T::DTYPE,
            names.join(", ")
        ));
    }
    // Neither output may be lost because the other cannot be written.
    let name = path.as_ref().map(|path| path.display().to_string());
    let json = || serde_json::json!({ "about": about, "rows": rows, "file": name });
    let printed = streams::results(args.json, json, || format!("{about}\n{}", text(&rows)));
    let written = path.map_or(Ok(()), |path| {
        write(&path, &about, &lines(&speeds, &codecs))?;
        let path = path.display();
        streams::remark(format_args!("speeds: {path}; pass them with --speeds {path}"));
        Ok(())
    });
    printed?;
    written
}

/// Returns the codecs of automatic plans that support this type.
fn codecs(dtype: DType) -> Vec<CodecId> {
    Speeds::codecs().filter(|codec| codec.is_for(dtype)).collect()
}

/// Returns the lines of these codecs.
fn lines(speeds: &Speeds, codecs: &[CodecId]) -> String {
    let text = speeds.to_string();
    let all = Speeds::codecs().zip(text.lines());
    let measured = all.filter(|(codec, _)| codecs.contains(codec));
    measured.map(|(_, line)| format!("{line}\n")).collect()
}

/// Writes the lines into a file, and creates missing folders.
fn write(path: &Path, about: &str, lines: &str) -> anyhow::Result<()> {
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
    }
    let text =
        format!("# foldwire tune: {about}\n# bytes per second, and seconds of a message\n{lines}");
    files::replace(path, text.as_bytes()).with_context(|| path.display().to_string())
}

/// Returns the seconds of an all-reduce of a short array between two threads, for each codec.
fn short_calls<T: Float>(
    bound: Bound,
    codecs: &[CodecId],
    data: &Data<T>,
) -> anyhow::Result<Vec<f64>> {
    // An absolute bound, so that no call scans the data for its value range.
    let step = bound.quantum::<T>(ValueRange::of(data.base())).map_or(0.0, Quantum::step);
    let bound = Bound::Absolute(if step > 0.0 { step / 2.0 } else { 1.0 });
    let plans: Vec<Plan> = codecs
        .iter()
        .map(|&codec| match codec {
            CodecId::Raw => Plan::raw(),
            codec => Plan::foldwire(bound).with_codec(codec),
        })
        .map(|plan| plan.with_schedule(&schedule::RecursiveDoubling))
        .collect();
    let results = World::new(2).run(|mut comm| {
        let mut values = vec![T::from_f64(0.0); SHORT_BYTES / T::BYTES];
        let mut times = vec![Vec::new(); plans.len()];
        for _ in 0..ROUNDS {
            for (plan, times) in plans.iter().zip(&mut times) {
                data.fill(comm.rank().index(), 0, &mut values);
                comm.barrier()?;
                let start = Instant::now();
                for _ in 0..IN_A_ROW {
                    comm.all_reduce(&mut values, Op::Max, plan)?;
                }
                times.push((start.elapsed() / IN_A_ROW).as_secs_f64());
            }
        }
        Ok::<_, foldwire::Error>((comm.rank(), times))
    });
    let first = ranks::results(results)?.into_iter().find(|(rank, _)| *rank == Rank(0));
    Ok(first.map_or(Vec::new(), |(_, times)| times.iter().map(|times| median(times)).collect()))
}

/// Returns C (see the module's documentation) for a codec with these speeds.
fn moves_and_reduces(fold: f64, decode: f64) -> f64 {
    ((fold.recip() + decode.recip()) / 1.5 + FORWARD_RATE.recip()).recip()
}

/// Returns the default file for speeds, if the system has a cache folder.
fn default_file() -> Option<PathBuf> {
    foldwire_wave::default_cache().map(|folder| folder.join(FILE))
}

/// Returns the speeds in a file, if the user names one.
///
/// # Errors
/// Fails if the file is missing or holds something else.
pub(crate) fn speeds(path: Option<&Path>) -> Result<Option<Speeds>, UsageError> {
    let Some(path) = path else { return Ok(None) };
    let fault = |error: &dyn std::fmt::Display| {
        usage!("{}: {error}; foldwire tune writes such files", path.display())
    };
    let text = std::fs::read_to_string(path).map_err(|error| fault(&error))?;
    let speeds = text.parse::<Speeds>().map_err(|error| fault(&error))?;
    // Comments alone are speeds, too: the default ones.
    let is_speed =
        |line: &str| !line.trim_start().is_empty() && !line.trim_start().starts_with('#');
    let has_speed = text.lines().any(is_speed);
    if has_speed { Ok(Some(speeds)) } else { Err(fault(&"it holds no speed")) }
}

fn text(rows: &[SpeedRow]) -> String {
    let digits = |number: f64| format!("{number:.2}");
    Columns::of(rows)
        .text("codec", "", |row| row.codec)
        .number("encode", "GB/s", |row| digits(row.encode))
        .number("decode", "GB/s", |row| digits(row.decode))
        .number("fold", "GB/s", |row| digits(row.fold))
        .number("combine", "GB/s", |row| digits(row.combine))
        .number("ratio", "", |row| digits(row.ratio))
        .number("moves and reduces", "GB/s", |row| digits(row.moves_and_reduces))
        .number("message", "µs", |row| digits(row.message))
        .render()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The raw codec would stand for a codec that does not support the type.
    #[test]
    fn only_codecs_of_the_type_are_measured_and_written() {
        assert_eq!(codecs(DType::F32), Speeds::codecs().collect::<Vec<_>>());
        let narrow = codecs(DType::F16);
        assert_eq!(narrow, [CodecId::Raw, CodecId::FzLight]);
        let text = lines(&Speeds::default().with(CodecId::FzLight, 7e9), &narrow);
        assert!(text.starts_with("raw = ") && text.contains("\nfz-light = 7.0"), "{text}");
        assert_eq!(text.lines().count(), 2);
        let data = FieldSource::BuiltIn.data::<foldwire::f16>(2);
        assert_eq!(short_calls(Bound::Relative(1e-3), &narrow, &data).unwrap().len(), 2);
    }

    #[test]
    fn a_file_without_speeds_is_none() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("new/speeds.toml");
        write(&path, "a machine", "raw = 6e9\n").unwrap();
        assert_eq!(speeds(Some(&path)).unwrap().unwrap().of(CodecId::Raw), Some(6e9));
        for text in ["", "# foldwire tune: a machine\n  # cut\n"] {
            std::fs::write(&path, text).unwrap();
            let error = speeds(Some(&path)).unwrap_err().to_string();
            assert!(error.contains("holds no speed"), "{error}");
        }
    }
}
