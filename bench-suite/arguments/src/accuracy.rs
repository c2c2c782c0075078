//! The command line of `foldwire accuracy`.

use std::path::PathBuf;

use clap::Args;
use clap::builder::{PossibleValue, TypedValueParser};
use foldwire::pipeline::{self, Pipeline};
use foldwire::schedule::{self, Schedule};
use foldwire::{Bound, Collective, DType};
use foldwire_workbench::plot::PlotFile;

use super::bench::{OpArg, dtype};
use super::schedule::{ScheduleName, schedules_by_name};
use crate::coding::CodecArg;
use crate::sizes::{self, SizeList};
use crate::values::{self, by_name, each_once};

/// Largest number of ranks. A single thread drives all of them.
const MAX_RANKS: usize = 1024;
/// Largest number of values per rank.
const MAX_COUNT: usize = 1 << 24;

const EXAMPLES: &str = "\
Examples:
  foldwire accuracy
      The error of sums between 2, 4, … 512 ranks, with each pipeline that compresses and several
      schedules.
  foldwire accuracy --op avg --field temperature.f32 --bound rel:1e-4 --plot growth.svg \
      --histogram errors.svg
      Averages of your data. Pictures show errors over ranks, and their distribution for the most
      ranks.
  foldwire accuracy --ranks 2,8,100 --pipeline per-hop --schedule all --json > result.json
      Every schedule, including a reduce plus a broadcast; stdout holds one JSON object.

An error is the difference of a reduced value from the exact one, in units of the bound on each
operand. The exit code is 1 if it exceeds the bound that the library states. docs/guarantees.md
compares theory and measurements.";

/// Options of `foldwire accuracy`.
#[derive(Debug, Clone, Args)]
#[command(after_help = EXAMPLES)]
pub struct AccuracyArgs {
    /// Numbers of ranks: a list of numbers and of ranges FIRST:LAST (factor 2) or FIRST:LAST:FACTOR
    #[arg(long, value_name = "LIST", default_value = "2:512",
        value_parser = sizes::ranks(2..=MAX_RANKS))]
    pub ranks: SizeList,

    /// Number of values per rank
    #[arg(long, value_name = "N", default_value = "4096", value_parser = count)]
    pub count: usize,

    /// The reduction
    #[arg(long, value_name = "OP", default_value = "sum", value_parser = op())]
    pub op: OpArg,

    /// Pipelines [default: all that compress]
    #[arg(long, value_name = "NAME", num_args = 1.., value_parser = super::rows::pipeline(),
        value_delimiter = ',')]
    pub pipeline: Vec<Pipeline>,

    /// Schedules; one without an all-reduce is used for a reduce and a broadcast
    #[arg(long, value_name = "NAME", num_args = 1.., value_parser = schedule_arg(),
        value_delimiter = ',',
        default_value = "ring,recursive-doubling,double-tree,binomial,chosen")]
    pub schedule: Vec<AccuracyScheduleArg>,

    /// A codec that keeps a bound, optionally with a setting as NAME:N
    #[arg(long, value_name = "NAME[:N]", default_value = "fz-light")]
    pub codec: CodecArg,

    /// Error bound of each operand: rel:X times the value range, abs:X, or psnr:X in dB
    #[arg(long, value_name = "KIND:X", default_value = "rel:1e-3", value_parser = values::bound)]
    pub bound: Bound,

    /// Values to reduce: .f32, .f64, .f16, .bf16 (raw little-endian) or .npy, cut or repeated; each
    /// rank begins at another offset [default: built-in waves with a little noise]
    #[arg(long, value_name = "FILE")]
    pub field: Option<PathBuf>,

    /// Type of the values [default: the field's type, else f32]
    #[arg(long, value_parser = dtype())]
    pub dtype: Option<DType>,

    /// Seed of the offsets where ranks begin in the data
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,

    /// Draw errors over ranks into this file, .svg or .png
    #[arg(long, value_name = "FILE.svg|.png")]
    pub plot: Option<PlotFile>,

    /// Draw the distribution of errors between the most ranks, with the first schedule, into this
    /// file
    #[arg(long, value_name = "FILE.svg|.png")]
    pub histogram: Option<PlotFile>,

    /// Print one JSON object on stdout instead of the table
    #[arg(long)]
    pub json: bool,
}

/// Values of `--schedule`.
#[derive(Debug, Clone, Copy)]
pub enum AccuracyScheduleArg {
    /// All schedules that can reduce to all ranks.
    All,
    /// The schedule that the library chooses.
    Chosen,
    /// A named schedule.
    One(ScheduleName),
}

impl AccuracyArgs {
    /// The requested pipelines, each once. By default, all but the one of the raw codec.
    pub fn pipelines(&self) -> Vec<Pipeline> {
        if self.pipeline.is_empty() {
            return pipeline::ALL.into_iter().filter(|&one| one != pipeline::RAW).collect();
        }
        each_once(self.pipeline.iter().copied())
    }

    /// The named schedules, each once.
    pub fn schedules(&self) -> impl Iterator<Item = &'static dyn Schedule> {
        let mut schedules: Vec<&'static dyn Schedule> = Vec::new();
        for &arg in &self.schedule {
            let named: Vec<&'static dyn Schedule> = match arg {
                AccuracyScheduleArg::All => {
                    schedule::ALL.iter().copied().filter(|&one| reduces(one)).collect()
                }
                AccuracyScheduleArg::Chosen => Vec::new(),
                AccuracyScheduleArg::One(ScheduleName(one)) => vec![one],
            };
            for one in named {
                if !schedules.iter().any(|known| known.name() == one.name()) {
                    schedules.push(one);
                }
            }
        }
        schedules.into_iter()
    }

    /// Returns whether the schedule that the library chooses was requested too.
    pub fn adds_chosen(&self) -> bool {
        self.schedule.iter().any(|arg| matches!(arg, AccuracyScheduleArg::Chosen))
    }
}

/// Returns whether a schedule can reduce to all ranks.
pub fn reduces(schedule: &dyn Schedule) -> bool {
    let has = |collective| schedule.supports(collective);
    has(Collective::AllReduce) || (has(Collective::Reduce) && has(Collective::Broadcast))
}

fn count(text: &str) -> Result<usize, String> {
    let count = sizes::n_bytes(text).filter(|n| (1..=MAX_COUNT).contains(n));
    count.ok_or_else(|| format!("a number from 1 to {MAX_COUNT} is needed, such as 4096 or 64K"))
}

fn op() -> impl TypedValueParser<Value = OpArg> {
    let without_products = [OpArg::Sum, OpArg::Avg, OpArg::Min, OpArg::Max];
    by_name(without_products.map(|op| (PossibleValue::new(op.name()), op)))
}

fn schedule_arg() -> impl TypedValueParser<Value = AccuracyScheduleArg> {
    let chosen = PossibleValue::new("chosen").help("the one that the library chooses");
    let all = PossibleValue::new("all").help("every one that can reduce to all ranks");
    let named = schedules_by_name().map(|(name, one)| (name, AccuracyScheduleArg::One(one)));
    let others = [(chosen, AccuracyScheduleArg::Chosen), (all, AccuracyScheduleArg::All)];
    by_name(others.into_iter().chain(named))
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::{Cli, Command};

    fn accuracy(args: &str) -> Result<AccuracyArgs, clap::Error> {
        let words = ["foldwire", "accuracy"].into_iter().chain(args.split_whitespace());
        match Cli::try_parse_from(words)?.command {
            Command::Accuracy(args) => Ok(args),
            _ => unreachable!("the subcommand is accuracy"),
        }
    }

    fn names(args: &AccuracyArgs) -> Vec<&'static str> {
        args.schedules().map(Schedule::name).collect()
    }

    #[test]
    fn defaults_are_the_documented_ones() {
        let args = accuracy("").unwrap();
        assert_eq!(args.ranks.n_bytes(), [2, 4, 8, 16, 32, 64, 128, 256, 512]);
        assert_eq!((args.count, args.op, args.bound), (4096, OpArg::Sum, Bound::Relative(1e-3)));
        assert_eq!(args.pipelines().len(), pipeline::ALL.len() - 1);
        assert_eq!(names(&args), ["ring", "recursive-doubling", "double-tree", "binomial"]);
        assert!(args.adds_chosen());
    }

    #[test]
    fn schedules_are_named_once_and_all_are_those_that_reduce() {
        let args = accuracy("--schedule chain,ring chain").unwrap();
        assert_eq!((names(&args), args.adds_chosen()), (vec!["chain", "ring"], false));
        let all = names(&accuracy("--schedule all").unwrap());
        assert!(all.contains(&"binomial") && !all.contains(&"bruck"), "{all:?}");
    }

    #[test]
    fn numbers_have_limits() {
        assert_eq!(accuracy("--count 64K").unwrap().count, 65_536);
        for wrong in ["--ranks 1", "--ranks 2,2000", "--count 0", "--op prod", "--codec zip"] {
            assert!(accuracy(wrong).is_err(), "{wrong}");
        }
    }
}
