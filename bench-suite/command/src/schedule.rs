//! `foldwire schedule`: the messages of a schedule, as programs, as a table, and as a picture.
//!
//! The checker of `foldwire::schedule::check` verifies every shown program, and computes the times.
//! A message takes one unit of time, a rank can send one message and receive one at the same time,
//! and everything else takes no time.

#[cfg(feature = "plots")]
mod picture;

use std::fmt::Write as _;

use anyhow::bail;
use foldwire::schedule::check::{self, Message, Summary};
use foldwire::schedule::{self, ProgramSpec, Schedule, program};
use foldwire::{Collective, Rank};
use foldwire_arguments::ScheduleArgs;
use foldwire_fields::usage::{UsageError, usage};
use foldwire_workbench::streams;
use foldwire_workbench::table::Columns;
use serde_json::json;

#[cfg(feature = "plots")]
use picture::SchedulePicture;

/// Runs the subcommand.
///
/// # Errors
///
/// If the schedule does not support the collective, or a file or stdout cannot be written.
pub(crate) fn run(args: &ScheduleArgs) -> anyhow::Result<()> {
    let Some(named) = args.schedule else { return overview(args) };
    let schedule = named.0;
    let first = Collective::ALL.into_iter().find(|&collective| schedule.supports(collective));
    let collective = match args.collective {
        Some(collective) if !schedule.supports(collective) => {
            let name = schedule.name();
            bail!(usage!(
                "{name} has no {}; `foldwire schedule` lists those that have",
                collective.name()
            ));
        }
        requested => requested.or(first).ok_or_else(|| usage!("it can do nothing"))?,
    };
    let call = call(args, collective)?;
    let (summary, messages) = check::messages(schedule, call)?;
    let json = || {
        json!({
            "schedule": schedule.name(),
            "collective": collective.name(),
            "ranks": call.size,
            "root": call.root.0,
            "ranks_per_node": call.ranks_per_node,
            "parts": schedule.n_parts(call),
            "critical_path": summary.critical_path,
            "messages": messages.iter().map(object).collect::<Vec<_>>(),
        })
    };
    streams::results(args.json, json, || programs(schedule, call, &summary))?;
    let messages = &messages;
    foldwire_workbench::draw!(args.plot, SchedulePicture { schedule, call, summary, messages })
}

fn call(args: &ScheduleArgs, collective: Collective) -> Result<ProgramSpec, UsageError> {
    let size = args.ranks as usize;
    if args.root as usize >= size {
        let problem = format!("there is no rank {} among {size}; name another root", args.root);
        return Err(UsageError::new(problem));
    }
    let root = if collective.has_root() { Rank(args.root) } else { Rank(0) };
    let call = ProgramSpec::new(collective, size, root).with_runs(args.max_run);
    Ok(call.with_nodes(args.ranks_per_node as usize))
}

fn object(message: &Message) -> serde_json::Value {
    json!({
        "from": message.from.0,
        "to": message.to.0,
        "part": message.part.0,
        "parts": message.n_parts,
        "departure": message.departure,
        "arrival": message.arrival,
    })
}

/// A summary of the schedule in one line.
fn title(schedule: &dyn Schedule, call: ProgramSpec, summary: &Summary) -> String {
    let (name, collective) = (schedule.name(), call.collective.name());
    let Summary { n_messages, critical_path, .. } = summary;
    let nodes = match call.ranks_per_node {
        1 => String::new(),
        n => format!(", {n} a node"),
    };
    format!(
        "{collective} by {name}, {} ranks{nodes}: {n_messages} messages, {critical_path} one after \
         the other",
        call.size
    )
}

/// Formats the program of each rank.
fn programs(schedule: &dyn Schedule, call: ProgramSpec, summary: &Summary) -> String {
    let mut text = format!("{}\n", title(schedule, call, summary));
    for rank in (0..call.size).map(Rank::new) {
        let steps = program(schedule, call, rank).to_string();
        let _ = write!(text, "\nrank {rank}\n");
        for step in steps.lines() {
            let _ = writeln!(text, "  {step}");
        }
    }
    text
}

/// Prints a row for each collective of each schedule.
fn overview(args: &ScheduleArgs) -> anyhow::Result<()> {
    let is_requested =
        |collective: &Collective| args.collective.is_none_or(|requested| requested == *collective);
    let mut rows = Vec::new();
    for &schedule in schedule::ALL {
        for collective in Collective::ALL.into_iter().filter(is_requested) {
            if schedule.supports(collective) {
                let call = call(args, collective)?;
                rows.push((schedule, call, check::check(schedule, call)?));
            }
        }
    }
    let is_default = |schedule: &dyn Schedule, collective| {
        schedule::default_for(collective).name() == schedule.name()
    };
    let table = Columns::of(rows)
        .text("schedule", "", |(schedule, ..)| schedule.name())
        .text("collective", "", |(_, call, _)| call.collective.name())
        .number("parts", "", |(schedule, call, _)| schedule.n_parts(*call))
        .number("messages", "", |(.., summary)| summary.n_messages)
        .number("of the root", "", |(.., summary)| summary.n_root_messages)
        .number("one after the other", "", |(.., summary)| summary.critical_path)
        .text(
            "default",
            "",
            |(schedule, call, _)| {
                if is_default(*schedule, call.collective) { "*" } else { "" }
            },
        );
    let ranks = args.ranks;
    let note = "*: the default, unless `foldwire::select` chooses another";
    Ok(streams::write(&format!("{ranks} ranks\n\n{}\n{note}\n", table.render()))?)
}
