//! The command line of `foldwire`: subcommands, options and their help. It is a separate package,
//! compiled without optimisation, because it parses only a few words once.
//!
//! The parsers of [`values`] check everything that depends on one argument alone. clap then reports
//! a mistake with exit code 2 before any file is opened. Checks that need a file (its size, its
//! type) are errors of [`input`](foldwire_workbench::input).
//!
//! [`rows`] parses the names of schedules, presets and pipelines. [`unused`] refuses options that
//! have no effect with the other options.

mod accuracy;
mod bench;
mod cg;
mod choose;
mod climate;
mod codec;
pub mod coding;
mod collectives;
mod compress;
pub mod environment;
pub mod exit;
mod guidelines;
mod halo;
mod info;
#[cfg(unix)]
mod launch;
mod network;
mod p2p;
pub mod papers;
#[cfg(unix)]
mod preload;
pub mod rows;
mod schedule;
mod shape;
mod sim;
pub mod sizes;
pub mod speeds;
mod stack;
mod train;
mod transpose;
mod tune;
pub mod unused;
pub mod values;

use clap::{Parser, Subcommand};

pub use accuracy::{AccuracyArgs, AccuracyScheduleArg, reduces};
pub use cg::CgArgs;
pub use choose::ChooseArgs;
pub use climate::{CaseArg, ClimateArgs};
pub use codec::CodecArgs;
pub use compress::{CompressArgs, DecompressArgs, FillArg};
pub use guidelines::GuidelinesArgs;
pub use halo::HaloArgs;
pub use info::{InfoArgs, PresetsArgs};
#[cfg(unix)]
pub use launch::{EnvArg, LaunchArgs};

pub use bench::{BenchArgs, OpArg};
pub use collectives::FormArg;
pub use network::{BackendArg, NetworkArgs};
pub use p2p::{P2pArgs, P2pTest};
pub use papers::PapersArgs;
#[cfg(unix)]
pub use preload::PreloadArgs;
pub use rows::{PresetArg, RequestedPresets, ScheduleArg};
pub use schedule::{ScheduleArgs, ScheduleName};
pub use shape::ShapeArg;
pub use sim::SimArgs;
pub use stack::StackArgs;
pub use train::{RoundingArg, TrainArgs};
pub use transpose::TransposeArgs;
pub use tune::TuneArgs;

/// Collectives on compressed arrays: the main job, measurements, example programs, a launcher
#[derive(Debug, Parser)]
#[command(name = "foldwire", version, arg_required_else_help = true, after_help = EXAMPLES)]
#[command(mut_subcommands(with_negative_numbers))]
pub struct Cli {
    /// The subcommand.
    #[command(subcommand)]
    pub command: Command,
}

/// Lets options that take one number begin with `-`, so that the parser of the number says what is
/// wrong with it.
#[must_use]
pub fn with_negative_numbers(command: clap::Command) -> clap::Command {
    const NUMBERS: [&str; 18] = [
        "N", "X", "KIND:X", "S", "T", "HZ", "TIME", "SECONDS", "DAYS", "RATE", "SIZE", "SIZES",
        "LIST", "PART", "VALUE", "AxB", "AxBxC", "RANK",
    ];
    command.mut_args(|arg| {
        let is_number = |names: &[clap::builder::Str]| NUMBERS.contains(&names[0].as_str());
        let takes_number = arg.get_value_names().is_some_and(is_number);
        let takes_one = arg.get_num_args().is_none_or(|n| n.max_values() == 1);
        if takes_number && takes_one { arg.allow_hyphen_values(true) } else { arg }
    })
}

const EXAMPLES: &str = "\
Examples:
  foldwire stack                              the main job: 8 ranks sum images over 10 Gbit/s links
  foldwire stack --link none                  the same at the speed of memory
  foldwire stack --input run.f32 --dims 449x449x235 --ranks 4
  foldwire codec --field temperature.f32 --bound rel:1e-3
  foldwire compress temperature.npy --bound rel:1e-3
  foldwire decompress temperature.npy.fwz
  foldwire papers tables --data ~/SDRBench    codecs beside the tables of ZCCL and hZCCL
  foldwire accuracy                           growth of a reduction's error with ranks
  foldwire bench allreduce --ranks 4          a collective over sizes
  mpirun -n 2 foldwire bench allreduce --backend mpi
  mpirun -n 2 foldwire p2p --backend mpi      messages between two ranks, and the barrier
  foldwire choose                             what automatic plans choose, compared with the best
  foldwire tune                               this machine's speeds, for automatic plans
  foldwire cg                                 conjugate gradients with reproducible dot products
  foldwire climate                            a flow on a sphere with each of CAM's methods
  foldwire halo                               a wave simulation that exchanges compressed planes
  foldwire train                              a neural network that averages compressed gradients
  foldwire transpose                          x + its transpose over a compressed all-to-all
  foldwire sim allreduce --ranks 2:512        predicted times on a cluster
  foldwire schedule ring --ranks 6            the messages of a schedule, in order
  foldwire launch -n 4 -- ./program           four ranks of a program on this machine
  foldwire preload -- mpirun -n 4 ./program   an unmodified MPI program with Foldwire's collectives
  foldwire info                               features of this build and this machine

`foldwire <command> --help` explains every option. --plot needs a build with --features plots;
cg, climate, halo, train and transpose need one with --features applications.";

/// The subcommands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Sum one image volume per rank with every preset, and compare time, bytes and error
    Stack(StackArgs),
    /// Measure codecs alone: encode, decode, fold and combine, compared with memcpy
    Codec(CodecArgs),
    /// Compress an array in a file of any length, .npy or raw, within an error bound
    Compress(CompressArgs),
    /// Restore the array that `foldwire compress` wrote
    Decompress(DecompressArgs),
    /// Repeat the papers' experiments with codecs: tables by data set, sums, errors, pictures
    Papers(PapersArgs),
    /// Measure how the error of a reduction grows with the number of ranks, compared with the
    /// stated bound
    Accuracy(AccuracyArgs),
    /// Time a collective over sizes with every preset, compared with the MPI library's own
    Bench(BenchArgs),
    /// Time messages between two ranks and the barrier, compared with the MPI library's own
    P2p(P2pArgs),
    /// Find collectives that take longer than others that do the same
    Guidelines(GuidelinesArgs),
    /// Time automatic plans over sizes and links, compared with every plan that they choose from
    Choose(ChooseArgs),
    /// Measure how fast this machine computes with each codec, for automatic plans
    Tune(TuneArgs),
    /// Solve a linear system on several ranks by conjugate gradients, with reproducible dot
    /// products and compressed border planes
    Cg(CgArgs),
    /// Simulate a flow on a sphere on several ranks with each of CAM's methods to compress
    /// messages, and test how errors grow
    Climate(ClimateArgs),
    /// Simulate waves on several ranks that exchange border planes, uncompressed and compressed
    Halo(HaloArgs),
    /// Train a neural network on several ranks that average gradients, uncompressed and compressed
    Train(TrainArgs),
    /// Add a matrix and its transpose on several ranks, over an all-to-all
    Transpose(TransposeArgs),
    /// Predict how long a collective takes on thousands of ranks, with every preset
    Sim(SimArgs),
    /// Show the messages of a schedule, rank by rank or as a picture
    Schedule(ScheduleArgs),
    /// Start the ranks of a program on this machine, forward their output, end them together
    #[cfg(unix)]
    Launch(LaunchArgs),
    /// Run an unmodified MPI program with its collectives through Foldwire
    #[cfg(unix)]
    Preload(PreloadArgs),
    /// Show the published systems that have a preset: their parts, their source, and the
    /// differences here
    Presets(PresetsArgs),
    /// Show kernels, presets, links, backends and this process's place in a job, and the reason for
    /// anything missing
    Info(InfoArgs),
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;
    use foldwire::kernel::Level;
    use foldwire::{Bound, DType, Preset};

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
        assert_eq!(args.presets().of(DType::F32), [&Preset::MAIN[..], &[Preset::Auto]].concat());
    }

    #[test]
    fn presets_keep_their_order_and_come_once() {
        let args = stack("--preset zccl raw --preset zccl,foldwire").unwrap();
        assert_eq!(args.presets().of(DType::F32), [Preset::Zccl, Preset::Raw, Preset::Foldwire]);
        for &preset in Preset::ALL.iter().filter(|preset| preset.inter_step(DType::F64).is_none()) {
            let args = stack(&format!("--preset {}", preset.name())).unwrap();
            assert_eq!(args.presets().of(DType::F64), [preset]);
        }
        assert_eq!(stack("--preset raw all").unwrap().presets().of(DType::F64)[0], Preset::Raw);
    }

    #[test]
    fn lists_may_be_long_or_repeated() {
        let words = "foldwire codec --field a.f32 b.f64 --bound rel:1e-3 --bound abs:0.1 --level \
            scalar --level avx2";
        let Command::Codec(args) = Cli::try_parse_from(words.split_whitespace()).unwrap().command
        else {
            unreachable!("the subcommand is codec")
        };
        assert_eq!(args.field.len(), 2);
        assert_eq!(args.bound, [Bound::Relative(1e-3), Bound::Absolute(0.1)]);
        assert_eq!(args.level, [Level::Scalar, Level::Avx2]);
    }

    #[test]
    fn negative_numbers_reach_their_parsers() {
        for args in ["--ranks -3", "--link -1gbit", "--hz -1"] {
            let error = stack(args).unwrap_err().to_string();
            assert!(error.starts_with("error: invalid value '-"), "{error}");
        }
        // A list may be followed by another option.
        assert_eq!(stack("--bound rel:1e-3 --json").unwrap().bound, [Bound::Relative(1e-3)]);
    }

    #[test]
    fn dims_need_an_input() {
        assert!(stack("--dims 2x3").is_err());
        assert!(stack("--dims 2x3 --input a.f32").is_ok());
        assert!(stack("--shape 2x3x4 --input a.f32").is_err());
    }
}
