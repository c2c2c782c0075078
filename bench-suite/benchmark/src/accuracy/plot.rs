//! The plot of errors over ranks: a panel for each schedule, both axes logarithmic.

use foldwire_arguments::values::each_once;
use foldwire_workbench::plot::{Axis, CurveStyle, FONT, Mark, PANEL, Plot, legend, legend_height};
use plotters::coord::Shift;
use plotters::prelude::*;

use super::{AccuracyRow, AccuracySetting, colour};

const PANEL_SIZE: (u32, u32) = (460, 330);
const TITLE: u32 = 42;
/// Number of legend entries in a row.
const N_COLUMNS: usize = 4;
/// Smaller values are drawn as this one, because a logarithmic axis has no 0.
const LEAST: f64 = 1e-3;

/// Colours of computed curves.
const STATED: RGBColor = BLACK;
const ZCCL: RGBColor = RGBColor(0, 114, 178);
const UNIFORM: RGBColor = RGBColor(60, 60, 60);

/// A value of a row that is drawn.
type RowValue<'a> = &'a dyn Fn(&AccuracyRow) -> f64;
type Curve = (String, CurveStyle, Vec<(f64, f64)>);

/// A plot of worst errors and 95.44 % lines, measured, stated and predicted.
pub(super) struct ErrorGrowthPlot<'a> {
    pub(super) setting: &'a AccuracySetting,
    pub(super) rows: &'a [AccuracyRow],
}

impl ErrorGrowthPlot<'_> {
    fn schedules(&self) -> Vec<&'static str> {
        each_once(self.rows.iter().map(|row| row.schedule))
    }

    fn n_across(&self) -> usize {
        self.schedules().len().min(2)
    }

    /// Returns the curves of a panel, measured ones first. Pipelines with the same stated worst
    /// case share a curve.
    fn curves(&self, schedule: &str) -> Vec<Curve> {
        let rows = || self.rows.iter().filter(|row| row.schedule == schedule);
        let of = |pipeline: &str, value: RowValue| -> Vec<(f64, f64)> {
            let rows = rows().filter(|row| row.pipeline == pipeline);
            rows.map(|row| (row.ranks as f64, value(row).max(LEAST))).collect()
        };
        let mut curves: Vec<Curve> = Vec::new();
        let names = each_once(rows().map(|row| row.pipeline));
        let values: [(&str, Mark, RowValue); 2] = [
            ("worst", Mark::Dot, &|row| row.summary.worst),
            ("95.44 %", Mark::Ring, &|row| row.summary.line),
        ];
        for (title, mark, value) in values {
            for (nth, name) in names.iter().enumerate() {
                let look = CurveStyle::of(colour(name), mark).beneath(nth);
                curves.push((format!("{title}: {name}"), look, of(name, value)));
            }
        }
        for name in &names {
            let stated = of(name, &|row| row.stated);
            if curves.iter().all(|(.., known)| *known != stated) {
                let look = CurveStyle::of(STATED, Mark::Nothing);
                curves.push(("worst case, stated".to_owned(), look, stated));
            }
        }
        let theories: [(&str, RGBColor, RowValue); 2] = [
            ("95.44 %, ZCCL's theory", ZCCL, &|row| row.zccl.line),
            ("95.44 %, uniform errors", UNIFORM, &|row| row.uniform.line),
        ];
        for (title, colour, value) in theories {
            let points = each_once(rows().map(|row| (row.ranks as f64, value(row))));
            curves.push((title.to_owned(), CurveStyle::of(colour, Mark::Nothing), points));
        }
        curves
    }

    fn legend(&self) -> Vec<(String, CurveStyle)> {
        let all = self.schedules();
        let curves = all.iter().flat_map(|schedule| self.curves(schedule));
        let mut names: Vec<(String, CurveStyle)> = Vec::new();
        for (name, look, _) in curves {
            if !names.iter().any(|(known, _)| *known == name) {
                names.push((name, look));
            }
        }
        names
    }
}

impl Plot for ErrorGrowthPlot<'_> {
    fn size(&self) -> (u32, u32) {
        let (across, n) = (self.n_across(), self.schedules().len());
        let down = n.div_ceil(across.max(1)) as u32;
        let below = legend_height(self.legend().len(), N_COLUMNS);
        // The legend needs this width even below a single panel.
        ((PANEL_SIZE.0 * across as u32).max(760), TITLE + PANEL_SIZE.1 * down + below)
    }

    fn draw_on<B: DrawingBackend<ErrorType: 'static>>(
        &self,
        root: DrawingArea<B, Shift>,
        scale: u32,
    ) -> anyhow::Result<()> {
        let AccuracySetting { op, codec, dtype, bound, .. } = self.setting;
        let title = format!("errors of all-reduces ({op}) of {dtype} by {codec} within {bound}");
        let root = root.margin(8 * scale, 0, 0, 0).titled(&title, (FONT, 18 * scale))?;
        let names = self.legend();
        let height = root.dim_in_pixel().1 - legend_height(names.len(), N_COLUMNS) * scale;
        let (panels, below) = root.split_vertically(height);
        let schedules = self.schedules();
        let across = self.n_across().max(1);
        let ranks = || self.rows.iter().map(|row| row.ranks as f64);
        let first = ranks().fold(f64::INFINITY, f64::min);
        // An axis needs a range, even for one number of ranks.
        let last = ranks().fold(first * 1.01, f64::max);
        let curves: Vec<Vec<Curve>> = schedules.iter().map(|name| self.curves(name)).collect();
        let values = || curves.iter().flatten().flat_map(|(.., points)| points).map(|at| at.1);
        let low = values().fold(f64::INFINITY, f64::min) / 1.3;
        let high = values().filter(|y| y.is_finite()).fold(LEAST, f64::max) * 1.3;
        let areas = panels.split_evenly((schedules.len().div_ceil(across), across));
        let (x, y) = (|x| format!("{x:.0}"), |y: f64| y.to_string());
        let axes = [
            Axis::logarithmic("ranks", first..last, 2.0, x),
            Axis::logarithmic("|error| / bound", low.min(high)..high, 10.0, y),
        ];
        for ((area, schedule), curves) in areas.iter().zip(&schedules).zip(&curves) {
            let mut chart = PANEL.chart(area, schedule, &axes, scale)?;
            // Computed curves are drawn last, on top. Below them, the first measured curve is on
            // top.
            let is_measured = |curve: &&Curve| curve.1.mark != Mark::Nothing;
            let measured = curves.iter().filter(is_measured).rev();
            let computed = curves.iter().filter(|curve| !is_measured(curve));
            for (_, look, points) in measured.chain(computed) {
                look.draw(&mut chart, points, scale)?;
            }
        }
        legend(&below, &names, N_COLUMNS, scale)?;
        Ok(())
    }
}
