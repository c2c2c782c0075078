//! The command line of `foldwire cg`.

use std::path::PathBuf;

use clap::Args;
use foldwire::Bound;
use foldwire_fields::dims::Dims;
use foldwire_workbench::plot::PlotFile;

use crate::values::{self, LinkRate};

const EXAMPLES: &str = "\
Examples:
  foldwire cg
      4 ranks, charges on a grid of 64 x 64 x 64 points, links of 1 Gbit/s.
  foldwire cg --field echam_t_17x96x192.f32 --bound rel:1e-3,rel:1e-6 --plot residuals.svg
      The values of a field as the right side, and a picture of residuals over time.
  foldwire cg --ranks 8 --shape 128x128x128 --link none --json > cg.json
      A larger grid; stdout holds one JSON object, everything else goes to stderr.";

/// Options of `foldwire cg`.
#[derive(Debug, Clone, Args)]
#[command(after_help = EXAMPLES)]
pub struct CgArgs {
    /// Number of ranks, which divide the grid along its first dimension
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = values::ranks)]
    pub ranks: usize,

    /// Points of the grid, with built-in point charges as the right side
    #[arg(long, value_name = "AxBxC", default_value = "64x64x64", conflicts_with = "field")]
    pub shape: Dims,

    /// A field of three dimensions as the right side: .f32, .f64 or .npy, dimensions in its name
    #[arg(long, value_name = "FILE")]
    pub field: Option<PathBuf>,

    /// Error bounds of the exchanged planes, each a run of its own: rel:X times the range of the
    /// planes, abs:X, or psnr:X in dB
    #[arg(long, value_name = "KIND:X", num_args = 1.., value_delimiter = ',',
        default_value = "rel:1e-3,rel:1e-5", value_parser = values::bound)]
    pub bound: Vec<Bound>,

    /// Residual at which to stop, relative to the right side
    #[arg(long, value_name = "X", default_value_t = 1e-6, value_parser = tolerance)]
    pub tolerance: f64,

    /// Largest number of iterations
    #[arg(long, value_name = "N", default_value_t = 2000, value_parser = values::repeat)]
    pub iterations: usize,

    /// Rate of each rank's link, each way: 10gbit, 1gbit, 250MB/s, …; `none` for the speed of
    /// memory
    #[arg(long, value_name = "RATE", default_value = "1gbit")]
    pub link: LinkRate,

    /// Number of runs of each variant; the run with the median time is reported
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = values::repeat)]
    pub repeat: usize,

    /// Draw residuals over time into this file, .svg or .png
    #[arg(long, value_name = "FILE")]
    pub plot: Option<PlotFile>,

    /// Print one JSON object on stdout instead of the table
    #[arg(long)]
    pub json: bool,
}

impl CgArgs {
    /// A short description of the right side and the grid.
    pub fn about(&self, [a, b, c]: &[usize; 3]) -> String {
        let what = self
            .field
            .as_ref()
            .and_then(|path| path.file_name())
            .map_or_else(|| "charges".to_owned(), |name| name.to_string_lossy().into_owned());
        format!("{what}, {a} x {b} x {c}")
    }
}

fn tolerance(text: &str) -> Result<f64, String> {
    let number = text.parse().ok().filter(|x: &f64| *x > 0.0 && *x < 1.0);
    number.ok_or_else(|| "a number between 0 and 1 is needed, such as 1e-6".to_owned())
}
