//! Value ranges: the calls that need one, and those that take it from a sample.

use super::Plan;
#[cfg(doc)]
use crate::bound::Bound;
use crate::bound::Scope;

/// Minimum number of values for [`Sampling::Auto`] to sample.
const LONG: usize = 1 << 20;

/// Permission to take the value range for [`Bound::Relative`] and [`Bound::Psnr`] from a sample: of
/// each rank's data, one block of 32 values out of every 64 blocks.
///
/// A sample's range is at most the whole range. So the bound is at most the requested one, and it
/// holds. [`Report::bound`](crate::Report::bound) reports it. If the two halves of the sample
/// disagree, all data are scanned. With a bound on the result ([`Scope::Result`]) all data are
/// always scanned.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Sampling {
    /// Sample arrays of 2²⁰ values or more, where a scan of all data would take noticeable time.
    /// Over links of at most 150 MB/s it does not, and all data are scanned. The rate is the
    /// configured or the transport's; for automatic plans also the measured one.
    #[default]
    Auto,
    /// Sample arrays of any length.
    Always,
    /// Scan all data.
    Never,
}

impl Plan {
    /// Returns whether a call must learn the value range of all ranks' data before it can begin.
    #[must_use]
    pub fn needs_value_range(&self) -> bool {
        !self.codec.is_exact()
            && self
                .bound
                .is_some_and(|bound| bound.needs_value_range() || self.scope == Scope::Result)
    }

    /// Returns whether a call on `count` values that [needs the value
    /// range](Self::needs_value_range) takes it from a sample first.
    #[must_use]
    pub fn samples(&self, count: usize) -> bool {
        // A bound on the result must allow for rounding errors, whose limit depends on the largest
        // magnitude. A sample may miss that. Fill values do not count here, because each rank may
        // have its own.
        let may = self.scope == Scope::PerOperand;
        match self.sampling {
            Sampling::Auto => may && count >= LONG,
            Sampling::Always => may,
            Sampling::Never => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bound::Bound;

    #[test]
    fn only_long_arrays_and_bounds_on_operands_are_sampled() {
        let plan = Plan::foldwire(Bound::Relative(1e-3));
        assert!(plan.samples(LONG) && !plan.samples(LONG - 1));
        assert!(!plan.with_scope(Scope::Result).samples(LONG));
        assert!(!plan.with_sampling(Sampling::Never).samples(LONG));
        assert!(plan.with_sampling(Sampling::Always).samples(1));
    }
}
