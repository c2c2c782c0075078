//! The command line of `foldwire schedule`.

use clap::builder::{PossibleValue, RangedU64ValueParser, TypedValueParser};
use clap::{Args, value_parser};
use foldwire::Collective;
use foldwire::schedule::{self, Schedule};
use foldwire_workbench::plot::PlotFile;

use super::collectives::collective;
use crate::values::by_name;

/// Largest number of ranks that programs are checked for.
const MAX_RANKS: u64 = 1024;

const EXAMPLES: &str = "\
Examples:
  foldwire schedule
      All schedules: their collectives, and the number of consecutive messages.
  foldwire schedule ring --ranks 6
      The programs of six ranks for the first collective that a ring can do.
  foldwire schedule binomial --collective scatter --ranks 13 --root 2 --max-run 8 --plot scatter.svg
      As a picture: a line down for each rank, an arrow for each message.
  foldwire schedule two-levels --ranks 8 --ranks-per-node 4
      Two nodes of four ranks.";

/// Options of `foldwire schedule`.
#[derive(Debug, Clone, Args)]
#[command(after_help = EXAMPLES)]
pub struct ScheduleArgs {
    /// The schedule; without a name, all of them in a table
    #[arg(value_name = "SCHEDULE", value_parser = named())]
    pub schedule: Option<ScheduleName>,

    /// The collective [default: the first that the schedule can do]
    #[arg(long, value_name = "COLLECTIVE", value_parser = collective())]
    pub collective: Option<Collective>,

    /// Number of ranks
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = ranks())]
    pub ranks: u64,

    /// The root, for collectives that have one
    #[arg(long, value_name = "RANK", default_value_t = 0)]
    pub root: u32,

    /// Number of consecutive ranks that share a node
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = ranks())]
    pub ranks_per_node: u64,

    /// Largest number of parts that a message may carry
    #[arg(long, value_name = "N", default_value_t = 1,
        value_parser = value_parser!(u16).range(1..))]
    pub max_run: u16,

    /// Draw the messages into this file, .svg or .png
    #[arg(long, value_name = "FILE.svg|.png")]
    pub plot: Option<PlotFile>,

    /// Print one JSON object on stdout instead of the programs
    #[arg(long)]
    pub json: bool,
}

/// A schedule of the library, selected by its name.
#[derive(Clone, Copy)]
pub struct ScheduleName(pub &'static dyn Schedule);

impl std::fmt::Debug for ScheduleName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.0.name())
    }
}

pub(super) fn ranks() -> RangedU64ValueParser {
    RangedU64ValueParser::new().range(1..=MAX_RANKS)
}

pub(super) fn named() -> impl TypedValueParser<Value = ScheduleName> {
    by_name(schedules_by_name())
}

pub(super) fn schedules_by_name() -> impl Iterator<Item = (PossibleValue, ScheduleName)> {
    schedule::ALL.iter().map(|&known| (PossibleValue::new(known.name()), ScheduleName(known)))
}
