//! Charts with two axes, the same in all plots.

use std::ops::Range;

use plotters::coord::Shift;
use plotters::coord::combinators::{IntoLogRange, LogCoord};
use plotters::coord::ranged1d::{KeyPointHint, NoDefaultFormatting, Ranged, ValueFormatter};
use plotters::coord::types::RangedCoordf64;
use plotters::prelude::*;

use super::FONT;

/// A chart on which curves are drawn.
pub type Chart<'a, B> = ChartContext<'a, B, Cartesian2d<AxisScale, AxisScale>>;

/// An axis of a chart.
#[derive(Debug, Clone)]
pub struct Axis<'a> {
    name: &'a str,
    range: Range<f64>,
    /// Base of the marks of a logarithmic axis.
    base: Option<f64>,
    /// Text of a mark.
    label: fn(f64) -> String,
}

impl<'a> Axis<'a> {
    /// A linear axis with this description.
    pub fn linear(name: &'a str, range: Range<f64>) -> Self {
        Self { name, range, base: None, label: |value| RangedCoordf64::format(&value) }
    }

    /// A logarithmic axis, whose marks are powers of `base`.
    pub fn logarithmic(
        name: &'a str,
        range: Range<f64>,
        base: f64,
        label: fn(f64) -> String,
    ) -> Self {
        Self { name, range, base: Some(base), label }
    }

    fn scale(&self) -> AxisScale {
        let range = self.range.clone();
        match self.base {
            None => AxisScale::Linear(range.into()),
            Some(base) => AxisScale::Logarithmic(range.log_scale().base(base).into()),
        }
    }
}

/// Returns a range for a logarithmic axis, with a margin on both sides of these values.
pub fn around(values: impl Iterator<Item = f64>) -> Range<f64> {
    let (low, high) = values.fold((f64::INFINITY, 0.0_f64), |(a, b), x| (a.min(x), b.max(x)));
    if low <= high { low / 1.3..high * 1.3 } else { 1.0..2.0 }
}

/// Positions on an axis.
pub enum AxisScale {
    /// In equal distances.
    Linear(RangedCoordf64),
    /// By their logarithms.
    Logarithmic(LogCoord<f64>),
}

/// Sizes of a chart's texts and margins, in pixels.
#[derive(Debug, Clone, Copy)]
pub struct ChartSizes {
    caption: u32,
    margin: u32,
    x_labels: u32,
    y_labels: u32,
    label: u32,
    name: u32,
}

/// Sizes of a chart that is the whole plot.
pub const WHOLE: ChartSizes =
    ChartSizes { caption: 18, margin: 12, x_labels: 40, y_labels: 62, label: 12, name: 14 };
/// Sizes of a chart beside others.
pub const PANEL: ChartSizes =
    ChartSizes { caption: 14, margin: 8, x_labels: 34, y_labels: 54, label: 11, name: 12 };

impl ChartSizes {
    /// Draws a caption, the axes and their mesh on an area.
    ///
    /// # Errors
    /// If drawing fails.
    pub fn chart<'a, B: DrawingBackend<ErrorType: 'static>>(
        self,
        area: &'a DrawingArea<B, Shift>,
        caption: &str,
        [x, y]: &[Axis<'_>; 2],
        scale: u32,
    ) -> anyhow::Result<Chart<'a, B>> {
        let font = |size: u32| (FONT, size * scale);
        let (x_label, y_label) = (|value: &f64| (x.label)(*value), |value: &f64| (y.label)(*value));
        let mut chart = ChartBuilder::on(area)
            .caption(caption, font(self.caption))
            .margin(self.margin * scale)
            .x_label_area_size(self.x_labels * scale)
            .y_label_area_size(self.y_labels * scale)
            .build_cartesian_2d(x.scale(), y.scale())?;
        chart
            .configure_mesh()
            .x_desc(x.name)
            .y_desc(y.name)
            .x_label_formatter(&x_label)
            .y_label_formatter(&y_label)
            .label_style(font(self.label))
            .axis_desc_style(font(self.name))
            .light_line_style(RGBColor(240, 240, 240))
            .draw()?;
        Ok(chart)
    }
}

impl Ranged for AxisScale {
    type FormatOption = NoDefaultFormatting;
    type ValueType = f64;

    fn map(&self, value: &f64, limit: (i32, i32)) -> i32 {
        match self {
            Self::Linear(scale) => scale.map(value, limit),
            Self::Logarithmic(scale) => scale.map(value, limit),
        }
    }

    fn key_points<H: KeyPointHint>(&self, hint: H) -> Vec<f64> {
        match self {
            Self::Linear(scale) => scale.key_points(hint),
            Self::Logarithmic(scale) => scale.key_points(hint),
        }
    }

    fn range(&self) -> Range<f64> {
        match self {
            Self::Linear(scale) => scale.range(),
            Self::Logarithmic(scale) => scale.range(),
        }
    }
}

impl ValueFormatter<f64> for AxisScale {}
