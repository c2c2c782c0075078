//! Selection rules as text, in the format that [`rules`](super) defines.

use super::{LinkFilter, SelectionRule};
use crate::schedule::{self, Collective, Schedule};
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use core::ops::RangeInclusive;

/// Reason why a text is not a list of rules.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ParseRulesError {
    /// A rule has fewer than four fields, or too many.
    #[error(
        "`{row}` is not a rule; write COLLECTIVE:RANKS:BYTES:SCHEDULE, as in \
         all-reduce:2-16:-64K:ring, with link=RATES or node=RANKS before the schedule if the rule \
         depends on them"
    )]
    Fields {
        /// The rule's text.
        row: String,
    },
    /// No collective has this name.
    #[error("there is no collective `{name}`; write one of {}", collectives())]
    Collective {
        /// The name.
        name: String,
    },
    /// No schedule has this name.
    #[error("there is no schedule `{name}`; write one of {}", schedules(None))]
    Schedule {
        /// The name.
        name: String,
    },
    /// The schedule cannot do the collective.
    #[error(
        "the schedule {schedule} does not support {}; write one of {}",
        collective.name(),
        schedules(Some(*collective))
    )]
    Unsupported {
        /// The schedule's name.
        schedule: &'static str,
        /// The collective.
        collective: Collective,
    },
    /// A text is neither a number nor a range of numbers.
    #[error("`{range}` is not a number or range; write 8, 2-16, 64K-1M or 1M-")]
    Range {
        /// The text.
        range: String,
    },
    /// A field between bytes and schedule is not a known condition.
    #[error("`{condition}` is not a condition; write link=-10gbit, link=unknown or node=2-")]
    Condition {
        /// The text.
        condition: String,
    },
    /// A text is neither a rate nor a range of rates.
    #[error(
        "`{rates}` is not a range of link rates; write unknown, 10gbit, 1gbit-10gbit, -250mbit or \
         10gbit-"
    )]
    Rates {
        /// The text.
        rates: String,
    },
    /// A rule has a second condition of the same kind.
    #[error("`{condition}` repeats a condition of this rule; write one range, or another rule")]
    Repeated {
        /// The text.
        condition: String,
    },
}

/// Names with commas between them.
struct NameList<I>(I);

impl<I: Iterator<Item = &'static str> + Clone> fmt::Display for NameList<I> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, name) in self.0.clone().enumerate() {
            write!(f, "{}{name}", if at == 0 { "" } else { ", " })?;
        }
        Ok(())
    }
}

fn collectives() -> impl fmt::Display {
    NameList(Collective::ALL.iter().map(|collective| collective.name()))
}

/// Schedules that support a collective, or all schedules.
fn schedules(collective: Option<Collective>) -> impl fmt::Display {
    let has = move |known: &&&dyn Schedule| collective.is_none_or(|it| known.supports(it));
    NameList(schedule::ALL.iter().filter(has).map(|known| known.name()))
}

/// Reads rules, `COLLECTIVE:RANKS:BYTES[:link=RATES][:node=RANKS]:SCHEDULE` with commas between
/// them.
///
/// # Errors
/// The mistake in the first invalid rule.
///
/// # Examples
/// ```
/// use foldwire::select::{LinkFilter, parse};
///
/// let rules = parse("all-reduce:2-16:-64K:recursive-doubling, all-reduce::1M-:ring")?;
/// assert_eq!(rules[0].n_bytes, 0..=65536);
///
/// // Long arrays over links of at most 10 Gbit/s; then arrays on ranks that share nodes.
/// let rules = parse("all-reduce::1M-:link=-10gbit:pairwise,all-reduce:::node=2-:two-levels")?;
/// assert_eq!(rules[0].links, LinkFilter::Rates(0..=1_250_000_000));
/// assert_eq!(rules[1].ranks_per_node, 2..=usize::MAX);
/// # Ok::<(), foldwire::select::ParseRulesError>(())
/// ```
pub fn parse(text: &str) -> Result<Vec<SelectionRule>, ParseRulesError> {
    let rules = text.split(',').map(str::trim).filter(|rule| !rule.is_empty());
    rules.map(rule).collect()
}

/// Reads one rule.
fn rule(text: &str) -> Result<SelectionRule, ParseRulesError> {
    let fields: Vec<&str> = text.split(':').map(str::trim).collect();
    let [collective, ranks, n_bytes, conditions @ .., name] = &fields[..] else {
        return Err(ParseRulesError::Fields { row: text.into() });
    };
    let known = Collective::ALL.into_iter().find(|known| known.name() == *collective);
    let no_collective = || ParseRulesError::Collective { name: (*collective).into() };
    let collective = known.ok_or_else(no_collective)?;
    let (mut links, mut nodes) = (None, None);
    for &condition in conditions {
        let is_second = match condition.split_once('=').map(|(kind, text)| (kind.trim(), text)) {
            Some(("link", text)) => links.replace(rates(text.trim())?).is_some(),
            Some(("node", text)) => nodes.replace(node_sizes(text.trim())?).is_some(),
            _ => return Err(ParseRulesError::Condition { condition: condition.into() }),
        };
        if is_second {
            return Err(ParseRulesError::Repeated { condition: condition.into() });
        }
    }
    let schedule: &'static dyn Schedule =
        *(schedule::ALL.iter().find(|known| known.name() == *name))
            .ok_or_else(|| ParseRulesError::Schedule { name: (*name).into() })?;
    if !schedule.supports(collective) {
        let schedule = schedule.name();
        return Err(ParseRulesError::Unsupported { schedule, collective });
    }
    let mut rule = SelectionRule::new(collective, schedule);
    rule.ranks = range_or_all(ranks, plain)?;
    rule.n_bytes = range_or_all(n_bytes, scaled)?;
    rule.links = links.unwrap_or(rule.links);
    rule.ranks_per_node = nodes.unwrap_or(rule.ranks_per_node);
    Ok(rule)
}

/// The range of a rule's field for ranks or bytes. An empty field means all numbers.
fn range_or_all(
    text: &str,
    number: fn(&str) -> Option<usize>,
) -> Result<RangeInclusive<usize>, ParseRulesError> {
    if text.is_empty() {
        return Ok(0..=usize::MAX);
    }
    range(text, number, usize::MAX).ok_or_else(|| ParseRulesError::Range { range: text.into() })
}

/// The range of the condition `node=RANKS`.
fn node_sizes(text: &str) -> Result<RangeInclusive<usize>, ParseRulesError> {
    let wrong = || ParseRulesError::Range { range: text.into() };
    range(text, plain, usize::MAX).ok_or_else(wrong)
}

/// The value of the condition `link=RATES`.
fn rates(text: &str) -> Result<LinkFilter, ParseRulesError> {
    if text == "unknown" {
        return Ok(LinkFilter::Unknown);
    }
    let wrong = || ParseRulesError::Rates { rates: text.into() };
    range(text, rate, u64::MAX).map(LinkFilter::Rates).ok_or_else(wrong)
}

/// A number, or a range whose ends may each be left out.
fn range<N: Copy + Default + PartialOrd>(
    text: &str,
    number: fn(&str) -> Option<N>,
    most: N,
) -> Option<RangeInclusive<N>> {
    let end = |text: &str, open: N| match text.trim() {
        "" => Some(open),
        text => number(text),
    };
    let (first, last) = match text.split_once('-') {
        Some((first, last)) => end(first, N::default()).zip(end(last, most))?,
        None => number(text).map(|one| (one, one))?,
    };
    (first <= last).then_some(first..=last)
}

/// A number without a suffix.
fn plain(text: &str) -> Option<usize> {
    whole(text)
}

/// A number in digits, without a sign.
fn whole<N: core::str::FromStr>(text: &str) -> Option<N> {
    text.parse().ok().filter(|_| text.starts_with(|c: char| c.is_ascii_digit()))
}

/// A number, with or without one of the suffixes K, M and G (powers of 1024).
fn scaled(text: &str) -> Option<usize> {
    let shift = match text.chars().last()?.to_ascii_uppercase() {
        'K' => 10,
        'M' => 20,
        'G' => 30,
        _ => return plain(text),
    };
    plain(&text[..text.len() - 1])?.checked_mul(1 << shift)
}

/// Bytes per second of a rate such as `2.5gbit`.
fn rate(text: &str) -> Option<u64> {
    let unit_at = text.find(|c: char| c.is_ascii_alphabetic())?;
    let (number, unit) = text.split_at(unit_at);
    let n_bits: u128 = match unit.to_ascii_lowercase().as_str() {
        "bit" => 1,
        "kbit" => 1000,
        "mbit" => 1_000_000,
        "gbit" => 1_000_000_000,
        _ => return None,
    };
    let (ones, fraction) = number.split_once('.').unwrap_or((number, "0"));
    // The largest unit has 10⁹ bits, so further decimals would be fractions of a bit.
    if fraction.len() > 9 {
        return None;
    }
    let part = n_bits * whole::<u128>(fraction)? / 10u128.pow(fraction.len() as u32);
    let n_bits = n_bits.checked_mul(whole(ones)?)?.checked_add(part)?;
    u64::try_from(n_bits / 8).ok()
}

#[cfg(test)]
mod tests {
    use super::super::first_of;
    use super::*;
    use crate::schedule::ProgramSpec;
    use crate::select::Network;
    use crate::transport::Rank;
    use std::string::ToString;

    fn over(link_rate: Option<f64>) -> Network {
        Network { link_rate, frame_bytes: 1 << 18 }
    }

    #[test]
    fn the_first_row_that_fits_is_taken() {
        let text = "all-reduce:2-8:-64K:recursive-doubling, all-reduce:4::pairwise,\
                    broadcast::1M-:chain,";
        let rules = parse(text).expect("valid rules");
        let found = |collective, size, n_bytes| {
            let call = ProgramSpec::new(collective, size, Rank(0));
            first_of(&rules, call, n_bytes, over(None)).map(Schedule::name)
        };
        use Collective::{AllReduce, Broadcast};
        assert_eq!(found(AllReduce, 4, 65_536), Some("recursive-doubling"));
        assert_eq!(found(AllReduce, 4, 65_537), Some("pairwise"));
        assert_eq!(found(AllReduce, 9, 0), None);
        assert_eq!(found(Broadcast, 4, 1 << 20), Some("chain"));
        assert_eq!(found(Broadcast, 4, (1 << 20) - 1), None);
    }

    #[test]
    fn a_row_is_for_its_links_and_nodes_alone() {
        let text = "all-reduce:::link=-1gbit:pairwise, all-reduce:::node=2-4 : two-levels,
                    all-reduce:::node=1:link=unknown:ring, all-reduce:::link=100gbit-:circulant";
        let rules = parse(text).expect("valid rules");
        let found = |link_rate, per_node| {
            let call = ProgramSpec::new(Collective::AllReduce, 8, Rank(0)).with_nodes(per_node);
            first_of(&rules, call, 1000, over(link_rate)).map(Schedule::name)
        };
        assert_eq!(found(Some(0.125e9), 4), Some("pairwise"));
        assert_eq!(found(Some(0.126e9), 4), Some("two-levels"));
        assert_eq!(found(Some(0.126e9), 1), None);
        assert_eq!(found(None, 2), Some("two-levels"));
        assert_eq!(found(None, 8), None);
        assert_eq!(found(None, 1), Some("ring"));
        assert_eq!(found(Some(12.5e9), 8), Some("circulant"));
        assert_eq!(found(Some(f64::INFINITY), 8), Some("circulant"));
        // A rule without conditions applies to all links and nodes.
        let any = parse("all-reduce:::ring").expect("a valid rule");
        let call = ProgramSpec::new(Collective::AllReduce, 8, Rank(0)).with_nodes(4);
        for rate in [None, Some(1.0), Some(f64::MAX)] {
            assert!(first_of(&any, call, 0, over(rate)).is_some());
        }
    }

    #[test]
    fn what_is_no_row_says_why() {
        let wrong = |text: &str| parse(text).expect_err("the rule is invalid");
        assert!(matches!(wrong("all-reduce:ring"), ParseRulesError::Fields { .. }));
        assert!(matches!(wrong("all-reduce::ring"), ParseRulesError::Fields { .. }));
        assert!(matches!(wrong("all-reduce:::ring:5"), ParseRulesError::Condition { .. }));
        assert!(matches!(wrong("allreduce:::ring"), ParseRulesError::Collective { .. }));
        assert!(matches!(wrong("all-reduce:::rign"), ParseRulesError::Schedule { .. }));
        assert!(matches!(wrong("broadcast:::ring"), ParseRulesError::Unsupported { .. }));
        for range in ["x", "8-2", "1K-1", "+1", "-1-2", "K", "99999999999999999999", "1Z"] {
            let error = wrong(&std::format!("all-reduce::{range}:ring"));
            assert!(matches!(error, ParseRulesError::Range { .. }), "{range}: {error}");
        }
        assert!(matches!(wrong("all-reduce:2K::ring"), ParseRulesError::Range { .. }));
        for condition in ["1gbit", "rate=1gbit", "=", "", "link"] {
            let error = wrong(&std::format!("all-reduce:::{condition}:ring"));
            assert!(matches!(error, ParseRulesError::Condition { .. }), "{condition}: {error}");
        }
        let too_long = "1.0000000000gbit";
        for rates in [
            "",
            "1",
            "1G",
            "2gbit-1gbit",
            "-1-1gbit",
            "+1gbit",
            ".5gbit",
            "1.gbit",
            "1e3bit",
            "none",
            "99999999999999999999gbit",
            "18446744073709551615gbit",
            too_long,
        ] {
            let error = wrong(&std::format!("all-reduce:::link={rates}:ring"));
            assert!(matches!(error, ParseRulesError::Rates { .. }), "{rates}: {error}");
        }
        for ranks in ["", "x", "2-1", "2K"] {
            let error = wrong(&std::format!("all-reduce:::node={ranks}:ring"));
            assert!(matches!(error, ParseRulesError::Range { .. }), "{ranks}: {error}");
        }
        for twice in ["link=-:link=unknown", "node=1:link=-:node=1"] {
            let error = wrong(&std::format!("all-reduce:::{twice}:ring"));
            assert!(matches!(error, ParseRulesError::Repeated { .. }), "{twice}: {error}");
        }
    }

    #[test]
    fn what_is_wrong_says_what_can_be_written() {
        let said = |text: &str| parse(text).expect_err("the rule is invalid").to_string();
        assert!(said("allreduce:::ring").contains("all-reduce, reduce-scatter, "));
        assert!(said("all-reduce:::rign").contains("ring, recursive-doubling, "));
        let of_broadcast = said("broadcast:::ring");
        assert!(of_broadcast.contains("binomial, chain") && !of_broadcast.contains("pairwise"));
        assert!(said("all-reduce:::link=1G:ring").contains("1gbit-10gbit"));
    }

    #[test]
    fn rows_print_as_they_are_written() {
        for text in [
            "all-reduce:::ring",
            "all-reduce:2-16:-64K:recursive-doubling",
            "broadcast:8:1M-:chain",
            "scan:0:0:chain",
            "all-reduce::1025-3G:link=unknown:ring",
            "all-reduce:::link=-:ring",
            "all-reduce:::link=250mbit-2500mbit:node=2-:two-levels",
            "all-reduce:-3::link=64kbit:ring",
            "all-reduce:::link=10gbit-:ring",
            "all-reduce:::node=1:ring",
        ] {
            assert_eq!(parse(text).expect(text)[0].to_string(), text);
        }
        let rules = parse("all-reduce::2048:node=2:link=2.5gbit:ring").expect("a valid rule");
        assert_eq!(rules[0].to_string(), "all-reduce::2K:link=2500mbit:node=2:ring");
    }

    #[test]
    fn what_is_printed_reads_as_the_same_row() {
        let mut bits = 1u64;
        let mut draw = || {
            // A linear congruential generator with Knuth's multiplier. The shift gives numbers of
            // all lengths.
            bits = bits.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let n = bits >> (bits >> 58);
            [n, 0, u64::MAX, n & !0x3ff, n / 1_000_000 * 125_000][(bits >> 32) as usize % 5]
        };
        for _ in 0..10_000 {
            let mut pair = || {
                let (a, b) = (draw(), draw());
                a.min(b)..=a.max(b)
            };
            let sizes = |pair: RangeInclusive<u64>| *pair.start() as usize..=*pair.end() as usize;
            let links = match pair() {
                pair if pair.start() % 3 == 0 => LinkFilter::Any,
                pair if pair.start() % 3 == 1 => LinkFilter::Unknown,
                pair => LinkFilter::Rates(pair),
            };
            let rule = SelectionRule::new(Collective::AllReduce, schedule::ALL[0])
                .with_ranks(sizes(pair()))
                .with_bytes(sizes(pair()))
                .with_links(links)
                .with_nodes(sizes(pair()));
            let text = rule.to_string();
            let read = parse(&text).expect(&text).remove(0);
            let parts = |rule: &SelectionRule| {
                let SelectionRule { ranks, n_bytes, links, ranks_per_node, .. } = rule.clone();
                (rule.collective, ranks, n_bytes, links, ranks_per_node, rule.schedule.name())
            };
            assert_eq!(parts(&read), parts(&rule), "{text}");
        }
    }
}
