//! Error budget: from the caller's bound to the lattice of each operand, and to the largest error
//! of the result.
//!
//! The formulas and their proofs are in docs/guarantees.md.

use crate::bound::{Bound, BoundError, Quantum, Scope, ValueRange, rounding, underflow};
use crate::call_spec::CallSpec;
use crate::codec::Loss;
use crate::element::{DType, Float, sealed::Wide, with_float};
use crate::error::{Error, FillError};
use crate::frame::StepQuantity;
use crate::op::{OpCode, weight};
use crate::plan::Plan;
use crate::primitive::Rules;
use crate::report::Report;
use crate::rounding::RoundingPass;
use crate::schedule::ProgramSpec;
use crate::transport::Rank;

/// Returns how many errors, each of at most one operand's bound, can add up in a value of the
/// result. `None` if the result has no bound (docs/guarantees.md).
fn error_terms(spec: &CallSpec<'_>) -> Option<f64> {
    let &CallSpec { schedule, call, op, ref plan, .. } = spec;
    let n = call.size as f64;
    let keeps_frames = plan.pipeline.keeps_frames(plan.codec, op);
    let n_operands = n / schedule.n_combined(call) as f64;
    let n_encodings = schedule.n_encodings(call) as f64;
    let sum = match keeps_frames {
        true => n_operands,
        // Operands that are rounded first have an error even if they are never encoded.
        false if spec.rounds_first => n_encodings.max(n_operands),
        false => n_encodings,
    };
    // Ranks may encode again what they pass on. If that changes values, it adds an error each time.
    let is_stable = plan.codec.is_stable();
    let recodes = !is_stable && Rules::of_plan(call.collective, plan, op).recodes();
    let n_passed = if recodes { n - 1.0 } else { 0.0 };
    Some(match op {
        _ if call.size == 1 => 0.0,
        OpCode::None => n_passed.max(1.0),
        OpCode::Min | OpCode::Max if is_stable => 1.0,
        OpCode::Min | OpCode::Max | OpCode::Sum => sum + n_passed,
        OpCode::Avg => (sum + n_passed) / n,
        _ => return None,
    })
}

/// Returns the bound on each operand that keeps `bound` on the result, rounding included. Returns 0
/// for constant data with a bound relative to their range: their only error is rounding.
fn operand_bound<T: Float>(
    bound: Bound,
    n_errors: Option<f64>,
    call: ProgramSpec,
    op: OpCode,
    value_range: Option<ValueRange>,
) -> Result<f64, Error> {
    let n_errors = n_errors.ok_or(BoundError::Unbounded)?;
    let on_result = bound.absolute(value_range)?;
    let (n, magnitude) = (call.size, value_range.map_or(0.0, ValueRange::magnitude));
    let largest = if op == OpCode::Sum { n as f64 * magnitude } else { magnitude };
    // Errors enlarge partial results, which matters if the type has few digits.
    let reach = if T::IS_NARROW { largest + on_result } else { largest };
    let rounding = match op {
        // Ranks that encode again what they pass on add an error each time.
        OpCode::None => return Ok(on_result / n_errors.max(1.0)),
        OpCode::Avg => rounding::<T>(n, reach) + underflow::<T>(n),
        _ => rounding::<T>(n, reach),
    };
    // This covers partial sums in any order as well. With one rank, nothing is added.
    let largest = largest + on_result.max(rounding);
    if op == OpCode::Sum && n > 1 && largest > T::MAX.to_f64() {
        return Err(BoundError::Overflow { largest, max: T::MAX.to_f64() }.into());
    }
    if bound.needs_value_range() && value_range.is_none_or(|value_range| value_range.range() == 0.0)
    {
        return Ok(0.0);
    }
    let left = on_result - rounding;
    if left <= 0.0 || left.is_nan() {
        return Err(BoundError::BelowPrecision { bound: on_result, rounding }.into());
    }
    Ok(left / n_errors.max(1.0))
}

/// Result of [`resolve`].
#[derive(Clone, Copy)]
pub(crate) struct Budget {
    pub(crate) quantum: Quantum,
    /// Bound on each operand.
    pub(crate) bound: f64,
    /// Largest error of the result; `None` if it has no bound.
    pub(crate) worst_case: Option<f64>,
    /// True if the bound is relative and all ranks' values are zeros. Error feedback then waits for
    /// other values, which give it a lattice: sent now, it would take all bits of its values.
    pub(crate) keeps_residues: bool,
}

impl Budget {
    /// Returns the rounding pass with which the call begins, if it has one.
    pub(crate) fn pass(&self, spec: &CallSpec<'_>, rank: Rank) -> Option<RoundingPass> {
        let keeps_residues = self.keeps_residues && spec.call.size > 1;
        Some(spec.pass(self.quantum, rank)?.keeping_residues(keeps_residues))
    }

    pub(crate) const fn note_in(&self, report: &mut Report) {
        report.bound = self.bound;
        report.worst_case = self.worst_case;
    }
}

/// Returns quantum, bound on each operand, and largest error for a call whose data have this value
/// range. An encoded value may be the sum of several operands, each within the bound.
pub(crate) fn resolve(
    spec: &CallSpec<'_>,
    value_range: Option<ValueRange>,
) -> Result<Budget, Error> {
    let is_zero = value_range.is_some_and(|range| range.min == 0.0 && range.max == 0.0);
    if !is_zero || spec.plan.codec.loss() != Loss::Bound || !spec.plan.needs_value_range() {
        return resolve_for_later_data(spec, value_range);
    }
    // Zeros are points of any lattice.
    let plan = Plan { bound: Some(Bound::Absolute(1.0)), ..spec.plan };
    let on_lattice = resolve_for_later_data(&CallSpec { plan, ..*spec }, None)?;
    Ok(Budget { bound: 0.0, worst_case: Some(0.0), keeps_residues: true, ..on_lattice })
}

/// Same as [`resolve`], but the budget also holds for data that come later, as in prepared calls.
pub(crate) fn resolve_for_later_data(
    spec: &CallSpec<'_>,
    value_range: Option<ValueRange>,
) -> Result<Budget, Error> {
    let exact = Budget {
        quantum: Quantum::LOSSLESS,
        bound: 0.0,
        worst_case: Some(0.0),
        keeps_residues: false,
    };
    match spec.plan.codec.loss() {
        Loss::None => return Ok(exact),
        Loss::Setting => return Ok(Budget { bound: f64::INFINITY, worst_case: None, ..exact }),
        Loss::Bound => {}
    }
    // Calls on integers use an exact codec.
    with_float!(spec.dtype, T => resolve_as::<T>(spec, value_range), else Err(Error::Internal))
}

/// Same as [`resolve_for_later_data`], with a lattice for values of this type.
fn resolve_as<T: Float>(
    spec: &CallSpec<'_>,
    value_range: Option<ValueRange>,
) -> Result<Budget, Error> {
    let &CallSpec { schedule, call, op, ref plan, .. } = spec;
    let n_errors = error_terms(spec);
    let n_combined = match op {
        OpCode::Sum | OpCode::Avg => schedule.n_combined(call) as f64,
        _ => 1.0,
    };
    // If operands are rounded first, an encoded sum has an error for each of its operands.
    // Otherwise it has one error, and the bounds of its operands add up.
    let (operands_per_error, errors_per_code) =
        if spec.rounds_first { (1.0, n_combined) } else { (n_combined, 1.0) };
    // Largest error that the plan permits each time that a value is rounded to the lattice.
    let permitted = match (plan.bound, plan.scope) {
        (None, _) => 0.0,
        (Some(bound), Scope::PerOperand) => bound.absolute(value_range)? * operands_per_error,
        (Some(bound), Scope::Result) => {
            operand_bound::<T>(bound, n_errors, call, op, value_range)? / errors_per_code
        }
    };
    // An error in half steps of the lattice.
    let half_steps = if spec.rounds_first { plan.rounding.half_steps() } else { 1.0 };
    let quantum = lattice::<T>(spec, permitted / half_steps, value_range)?;
    // Largest error that the lattice makes then.
    let made = quantum.bound() * half_steps;
    Ok(Budget {
        quantum,
        bound: made / operands_per_error,
        worst_case: n_errors.map(|n_errors| n_errors * (made * errors_per_code)),
        keeps_residues: false,
    })
}

/// Returns the lattice of a call that keeps this bound for values rounded to its nearest points.
fn lattice<T: Float>(
    spec: &CallSpec<'_>,
    bound: f64,
    value_range: Option<ValueRange>,
) -> Result<Quantum, BoundError> {
    let mut quantum = Quantum::with_spacing::<T>(bound, spec.plan.spacing)?;
    // On the lattice of a grid, values off the grid must become exceptions. A rounding pass would
    // round them to the grid, beyond the bound.
    let takes_grid = spec.plan.codec.has_lattice() && !spec.rounds_first;
    if let Some(value_range) = value_range.filter(|_| takes_grid) {
        quantum = quantum.suited::<T>(value_range);
    }
    // Operands of an average are weighted, and the weighted lattice must have normal numbers as
    // well.
    let weight: T = if spec.op == OpCode::Avg { weight(spec.call.size as u32) } else { T::ONE };
    let is_normal = (T::Wide::nearest(quantum.step()) * weight.widen()).is_normal();
    Ok(if is_normal { quantum } else { Quantum::LOSSLESS })
}

/// Returns the bound that a call requires of each operand before the value range is known, not
/// counting rounding. A bound on the result is divided by the number of errors that can add up.
/// Ranks with the same requirement get the same quantum and the same error for the same value
/// range.
pub(crate) fn required_bound(spec: &CallSpec<'_>, sampled: bool) -> (StepQuantity, f64) {
    let plan = &spec.plan;
    let (factor, of_range) =
        plan.bound.map_or((0.0, false), |bound| (bound.factor(), bound.needs_value_range()));
    // Ranks that round differently also have different lattices.
    let factor = if spec.rounds_first { factor / plan.rounding.half_steps() } else { factor };
    match plan.scope {
        Scope::PerOperand if sampled => (StepQuantity::Sample, factor),
        Scope::PerOperand => (StepQuantity::Range, factor),
        Scope::Result => {
            let n_errors = error_terms(spec).unwrap_or(1.0).max(1.0);
            let measure = if of_range { StepQuantity::ResultRange } else { StepQuantity::Result };
            (measure, factor / n_errors)
        }
    }
}

/// Checks the codec, the bound and the fill value of a plan, whatever the data.
pub(crate) fn check_plan(plan: &Plan, op: OpCode, dtype: DType) -> Result<(), Error> {
    check_fill(plan, op, dtype)?;
    let Plan { codec, setting, .. } = plan.for_values(dtype);
    if codec.is_for_arrays_only() {
        return Err(Error::ArraysOnly { codec });
    }
    if codec.setting(dtype, setting).is_none() {
        return Err(Error::Setting { codec, dtype, setting });
    }
    let Some(bound) = plan.bound else { return Ok(()) };
    match plan.scope {
        Scope::PerOperand => bound.check_on_operands()?,
        Scope::Result => bound.check()?,
    }
    if codec.loss() == Loss::Setting {
        return Err(Error::NoBound { codec });
    }
    let unbounded = op.needs_values() && !codec.is_exact();
    if plan.scope == Scope::Result && unbounded {
        return Err(BoundError::Unbounded.into());
    }
    Ok(())
}

/// Checks the fill value of a plan.
fn check_fill(plan: &Plan, op: OpCode, dtype: DType) -> Result<(), FillError> {
    let Some(fill) = plan.fill else { return Ok(()) };
    let codec = plan.for_values(dtype).codec;
    let is_marked = plan.marks(op != OpCode::None).is_some();
    if fill.value.is_nan() {
        Err(FillError::Nan)
    } else if !dtype.is_float() {
        Err(FillError::Type { dtype })
    } else if is_marked && codec.loss() == Loss::Setting {
        Err(FillError::Codec { codec })
    } else if is_marked && op == OpCode::User {
        Err(FillError::Operation)
    } else {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::CodecId;
    use crate::pipeline::PER_HOP;
    use crate::schedule::Collective;
    use crate::transport::Rank;

    /// Covers the table of docs/guarantees.md, section 2, and the text below it on codecs that are
    /// not stable: all-gathers then have n − 1 terms, and reductions n − 1 more.
    #[test]
    fn what_is_encoded_anew_on_its_way_errs_each_time_if_that_changes_it() {
        let stable = Plan::foldwire(Bound::Absolute(1e-3)).with_pipeline(PER_HOP);
        let unstable = stable.with_codec(CodecId::Szx);
        for (plan, n_ranks, [moved, sum, average, least]) in [
            (stable, 4, [1.0, 4.0, 1.0, 1.0]),
            (stable.as_published(), 4, [1.0, 4.0, 1.0, 1.0]),
            (unstable, 4, [1.0, 4.0, 1.0, 4.0]),
            (unstable.as_published(), 4, [3.0, 7.0, 1.75, 7.0]),
            (unstable.as_published(), 2, [1.0, 3.0, 1.5, 3.0]),
            (unstable.as_published(), 1, [0.0; 4]),
        ] {
            let n_terms = |op| error_terms(&CallSpec::of_test(plan, op, n_ranks));
            for (op, expected) in [(OpCode::Sum, sum), (OpCode::Avg, average), (OpCode::Min, least)]
            {
                assert_eq!(n_terms(op), Some(expected), "{op:?} of {n_ranks}, {plan:?}");
            }
            let call = ProgramSpec::new(Collective::AllGather, n_ranks, Rank(0));
            let gathers = CallSpec { call, ..CallSpec::of_test(plan, OpCode::None, n_ranks) };
            assert_eq!(error_terms(&gathers), Some(moved), "{n_ranks} by {plan:?}");
            if n_ranks > 1 {
                assert_eq!([OpCode::Prod, OpCode::User].map(n_terms), [None; 2]);
            }
        }
    }

    #[test]
    fn a_bound_on_the_result_allows_for_all_errors_of_what_is_only_moved() {
        let value_range = Some(ValueRange { min: 0.0, max: 9.0, grid: 0.0, increment: 0.0 });
        for &codec in CodecId::ALL.iter().filter(|codec| codec.loss() == Loss::Bound) {
            let plan = Plan::foldwire(Bound::Absolute(1e-3)).with_codec(codec);
            let plan = plan.with_pipeline(PER_HOP).with_scope(Scope::Result);
            for plan in [plan, plan.as_published()] {
                let call = ProgramSpec::new(Collective::AllGather, 4, Rank(0));
                let spec = CallSpec { call, ..CallSpec::of_test(plan, OpCode::None, 4) };
                let worst_case = resolve(&spec, value_range).unwrap().worst_case;
                assert!(worst_case.is_some_and(|error| error <= 1e-3), "{codec:?}: {worst_case:?}");
            }
        }
    }

    #[test]
    fn a_sum_may_reach_the_largest_value_and_no_more() {
        let call = ProgramSpec::new(Collective::AllReduce, 2, Rank(0));
        let largest = 2f64.powi(126);
        let value_range =
            Some(ValueRange { min: -largest, max: largest, grid: 0.0, increment: 0.0 });
        let of = |bound| {
            operand_bound::<f32>(Bound::Absolute(bound), Some(2.0), call, OpCode::Sum, value_range)
        };
        // Largest bound that fits on top of the sum of two such operands.
        let left = f64::from(f32::MAX) - 2f64.powi(127);
        assert!(of(left).is_ok());
        let more = of(left * (1.0 + 1e-9));
        assert!(matches!(more, Err(Error::Bound(BoundError::Overflow { .. }))), "{more:?}");
    }

    #[test]
    fn a_grid_is_for_codecs_with_a_lattice_that_round_values_themselves() {
        let value_range = Some(ValueRange { min: 0.0, max: 1000.0, grid: 1.0, increment: 1.0 });
        // This is a bound of 0.01, so the step of a lattice is below 0.02.
        let plan = Plan::foldwire(Bound::Relative(1e-5));
        for (codec, rounds_first, takes_grid) in [
            (CodecId::FzLight, false, true),
            (CodecId::FzLight, true, false),
            (CodecId::Szx, false, false),
            (CodecId::Szx, true, false),
        ] {
            let spec = CallSpec::of_test(plan.with_codec(codec), OpCode::Sum, 4);
            let budget =
                resolve(&CallSpec { rounds_first, ..spec }, value_range).expect("a lattice");
            let step = budget.quantum.step();
            assert!(if takes_grid { step == 1.0 } else { step < 0.02 }, "{codec:?}: {step}");
            assert_eq!(budget.bound, 0.01);
        }
    }

    #[test]
    fn products_have_a_bound_on_their_result_only_if_they_are_exact() {
        let lossy = Plan::foldwire(Bound::Absolute(0.1)).with_scope(Scope::Result);
        let exact = lossy.with_codec(CodecId::Lossless);
        let on_operands = lossy.with_scope(Scope::PerOperand);
        for op in [OpCode::Prod, OpCode::User] {
            let refused = Err(BoundError::Unbounded.into());
            assert_eq!(check_plan(&lossy, op, DType::F32), refused);
            assert_eq!(check_plan(&exact, op, DType::F32), Ok(()));
            assert_eq!(check_plan(&on_operands, op, DType::F32), Ok(()));
        }
        assert_eq!(check_plan(&lossy, OpCode::Sum, DType::F32), Ok(()));
    }
}
