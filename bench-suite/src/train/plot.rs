//! The picture: loss over steps, one line an exchange, the loss logarithmic.

use plotters::coord::Shift;
use plotters::prelude::*;

use super::Row;
use crate::plot::{self, COLOURS, FONT, Plot};

const SIZE: (u32, u32) = (760, 460);

/// A training's results.
pub(super) struct LossPlot<'a> {
    pub(super) about: &'a str,
    pub(super) rows: &'a [Row],
}

impl Plot for LossPlot<'_> {
    fn size(&self) -> (u32, u32) {
        SIZE
    }

    fn draw_on<B: DrawingBackend<ErrorType: 'static>>(
        &self,
        root: DrawingArea<B, Shift>,
        scale: u32,
    ) -> anyhow::Result<()> {
        let points = |row: &Row| -> Vec<(f64, f64)> {
            let points = row.curve.iter().map(|point| (point.step as f64, point.loss.max(1e-12)));
            points.collect()
        };
        let losses = self.rows.iter().flat_map(points).map(|(_, loss)| loss);
        let (low, high) = losses.fold((f64::INFINITY, 0.0_f64), |(a, b), x| (a.min(x), b.max(x)));
        let n_steps = self.rows.first().map_or(1, |row| row.steps);
        let font = |size: u32| (FONT, size * scale);
        root.fill(&WHITE)?;
        let mut chart = ChartBuilder::on(&root)
            .caption(self.about, font(16))
            .margin(12 * scale)
            .x_label_area_size(40 * scale)
            .y_label_area_size(62 * scale)
            .build_cartesian_2d(0.0..n_steps as f64, (low / 1.3..high * 1.3).log_scale())?;
        chart
            .configure_mesh()
            .x_desc("steps")
            .y_desc("loss of a batch")
            .x_label_formatter(&|x| format!("{x:.0}"))
            .label_style(font(12))
            .axis_desc_style(font(14))
            .light_line_style(RGBColor(240, 240, 240))
            .draw()?;
        let lines = self
            .rows
            .iter()
            .enumerate()
            .map(|(at, row)| (row.exchange.clone(), COLOURS[at % COLOURS.len()], points(row)));
        plot::lines(&mut chart, lines, SeriesLabelPosition::UpperRight, scale)?;
        root.present()?;
        Ok(())
    }
}
