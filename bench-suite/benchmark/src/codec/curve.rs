//! Rate and distortion: bits per value and errors, over bounds and settings. Nothing is timed, but
//! every value is checked.

use foldwire::bound::ValueRange;
use foldwire::codec::{CodecParams, Loss};
use foldwire::{Bound, Float, Quantum};
use foldwire_arguments::CodecArgs;
use foldwire_arguments::coding::CodecArg;
use foldwire_fields::field::Field;
use foldwire_workbench::infinite;
use indicatif::ProgressBar;
use serde::Serialize;

use super::measure::CodecBench;
use super::report;

/// Bounds of a curve, relative to the value range.
const BOUNDS: [f64; 11] = [1e-1, 3e-2, 1e-2, 3e-3, 1e-3, 3e-4, 1e-4, 3e-5, 1e-5, 3e-6, 1e-6];
/// Number of settings of a curve.
const N_SETTINGS: u16 = 8;

/// A point of a codec's curve on a field.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct CurvePoint {
    pub(super) field: String,
    pub(super) dtype: &'static str,
    /// The codec of the curve, as the user requested it.
    #[serde(serialize_with = "report::as_text")]
    pub(super) codec: CodecArg,
    /// Bound, if the codec keeps one.
    #[serde(serialize_with = "report::or_null")]
    pub(super) bound: Option<Bound>,
    /// Setting, if the codec keeps no bound and has settings.
    pub(super) setting: Option<u16>,
    /// Encoded bits per value.
    pub(super) bits: f64,
    /// Peak signal-to-noise ratio; `None` if no value changed or all values are equal.
    pub(super) psnr_db: Option<f64>,
    /// Largest error in the unit of the data.
    #[serde(serialize_with = "infinite::serialize")]
    pub(super) max_err: f64,
    /// Guarantees that the codec broke.
    #[serde(skip)]
    pub(super) faults: Vec<String>,
}

/// Parameters of one point of a curve.
#[derive(Debug, Clone, Copy, PartialEq)]
struct CurveSetting {
    coding: CodecArg,
    bound: Option<Bound>,
    setting: Option<u16>,
}

/// Returns the parameters of the points of a codec's curve. They go from coarse to fine for a codec
/// that keeps a bound.
fn curve_settings<T: Float>(coding: CodecArg) -> Vec<CurveSetting> {
    let single = CurveSetting { coding, bound: None, setting: None };
    let with_setting = |setting| CurveSetting {
        coding: CodecArg { setting, ..coding },
        bound: None,
        setting: Some(setting),
    };
    match coding.codec.loss() {
        Loss::None => vec![single],
        Loss::Bound => {
            let bounded = |bound| CurveSetting { bound: Some(Bound::Relative(bound)), ..single };
            BOUNDS.into_iter().map(bounded).collect()
        }
        // A requested setting is the only one.
        _ if coding.setting > 0 => vec![with_setting(coding.setting)],
        _ => {
            let is_one = |&setting: &u16| coding.codec.setting(T::DTYPE, setting).is_some();
            let most = (1..=u16::MAX).take_while(is_one).last().unwrap_or(0);
            let mut settings: Vec<u16> =
                (1..=N_SETTINGS).map(|nth| most * nth / N_SETTINGS).filter(|&n| n > 0).collect();
            settings.dedup();
            // A codec without settings has one point.
            if settings.is_empty() {
                return vec![single];
            }
            settings.into_iter().map(with_setting).collect()
        }
    }
}

/// Returns the number of points for a field of these values.
pub(super) fn n_points<T: Float>(_values: &[T], codings: &[CodecArg]) -> usize {
    codings
        .iter()
        .filter(|coding| coding.is_for(T::DTYPE))
        .map(|&one| curve_settings::<T>(one).len())
        .sum()
}

/// Measures the curves of all codecs on a field.
///
/// # Errors
/// Fails if a bound is invalid for these values.
pub(super) fn of_field<T: Float + Into<f64>>(
    field: &Field,
    values: &[T],
    args: &CodecArgs,
    codings: &[CodecArg],
    bench: &mut CodecBench<'_, T>,
    progress: &ProgressBar,
) -> anyhow::Result<Vec<CurvePoint>> {
    let value_range = ValueRange::of(values);
    let mut points = Vec::new();
    for &codec in codings.iter().filter(|coding| coding.is_for(T::DTYPE)) {
        for CurveSetting { coding, bound, setting } in curve_settings::<T>(codec) {
            let absolute = bound.map_or(Ok(1.0), |bound| bound.absolute(value_range))?;
            let quantum = bound.map_or(Ok(Quantum::LOSSLESS), |bound| {
                super::quantum::<T>(coding, bound, value_range)
            })?;
            let params = CodecParams::new(quantum).with_prediction(args.predictor);
            let params = args.shape.tell(params, &field.dims, values);
            let measured = bench.check_only(coding, absolute, params)?;
            points.push(CurvePoint {
                field: field.name.clone(),
                dtype: field.values.dtype().name(),
                codec,
                bound,
                setting,
                bits: 8.0 * measured.encoded_bytes as f64 / values.len().max(1) as f64,
                psnr_db: measured.psnr_db,
                max_err: measured.max_err_over_bound * absolute,
                faults: measured.faults(),
            });
            progress.inc(1);
        }
    }
    Ok(points)
}

/// Returns everything that is wrong in these results, one line each.
pub(super) fn faults(points: &[CurvePoint]) -> impl Iterator<Item = String> {
    points.iter().flat_map(|CurvePoint { field, codec, bound, faults, .. }| {
        let at = bound.map_or_else(String::new, |bound| format!(" at {bound}"));
        faults.iter().map(move |what| format!("{field} by {codec}{at}: {what}"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn coding(text: &str) -> CodecArg {
        text.parse().unwrap()
    }

    #[test]
    fn codecs_are_tried_by_what_they_go_by() {
        let bounded = curve_settings::<f32>(coding("fz-light"));
        assert_eq!(bounded.len(), BOUNDS.len());
        assert!(bounded.iter().all(|point| point.bound.is_some() && point.setting.is_none()));
        let settings = |text| -> Vec<_> {
            curve_settings::<f32>(coding(text))
                .into_iter()
                .filter_map(|point| point.setting)
                .collect()
        };
        assert_eq!(settings("zfp-rate"), [4, 8, 12, 16, 20, 24, 28, 32]);
        assert_eq!(settings("truncate"), [2, 5, 8, 11, 13, 16, 19, 22]);
        assert_eq!(settings("zfp-rate:6"), [6]);
        for single in ["raw", "mpc", "demote"] {
            assert_eq!(curve_settings::<f64>(coding(single)).len(), 1, "{single}");
        }
        assert_eq!(n_points::<f32>(&[], &[coding("raw"), coding("zfp-rate"), coding("demote")]), 9);
    }
}
