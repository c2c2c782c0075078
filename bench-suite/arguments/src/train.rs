//! The command line of `foldwire train`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use foldwire::{Bound, DType};
use foldwire_workbench::plot::PlotFile;
use serde::Serialize;

use super::bench::dtype;
use crate::values::{self, LinkRate};

const EXAMPLES: &str = "\
Examples:
  foldwire train
      4 ranks, 500 steps, gradients over links of 100 Mbit/s, uncompressed and compressed.
  foldwire train --field temperature_64x128.f32 --link 1gbit --plot loss.svg
      Your own data, and a picture of the loss over steps.
  foldwire train --ranks 8 --batch 1024 --bound rel:1e-1,rel:1e-2,rel:1e-3 --json > train.json
      Three bounds beside each other; stdout holds one JSON object.
  foldwire train --bound rel:0.5 --rounding nearest,unbiased --feedback no,yes --dtype bf16
      A coarse bound, at which rounding matters, with two remedies; gradients of 16 bits.

The exit code is 1 if ranks end with different bits, or if the network does not learn.";

/// Options of `foldwire train`.
#[derive(Debug, Clone, Args)]
#[command(after_help = EXAMPLES)]
pub struct TrainArgs {
    /// Number of ranks, which divide the samples of each batch
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = values::ranks)]
    pub ranks: usize,

    /// Number of steps; after each, ranks average their gradients
    #[arg(long, value_name = "N", default_value_t = 500, value_parser = values::repeat)]
    pub steps: usize,

    /// Samples per step, of all ranks together
    #[arg(long, value_name = "N", default_value_t = 256, value_parser = values::repeat)]
    pub batch: usize,

    /// Width of the network's two hidden layers
    #[arg(long, value_name = "N", default_value_t = 128, value_parser = values::repeat)]
    pub width: usize,

    /// Training data: the first plane of this field, along its two fastest dimensions; .f32, .f64,
    /// .f16, .bf16 (raw little-endian, dimensions in the name as in u_64x128.f32) or .npy [default:
    /// built-in waves with a little noise]
    #[arg(long, value_name = "FILE")]
    pub field: Option<PathBuf>,

    /// Error bounds of gradients, each a run of its own: rel:X times the range of each layer's
    /// weights and of its biases, abs:X, or psnr:X in dB
    #[arg(long, value_name = "KIND:X", num_args = 1.., value_delimiter = ',',
        default_value = "rel:1e-2,rel:1e-3", value_parser = values::bound)]
    pub bound: Vec<Bound>,

    /// Rounding of gradients within a bound, each a run of its own
    #[arg(long, value_enum, num_args = 1.., value_delimiter = ',', default_value = "nearest")]
    pub rounding: Vec<RoundingArg>,

    /// Error feedback: add the rounding error of a step to the next step's gradients, each a run of
    /// its own
    #[arg(long, value_enum, num_args = 1.., value_delimiter = ',', default_value = "no")]
    pub feedback: Vec<FeedbackArg>,

    /// Type in which gradients are exchanged, also without compression
    #[arg(long, value_parser = dtype(), default_value = "f32")]
    pub dtype: DType,

    /// Rate of each rank's link, each way: 10gbit, 1gbit, 250MB/s, …; `none` for the speed of
    /// memory
    #[arg(long, value_name = "RATE", default_value = "100mbit")]
    pub link: LinkRate,

    /// Number of runs of each variant; the run with the median time is reported
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = values::repeat)]
    pub repeat: usize,

    /// Draw the loss over steps into this file, .svg or .png
    #[arg(long, value_name = "FILE.svg|.png")]
    pub plot: Option<PlotFile>,

    /// Print one JSON object on stdout instead of the table
    #[arg(long)]
    pub json: bool,
}

/// Values of `--rounding`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum RoundingArg {
    /// to the nearest quantization point
    Nearest,
    /// to one of the two nearest quantization points, exact on average
    Unbiased,
}

/// Values of `--feedback`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum FeedbackArg {
    /// ignore the rounding error
    No,
    /// add the rounding error to the next step's gradients
    Yes,
}

impl From<FeedbackArg> for bool {
    fn from(arg: FeedbackArg) -> Self {
        matches!(arg, FeedbackArg::Yes)
    }
}
