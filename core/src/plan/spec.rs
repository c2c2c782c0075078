//! Plans as users write them: `rel:1e-4,schedule:ring`.
//!
//! Languages other than Rust make their plans from this, so all of them take the same words and
//! refuse the same contradictions. The default is exact: values lose precision only if the text
//! asks for it.

use super::{Plan, Rounding};
use crate::bound::{Bound, ParseBoundError, Scope};
use crate::codec::{CodecId, Loss};
use crate::fill::Fill;
use crate::schedule::{self, Schedule};
use crate::transport::MAX_LANES;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt;
use core::str::FromStr;

/// The words of a plan. [`plan`](Self::plan) checks that they do not contradict each other.
///
/// # Examples
/// ```
/// use foldwire::plan::PlanSpec;
///
/// let plan = "rel:1e-4,shape:110x64x128,schedule:ring".parse::<PlanSpec>()?.plan()?;
/// assert_eq!(plan.bound, Some(foldwire::Bound::Relative(1e-4)));
/// assert!("exact,rel:1e-4".parse::<PlanSpec>().is_err());
/// # Ok::<(), foldwire::plan::ParsePlanError>(())
/// ```
#[derive(Clone, Copy, Default)]
pub struct PlanSpec {
    /// Exact or compressed.
    pub mode: Mode,
    /// The bound.
    pub bound: Option<Bound>,
    /// The codec; `None`: the default of the mode.
    pub codec: Option<CodecId>,
    /// Setting of the codec; 0: its default.
    pub setting: u16,
    /// Values that the bound applies to.
    pub scope: Scope,
    /// The schedule; `None`: chosen for each call.
    pub schedule: Option<&'static dyn Schedule>,
    /// Most lanes of a call; 0: as many as the communicator has.
    pub lanes: usize,
    /// Arrays of fewer bytes travel unchanged.
    pub exact_below: usize,
    /// The last three dimensions of the array, with leading 1s if it has fewer.
    pub shape: Option<[usize; 3]>,
    /// Rounding of each rank's input.
    pub rounding: Rounding,
    /// Value that stands for missing data.
    pub fill: Option<Fill>,
    /// True if data are refused in which a fill value is suspected.
    pub refuses_fill: bool,
}

impl fmt::Debug for PlanSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.plan().fmt(f)
    }
}

/// Mode of a plan.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Mode {
    /// Values travel uncompressed.
    #[default]
    Exact,
    /// Values are compressed, and every bit is kept.
    Lossless,
    /// Values are compressed within the bound, or with a codec's setting.
    Compress,
    /// Each call is exact or compressed, whichever is expected to be faster.
    Auto,
}

/// Contradiction between words of a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PlanConflict {
    /// An exact or lossless plan has a bound.
    #[error("this plan is exact or lossless and has a bound; make its mode compress or auto")]
    ExactWithBound,
    /// An exact plan has a codec.
    #[error("this plan is exact and has a codec; make its mode lossless or compress")]
    ExactWithCodec,
    /// A lossless plan has a lossy codec.
    #[error("this plan is lossless, but its codec is lossy")]
    LosslessWithLoss,
    /// The codec keeps no bound.
    #[error("this plan has a bound that its codec does not support; leave one of them out")]
    BoundWithSetting,
    /// An automatic plan has a codec.
    #[error("this plan is automatic and chooses its codec itself; leave the codec out")]
    AutoWithCodec,
    /// The plan has no bound.
    #[error("this plan needs a bound, for example `rel:1e-4`")]
    NoBound,
    /// The codec does not keep a fill value.
    #[error("this plan has a fill value, which its codec does not keep; choose another codec")]
    FillWithSetting,
}

/// Reason why a text is not a plan.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum ParsePlanError {
    /// The word does not belong to a plan.
    #[error(
        "`{word}` is not a word of a plan; write exact, lossless, compress or auto; abs:X, rel:X \
         or psnr:X; codec:NAME[:SETTING], schedule:NAME, lanes:N, scope:operand or scope:result, \
         below:BYTES, shape:110x64x128, unbiased:SEED, fill:VALUE[:number] or fill:refuse"
    )]
    Word {
        /// The word.
        word: String,
    },
    /// The plan has two words of one kind.
    #[error("`{word}` is a second {kind}; a plan has one {kind}")]
    Second {
        /// The second word.
        word: String,
        /// Kind of both words.
        kind: &'static str,
    },
    /// The bound is invalid.
    #[error("`{word}`: {error}")]
    Bound {
        /// The word.
        word: String,
        /// The reason.
        error: ParseBoundError,
    },
    /// No codec or schedule has this name.
    #[error("unknown {kind} `{name}`; there are {known}")]
    Name {
        /// Kind of thing.
        kind: &'static str,
        /// The name.
        name: String,
        /// All names.
        known: String,
    },
    /// The text is not a number in range.
    #[error("`{text}` is not a whole number in range")]
    Number {
        /// The text.
        text: String,
    },
    /// The text is not a scope.
    #[error("a scope is `operand` or `result`")]
    Scope,
    /// A dimension is 0.
    #[error("a dimension of the shape is 0")]
    Shape,
    /// The text is not a fill value.
    #[error("`{text}` is not a fill value, such as -9999, or `refuse`")]
    Fill {
        /// The text.
        text: String,
    },
    /// Words contradict each other.
    #[error(transparent)]
    Conflict(#[from] PlanConflict),
}

impl PlanSpec {
    /// Returns the plan.
    ///
    /// # Errors
    /// If words contradict each other.
    pub fn plan(&self) -> Result<Plan, PlanConflict> {
        let mut plan = match (self.mode, self.bound, self.codec) {
            (Mode::Exact | Mode::Lossless, Some(_), _) => return Err(PlanConflict::ExactWithBound),
            (Mode::Exact, None, None | Some(CodecId::Raw)) => Plan::raw(),
            (Mode::Exact, None, Some(_)) => return Err(PlanConflict::ExactWithCodec),
            (Mode::Lossless, None, None) => Plan::lossless(),
            (Mode::Lossless, None, Some(codec)) if codec.is_exact() => {
                Plan::lossless().with_codec(codec)
            }
            (Mode::Lossless, None, Some(_)) => return Err(PlanConflict::LosslessWithLoss),
            (Mode::Compress, Some(bound), None) => Plan::foldwire(bound),
            (Mode::Compress, Some(bound), Some(codec)) if codec.loss() == Loss::Bound => {
                Plan::foldwire(bound).with_codec(codec)
            }
            (Mode::Compress, Some(_), Some(_)) => return Err(PlanConflict::BoundWithSetting),
            // Such a codec has no bound, but a setting that determines its error. The bound of 1 is
            // only a placeholder.
            (Mode::Compress, None, Some(codec)) if codec.loss() != Loss::Bound => {
                let plan = Plan::foldwire(Bound::Absolute(1.0)).with_codec(codec);
                Plan { bound: None, ..plan }
            }
            (Mode::Auto, Some(bound), None) => Plan::auto(bound),
            (Mode::Auto, _, Some(_)) => return Err(PlanConflict::AutoWithCodec),
            (Mode::Compress | Mode::Auto, None, _) => return Err(PlanConflict::NoBound),
        };
        if self.fill.is_some_and(|fill| !fill.is_number) && plan.codec.loss() == Loss::Setting {
            return Err(PlanConflict::FillWithSetting);
        }
        if let Some(shape) = self.shape {
            plan = plan.with_shape(&shape);
        }
        let Self { setting, scope, schedule, exact_below, rounding, .. } = *self;
        let Self { lanes, fill, refuses_fill, .. } = *self;
        let plan = Plan { lanes, fill, refuses_fill, ..plan };
        Ok(Plan { setting, scope, schedule, exact_below, rounding, ..plan })
    }
}

impl FromStr for PlanSpec {
    type Err = ParsePlanError;

    /// Parses a comma-separated list of words: a mode (`exact`, `lossless`, `compress`, `auto`), a
    /// bound (`abs:0.1`, `rel:1e-4`, `psnr:60`), `codec:dense`, `codec:truncate:40`,
    /// `schedule:ring`, `lanes:1`, `scope:result`, `below:4096`, `shape:110x64x128`, `unbiased:17`,
    /// `fill:-9999`, `fill:1e20:number`, `fill:refuse`. Without a mode, a plan with a bound or
    /// codec compresses, and any other plan is exact.
    ///
    /// # Errors
    /// If a word is unknown, appears twice, or contradicts another one.
    fn from_str(text: &str) -> Result<Self, ParsePlanError> {
        let (mut spec, mut mode, mut seen) = (Self::default(), None, Vec::new());
        for word in text.split(',').map(str::trim) {
            let (key, value) = word.split_once(':').unwrap_or((word, ""));
            let kind = match key {
                "exact" | "raw" | "lossless" | "compress" | "auto" if word == key => "mode",
                "abs" | "rel" | "psnr" => "bound",
                "codec" => "codec",
                "schedule" => "schedule",
                "lanes" => "limit of lanes",
                "scope" => "scope",
                "below" => "limit",
                "shape" => "shape",
                "unbiased" => "seed",
                "fill" if value == "refuse" => "refusal",
                "fill" => "fill value",
                _ => return Err(ParsePlanError::Word { word: word.into() }),
            };
            if seen.contains(&kind) {
                return Err(ParsePlanError::Second { word: word.into(), kind });
            }
            seen.push(kind);
            match key {
                "lossless" => mode = Some(Mode::Lossless),
                "compress" => mode = Some(Mode::Compress),
                "auto" => mode = Some(Mode::Auto),
                "codec" => {
                    let (name, setting) = value.split_once(':').unwrap_or((value, "0"));
                    spec.codec = Some(codec_named(name)?);
                    spec.setting = number(setting)?;
                }
                "schedule" => spec.schedule = Some(schedule_named(value)?),
                "lanes" => spec.lanes = lanes(value)?,
                "scope" => {
                    spec.scope = match value {
                        "operand" => Scope::PerOperand,
                        "result" => Scope::Result,
                        _ => return Err(ParsePlanError::Scope),
                    };
                }
                "below" => spec.exact_below = number(value)?,
                "shape" => spec.shape = Some(shape(value)?),
                "unbiased" => spec.rounding = Rounding::unbiased(number(value)?),
                "fill" if value == "refuse" => spec.refuses_fill = true,
                "fill" => spec.fill = Some(fill(value)?),
                _ if kind == "bound" => {
                    let invalid = |error| ParsePlanError::Bound { word: word.into(), error };
                    spec.bound = Some(word.parse().map_err(invalid)?);
                }
                _ => mode = Some(Mode::Exact),
            }
        }
        let compresses = spec.bound.is_some() || spec.codec.is_some();
        spec.mode = mode.unwrap_or(if compresses { Mode::Compress } else { Mode::Exact });
        // Report contradictions here, not only at the first call.
        spec.plan()?;
        Ok(spec)
    }
}

/// Finds the codec of this name.
///
/// # Errors
/// If there is none; the message lists all names.
pub fn codec_named(name: &str) -> Result<CodecId, ParsePlanError> {
    named("codec", name, CodecId::OF_ARRAYS, CodecId::name)
}

/// Finds the schedule of this name.
///
/// # Errors
/// As [`codec_named`].
pub fn schedule_named(name: &str) -> Result<&'static dyn Schedule, ParsePlanError> {
    named("schedule", name, schedule::ALL, Schedule::name)
}

fn named<X: Copy>(
    kind: &'static str,
    name: &str,
    all: &[X],
    name_of: impl Fn(X) -> &'static str,
) -> Result<X, ParsePlanError> {
    let found = all.iter().copied().find(|&one| name_of(one) == name);
    found.ok_or_else(|| {
        let known: Vec<&str> = all.iter().map(|&one| name_of(one)).collect();
        ParsePlanError::Name { kind, name: name.to_string(), known: known.join(", ") }
    })
}

/// Parses a whole number.
fn number<N: FromStr>(text: &str) -> Result<N, ParsePlanError> {
    text.parse().map_err(|_| ParsePlanError::Number { text: text.into() })
}

/// Parses a number of lanes.
fn lanes(text: &str) -> Result<usize, ParsePlanError> {
    let is_possible = |n: &usize| (1..=MAX_LANES).contains(n);
    number(text).ok().filter(is_possible).ok_or(ParsePlanError::Number { text: text.into() })
}

/// Parses a fill value and its meaning, such as `-9999` or `1e20:number`.
fn fill(text: &str) -> Result<Fill, ParsePlanError> {
    let (value, is_number) = match text.split_once(':') {
        Some((value, "number")) => (value, true),
        _ => (text, false),
    };
    let value = value.parse().map_err(|_| ParsePlanError::Fill { text: text.into() })?;
    Ok(Fill { value, is_number })
}

/// Parses a shape such as `110x64x128`. Returns the last three dimensions, with leading 1s if there
/// are fewer.
fn shape(text: &str) -> Result<[usize; 3], ParsePlanError> {
    let dimensions = text.split('x').map(number).collect::<Result<Vec<usize>, _>>()?;
    let mut shape = [1; 3];
    let last = &dimensions[dimensions.len().saturating_sub(3)..];
    shape[3 - last.len()..].copy_from_slice(last);
    if shape.contains(&0) { Err(ParsePlanError::Shape) } else { Ok(shape) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<PlanSpec, ParsePlanError> {
        text.parse()
    }

    #[test]
    fn words_make_a_plan_in_any_order() {
        let text = "rel:1e-4,codec:dense,shape:110x64x128,below:4096,scope:result,fill:1e20:number";
        let plan = parse(text).unwrap().plan().unwrap();
        assert_eq!((plan.codec, plan.strides), (CodecId::Dense, [128, 64 * 128]));
        assert_eq!((plan.exact_below, plan.scope), (4096, Scope::Result));
        assert_eq!(plan.fill, Some(Fill { value: 1e20, is_number: true }));
        assert!(!plan.refuses_fill);
        let both = parse("rel:1e-4,fill:-9999,fill:refuse").unwrap().plan().unwrap();
        assert_eq!(both, Plan::foldwire(Bound::Relative(1e-4)).with_fill(-9999.0).refusing_fill());
        let turned: Vec<&str> = text.split(',').rev().collect();
        assert_eq!(parse(&turned.join(", ")).unwrap().plan(), Ok(plan));
        assert_eq!(parse("raw").unwrap().plan(), Ok(Plan::raw()));
        assert_eq!(parse("lanes:8").unwrap().plan(), Ok(Plan::raw().with_lanes(8)));
        assert_eq!(parse("auto,abs:1").unwrap().plan(), Ok(Plan::auto(Bound::Absolute(1.0))));
        let by_setting = parse("codec:truncate:40").unwrap().plan().unwrap();
        assert_eq!((by_setting.setting, by_setting.bound), (40, None));
    }

    #[test]
    fn words_that_contradict_each_other_are_refused() {
        use PlanConflict::*;
        for (text, conflict) in [
            ("exact,rel:1e-3", ExactWithBound),
            ("lossless,abs:1", ExactWithBound),
            ("exact,codec:mpc", ExactWithCodec),
            ("lossless,codec:truncate", LosslessWithLoss),
            ("abs:1,codec:mpc", BoundWithSetting),
            ("auto,rel:1,codec:dense", AutoWithCodec),
            ("auto", NoBound),
            ("codec:dense", NoBound),
            ("codec:truncate:40,fill:1", FillWithSetting),
        ] {
            assert_eq!(parse(text).err(), Some(conflict.into()), "{text}");
        }
    }

    #[test]
    fn a_message_says_which_word_is_wrong() {
        for (text, message) in [
            ("rel:1,abs:1", "`abs:1` is a second bound; a plan has one bound"),
            ("exact,exact", "`exact` is a second mode; a plan has one mode"),
            ("shape:3x0", "a dimension of the shape is 0"),
            (
                "lanes:1,lanes:2",
                "`lanes:2` is a second limit of lanes; a plan has one limit of lanes",
            ),
            ("lanes:0", "`0` is not a whole number in range"),
            ("lanes:9", "`9` is not a whole number in range"),
            ("below:-1", "`-1` is not a whole number in range"),
            ("codec:truncate:70000", "`70000` is not a whole number in range"),
            ("scope:all", "a scope is `operand` or `result`"),
            ("fill:none", "`none` is not a fill value, such as -9999, or `refuse`"),
        ] {
            assert_eq!(parse(text).err().unwrap().to_string(), message);
        }
        for (text, part) in [
            ("", "`` is not a word of a plan; write exact"),
            ("exact:1", "`exact:1` is not a word"),
            ("rel:0", "`rel:0`: "),
            ("codec:zip", "unknown codec `zip`; there are raw, "),
            ("schedule:round", "unknown schedule `round`; there are ring, "),
        ] {
            let message = parse(text).err().unwrap().to_string();
            assert!(message.contains(part), "{message}");
        }
    }
}
