//! A chart of curves: times over sizes, errors and losses over time.

use plotters::coord::Shift;
use plotters::prelude::*;

use super::{Axis, FONT, Plot, WHOLE, around, colour};

/// Least value on a logarithmic axis. Smaller values are drawn as this one, because the axis has
/// no 0.
const LEAST: f64 = 1e-300;

/// Name, colour and points of a line.
type Line = (String, RGBColor, Vec<(f64, f64)>);

/// Lines with marked points.
pub struct Curves<'a> {
    /// Caption above the chart.
    pub caption: String,
    /// The horizontal and the vertical axis.
    pub axes: [Axis<'a>; 2],
    /// Names, colours and points.
    pub lines: Vec<Line>,
    /// Position of the legend.
    pub legend: SeriesLabelPosition,
}

impl<'a> Curves<'a> {
    /// Curves of values that change by orders of magnitude, over an axis that begins at 0. Lines
    /// have names and points.
    pub fn of_magnitudes(
        caption: String,
        [x, y]: [&'a str; 2],
        lines: impl Iterator<Item = (String, Vec<(f64, f64)>)>,
        legend: SeriesLabelPosition,
    ) -> Self {
        let drawn = |(at, (name, points)): (usize, (String, Vec<(f64, f64)>))| {
            let points = points.into_iter().map(|(x, y)| (x, y.max(LEAST)));
            (name, colour(at), points.collect())
        };
        let lines: Vec<Line> = lines.enumerate().map(drawn).collect();
        let points = || lines.iter().flat_map(|(.., points)| points);
        let longest = points().map(|&(x, _)| x).fold(LEAST, f64::max);
        let magnitudes = around(points().map(|&(_, y)| y).filter(|y| y.is_finite()));
        let label = |y| format!("{y:.0e}");
        let axes = [Axis::linear(x, 0.0..longest), Axis::logarithmic(y, magnitudes, 10.0, label)];
        Self { caption, axes, lines, legend }
    }
}

impl Plot for Curves<'_> {
    fn size(&self) -> (u32, u32) {
        (760, 460)
    }

    fn draw_on<B: DrawingBackend<ErrorType: 'static>>(
        &self,
        root: DrawingArea<B, Shift>,
        scale: u32,
    ) -> anyhow::Result<()> {
        let mut chart = WHOLE.chart(&root, &self.caption, &self.axes, scale)?;
        let length = 18 * scale as i32;
        for (label, colour, points) in &self.lines {
            let stroke = colour.stroke_width(2 * scale);
            chart
                .draw_series(LineSeries::new(points.clone(), stroke).point_size(0))?
                .label(label)
                .legend(move |(x, y)| PathElement::new([(x, y), (x + length, y)], stroke));
            let dots = points.iter().map(|&point| Circle::new(point, 3 * scale, colour.filled()));
            chart.draw_series(dots)?;
        }
        chart
            .configure_series_labels()
            .position(self.legend.clone())
            .label_font((FONT, 12 * scale))
            .legend_area_size(30 * scale)
            .background_style(WHITE.mix(0.8))
            .border_style(RGBColor(200, 200, 200))
            .draw()?;
        Ok(())
    }
}
