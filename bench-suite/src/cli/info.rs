//! Options of `foldwire info`.

use clap::Args;

const EXAMPLES: &str = "\
Examples:
  foldwire info
      What this build and this machine have, and why something is not there.
  foldwire info --json
      The same as one JSON object.
  srun -n 2 foldwire info
      The place that each rank finds in its environment.";

/// Options of `foldwire info`.
#[derive(Debug, Clone, Args)]
#[command(after_help = EXAMPLES)]
pub struct InfoArgs {
    /// Print one JSON object instead of the tables
    #[arg(long)]
    pub json: bool,
}
