//! `foldwire papers pictures`: a field as each codec returns it at the same ratio (ZCCL's figure
//! 8).

use foldwire::bound::ValueRange;
use foldwire::codec::{CodecParams, Loss};
use foldwire::{Bound, Float, Quantum};
use foldwire_arguments::coding::CodecArg;
use foldwire_arguments::papers::PaperPicturesArgs;
use foldwire_fields::dims::Dims;
use foldwire_workbench::data::FieldSource;
use foldwire_workbench::picture::Gallery;
use foldwire_workbench::quality::Quality;
use foldwire_workbench::table::{Columns, scientific};
use foldwire_workbench::threads::Pool;
use foldwire_workbench::{streams, with_float};
use serde::Serialize;
use serde_json::json;

use super::operands::CodecSetup;
use crate::codec::quantum;

/// Relative bounds between which the search looks.
const BOUNDS: (f64, f64) = (1e-9, 1.0);
/// Halvings of the search, in the logarithm of the bound.
const N_STEPS: usize = 20;

/// A codec at about the requested ratio.
#[derive(Debug, Serialize)]
struct PictureRow {
    codec: String,
    /// Bound that was found; `None` for a codec with settings.
    bound: Option<String>,
    ratio: f64,
    #[serde(flatten)]
    quality: Quality,
}

/// Runs the experiment.
pub(super) fn run(args: &PaperPicturesArgs) -> anyhow::Result<()> {
    let source = FieldSource::open(args.field.as_deref())?;
    with_float!(super::wide(&source)?, T => show::<T>(args, &source))
}

fn show<T: Float + Into<f64>>(
    args: &PaperPicturesArgs,
    source: &FieldSource,
) -> anyhow::Result<()> {
    super::check_lossy(&args.codec, T::DTYPE)?;
    let data = source.data::<T>(1);
    let dims = Dims::new(data.shape().to_vec())?;
    let (mut rows, mut results) = (Vec::new(), Vec::new());
    for &coding in &args.codec {
        let (row, result) = nearest(coding, args.ratio, data.base(), data.shape())?;
        rows.push(row);
        results.push(result);
    }
    let text = || {
        let about = format!("Nearest to ratio {}: {}", args.ratio, super::describe(&data));
        format!("{about}\n\n{}", render(&rows))
    };
    streams::results(args.json, || json!({ "ratio": args.ratio, "rows": rows }), text)?;
    let exact: Vec<f64> = data.base().iter().map(|&x| x.into()).collect();
    let mut gallery = Gallery::open(&args.out, &exact, &dims)?;
    let unit = middle(rows.iter().map(|row| row.quality.max_error));
    for (row, result) in rows.iter().zip(&results) {
        let title = format!("{} {:.1}", row.codec, row.ratio);
        gallery.add(&row.codec.replace(':', "-"), &title, result, unit)?;
    }
    streams::remark(format_args!("pictures: {}", gallery.finish()?.display()));
    Ok(())
}

/// Returns the error with the brightest colour in all pictures: the median of the codecs' largest
/// errors, so that one codec with large errors does not hide those of the others.
fn middle(errors: impl Iterator<Item = f64>) -> f64 {
    let mut errors: Vec<f64> = errors.filter(|error| *error > 0.0 && error.is_finite()).collect();
    errors.sort_unstable_by(f64::total_cmp);
    errors.get(errors.len() / 2).copied().unwrap_or(1.0)
}

/// Finds the bound or setting of a codec with the ratio nearest to `ratio`, and what comes back.
fn nearest<T: Float + Into<f64>>(
    coding: CodecArg,
    ratio: f64,
    values: &[T],
    shape: &[usize],
) -> anyhow::Result<(PictureRow, Vec<T>)> {
    let range = ValueRange::of(values);
    let with_bound = |bound: Bound| -> anyhow::Result<CodecSetup> {
        let params = CodecParams::new(quantum::<T>(coding, bound, range)?).with_shape(shape);
        Ok(CodecSetup { coding, params, bound: 0.0, pool: Pool::ONE, n_rounds: 0 })
    };
    let mut tried: Vec<(Option<Bound>, CodecSetup, f64)> = Vec::new();
    if coding.codec.loss() == Loss::Bound {
        let (mut low, mut high) = (BOUNDS.0.log2(), BOUNDS.1.log2());
        for _ in 0..N_STEPS {
            let middle = f64::midpoint(low, high);
            let bound = Bound::Relative(middle.exp2());
            let setup = with_bound(bound)?;
            let (found, _) = setup.decoded(values)?;
            tried.push((Some(bound), setup, found));
            // A larger bound makes shorter encodings.
            (low, high) = if found < ratio { (middle, high) } else { (low, middle) };
        }
    } else {
        let params = CodecParams::new(Quantum::LOSSLESS).with_shape(shape);
        for coding in super::settings::<T>(coding) {
            let setup = CodecSetup { coding, params, bound: 0.0, pool: Pool::ONE, n_rounds: 0 };
            tried.push((None, setup, setup.decoded(values)?.0));
        }
    }
    // Ratios 5 and 20 are equally far from 10.
    let distance = |found: f64| (found / ratio).ln().abs();
    let best = tried.into_iter().min_by(|a, b| distance(a.2).total_cmp(&distance(b.2)));
    let (bound, setup, ratio) = best.expect("a codec has a bound or at least one setting");
    let (_, result) = setup.decoded(values)?;
    let row = PictureRow {
        codec: setup.coding.to_string(),
        bound: bound.map(|bound| match bound {
            Bound::Relative(factor) => format!("rel:{factor:.2e}"),
            other => other.to_string(),
        }),
        ratio,
        quality: Quality::of(&result, values),
    };
    Ok((row, result))
}

fn render(rows: &[PictureRow]) -> String {
    Columns::of(rows)
        .text("codec", "", |row| &row.codec)
        .text("bound", "", |row| row.bound.clone().unwrap_or_else(|| "-".to_owned()))
        .number("ratio", "", |row| format!("{:.2}", row.ratio))
        .number("max error", "", |row| scientific(row.quality.max_error))
        .maybe("PSNR", "dB", |row| row.quality.psnr_db.map(|db| format!("{db:.1}")))
        .maybe("NRMSE", "", |row| row.quality.nrmse.map(scientific))
        .render()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_brightest_error_is_in_the_middle() {
        assert_eq!(middle([9.0, 1.0, 4.0].into_iter()), 4.0);
        assert_eq!(middle([0.0, f64::INFINITY].into_iter()), 1.0);
    }

    #[test]
    fn a_bound_or_a_setting_reaches_the_ratio() {
        let values = FieldSource::BuiltIn.data::<f32>(1).base()[..1 << 16].to_vec();
        for (codec, tolerance) in [("fz-light", 0.05), ("szx", 0.2), ("zfp-rate", 0.2)] {
            let coding = codec.parse().unwrap();
            let (row, result) = nearest(coding, 8.0, &values, &[64, 1024]).unwrap();
            assert!((row.ratio / 8.0).ln().abs() < tolerance, "{row:?}");
            assert_eq!((row.bound.is_some(), result.len()), (codec != "zfp-rate", 1 << 16));
        }
    }
}
