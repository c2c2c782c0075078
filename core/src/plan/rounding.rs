//! How a plan has values rounded.

/// To which point of the lattice a rank's own values are rounded.
///
/// # Examples
/// ```
/// use foldwire::{Bound, Plan, Rounding};
///
/// // Another seed in each step: equal ones repeat the same choices.
/// for step in 0..3 {
///     let plan = Plan::foldwire(Bound::Relative(0.1)).with_rounding(Rounding::unbiased(step));
///     # let _ = plan;
/// }
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Rounding {
    /// The nearest, ties to even.
    #[default]
    Nearest,
    /// One of the two beside a value, at random, so that the mean over many seeds is the value
    /// ([`Rounding::unbiased`]).
    Unbiased {
        /// What random numbers are made of, with the rank and the place of the value. Ranks may
        /// have the same.
        seed: u64,
    },
}

impl Rounding {
    /// Rounds without bias: sums and averages of many calls, each with a seed of its own, tend to
    /// the exact ones. The bound holds as ever; the lattice is half as coarse, which costs up to
    /// a bit a value. docs/training.md has the conditions, and which calls can do it.
    #[must_use]
    pub const fn unbiased(seed: u64) -> Self {
        Self::Unbiased { seed }
    }

    pub(crate) const fn is_unbiased(self) -> bool {
        matches!(self, Self::Unbiased { .. })
    }

    /// The bound in halves of a step.
    pub(crate) const fn halves(self) -> f64 {
        if self.is_unbiased() { 2.0 } else { 1.0 }
    }
}
