//! The plot of times over sizes: one line for each implementation, both axes logarithmic.

use foldwire_arguments::sizes::Size;
use foldwire_workbench::plot::{self, COLOURS, FONT, Plot};
use plotters::coord::Shift;
use plotters::prelude::*;

use super::output::BenchResults;
use super::row::CollectiveRow;

const SIZE: (u32, u32) = (760, 460);

/// A plot of a benchmark's results. It omits arrays of 0 bytes, which a logarithmic axis cannot
/// show.
pub(super) struct TimesPlot<'a> {
    pub(super) results: &'a BenchResults,
}

impl TimesPlot<'_> {
    fn rows(&self) -> impl Iterator<Item = &CollectiveRow> {
        self.results.outcome.rows.iter().filter(|row| row.n_bytes > 0)
    }

    /// Returns one row of each implementation (a *contestant* in the results), in the order of
    /// their runs.
    fn contestants(&self) -> Vec<&CollectiveRow> {
        let mut contestants: Vec<&CollectiveRow> = Vec::new();
        for row in self.rows() {
            if !contestants.iter().any(|known| known.contestant == row.contestant) {
                contestants.push(row);
            }
        }
        contestants
    }
}

/// Returns an axis range from the least to the greatest value, with a margin on both sides.
fn range(values: impl Iterator<Item = f64>) -> std::ops::Range<f64> {
    let (low, high) = values.fold((f64::INFINITY, 0.0_f64), |(a, b), x| (a.min(x), b.max(x)));
    if low <= high { low / 1.3..high * 1.3 } else { 1.0..2.0 }
}

impl Plot for TimesPlot<'_> {
    fn size(&self) -> (u32, u32) {
        SIZE
    }

    fn draw_on<B: DrawingBackend<ErrorType: 'static>>(
        &self,
        root: DrawingArea<B, Shift>,
        scale: u32,
    ) -> anyhow::Result<()> {
        let head = &self.results.head;
        let micros = |row: &CollectiveRow| row.time_s.max(1e-9) * 1e6;
        let font = |size: u32| (FONT, size * scale);
        let link = head.link.as_ref().map(|link| format!(", links of {link}")).unwrap_or_default();
        let caption = format!(
            "{} of {}, {} ranks over {}{link}",
            head.collective, head.dtype, head.ranks, head.backend
        );
        let sizes = range(self.rows().map(|row| row.n_bytes as f64)).log_scale().base(4.0);
        let times = range(self.rows().map(micros)).log_scale();
        let mut chart = ChartBuilder::on(&root)
            .caption(caption, font(18))
            .margin(12 * scale)
            .x_label_area_size(40 * scale)
            .y_label_area_size(62 * scale)
            .build_cartesian_2d(sizes, times)?;
        chart
            .configure_mesh()
            .x_desc("bytes of the whole array")
            .y_desc("µs")
            .x_label_formatter(&|x| Size(x.round() as usize).to_string())
            .y_label_formatter(&|y| format!("{y}"))
            .label_style(font(12))
            .axis_desc_style(font(14))
            .light_line_style(RGBColor(240, 240, 240))
            .draw()?;
        let lines = self.contestants().into_iter().enumerate().map(|(at, contestant)| {
            let is_same = |row: &&CollectiveRow| row.contestant == contestant.contestant;
            let points = self.rows().filter(is_same).map(|row| (row.n_bytes as f64, micros(row)));
            (contestant.title.clone(), COLOURS[at % COLOURS.len()], points.collect())
        });
        plot::lines(&mut chart, lines, SeriesLabelPosition::UpperLeft, scale)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::output::tests::results;
    use super::*;
    use foldwire_workbench::plot::PlotFile;

    #[test]
    fn every_contestant_has_a_line_without_its_arrays_of_no_bytes() {
        let mut results = results();
        let plot = TimesPlot { results: &results };
        let names: Vec<&str> = plot.contestants().iter().map(|row| &*row.contestant).collect();
        assert_eq!(names, ["raw", "mpi-best"]);
        let folder = tempfile::tempdir().unwrap();
        let draw = |results: &super::super::output::BenchResults, name: &str| {
            let path = folder.path().join(name);
            let file: PlotFile = path.to_str().unwrap().parse().unwrap();
            file.draw(&TimesPlot { results }).unwrap();
            std::fs::read(path).unwrap()
        };
        let svg = String::from_utf8(draw(&results, "a.svg")).unwrap();
        assert!(svg.contains("mpi-best") && svg.contains("reduce of f32, 2 ranks"), "{svg}");
        results.outcome.rows.iter_mut().for_each(|row| row.n_bytes = 0);
        assert!(!draw(&results, "b.png").is_empty());
    }
}
