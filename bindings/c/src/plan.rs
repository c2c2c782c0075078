//! Conversion of plans: `fwPlan` from and to the words of core's plan, which refuses
//! contradictions.

use std::ffi::c_char;

use foldwire::codec::CodecId;
use foldwire::plan::{Mode, PlanSpec, codec_named, schedule_named};
use foldwire::schedule::Schedule;
use foldwire::transport::MAX_LANES;
use foldwire::{Bound, Fill, Plan, Rounding, Scope};

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
    lanes: 0,
    seed: 0,
    fill: 0.0,
    fill_kind: FW_NO_FILL,
    refuses_fill: 0,
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
    Ok(spec_of(plan)?.plan()?)
}

/// Reads the members of a plan.
///
/// # Errors
/// If a member is invalid.
pub(crate) fn spec_of(plan: &fwPlan) -> Result<PlanSpec, ApiError> {
    let (codec, schedule) = (name_of(&plan.codec), name_of(&plan.schedule));
    let is_named = |name: &String| !name.is_empty();
    Ok(PlanSpec {
        mode: match plan.mode {
            FW_EXACT => Mode::Exact,
            FW_LOSSLESS => Mode::Lossless,
            FW_COMPRESS => Mode::Compress,
            FW_AUTO => Mode::Auto,
            mode => return Err(ApiError::argument(format!("{mode} is not a mode of a plan"))),
        },
        bound: bound_of(plan)?,
        codec: is_named(&codec).then(|| codec_named(&codec)).transpose()?,
        setting: u16::try_from(plan.setting).map_err(|_| {
            ApiError::argument(format!(
                "codec setting {} is too large; the largest is 65535",
                plan.setting
            ))
        })?,
        scope: match plan.scope {
            FW_EACH_OPERAND => Scope::PerOperand,
            FW_RESULT => Scope::Result,
            scope => return Err(ApiError::argument(format!("{scope} is not a scope of a bound"))),
        },
        schedule: is_named(&schedule).then(|| schedule_named(&schedule)).transpose()?,
        lanes: lanes_of(plan.lanes)?,
        exact_below: plan.exact_below,
        shape: (plan.shape != [0; 3]).then_some(plan.shape),
        rounding: match plan.is_unbiased {
            0 => Rounding::Nearest,
            _ => Rounding::unbiased(plan.seed),
        },
        fill: fill_of(plan)?,
        refuses_fill: plan.refuses_fill != 0,
    })
}

/// Checks a number of lanes. 0 stands for the default.
pub(crate) fn lanes_of(lanes: u32) -> Result<usize, ApiError> {
    let n_lanes = lanes as usize;
    let message = || format!("{lanes} lanes; at most {MAX_LANES} are possible");
    if n_lanes > MAX_LANES { Err(ApiError::argument(message())) } else { Ok(n_lanes) }
}

/// Returns the fill value of a plan.
fn fill_of(plan: &fwPlan) -> Result<Option<Fill>, ApiError> {
    let is_number = match plan.fill_kind {
        FW_NO_FILL if plan.fill == 0.0 => return Ok(None),
        FW_NO_FILL => {
            return Err(ApiError::argument(
                "the plan has a fill value without a kind; set fill_kind",
            ));
        }
        FW_FILL_MISSING => false,
        FW_FILL_NUMBER => true,
        kind => return Err(ApiError::argument(format!("{kind} is not a kind of fill value"))),
    };
    Ok(Some(Fill { value: plan.fill, is_number }))
}

/// Writes the words of a plan as members.
pub(crate) fn to_c(spec: &PlanSpec) -> fwPlan {
    let (bound_kind, bound) = match spec.bound {
        Some(Bound::Absolute(bound)) => (FW_ABSOLUTE, bound),
        Some(Bound::Relative(bound)) => (FW_RELATIVE, bound),
        Some(Bound::Psnr(bound)) => (FW_PSNR, bound),
        _ => (FW_NO_BOUND, 0.0),
    };
    let (fill, fill_kind) = match spec.fill {
        None => (0.0, FW_NO_FILL),
        Some(Fill { value, is_number: false }) => (value, FW_FILL_MISSING),
        Some(Fill { value, is_number: true }) => (value, FW_FILL_NUMBER),
    };
    let (is_unbiased, seed) = match spec.rounding {
        Rounding::Unbiased { seed } => (1, seed),
        _ => (0, 0),
    };
    fwPlan {
        mode: match spec.mode {
            Mode::Exact => FW_EXACT,
            Mode::Lossless => FW_LOSSLESS,
            Mode::Compress => FW_COMPRESS,
            Mode::Auto => FW_AUTO,
        },
        bound_kind,
        bound,
        scope: if spec.scope == Scope::Result { FW_RESULT } else { FW_EACH_OPERAND },
        setting: spec.setting.into(),
        codec: c_name(spec.codec.map_or("", CodecId::name)),
        schedule: c_name(spec.schedule.map_or("", Schedule::name)),
        shape: spec.shape.unwrap_or_default(),
        exact_below: spec.exact_below,
        is_unbiased,
        lanes: spec.lanes as u32,
        seed,
        fill,
        fill_kind,
        refuses_fill: spec.refuses_fill.into(),
        ..EXACT
    }
}
