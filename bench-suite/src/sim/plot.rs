//! The picture: speed-up over raw by ranks, one line a preset, as SVG.

use std::path::Path;

use foldwire::Preset;
use plotters::prelude::*;

use super::sweep::{Setting, Sweep};
use crate::cli::title;
use crate::table;

const SIZE: (u32, u32) = (760, 460);

/// Colours that people with colour blindness tell apart (Okabe and Ito), one a preset.
const COLOURS: [RGBColor; 6] = [
    RGBColor(120, 120, 120),
    RGBColor(230, 159, 0),
    RGBColor(86, 180, 233),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(213, 94, 0),
];

/// Draws the sweep into the file at `path`; the time instead of the speed-up if raw did not take
/// part.
///
/// # Errors
/// When the file cannot be written.
pub(super) fn draw(path: &Path, setting: &Setting, sweep: &Sweep) -> anyhow::Result<()> {
    let has_raw = sweep.rows.iter().all(|row| row.speedup_raw.is_some());
    let value = |row: &super::sweep::Row| match row.speedup_raw {
        Some(speedup) if has_raw => speedup,
        _ => row.time_s * 1e3,
    };
    let first = setting.ranks.iter().copied().min().unwrap_or(1) as f64;
    // One number of ranks still needs an axis.
    let last = (setting.ranks.iter().copied().max().unwrap_or(1) as f64).max(first * 1.01);
    let top = sweep.rows.iter().map(value).fold(0.0, f64::max) * 1.08;
    let root = SVGBackend::new(path, SIZE).into_drawing_area();
    root.fill(&WHITE)?;
    let caption = format!(
        "{} of {} over {} links, simulated",
        setting.collective.name(),
        table::bytes(setting.n_bytes as u64),
        setting.link
    );
    let mut chart = ChartBuilder::on(&root)
        .caption(caption, ("sans-serif", 18))
        .margin(12)
        .x_label_area_size(40)
        .y_label_area_size(56)
        .build_cartesian_2d((first..last).log_scale().base(2.0), 0.0..top.max(1e-9))?;
    chart
        .configure_mesh()
        .x_desc("ranks")
        .y_desc(if has_raw { "times as fast as raw" } else { "ms" })
        .x_label_formatter(&|x| format!("{x:.0}"))
        .light_line_style(RGBColor(240, 240, 240))
        .draw()?;
    for &preset in &setting.presets {
        let at = Preset::ALL.iter().position(|&known| known == preset).unwrap_or(0);
        let colour = COLOURS[at % COLOURS.len()];
        let of_preset = sweep.rows.iter().filter(|row| row.preset == preset);
        let points: Vec<_> = of_preset.map(|row| (row.ranks as f64, value(row))).collect();
        let line = LineSeries::new(points.clone(), colour.stroke_width(2)).point_size(0);
        chart
            .draw_series(line)?
            .label(title(preset))
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], colour.stroke_width(2)));
        chart
            .draw_series(points.into_iter().map(|point| Circle::new(point, 3, colour.filled())))?;
    }
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::UpperLeft)
        .background_style(WHITE.mix(0.8))
        .border_style(RGBColor(200, 200, 200))
        .draw()?;
    root.present()?;
    Ok(())
}
