//! Options of `foldwire info`.

use clap::Args;

use super::schedule::ranks;
use crate::values::LinkRate;

const EXAMPLES: &str = "\
Examples:
  foldwire info
      What this build and this machine have, and why something is not there.
  foldwire info --json
      The same as one JSON object.
  foldwire info --link 10gbit --ranks-per-node 4
      The schedules chosen over such links, between ranks known to share nodes.
  srun -n 2 foldwire info
      The place that each rank finds in its environment.";

/// Options of `foldwire info`.
#[derive(Debug, Clone, Args)]
#[command(after_help = EXAMPLES)]
pub struct InfoArgs {
    /// Print one JSON object instead of the tables
    #[arg(long)]
    pub json: bool,
    /// Show what is chosen over links of this rate each way, as 10gbit; none: unknown, or as fast
    /// as memory
    #[arg(long, value_name = "RATE", default_value = "none")]
    pub link: LinkRate,
    /// Show what is chosen where so many ranks in a row are known to share a node
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
