//! The command line of `foldwire halo`.

use std::path::PathBuf;

use clap::Args;
use foldwire::Bound;
use foldwire_fields::dims::Dims;

use crate::coding::CodecArg;
use crate::values::{self, LinkRate};

const EXAMPLES: &str = "\
Examples:
  foldwire halo
      4 ranks, 1000 time steps, halos over links of 1 Gbit/s, uncompressed and compressed.
  foldwire halo --ranks 8 --link 10gbit --bound rel:1e-3,rel:1e-5
      Two bounds beside each other.
  foldwire halo --shape 176x128x176 --steps 200 --no-pictures --json > halo.json
      Larger planes; stdout holds one JSON object, everything else goes to stderr.";

/// Options of `foldwire halo`.
#[derive(Debug, Clone, Args)]
#[command(after_help = EXAMPLES)]
pub struct HaloArgs {
    /// Number of ranks, which divide the planes evenly
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = values::ranks)]
    pub ranks: usize,

    /// Points of the volume along y, depth and x; ranks divide it along y
    #[arg(long, value_name = "AxBxC", default_value = "96x96x96")]
    pub shape: Dims,

    /// Number of time steps; after each, neighbours exchange four planes each way
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = values::repeat)]
    pub steps: usize,

    /// Error bounds of the exchanged planes, each a run of its own: rel:X times the range of the
    /// planes, abs:X, or psnr:X in dB
    #[arg(long, value_name = "KIND:X", num_args = 1.., value_delimiter = ',',
        default_value = "rel:1e-4", value_parser = values::bound)]
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
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = values::repeat)]
    pub repeat: usize,

    /// Folder for the pictures
    #[arg(long, value_name = "DIR", default_value = "out")]
    pub out: PathBuf,

    /// Write no pictures
    #[arg(long)]
    pub no_pictures: bool,

    /// Print one JSON object on stdout instead of the table
    #[arg(long)]
    pub json: bool,
}
