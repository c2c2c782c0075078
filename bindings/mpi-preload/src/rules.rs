//! Rules for some calls, from `FOLDWIRE_RULES`. Pure.
//!
//! A rule is `CONDITIONS: MODE`, and `;` separates rules. Blanks separate conditions, and each kind
//! may occur once. A rule applies if all of its conditions hold. The first rule that applies
//! decides about a call. If none applies, `FOLDWIRE_BOUND` or the collective's own variable
//! decides.
//!
//! | condition | holds for calls |
//! |---|---|
//! | `MPI_Allreduce`, or another of the eight collectives | of this collective |
//! | `f32`, `f64`, `i32`, `i64` | on values of this type |
//! | `64k-1M`, `1M-`, `-64k` | on whole arrays with a number of bytes in this range |
//! | `comm=NAME` | on communicators with this name, or with this prefix: `comm=halo*` |
//!
//! A rule with a minimum length takes all calls of at least this length. Other rules take calls
//! from the length at which Foldwire is faster than the MPI library.
//!
//! *Names.* The name of a communicator is read at its first call that may be taken.
//! MPI allows different names on different ranks, so the ranks compare which rules the name matches
//! (`comm_state`). Until then a rule with a name may or may not apply ([`MatchedNames::Unknown`]).

use std::ops::RangeInclusive;
use std::str::FromStr;

use foldwire::schedule::Collective;

use crate::decide::COLLECTIVES;
use crate::settings::{TransferMode, bytes};
use crate::signature::BaseType;

/// A rule.
#[derive(Clone, Debug, PartialEq)]
pub struct Rule {
    collective: Option<Collective>,
    base: Option<BaseType>,
    n_bytes: RangeInclusive<usize>,
    comm: Option<NamePattern>,
    pub(crate) mode: TransferMode,
}

/// Pattern for names of communicators.
#[derive(Clone, Debug, PartialEq)]
enum NamePattern {
    Whole(String),
    Beginning(String),
}

/// Largest number of rules. [`MatchedNames`] has one bit for each.
const MAX_RULES: usize = 63;

/// Rules whose pattern a communicator's name matches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MatchedNames {
    /// The name is not known yet.
    Unknown,
    /// One bit for each rule. A rule without a name matches every name.
    Known(i64),
}

/// Answer to the question whether a rule's condition on the name holds for a call.
#[derive(Clone, Copy, PartialEq, Eq)]
enum RuleMatch {
    No,
    Maybe,
    Yes,
}

/// All rules, in order.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RuleList(Vec<Rule>);

impl RuleList {
    /// Rules that may apply to a call, in order. If the flag is `true`, the last one applies for
    /// certain. Otherwise the general settings come after them.
    pub(crate) fn of(
        &self,
        (collective, base, n_bytes): (Collective, Option<BaseType>, usize),
        names: MatchedNames,
    ) -> (Vec<&Rule>, bool) {
        let mut found = Vec::new();
        for (at, rule) in self.0.iter().enumerate() {
            let fits = rule.is_of(collective)
                && rule.base.is_none_or(|wanted| base == Some(wanted))
                && rule.n_bytes.contains(&n_bytes);
            match rule.fit(at, names) {
                RuleMatch::Yes if fits => {
                    found.push(rule);
                    return (found, true);
                }
                RuleMatch::Maybe if fits => found.push(rule),
                _ => {}
            }
        }
        (found, false)
    }

    /// Rules that may apply to calls of this collective.
    pub(crate) fn any_of(&self, collective: Collective) -> impl Iterator<Item = &Rule> {
        self.0.iter().filter(move |rule| rule.is_of(collective))
    }

    /// Returns whether a rule has a condition on the name.
    pub(crate) fn have_names(&self) -> bool {
        self.0.iter().any(|rule| rule.comm.is_some())
    }

    /// Rules that a name matches, as in [`MatchedNames::Known`].
    #[must_use]
    pub fn matching_names(&self, name: &str) -> i64 {
        let fits = |rule: &Rule| match &rule.comm {
            None => true,
            Some(NamePattern::Whole(whole)) => name == whole,
            Some(NamePattern::Beginning(beginning)) => name.starts_with(beginning),
        };
        let bits = self.0.iter().enumerate().filter(|(_, rule)| fits(rule)).map(|(at, _)| 1 << at);
        bits.fold(0, |all, bit| all | bit)
    }
}

impl Rule {
    fn is_of(&self, collective: Collective) -> bool {
        self.collective.is_none_or(|wanted| wanted == collective)
    }

    fn fit(&self, at: usize, names: MatchedNames) -> RuleMatch {
        match (&self.comm, names) {
            (None, _) => RuleMatch::Yes,
            (Some(_), MatchedNames::Unknown) => RuleMatch::Maybe,
            (Some(_), MatchedNames::Known(matched)) if matched >> at & 1 == 1 => RuleMatch::Yes,
            (Some(_), MatchedNames::Known(_)) => RuleMatch::No,
        }
    }

    /// Minimum length in bytes, if the rule has one.
    pub(crate) fn first(&self) -> Option<usize> {
        Some(*self.n_bytes.start()).filter(|&first| first > 0)
    }

    /// Maximum length in bytes.
    pub(crate) fn last(&self) -> usize {
        *self.n_bytes.end()
    }
}

impl FromStr for RuleList {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let rows = text.split(';').map(str::trim).filter(|row| !row.is_empty());
        let rows = rows.map(str::parse).collect::<Result<Vec<_>, _>>()?;
        if rows.len() > MAX_RULES {
            return Err(format!("these are {} rules; write {MAX_RULES} at most", rows.len()));
        }
        Ok(Self(rows))
    }
}

impl FromStr for Rule {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (conditions, mode) = text.split_once(": ").ok_or_else(|| {
            format!(
                "`{text}` is no rule; write CONDITIONS: MODE, as in MPI_Allreduce f64 1M-: rel:1e-4"
            )
        })?;
        let mode = mode.trim();
        let mode = mode.parse().map_err(|error| format!("`{mode}`: {error}"))?;
        let (mut collective, mut base, mut n_bytes, mut comm) = (None, None, None, None);
        for word in conditions.split_whitespace() {
            let is_second = if let Some(name) = word.strip_prefix("comm=") {
                comm.replace(match name.strip_suffix('*') {
                    Some(beginning) => NamePattern::Beginning(beginning.into()),
                    None => NamePattern::Whole(name.into()),
                })
                .is_some()
            } else if let Some(known) = collective_of(word) {
                collective.replace(known).is_some()
            } else if let Some(known) = base_of(word) {
                base.replace(known).is_some()
            } else {
                n_bytes.replace(range(word)?).is_some()
            };
            if is_second {
                return Err(format!(
                    "`{word}` is the second condition of its kind; write another rule"
                ));
            }
        }
        Ok(Self { collective, base, n_bytes: n_bytes.unwrap_or(0..=usize::MAX), comm, mode })
    }
}

fn collective_of(word: &str) -> Option<Collective> {
    let name = word.strip_prefix("MPI_").unwrap_or(word);
    let row = COLLECTIVES.iter().find(|row| row.name.eq_ignore_ascii_case(name))?;
    Some(row.collective)
}

fn base_of(word: &str) -> Option<BaseType> {
    Some(match word {
        "f32" => BaseType::F32,
        "f64" => BaseType::F64,
        "i32" => BaseType::I32,
        "i64" => BaseType::I64,
        _ => return None,
    })
}

fn range(word: &str) -> Result<RangeInclusive<usize>, String> {
    let wrong = || {
        format!(
            "`{word}` is no condition; write a collective (MPI_Allreduce), a type (f32, f64, i32, \
             i64), lengths (64k-1M, 1M-, -64k) or comm=NAME"
        )
    };
    let (first, last) = word.split_once('-').ok_or_else(wrong)?;
    let or = |text: &str, open| if text.is_empty() { Ok(open) } else { bytes(text) };
    let range = or(first, 0).map_err(|_| wrong())?..=or(last, usize::MAX).map_err(|_| wrong())?;
    if range.is_empty() { Err(wrong()) } else { Ok(range) }
}
