//! The command line of `foldwire bench`.

use std::path::PathBuf;

use clap::builder::{PossibleValue, TypedValueParser};
use clap::{Args, ValueEnum};
use foldwire::pipeline::Pipeline;
use foldwire::schedule::{self, Schedule};
use foldwire::{Bound, DType, Op, Plan};
use foldwire_fields::usage::{UsageError, usage};
use foldwire_workbench::plot::PlotFile;

use super::collectives::{FormArg, form};
use super::network::NetworkArgs;
use super::rows::{PresetArg, RequestedPresets, ScheduleArg, pipeline, preset, schedules};
use crate::coding::CodecArg;
use crate::sizes::{self, MAX_SIZE, Size, SizeList};
use crate::values::{self, LinkRate, by_name};

const EXAMPLES: &str = "\
Examples:
  foldwire bench allreduce --ranks 4
      Every preset between 4 threads of this process, at the speed of memory.
  foldwire bench allgather --ranks 8 --link 10gbit --sizes 1M:256M:4 --bound rel:1e-4
      An all-gather over links of 10 Gbit/s; --latency 1ms adds a latency.
  mpirun -n 2 foldwire bench allreduce --backend mpi --preset raw,foldwire --field temperature.f32
      Compared with MPI_Allreduce, with its default and its best algorithm.
  mpirun -n 4 foldwire bench allgatherv --backend mpi --preset raw,foldwire
      Shares of different lengths, compared with MPI_Allgatherv.
  foldwire bench allreduce --preset raw,foldwire --schedule pairwise --pipeline homomorphic
      A plan of your own beside two presets.
  foldwire bench allreduce --schedule all --ranks 8 --link 10gbit
      Every schedule, and a comparison of the chosen one with the best.
  foldwire bench allreduce --ranks 8 --link 1gbit --plot allreduce.svg --csv > allreduce.csv
      As a picture, and as a file for a spreadsheet.
  foldwire launch -n 4 --no-prefix -- \
      foldwire bench broadcast --backend libfabric --sizes 0,4,1K:64M --json > result.json
      Four processes over libfabric; rank 0's stdout holds one JSON object.
  foldwire launch -n 2 --no-prefix -- foldwire bench allreduce --backend tcp --streams 4 --encrypt
      Two processes over four encrypted TCP connections.

A size is in bytes of the whole array, as in nccl-tests: what every rank sends in allreduce,
reduce-scatter and reduce, the root in broadcast and scatter; what every rank receives in allgather,
the root in gather. (The OSU benchmarks use the share of one rank for allgather, scatter and
gather.)

Times are as in the OSU benchmarks: barrier, call, each rank's time. Contestants take turns, with
one call each per round. The reported time is the median over rounds of the slowest rank's time.

The exit code is 1 if the error of a result exceeds its bound.";

/// Options of `foldwire bench`.
#[derive(Debug, Clone, Args)]
#[command(after_help = EXAMPLES)]
pub struct BenchArgs {
    /// The collective to measure
    ///
    /// Names that end in v use shares of different lengths: the share of rank r is r parts of
    /// 1 + 2 + … + (n − 1), so rank 0's share is empty. In alltoallv each rank divides its input
    /// like this.
    #[arg(value_name = "COLLECTIVE", value_parser = form())]
    pub form: FormArg,

    /// The backend and its network.
    #[command(flatten)]
    pub network: NetworkArgs,

    /// Make the calls on a device's memory, cuda or cuda:N; ranks share the device
    #[arg(long, value_name = "cuda[:N]")]
    pub device: Option<String>,

    /// This machine's speeds for automatic plans, a file from `foldwire tune` [default: typical
    /// speeds]
    #[arg(long, value_name = "FILE")]
    pub speeds: Option<PathBuf>,

    /// Rate of each rank's link, each way: 10gbit, 250MB/s, … [default: the speed of memory for
    /// threads, unknown for others]
    ///
    /// The threads backend limits its links to this rate. Other backends use the network as it is,
    /// and only tell Foldwire its rate. Foldwire chooses other schedules for slow links.
    #[arg(long, value_name = "RATE")]
    pub link: Option<LinkRate>,

    /// Latency of the threads backend's links, from a frame's first byte leaving to its first byte
    /// arriving: 50us, 2ms, …
    #[arg(long, value_name = "TIME", requires = "link", value_parser = values::time)]
    pub latency: Option<f64>,

    /// Sizes of the array in bytes: a list of sizes and of ranges FIRST:LAST (factor 2) or
    /// FIRST:LAST:FACTOR
    #[arg(long, value_name = "SIZES", default_value = "1K:64M:4", value_parser = array_sizes)]
    pub sizes: SizeList,

    /// Error bound of each operand: rel:X times the value range, abs:X, or psnr:X in dB
    #[arg(long, value_name = "KIND:X", default_value = "rel:1e-3", value_parser = values::bound)]
    pub bound: Bound,

    /// Threads that each rank computes on [default: 1; 2 for multi-threaded presets]
    #[arg(long, value_name = "N", value_parser = values::repeat)]
    pub threads: Option<usize>,

    /// Run presets as published, without the guarantee that all ranks get the same bits
    #[arg(long)]
    pub as_published: bool,

    /// Presets to run, in this order, or all of them [default: one for each way to compress and
    /// reduce; none with --schedule all]
    #[arg(long, value_name = "NAME", num_args = 1.., value_parser = preset(),
        value_delimiter = ',')]
    pub preset: Vec<PresetArg>,

    /// Bytes of each rank's share from which the all-reduce of preset gzccl is a ring
    #[arg(long, value_name = "SIZE", default_value = "5MB", value_parser = sizes::one)]
    pub ring_from: usize,

    /// Schedule of a row of your own, or `all`. The row is preset foldwire, changed by --schedule,
    /// --pipeline, --codec and --exact-below
    ///
    /// With `all`, each schedule that can do the collective has a row. The schedule that a call
    /// would choose is marked. A second table compares its time with the best one. Example:
    /// foldwire bench allreduce --schedule all --link 1gbit
    #[arg(long, value_name = "NAME", value_parser = schedules())]
    pub schedule: Option<ScheduleArg>,

    /// Pipeline of your row
    #[arg(long, value_name = "NAME", value_parser = pipeline())]
    pub pipeline: Option<Pipeline>,

    /// Codec of your row, optionally with a setting as truncate:40
    #[arg(long, value_name = "NAME[:N]")]
    pub codec: Option<CodecArg>,

    /// Arrays of fewer bytes are not compressed in your row
    #[arg(long, value_name = "SIZE", value_parser = below)]
    pub exact_below: Option<usize>,

    /// Also show what each value of the array costs: ns to encode, fold, decode, wait, and, if
    /// --link is given, the link's time for what a rank sends
    ///
    /// `fold` is all combining, and copying of raw values. Example: foldwire bench reduce-scatter
    /// --ranks 2 --sizes 64M --link 100gbit --budget
    #[arg(long, conflicts_with = "csv")]
    pub budget: bool,

    /// Type of the values [default: the field's type, else f32]
    #[arg(long, value_parser = dtype())]
    pub dtype: Option<DType>,

    /// The reduction, for collectives that reduce
    #[arg(long, value_enum, default_value_t = OpArg::Sum)]
    pub op: OpArg,

    /// The root, for collectives that have one
    #[arg(long, value_name = "RANK", default_value_t = 0)]
    pub root: usize,

    /// Use one buffer per call for both input and result (not for scatter and gather; broadcast
    /// always does)
    #[arg(long)]
    pub in_place: bool,

    /// Values to send: .f32, .f64, .f16, .bf16 (raw little-endian) or .npy, cut or repeated; each
    /// rank begins at another offset [default: built-in waves with a little noise]
    #[arg(long, value_name = "FILE")]
    pub field: Option<PathBuf>,

    /// Value of the field that stands for missing data, such as 1e20: it keeps its bits, does not
    /// count in the value range, and a reduction with it is missing
    #[arg(long, value_name = "VALUE", allow_hyphen_values = true, requires = "field")]
    pub fill: Option<f64>,

    /// Number of times that all ranks are started and measured anew; reported are the median over
    /// launches of their medians, and the spread
    ///
    /// Some conditions stay the same within a launch, such as the position of buffers in memory.
    /// More rounds do not average over them. Only for the threads backend. Example: foldwire bench
    /// allreduce --launches 5
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = values::within(
        1..=1000_usize, "a whole number of launches from 1 to 1000 is needed"))]
    pub launches: usize,

    /// Number of calls that each rank starts at once and then waits for, each with its own buffers;
    /// times are per call
    ///
    /// With more than 1, calls run on a communicator for several calls, with values of f32, and all
    /// presets on as many threads. The MPI library's own blocking calls are left out. Example:
    /// foldwire bench allreduce --in-flight 8
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = values::within(
        1..=256_usize, "a whole number of calls from 1 to 256 is needed"))]
    pub in_flight: usize,

    /// Also measure how much of a call's time is hidden behind a computation of the same duration,
    /// which polls the call N times at even intervals [default N: 100]
    ///
    /// The columns follow osu_iallreduce. `time` is the time of the call alone, and `work` that of
    /// the computation alone. `total` is the time to start the call, compute, and wait for the
    /// call. `hidden` is 100 (1 - (total - work) / time) percent. The MPI library's own blocking
    /// calls hide nothing. Examples: foldwire bench allreduce --link 1gbit --overlap, or
    /// --overlap=20
    #[arg(long, value_name = "N", num_args = 0..=1, value_parser = values::within(
        0..=1_000_000_usize, "a whole number of polls from 0 to 1000000 is needed"),
        require_equals = true, default_missing_value = "100")]
    pub overlap: Option<usize>,

    /// Number of warm-up rounds, which do not count
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = values::warmup)]
    pub warmup: usize,

    /// Least number of counted rounds
    #[arg(long, value_name = "N", default_value_t = 11, value_parser = values::repeat)]
    pub repeat: usize,

    /// Least total time in seconds of the counted rounds of a size (at most 1000 rounds)
    #[arg(long, value_name = "S", default_value = "0.3", value_parser = seconds)]
    pub min_time: f64,

    /// Number of segments in progress at the same time
    #[arg(long, value_name = "N", value_parser = lanes)]
    pub lanes: Option<usize>,

    /// Bytes of a frame, such as 260K [default: the backend's]
    #[arg(long, value_name = "SIZE", value_parser = frame)]
    pub frame: Option<usize>,

    /// Compare each contestant's first result of each size with the exact one
    ///
    /// MPI does not define minimum and maximum with NaN. Such results of the MPI library are noted,
    /// not judged.
    #[arg(long, value_name = "WHETHER", default_value_t = true, action = clap::ArgAction::Set)]
    pub check: bool,

    /// Try all of the MPI library's algorithms to find its best, or run only its default
    #[arg(long, value_name = "WHETHER", default_value_t = true, action = clap::ArgAction::Set)]
    pub mpi_best: bool,

    /// Print one JSON object on stdout instead of the table
    #[arg(long, conflicts_with = "csv")]
    pub json: bool,

    /// Print comma-separated values on stdout instead of the table: a line of column names, then a
    /// line for each size and contestant
    #[arg(long)]
    pub csv: bool,

    /// Draw times over sizes, a line for each contestant, into this file, .svg or .png
    #[arg(long, value_name = "FILE")]
    pub plot: Option<PlotFile>,
}

impl BenchArgs {
    /// The presets to run.
    pub fn presets(&self) -> RequestedPresets<'_> {
        RequestedPresets::new(match (&*self.preset, self.schedule) {
            ([], Some(ScheduleArg::All)) => &[],
            ([], _) => &[PresetArg::Main],
            (requested, _) => requested,
        })
    }

    /// The user's own row, if one is requested.
    pub fn row(&self) -> Option<Plan> {
        let Self { pipeline, codec, exact_below, .. } = self;
        let is_requested = pipeline.is_some() || codec.is_some() || exact_below.is_some();
        match self.schedule {
            Some(ScheduleArg::All) => None,
            Some(ScheduleArg::One(named)) => Some(self.row_plan().with_schedule(named.0)),
            None => is_requested.then(|| self.row_plan()),
        }
    }

    /// The plan of the user's own row or rows, without a schedule.
    fn row_plan(&self) -> Plan {
        let Self { pipeline, codec, exact_below, .. } = self;
        let mut plan = Plan::foldwire(self.bound);
        plan.pipeline = pipeline.unwrap_or(plan.pipeline);
        if let Some(codec) = codec {
            plan = codec.of_plan(plan);
        }
        let plan = plan.with_exact_below(exact_below.unwrap_or(0));
        self.fill.map_or(plan, |fill| plan.with_fill(fill))
    }

    /// Plan and schedule of each row of `--schedule all`; empty without it.
    pub fn swept(&self) -> Vec<(Plan, &'static dyn Schedule)> {
        let all = schedule::ALL.iter().filter(|_| self.sweeps());
        let can = all.filter(|known| known.supports(self.form.collective));
        can.map(|&known| (self.row_plan(), known)).collect()
    }

    /// Returns whether all schedules are compared.
    pub fn sweeps(&self) -> bool {
        matches!(self.schedule, Some(ScheduleArg::All))
    }
}

pub(super) fn below(text: &str) -> Result<usize, String> {
    sizes::n_bytes(text).ok_or_else(|| "a size is needed, such as 4K".to_owned())
}

/// Parses `--dtype`, a type of floats.
pub(super) fn dtype() -> impl TypedValueParser<Value = DType> {
    let floats = [
        (DType::F32, "single precision"),
        (DType::F64, "double precision"),
        (DType::F16, "half precision"),
        (DType::Bf16, "bfloat16, the upper half of single precision"),
    ];
    by_name(floats.map(|(dtype, help)| (PossibleValue::new(dtype.name()).help(help), dtype)))
}

/// Values of `--op`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum OpArg {
    /// Σ x
    Sum,
    /// Σ x / ranks; for MPI the benchmark divides the sum, within the measured time
    Avg,
    /// the smallest value
    Min,
    /// the largest value
    Max,
    /// Π x
    Prod,
}

impl OpArg {
    /// Name in lower case.
    pub fn name(self) -> &'static str {
        Op::<f32>::from(self).code().name()
    }
}

impl<T> From<OpArg> for Op<'_, T> {
    fn from(arg: OpArg) -> Self {
        match arg {
            OpArg::Sum => Self::Sum,
            OpArg::Avg => Self::Avg,
            OpArg::Min => Self::Min,
            OpArg::Max => Self::Max,
            OpArg::Prod => Self::Prod,
        }
    }
}

pub(super) fn array_sizes(text: &str) -> Result<SizeList, UsageError> {
    let sizes: SizeList = text.parse()?;
    match sizes.n_bytes().iter().find(|&&n| n > MAX_SIZE) {
        Some(&n) => Err(usage!("{} is too much; take 1024G at most", Size(n))),
        None => Ok(sizes),
    }
}

pub(super) fn seconds(text: &str) -> Result<f64, String> {
    let value = text.parse().ok().filter(|s| (0.0..=3600.0).contains(s));
    value.ok_or_else(|| "a number of seconds from 0 to 3600 is needed".to_owned())
}

pub(super) fn lanes(text: &str) -> Result<usize, String> {
    let most = foldwire::transport::MAX_LANES;
    let value = text.parse().ok().filter(|n| (1..=most).contains(n));
    value.ok_or_else(|| format!("a whole number from 1 to {most} is needed"))
}

pub(super) fn frame(text: &str) -> Result<usize, String> {
    let least = foldwire::transport::MIN_FRAME_BYTES;
    let value = sizes::n_bytes(text).filter(|n| (least..=1 << 30).contains(n));
    value.ok_or_else(|| format!("a size from {least} bytes to 1G is needed, such as 260K"))
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::{BackendArg, Cli, Command};
    use foldwire::codec::CodecId;
    use foldwire::{Preset, pipeline};

    fn bench(args: &str) -> Result<BenchArgs, clap::Error> {
        let words = ["foldwire", "bench"].into_iter().chain(args.split_whitespace());
        match Cli::try_parse_from(words)?.command {
            Command::Bench(args) => Ok(args),
            _ => unreachable!("the subcommand is bench"),
        }
    }

    #[test]
    fn a_row_is_asked_for_by_any_of_its_parts() {
        assert!(bench("reduce").unwrap().row().is_none());
        let row = |args: &str| bench(args).unwrap().row().unwrap();
        let plan = row("allreduce --schedule pairwise --bound abs:0.5");
        assert_eq!(plan.schedule.map(Schedule::name), Some("pairwise"));
        assert_eq!((plan.pipeline, plan.bound), (pipeline::FUSED, Some(Bound::Absolute(0.5))));
        assert_eq!(row("allreduce --pipeline per-hop").pipeline, pipeline::PER_HOP);
        assert_eq!(row("allreduce --codec raw").codec, CodecId::Raw);
        assert_eq!(row("allreduce --exact-below 4K").exact_below, 4096);
        for wrong in ["--schedule rign", "--pipeline none", "--codec zip", "--exact-below x"] {
            assert!(bench(&format!("allreduce {wrong}")).is_err(), "{wrong}");
        }
    }

    #[test]
    fn all_schedules_are_those_that_can_do_the_collective() {
        let args = bench("scan --schedule all --codec raw").unwrap();
        assert!(args.sweeps() && args.presets().of(DType::F32).is_empty());
        let rows = args.swept();
        let names: Vec<_> = rows.iter().map(|(_, schedule)| schedule.name()).collect();
        assert_eq!(names, ["chain", "prefix-doubling"]);
        assert!(args.row().is_none() && rows.iter().all(|(plan, _)| plan.codec == CodecId::Raw));
        let args = bench("scan --schedule all --preset raw").unwrap();
        assert_eq!(args.presets().of(DType::F32), [Preset::Raw]);
    }

    #[test]
    fn all_is_a_list_of_presets() {
        assert_eq!(bench("reduce").unwrap().presets().of(DType::F32), Preset::MAIN);
        let args = bench("reduce --preset foldwire,all").unwrap();
        assert_eq!(args.presets().of(DType::F64)[..2], [Preset::Foldwire, Preset::Raw]);
    }

    #[test]
    fn defaults_are_the_documented_ones() {
        let args = bench("gather").unwrap();
        let NetworkArgs { backend, ranks, .. } = args.network;
        assert_eq!((backend, ranks, args.repeat), (BackendArg::Threads, None, 11));
        assert_eq!((args.bound, args.op, args.root), (Bound::Relative(1e-3), OpArg::Sum, 0));
        assert!(args.check && args.mpi_best && !args.in_place);
        assert!(!bench("gather --check false").unwrap().check);
        assert_eq!(args.sizes.n_bytes().last(), Some(&(64 << 20)));
    }

    #[test]
    fn numbers_have_limits() {
        assert_eq!(bench("reduce --frame 260K").unwrap().frame, Some(260 << 10));
        for wrong in [
            "--lanes 0",
            "--lanes 9",
            "--streams 0",
            "--streams 17",
            "--frame 100",
            "--min-time -1",
            "--min-time x",
            "--sizes 1,1025G",
        ] {
            assert!(bench(&format!("reduce {wrong}")).is_err(), "{wrong}");
        }
    }
}
