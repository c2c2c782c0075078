//! The picture: residuals over time, one line a way to solve.

use plotters::coord::Shift;
use plotters::prelude::*;

use super::Row;
use crate::plot::{self, COLOURS, FONT, Plot};

const SIZE: (u32, u32) = (760, 460);

pub(super) struct ResidualPlot<'a> {
    /// What was solved.
    pub(super) about: String,
    pub(super) rows: &'a [Row],
}

impl Plot for ResidualPlot<'_> {
    fn size(&self) -> (u32, u32) {
        SIZE
    }

    fn draw_on<B: DrawingBackend<ErrorType: 'static>>(
        &self,
        root: DrawingArea<B, Shift>,
        scale: u32,
    ) -> anyhow::Result<()> {
        let font = |size: u32| (FONT, size * scale);
        root.fill(&WHITE)?;
        let longest = self.rows.iter().map(|row| row.time_s).fold(1e-9, f64::max);
        let residuals = self.rows.iter().flat_map(|row| row.residuals.iter().copied());
        let (least, most) =
            residuals.fold((0.1, 1.0), |(a, b): (f64, f64), x| (a.min(x), b.max(x)));
        let least = least.max(1e-300);
        let mut chart = ChartBuilder::on(&root)
            .caption(format!("conjugate gradients on {}", self.about), font(18))
            .margin(12 * scale)
            .x_label_area_size(40 * scale)
            .y_label_area_size(62 * scale)
            .build_cartesian_2d(0.0..longest, (least / 2.0..most * 2.0).log_scale())?;
        chart
            .configure_mesh()
            .x_desc("seconds")
            .y_desc("residual, as the solver sees it")
            .y_label_formatter(&|y| format!("{y:.0e}"))
            .label_style(font(12))
            .axis_desc_style(font(14))
            .light_line_style(RGBColor(240, 240, 240))
            .draw()?;
        let lines = self.rows.iter().enumerate().map(|(at, row)| {
            let points = row.residuals.iter().enumerate();
            let points = points
                .map(|(at, &residual)| ((at + 1) as f64 * row.iteration_s, residual.max(least)));
            let title = format!("{} dot products, borders {}", row.dots.name(), row.borders);
            (title, COLOURS[at % COLOURS.len()], points.collect())
        });
        plot::lines(&mut chart, lines, SeriesLabelPosition::UpperRight, scale)?;
        root.present()?;
        Ok(())
    }
}
