//! The command line of `foldwire climate`, which sends messages raw, compressed by each method of
//! the climate model CAM, and compressed by Foldwire's codec fz-light.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use foldwire::Bound;
use foldwire_fields::dims::Dims;
use foldwire_workbench::plot::PlotFile;

use crate::values::{self, LinkRate};

const EXAMPLES: &str = "\
Examples:
  foldwire climate
      4 ranks, 26 levels, links of 1 Gbit/s, with each of CAM's methods; errors over 32 days.
  foldwire climate --days 60 --plot growth.svg
      60 days, as in the paper, and a picture of errors over time.
  foldwire climate --ranks 32 --link 1gbit --steps 200 --days 1
      Messages between 32 ranks.
  foldwire climate --case mountain --days 10 --perturbation 1e-6 --bound rel:1e-6,rel:1e-12
      A flow across a mountain, with errors compared to a larger perturbation.
  foldwire climate --shape 32x64 --levels 2 --link none --json > climate.json
      A small grid; stdout holds one JSON object, everything else goes to stderr.

The first table is about messages: time, bytes, and the work to compress each kind of message in per
cent of the time of all steps (for raw, the work to copy values).

The second table is the perturbation growth test. A run whose initial heights were perturbed drifts
away from the exact run. Once they are no more alike than two days of one run, a method passes if
its error since then is at most 1.5 times as large; it fails if it leads to another climate. If the
perturbed run stays close until the end, a method passes if its error never exceeds ten times that
of the perturbed run; no lossy method does. The exit code is 1 if raw or a lossless method has other
bits than a run on one rank.";

/// Options of `foldwire climate`.
#[derive(Debug, Clone, Args)]
#[command(after_help = EXAMPLES)]
pub struct ClimateArgs {
    /// Number of ranks, which divide the rows of the grid
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = values::ranks)]
    pub ranks: usize,

    /// Rows and columns of the grid: latitudes and longitudes
    #[arg(long, value_name = "AxB", default_value = "64x128")]
    pub shape: Dims,

    /// Number of levels, which are independent layers; CAM has 26
    #[arg(long, value_name = "N", default_value_t = 26, value_parser = values::repeat)]
    pub levels: usize,

    /// Initial state of the flow
    #[arg(long, value_enum, default_value = "jets")]
    pub case: CaseArg,

    /// Days that the flow develops on one rank before everything else
    #[arg(long, value_name = "DAYS", default_value = "8", value_parser = days)]
    pub spin_up: f64,

    /// Number of time steps on all levels, to measure messages: 20 minutes each on 64 rows, shorter
    /// on finer grids
    #[arg(long, value_name = "N", default_value_t = 72, value_parser = values::repeat)]
    pub steps: usize,

    /// Number of steps between gathers of all heights on rank 0
    #[arg(long, value_name = "N", default_value_t = 6, value_parser = values::repeat)]
    pub gather_every: usize,

    /// Days on the first level alone, to measure the growth of errors
    #[arg(long, value_name = "DAYS", default_value = "32", value_parser = days)]
    pub days: f64,

    /// Relative change of the initial heights in the perturbed run
    #[arg(long, value_name = "X", default_value = "2.220446049250313e-16",
        value_parser = values::within(f64::EPSILON..1.0,
        "a number of at least 2.220446049250313e-16 and below 1 is needed"))]
    pub perturbation: f64,

    /// Error bounds of messages compressed by fz-light, each a run of its own: rel:X times the
    /// range of the message, abs:X, or psnr:X in dB
    #[arg(long, value_name = "KIND:X", num_args = 1.., value_delimiter = ',',
        default_value = "rel:1e-9", value_parser = values::bound)]
    pub bound: Vec<Bound>,

    /// Rate of each rank's link, each way: 10gbit, 1gbit, 250MB/s, …; `none` for the speed of
    /// memory
    #[arg(long, value_name = "RATE", default_value = "1gbit")]
    pub link: LinkRate,

    /// Number of runs of each method over messages; times are medians over the steps of all runs
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = values::repeat)]
    pub repeat: usize,

    /// Draw errors over time into this file, .svg or .png
    #[arg(long, value_name = "FILE.svg|.png")]
    pub plot: Option<PlotFile>,

    /// Folder for pictures of the first level's heights
    #[arg(long, value_name = "DIR", default_value = "out")]
    pub out: PathBuf,

    /// Write no pictures
    #[arg(long)]
    pub no_pictures: bool,

    /// Print one JSON object on stdout instead of the table
    #[arg(long)]
    pub json: bool,
}

/// Values of `--case`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum CaseArg {
    /// a steady zonal flow: Williamson's test case 2
    Steady,
    /// a zonal flow across a mountain: test case 5
    Mountain,
    /// a Rossby–Haurwitz wave, which breaks up after weeks: test case 6
    Wave,
    /// two unstable jets, in which differences grow from the last bit to another weather
    Jets,
}

/// Parses a time of at most 10,000 days.
fn days(text: &str) -> Result<f64, &'static str> {
    values::within(0.0..=1e4, "a number of days from 0 to 10000 is needed")(text)
}
