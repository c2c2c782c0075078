//! The plot of the distribution of errors: a panel for each histogram, with normal densities.

use foldwire_workbench::plot::{Axis, CurveStyle, FONT, Mark, PANEL, Plot, legend, legend_height};
use plotters::coord::Shift;
use plotters::prelude::*;

use super::errors::Histogram;

const PANEL_SIZE: (u32, u32) = (460, 290);
const TITLE: u32 = 42;
const N_COLUMNS: usize = 3;
/// Number of points of a curve.
const N_POINTS: usize = 121;

/// A plot of errors in units of their bound.
pub(crate) struct ErrorDistributionPlot {
    pub(crate) title: String,
    /// Names and colours of the densities in each panel.
    pub(crate) legend: [(&'static str, RGBColor); 2],
    pub(crate) panels: Vec<DistributionPanel>,
}

/// A histogram and the densities over it.
pub(crate) struct DistributionPanel {
    pub(crate) caption: String,
    pub(crate) colour: RGBColor,
    pub(crate) histogram: Histogram,
    /// Mean and deviation of a normal distribution for each entry of the legend.
    pub(crate) normals: [(f64, f64); 2],
}

/// Returns the density of a normal distribution.
fn normal(deviation: f64, x: f64) -> f64 {
    let scaled = x / deviation;
    (-scaled * scaled / 2.0).exp() / (deviation * std::f64::consts::TAU.sqrt())
}

/// Returns the left end, the right end and the density of each bar.
fn bars(histogram: &Histogram) -> impl Iterator<Item = (f64, f64, f64)> {
    let Histogram { reach, counts } = histogram;
    let width = 2.0 * reach / counts.len() as f64;
    let all = counts.iter().sum::<usize>().max(1) as f64;
    counts.iter().enumerate().map(move |(at, &n)| {
        let left = at as f64 * width - reach;
        (left, left + width, n as f64 / (all * width))
    })
}

impl Plot for ErrorDistributionPlot {
    fn size(&self) -> (u32, u32) {
        let down = self.panels.len().div_ceil(2) as u32;
        (
            2 * PANEL_SIZE.0,
            TITLE + PANEL_SIZE.1 * down + legend_height(self.legend.len(), N_COLUMNS),
        )
    }

    fn draw_on<B: DrawingBackend<ErrorType: 'static>>(
        &self,
        root: DrawingArea<B, Shift>,
        scale: u32,
    ) -> anyhow::Result<()> {
        let looks = self
            .legend
            .map(|(name, colour)| (name.to_owned(), CurveStyle::of(colour, Mark::Nothing)));
        let root = root.titled(&self.title, (FONT, 18 * scale))?;
        let height = root.dim_in_pixel().1 - legend_height(self.legend.len(), N_COLUMNS) * scale;
        let (top, below) = root.split_vertically(height);
        let areas = top.split_evenly((self.panels.len().div_ceil(2).max(1), 2));
        for (area, panel) in areas.iter().zip(&self.panels) {
            let DistributionPanel { caption, colour, histogram, normals } = panel;
            let reach = histogram.reach;
            let peak = bars(histogram).map(|(.., density)| density).fold(0.0, f64::max);
            let peak = normals.iter().map(|(_, of)| normal(*of, 0.0)).fold(peak, f64::max);
            let axes = [
                Axis::linear("error / bound", -reach..reach),
                Axis::linear("density", 0.0..peak * 1.08),
            ];
            let mut chart = PANEL.chart(area, caption, &axes, scale)?;
            let fill = colour.mix(0.6).filled();
            chart.draw_series(bars(histogram).map(|(left, right, density)| {
                Rectangle::new([(left, 0.0), (right, density)], fill)
            }))?;
            for ((mean, deviation), (_, look)) in normals.iter().zip(&looks) {
                let x = |at: usize| (2.0 * at as f64 / (N_POINTS - 1) as f64 - 1.0) * reach;
                let points: Vec<(f64, f64)> =
                    (0..N_POINTS).map(|at| (x(at), normal(*deviation, x(at) - mean))).collect();
                look.draw(&mut chart, &points, scale)?;
            }
        }
        legend(&below, &looks, N_COLUMNS, scale)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_and_curves_have_the_area_1() {
        let histogram = Histogram { reach: 2.0, counts: vec![1, 5, 2, 0] };
        let area: f64 = bars(&histogram).map(|(left, right, y)| (right - left) * y).sum();
        assert!((area - 1.0).abs() < 1e-12);
        let step = 0.01;
        let area: f64 = (-1000..1000).map(|at| normal(1.5, f64::from(at) * step) * step).sum();
        assert!((area - 1.0).abs() < 1e-6, "{area}");
    }
}
