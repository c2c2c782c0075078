//! The command line of `foldwire transpose`.

use std::path::PathBuf;

use clap::Args;
use foldwire::Bound;

use crate::coding::CodecArg;
use crate::values::{self, LinkRate};

const EXAMPLES: &str = "\
Examples:
  foldwire transpose
      4 ranks, a matrix of 2048 x 2048 values, links of 1 Gbit/s, uncompressed and compressed.
  foldwire transpose --ranks 8 --side 4096 --link 10gbit --bound rel:1e-3,rel:1e-5
      A larger matrix, and two bounds beside each other.
  foldwire transpose --field egm96_geoid_721x1440.f32 --side 1440 --json > transpose.json
      The values of a field, repeated as needed; stdout holds one JSON object.";

/// Options of `foldwire transpose`.
#[derive(Debug, Clone, Args)]
#[command(after_help = EXAMPLES)]
pub struct TransposeArgs {
    /// Number of ranks, which divide the matrix by rows
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = values::ranks)]
    pub ranks: usize,

    /// Number of rows, and of columns, of the matrix
    // The square of the largest side fits in the memory of most machines.
    #[arg(long, value_name = "N", default_value_t = 2048,
        value_parser = values::within(
            1..=32_768_usize, "a whole number from 1 to 32768 is needed"))]
    pub side: usize,

    /// A field to fill the matrix with: .f32, .f64 or .npy [default: waves]
    #[arg(long, value_name = "FILE")]
    pub field: Option<PathBuf>,

    /// Error bounds of the exchanged blocks, each a run of its own: rel:X times the value range,
    /// abs:X, or psnr:X in dB
    #[arg(long, value_name = "KIND:X", num_args = 1.., value_delimiter = ',',
        default_value = "rel:1e-3,rel:1e-4", value_parser = values::bound)]
    pub bound: Vec<Bound>,

    /// Codecs instead of fz-light, with a setting as in zfp-rate:8; each is a run of its own, and
    /// those that keep a bound have one for each --bound
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    pub codec: Vec<CodecArg>,

    /// Rate of each rank's link, each way: 10gbit, 1gbit, 250MB/s, …; `none` for the speed of
    /// memory
    #[arg(long, value_name = "RATE", default_value = "1gbit")]
    pub link: LinkRate,

    /// Number of runs of each variant; the run with the median time is reported
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = values::repeat)]
    pub repeat: usize,

    /// Print one JSON object on stdout instead of the table
    #[arg(long)]
    pub json: bool,
}
