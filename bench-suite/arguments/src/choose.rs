//! The command line of `foldwire choose`.

use std::path::PathBuf;

use clap::Args;
use foldwire::{Bound, Collective};
use foldwire_fields::usage::UsageError;

use super::bench::array_sizes;
use super::collectives::collective;
use super::network::{BackendArg, NetworkArgs};
use crate::sizes::SizeList;
use crate::values::{self, LinkRate};

const EXAMPLES: &str = "\
Examples:
  foldwire choose
      Between 4 threads over links of four rates: all-reduce, broadcast and all-gather by an
      automatic plan, compared with the exact plan, fz-light, fz-nd and dense.
  foldwire choose --collective allreduce --sizes 1M:256M:4 --link 1gbit --field temperature.f32
      Long arrays with your own data.
  foldwire choose --link 10gbit,1gbit --speeds speeds.toml --json > choices.json
      With this machine's speeds, measured by `foldwire tune --output speeds.toml`.
  mpirun -n 2 foldwire choose --backend mpi --sizes 4K:64M:4
      Over MPI, where the first calls measure the rate of its links.
  foldwire launch -n 2 --no-prefix -- foldwire choose --backend libfabric --provider shm
      Between two processes over libfabric, in shared memory.

All plans run in turn for every size, in another order each round. A time is the median over rounds
of the slowest rank's time. The table marks an automatic plan with * if it is slower than
--tolerance allows, or 5 % slower than raw. Plans close to these limits are timed up to four times
as long.";

/// Options of `foldwire choose`.
#[derive(Debug, Clone, Args)]
#[command(after_help = EXAMPLES)]
pub struct ChooseArgs {
    /// The backend and its network.
    #[command(flatten)]
    pub network: NetworkArgs,

    /// Collectives to time
    #[arg(long, value_name = "NAME", num_args = 1.., value_delimiter = ',',
        value_parser = collective(), default_values = ["allreduce", "broadcast", "allgather"])]
    pub collective: Vec<Collective>,

    /// Rates of each rank's link, each way: 10gbit, 250MB/s, …; `none` for the speed of memory
    /// [default: none, 10gbit, 1gbit and 100mbit]
    ///
    /// The threads backend limits its links to these rates. Other backends use the network as it
    /// is, and only tell automatic plans its rate. With `none`, their default, the first calls
    /// measure the rate.
    #[arg(long, value_name = "RATE", num_args = 1.., value_delimiter = ',')]
    link: Vec<LinkRate>,

    /// Sizes of the array in bytes: a list of sizes and of ranges FIRST:LAST (factor 2) or
    /// FIRST:LAST:FACTOR
    #[arg(long, value_name = "SIZES", default_value = "64:256M:4", value_parser = array_sizes)]
    pub sizes: SizeList,

    /// Skip arrays that need a link for more than this many seconds
    #[arg(long, value_name = "S", default_value_t = 1.0, value_parser = super::bench::seconds)]
    pub longest: f64,

    /// Error bound of each operand: rel:X times the value range, abs:X, or psnr:X in dB
    #[arg(long, value_name = "KIND:X", default_value = "rel:1e-3", value_parser = values::bound)]
    pub bound: Bound,

    /// Values to send: .f32 (raw little-endian) or .npy, cut or repeated [default: built-in waves
    /// with a little noise]
    #[arg(long, value_name = "FILE")]
    pub field: Option<PathBuf>,

    /// This machine's speeds, a file from `foldwire tune` [default: typical speeds]
    #[arg(long, value_name = "FILE")]
    pub speeds: Option<PathBuf>,

    /// Least number of counted rounds
    #[arg(long, value_name = "N", default_value_t = 7, value_parser = values::repeat)]
    pub repeat: usize,

    /// Least total time in seconds of the counted rounds of a size (at most 1000 rounds)
    #[arg(long, value_name = "S", default_value_t = 0.3, value_parser = super::bench::seconds)]
    pub min_time: f64,

    /// Fraction by which the automatic plan may be slower than the best of the others
    #[arg(long, value_name = "PART", default_value_t = 0.15, value_parser = values::tolerance)]
    pub tolerance: f64,

    /// Print one JSON object on stdout instead of the table
    #[arg(long)]
    pub json: bool,
}

/// Default rates of the threads backend's links.
const LINKS: [&str; 4] = ["none", "10gbit", "1gbit", "100mbit"];

impl ChooseArgs {
    /// The rates of links to measure with.
    ///
    /// # Errors
    /// If a rate cannot be parsed.
    pub fn links(&self) -> Result<Vec<LinkRate>, UsageError> {
        let usual =
            if self.network.backend == BackendArg::Threads { &LINKS[..] } else { &LINKS[..1] };
        match &*self.link {
            [] => usual.iter().map(|link| link.parse()).collect(),
            requested => Ok(requested.to_vec()),
        }
    }
}
