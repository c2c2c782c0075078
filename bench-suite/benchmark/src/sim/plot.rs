//! The plot of speed-up over raw by ranks, one line for each preset.

use foldwire::Preset;
use foldwire_workbench::plot::{self, COLOURS, FONT, Plot};
use foldwire_workbench::table;
use plotters::coord::Shift;
use plotters::prelude::*;

use super::sweep::{Sweep, SweepSetting};

const SIZE: (u32, u32) = (760, 460);

/// A plot of a sweep. It shows times instead of speed-ups if raw did not take part.
pub(super) struct SweepPlot<'a> {
    pub(super) setting: &'a SweepSetting,
    pub(super) sweep: &'a Sweep,
}

impl Plot for SweepPlot<'_> {
    fn size(&self) -> (u32, u32) {
        SIZE
    }

    fn draw_on<B: DrawingBackend<ErrorType: 'static>>(
        &self,
        root: DrawingArea<B, Shift>,
        scale: u32,
    ) -> anyhow::Result<()> {
        let Self { setting, sweep } = *self;
        let has_raw = sweep.rows.iter().all(|row| row.speedup_raw.is_some());
        let value = |row: &super::sweep::SweepRow| match row.speedup_raw {
            Some(speedup) if has_raw => speedup,
            _ => row.time_s * 1e3,
        };
        let first = setting.ranks.iter().copied().min().unwrap_or(1) as f64;
        // An axis needs a range, even for one number of ranks.
        let last = (setting.ranks.iter().copied().max().unwrap_or(1) as f64).max(first * 1.01);
        let top = sweep.rows.iter().map(value).fold(0.0, f64::max) * 1.08;
        let font = |size: u32| (FONT, size * scale);
        let caption = format!(
            "{} of {} over {} links, simulated",
            setting.collective.name(),
            table::bytes(setting.n_bytes as u64),
            setting.link
        );
        let mut chart = ChartBuilder::on(&root)
            .caption(caption, font(18))
            .margin(12 * scale)
            .x_label_area_size(40 * scale)
            .y_label_area_size(56 * scale)
            .build_cartesian_2d((first..last).log_scale().base(2.0), 0.0..top.max(1e-9))?;
        chart
            .configure_mesh()
            .x_desc("ranks")
            .y_desc(if has_raw { "times as fast as raw" } else { "ms" })
            .x_label_formatter(&|x| format!("{x:.0}"))
            .label_style(font(12))
            .axis_desc_style(font(14))
            .light_line_style(RGBColor(240, 240, 240))
            .draw()?;
        // The main presets have the same colours in every plot.
        let is_other = |preset: &&Preset| !Preset::MAIN.contains(preset);
        let others: Vec<Preset> = setting.presets.iter().filter(is_other).copied().collect();
        let lines = setting.presets.iter().map(|&preset| {
            let mut in_order = Preset::MAIN.iter().chain(&others);
            let at = in_order.position(|&known| known == preset).unwrap_or(0);
            let of_preset = sweep.rows.iter().filter(|row| row.preset == preset);
            let points = of_preset.map(|row| (row.ranks as f64, value(row))).collect();
            (preset.title().to_owned(), COLOURS[at % COLOURS.len()], points)
        });
        plot::lines(&mut chart, lines, SeriesLabelPosition::UpperLeft, scale)?;
        Ok(())
    }
}
