//! The command line of `foldwire tune`.

use std::path::PathBuf;

use clap::Args;
use foldwire::{Bound, DType};

use super::bench::dtype;
use crate::values;

const EXAMPLES: &str = "\
Examples:
  foldwire tune
      One rank per core of this machine. Takes some seconds.
  foldwire tune --ranks 8 --output speeds.toml
      Eight ranks that share the cores. The speeds go into a file.
  foldwire choose --speeds speeds.toml
      Shows what automatic plans choose with these speeds.

In a program, read the file with
std::fs::read_to_string(\"speeds.toml\")?.parse::<foldwire::select::Speeds>()? and pass the result
to Config::with_speeds. comm.share_speeds()? makes all ranks use the same speeds.";

/// Options of `foldwire tune`.
#[derive(Debug, Clone, Args)]
#[command(after_help = EXAMPLES)]
pub struct TuneArgs {
    /// Ranks on this machine, which share its cores [default: one per core]
    #[arg(long, value_name = "N", value_parser = values::ranks)]
    pub ranks: Option<usize>,

    /// Error bound of each operand: rel:X times the value range, abs:X, or psnr:X in dB
    #[arg(long, value_name = "KIND:X", default_value = "rel:1e-3", value_parser = values::bound)]
    pub bound: Bound,

    /// Values to measure with: .f32, .f64, .f16, .bf16 (raw little-endian) or .npy [default:
    /// built-in waves with a little noise]
    #[arg(long, value_name = "FILE")]
    pub field: Option<PathBuf>,

    /// Type of the values [default: the field's type, else f32]
    #[arg(long, value_parser = dtype())]
    pub dtype: Option<DType>,

    /// File to write, for --speeds of other commands [default: speeds.toml in the user's cache
    /// folder]
    #[arg(long, value_name = "FILE.toml")]
    pub output: Option<PathBuf>,

    /// Write no file
    #[arg(long, conflicts_with = "output")]
    pub dry_run: bool,

    /// Print one JSON object on stdout instead of the table
    #[arg(long)]
    pub json: bool,
}
