//! The caller's own choice of schedules: rows of ranges, of which the first that fits is taken.
//!
//! In text (`text.rs`), a row is `COLLECTIVE:RANKS:BYTES:SCHEDULE`, and rows are separated by
//! commas. Ranks and bytes are a number or a range `FIRST-LAST`, either of which may be left out;
//! bytes are those of the whole array and may end in `K`, `M` or `G` (2¹⁰, 2²⁰, 2³⁰). Before the
//! schedule there may be conditions, each once:
//!
//! | condition | holds where |
//! |---|---|
//! | `link=RATES` | a rank's link has such a rate, as `1gbit-10gbit`, `-10gbit`, `10gbit-` |
//! | `link=unknown` | the transport tells no rate: unknown, or as fast as memory |
//! | `node=RANKS` | so many ranks in a row are known to share a node, as `2-`; 1 if none are |
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

/// Which calls take a schedule. Printed, it is the text that `parse` reads.
#[derive(Clone)]
pub struct SelectionRule {
    /// Of this collective,
    pub collective: Collective,
    /// between so many ranks,
    pub ranks: RangeInclusive<usize>,
    /// on an array of so many bytes in all,
    pub n_bytes: RangeInclusive<usize>,
    /// over such links,
    pub links: LinkFilter,
    /// where so many ranks in a row are known to share a node
    /// ([`ProgramSpec::ranks_per_node`], 1 if nothing is known).
    pub ranks_per_node: RangeInclusive<usize>,
    /// The schedule.
    pub schedule: &'static dyn Schedule,
}

/// Links that a [`SelectionRule`] is for, by what the transport tells of a rank's
/// ([`link_rate`](crate::Transport::link_rate)).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LinkFilter {
    /// All.
    Any,
    /// Those whose rate is not told: unknown, or as fast as memory.
    Unknown,
    /// Those of so many bytes per second each way, fractions dropped.
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
    /// All calls of a collective.
    #[must_use]
    pub const fn new(collective: Collective, schedule: &'static dyn Schedule) -> Self {
        let (ranks, ranks_per_node) = (0..=usize::MAX, 0..=usize::MAX);
        let (n_bytes, links) = (0..=usize::MAX, LinkFilter::Any);
        Self { collective, ranks, n_bytes, links, ranks_per_node, schedule }
    }

    /// Of those, the calls between so many ranks.
    #[must_use]
    pub const fn with_ranks(self, ranks: RangeInclusive<usize>) -> Self {
        Self { ranks, ..self }
    }

    /// Of those, the calls on an array of so many bytes.
    #[must_use]
    pub const fn with_bytes(self, n_bytes: RangeInclusive<usize>) -> Self {
        Self { n_bytes, ..self }
    }

    /// Of those, the calls over such links.
    #[must_use]
    pub const fn with_links(self, links: LinkFilter) -> Self {
        Self { links, ..self }
    }

    /// Of those, the calls where so many ranks in a row are known to share a node.
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

/// The ends of a range in the largest units of which they are multiples, as they are written.
struct RangeEnds {
    first: u128,
    /// `None`: without end.
    last: Option<u128>,
    /// Names and sizes, the largest first, the last of size 1.
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

/// The schedule of the first row that is for a call on an array of `n_bytes` over a network.
#[must_use]
pub fn first_of(
    rows: &[SelectionRule],
    call: ProgramSpec,
    n_bytes: usize,
    network: Network,
) -> Option<&'static dyn Schedule> {
    rows.iter().find(|row| row.is_for(call, n_bytes, network)).map(|row| row.schedule)
}

#[cfg(feature = "std")]
mod environment {
    use super::{ParseRulesError, SelectionRule, parse};
    use std::sync::OnceLock;

    /// The variable of the environment that [`from_env`] reads.
    pub const VARIABLE: &str = "FOLDWIRE_SELECT";

    /// The rows of the variable `FOLDWIRE_SELECT`; none where it is not set. It is read once.
    ///
    /// # Errors
    /// As [`parse`].
    pub fn from_env() -> Result<&'static [SelectionRule], ParseRulesError> {
        static ROWS: OnceLock<Result<std::vec::Vec<SelectionRule>, ParseRulesError>> =
            OnceLock::new();
        let text = || std::env::var_os(VARIABLE).unwrap_or_default();
        let rows = ROWS.get_or_init(|| parse(&text().to_string_lossy()));
        rows.as_deref().map_err(Clone::clone)
    }
}
