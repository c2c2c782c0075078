//! The plot of rate and distortion on a field: PSNR over bits per value, one curve for each codec.
//!
//! Exact results have no PSNR. An exact codec is drawn as a vertical line at its rate. A point of a
//! lossy codec that changed no value is drawn at the top.

use foldwire_arguments::coding::CodecArg;
use foldwire_arguments::values::each_once;
use foldwire_workbench::plot::{Axis, CurveStyle, Plot, WHOLE, legend, legend_height};
use plotters::coord::Shift;
use plotters::prelude::*;

use super::curve::CurvePoint;

const CHART: (u32, u32) = (760, 460);
/// Number of legend entries in a row.
const N_COLUMNS: usize = 5;

/// A plot of the points on one field.
pub(super) struct DistortionPlot<'a> {
    pub(super) field: &'a str,
    pub(super) points: Vec<&'a CurvePoint>,
}

impl DistortionPlot<'_> {
    fn codecs(&self) -> Vec<CodecArg> {
        each_once(self.points.iter().map(|point| point.codec))
    }

    /// Returns bits and PSNR of the points that have an error.
    fn curve(&self, codec: CodecArg) -> Vec<(f64, f64)> {
        let points = self.of(codec);
        points.filter_map(|point| Some((point.bits, point.psnr_db?.max(0.0)))).collect()
    }

    /// Returns the style of each codec. If curves coincide, the later one is wider and lies
    /// beneath.
    fn looks(&self, codecs: &[CodecArg]) -> Vec<CurveStyle> {
        let curves: Vec<_> = codecs.iter().map(|&codec| self.curve(codec)).collect();
        let look = |(at, curve): (usize, &Vec<_>)| {
            let n_same = curves[..at].iter().filter(|known| *known == curve && !known.is_empty());
            CurveStyle::nth(at).beneath(n_same.count())
        };
        curves.iter().enumerate().map(look).collect()
    }

    fn of(&self, codec: CodecArg) -> impl Iterator<Item = &CurvePoint> {
        self.points.iter().copied().filter(move |point| point.codec == codec)
    }
}

impl Plot for DistortionPlot<'_> {
    fn size(&self) -> (u32, u32) {
        (CHART.0, CHART.1 + legend_height(self.codecs().len(), N_COLUMNS))
    }

    fn draw_on<B: DrawingBackend<ErrorType: 'static>>(
        &self,
        root: DrawingArea<B, Shift>,
        scale: u32,
    ) -> anyhow::Result<()> {
        let codecs = self.codecs();
        let (area, below) = root.split_vertically(CHART.1 * scale);
        let most = |values: &mut dyn Iterator<Item = f64>| values.fold(1.0, f64::max) * 1.04;
        let widest = most(&mut self.points.iter().map(|point| point.bits));
        let top = most(&mut self.points.iter().filter_map(|point| point.psnr_db));
        let caption = format!("rate and distortion of {}", self.field);
        let axes = [Axis::linear("bits a value", 0.0..widest), Axis::linear("PSNR, dB", 0.0..top)];
        let mut chart = WHOLE.chart(&area, &caption, &axes, scale)?;
        let looks = self.looks(&codecs);
        // The first codec is drawn last, on top.
        for (&codec, look) in codecs.iter().zip(&looks).rev() {
            look.draw(&mut chart, &self.curve(codec), scale)?;
            let exact = self.of(codec).filter(|point| point.psnr_db.is_none());
            let rates: Vec<f64> = exact.map(|point| point.bits).collect();
            if codec.codec.is_exact() {
                for rate in rates {
                    look.unmarked().draw(&mut chart, &[(rate, 0.0), (rate, top)], scale)?;
                }
            } else {
                let marks: Vec<_> = rates.into_iter().map(|rate| (rate, top)).collect();
                look.draw_marks(&mut chart, &marks, scale)?;
            }
        }
        let names: Vec<(String, CurveStyle)> =
            codecs.iter().map(CodecArg::to_string).zip(looks).collect();
        legend(&below, &names, N_COLUMNS, scale)?;
        Ok(())
    }
}
