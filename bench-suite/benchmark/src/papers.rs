//! `foldwire papers`: the papers' experiments with codecs, beside what they report.
//!
//! | file | what it does |
//! |---|---|
//! | `operands` | times and checks a codec on one array, and sums of two |
//! | `sets`, `tables` | data sets in SDRBench's layout; tables of codecs by data set and bound |
//! | `sums` | the paths of the homomorphic add, the quality of sums, shares of STREAM |
//! | `errors` | histograms of one compression's errors |
//! | `pictures` | a field at the same ratio by each codec |

mod errors;
mod operands;
mod pictures;
mod sets;
mod sums;
mod tables;

use anyhow::bail;
use foldwire::codec::Loss;
use foldwire::{DType, Float};
use foldwire_arguments::PapersArgs;
use foldwire_arguments::coding::CodecArg;
use foldwire_arguments::papers::Experiment;
use foldwire_fields::usage::{UsageError, usage};
use foldwire_workbench::data::{Data, FieldSource};

/// Runs the subcommand. Results go to stdout, everything else to stderr.
///
/// # Errors
/// Usage errors and output that cannot be written. Also, after everything is printed, guarantees
/// that a codec broke.
pub fn run(args: &PapersArgs) -> anyhow::Result<()> {
    match &args.experiment {
        Experiment::Tables(args) => tables::run(args),
        Experiment::Sums(args) => sums::run(args),
        Experiment::Errors(args) => errors::run(args),
        Experiment::Pictures(args) => pictures::run(args),
    }
}

/// Returns an error that lists broken guarantees, if there are any.
fn report(faults: &[String]) -> anyhow::Result<()> {
    if faults.is_empty() {
        return Ok(());
    }
    bail!("a codec broke its promises; please report this\n  {}", faults.join("\n  "))
}

/// Refuses codecs that lose nothing, or that do not support this type.
fn check_lossy(codecs: &[CodecArg], dtype: DType) -> Result<(), UsageError> {
    for codec in codecs {
        codec.check(dtype)?;
        if codec.codec.loss() == Loss::None {
            return Err(usage!("codec {codec} is exact, so it has no errors"));
        }
    }
    Ok(())
}

/// Returns the settings of a codec on this type: the requested one, or all in order.
fn settings<T: Float>(coding: CodecArg) -> Vec<CodecArg> {
    let of = |setting| CodecArg { setting, ..coding };
    let all = (1..=u16::MAX).map(of).take_while(|coding| coding.is_for(T::DTYPE));
    let all: Vec<_> = all.collect();
    // Some codecs have no settings.
    if coding.setting > 0 || all.is_empty() { vec![coding] } else { all }
}

/// Describes data that are used once, and not around and around by several ranks.
fn describe<T: Float>(data: &Data<T>) -> &str {
    data.about().trim_end_matches(", around and around")
}

/// Returns the type of a field's values, if it is wide enough for these experiments.
fn wide(source: &FieldSource) -> Result<DType, UsageError> {
    match source.dtype(None) {
        dtype @ (DType::F32 | DType::F64) => Ok(dtype),
        dtype => Err(usage!("the papers' fields are f32 or f64, not {dtype}")),
    }
}
