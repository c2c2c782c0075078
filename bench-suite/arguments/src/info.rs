//! Options of `foldwire info`.

use clap::Args;

use super::schedule::ranks;
use crate::values::LinkRate;

const EXAMPLES: &str = "\
Examples:
  foldwire info
      Features of this build and this machine, and the reason for anything missing.
  foldwire info --json
      The same as one JSON object.
  foldwire info --link 10gbit --ranks-per-node 4
      The schedules chosen for such links, with four ranks per node.
  srun -n 2 foldwire info
      Each rank's place in the job, from its environment.";

/// Options of `foldwire info`.
#[derive(Debug, Clone, Args)]
#[command(after_help = EXAMPLES)]
pub struct InfoArgs {
    /// Print one JSON object instead of the tables
    #[arg(long)]
    pub json: bool,
    /// Show the schedules chosen for links of this rate each way, such as 10gbit; `none` if it is
    /// unknown, or the speed of memory
    #[arg(long, value_name = "RATE", default_value = "none")]
    pub link: LinkRate,
    /// Show the schedules chosen if this many consecutive ranks share a node
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = ranks())]
    pub ranks_per_node: u64,
}

/// Options of `foldwire presets`.
#[derive(Debug, Clone, Args)]
pub struct PresetsArgs {
    /// Print one JSON object instead of the table
    #[arg(long)]
    pub json: bool,
}
