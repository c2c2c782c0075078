//! Styles of curves in charts with many of them, and a legend below such charts.

use plotters::coord::Shift;
use plotters::element::DashedPathElement;
use plotters::prelude::*;

use super::{COLOURS, Chart, FONT, colour};

/// Height in pixels of a line of the legend.
const LINE: u32 = 18;
/// Length in pixels of a curve's sample in the legend.
const SAMPLE: i32 = 26;

/// Mark at the points of a curve.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mark {
    /// No mark.
    Nothing,
    /// A filled circle.
    Dot,
    /// An open circle.
    Ring,
}

/// Style of a curve.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CurveStyle {
    /// Colour of the curve and its marks.
    pub colour: RGBColor,
    /// True if the curve is dashed.
    pub is_dashed: bool,
    /// Mark at the points.
    pub mark: Mark,
    /// Line width in pixels.
    pub width: u32,
}

impl CurveStyle {
    /// Style of curve number `at`. Curves use each colour solid, then each colour dashed, then the
    /// same styles again.
    pub fn nth(at: usize) -> Self {
        let is_dashed = (at / COLOURS.len()) % 2 == 1;
        let mark = if is_dashed { Mark::Ring } else { Mark::Dot };
        Self { is_dashed, ..Self::of(colour(at), mark) }
    }

    /// Style of a measured curve, or of a computed one if it has no marks. Computed curves are
    /// dashed.
    pub fn of(colour: RGBColor, mark: Mark) -> Self {
        Self { colour, is_dashed: mark == Mark::Nothing, mark, width: 2 }
    }

    /// A wider line, which stays visible below `n_curves` others through the same points.
    pub fn beneath(self, n_curves: usize) -> Self {
        Self { width: self.width + 2 * n_curves as u32, ..self }
    }

    /// The same style without marks.
    pub fn unmarked(self) -> Self {
        Self { mark: Mark::Nothing, ..self }
    }

    /// Draws only the marks.
    ///
    /// # Errors
    /// If drawing fails.
    pub fn draw_marks<B: DrawingBackend<ErrorType: 'static>>(
        self,
        chart: &mut Chart<'_, B>,
        points: &[(f64, f64)],
        scale: u32,
    ) -> anyhow::Result<()> {
        if let Some(style) = self.dots(scale) {
            chart.draw_series(points.iter().map(|&at| Circle::new(at, 3 * scale, style)))?;
        }
        Ok(())
    }

    /// Draws a curve on a chart.
    ///
    /// # Errors
    /// If drawing fails.
    pub fn draw<B: DrawingBackend<ErrorType: 'static>>(
        self,
        chart: &mut Chart<'_, B>,
        points: &[(f64, f64)],
        scale: u32,
    ) -> anyhow::Result<()> {
        let stroke = self.colour.stroke_width(self.width * scale);
        let owned = points.to_vec();
        if self.is_dashed {
            chart.draw_series(DashedLineSeries::new(owned, 5 * scale, 4 * scale, stroke))?;
        } else {
            chart.draw_series(LineSeries::new(owned, stroke))?;
        }
        self.draw_marks(chart, points, scale)
    }

    /// Style of the marks, or `None` without marks.
    fn dots(self, scale: u32) -> Option<ShapeStyle> {
        match self.mark {
            Mark::Nothing => None,
            Mark::Dot => Some(self.colour.filled()),
            Mark::Ring => Some(self.colour.stroke_width(scale)),
        }
    }

    /// Draws a sample of the curve from `left` on, with length [`SAMPLE`].
    fn sample<B: DrawingBackend<ErrorType: 'static>>(
        self,
        area: &DrawingArea<B, Shift>,
        (left, y): (i32, i32),
        scale: u32,
    ) -> anyhow::Result<()> {
        let ends = [(left, y), (left + SAMPLE * scale as i32, y)];
        let stroke = self.colour.stroke_width(self.width.min(LINE / 4) * scale);
        if self.is_dashed {
            area.draw(&DashedPathElement::new(ends, 5 * scale, 4 * scale, stroke))?;
        } else {
            area.draw(&PathElement::new(ends, stroke))?;
        }
        if let Some(style) = self.dots(scale) {
            let middle = (left + SAMPLE * scale as i32 / 2, y);
            area.draw(&Circle::new(middle, 3 * scale, style))?;
        }
        Ok(())
    }
}

/// Height in pixels of a legend with `n_entries` entries in `n_columns` columns.
pub fn legend_height(n_entries: usize, n_columns: usize) -> u32 {
    n_entries.div_ceil(n_columns) as u32 * LINE + LINE / 2
}

/// Draws names with samples of their curves, row by row.
///
/// # Errors
/// If drawing fails.
pub fn legend<B: DrawingBackend<ErrorType: 'static>>(
    area: &DrawingArea<B, Shift>,
    entries: &[(String, CurveStyle)],
    n_columns: usize,
    scale: u32,
) -> anyhow::Result<()> {
    let column = area.dim_in_pixel().0 as i32 / n_columns as i32;
    let unit = scale as i32;
    for (at, (name, look)) in entries.iter().enumerate() {
        let left = (at % n_columns) as i32 * column + 14 * unit;
        let y = ((at / n_columns) as i32 * LINE as i32 + LINE as i32 / 2) * unit;
        look.sample(area, (left, y), scale)?;
        let place = (left + (SAMPLE + 6) * unit, y - 7 * unit);
        area.draw(&Text::new(name.clone(), place, (FONT, 12 * scale)))?;
    }
    Ok(())
}
