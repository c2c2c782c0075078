//! Parsers of schedules, presets and pipelines by name.

use clap::builder::{PossibleValue, TypedValueParser};
use foldwire::pipeline::{self, Pipeline};
use foldwire::{Bound, Collective, DType, Plan, Preset};
use foldwire_fields::usage::{UsageError, usage};

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

/// The presets that a command's arguments request. Some are not for calls on values of every type,
/// or not for single calls.
#[derive(Debug, Clone, Copy)]
pub struct RequestedPresets<'a> {
    requested: &'a [PresetArg],
    /// True if they are for a model, which must know the codec.
    are_predicted: bool,
}

impl<'a> RequestedPresets<'a> {
    pub(super) const fn new(requested: &'a [PresetArg]) -> Self {
        Self { requested, are_predicted: false }
    }

    pub(super) const fn for_model(requested: &'a [PresetArg]) -> Self {
        Self { requested, are_predicted: true }
    }

    /// Returns the presets for calls on values of this type, each once.
    pub fn of(self, dtype: DType) -> Vec<Preset> {
        self.all().into_iter().filter(|preset| self.why_not(*preset, dtype).is_none()).collect()
    }

    /// Refuses presets that are requested by name and are not for calls on values of this type.
    ///
    /// # Errors
    /// A [`UsageError`] that says why the first of them is not.
    pub fn check(self, dtype: DType) -> Result<(), UsageError> {
        let refusal = |arg: &PresetArg| match *arg {
            PresetArg::One(preset) => Some((preset.name(), self.why_not(preset, dtype)?)),
            PresetArg::All | PresetArg::Main => None,
        };
        self.requested
            .iter()
            .find_map(refusal)
            .map_or(Ok(()), |(name, why)| Err(usage!("preset {name} {why}; leave it out")))
    }

    /// Returns a note on the presets that [`of`](Self::of) leaves out.
    pub fn note(self, dtype: DType) -> Option<String> {
        let reason =
            |preset: Preset| Some(format!("{} {}", preset.name(), self.why_not(preset, dtype)?));
        let left_out: Vec<_> = self.all().into_iter().filter_map(reason).collect();
        (!left_out.is_empty()).then(|| format!("left out: {}", left_out.join("; ")))
    }

    fn all(self) -> Vec<Preset> {
        let each = |arg: &PresetArg| match *arg {
            PresetArg::All => Preset::ALL.to_vec(),
            PresetArg::Main => Preset::MAIN.to_vec(),
            PresetArg::One(preset) => vec![preset],
        };
        each_once(self.requested.iter().flat_map(each))
    }

    /// Returns why calls on values of this type would not be the preset's, or why no model predicts
    /// them. `None` if they are.
    fn why_not(self, preset: Preset, dtype: DType) -> Option<String> {
        if preset.inter_step(dtype).is_some() {
            return Some(
                "needs messages of consecutive steps, which `foldwire climate` has".into(),
            );
        }
        // The bound does not change the codec.
        let Plan { codec, is_auto, .. } = preset.plan(Collective::AllReduce, Bound::Absolute(1.0));
        if self.are_predicted && is_auto {
            return Some("chooses a codec for each call, so the model cannot know it".into());
        }
        let is_for_type = codec.is_for(dtype);
        (!is_for_type).then(|| format!("has codec {}, which is not for {dtype}", codec.name()))
    }
}

pub(super) fn preset() -> impl TypedValueParser<Value = PresetArg> {
    let main = PossibleValue::new("main").help("one for each way to compress and reduce");
    let all = PossibleValue::new("all").help("every preset that is for such calls");
    let one = |&preset: &Preset| {
        (PossibleValue::new(preset.name()).help(preset.title()), PresetArg::One(preset))
    };
    let several = [(main, PresetArg::Main), (all, PresetArg::All)];
    by_name(several.into_iter().chain(Preset::ALL.iter().map(one)))
}

pub(super) fn pipeline() -> impl TypedValueParser<Value = Pipeline> {
    by_name(pipeline::ALL.map(|known| (PossibleValue::new(known.name), known)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn presets_whose_calls_would_be_of_another_method_are_refused_or_left_out() {
        let check = |preset, dtype| {
            let checked = RequestedPresets::new(&[PresetArg::One(preset)]).check(dtype);
            checked.map_err(|error| error.to_string())
        };
        for preset in [Preset::CamInter, Preset::CamBoth] {
            let error = check(preset, DType::F64).unwrap_err();
            assert!(error.contains(preset.name()) && error.contains("foldwire climate"), "{error}");
        }
        assert_eq!(check(Preset::CamSp, DType::F64), Ok(()));
        let error = check(Preset::CamSp, DType::F32).unwrap_err();
        assert!(error.contains("codec demote, which is not for f32"), "{error}");
        let all = RequestedPresets::new(&[PresetArg::One(Preset::Zccl), PresetArg::All]);
        for (dtype, n_left_out) in [(DType::F64, 2), (DType::F32, 3)] {
            assert_eq!(all.check(dtype), Ok(()));
            let presets = all.of(dtype);
            assert_eq!((presets[0], presets.len()), (Preset::Zccl, Preset::ALL.len() - n_left_out));
            assert!(!presets.contains(&Preset::CamInter) && presets.contains(&Preset::CamIntra));
            let note = all.note(dtype).unwrap();
            assert_eq!(note.matches("; ").count(), n_left_out - 1, "{note}");
        }
        let main = RequestedPresets::new(&[PresetArg::Main]);
        assert_eq!((main.of(DType::F32), main.note(DType::F32)), (Preset::MAIN.to_vec(), None));
    }
}
