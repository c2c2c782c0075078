//! Counts over many seeds.

use super::execute::{CallRecord, RunRecord, ShrinkOutcome, SoakOutcome};
use crate::case::Deal;
use foldwire::Error;
use foldwire_sim::End;
use std::collections::BTreeMap;
use std::ops::AddAssign;
use std::time::Duration;

/// Sums over seeds.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SoakTally {
    /// Number of seeds.
    pub n_seeds: u64,
    /// Seeds that broke a guarantee.
    pub n_failures: u64,
    /// Calls, counted on each rank.
    pub n_calls: u64,
    /// Messages that were sent or received, not counting those of collectives.
    pub n_messages: u64,
    /// Polls of ranks.
    pub n_polls: u64,
    /// Events: frames sent and received, and troubles.
    pub n_events: u64,
    /// Virtual time.
    pub time: Duration,
    /// Troubles, by kind.
    pub troubles: BTreeMap<&'static str, u64>,
    /// Results of calls, by kind.
    pub outcomes: BTreeMap<&'static str, u64>,
    /// Number of calls and of successful calls, by form.
    pub forms: BTreeMap<&'static str, [u64; 2]>,
}

impl SoakTally {
    pub(super) fn of(record: &RunRecord) -> Self {
        let mut tally = Self {
            n_seeds: 1,
            n_messages: record.n_messages,
            n_polls: record.n_polls,
            n_events: record.trace.n_events as u64,
            time: record.time,
            ..Self::default()
        };
        for trouble in &record.occurred {
            *tally.troubles.entry(trouble.kind()).or_default() += 1;
        }
        for regrouped in record.groups.iter().flatten() {
            let all = record.groups.len();
            let kind = match regrouped {
                ShrinkOutcome::In { members, summed: Ok(_) } if members.len() == all => {
                    "shrunk to all"
                }
                ShrinkOutcome::In { summed: Ok(_), .. } => "shrunk to survivors",
                ShrinkOutcome::In { .. } => "shrunk, and failed",
                ShrinkOutcome::Out(_) => "not shrunk",
            };
            *tally.outcomes.entry(kind).or_default() += 1;
        }
        let n_early_errors = record.early_errors.iter().flatten().count() as u64;
        if n_early_errors > 0 {
            *tally.outcomes.entry("no communicator or message").or_default() += n_early_errors;
        }
        for (calls, end) in record.calls.iter().zip(&record.ends) {
            for called in calls {
                tally.n_calls += 1;
                *tally.outcomes.entry(kind(called, end)).or_default() += 1;
                let form = match called.case.deal {
                    _ if record.grouped => "array of a group",
                    Deal::Even => "evenly dealt",
                    Deal::Uneven(_) => "by counts",
                };
                let [n_made, n_succeeded] = tally.forms.entry(form).or_default();
                *n_made += 1;
                *n_succeeded += u64::from(matches!(called.outcome, SoakOutcome::Ok(..)));
            }
        }
        tally
    }
}

fn kind(called: &CallRecord, end: &End<()>) -> &'static str {
    match (&called.outcome, end) {
        (SoakOutcome::Ok(..), _) => "success",
        (SoakOutcome::Dropped { .. }, _) => "dropped",
        (SoakOutcome::UnderWay, End::Died) => "died",
        (SoakOutcome::UnderWay, End::Silent) => "silent for ever",
        (SoakOutcome::UnderWay, _) => "panicked or hung",
        (SoakOutcome::Err { error, .. }, _) => match error {
            Error::Mismatch { .. } => "disagreement",
            Error::Frame { .. } => "damaged frame",
            Error::Aborted { .. } => "told by another",
            Error::Stalled { .. } => "stalled",
            Error::Transport { .. } => "peer lost",
            error if error.is_usage() => "unusable bound",
            _ => "another error",
        },
    }
}

impl AddAssign for SoakTally {
    fn add_assign(&mut self, other: Self) {
        self.n_seeds += other.n_seeds;
        self.n_failures += other.n_failures;
        self.n_calls += other.n_calls;
        self.n_messages += other.n_messages;
        self.n_polls += other.n_polls;
        self.n_events += other.n_events;
        self.time += other.time;
        for (kind, n) in other.troubles {
            *self.troubles.entry(kind).or_default() += n;
        }
        for (kind, n) in other.outcomes {
            *self.outcomes.entry(kind).or_default() += n;
        }
        for (form, counts) in other.forms {
            let sums = self.forms.entry(form).or_default();
            sums.iter_mut().zip(counts).for_each(|(sum, n)| *sum += n);
        }
    }
}
