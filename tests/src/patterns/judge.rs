//! Results that docs/guarantees.md allows for a value. Nothing here calls the library's code.

use foldwire::{Quantum, Spacing};

/// 1.5·2⁵²: adding and subtracting it rounds to the nearest integer, half to even.
const ROUNDER: f64 = 6_755_399_441_055_744.0;

/// Guarantee for one value.
#[derive(Clone, Copy, Debug)]
pub(super) enum Guarantee {
    /// The value keeps its bits.
    Bits,
    /// The error is at most this.
    Within(f64),
    /// The error is within the bound, and the value becomes exactly what the quantizer in section 1
    /// of docs/guarantees.md gives.
    Quantized(ReferenceQuantizer),
}

/// Errors of a batch of values.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ErrorStats {
    pub(super) n_not_finite: u64,
    pub(super) n_changed: u64,
    /// Largest error.
    pub(super) worst: f64,
    /// Sum of the squared errors.
    pub(super) squares: f64,
    /// True if some value broke its guarantee.
    pub(super) is_broken: bool,
}

impl Guarantee {
    /// Compares values with their decoded results.
    pub(super) fn judge(&self, before: &[f32], after: &[f32]) -> ErrorStats {
        match *self {
            Self::Bits => compare(before, after, |x, y| x.to_bits() == y.to_bits()),
            Self::Within(bound) => compare(before, after, |x, y| keeps(x, y, bound)),
            Self::Quantized(quantizer) => compare(before, after, |x, y| {
                keeps(x, y, quantizer.bound) & (y.to_bits() == quantizer.result(x).to_bits())
            }),
        }
    }

    /// Describes how the result `y` for `x` breaks the guarantee.
    pub(super) fn breach(&self, x: f32, y: f32) -> String {
        let kept = match *self {
            Self::Bits => "its bits".to_owned(),
            _ if !x.is_finite() => "its bits".to_owned(),
            Self::Within(bound) => format!("within {bound:e}"),
            Self::Quantized(quantizer) => {
                let result = quantizer.result(x);
                format!("within {:e}: {result:e} ({:#010x})", quantizer.bound, result.to_bits())
            }
        };
        format!(
            "{x:e} ({:#010x}) became {y:e} ({:#010x}), off by {:e}; promised: {kept}",
            x.to_bits(),
            y.to_bits(),
            (f64::from(x) - f64::from(y)).abs()
        )
    }
}

/// Compares values with their results. One pass without branches, so that the compiler vectorizes
/// it.
#[inline(always)]
fn compare(before: &[f32], after: &[f32], keeps: impl Fn(f32, f32) -> bool) -> ErrorStats {
    let mut seen = ErrorStats::default();
    for (&x, &y) in before.iter().zip(after) {
        let error = (f64::from(x) - f64::from(y)).abs();
        // NaN and infinities have no error.
        let error = if x.is_finite() { error } else { 0.0 };
        seen.worst = if error > seen.worst { error } else { seen.worst };
        seen.squares += error * error;
        seen.n_not_finite += u64::from(!x.is_finite());
        seen.n_changed += u64::from(x.to_bits() != y.to_bits());
        seen.is_broken |= !keeps(x, y);
    }
    seen
}

/// Returns whether `y` has the bits of `x`, or both are finite and differ by at most `bound` in
/// exact arithmetic.
#[inline(always)]
fn keeps(x: f32, y: f32, bound: f64) -> bool {
    // x − y = difference + rest exactly (Knuth's TwoSum): both are multiples of 2⁻¹⁴⁹ below 2¹²⁹.
    let (a, b) = (f64::from(x), -f64::from(y));
    let difference = a + b;
    let b_in_it = difference - a;
    let rest = (a - (difference - b_in_it)) + (b - b_in_it);
    let error = difference.abs();
    let outward = if difference < 0.0 { -rest } else { rest };
    let is_within = (error < bound) | ((error == bound) & (outward <= 0.0));
    (x.to_bits() == y.to_bits()) | (x.is_finite() & y.is_finite() & is_within)
}

/// Independent implementation of the quantizer in section 1 of docs/guarantees.md.
#[derive(Clone, Copy, Debug)]
pub(super) struct ReferenceQuantizer {
    bound: f64,
    step: f32,
    inverse: f32,
    /// Largest magnitude of a code.
    limit: f64,
    /// The rounded error must be below this.
    below: f32,
}

impl ReferenceQuantizer {
    pub(super) fn new(quantum: Quantum, spacing: Spacing, n_operands: u32) -> Self {
        let (step, bound) = (quantum.step() as f32, quantum.bound());
        let below = match spacing {
            Spacing::PowerOfTwo => (step / 2.0).next_up(),
            _ if f64::from(bound as f32) > bound => (bound as f32).next_down(),
            _ => bound as f32,
        };
        let limit = f64::from((1u32 << 21).min((1 << 30) / n_operands));
        Self { bound, step, inverse: 1.0 / step, limit, below }
    }

    #[inline(always)]
    fn result(self, x: f32) -> f32 {
        let t = x * self.inverse;
        let q = (f64::from(t) + ROUNDER) - ROUNDER;
        let point = q as f32 * self.step;
        let is_point = (q.abs() <= self.limit) & ((x - point).abs() < self.below);
        if is_point { point } else { x }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_compared_exactly() {
        // 1 + 2⁻²³ and a bound of 1: the error is 1 − 2⁻¹⁴⁹ + 2⁻²³, 1 or 1 ± 2⁻¹⁴⁹.
        let tiny = f32::from_bits(1);
        assert!(keeps(1.0, 0.0, 1.0) && keeps(1.0, tiny, 1.0));
        assert!(!keeps(1.0, -tiny, 1.0), "in f64 the error rounds to the bound");
        assert!(keeps(-1.0, -tiny, 1.0) && !keeps(-1.0, tiny, 1.0));
        assert!(!keeps(1.0f32.next_up(), 0.0, 1.0));
        let below_one = 1f64.next_down();
        assert!(!keeps(1.0, tiny, below_one), "1 − 2⁻¹⁴⁹ is more");
        assert!(keeps(f32::MAX, -f32::MAX, 2.0 * f64::from(f32::MAX)));
        assert!(!keeps(f32::MAX, -f32::MAX, f64::from(f32::MAX)));
    }

    #[test]
    fn what_is_not_finite_keeps_its_bits_and_nothing_becomes_it() {
        let nan = f32::from_bits(0x7fc0_1234);
        for x in [nan, f32::INFINITY, f32::NEG_INFINITY] {
            assert!(keeps(x, x, 1.0) && !keeps(x, 1.0, f64::MAX) && !keeps(1.0, x, f64::MAX));
        }
        assert!(!keeps(nan, f32::NAN, 1.0) && !keeps(f32::INFINITY, f32::NEG_INFINITY, f64::MAX));
        let seen = Guarantee::Bits.judge(&[0.0], &[-0.0]);
        assert!(seen.is_broken && seen.n_changed == 1 && seen.worst == 0.0);
        assert!(!Guarantee::Within(0.0).judge(&[0.0], &[-0.0]).is_broken);
    }

    #[test]
    fn the_quantiser_rounds_half_to_even_and_leaves_what_is_too_large() {
        let quantum = Quantum::with_spacing::<f32>(0.5, Spacing::PowerOfTwo).unwrap();
        let quantizer = ReferenceQuantizer::new(quantum, Spacing::PowerOfTwo, 1);
        let large = 2_097_152.0;
        for (x, y) in
            [(0.5, 0.0), (1.5, 2.0), (-0.4, 0.0), (large, large), (large + 1.5, large + 1.5)]
        {
            assert_eq!(quantizer.result(x).to_bits(), f32::to_bits(y), "{x}");
        }
        assert_eq!(quantizer.result(-0.0).to_bits(), 0);
    }
}
