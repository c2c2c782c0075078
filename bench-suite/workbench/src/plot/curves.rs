//! Curves of values that change by orders of magnitude: errors and losses over time or steps.

use plotters::coord::Shift;
use plotters::prelude::*;

use super::{COLOURS, FONT, Plot, lines};

const SIZE: (u32, u32) = (760, 460);
/// Least value on the logarithmic axis. Smaller values are drawn as this one, because the axis has
/// no 0.
const LEAST: f64 = 1e-300;

/// Lines over an axis that begins at 0, with a logarithmic vertical axis.
pub struct Curves<'a> {
    /// Caption above the chart.
    pub caption: String,
    /// Description of the horizontal axis.
    pub x: &'a str,
    /// Description of the vertical axis.
    pub y: &'a str,
    /// Names and points.
    pub lines: Vec<(String, Vec<(f64, f64)>)>,
    /// Position of the legend.
    pub legend: SeriesLabelPosition,
}

impl Plot for Curves<'_> {
    fn size(&self) -> (u32, u32) {
        SIZE
    }

    fn draw_on<B: DrawingBackend<ErrorType: 'static>>(
        &self,
        root: DrawingArea<B, Shift>,
        scale: u32,
    ) -> anyhow::Result<()> {
        let points = self.lines.iter().flat_map(|(_, points)| points);
        let (mut longest, mut low, mut high) = (LEAST, f64::INFINITY, LEAST);
        for &(x, y) in points {
            (longest, low, high) = (longest.max(x), low.min(y.max(LEAST)), high.max(y));
        }
        let font = |size: u32| (FONT, size * scale);
        let mut chart = ChartBuilder::on(&root)
            .caption(&self.caption, font(16))
            .margin(12 * scale)
            .x_label_area_size(40 * scale)
            .y_label_area_size(62 * scale)
            .build_cartesian_2d(0.0..longest, (low.min(high) / 1.3..high * 1.3).log_scale())?;
        chart
            .configure_mesh()
            .x_desc(self.x)
            .y_desc(self.y)
            .y_label_formatter(&|y| format!("{y:.0e}"))
            .label_style(font(12))
            .axis_desc_style(font(14))
            .light_line_style(RGBColor(240, 240, 240))
            .draw()?;
        let all = self.lines.iter().enumerate().map(|(at, (name, points))| {
            let points = points.iter().map(|&(x, y)| (x, y.max(LEAST))).collect();
            (name.clone(), COLOURS[at % COLOURS.len()], points)
        });
        lines(&mut chart, all, self.legend.clone(), scale)?;
        Ok(())
    }
}
