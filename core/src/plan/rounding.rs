//! Rounding of values in a plan.

/// Rounding of a rank's input to the lattice.
///
/// # Examples
/// ```
/// use foldwire::{Bound, Plan, Rounding};
///
/// // A new seed in each step, because equal seeds repeat the same choices.
/// for step in 0..3 {
///     let plan = Plan::foldwire(Bound::Relative(0.1)).with_rounding(Rounding::unbiased(step));
///     # let _ = plan;
/// }
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Rounding {
    /// The nearest point, ties to even.
    #[default]
    Nearest,
    /// One of the two points next to a value, at random, so that the mean over many seeds is the
    /// value ([`Rounding::unbiased`]).
    Unbiased {
        /// Seed of the random numbers, which also depend on the rank and the index of the value.
        /// Ranks may use the same seed.
        seed: u64,
    },
}

impl Rounding {
    /// Rounds without bias: sums and averages over many calls, each with its own seed, converge to
    /// the exact ones. The bound still holds, because the lattice has half the spacing. That costs
    /// up to one bit per value. docs/training.md lists the conditions and the calls that support
    /// it.
    #[must_use]
    pub const fn unbiased(seed: u64) -> Self {
        Self::Unbiased { seed }
    }

    pub(crate) const fn is_unbiased(self) -> bool {
        matches!(self, Self::Unbiased { .. })
    }

    /// The bound in half steps of the lattice. Rounding to the nearest point errs by at most half a
    /// step, unbiased rounding by at most a whole one.
    pub(crate) const fn half_steps(self) -> f64 {
        if self.is_unbiased() { 2.0 } else { 1.0 }
    }
}
