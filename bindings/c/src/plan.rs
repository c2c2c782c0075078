//! Conversion of plans: from text to `fwPlan`, and from `fwPlan` to core's plan.
//!
//! Values lose precision only if the plan asks for it. The default is exact. These functions refuse
//! a plan that contradicts itself: an exact mode with a bound, or a codec that needs a bound
//! without one.

use std::ffi::c_char;

use foldwire::codec::{CodecId, Loss};
use foldwire::schedule::{self, Schedule};
use foldwire::{Bound, Plan, Rounding, Scope};

use crate::errors::ApiError;
use crate::ffi::types::*;

/// The exact plan, with the default of every other member.
pub(crate) const EXACT: fwPlan = fwPlan {
    size: size_of::<fwPlan>(),
    mode: FW_EXACT,
    bound_kind: FW_NO_BOUND,
    bound: 0.0,
    scope: FW_EACH_OPERAND,
    setting: 0,
    codec: [0; FW_NAME_BYTES],
    schedule: [0; FW_NAME_BYTES],
    shape: [0; 3],
    exact_below: 0,
    is_unbiased: 0,
    seed: 0,
    fill: 0.0,
    fill_kind: FW_NO_FILL,
    reserved: 0,
};

/// Copies a name to a C buffer with a terminating 0. Longer names are truncated.
pub(crate) fn c_name(name: &str) -> [c_char; FW_NAME_BYTES] {
    let mut buffer = [0; FW_NAME_BYTES];
    let end = FW_NAME_BYTES - 1;
    buffer[..end].iter_mut().zip(name.bytes()).for_each(|(to, byte)| *to = byte as c_char);
    buffer
}

/// Reads a name from a C buffer.
fn name_of(buffer: &[c_char]) -> String {
    buffer.iter().map(|&c| c as u8).take_while(|&byte| byte != 0).map(char::from).collect()
}

/// Finds the item with this name.
///
/// # Errors
/// If there is none; the message lists all names.
fn named<X: Copy>(
    what: &str,
    name: &str,
    all: &[X],
    name_of: impl Fn(X) -> &'static str,
) -> Result<X, ApiError> {
    let found = all.iter().copied().find(|&one| name_of(one) == name);
    found.ok_or_else(|| {
        let names: Vec<&str> = all.iter().map(|&one| name_of(one)).collect();
        ApiError::argument(format!("unknown {what} `{name}`; there are {}", names.join(", ")))
    })
}

fn codec(name: &str) -> Result<CodecId, ApiError> {
    named("codec", name, CodecId::OF_ARRAYS, CodecId::name)
}

fn schedule(name: &str) -> Result<&'static dyn Schedule, ApiError> {
    named("schedule", name, schedule::ALL, Schedule::name)
}

/// Returns the error bound of a plan.
pub(crate) fn bound_of(plan: &fwPlan) -> Result<Option<Bound>, ApiError> {
    let bound = match plan.bound_kind {
        FW_NO_BOUND if plan.bound == 0.0 => return Ok(None),
        FW_NO_BOUND => {
            return Err(ApiError::argument("the plan has a bound without a kind; set bound_kind"));
        }
        FW_ABSOLUTE => Bound::Absolute(plan.bound),
        FW_RELATIVE => Bound::Relative(plan.bound),
        FW_PSNR => Bound::Psnr(plan.bound),
        kind => return Err(ApiError::argument(format!("{kind} is not a kind of bound"))),
    };
    Ok(Some(bound))
}

/// Converts a plan to core's plan.
///
/// # Errors
/// If a member is invalid, or members contradict each other.
pub(crate) fn to_core(plan: &fwPlan) -> Result<Plan, ApiError> {
    let (bound, name) = (bound_of(plan)?, name_of(&plan.codec));
    let codec = if name.is_empty() { None } else { Some(codec(&name)?) };
    let refuse = |fault: &str| Err(ApiError::argument(format!("this plan {fault}")));
    let mut made = match (plan.mode, bound, codec) {
        (FW_EXACT | FW_LOSSLESS, Some(_), _) => {
            return refuse(
                "is exact or lossless and has a bound; set its mode to FW_COMPRESS or FW_AUTO",
            );
        }
        (FW_EXACT, None, None | Some(CodecId::Raw)) => Plan::raw(),
        (FW_EXACT, None, Some(_)) => {
            return refuse("is exact and has a codec; set its mode to FW_LOSSLESS or FW_COMPRESS");
        }
        (FW_LOSSLESS, None, None) => Plan::lossless(),
        (FW_LOSSLESS, None, Some(codec)) if codec.is_exact() => Plan::lossless().with_codec(codec),
        (FW_LOSSLESS, None, Some(_)) => return refuse("is lossless, but its codec is lossy"),
        (FW_COMPRESS, Some(bound), None) => Plan::foldwire(bound),
        (FW_COMPRESS, Some(bound), Some(codec)) if codec.loss() == Loss::Bound => {
            Plan::foldwire(bound).with_codec(codec)
        }
        (FW_COMPRESS, Some(_), Some(_)) => {
            return refuse("has a bound that its codec does not support; leave one of them out");
        }
        // Such a codec has no bound, but a setting that determines its error. The bound of 1 is
        // only a placeholder.
        (FW_COMPRESS, None, Some(codec)) if codec.loss() != Loss::Bound => {
            let mut plan = Plan::foldwire(Bound::Absolute(1.0)).with_codec(codec);
            plan.bound = None;
            plan
        }
        (FW_AUTO, Some(bound), None) => Plan::auto(bound),
        (FW_AUTO, _, Some(_)) => {
            return refuse("is automatic and chooses its codec itself; leave the codec out");
        }
        (FW_COMPRESS | FW_AUTO, None, _) => return refuse("needs a bound, for example `rel:1e-4`"),
        (mode, ..) => return Err(ApiError::argument(format!("{mode} is not a mode of a plan"))),
    };
    made.setting = u16::try_from(plan.setting).map_err(|_| {
        ApiError::argument(format!(
            "codec setting {} is too large; the largest is 65535",
            plan.setting
        ))
    })?;
    made.scope = match plan.scope {
        FW_EACH_OPERAND => Scope::PerOperand,
        FW_RESULT => Scope::Result,
        scope => return Err(ApiError::argument(format!("{scope} is not a scope of a bound"))),
    };
    let name = name_of(&plan.schedule);
    if !name.is_empty() {
        made = made.with_schedule(schedule(&name)?);
    }
    if plan.is_unbiased != 0 {
        made = made.with_rounding(Rounding::unbiased(plan.seed));
    }
    if plan.shape != [0; 3] {
        made = made.with_shape(&plan.shape);
    }
    made = match plan.fill_kind {
        FW_NO_FILL if plan.fill == 0.0 => made,
        FW_NO_FILL => return refuse("has a fill value without a kind; set fill_kind"),
        FW_FILL_MISSING if made.codec.loss() == Loss::Setting => {
            return refuse("has a fill value, which its codec does not keep; choose another codec");
        }
        FW_FILL_MISSING => made.with_fill(plan.fill),
        FW_FILL_NUMBER => made.with_fill_as_number(plan.fill),
        kind => return Err(ApiError::argument(format!("{kind} is not a kind of fill value"))),
    };
    if plan.reserved != 0 {
        return Err(ApiError::argument("fwPlan.reserved must be 0"));
    }
    Ok(made.with_exact_below(plan.exact_below))
}

/// Parses a comma-separated list of words: a mode (`exact`, `lossless`, `compress`, `auto`), a
/// bound (`abs:0.1`, `rel:1e-4`, `psnr:60`), `codec:dense`, `codec:truncate:40`, `schedule:ring`,
/// `scope:result`, `below:4096`, `shape:110x64x128`, `unbiased:17`, `fill:-9999`,
/// `fill:1e20:number`. Without a mode, a plan with a
/// bound or codec compresses, and any other plan is exact.
///
/// # Errors
/// If a word is unknown, appears twice, or contradicts another one.
pub(crate) fn parse(text: &str) -> Result<fwPlan, ApiError> {
    let mut plan = EXACT;
    let (mut mode, mut seen) = (None, Vec::new());
    for word in text.split(',').map(str::trim) {
        let (key, value) = word.split_once(':').unwrap_or((word, ""));
        if seen.contains(&key) {
            return Err(ApiError::argument(format!("`{key}` appears twice in the plan")));
        }
        seen.push(key);
        match key {
            "exact" | "raw" | "lossless" | "compress" | "auto" if word == key => {
                let new = match key {
                    "lossless" => FW_LOSSLESS,
                    "compress" => FW_COMPRESS,
                    "auto" => FW_AUTO,
                    _ => FW_EXACT,
                };
                if mode.replace(new).is_some() {
                    return Err(ApiError::argument(format!(
                        "`{word}` is a second mode; a plan has one mode"
                    )));
                }
            }
            "abs" | "rel" | "psnr" => {
                let bound: Bound = word
                    .parse()
                    .map_err(|error| ApiError::argument(format!("`{word}`: {error}")))?;
                if plan.bound_kind != FW_NO_BOUND {
                    return Err(ApiError::argument(format!(
                        "`{word}` is a second bound; a plan has one bound"
                    )));
                }
                (plan.bound_kind, plan.bound) = match bound {
                    Bound::Relative(bound) => (FW_RELATIVE, bound),
                    Bound::Psnr(bound) => (FW_PSNR, bound),
                    Bound::Absolute(bound) => (FW_ABSOLUTE, bound),
                    _ => {
                        return Err(ApiError::argument(format!(
                            "`{word}` is not a known kind of bound"
                        )));
                    }
                };
            }
            "codec" => {
                let (name, setting) = value.split_once(':').unwrap_or((value, "0"));
                (plan.codec, plan.setting) = (c_name(codec(name)?.name()), number(setting)?);
            }
            "schedule" => plan.schedule = c_name(schedule(value)?.name()),
            "scope" => {
                plan.scope = match value {
                    "operand" => FW_EACH_OPERAND,
                    "result" => FW_RESULT,
                    _ => return Err(ApiError::argument("a scope is `operand` or `result`")),
                };
            }
            "below" => plan.exact_below = number(value)?,
            "shape" => plan.shape = shape(value)?,
            "unbiased" => (plan.is_unbiased, plan.seed) = (1, number(value)?),
            "fill" => (plan.fill, plan.fill_kind) = fill(value)?,
            _ => {
                return Err(ApiError::argument(format!(
                    "`{word}` is not a word of a plan; {FORMS}"
                )));
            }
        }
    }
    let needs_codec = plan.bound_kind != FW_NO_BOUND || plan.codec[0] != 0;
    plan.mode = mode.unwrap_or(if needs_codec { FW_COMPRESS } else { FW_EXACT });
    // Report contradictions here, not only at the first call.
    to_core(&plan)?;
    Ok(plan)
}

const FORMS: &str = "write exact, lossless, compress or auto; abs:X, rel:X or psnr:X; \
                     codec:NAME[:SETTING], schedule:NAME, scope:result, below:BYTES, \
                     shape:110x64x128, unbiased:SEED, fill:VALUE[:number]";

/// Parses a whole number.
fn number<N: std::str::FromStr>(text: &str) -> Result<N, ApiError> {
    text.parse().map_err(|_| ApiError::argument(format!("`{text}` is not a whole number in range")))
}

/// Parses a fill value and its kind, such as `-9999` or `1e20:number`.
fn fill(text: &str) -> Result<(f64, fwFillKind), ApiError> {
    let (value, kind) = match text.split_once(':') {
        Some((value, "number")) => (value, FW_FILL_NUMBER),
        _ => (text, FW_FILL_MISSING),
    };
    let refused = |_| ApiError::argument(format!("`{text}` is not a fill value, such as -9999"));
    Ok((value.parse().map_err(refused)?, kind))
}

/// Parses a shape such as `110x64x128`. Returns the last three dimensions, with leading 1s if there
/// are fewer.
fn shape(text: &str) -> Result<[usize; 3], ApiError> {
    let dimensions = text.split('x').map(number).collect::<Result<Vec<usize>, ApiError>>()?;
    let mut shape = [1; 3];
    let last = &dimensions[dimensions.len().saturating_sub(3)..];
    shape[3 - last.len()..].copy_from_slice(last);
    if shape.contains(&0) {
        Err(ApiError::argument("a dimension of the shape is 0"))
    } else {
        Ok(shape)
    }
}
