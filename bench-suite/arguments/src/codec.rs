//! The command line of `foldwire codec`.

use std::path::PathBuf;

use clap::Args;
use clap::builder::{PossibleValue, TypedValueParser};
use foldwire::Bound;
use foldwire::codec::{CodecId, Prediction};
use foldwire::kernel::Level;
use foldwire_workbench::plot::PlotFile;

use super::ShapeArg;
use crate::coding::CodecArg;
use crate::values;

const EXAMPLES: &str = "\
Examples:
  foldwire codec --field temperature.f32 --bound rel:1e-3
      Speed, ratio and error at 1/1000 of the value range, with the machine's best kernels.
  foldwire codec --field *.f32 *.f64 --bound rel:1e-2 --bound rel:1e-3 --level scalar --level avx2
      Every file, at two bounds and two kernel levels.
  foldwire codec --field u.npy --bound abs:0.1 --bound psnr:60 --json > codec.json
      Bounds of other kinds; stdout holds one JSON object.
  foldwire codec --field u.npy --bound rel:1e-3 --codec all --threads 1,2
      Every codec, on one thread and on two.
  foldwire codec --field u.npy --bound rel:1e-3 --codec dense,fz-nd --shape find
      As in programs that pass no shape: the codecs search the values for rows and planes.
  foldwire codec --field u.npy --bound rel:1e-3 --codec fz-nd,dense --predictor 2d
      The effect of prediction within rows alone, with both codecs that know shapes.
  foldwire codec --field *.f32 *.f64 --ratios
      Ratios of all codecs at four bounds, the best one's, and those of automatic choices.
  python3 make.py | foldwire codec --field f32:- --bound abs:0.5
      Raw values from a pipe. For a pipe with a .npy array, - is enough.
  foldwire codec --field u.f32 --bound rel:1e-3 --device cuda --tile 256
      On a GPU: speeds beside a copy there, with the field repeated to 256 MiB.
  foldwire codec --field u.npy --codec all --plot u.svg
      Rate and distortion of every codec, over bounds from 1e-1 to 1e-6 of the range and over
      settings, without timing.

Every value is checked against its bound. The exit code is 1 if one exceeds it.";

/// Options of `foldwire codec`.
#[derive(Debug, Clone, Args)]
#[command(after_help = EXAMPLES)]
pub struct CodecArgs {
    /// Arrays to measure with, one or several: .f32, .f64, .f16, .bf16 (raw little-endian values)
    /// or .npy; - is standard input, and f32:PATH sets the type for any name
    #[arg(long, value_name = "FILE.f32|.f64|.f16|.bf16|.npy", num_args = 1.., required = true)]
    pub field: Vec<PathBuf>,

    /// Value that stands for missing data, such as 1e20. It becomes NaN, as in calls with a fill
    /// value
    #[arg(long, value_name = "VALUE", allow_hyphen_values = true)]
    pub fill: Option<f64>,

    /// Error bounds to measure speeds and errors with: rel:X times the value range, abs:X, or
    /// psnr:X in dB; may be given several times
    #[arg(long, value_name = "KIND:X", required_unless_present_any = ["plot", "ratios"],
        value_parser = values::bound)]
    pub bound: Vec<Bound>,

    /// Codecs to measure, or all; optionally with a setting as truncate:40 [default: fz-light]
    #[arg(long, value_name = "NAME[:N]|all", num_args = 1.., value_delimiter = ',',
        value_parser = crate::coding::codings)]
    pub codec: Vec<Vec<CodecArg>>,

    /// Values that fz-nd and dense predict from, instead of the best choice for each chunk
    #[arg(long, default_value = "auto", value_parser = prediction_parser())]
    pub predictor: Prediction,

    /// Shape for codecs that predict values from other rows (dense, fz-nd): the file's, one found
    /// in the values, none, or these dimensions
    #[arg(long, value_name = "file|find|none|DIMS", default_value = "file")]
    pub shape: ShapeArg,

    /// Numbers of threads that the codec may use
    #[arg(long, value_name = "N", default_value = "1", num_args = 1.., value_delimiter = ',',
        value_parser = values::repeat)]
    pub threads: Vec<usize>,

    /// Kernel levels to measure; may be given several times [default: the machine's best]
    #[arg(long, value_name = "LEVEL", num_args = 1..,
        value_parser = level(), value_delimiter = ',')]
    pub level: Vec<Level>,

    /// Run the codecs on a device, cuda or cuda:N, and compare their bytes with the host's
    #[arg(long, value_name = "cuda[:N]", conflicts_with_all = ["level", "threads", "plot"])]
    pub device: Option<String>,

    /// Repeat each field until it has this many MiB, so that it does not fit a cache
    #[arg(long, value_name = "MIB")]
    pub tile: Option<usize>,

    /// Timed runs of each operation; the median is reported
    #[arg(long, value_name = "N", default_value_t = 31, value_parser = values::repeat)]
    pub repeat: usize,

    /// Sizes and speeds of other compressors [default: ../shared/reference/peers.csv if it exists]
    #[arg(long, value_name = "FILE.csv")]
    pub peers: Option<PathBuf>,

    /// Draw PSNR over bits per value into this file, .svg or .png; several fields have a file each
    ///
    /// Codecs with a bound are tried with bounds from 1e-1 to 1e-6 of the value range. Codecs with
    /// a setting are tried with several settings, unless one is given. Exact codecs are vertical
    /// lines at their rate. Another codec that loses nothing has a mark at the top.
    #[arg(long, value_name = "FILE.svg|.png")]
    pub plot: Option<PlotFile>,

    /// Print ratios alone, of all codecs that keep a bound or every bit, and what automatic plans
    /// and `foldwire compress` choose [default bounds: rel:1e-2 to rel:1e-5]
    #[arg(long, conflicts_with_all = ["codec", "level", "threads", "device", "plot", "repeat",
        "peers", "json"])]
    pub ratios: bool,

    /// Print one JSON object on stdout instead of the tables
    #[arg(long)]
    pub json: bool,
}

impl CodecArgs {
    /// Returns whether the user named this codec. `--codec all` names no codec.
    pub fn is_named(&self, coding: CodecArg) -> bool {
        self.codec.iter().any(|requested| requested[..] == [coding])
    }

    /// The requested codecs, each once.
    pub fn codings(&self) -> Vec<CodecArg> {
        let mut requested: Vec<CodecArg> = self.codec.iter().flatten().copied().collect();
        if requested.is_empty() {
            requested.push(CodecId::FzLight.into());
        }
        values::each_once(requested)
    }
}

/// Parses the name of a predictor.
fn prediction_parser() -> impl TypedValueParser<Value = Prediction> {
    values::by_name(Prediction::ALL.map(|each| (PossibleValue::new(each.name()), each)))
}

/// Parses `--level`, an instruction set of the kernels.
fn level() -> impl TypedValueParser<Value = Level> {
    let levels = [
        (Level::Scalar, "portable code, the specification"),
        (Level::Avx2, "AVX2 and BMI2"),
        (Level::Avx512, "AVX-512"),
    ];
    let named = levels.map(|(level, help)| (PossibleValue::new(level.name()).help(help), level));
    values::by_name(named)
}
