//! Codecs as users name them: `fz-light`, or with a setting `truncate:40`.

use std::fmt;
use std::str::FromStr;

use foldwire::codec::{CodecId, CodecParams, Loss};
use foldwire::{Bound, DType, Plan, pipeline};
use foldwire_fields::usage::UsageError;

/// A codec and its setting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CodecArg {
    /// The codec.
    pub codec: CodecId,
    /// Its setting. 0 is the default.
    pub setting: u16,
}

impl CodecArg {
    /// All codecs with their default settings.
    pub fn all() -> impl Iterator<Item = Self> {
        CodecId::ALL.iter().map(|&codec| codec.into())
    }

    /// The plan with this codec.
    pub fn of_plan(self, plan: Plan) -> Plan {
        plan.with_codec(self.codec).with_setting(self.setting)
    }

    /// The codec parameters with this setting.
    pub fn of_params(self, params: CodecParams) -> CodecParams {
        params.with_setting(self.setting)
    }

    /// Refuses element types that the codec does not support, because they would be sent
    /// uncompressed.
    ///
    /// # Errors
    /// A [`UsageError`] that names the alternatives.
    pub fn check(self, dtype: DType) -> Result<(), UsageError> {
        if self.is_for(dtype) {
            return Ok(());
        }
        let name = self.codec.name();
        let others: Vec<&str> = Self::all()
            .filter(|other| other.is_for(dtype))
            .map(|other| other.codec.name())
            .collect();
        let others = others.join(", ");
        Err(UsageError::new(if self.codec.is_for(dtype) {
            let has = |setting: &u16| self.codec.setting(dtype, *setting).is_some();
            let most = (1..=u16::MAX).take_while(has).last().unwrap_or(0);
            format!(
                "codec {name} on {dtype} takes a setting from 1 to {most}, not {}",
                self.setting
            )
        } else {
            format!("codec {name} is not for {dtype}; for {dtype} there are {others}")
        }))
    }

    /// Returns whether the codec supports this type with this setting.
    pub fn is_for(self, dtype: DType) -> bool {
        self.codec.is_for(dtype) && self.codec.setting(dtype, self.setting).is_some()
    }
}

/// Returns a name and a plan for each variant of a program's messages of this type: `raw`, and then
/// fz-light, or each of these codecs, within each bound. A codec that keeps no bound has one
/// variant.
///
/// # Errors
/// As [`CodecArg::check`].
pub fn variants(
    codecs: &[CodecArg],
    bounds: &[Bound],
    dtype: DType,
) -> Result<Vec<(String, Plan)>, UsageError> {
    codecs.iter().try_for_each(|codec| codec.check(dtype))?;
    let within = |bound: &Bound| (bound.to_string(), Plan::foldwire(*bound));
    let of_codec = |codec: &CodecArg| -> Vec<(String, Plan)> {
        if codec.codec.loss() == Loss::Bound {
            let named = |(bound, plan)| (format!("{codec} {bound}"), codec.of_plan(plan));
            return bounds.iter().map(within).map(named).collect();
        }
        let plan = Plan::raw().with_pipeline(pipeline::PER_HOP);
        vec![(codec.to_string(), codec.of_plan(plan))]
    };
    let mut variants = vec![("raw".to_owned(), Plan::raw())];
    match codecs {
        [] => variants.extend(bounds.iter().map(within)),
        _ => variants.extend(codecs.iter().flat_map(of_codec)),
    }
    Ok(variants)
}

impl From<CodecId> for CodecArg {
    /// Uses the default setting.
    fn from(codec: CodecId) -> Self {
        Self { codec, setting: 0 }
    }
}

impl fmt::Display for CodecArg {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.codec.name())?;
        if self.setting == 0 { Ok(()) } else { write!(f, ":{}", self.setting) }
    }
}

impl FromStr for CodecArg {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Self::among(CodecId::ALL, text)
    }
}

impl CodecArg {
    /// Parses a codec of compressed arrays.
    ///
    /// # Errors
    /// As [`from_str`](FromStr::from_str).
    pub fn of_array(text: &str) -> Result<Self, String> {
        Self::among(CodecId::OF_ARRAYS, text)
    }

    fn among(codecs: &[CodecId], text: &str) -> Result<Self, String> {
        let (name, setting) = text.split_once(':').unwrap_or((text, "0"));
        let names = || codecs.iter().map(|codec| codec.name()).collect::<Vec<_>>().join(", ");
        let codec = codecs.iter().find(|codec| codec.name() == name);
        let codec = *codec.ok_or_else(|| format!("there is no codec `{name}`, but {}", names()))?;
        let has = |&setting: &u16| {
            [DType::F32, DType::F64].iter().any(|&dtype| codec.setting(dtype, setting).is_some())
        };
        match setting.parse().ok().filter(has) {
            Some(setting) => Ok(Self { codec, setting }),
            None => Err(match (1..=u16::MAX).take_while(has).last() {
                Some(most) => format!("codec {name} takes a setting from 1 to {most}"),
                None => format!("codec {name} takes no setting"),
            }),
        }
    }
}

/// Parses the codecs of a command-line value: a name, or `all`.
pub fn codings(text: &str) -> Result<Vec<CodecArg>, String> {
    if text == "all" { Ok(CodecArg::all().collect()) } else { Ok(vec![text.parse()?]) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_codec_cannot_code_is_refused_with_what_can_be() {
        let check = |text: &str, dtype| {
            let coding: CodecArg = text.parse().unwrap();
            coding.check(dtype).map_err(|error| error.to_string())
        };
        assert_eq!(check("dense", DType::F32), Ok(()));
        let message = check("dense", DType::F16).unwrap_err();
        assert!(message.contains("not for f16") && message.contains("fz-light"), "{message}");
        let message = check("truncate:23", DType::F32).unwrap_err();
        assert!(message.ends_with("on f32 takes a setting from 1 to 22, not 23"), "{message}");
        assert_eq!(check("truncate:23", DType::F64), Ok(()));
    }

    #[test]
    fn codecs_are_read_as_they_are_written() {
        for text in ["raw", "fz-light", "truncate", "truncate:40"] {
            assert_eq!(text.parse::<CodecArg>().map(|coding| coding.to_string()), Ok(text.into()));
        }
        for wrong in ["", "zip", "raw:1", "truncate:52", "truncate:x", "truncate:"] {
            assert!(wrong.parse::<CodecArg>().is_err(), "{wrong}");
        }
        assert_eq!(codings("all").map(|all| all.len()), Ok(CodecId::ALL.len()));
    }
}
