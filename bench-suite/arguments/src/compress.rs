//! The command lines of `foldwire compress` and `foldwire decompress`.

use std::path::PathBuf;
use std::str::FromStr;

use clap::{ArgGroup, Args};
use foldwire::Bound;
use foldwire_fields::dims::Dims;

use crate::coding::CodecArg;
use crate::values;

const COMPRESS_EXAMPLES: &str = "\
Examples:
  foldwire compress temperature.npy --bound rel:1e-3
      Writes temperature.npy.fwz: type, shape, and every value within 1/1000 of the value range.
  foldwire compress P_4x14x48x48.f32 --bound abs:0.5 --output p.fwz
      Raw little-endian values. Their shape is in the name; --dims 4x14x48x48 gives it otherwise.
  foldwire compress ocean.npy --bound rel:1e-3 --fill=-9999
      The value of missing data is kept, and does not widen the value range. With --fill refuse,
      nothing is written if a value seems to be one.
  foldwire compress counts.npy --lossless
      Every bit, of floats or integers.
  simulate | foldwire compress f32:- --bound abs:0.1 > run.fwz
      From a pipe to a pipe. A relative bound needs the range of all values first, so a file.
  foldwire decompress run.fwz

The file is read in pieces, so it may be longer than memory. docs/format.md describes the output.
The output appears under its name when it is complete, with the permissions of the file that was
read. Until then it is foldwire-….part in the same folder; a run that is killed leaves that file.";

const DECOMPRESS_EXAMPLES: &str = "\
Examples:
  foldwire decompress temperature.npy.fwz
      Writes temperature.npy.
  foldwire decompress p.fwz --output p.f32
      Raw little-endian values, since the name does not end in .npy.
  foldwire decompress run.fwz --output - | head -c 4000 | od -f
      Raw values on stdout; with --npy a .npy file.

Damaged files are refused. The exit code is then 1, and there is no output file.
The output appears under its name when it is complete, with the permissions of the file that was
read. Until then it is foldwire-….part in the same folder; a run that is killed leaves that file.";

/// Value of `--fill`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum FillArg {
    /// The value that stands for missing data.
    Value(f64),
    /// None, and values in which one is suspected are refused.
    Refuse,
}

impl FromStr for FillArg {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "refuse" {
            return Ok(Self::Refuse);
        }
        let value = text.parse().map_err(|_| "a fill value is a number, or `refuse`".to_owned())?;
        Ok(Self::Value(value))
    }
}

/// Options of `foldwire compress`.
#[derive(Debug, Clone, Args)]
#[command(after_help = COMPRESS_EXAMPLES)]
#[command(group = ArgGroup::new("loss").required(true).multiple(true)
    .args(["bound", "lossless", "codec"]))]
pub struct CompressArgs {
    /// Array to compress: .npy, or raw little-endian values (.f32, .f64, .f16, .bf16); - is
    /// standard input, and f32:PATH sets the type for any name
    #[arg(value_name = "FILE")]
    pub file: PathBuf,

    /// Largest error of a value: rel:X times the value range, abs:X, or psnr:X in dB; integers are
    /// always exact
    #[arg(long, value_name = "KIND:X", value_parser = values::bound)]
    pub bound: Option<Bound>,

    /// Keep every bit
    #[arg(long, conflicts_with_all = ["bound", "codec"])]
    pub lossless: bool,

    /// Codec, optionally with a setting as truncate:16 (then without --bound) [default: for each
    /// piece the one that makes it shortest]
    #[arg(long, value_name = "NAME[:N]", value_parser = CodecArg::of_array)]
    pub codec: Option<CodecArg>,

    /// Value that stands for missing data, such as 1e20: it keeps its bits, and does not count in
    /// the value range; with refuse, nothing is written if a value seems to be one
    #[arg(long, value_name = "VALUE", allow_hyphen_values = true)]
    pub fill: Option<FillArg>,

    /// Dimensions of raw values, slowest first [default: those in the file's name]
    #[arg(long, value_name = "DIMS")]
    pub dims: Option<Dims>,

    /// File to write; - is standard output [default: FILE.fwz; - for a pipe]
    #[arg(long, short, value_name = "FILE")]
    pub output: Option<PathBuf>,

    /// Threads that work on pieces of the array; the bytes do not depend on their number [default:
    /// one for each core]
    #[arg(long, value_name = "N", value_parser = values::repeat)]
    pub threads: Option<usize>,

    /// Replace the output if it exists; of a link, its target
    #[arg(long)]
    pub force: bool,
}

/// Options of `foldwire decompress`.
#[derive(Debug, Clone, Args)]
#[command(after_help = DECOMPRESS_EXAMPLES)]
pub struct DecompressArgs {
    /// File that `foldwire compress` or a program wrote; - is standard input
    #[arg(value_name = "FILE.fwz")]
    pub file: PathBuf,

    /// File to write: NumPy's format if it ends in .npy, otherwise raw little-endian values; - is
    /// standard output [default: FILE; - for a pipe]
    #[arg(long, short, value_name = "FILE")]
    pub output: Option<PathBuf>,

    /// Write NumPy's format whatever the name
    #[arg(long)]
    pub npy: bool,

    /// Threads that work on pieces of the array; the bytes do not depend on their number [default:
    /// one for each core]
    #[arg(long, value_name = "N", value_parser = values::repeat)]
    pub threads: Option<usize>,

    /// Replace the output if it exists; of a link, its target
    #[arg(long)]
    pub force: bool,
}
