//! The command line of `foldwire climate`, which sends messages raw, compressed by each method of
//! the climate model CAM, and compressed by Foldwire's codec fz-light.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use foldwire::Bound;
use foldwire_fields::dims::Dims;
use foldwire_workbench::plot::PlotFile;

use crate::values::LinkRate;

const EXAMPLES: &str = "\
Examples:
  foldwire climate
      4 ranks, 10 days of a wave on the sphere, links of 1 Gbit/s, with each of CAM's methods.
  foldwire climate --steps 4320 --plot growth.svg
      60 days, and a picture of errors over time.
  foldwire climate --case mountain --perturbation 1e-6 --bound rel:1e-6,rel:1e-12
      A flow across a mountain, with errors compared to a larger perturbation.
  foldwire climate --shape 32x64 --levels 2 --link none --json > climate.json
      A small grid; stdout holds one JSON object, everything else goes to stderr.

A row passes the perturbation growth test if its error never exceeds ten times that of a run whose
initial heights were perturbed. The exit code is 1 if raw or a lossless method has other bits than a
run on one rank.";

/// Options of `foldwire climate`.
#[derive(Debug, Clone, Args)]
#[command(after_help = EXAMPLES)]
pub struct ClimateArgs {
    /// Number of ranks, which divide the rows of the grid
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = crate::values::ranks,
        allow_hyphen_values = true)]
    pub ranks: usize,

    /// Rows and columns of the grid: latitudes and longitudes
    #[arg(long, value_name = "AxB", default_value = "64x128", allow_hyphen_values = true)]
    pub shape: Dims,

    /// Number of levels, which are independent layers
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = crate::values::repeat,
        allow_hyphen_values = true)]
    pub levels: usize,

    /// Initial state of the flow
    #[arg(long, value_enum, default_value = "wave")]
    pub case: CaseArg,

    /// Number of time steps: 20 minutes each on 64 rows, shorter on finer grids
    #[arg(long, value_name = "N", default_value_t = 720, value_parser = crate::values::repeat,
        allow_hyphen_values = true)]
    pub steps: usize,

    /// Relative change of the initial heights in the perturbed run
    #[arg(long, value_name = "X", default_value = "2.220446049250313e-16",
        value_parser = perturbation)]
    pub perturbation: f64,

    /// Error bounds of messages compressed by fz-light, each a run of its own: rel:X times the
    /// range of the message, abs:X, or psnr:X in dB
    #[arg(long, value_name = "KIND:X", num_args = 1.., value_delimiter = ',',
        default_value = "rel:1e-9")]
    #[arg(value_parser = crate::values::bound)]
    pub bound: Vec<Bound>,

    /// Rate of each rank's link, each way: 10gbit, 1gbit, 250MB/s, …; `none` for the speed of
    /// memory
    #[arg(long, value_name = "RATE", default_value = "1gbit", allow_hyphen_values = true)]
    pub link: LinkRate,

    /// Number of runs of each method; times are medians over the steps of all runs
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = crate::values::repeat,
        allow_hyphen_values = true)]
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
}

/// Parses a fraction of at least [`f64::EPSILON`] and below 1.
fn perturbation(text: &str) -> Result<f64, String> {
    let part = text.parse().ok().filter(|part| (f64::EPSILON..1.0).contains(part));
    part.ok_or_else(|| {
        "a number of at least 2.220446049250313e-16 and below 1 is needed".to_owned()
    })
}
