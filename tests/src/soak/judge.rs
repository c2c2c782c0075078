//! Whether every rank did what the library promises.

use super::draw::{Scenario, TIMEOUT, Trouble};
use super::perform::{Called, Outcome, Performance, Regrouped, Values};
use crate::{Case, data};
use foldwire::transport::TransportErrorKind;
use foldwire::{Collective, Element, Error, Rank, Report};
use foldwire_sim::{End, Fault};
use std::time::Duration;

/// Time moves in steps of an eighth of the limit while nothing happens, and a rank looks at the clock between two.
const SLACK: Duration = TIMEOUT.checked_div(2).expect("not by zero");

/// Judges what happened.
///
/// # Errors
/// The promise that was broken.
pub(super) fn judge(scenario: &Scenario, performance: &Performance) -> Result<(), String> {
    for (rank, end) in performance.ends.iter().enumerate() {
        let told = |this: fn(&Fault) -> bool| {
            let of_rank = |fault: &Fault| fault.rank().index() == rank && this(fault);
            performance.struck.iter().any(|t| matches!(t, Trouble::Net(fault) if of_rank(fault)))
        };
        match end {
            End::Returned(()) => {}
            End::Died if told(|fault| matches!(fault, Fault::Death { .. })) => {}
            End::Silent if told(|fault| matches!(fault, Fault::Stall { lasting: None, .. })) => {}
            other => return Err(format!("rank {rank}: {other:?}")),
        }
    }
    for call in 0..scenario.calls.len() {
        judge_call(scenario, performance, call).map_err(|wrong| format!("call {call}: {wrong}"))?;
    }
    judge_groups(performance)?;
    match performance.n_leaked {
        0 => Ok(()),
        n => Err(format!("{n} frames are missing in the end")),
    }
}

/// What survivors formed: nobody computes with a rank that is not in its group, or takes it for another.
fn judge_groups(performance: &Performance) -> Result<(), String> {
    let all_is_well = performance.struck.iter().all(Trouble::is_bearable);
    let mut formed: Vec<(usize, &[usize])> = Vec::new();
    for (rank, regrouped) in performance.groups.iter().enumerate() {
        match regrouped {
            None => {}
            Some(_) if all_is_well => {
                return Err(format!("rank {rank} shrank, and nothing had happened"));
            }
            Some(Regrouped::Out(error)) if error.is_usage() => {
                return Err(format!("rank {rank} is in no group: {error}"));
            }
            Some(Regrouped::Out(_)) => {}
            Some(Regrouped::In { members, summed }) => {
                let context = format!("rank {rank}, in a group of {members:?}");
                if !members.contains(&rank) {
                    return Err(format!("{context}: not itself"));
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

fn judge_call(scenario: &Scenario, performance: &Performance, call: usize) -> Result<(), String> {
    let called = |rank: usize| performance.calls[rank].get(call);
    let mut digests = Vec::new();
    for rank in 0..scenario.size {
        let Some(Called { case, is_twisted, outcome }) = called(rank) else { continue };
        let context = |wrong| format!("rank {rank}: {wrong}");
        match outcome {
            Outcome::UnderWay => {}
            Outcome::Dropped { next } => {
                if *next != Some(Error::Poisoned) {
                    return Err(context(format!(
                        "after it was dropped, another call said {next:?}"
                    )));
                }
            }
            Outcome::Ok(values, report) => {
                let missing = contributors(case, rank).find(|&other| called(other).is_none());
                if let Some(other) = missing {
                    return Err(context(format!(
                        "a result without rank {other}, which never called"
                    )));
                }
                let digest = match values {
                    Values::F32(values) => verify(case, rank, values, report),
                    Values::F64(values) => verify(case, rank, values, report),
                };
                let digest = digest.map_err(context)?;
                if case.is_the_same_everywhere() && !is_twisted {
                    digests.push((rank, digest));
                }
            }
            Outcome::Err { error, after, next } => {
                judge_error(scenario, performance, rank, error, *after)
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

fn verify<T: Element>(
    case: &Case,
    rank: usize,
    values: &[T],
    report: &Report,
) -> Result<u64, String> {
    case.verify(rank, values, report, &case.inputs())?;
    Ok(data::digest(values))
}

/// The other ranks without which `rank` cannot have a result.
fn contributors(case: &Case, rank: usize) -> impl Iterator<Item = usize> {
    let (collective, root) = (case.collective, case.root);
    (0..case.size).filter(move |&other| match collective {
        Collective::Broadcast | Collective::Scatter => other == root && rank != root,
        Collective::Gather | Collective::Reduce => rank == root && other != rank,
        _ => other != rank,
    })
}

fn judge_error(
    scenario: &Scenario,
    performance: &Performance,
    rank: usize,
    error: &Error,
    after: Duration,
) -> Result<(), String> {
    if performance.struck.iter().all(Trouble::is_bearable) {
        return Err("but nothing had happened that a call must not bear".into());
    }
    let named = match *error {
        Error::Mismatch { rank, .. } | Error::Frame { rank, .. } => {
            if !performance.struck.iter().any(Trouble::shows_in_frames) {
                return Err("but no frame was touched and no rank differed".into());
            }
            Some(rank)
        }
        Error::Aborted { rank } | Error::Stalled { rank, .. } => Some(rank),
        Error::Transport { kind: TransportErrorKind::PeerLost, peer } => peer,
        _ => return Err("is not what a rank should see of it".into()),
    };
    if named.is_none_or(|named: Rank| named.index() >= scenario.size || named.index() == rank) {
        return Err("names no other rank".into());
    }
    // While the rank itself does nothing, it cannot notice anything.
    let stalls = performance.struck.iter().filter_map(|trouble| match trouble {
        Trouble::Net(Fault::Stall { rank: who, lasting, .. }) if who.index() == rank => *lasting,
        _ => None,
    });
    let limit = TIMEOUT + SLACK + stalls.sum::<Duration>();
    if after > limit { Err(format!("late: after {after:?} of {limit:?}")) } else { Ok(()) }
}
