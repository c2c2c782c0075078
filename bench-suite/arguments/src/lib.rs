//! The command line of `foldwire`: subcommands, options, and the help that goes with them. It is a
//! package of its own because it is compiled without optimisation: a few words are parsed once.
//!
//! Everything that can be judged from one argument alone is judged here, by the parsers of
//! [`values`](crate::values), so that a mistake is reported by clap with exit code 2 before any
//! file is opened. What needs a file to judge (its size, its type) is an error of
//! [`input`](foldwire_workbench::input).

mod accuracy;
mod bench;
mod cg;
mod choose;
mod climate;
pub mod coding;
mod guidelines;
mod halo;
mod info;
#[cfg(unix)]
mod launch;
mod p2p;
#[cfg(unix)]
mod preload;
pub mod rows;
mod schedule;
mod shape;
mod sim;
pub mod sizes;
pub mod speeds;
mod train;
mod transpose;
mod tune;
pub mod unused;
pub mod values;

use std::path::PathBuf;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args, Parser, Subcommand, ValueEnum};
use foldwire::codec::{CodecId, Prediction};
use foldwire::{Bound, Preset};
use foldwire_fields::dims::Dims;
use foldwire_workbench::plot::PlotFile;

use crate::coding::Coding;
use crate::values::LinkRate;
pub use accuracy::{AccuracyArgs, Way, reduces};
pub use cg::CgArgs;
pub use choose::ChooseArgs;
pub use climate::{CaseArg, ClimateArgs};
pub use guidelines::GuidelinesArgs;
pub use halo::HaloArgs;
pub use info::{InfoArgs, PresetsArgs};
#[cfg(unix)]
pub use launch::{EnvArg, LaunchArgs};

pub use bench::{BackendArg, BenchArgs, DTypeArg, FormArg, OpArg};
pub use p2p::{P2pArgs, What};
#[cfg(unix)]
pub use preload::PreloadArgs;
pub use rows::{PresetArg, ScheduleArg};
pub use schedule::{Named, ScheduleArgs};
pub use shape::ShapeArg;
pub use sim::SimArgs;
pub use train::{RoundingArg, TrainArgs};
pub use transpose::TransposeArgs;
pub use tune::TuneArgs;

/// Collectives on compressed arrays: the main job and the measurements.
#[derive(Debug, Parser)]
#[command(name = "foldwire", version, arg_required_else_help = true, after_help = EXAMPLES)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

const EXAMPLES: &str = "\
Examples:
  foldwire stack                              the main job: 8 ranks sum simulated images over 10 Gbit/s links
  foldwire stack --link none                  the same at the speed of memory
  foldwire stack --input run.f32 --dims 449x449x235 --ranks 4
  foldwire codec --field temperature.f32 --bound rel:1e-3
  foldwire accuracy                           how errors of reductions grow with ranks
  foldwire bench allreduce --ranks 4          a collective over sizes
  mpirun -n 2 foldwire bench allreduce --backend mpi
  mpirun -n 2 foldwire p2p --backend mpi      messages between two ranks, and the barrier
  foldwire choose                             what automatic plans choose, and how well
  foldwire tune                               this machine's speeds, for automatic plans
  foldwire cg                                 conjugate gradients with reproducible dot products
  foldwire climate                            a flow on a sphere by each of CAM's methods
  foldwire halo                               a wave simulation that exchanges compressed planes
  foldwire train                              a neural network that averages compressed gradients
  foldwire transpose                          x + its transpose over a compressed all-to-all
  foldwire sim allreduce --ranks 2:512        what to expect on a cluster that is not here
  foldwire schedule ring --ranks 6            who sends what to whom, in which order
  foldwire launch -n 4 -- ./program           four ranks of a program on this machine
  foldwire preload -- mpirun -n 4 ./program   an MPI program as it is, with Foldwire under it
  foldwire info                               what this build and this machine have

`foldwire <command> --help` explains every option. --plot needs a build with --features plots.";

/// The subcommands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Sum one image volume per rank with every preset, and compare time, bytes and error
    Stack(StackArgs),
    /// Measure the codec alone on one thread: encode, decode, fold, combine beside memcpy
    Codec(CodecArgs),
    /// Measure how the error of a reduction grows with the number of ranks, beside what is stated
    Accuracy(AccuracyArgs),
    /// Time a collective over sizes with every preset, and beside the MPI library's own
    Bench(BenchArgs),
    /// Time messages between two ranks and the barrier, beside the MPI library's own
    P2p(P2pArgs),
    /// Find collectives that take longer than others that do the same
    Guidelines(GuidelinesArgs),
    /// Time what automatic plans choose, beside every plan that they choose from, over sizes and
    /// links
    Choose(ChooseArgs),
    /// Measure how fast this machine computes by each codec, for automatic plans
    Tune(TuneArgs),
    /// Solve a linear system on several ranks by conjugate gradients, with reproducible dot
    /// products and compressed borders
    Cg(CgArgs),
    /// Simulate a flow on a sphere on several ranks that exchange borders and transpose fields, by
    /// each of CAM's methods to compress messages, and test how errors grow
    Climate(ClimateArgs),
    /// Simulate waves on several ranks that exchange border planes, as they are and compressed
    Halo(HaloArgs),
    /// Train a neural network on several ranks that average gradients, as they are and compressed
    Train(TrainArgs),
    /// Add a matrix and its transpose on several ranks, over an all-to-all
    Transpose(TransposeArgs),
    /// Predict how long a collective takes on thousands of ranks, with every preset
    Sim(SimArgs),
    /// Show who sends what to whom in a schedule, rank by rank or as a picture
    Schedule(ScheduleArgs),
    /// Start the ranks of a program on this machine, forward their output, end them together
    #[cfg(unix)]
    Launch(LaunchArgs),
    /// Run an MPI program as it is, with Foldwire under its collectives
    #[cfg(unix)]
    Preload(PreloadArgs),
    /// Show the published systems that are here as presets: what each is made of, where it comes
    /// from, and what is different here
    Presets(PresetsArgs),
    /// Show kernels, presets, links, backends and this process's place, and what is not there and
    /// why
    Info(InfoArgs),
}

const STACK_EXAMPLES: &str = "\
Examples:
  foldwire stack
      Simulates one seismic image per rank (cached for the next time) and sums them.
  foldwire stack --ranks 4 --bound abs:0.01 --input a.npy b.npy c.npy d.npy
      One file per rank.
  foldwire stack --ranks 8 --input P.f32 --dims 96x128x128
      One file, cut into 8 pieces of 12x128x128 along its slowest dimension.
  foldwire stack --bound rel:1e-3,rel:1e-4,rel:1e-5 --preset all --papers
      A table for each bound, of all presets, and beside them what the papers report.
  foldwire stack --shape 235x128x235 --hz 9 --time 0.5
      Larger images, smoother and half as full.
  foldwire stack --preset raw foldwire --link 1gbit --json > result.json
      Two presets only; stdout holds one JSON object, everything else goes to stderr.";

/// Options of `foldwire stack`.
#[derive(Debug, Clone, Args)]
#[command(after_help = STACK_EXAMPLES)]
pub struct StackArgs {
    /// Number of ranks [default: 8, or the number of input files if there are several]
    #[arg(long, value_name = "N", value_parser = crate::values::ranks, allow_hyphen_values = true)]
    pub ranks: Option<usize>,

    /// Error bounds of each operand, a table for each: rel:X times the value range, abs:X, or
    /// psnr:X in dB
    #[arg(long, value_name = "KIND:X", num_args = 1.., value_delimiter = ',',
        default_value = "rel:1e-4")]
    #[arg(value_parser = crate::values::bound)]
    pub bound: Vec<Bound>,

    /// Rate of each rank's link, each way: 10gbit, 1gbit, 250MB/s, …; `none` for the speed of
    /// memory
    #[arg(long, value_name = "RATE", default_value = "10gbit", allow_hyphen_values = true)]
    pub link: LinkRate,

    /// Your own data instead of the simulation: one file per rank, or one file to be cut in pieces.
    ///
    /// Types go by the extension: .f32, .f64, .f16 and .bf16 are raw little-endian values, .npy is
    /// NumPy's format (float32, float64 or float16, C order); or by a word before the path, as
    /// f32:PATH. - is standard input. Several files are one operand per
    /// rank. A single file is cut into one piece per rank along its slowest dimension; what does
    /// not divide evenly is left out, with a note.
    #[arg(long, value_name = "FILE", num_args = 1..)]
    pub input: Vec<PathBuf>,

    /// Dimensions of each input file, slowest first, such as 128x160x160.
    ///
    /// Not needed for .npy, nor for names that end in them, such as P_4x14x48x48.f32.
    #[arg(long, value_name = "AxBxC", requires = "input", allow_hyphen_values = true)]
    pub dims: Option<Dims>,

    /// Points of a simulated image along y, depth and x, 10 m apart
    #[arg(
        long,
        value_name = "AxBxC",
        default_value = "176x128x176",
        conflicts_with = "input",
        allow_hyphen_values = true
    )]
    pub shape: Dims,

    /// Peak frequency of simulated shots: lower ones, down to 1, give smoother images
    #[arg(long, value_name = "HZ", default_value_t = foldwire_wave::MAX_HZ,
        value_parser = crate::values::frequency, conflicts_with = "input",
        allow_hyphen_values = true)]
    pub hz: f32,

    /// When simulated images are taken: 1 when the wave reaches the bottom, less before, when less
    /// of an image is filled; at most 2
    #[arg(long, value_name = "T", default_value_t = 1.0, value_parser = crate::values::way_down,
        conflicts_with = "input", allow_hyphen_values = true)]
    pub time: f32,

    /// Presets to run, in this order
    #[arg(long, value_name = "NAME", num_args = 1.., value_parser = rows::preset(),
        value_delimiter = ',', default_value = "main,auto")]
    pub preset: Vec<PresetArg>,

    /// Print what the papers report of image stacking, too
    #[arg(long)]
    pub papers: bool,

    /// Timed runs of each preset; the median is reported
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = crate::values::repeat, allow_hyphen_values = true)]
    pub repeat: usize,

    /// Folder for the pictures; with several bounds a folder in it for each
    #[arg(long, value_name = "DIR", default_value = "out")]
    pub out: PathBuf,

    /// Folder for simulated images [default: the user's cache folder]
    #[arg(long, value_name = "DIR")]
    pub cache: Option<PathBuf>,

    /// Threads that each rank computes on [default: 1; 2 for presets of several threads]
    #[arg(long, value_name = "N", value_parser = crate::values::repeat)]
    pub threads: Option<usize>,

    /// Run presets as published: without the promise that all ranks get the same bits
    #[arg(long)]
    pub as_published: bool,

    /// Write no pictures
    #[arg(long)]
    pub no_pictures: bool,

    /// Print one JSON object on stdout instead of the table
    #[arg(long)]
    pub json: bool,
}

impl StackArgs {
    /// The presets to run: those asked for, once each.
    pub fn presets(&self) -> Vec<Preset> {
        PresetArg::list(&self.preset)
    }
}

/// The presets in order, each once.
fn distinct(asked: impl Iterator<Item = Preset>) -> Vec<Preset> {
    let mut presets = Vec::new();
    for preset in asked {
        if !presets.contains(&preset) {
            presets.push(preset);
        }
    }
    presets
}

const CODEC_EXAMPLES: &str = "\
Examples:
  foldwire codec --field temperature.f32 --bound rel:1e-3
      Speed, ratio and error at 1/1000 of the value range, with the machine's best kernels.
  foldwire codec --field *.f32 *.f64 --bound rel:1e-2 --bound rel:1e-3 --level scalar --level avx2
      Every file, at two bounds and two kernel levels.
  foldwire codec --field u.npy --bound abs:0.1 --bound psnr:60 --json > codec.json
      Bounds of other kinds; stdout holds one JSON object.
  foldwire codec --field u.npy --bound rel:1e-3 --codec all --threads 1,2
      Every codec there is, on one thread and on two.
  foldwire codec --field u.npy --bound rel:1e-3 --codec dense,fz-nd --shape find
      As programs do it that tell no shape: rows and planes are looked for in the values.
  foldwire codec --field u.npy --bound rel:1e-3 --packing fast,dense --predictor 2d
      What prediction in rows alone comes to, by both packings.
  python3 make.py | foldwire codec --field f32:- --bound abs:0.5
      Raw values from a pipe; of one that holds a .npy array, - says enough.
  foldwire codec --field u.npy --codec all --plot u.svg
      Rate and distortion of every codec, over bounds from 1e-1 to 1e-6 of the range and over settings; nothing is timed.

Every value is checked against its bound; the exit code is 1 if one is beyond it.";

/// Options of `foldwire codec`.
#[derive(Debug, Clone, Args)]
#[command(after_help = CODEC_EXAMPLES)]
pub struct CodecArgs {
    /// Arrays to measure on, one or several: .f32, .f64, .f16, .bf16 (raw little-endian values) or
    /// .npy; - is standard input, and f32:PATH tells the type whatever the name
    #[arg(long, value_name = "FILE.f32|.f64|.f16|.bf16|.npy", num_args = 1.., required = true)]
    pub field: Vec<PathBuf>,

    /// Error bounds to measure speeds and errors at: rel:X times the value range, abs:X, or psnr:X
    /// in dB; may be given several times
    #[arg(
        long,
        value_name = "KIND:X",
        required_unless_present = "plot",
        allow_hyphen_values = true
    )]
    #[arg(value_parser = crate::values::bound)]
    pub bound: Vec<Bound>,

    /// Codecs to measure, or all; with a setting as truncate:40 [default: fz-light]
    #[arg(long, value_name = "NAME[:N]|all", num_args = 1..)]
    #[arg(value_delimiter = ',', value_parser = crate::coding::codings)]
    pub codec: Vec<Vec<Coding>>,

    /// The codecs that predict values from other rows, by how they pack what is left over: fast is
    /// fz-nd
    #[arg(long, value_enum, num_args = 1.., value_delimiter = ',', conflicts_with = "codec")]
    pub packing: Vec<PackingArg>,

    /// What these codecs predict values from, instead of what is best for each chunk
    #[arg(long, default_value = "auto", value_parser = predictions())]
    pub predictor: Prediction,

    /// Shape that codecs are told of which predict values from other rows (dense, fz-nd): that of
    /// the file, one to be found in the values, none, or these dimensions
    #[arg(long, value_name = "file|find|none|DIMS", default_value = "file")]
    pub shape: ShapeArg,

    /// Numbers of threads that the codec may use
    #[arg(long, value_name = "N", default_value = "1", num_args = 1.., value_delimiter = ',')]
    #[arg(value_parser = crate::values::repeat)]
    pub threads: Vec<usize>,

    /// Kernel levels to measure; may be given several times [default: the machine's best]
    #[arg(long, value_name = "LEVEL", num_args = 1.., value_enum, value_delimiter = ',')]
    pub level: Vec<LevelArg>,

    /// Timed runs of each operation; the median is reported
    #[arg(long, value_name = "N", default_value_t = 31, value_parser = crate::values::repeat, allow_hyphen_values = true)]
    pub repeat: usize,

    /// Sizes and speeds of other compressors [default: ../shared/reference/peers.csv where it
    /// exists]
    #[arg(long, value_name = "FILE.csv")]
    pub peers: Option<PathBuf>,

    /// Draw PSNR over bits a value into this file, by its ending an SVG or a PNG; of several fields
    /// each into a file of its own
    ///
    /// Codecs that keep a bound are tried at some from 1e-1 to 1e-6 of the value range, those that
    /// go by a setting at several unless one is given; exact ones are lines at their rate, and
    /// where another loses nothing it has a mark at the top.
    #[arg(long, value_name = "FILE.svg|.png")]
    pub plot: Option<PlotFile>,

    /// Print one JSON object on stdout instead of the tables
    #[arg(long)]
    pub json: bool,
}

impl CodecArgs {
    /// Whether this codec was asked for by its name, not as one of all.
    pub fn is_named(&self, coding: Coding) -> bool {
        let by_packing = || self.packing.iter().any(|packing| packing.codec() == coding.codec);
        self.codec.iter().any(|asked| asked[..] == [coding]) || by_packing()
    }

    /// The codecs asked for, once each.
    pub fn codings(&self) -> Vec<Coding> {
        let packings = self.packing.iter().map(|packing| packing.codec().into());
        let mut asked: Vec<Coding> = self.codec.iter().flatten().copied().chain(packings).collect();
        if asked.is_empty() {
            asked.push(CodecId::FzLight.into());
        }
        let mut codings = Vec::new();
        for coding in asked {
            if !codings.contains(&coding) {
                codings.push(coding);
            }
        }
        codings
    }
}

/// How codecs pack what prediction leaves over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum PackingArg {
    /// blocks as wide as their largest number
    Fast,
    /// Huffman codes
    Dense,
}

impl PackingArg {
    const fn codec(self) -> CodecId {
        match self {
            Self::Fast => CodecId::FzNd,
            Self::Dense => CodecId::Dense,
        }
    }
}

/// What codecs may predict values from, by name.
fn predictions() -> impl TypedValueParser<Value = Prediction> {
    let of_name = |name: String| Prediction::ALL.into_iter().find(|each| each.name() == name);
    PossibleValuesParser::new(Prediction::ALL.map(Prediction::name))
        .try_map(move |name| of_name(name).ok_or("there is no such predictor"))
}

/// An instruction-set level of the kernels.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum LevelArg {
    /// portable code, the specification
    #[value(name = "scalar")]
    Scalar,
    /// AVX2 and BMI2
    #[value(name = "avx2")]
    Avx2,
    /// AVX-512
    #[value(name = "avx512")]
    Avx512,
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    fn stack(args: &str) -> Result<StackArgs, clap::Error> {
        let words = ["foldwire", "stack"].into_iter().chain(args.split_whitespace());
        match Cli::try_parse_from(words)?.command {
            Command::Stack(args) => Ok(args),
            _ => unreachable!("the subcommand is stack"),
        }
    }

    #[test]
    fn the_definition_is_sound() {
        Cli::command().debug_assert();
    }

    #[test]
    fn defaults_are_the_documented_ones() {
        let args = stack("").unwrap();
        assert_eq!((args.ranks, args.repeat), (None, 5));
        assert_eq!(args.bound, [Bound::Relative(1e-4)]);
        assert_eq!((args.shape.sizes(), args.hz, args.time), (&[176, 128, 176][..], 18.0, 1.0));
        assert_eq!(args.link.bytes_per_s(), Some(1.25e9));
        assert_eq!(args.presets(), [&Preset::MAIN[..], &[Preset::Auto]].concat());
    }

    #[test]
    fn presets_keep_their_order_and_come_once() {
        let args = stack("--preset zccl raw --preset zccl,foldwire").unwrap();
        assert_eq!(args.presets(), [Preset::Zccl, Preset::Raw, Preset::Foldwire]);
        for &preset in Preset::ALL {
            let args = stack(&format!("--preset {}", preset.name())).unwrap();
            assert_eq!(args.presets(), [preset]);
        }
        assert_eq!(stack("--preset raw all").unwrap().presets(), Preset::ALL);
    }

    #[test]
    fn lists_may_be_long_or_repeated() {
        let words = "foldwire codec --field a.f32 b.f64 --bound rel:1e-3 --bound abs:0.1 --level scalar --level avx2";
        let Command::Codec(args) = Cli::try_parse_from(words.split_whitespace()).unwrap().command
        else {
            unreachable!("the subcommand is codec")
        };
        assert_eq!(args.field.len(), 2);
        assert_eq!(args.bound, [Bound::Relative(1e-3), Bound::Absolute(0.1)]);
        assert_eq!(args.level, [LevelArg::Scalar, LevelArg::Avx2]);
    }

    #[test]
    fn dims_need_an_input() {
        assert!(stack("--dims 2x3").is_err());
        assert!(stack("--dims 2x3 --input a.f32").is_ok());
        assert!(stack("--shape 2x3x4 --input a.f32").is_err());
    }
}
