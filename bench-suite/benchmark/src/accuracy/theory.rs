//! Predicted errors, in units of the bound ê on each of n operands.
//!
//! *ZCCL* (Huang et al., 2025): an operand's error is normal with 3σ = ê. The variance is n·σ² for
//! a sum, σ²/n for an average, and (2 − (n + 2)/2ⁿ)·σ² for a minimum or maximum. 95.44 % of the
//! values are within two deviations, which is (2/3)·√n·ê for a sum.
//!
//! *Uniform* (docs/guarantees.md): the error of a quantiser with step Δ is uniform in ±Δ/2, if data
//! vary by many Δ. A sum has the variance n·Δ²/12, and is approximately normal. A minimum or
//! maximum has the error of one operand.

use foldwire_arguments::OpArg;
use serde::Serialize;

/// Fraction of a normal distribution within two deviations, as the paper rounds it.
pub(super) const SHARE: f64 = 0.9544;

/// A distribution of errors around 0.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(super) struct Theory {
    pub(super) deviation: f64,
    /// The |error| that a fraction [`SHARE`] of the values do not exceed.
    pub(super) line: f64,
}

impl Theory {
    const fn normal(deviation: f64) -> Self {
        Self { deviation, line: 2.0 * deviation }
    }

    /// Returns ZCCL's theory for `n` operands.
    pub(super) fn zccl(op: OpArg, n: usize) -> Self {
        let n = n as f64;
        let variance = match op {
            OpArg::Avg => 1.0 / n,
            OpArg::Min | OpArg::Max => 2.0 - (n + 2.0) * (-n).exp2(),
            _ => n,
        };
        Self::normal(variance.sqrt() / 3.0)
    }

    /// Returns the theory for a quantiser whose error on an operand is at most `half_step`.
    pub(super) fn uniform(op: OpArg, n: usize, half_step: f64) -> Self {
        let one = half_step / 3.0_f64.sqrt();
        let n = (n as f64).sqrt();
        match op {
            OpArg::Avg => Self::normal(one / n),
            OpArg::Min | OpArg::Max => Self { deviation: one, line: SHARE * half_step },
            _ => Self::normal(one * n),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lines_are_the_published_ones() {
        let line = |op, n| Theory::zccl(op, n).line;
        assert!((line(OpArg::Sum, 9) - 2.0).abs() < 1e-12);
        assert!((line(OpArg::Avg, 4) - 1.0 / 3.0).abs() < 1e-12);
        // (2 − 4/4)·σ², and 2·σ² for many operands.
        assert!((Theory::zccl(OpArg::Min, 2).deviation - 1.0 / 3.0).abs() < 1e-12);
        assert!((Theory::zccl(OpArg::Max, 60).deviation - 2.0_f64.sqrt() / 3.0).abs() < 1e-12);
    }

    /// 0.568·√n, as in docs/guarantees.md.
    #[test]
    fn a_uniform_error_adds_up_by_its_variance() {
        let of_sum = Theory::uniform(OpArg::Sum, 64, 1.0 - 1.0 / 64.0);
        assert!((of_sum.deviation - 0.568 * 8.0).abs() < 4e-3, "{of_sum:?}");
        assert_eq!(Theory::uniform(OpArg::Max, 64, 1.0).line, SHARE);
        assert_eq!(Theory::uniform(OpArg::Avg, 4, 3.0_f64.sqrt()).deviation, 0.5);
    }
}
