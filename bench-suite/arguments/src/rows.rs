//! Parsers of schedules, presets and pipelines by name.

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use foldwire::pipeline::{self, Pipeline};
use foldwire::schedule;
use foldwire::{Bound, Collective, DType, Preset};

use super::schedule::ScheduleName;

/// Values of `--schedule` where all schedules may be compared.
#[derive(Debug, Clone, Copy)]
pub enum ScheduleArg {
    /// All schedules that can do the collective.
    All,
    /// A named schedule.
    One(ScheduleName),
}

pub(super) fn schedules() -> impl TypedValueParser<Value = ScheduleArg> {
    let names = schedule::ALL.iter().map(|known| PossibleValue::new(known.name()));
    let all = PossibleValue::new("all").help("every one that can do the collective");
    PossibleValuesParser::new([all].into_iter().chain(names)).map(|text| {
        let found = schedule::ALL.iter().find(|known| known.name() == text);
        found.map_or(ScheduleArg::All, |&known| ScheduleArg::One(ScheduleName(known)))
    })
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
        distinct(args.iter().flat_map(each))
    }
}

/// The presets in order, each once.
fn distinct(requested: impl Iterator<Item = Preset>) -> Vec<Preset> {
    let mut presets = Vec::new();
    for preset in requested {
        if !presets.contains(&preset) {
            presets.push(preset);
        }
    }
    presets
}

pub(super) fn preset() -> impl TypedValueParser<Value = PresetArg> {
    let one = |preset: &Preset| PossibleValue::new(preset.name()).help(preset.title());
    let all = [
        PossibleValue::new("main").help("one for each way to compress and reduce"),
        PossibleValue::new("all").help("every preset"),
    ];
    let names = all.into_iter().chain(Preset::ALL.iter().map(one));
    PossibleValuesParser::new(names).map(|name| {
        let found = Preset::ALL.iter().find(|preset| preset.name() == name);
        match found {
            Some(&preset) => PresetArg::One(preset),
            None if name == "main" => PresetArg::Main,
            None => PresetArg::All,
        }
    })
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
    PossibleValuesParser::new(pipeline::ALL.map(|known| known.name)).map(|name| {
        let found = pipeline::ALL.into_iter().find(|known| known.name == name);
        found.expect("the parser lets nothing else pass")
    })
}
