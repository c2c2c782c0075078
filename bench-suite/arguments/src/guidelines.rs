//! The command line of `foldwire guidelines`.

use clap::Args;
use foldwire::Bound;

use super::bench::array_sizes;
use super::network::BackendArg;
use super::rows::{PresetArg, RequestedPresets, preset};
use crate::sizes::SizeList;
use crate::values::{self, LinkRate};

const EXAMPLES: &str = "\
Examples:
  foldwire guidelines
      Between 4 threads: collectives that take longer than others that do the same.
  foldwire guidelines --ranks 8 --link 1gbit --sizes 1K:16M:4 --preset raw,foldwire
      Over links of 1 Gbit/s.
  mpirun -n 4 foldwire guidelines --backend mpi
      Over MPI: the same for Foldwire's collectives, and for the MPI library's own.";

/// Options of `foldwire guidelines`.
#[derive(Debug, Clone, Args)]
#[command(after_help = EXAMPLES)]
pub struct GuidelinesArgs {
    /// Backend that carries the messages: threads, or mpi, which also judges the MPI library's own
    /// collectives
    #[arg(long, value_enum, default_value_t = BackendArg::Threads)]
    pub backend: BackendArg,

    /// Number of ranks of the threads backend [default: 4]; with other backends the launcher sets
    /// it (mpirun -n 4 …)
    #[arg(long, value_name = "N", value_parser = values::ranks)]
    pub ranks: Option<usize>,

    /// Sizes of the array in bytes: a list of sizes and of ranges FIRST:LAST (factor 2) or
    /// FIRST:LAST:FACTOR
    #[arg(long, value_name = "SIZES", default_value = "1K:4M:4", value_parser = array_sizes)]
    pub sizes: SizeList,

    /// Presets to judge, in this order, or all of them
    #[arg(long, value_name = "NAME", num_args = 1.., value_parser = preset(), value_delimiter = ',',
        default_value = "foldwire")]
    pub preset: Vec<PresetArg>,

    /// Error bound of each operand: rel:X times the value range, abs:X, or psnr:X in dB
    #[arg(long, value_name = "KIND:X", default_value = "rel:1e-3", value_parser = values::bound)]
    pub bound: Bound,

    /// Rate of each rank's link, each way: 10gbit, 1gbit, 250MB/s, …; `none` for the speed of
    /// memory
    #[arg(long, value_name = "RATE", default_value = "none")]
    pub link: LinkRate,

    /// Number of rounds; each round calls every collective once
    #[arg(long, value_name = "N", default_value_t = 31, value_parser = values::repeat)]
    pub repeat: usize,

    /// Fraction by which a collective may be slower than the alternative
    #[arg(long, value_name = "PART", default_value_t = 0.1, value_parser = values::tolerance)]
    pub tolerance: f64,

    /// Print all comparisons as one JSON object on stdout, instead of a table of the failed ones
    #[arg(long)]
    pub json: bool,
}

impl GuidelinesArgs {
    /// The presets to judge.
    pub fn presets(&self) -> RequestedPresets<'_> {
        RequestedPresets::new(&self.preset)
    }
}
