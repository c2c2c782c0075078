//! `foldwire sim`: predicts the time of a collective on a cluster.
//!
//! The model is [`foldwire_sim::cost`]. This module supplies its parameters and shows the results.
//!
//! | file | what it does |
//! |---|---|
//! | `speeds`, `speeds_file` | sources of speeds and ratio: this machine, a file, a publication |
//! | `measure` | speeds of this machine's codec primitives, and sizes of sums of the field |
//! | `sweep` | ranks × presets |
//! | `output`, `plot` | the table and JSON; the plot |
//! | `published` | what papers report, beside predictions |
//! | `validate` | predicted and measured times, between threads or on any fabric |

pub(crate) mod measure;
mod output;
#[cfg(feature = "plots")]
mod plot;
mod published;
mod speeds;
mod speeds_file;
mod sweep;
mod validate;

use anyhow::bail;
use foldwire::{Bound, Collective, Float, Preset};
use foldwire_arguments::SimArgs;
use foldwire_fields::usage::usage;
use foldwire_workbench::data::FieldSource;
use foldwire_workbench::{streams, with_float};

use speeds::ModelSpeeds;
use sweep::{Sweep, SweepSetting};

/// Runs the subcommand. Results go to stdout, everything else to stderr.
///
/// # Errors
/// Usage errors, and output and files that cannot be written.
pub fn run(args: &SimArgs) -> anyhow::Result<()> {
    if args.published {
        return published::run(args.json);
    }
    let source = FieldSource::open(args.field.as_deref())?;
    let Some(collective) = args.collective else { return validate::run(args, &source) };
    if let Some(named) = args.schedule
        && !named.0.supports(collective)
    {
        let (name, collective) = (named.0.name(), collective.name());
        bail!(usage!(
            "schedule {name} has no {collective}; `foldwire schedule` lists those that have"
        ));
    }
    let dtype = source.dtype(args.dtype);
    args.presets().check(dtype)?;
    if let Some(note) = args.presets().note(dtype) {
        streams::remark(format_args!("note: {note}"));
    }
    with_float!(dtype, T => predict::<T>(args, collective, &source))
}

/// Returns whether a preset has one codec, so that the model can price it.
fn is_priced(preset: Preset) -> bool {
    !preset.plan(Collective::AllReduce, Bound::Relative(1e-3)).is_auto
}

fn predict<T: Float>(
    args: &SimArgs,
    collective: Collective,
    source: &FieldSource,
) -> anyhow::Result<()> {
    if !args.size.is_multiple_of(T::BYTES) {
        bail!(usage!(
            "{} bytes are no whole number of {} values; write a multiple of {}",
            args.size,
            T::DTYPE,
            T::BYTES
        ));
    }
    let setting = SweepSetting::new::<T>(args, collective);
    let data = source.data::<T>(1);
    let speeds =
        ModelSpeeds::new(args, &setting, &|task| task.wire(&data), &|task| task.costs(&data))?;
    let sweep = Sweep::run(&setting, &speeds)?;
    let about = data.about();
    streams::results(
        args.json,
        || output::json(&setting, &speeds, &sweep, about),
        || output::text(&setting, &speeds, &sweep, about),
    )?;
    foldwire_workbench::draw!(args.plot, plot::speedups(&setting, &sweep))
}
