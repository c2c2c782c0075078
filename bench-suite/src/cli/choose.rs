//! The command line of `foldwire choose`.

use std::path::PathBuf;

use clap::Args;
use foldwire::{Bound, Collective};

use super::bench::{array_sizes, collective};
use crate::sizes::Sizes;
use crate::values::LinkRate;

const EXAMPLES: &str = "\
Examples:
  foldwire choose
      Between 4 threads over links of four rates: all-reduce, broadcast and all-gather by an
      automatic plan, beside the exact plan, fz-light, fz-nd and dense.
  foldwire choose --collective allreduce --sizes 1M:256M:4 --link 1gbit --field temperature.f32
      Long arrays of your own.
  foldwire choose --link 10gbit,1gbit --speeds speeds.toml --json > choices.json
      With this machine's speeds, which `foldwire tune --output speeds.toml` has measured.

Every size is timed by each plan in turn, in another order each round; the time is the median over
rounds of the slowest rank's. What takes longer than --tolerance says, or 5 % longer than raw, is
marked with *; what comes near that is timed up to four times as long.";

/// Options of `foldwire choose`.
#[derive(Debug, Clone, Args)]
#[command(after_help = EXAMPLES)]
pub struct ChooseArgs {
    /// Number of ranks, which are threads of this process
    #[arg(long, value_name = "N", default_value_t = 4, allow_hyphen_values = true)]
    #[arg(value_parser = crate::values::ranks)]
    pub ranks: usize,

    /// Collectives to time
    #[arg(long, value_name = "NAME", num_args = 1.., value_delimiter = ',')]
    #[arg(value_parser = collective())]
    #[arg(default_values = ["allreduce", "broadcast", "allgather"])]
    pub collective: Vec<Collective>,

    /// Rates of each rank's link, each way: 10gbit, 250MB/s, …; `none` for the speed of memory
    #[arg(long, value_name = "RATE", num_args = 1.., value_delimiter = ',')]
    #[arg(default_values = ["none", "10gbit", "1gbit", "100mbit"])]
    pub link: Vec<LinkRate>,

    /// Sizes of the array in bytes: a list of sizes and of ranges FIRST:LAST or FIRST:LAST:FACTOR
    #[arg(long, value_name = "SIZES", default_value = "64:256M:4", allow_hyphen_values = true)]
    #[arg(value_parser = array_sizes)]
    pub sizes: Sizes,

    /// Leave out arrays that are on a link for longer than so many seconds
    #[arg(long, value_name = "S", default_value_t = 1.0, allow_hyphen_values = true)]
    #[arg(value_parser = super::bench::seconds)]
    pub longest: f64,

    /// Error bound of each operand: rel:X times the value range, abs:X, or psnr:X in dB
    #[arg(long, value_name = "KIND:X", default_value = "rel:1e-3", allow_hyphen_values = true)]
    #[arg(value_parser = crate::values::bound)]
    pub bound: Bound,

    /// Values to send: .f32 (raw little-endian) or .npy, cut or repeated [default: built-in waves
    /// with a little noise]
    #[arg(long, value_name = "FILE")]
    pub field: Option<PathBuf>,

    /// This machine's speeds, as `foldwire tune` writes them [default: usual ones]
    #[arg(long, value_name = "FILE")]
    pub speeds: Option<PathBuf>,

    /// Rounds that count, at least
    #[arg(long, value_name = "N", default_value_t = 7, allow_hyphen_values = true)]
    #[arg(value_parser = crate::values::repeat)]
    pub repeat: usize,

    /// Seconds that the rounds of a size take together, at least (but at most 1000 rounds)
    #[arg(long, value_name = "S", default_value_t = 0.3, allow_hyphen_values = true)]
    #[arg(value_parser = super::bench::seconds)]
    pub min_time: f64,

    /// By what part the automatic plan may take longer than the best of the others
    #[arg(long, value_name = "PART", default_value_t = 0.15, allow_hyphen_values = true)]
    #[arg(value_parser = crate::values::tolerance)]
    pub tolerance: f64,

    /// Print one JSON object on stdout instead of the table
    #[arg(long)]
    pub json: bool,
}
