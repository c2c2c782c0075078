//! Judges a run: what must hold whatever went wrong, and what must hold if processes only died.

use crate::scenario::{Record, Scenario};
use foldwire::Error;
use foldwire::grow::GrowError;
use foldwire_sim::{End, Fault};
use std::collections::BTreeMap;
use std::time::Duration;

/// Returns what was seen, or what is wrong.
pub fn judge(scenario: &Scenario, record: &Record) -> Result<Vec<&'static str>, String> {
    everybody_ends(record)?;
    groups_do_not_mix(record)?;
    for (number, process) in record.processes.iter().enumerate() {
        if !process.wrong.is_empty() {
            return Err(format!("process {number} has wrong sums"));
        }
        let is_stranger = scenario.stranger == Some(number);
        if is_stranger && !process.groups.is_empty() {
            return Err("a stranger is in a group".into());
        }
        if let Some(error) = process.errors.iter().find(|error| is_a_bug(error)) {
            return Err(format!("process {number}: {error:?}"));
        }
    }
    // A process waits 20 s to be admitted, four times at most.
    if record.time > Duration::from_secs(200) {
        return Err(format!("it took {:?}", record.time));
    }
    if record.n_leaked > 0 {
        return Err(format!("{} frames leak", record.n_leaked));
    }
    let only_deaths = scenario.faults.iter().all(|fault| matches!(fault, Fault::Death { .. }));
    if only_deaths {
        survivors_stay_together(scenario, record)?;
    }
    Ok(seen(scenario, record))
}

fn everybody_ends(record: &Record) -> Result<(), String> {
    for (number, end) in record.ends.iter().enumerate() {
        if matches!(end, End::Hung | End::Panicked(_)) {
            return Err(format!("process {number}: {end:?}"));
        }
    }
    Ok(())
}

/// Two groups of one plan and epoch have the same members, or none in common. Members agree on
/// their ranks.
fn groups_do_not_mix(record: &Record) -> Result<(), String> {
    let mut groups: BTreeMap<(usize, u16, usize), &[usize]> = BTreeMap::new();
    for (number, process) in record.processes.iter().enumerate() {
        let mut last_generation = None;
        for group in &process.groups {
            if group.members.get(group.rank) != Some(&number) {
                return Err(format!("process {number} has another rank: {group:?}"));
            }
            // Half of a network that splits may take in a process that has left the other half.
            // Each half counts on its own.
            let last = last_generation.filter(|_| !group.rejoined);
            if last.is_some_and(|last| group.generation <= last) {
                return Err(format!("process {number}: the generation did not rise"));
            }
            last_generation = Some(group.generation);
            for &member in &group.members {
                let key = (group.channel, group.epoch, member);
                let known = *groups.entry(key).or_insert(&group.members);
                if known != group.members {
                    return Err(format!("process {member} is in {known:?} and {group:?}"));
                }
            }
        }
    }
    Ok(())
}

/// Errors that no fault explains.
fn is_a_bug<E>(error: &GrowError<E>) -> bool {
    match error {
        GrowError::Group(error) => error.is_usage() || matches!(error, Error::Internal),
        GrowError::Store(_) | GrowError::FactsTooLong { .. } => true,
        _ => false,
    }
}

/// If processes only die or leave, the others are not left out: each process of the first group
/// that lives makes all steps, and those that grow as often are in one group.
fn survivors_stay_together(scenario: &Scenario, record: &Record) -> Result<(), String> {
    let lives = |number: &usize| {
        matches!(record.ends[*number], End::Returned(())) && !record.processes[*number].left
    };
    let living: Vec<usize> = (0..scenario.size).filter(lives).collect();
    for &number in &living {
        let process = &record.processes[number];
        if !process.is_done {
            return Err(format!("process {number} lives, but was left out: {:?}", process.errors));
        }
        if !process.errors.is_empty() {
            return Err(format!("process {number} had to rejoin: {:?}", process.errors));
        }
        for group in &process.groups {
            let has_as_well = |&&other: &&usize| {
                let mut others = record.processes[other].groups.iter();
                others.any(|theirs| theirs.generation == group.generation)
            };
            let mut peers = living.iter().filter(has_as_well);
            if let Some(other) = peers.find(|other| !group.members.contains(other)) {
                return Err(format!("process {other} has split off from {number}: {group:?}"));
            }
        }
    }
    Ok(())
}

fn seen(scenario: &Scenario, record: &Record) -> Vec<&'static str> {
    let mut seen = Vec::new();
    let groups = || record.processes.iter().flat_map(|process| &process.groups);
    let is_new = |&member: &usize| member >= scenario.size;
    let grew = groups().any(|group| group.members.iter().any(is_new));
    let shrank = groups().any(|group| (0..scenario.size).any(|old| !group.members.contains(&old)));
    let has_died =
        |number: usize| matches!(record.ends[number], End::Died) || record.processes[number].left;
    for (what, was_seen) in [
        ("grew", grew),
        ("shrank and grew", grew && shrank),
        ("leader died", has_died(0) && scenario.size > 1),
        ("newcomer died", (scenario.size..scenario.n_processes()).any(has_died)),
        ("nobody came", groups().any(|group| group.generation > 0) && !grew),
        ("stranger", scenario.stranger.is_some()),
        ("work done", record.processes.iter().any(|process| process.is_done)),
    ] {
        if was_seen {
            seen.push(what);
        }
    }
    seen
}
