//! Checks that every rank kept the library's guarantees.

use super::draw::{Scenario, TIMEOUT, Trouble};
use super::execute::{CallRecord, RunRecord, ShrinkOutcome, SoakOutcome};
use crate::{Case, data, with_type};
use foldwire::codec::CodecError;
use foldwire::error::AbortReason;
use foldwire::transport::TransportErrorKind;
use foldwire::{Collective, Error, Float, Rank, Report};
use foldwire_sim::{End, Fault};
use std::time::Duration;

/// Slack for the clock: time moves in steps of an eighth of the limit while nothing happens, and a
/// rank reads the clock between two steps.
const SLACK: Duration = TIMEOUT.checked_div(2).expect("not by zero");

/// Checks the record of a run.
///
/// # Errors
/// The guarantee that was broken.
pub(super) fn judge(scenario: &Scenario, record: &RunRecord) -> Result<(), String> {
    for (rank, end) in record.ends.iter().enumerate() {
        let occurred = |is_kind: fn(&Fault) -> bool| {
            let of_rank = |fault: &Fault| fault.rank().index() == rank && is_kind(fault);
            record.occurred.iter().any(|t| matches!(t, Trouble::Net(fault) if of_rank(fault)))
        };
        match end {
            End::Returned(()) => {}
            End::Died if occurred(|fault| matches!(fault, Fault::Death { .. })) => {}
            End::Silent if occurred(|f| matches!(f, Fault::Stall { lasting: None, .. })) => {}
            other => return Err(format!("rank {rank}: {other:?}")),
        }
    }
    for (rank, early_error) in record.early_errors.iter().enumerate() {
        if let Some((error, after)) = early_error {
            judge_error(scenario, record, rank, error, *after)
                .map_err(|wrong| format!("rank {rank} failed before a call: {error}: {wrong}"))?;
        }
    }
    for call in 0..scenario.calls.len() {
        judge_call(scenario, record, call).map_err(|wrong| format!("call {call}: {wrong}"))?;
    }
    judge_last(scenario, record).map_err(|wrong| format!("the last call: {wrong}"))?;
    judge_groups(scenario, record)?;
    match record.n_leaked {
        0 => Ok(()),
        n => Err(format!("{n} frames are missing at the end")),
    }
}

/// Checks the sum that follows the scenario's calls. It must contain all ranks, or fail with a
/// cause. Ranks on which it fails shrink.
fn judge_last(scenario: &Scenario, record: &RunRecord) -> Result<(), String> {
    for (rank, last) in record.last.iter().enumerate() {
        match last {
            None => {}
            Some(Ok(present)) if present.iter().copied().eq(0..scenario.size) => {}
            Some(Ok(present)) => return Err(format!("rank {rank}: a sum over {present:?}")),
            Some(Err((error, after))) => judge_error(scenario, record, rank, error, *after)
                .map_err(|wrong| format!("rank {rank}: {error}: {wrong}"))?,
        }
    }
    Ok(())
}

/// Checks the groups of survivors: no rank may compute with a rank outside its group, or mistake it
/// for another.
fn judge_groups(scenario: &Scenario, record: &RunRecord) -> Result<(), String> {
    let struck = OccurredTroubles { scenario, record };
    let all_is_well = struck.nothing_but(|_| false);
    // A rank that drops a call loses no data and no peer.
    let must_all_come_back =
        !all_is_well && !scenario.leaves && scenario.shrinks && struck.nothing_but(is_drop);
    let mut formed: Vec<(usize, &[usize])> = Vec::new();
    for (rank, regrouped) in record.groups.iter().enumerate() {
        if must_all_come_back {
            let is_back = matches!(regrouped, Some(ShrinkOutcome::In { members, summed: Ok(_) })
                if members.iter().copied().eq(0..scenario.size));
            if !is_back {
                return Err(format!(
                    "a call was aborted, and rank {rank} is not in the new group: {regrouped:?}"
                ));
            }
        }
        match regrouped {
            None => {}
            Some(_) if all_is_well => {
                return Err(format!("rank {rank} shrank, but nothing had happened"));
            }
            Some(ShrinkOutcome::Out(error)) if error.is_usage() => {
                return Err(format!("rank {rank} is in no group: {error}"));
            }
            Some(ShrinkOutcome::Out(_)) => {}
            Some(ShrinkOutcome::In { members, summed }) => {
                let context = format!("rank {rank}, in a group of {members:?}");
                if !members.contains(&rank) {
                    return Err(format!("{context}: the rank itself is missing"));
                }
                match summed {
                    Ok(present) if present == members => formed.push((rank, members)),
                    Ok(present) => return Err(format!("{context}: a sum over {present:?}")),
                    Err(_) => {}
                }
            }
        }
    }
    for &(a, ours) in &formed {
        for &(b, theirs) in &formed {
            if ours != theirs && ours.iter().any(|rank| theirs.contains(rank)) {
                return Err(format!("ranks {a} and {b} succeeded in {ours:?} and {theirs:?}"));
            }
        }
    }
    Ok(())
}

/// Checks one call: its result or error on every rank, and that results have the same bits.
fn judge_call(scenario: &Scenario, record: &RunRecord, call: usize) -> Result<(), String> {
    let called = |rank: usize| record.calls[rank].get(call);
    let is_unprotected = OccurredTroubles { scenario, record }.is_unprotected();
    let mut digests = Vec::new();
    for rank in 0..scenario.size {
        let Some(CallRecord { case, is_twisted, outcome }) = called(rank) else { continue };
        let context = |wrong| format!("rank {rank}: {wrong}");
        match outcome {
            SoakOutcome::UnderWay => {}
            SoakOutcome::Dropped { next } => {
                if *next != Some(Error::Poisoned) {
                    return Err(context(format!(
                        "after it was dropped, another call said {next:?}"
                    )));
                }
            }
            SoakOutcome::Ok(values, report) => {
                let missing = contributors(case, rank).find(|&other| called(other).is_none());
                if let Some(other) = missing {
                    return Err(context(format!(
                        "a result without rank {other}, which never called"
                    )));
                }
                if let Some(other) = (0..scenario.size).find(|&other| {
                    called(other)
                        .is_some_and(|theirs| differ_in_counts(case, &theirs.case, other, rank))
                }) {
                    return Err(context(format!(
                        "a result, though rank {other} has another number of values for it"
                    )));
                }
                let made_by = |rank| called(rank).map_or(*case, |called| called.case);
                if is_unprotected {
                    continue;
                }
                let digest = with_type!(case.dtype, T => {
                    verify(case, rank, &data::from_bytes::<T>(values), report, &made_by)
                });
                let digest = digest.map_err(context)?;
                if case.is_the_same_everywhere() && !is_twisted {
                    digests.push((rank, digest));
                }
            }
            SoakOutcome::Err { error, after, next } => {
                judge_error(scenario, record, rank, error, *after)
                    .map_err(|wrong| context(format!("{error}: {wrong}")))?;
                if !error.is_usage() && *next != Some(Error::Poisoned) {
                    return Err(context(format!("{error}, and then another call said {next:?}")));
                }
            }
        }
    }
    match digests.iter().find(|(_, digest)| *digest != digests[0].1) {
        Some((rank, _)) => Err(format!("rank {rank} has other bits than rank {}", digests[0].0)),
        None => Ok(()),
    }
}

/// Compares a result with the oracle. Returns a hash of its bits.
fn verify<T: Float>(
    case: &Case,
    rank: usize,
    values: &[T],
    report: &Report,
    made_by: &dyn Fn(usize) -> Case,
) -> Result<u64, String> {
    case.verify_among(rank, values, report, &case.inputs_by(made_by), made_by)?;
    Ok(data::digest(values))
}

/// Returns whether `rank`, with the case `ours`, expects another number of values than `other`
/// sends.
fn differ_in_counts(ours: &Case, theirs: &Case, other: usize, rank: usize) -> bool {
    other != rank
        && ours.collective == theirs.collective
        && (ours.deal, ours.count) != (theirs.deal, theirs.count)
        && ours.n_passing(other, rank) != theirs.n_passing(other, rank)
}

/// Returns the other ranks that must contribute to the result of `rank`.
fn contributors(case: &Case, rank: usize) -> impl Iterator<Item = usize> {
    let (collective, root) = (case.collective, case.root);
    (0..case.size).filter(move |&other| match collective {
        Collective::Broadcast | Collective::Scatter => other == root && rank != root,
        Collective::Gather | Collective::Reduce => rank == root && other != rank,
        Collective::Scan | Collective::ExclusiveScan => other < rank,
        _ => other != rank,
    })
}

/// Troubles that occurred in a run.
struct OccurredTroubles<'a> {
    scenario: &'a Scenario,
    record: &'a RunRecord,
}

const fn is_drop(trouble: &Trouble) -> bool {
    matches!(trouble, Trouble::Drop { .. })
}

impl OccurredTroubles<'_> {
    /// Returns whether `is_excepted` is true for every trouble that may make a call fail.
    fn nothing_but(&self, is_excepted: fn(&Trouble) -> bool) -> bool {
        let mut struck = self.record.occurred.iter();
        struck.all(|trouble| is_excepted(trouble) || self.scenario.is_bearable(trouble))
    }

    /// Returns whether abort notices leave the rank. There must be space for them at the first
    /// attempt. If frames leave only while the sender polls, the rank must poll on.
    const fn notices_leave(&self) -> bool {
        let Scenario { net, leaves, shrinks, .. } = self.scenario;
        net.refusal == 0 && (!net.attended || *leaves || *shrinks)
    }

    /// Returns whether a trouble may show in frames.
    fn in_frames(&self) -> bool {
        self.record.occurred.iter().any(|trouble| self.scenario.shows_in_frames(trouble))
    }

    /// Returns whether frames were damaged while no rank had checksums. Then nothing is guaranteed
    /// about results, and an inconsistent frame names no rank.
    fn is_unprotected(&self) -> bool {
        let struck = &self.record.occurred;
        struck.iter().any(|trouble| matches!(trouble, Trouble::Net(Fault::Harm { .. })))
            && self.scenario.lacks_checksums()
    }

    /// Returns whether a rank ended before the others, or a link was cut and its ends were
    /// notified.
    fn may_lose_a_peer(&self) -> bool {
        let is_told = |trouble: &Trouble| {
            use Fault::{Cut, Death};
            matches!(trouble, Trouble::Net(Death { .. } | Cut { silent: false, .. }))
        };
        let is_out =
            |regrouped: &Option<ShrinkOutcome>| matches!(regrouped, Some(ShrinkOutcome::Out(_)));
        self.scenario.leaves
            || self.record.occurred.iter().any(is_told)
            || self.record.groups.iter().any(is_out)
    }

    /// Returns whether nothing happened except that ranks made different calls, and each rank's
    /// last call failed, but not by a usage error. So no rank returned before the others called.
    fn is_disagreement(&self) -> bool {
        let differs =
            |trouble: &Trouble| matches!(trouble, Trouble::Twist { .. } | Trouble::Lanes { .. });
        let failed = |calls: &Vec<CallRecord>| match calls.last().map(|called| &called.outcome) {
            Some(SoakOutcome::Err { error, .. }) => !error.is_usage(),
            _ => false,
        };
        self.nothing_but(differs) && self.notices_leave() && self.record.calls.iter().all(failed)
    }

    /// Returns whether a rank dropped a call and continued.
    fn dropped(&self, rank: usize) -> bool {
        let mut struck = self.record.occurred.iter();
        struck.any(|trouble| matches!(trouble, Trouble::Drop { rank: who, .. } if *who == rank))
    }

    /// Returns whether a rank notified others that a call is over, or may have done so before a
    /// fault ended or silenced it.
    fn gave_up(&self, rank: usize) -> bool {
        let is_over = |called: &CallRecord| !matches!(called.outcome, SoakOutcome::Ok(..));
        self.record.calls[rank].iter().any(is_over)
            || self.record.early_errors[rank].is_some()
            || matches!(self.record.last[rank], Some(Err(_)))
            || !matches!(self.record.ends[rank], End::Returned(()))
    }
}

/// Returns whether an error says that ranks disagree: this rank and another, or the ranks of an
/// aborted call.
const fn names_mismatch(error: &Error) -> bool {
    matches!(
        error,
        Error::Mismatch { .. } | Error::Aborted { reason: AbortReason::Mismatch(_), .. }
    )
}

/// Checks that an error has a cause, names another rank, and came in time. `after` is the time from
/// the rank's last frame to the error.
fn judge_error(
    scenario: &Scenario,
    record: &RunRecord,
    rank: usize,
    error: &Error,
    after: Duration,
) -> Result<(), String> {
    let struck = OccurredTroubles { scenario, record };
    if struck.nothing_but(|_| false) {
        return Err("but nothing happened that may make a call fail".into());
    }
    let named = match *error {
        _ if struck.is_disagreement() && !names_mismatch(error) => {
            return Err("but ranks disagreed, and the error does not say on what".into());
        }
        // A late message may be mistaken for a missing one once its sender is in its next call.
        Error::Mismatch { rank, ours, .. }
            if scenario.halo.is_some()
                && ours.to_string() == "message"
                && after >= TIMEOUT / 2
                && !struck.nothing_but(is_drop) =>
        {
            Some(rank)
        }
        Error::Mismatch { .. } | Error::Frame { .. } if !struck.in_frames() => {
            return Err("but no frame was damaged and no rank made a different call".into());
        }
        Error::Stalled { .. } if struck.nothing_but(is_drop) && struck.notices_leave() => {
            return Err("but the rank that aborted the call has notified the others".into());
        }
        Error::Transport { kind: TransportErrorKind::PeerLost, .. }
            if !struck.may_lose_a_peer() =>
        {
            return Err("but no rank left".into());
        }
        // A failed message of this rank can end its calls and messages; the error names the
        // culprit.
        Error::Aborted { rank: own, culprit, reason: AbortReason::Message }
            if own.index() == rank && scenario.messages.is_some() =>
        {
            Some(culprit)
        }
        // A dropped call ends the rank's messages too.
        Error::Poisoned if scenario.messages.is_some() && struck.dropped(rank) => return Ok(()),
        // A damaged frame may look like an abort notice.
        Error::Aborted { rank, .. } if !struck.in_frames() && !struck.gave_up(rank.index()) => {
            return Err("but that rank did not abort a call".into());
        }
        Error::Mismatch { rank, .. }
        | Error::Frame { rank, .. }
        | Error::Aborted { rank, .. }
        | Error::Stalled { rank, .. } => Some(rank),
        Error::Transport { kind: TransportErrorKind::PeerLost, peer } => peer,
        Error::Codec(CodecError::Decode(_)) if struck.is_unprotected() => return Ok(()),
        _ => return Err("this error must not occur here".into()),
    };
    if named.is_none_or(|named: Rank| named.index() >= scenario.size || named.index() == rank) {
        return Err("names no other rank".into());
    }
    // A rank detects nothing while it is stalled.
    let stalls = record.occurred.iter().filter_map(|trouble| match trouble {
        Trouble::Net(Fault::Stall { rank: who, lasting, .. }) if who.index() == rank => *lasting,
        _ => None,
    });
    let limit = TIMEOUT + SLACK + stalls.sum::<Duration>();
    if after > limit { Err(format!("late: after {after:?} of {limit:?}")) } else { Ok(()) }
}
