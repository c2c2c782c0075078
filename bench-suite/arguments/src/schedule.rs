//! The command line of `foldwire schedule`.

use clap::builder::{PossibleValue, PossibleValuesParser, RangedU64ValueParser, TypedValueParser};
use clap::{Args, value_parser};
use foldwire::Collective;
use foldwire::schedule::{self, Schedule};
use foldwire_workbench::plot::PlotFile;

use super::bench::collective;

/// Most ranks whose programs are checked.
const MAX_RANKS: u64 = 1024;

const EXAMPLES: &str = "\
Examples:
  foldwire schedule
      All schedules: what they can do, and in how many messages one after the other.
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
    /// The schedule; all of them in a table if none is named
    #[arg(value_name = "SCHEDULE", value_parser = named())]
    pub schedule: Option<Named>,

    /// What it is to do [default: the first that it can]
    #[arg(long, value_name = "COLLECTIVE", value_parser = collective())]
    pub collective: Option<Collective>,

    /// Number of ranks
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = ranks())]
    pub ranks: u64,

    /// The root, where there is one
    #[arg(long, value_name = "RANK", default_value_t = 0)]
    pub root: u32,

    /// So many ranks in a row share a node
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = ranks())]
    pub ranks_per_node: u64,

    /// Most parts that a message may carry
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = value_parser!(u16).range(1..))]
    pub max_run: u16,

    /// Draw the messages into this file, by its ending an SVG or a PNG
    #[arg(long, value_name = "FILE.svg|.png")]
    pub plot: Option<PlotFile>,

    /// Print one JSON object on stdout instead of the programs
    #[arg(long)]
    pub json: bool,
}

/// A schedule of the library.
#[derive(Clone, Copy)]
pub struct Named(pub &'static dyn Schedule);

impl std::fmt::Debug for Named {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.0.name())
    }
}

pub(super) fn ranks() -> RangedU64ValueParser {
    RangedU64ValueParser::new().range(1..=MAX_RANKS)
}

pub(super) fn named() -> impl TypedValueParser<Value = Named> {
    let names = schedule::ALL.iter().map(|schedule| PossibleValue::new(schedule.name()));
    PossibleValuesParser::new(names).map(|text| {
        let found = schedule::ALL.iter().find(|schedule| schedule.name() == text);
        Named(*found.expect("the parser lets nothing else pass"))
    })
}
