//! The caller's own choice of schedules: rules with ranges, where the first matching rule applies.
//!
//! As text (`text.rs`), a rule is `COLLECTIVE:RANKS:BYTES:SCHEDULE`, and rules are separated by
//! commas. Ranks and bytes are a number or a range `FIRST-LAST`; either end, or the whole range,
//! may be left out. Bytes are those of the whole array and may end in `K`, `M` or `G` (2¹⁰, 2²⁰,
//! 2³⁰). Conditions may precede the schedule, each at most once:
//!
//! | condition | true if |
//! |---|---|
//! | `link=RATES` | a rank's link has a rate in this range: `1gbit-10gbit`, `-10gbit`, `10gbit-` |
//! | `link=unknown` | the transport reports no rate, because it is unknown or as fast as memory |
//! | `node=RANKS` | the number of consecutive ranks known to share a node (1 if the layout is unknown) is in this range: `2-` |
//!
//! Rates are in `bit`, `kbit`, `mbit` or `gbit` per second (1, 10³, 10⁶, 10⁹).
//!
//! Source: UCC's score strings (`UCC_TL_…_TUNE`); tuned collectives of Open MPI.

#[cfg(feature = "alloc")]
mod text;

#[cfg(feature = "std")]
pub use environment::{VARIABLE, from_env};
#[cfg(feature = "alloc")]
pub use text::{ParseRulesError, parse};

use super::Network;
use crate::schedule::{Collective, ProgramSpec, Schedule};
use core::fmt;
use core::ops::RangeInclusive;

/// A rule that names the schedule of some calls. It prints as the text that `parse` reads.
#[derive(Clone)]
pub struct SelectionRule {
    /// Collective of the calls.
    pub collective: Collective,
    /// Number of ranks.
    pub ranks: RangeInclusive<usize>,
    /// Number of bytes in the whole array.
    pub n_bytes: RangeInclusive<usize>,
    /// Links of the ranks.
    pub links: LinkFilter,
    /// Number of consecutive ranks known to share a node ([`ProgramSpec::ranks_per_node`], 1 if the
    /// node layout is unknown).
    pub ranks_per_node: RangeInclusive<usize>,
    /// The schedule of these calls.
    pub schedule: &'static dyn Schedule,
}

/// Links that a [`SelectionRule`] applies to, by the rate that the transport reports for a rank's
/// link ([`link_rate`](crate::Transport::link_rate)).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LinkFilter {
    /// All links.
    Any,
    /// Links without a reported rate: unknown, or as fast as memory.
    Unknown,
    /// Links with a rate in this range, in bytes per second in each direction. Rates are rounded
    /// down to integers before they are compared.
    Rates(RangeInclusive<u64>),
}

impl LinkFilter {
    fn contain(&self, rate: Option<f64>) -> bool {
        match self {
            Self::Any => true,
            Self::Unknown => rate.is_none(),
            Self::Rates(rates) => rate.is_some_and(|rate| rates.contains(&(rate as u64))),
        }
    }
}

impl SelectionRule {
    /// A rule for all calls of a collective.
    #[must_use]
    pub const fn new(collective: Collective, schedule: &'static dyn Schedule) -> Self {
        let (ranks, ranks_per_node) = (0..=usize::MAX, 0..=usize::MAX);
        let (n_bytes, links) = (0..=usize::MAX, LinkFilter::Any);
        Self { collective, ranks, n_bytes, links, ranks_per_node, schedule }
    }

    /// The same rule, limited to these numbers of ranks.
    #[must_use]
    pub const fn with_ranks(self, ranks: RangeInclusive<usize>) -> Self {
        Self { ranks, ..self }
    }

    /// The same rule, limited to arrays of these sizes in bytes.
    #[must_use]
    pub const fn with_bytes(self, n_bytes: RangeInclusive<usize>) -> Self {
        Self { n_bytes, ..self }
    }

    /// The same rule, limited to these links.
    #[must_use]
    pub const fn with_links(self, links: LinkFilter) -> Self {
        Self { links, ..self }
    }

    /// The same rule, limited to these numbers of consecutive ranks known to share a node.
    #[must_use]
    pub const fn with_nodes(self, ranks_per_node: RangeInclusive<usize>) -> Self {
        Self { ranks_per_node, ..self }
    }

    fn is_for(&self, call: ProgramSpec, n_bytes: usize, network: Network) -> bool {
        self.collective == call.collective
            && self.ranks.contains(&call.size)
            && self.n_bytes.contains(&n_bytes)
            && self.links.contain(network.link_rate)
            && self.ranks_per_node.contains(&call.ranks_per_node)
    }
}

impl fmt::Display for SelectionRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const BYTES: &[(&str, u128)] = &[("G", 1 << 30), ("M", 1 << 20), ("K", 1 << 10), ("", 1)];
        const BITS: &[(&str, u128)] =
            &[("gbit", 1_000_000_000), ("mbit", 1_000_000), ("kbit", 1000), ("bit", 1)];
        let plain = |range: &RangeInclusive<usize>, units| RangeEnds {
            first: *range.start() as u128,
            last: (*range.end() != usize::MAX).then_some(*range.end() as u128),
            units,
        };
        let ranks = plain(&self.ranks, &[("", 1)]);
        write!(f, "{}:{ranks}:{}", self.collective.name(), plain(&self.n_bytes, BYTES))?;
        match &self.links {
            LinkFilter::Any => {}
            LinkFilter::Unknown => f.write_str(":link=unknown")?,
            LinkFilter::Rates(rates) => {
                let n_bits = |rate: u64| u128::from(rate) * 8;
                let last = (*rates.end() != u64::MAX).then(|| n_bits(*rates.end()));
                match (RangeEnds { first: n_bits(*rates.start()), last, units: BITS }) {
                    RangeEnds { first: 0, last: None, .. } => f.write_str(":link=-")?,
                    ends => write!(f, ":link={ends}")?,
                }
            }
        }
        if self.ranks_per_node != (0..=usize::MAX) {
            write!(f, ":node={}", plain(&self.ranks_per_node, &[("", 1)]))?;
        }
        write!(f, ":{}", self.schedule.name())
    }
}

impl fmt::Debug for SelectionRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The ends of a range, each written in the largest unit that divides it.
struct RangeEnds {
    first: u128,
    /// `None` if the range has no end.
    last: Option<u128>,
    /// Names and sizes of the units, the largest first, the last of size 1.
    units: &'static [(&'static str, u128)],
}

impl fmt::Display for RangeEnds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let number = |f: &mut fmt::Formatter<'_>, n: u128| {
            let fits = |unit: &&(&str, u128)| unit.1 == 1 || n != 0 && n.is_multiple_of(unit.1);
            let (name, size) = self.units.iter().find(fits).unwrap_or(&("", 1));
            write!(f, "{}{name}", n / size)
        };
        match (self.first, self.last) {
            (0, None) => Ok(()),
            (first, Some(last)) if first == last => number(f, first),
            (first, last) => {
                if first > 0 {
                    number(f, first)?;
                }
                f.write_str("-")?;
                last.map_or(Ok(()), |last| number(f, last))
            }
        }
    }
}

/// Returns the schedule of the first rule for a call on an array of `n_bytes` over a network.
#[must_use]
pub fn first_of(
    rules: &[SelectionRule],
    call: ProgramSpec,
    n_bytes: usize,
    network: Network,
) -> Option<&'static dyn Schedule> {
    rules.iter().find(|rule| rule.is_for(call, n_bytes, network)).map(|rule| rule.schedule)
}

#[cfg(feature = "std")]
mod environment {
    use super::{ParseRulesError, SelectionRule, parse};
    use std::sync::OnceLock;

    /// Environment variable that [`from_env`] reads.
    pub const VARIABLE: &str = "FOLDWIRE_SELECT";

    /// Returns the rules in the variable `FOLDWIRE_SELECT`, or none if it is not set. The variable
    /// is read once.
    ///
    /// # Errors
    /// As [`parse`].
    pub fn from_env() -> Result<&'static [SelectionRule], ParseRulesError> {
        static RULES: OnceLock<Result<std::vec::Vec<SelectionRule>, ParseRulesError>> =
            OnceLock::new();
        let text = || std::env::var_os(VARIABLE).unwrap_or_default();
        let rules = RULES.get_or_init(|| parse(&text().to_string_lossy()));
        rules.as_deref().map_err(Clone::clone)
    }
}
