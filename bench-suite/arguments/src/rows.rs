//! Parsers of schedules, presets and pipelines by name.

use clap::builder::{PossibleValue, TypedValueParser};
use foldwire::pipeline::{self, Pipeline};
use foldwire::{Bound, Collective, DType, Preset};

use super::schedule::{ScheduleName, schedules_by_name};
use crate::values::{by_name, each_once};

/// Values of `--schedule` where all schedules may be compared.
#[derive(Debug, Clone, Copy)]
pub enum ScheduleArg {
    /// All schedules that can do the collective.
    All,
    /// A named schedule.
    One(ScheduleName),
}

pub(super) fn schedules() -> impl TypedValueParser<Value = ScheduleArg> {
    let all = PossibleValue::new("all").help("every one that can do the collective");
    let named = schedules_by_name().map(|(name, one)| (name, ScheduleArg::One(one)));
    by_name([(all, ScheduleArg::All)].into_iter().chain(named))
}

/// Values of `--preset`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PresetArg {
    /// All presets.
    All,
    /// One preset for each way to compress and reduce.
    Main,
    /// A named preset.
    One(Preset),
}

impl PresetArg {
    /// Returns the presets that these arguments select, each once.
    pub(super) fn list(args: &[Self]) -> Vec<Preset> {
        let each = |arg: &Self| match *arg {
            Self::All => Preset::ALL.to_vec(),
            Self::Main => Preset::MAIN.to_vec(),
            Self::One(preset) => vec![preset],
        };
        each_once(args.iter().flat_map(each))
    }
}

pub(super) fn preset() -> impl TypedValueParser<Value = PresetArg> {
    let main = PossibleValue::new("main").help("one for each way to compress and reduce");
    let all = PossibleValue::new("all").help("every preset");
    let one = |&preset: &Preset| {
        (PossibleValue::new(preset.name()).help(preset.title()), PresetArg::One(preset))
    };
    let several = [(main, PresetArg::Main), (all, PresetArg::All)];
    by_name(several.into_iter().chain(Preset::ALL.iter().map(one)))
}

/// Returns a note about presets whose codec does not support this type. Their calls use the raw
/// codec instead.
pub fn note(presets: &[Preset], dtype: &str) -> Option<String> {
    let dtype = DType::ALL.iter().copied().find(|known| known.name() == dtype)?;
    let codec = |preset: Preset| preset.plan(Collective::AllReduce, Bound::Absolute(1.0)).codec;
    let others = presets.iter().filter(|preset| !codec(**preset).is_for(dtype));
    let names: Vec<_> = others.map(|preset| preset.name()).collect();
    let codecs = if names.len() == 1 { "codec is" } else { "codecs are" };
    (!names.is_empty()).then(|| {
        format!("{}: the {codecs} not for {dtype}, so raw is used instead", names.join(", "))
    })
}

pub(super) fn pipeline() -> impl TypedValueParser<Value = Pipeline> {
    by_name(pipeline::ALL.map(|known| (PossibleValue::new(known.name), known)))
}
