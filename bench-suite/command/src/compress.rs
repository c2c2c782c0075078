//! `foldwire compress`: an array in a file becomes a compressed file, piece by piece.

use std::ffi::OsString;
use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Instant;

use foldwire::bound::ValueRange;
use foldwire::codec::Loss;
use foldwire::compress::Encoder;
use foldwire::pipeline::FUSED;
use foldwire::{DType, Plan, SuspectedFill};
use foldwire_arguments::{CompressArgs, FillArg};
use foldwire_fields::field::split_type;
use foldwire_fields::usage::{UsageError, usage};
use foldwire_workbench::streams;
use foldwire_workbench::threads::Pool;

use crate::files::{ArrayFile, EXTENSION, Output, is_pipe, segments_at_once};

/// Runs the command.
///
/// # Errors
/// A [`UsageError`] if the arguments do not fit the file; any error of reading or writing.
pub(crate) fn run(args: &CompressArgs) -> anyhow::Result<()> {
    let start = Instant::now();
    let mut file = ArrayFile::open(&args.file, args.dims.as_ref())?;
    if let Some(FillArg::Value(fill)) = args.fill {
        file.layout.fill_value = Some(fill);
    }
    let (dtype, mut plan) = (file.dtype, plan(args, file.dtype)?);
    plan.refuses_fill = args.fill == Some(FillArg::Refuse);
    let value_range = match plan.needs_value_range() && dtype.is_float() {
        true => value_range(args, &file)?,
        false => None,
    };
    let mut compressed = Vec::new();
    let encoder = Encoder::new(dtype, &file.layout, &plan, value_range, &mut compressed);
    let pool = pool(args.threads)?;
    let encoder = encoder.map_err(|error| fault(&args.file, &error.to_string()))?;
    let mut encoder = encoder.on(pool.threads());
    if plan.refuses_fill && value_range.is_some() {
        search_fill(args, &mut encoder)?;
    }
    let path = args.output.clone().unwrap_or_else(|| output_of(&args.file));
    let mut output = Output::create(&path, &args.file, args.force)?;
    let (mut n_bytes, mut n_written) = (0, 0);
    file.read_all("compress", segments_at_once(pool), |values| {
        encoder.encode_bytes(values, &mut compressed);
        output.write(&compressed)?;
        n_bytes += values.len() as u64;
        n_written += compressed.len() as u64;
        compressed.clear();
        Ok(())
    })?;
    let suspected_fill = encoder.suspected_fill();
    encoder.finish(&mut compressed)?;
    output.write(&compressed)?;
    n_written += compressed.len() as u64;
    output.complete()?;
    let (ratio, rate) = (n_bytes as f64 / n_written as f64, speed(n_bytes, start));
    let place = path.display();
    streams::remark(format_args!(
        "{place}: {n_bytes} → {n_written} bytes, ratio {ratio:.2}, {rate}"
    ));
    if let Some(fill) = suspected_fill {
        streams::remark(format_args!("warning: {}; or give --fill", SuspectedFill(fill)));
    }
    Ok(())
}

/// Returns the requested threads, by default one for each core.
pub(crate) fn pool(requested: Option<usize>) -> Result<Pool, UsageError> {
    let n_cores = || thread::available_parallelism().map_or(1, NonZero::get);
    Pool::new(requested.unwrap_or_else(n_cores))
}

pub(crate) fn speed(n_bytes: u64, start: Instant) -> String {
    let seconds = start.elapsed().as_secs_f64();
    format!("{seconds:.1} s, {:.2} GB/s", n_bytes as f64 / seconds.max(1e-9) / 1e9)
}

fn fault(path: &Path, message: &str) -> UsageError {
    usage!("{}: {message}", path.display())
}

fn plan(args: &CompressArgs, dtype: DType) -> Result<Plan, UsageError> {
    // Exact codecs are for integers, too.
    if let Some(coding) = args.codec.filter(|coding| !coding.codec.is_exact()) {
        coding.check(dtype).map_err(|error| fault(&args.file, &error.to_string()))?;
    }
    let is_bounded = args.codec.is_some_and(|coding| coding.codec.loss() == Loss::Bound);
    match (args.codec, args.bound) {
        (None, None) => Ok(Plan::lossless()),
        (None, Some(bound)) => Ok(Plan::auto(bound)),
        (Some(coding), Some(bound)) if is_bounded => Ok(coding.of_plan(Plan::foldwire(bound))),
        (Some(coding), None) if is_bounded => {
            let message = format!("codec {coding} needs a bound, as in --bound rel:1e-3");
            Err(UsageError::new(message))
        }
        (Some(coding), Some(_)) => {
            let message = format!("codec {coding} keeps no bound; leave out --bound or --codec");
            Err(UsageError::new(message))
        }
        (Some(coding), None) => Ok(coding.of_plan(Plan::raw().with_pipeline(FUSED))),
    }
}

/// Reads the file once for the range of its values.
fn value_range(args: &CompressArgs, file: &ArrayFile) -> anyhow::Result<Option<ValueRange>> {
    if !file.is_regular {
        let message = "the range of all values must be known first, and a pipe can be read only \
                       once; write the values to a file, or give --bound abs:X";
        return Err(fault(&args.file, message).into());
    }
    let layout = &file.layout;
    let mut file = ArrayFile::open(&args.file, args.dims.as_ref())?;
    let (dtype, mut found) = (file.dtype, None::<ValueRange>);
    file.read_all("value range", 1, |values| {
        let more = layout.value_range(dtype, values);
        found = match (found, more) {
            (Some(found), Some(more)) => Some(found.union(more)),
            (found, more) => found.or(more),
        };
        Ok(())
    })?;
    Ok(found)
}

/// Reads the file once for a suspected fill value, before anything is written.
fn search_fill(args: &CompressArgs, encoder: &mut Encoder) -> anyhow::Result<()> {
    ArrayFile::open(&args.file, args.dims.as_ref())?.read_all("fill value", 1, |values| {
        encoder.search_fill(values);
        Ok(())
    })?;
    Ok(encoder.check_fill().map_err(|error| fault(&args.file, &error.to_string()))?)
}

fn output_of(file: &Path) -> PathBuf {
    if is_pipe(file) {
        return PathBuf::from("-");
    }
    let mut path = OsString::from(split_type(file).1);
    path.push(".");
    path.push(EXTENSION);
    path.into()
}
