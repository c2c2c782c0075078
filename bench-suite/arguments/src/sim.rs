//! The command line of `foldwire sim`.

use std::path::PathBuf;

use clap::{Args, Parser};
use foldwire::{Bound, Collective, DType};
use foldwire_workbench::plot::PlotFile;

use super::bench::{dtype, frame, lanes};
use super::collectives::collective;
use super::rows::{PresetArg, RequestedPresets, preset};
use super::schedule::ScheduleName;
use crate::sizes::{self, SizeList};
use crate::speeds::SpeedsArg;
use crate::values::{self, LinkRate};

/// Largest number of simulated ranks. The number of steps is quadratic in it.
const MAX_RANKS: usize = 1 << 16;

const EXAMPLES: &str = "\
Examples:
  foldwire sim allreduce --ranks 2:512 --size 646MB --link 100gbit --latency 2us --plot out.svg
      Every preset with this machine's codec speeds, one rank per machine, on built-in data.
  foldwire sim allreduce --ranks 8,64,4096 --link 10gbit --field temperature.f32 \
      --bound rel:1e-4 --json > result.json
      Ratio and speeds measured on your data; stdout holds one JSON object.
  foldwire sim broadcast --ranks 2:512 --speeds zccl-multi-thread --preset raw,zccl
      With the codec speeds and the compression ratio of a publication.
  foldwire sim allreduce --speeds mine.toml --ranks-per-node 16 --cores 16
      With speeds from a file (see the example in docs/scale.md), 16 ranks on the 16 cores of each
      machine.
  foldwire sim --published
      What papers report, and what the model says about it.
  foldwire sim --validate
      Compares measured and predicted times of collectives between threads of this process.
  foldwire sim --validate allreduce.json broadcast.json --fabric exchange.json --latency 0s
      Compares with times that `foldwire bench` measured on a cluster. docs/scale.md describes how
      to measure exchange.json.

The simulator runs the library's own schedules, rounds, lanes and credit on virtual time, and sends
nothing. docs/scale.md describes the model and its accuracy. --size is the size of the whole array,
as in `foldwire bench`.";

/// Options of `foldwire sim`.
#[derive(Debug, Clone, Args)]
#[command(after_help = EXAMPLES)]
pub struct SimArgs {
    /// The collective to predict
    #[arg(value_name = "COLLECTIVE", value_parser = collective(),
        required_unless_present_any = ["validate", "published"])]
    pub collective: Option<Collective>,

    /// Numbers of ranks: a list of numbers and of ranges FIRST:LAST (factor 2) or FIRST:LAST:FACTOR
    #[arg(long, value_name = "LIST", default_value = "2:512",
        value_parser = sizes::ranks(1..=MAX_RANKS))]
    pub ranks: SizeList,

    /// Bytes of the whole array: 646MB, 64M, 1G, …
    #[arg(long, value_name = "SIZE", default_value = "64M", value_parser = sizes::one)]
    pub size: usize,

    /// Rate of each rank's link, each way: 100gbit, 12.5GB/s, …; `none` for the speed of memory
    #[arg(long, value_name = "RATE", default_value = "100gbit")]
    pub link: LinkRate,

    /// Time from a message's first byte leaving to its first byte arriving
    #[arg(long, value_name = "TIME", default_value = "2us", value_parser = values::time)]
    pub latency: f64,

    /// Time that a message of any size occupies its sender's core, and also its receiver's core
    #[arg(long, value_name = "TIME", default_value = "1us", value_parser = values::time)]
    pub overhead: f64,

    /// Largest message in bytes that is sent at once; longer ones wait for an answer of their
    /// receiver (64K with Open MPI over TCP) [default: all are sent at once]
    #[arg(long, value_name = "SIZE", value_parser = eager)]
    pub eager: Option<u32>,

    // `main` stands for several presets: `PresetArg::Main`.
    /// Presets to predict, in this order, or all of them
    #[arg(long, value_name = "NAME", num_args = 1.., value_parser = preset(), value_delimiter = ',',
        default_value = "main")]
    pub preset: Vec<PresetArg>,

    /// Bytes of each rank's share from which the all-reduce of preset gzccl is a ring
    #[arg(long, value_name = "SIZE", default_value = "5MB", value_parser = sizes::one)]
    pub ring_from: usize,

    /// Run presets as published, without the guarantee that all ranks get the same bits
    #[arg(long)]
    pub as_published: bool,

    /// Schedule of all presets, instead of their own
    #[arg(long, value_name = "NAME", value_parser = super::schedule::named())]
    pub schedule: Option<ScheduleName>,

    /// Error bound of each operand: rel:X times the value range, abs:X, or psnr:X in dB
    #[arg(long, value_name = "KIND:X", default_value = "rel:1e-3", value_parser = values::bound)]
    pub bound: Bound,

    /// Values to measure speeds and ratio with: .f32, .f64, .f16, .bf16 (raw little-endian) or
    /// .npy; each rank begins at another offset [default: built-in waves with a little noise]
    #[arg(long, value_name = "FILE")]
    pub field: Option<PathBuf>,

    /// Type of the values [default: the field's type, else f32]
    #[arg(long, value_parser = dtype())]
    pub dtype: Option<DType>,

    /// Speeds of the codec: `measure` (this machine's), a .toml or .json file, or those of a
    /// publication with its ratio (zccl-1-thread, zccl-multi-thread, hzccl-18-threads,
    /// hzccl-18-threads-half, gzccl-a100, mpc-opt-v100, mpc-opt-v100-sppm)
    #[arg(long, value_name = "SOURCE", default_value = "measure")]
    pub speeds: SpeedsArg,

    /// Threads of a rank's codec whose speed is measured. It is measured on this many cores at once
    /// and added up; ranks of a machine are also measured side by side, as far as there are cores
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = values::ranks)]
    pub threads: usize,

    /// Number of ranks per machine (each has its own link)
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = values::ranks)]
    pub ranks_per_node: usize,

    /// Ranks know which of them share a machine: these exchange messages without the network, and
    /// long arrays use the schedule two-levels
    #[arg(long, requires = "ranks_per_node")]
    pub by_node: bool,

    /// Cores of a machine, which its ranks share [default: one per rank]
    #[arg(long, value_name = "N", value_parser = values::ranks)]
    pub cores: Option<usize>,

    /// Number of segments in progress at the same time
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = lanes)]
    pub lanes: usize,

    /// Bytes of a frame, such as 260K
    #[arg(long, value_name = "SIZE", default_value = "260K", value_parser = frame)]
    pub frame: usize,

    /// Compute checksums of frames, as over networks
    #[arg(long, value_name = "WHETHER", default_value_t = true, action = clap::ArgAction::Set)]
    pub checksum: bool,

    /// Draw speed-up over ranks into this file, .svg or .png
    #[arg(long, value_name = "FILE.svg|.png")]
    pub plot: Option<PlotFile>,

    /// Print one JSON object on stdout instead of the table
    #[arg(long)]
    pub json: bool,

    /// Print a row for each figure that papers report of collectives, messages and programs:
    /// published, predicted as published and for Foldwire, and measured; and a budget of the time
    #[arg(long, conflicts_with_all = ["collective", "plot", "validate"])]
    pub published: bool,

    /// Compare predictions with measured times instead: with files from `foldwire bench --link RATE
    /// --json`, or without files with runs between threads of this process
    ///
    /// Without files, the options --field, --bound and --dtype apply, and everything else is fixed.
    /// With files, the options --field, --fabric (or --overhead), --latency, --eager,
    /// --ranks-per-node and --cores apply, and the rest comes from the files. Speeds are always
    /// this machine's.
    #[arg(long, value_name = "RESULTS.json", num_args = 0..,
        conflicts_with_all = ["collective", "plot"])]
    pub validate: Option<Vec<PathBuf>>,

    /// Files to derive the cost of messages from: raw times of one value and of a long array
    /// between ranks with a core each, and, if ranks share cores, of one value between all of them
    #[arg(long, value_name = "RESULTS.json", num_args = 1.., requires = "validate",
        conflicts_with_all = ["collective", "overhead"])]
    pub fabric: Vec<PathBuf>,
}

impl SimArgs {
    /// Parses arguments as on the command line.
    ///
    /// # Errors
    /// Errors of clap.
    pub fn parse(text: &str) -> Result<Self, clap::Error> {
        let words = ["foldwire", "sim"].into_iter().chain(text.split_whitespace());
        match crate::Cli::try_parse_from(words)?.command {
            crate::Command::Sim(args) => Ok(args),
            _ => unreachable!("the subcommand is sim"),
        }
    }

    /// The presets to predict.
    pub fn presets(&self) -> RequestedPresets<'_> {
        RequestedPresets::for_model(&self.preset)
    }
}

fn eager(text: &str) -> Result<u32, String> {
    let n_bytes = sizes::n_bytes(text).and_then(|n| u32::try_from(n).ok());
    n_bytes.ok_or_else(|| "a size below 4G is needed, such as 64K".to_owned())
}

#[cfg(test)]
mod tests {
    use foldwire::Preset;

    use super::*;

    fn sim(args: &str) -> Result<SimArgs, clap::Error> {
        SimArgs::parse(args)
    }

    #[test]
    fn defaults_are_the_documented_ones() {
        let args = sim("allreduce").unwrap();
        assert_eq!(args.ranks.n_bytes(), [2, 4, 8, 16, 32, 64, 128, 256, 512]);
        assert_eq!((args.size, args.frame, args.lanes), (64 << 20, 266_240, 4));
        assert_eq!((args.latency, args.link.bytes_per_s()), (2e-6, Some(12.5e9)));
        assert_eq!(args.presets().of(DType::F32), Preset::MAIN);
        assert!(args.checksum && args.validate.is_none());
    }

    #[test]
    fn a_collective_is_needed_unless_the_model_is_validated() {
        assert!(sim("").is_err() && sim("allreduce --validate").is_err());
        assert!(sim("--published").is_ok() && sim("allreduce --published").is_err());
        assert_eq!(sim("--validate").unwrap().validate, Some(Vec::new()));
        let files = sim("--validate a.json b.json --fabric c.json").unwrap();
        assert_eq!(files.validate.map_or(0, |files| files.len()), 2);
        assert!(sim("reduce --fabric c.json").is_err() && sim("--fabric c.json").is_err());
        assert!(sim("--validate a.json --fabric c.json --overhead 1us").is_err());
    }

    #[test]
    fn numbers_have_limits() {
        assert_eq!(sim("reduce --ranks 3,2,4096").unwrap().ranks.n_bytes(), [2, 3, 4096]);
        assert_eq!(sim("reduce --size 646MB").unwrap().size, 646_000_000);
        for wrong in ["--ranks 0", "--ranks 1M", "--size big", "--latency 2", "--speeds my.csv"] {
            assert!(sim(&format!("reduce {wrong}")).is_err(), "{wrong}");
        }
    }
}
