//! The command line of `foldwire stack`.

use std::path::PathBuf;

use clap::Args;
use foldwire::Bound;
use foldwire_fields::dims::Dims;

use super::rows::{PresetArg, RequestedPresets, preset};
use crate::values::{self, LinkRate};

const EXAMPLES: &str = "\
Examples:
  foldwire stack
      Simulates one seismic image per rank (cached for the next time) and sums them.
  foldwire stack --ranks 4 --bound abs:0.01 --input a.npy b.npy c.npy d.npy
      One file per rank.
  foldwire stack --ranks 8 --input P.f32 --dims 96x128x128
      One file, cut into 8 pieces of 12x128x128 along its slowest dimension.
  foldwire stack --bound rel:1e-3,rel:1e-4,rel:1e-5 --preset all --papers
      A table of all presets for each bound, and the figures that the papers report.
  foldwire stack --shape 235x128x235 --hz 9 --time 0.5
      Larger images, smoother and half as full.
  foldwire stack --preset raw foldwire --link 1gbit --json > result.json
      Two presets only; stdout holds one JSON object, everything else goes to stderr.";

/// Options of `foldwire stack`.
#[derive(Debug, Clone, Args)]
#[command(after_help = EXAMPLES)]
pub struct StackArgs {
    /// Number of ranks [default: 8, or the number of input files if there are several]
    #[arg(long, value_name = "N", value_parser = values::ranks)]
    pub ranks: Option<usize>,

    /// Error bounds of each operand, a table for each: rel:X times the value range, abs:X, or
    /// psnr:X in dB
    #[arg(long, value_name = "KIND:X", num_args = 1.., value_delimiter = ',',
        default_value = "rel:1e-4", value_parser = values::bound)]
    pub bound: Vec<Bound>,

    /// Rate of each rank's link, each way: 10gbit, 1gbit, 250MB/s, …; `none` for the speed of
    /// memory
    #[arg(long, value_name = "RATE", default_value = "10gbit")]
    pub link: LinkRate,

    /// Sum on a device's memory, cuda or cuda:N; ranks share the device, and presets whose codec it
    /// lacks are refused
    #[arg(long, value_name = "cuda[:N]")]
    pub device: Option<String>,

    /// Your own data instead of the simulation: one file per rank, or one file to cut into pieces.
    ///
    /// The extension sets the type: .f32, .f64, .f16 and .bf16 are raw little-endian values, .npy
    /// is NumPy's format (float32, float64 or float16, C order). A prefix as in f32:PATH overrides
    /// it. The path - is standard input. With several files, each is the operand of one rank. A
    /// single file is cut into one piece per rank along its slowest dimension. A remainder is left
    /// out, with a note.
    #[arg(long, value_name = "FILE", num_args = 1..)]
    pub input: Vec<PathBuf>,

    /// Dimensions of each input file, slowest first, such as 128x160x160.
    ///
    /// Not needed for .npy files, nor for files or folders with the dimensions in their names, such
    /// as P_4x14x48x48.f32, CLOUD_1_26_1800_3600.f32 or NYX-512x512x512/temperature.f32.
    #[arg(long, value_name = "AxBxC", requires = "input")]
    pub dims: Option<Dims>,

    /// Value of the input that stands for missing data, such as 1e20. It becomes NaN, as in calls
    /// with a fill value, and a sum with it is NaN
    #[arg(long, value_name = "VALUE", allow_hyphen_values = true, requires = "input")]
    pub fill: Option<f64>,

    /// Points of a simulated image along y, depth and x, 10 m apart
    #[arg(long, value_name = "AxBxC", default_value = "176x128x176", conflicts_with = "input")]
    pub shape: Dims,

    /// Peak frequency of simulated shots, at least 1; lower frequencies give smoother images
    #[arg(long, value_name = "HZ", default_value_t = foldwire_wave::MAX_HZ,
        value_parser = values::frequency, conflicts_with = "input")]
    pub hz: f32,

    /// Time of the simulated images: 1 when the wave reaches the bottom, at most 2; earlier images
    /// are emptier
    #[arg(long, value_name = "T", default_value_t = 1.0, value_parser = values::way_down,
        conflicts_with = "input")]
    pub time: f32,

    // `main` stands for several presets: `PresetArg::Main`.
    /// Presets to run, in this order
    #[arg(long, value_name = "NAME", num_args = 1.., value_parser = preset(), value_delimiter = ',',
        default_value = "main,auto")]
    pub preset: Vec<PresetArg>,

    /// Also print which part of the time is spent on what, and the papers' results of image
    /// stacking
    #[arg(long)]
    pub papers: bool,

    /// Timed runs of each preset; the median is reported
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = values::repeat)]
    pub repeat: usize,

    /// Folder for the pictures; with several bounds, each has a folder in it
    #[arg(long, value_name = "DIR", default_value = "out")]
    pub out: PathBuf,

    /// Folder for simulated images [default: the user's cache folder]
    #[arg(long, value_name = "DIR")]
    pub cache: Option<PathBuf>,

    /// Threads that each rank computes on [default: 1; 2 for multi-threaded presets]
    #[arg(long, value_name = "N", value_parser = values::repeat)]
    pub threads: Option<usize>,

    /// Run presets as published, without the guarantee that all ranks get the same bits
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
    /// The requested presets.
    pub fn presets(&self) -> RequestedPresets<'_> {
        RequestedPresets::new(&self.preset)
    }
}
