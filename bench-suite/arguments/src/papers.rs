//! The command line of `foldwire papers`: experiments of the papers that are not collectives.

use std::path::PathBuf;

use clap::builder::PossibleValuesParser;
use clap::{Args, Subcommand};
use foldwire::Bound;
use foldwire_workbench::plot::PlotFile;

use crate::coding::CodecArg;
use crate::values;

/// Tables of codecs that ZCCL and hZCCL print: paper and number.
pub const TABLES: [&str; 8] =
    ["ZCCL-I", "ZCCL-II", "ZCCL-III", "ZCCL-IV", "hZCCL-III", "hZCCL-IV", "hZCCL-V", "hZCCL-VI"];

const EXAMPLES: &str = "\
Examples:
  foldwire papers tables --data ~/SDRBench
      ZCCL's tables I to IV and hZCCL's III to VI, beside the published columns.
  foldwire papers sums
      hZCCL's experiments on one field: the four paths of the homomorphic add, the quality of sums,
      shares of STREAM.
  foldwire papers errors --field temperature.f32 --plot errors.svg
      ZCCL's figures 5 and 6: how the errors of one compression are distributed.
  foldwire papers pictures --field temperature.f32 --ratio 30
      ZCCL's figure 8: a field at the same ratio by each codec, as pictures.

Image stacking (tables VII) is `foldwire stack --papers`; collectives are `foldwire bench` and
`foldwire sim`.";

/// Options of `foldwire papers`.
#[derive(Debug, Clone, Args)]
#[command(after_help = EXAMPLES)]
pub struct PapersArgs {
    /// The experiment.
    #[command(subcommand)]
    pub experiment: Experiment,
}

/// Experiments.
#[derive(Debug, Clone, Subcommand)]
pub enum Experiment {
    /// Measure codecs on the papers' data sets, beside their published tables
    Tables(PaperTablesArgs),
    /// Add two compressed arrays: paths of the homomorphic add, quality of sums, shares of STREAM
    Sums(PaperSumsArgs),
    /// Show how the errors of one compression are distributed
    Errors(PaperErrorsArgs),
    /// Draw a field as each codec returns it at the same ratio
    Pictures(PaperPicturesArgs),
}

const TABLES_EXAMPLES: &str = "\
Examples:
  foldwire papers tables --data ~/SDRBench
      Every table, of every set that is there.
  foldwire papers tables --data SDRBENCH-EXASKY-NYX-512x512x512 --table ZCCL-III,ZCCL-IV
      Ratios and errors of one set; nothing is timed.
  foldwire papers tables --data ~/SDRBench --bound rel:1e-3 --threads 36 --out papers.json
      One bound, as many threads as the papers had, and the rows as JSON in a file.

Sets are found by their names, in files or folders: CESM, NYX, Hurricane or ISABEL, and RTM with 449
or 849. Dimensions come from the names: SDRBENCH-CESM-ATM-26x1800x3600/CLOUD_1_26_1800_3600.f32,
SDRBENCH-EXASKY-NYX-512x512x512/temperature.f32, SDRBENCH-Hurricane-ISABEL-100x500x500/Uf48.bin.f32.
A cell holds the mean over a set's fields and their standard deviation. ZCCL's tables V and VI are
not among the figures that we have.";

/// Options of `foldwire papers tables`.
#[derive(Debug, Clone, Args)]
#[command(after_help = TABLES_EXAMPLES)]
pub struct PaperTablesArgs {
    /// Folder with the data sets in SDRBench's layout
    #[arg(long, value_name = "DIR")]
    pub data: PathBuf,

    /// Tables to measure, as ZCCL-I [default: all]
    #[arg(long, value_name = "PAPER-N", num_args = 1.., value_delimiter = ',',
        value_parser = PossibleValuesParser::new(TABLES))]
    pub table: Vec<String>,

    /// Error bounds relative to the value range [default: rel:1e-1 to rel:1e-4, the papers']
    #[arg(long, value_name = "rel:X", num_args = 1.., value_delimiter = ',',
        value_parser = values::bound)]
    pub bound: Vec<Bound>,

    /// Threads of the multi-thread tables [default: all cores; the papers had 36]
    #[arg(long, value_name = "N", value_parser = values::repeat)]
    pub threads: Option<usize>,

    /// Timed runs of each operation; the median is used
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = values::repeat)]
    pub repeat: usize,

    /// Also write the rows into this file, as one JSON object
    #[arg(long, value_name = "FILE.json")]
    pub out: Option<PathBuf>,
}

impl PaperTablesArgs {
    /// Returns whether the user asks for this table.
    pub fn wants(&self, table: &str) -> bool {
        self.table.is_empty() || self.table.iter().any(|wanted| wanted == table)
    }
}

const SUMS_EXAMPLES: &str = "\
Examples:
  foldwire papers sums
      Waves with a little noise, and a field that is mostly constant.
  foldwire papers sums --field a.f32 b.f32 --bound rel:1e-3,rel:1e-4 --threads 2
      Your fields, at two bounds, on two threads.

The exit code is 1 if a sum is beyond what its operands' bounds allow.";

/// Options of `foldwire papers sums`.
#[derive(Debug, Clone, Args)]
#[command(after_help = SUMS_EXAMPLES)]
pub struct PaperSumsArgs {
    /// Arrays of f32 or f64 [default: waves, and packets of waves in 4 % of a constant field]
    #[arg(long, value_name = "FILE", num_args = 1..)]
    pub field: Vec<PathBuf>,

    /// Error bounds of each operand: rel:X times the value range, abs:X, or psnr:X in dB
    #[arg(long, value_name = "KIND:X", num_args = 1.., value_delimiter = ',',
        default_value = "rel:1e-3", value_parser = values::bound)]
    pub bound: Vec<Bound>,

    /// Codecs
    #[arg(long, value_name = "NAME[:N]", num_args = 1.., value_delimiter = ',',
        default_value = "fz-light,fz-static")]
    pub codec: Vec<CodecArg>,

    /// Threads of the codecs and of STREAM
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = values::repeat)]
    pub threads: usize,

    /// Timed runs of each operation; the median is used
    #[arg(long, value_name = "N", default_value_t = 15, value_parser = values::repeat)]
    pub repeat: usize,

    /// Print one JSON object on stdout instead of the tables
    #[arg(long)]
    pub json: bool,
}

const ERRORS_EXAMPLES: &str = "\
Examples:
  foldwire papers errors
      SZx, zfp and fz-light on waves with a little noise.
  foldwire papers errors --field u.f32 --bound rel:1e-4 --codec szx,fz-light --plot errors.svg
      Your field, with a picture of the histograms.

An error is in units of the bound. The settings of a codec that keeps no bound are tried in order,
and the first that keeps it is used. ZCCL's theory takes errors as normal, with three standard
deviations in the bound.";

/// Options of `foldwire papers errors`.
#[derive(Debug, Clone, Args)]
#[command(after_help = ERRORS_EXAMPLES)]
pub struct PaperErrorsArgs {
    /// An array [default: waves with a little noise]
    #[arg(long, value_name = "FILE")]
    pub field: Option<PathBuf>,

    /// Error bound: rel:X times the value range, abs:X, or psnr:X in dB
    #[arg(long, value_name = "KIND:X", default_value = "rel:1e-3", value_parser = values::bound)]
    pub bound: Bound,

    /// Lossy codecs
    #[arg(long, value_name = "NAME[:N]", num_args = 1.., value_delimiter = ',',
        default_value = "szx,zfp-rate,fz-light")]
    pub codec: Vec<CodecArg>,

    /// Draw a histogram of each codec into this file, .svg or .png
    #[arg(long, value_name = "FILE.svg|.png")]
    pub plot: Option<PlotFile>,

    /// Print one JSON object on stdout instead of the table
    #[arg(long)]
    pub json: bool,
}

const PICTURES_EXAMPLES: &str = "\
Examples:
  foldwire papers pictures
      Waves with a little noise at ratio 10, in the folder out.
  foldwire papers pictures --field u.f32 --ratio 30 --codec szx,zfp-rate,fz-light,dense --out equal
      Your field by four codecs at ratio 30.

A bound or setting is searched for each codec, so that its ratio is the nearest to the requested
one.";

/// Options of `foldwire papers pictures`.
#[derive(Debug, Clone, Args)]
#[command(after_help = PICTURES_EXAMPLES)]
pub struct PaperPicturesArgs {
    /// An array [default: waves with a little noise]
    #[arg(long, value_name = "FILE")]
    pub field: Option<PathBuf>,

    /// The ratio
    #[arg(long, value_name = "R", default_value_t = 10.0, value_parser = ratio)]
    pub ratio: f64,

    /// Lossy codecs
    #[arg(long, value_name = "NAME", num_args = 1.., value_delimiter = ',',
        default_value = "szx,zfp-rate,fz-light")]
    pub codec: Vec<CodecArg>,

    /// Folder for the pictures
    #[arg(long, value_name = "DIR", default_value = "out")]
    pub out: PathBuf,

    /// Print one JSON object on stdout instead of the table
    #[arg(long)]
    pub json: bool,
}

fn ratio(text: &str) -> Result<f64, String> {
    let ratio = text.parse().ok().filter(|ratio: &f64| *ratio > 1.0 && ratio.is_finite());
    ratio.ok_or_else(|| format!("`{text}` is no ratio: write a number above 1"))
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::{Cli, Command};

    fn experiment(line: &str) -> Result<Experiment, clap::Error> {
        let words = ["foldwire", "papers"].into_iter().chain(line.split_whitespace());
        match Cli::try_parse_from(words)?.command {
            Command::Papers(args) => Ok(args.experiment),
            _ => unreachable!("the subcommand is papers"),
        }
    }

    #[test]
    fn all_tables_are_wanted_unless_some_are_named() {
        let wanted = |line: &str| match experiment(line).unwrap() {
            Experiment::Tables(args) => TABLES.into_iter().filter(|one| args.wants(one)).collect(),
            _ => Vec::new(),
        };
        assert_eq!(wanted("tables --data d"), TABLES);
        let two = wanted("tables --data d --table hZCCL-VI,ZCCL-I");
        assert_eq!(two, ["ZCCL-I", "hZCCL-VI"]);
        assert!(experiment("tables --data d --table ZCCL-V").is_err());
        assert!(experiment("pictures --ratio 1").is_err() && experiment("tables").is_err());
    }
}
