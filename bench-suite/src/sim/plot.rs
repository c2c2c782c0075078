//! The picture: speed-up over raw by ranks, one line a preset, as SVG or PNG.
//!
//! Both are drawn by the same code. A PNG has twice the pixels each way, and its letters are those
//! of a font that comes with the program, so that it looks the same on machines without fonts.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use epaint_default_fonts::UBUNTU_LIGHT;
use foldwire::Preset;
use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::{FontStyle, register_font};

use super::sweep::{Setting, Sweep};
use crate::cli::title;
use crate::picture::Image;
use crate::table;
use crate::usage::UsageError;

const SIZE: (u32, u32) = (760, 460);
/// Pixels of a PNG for each of an SVG's, each way.
const PNG_SCALE: u32 = 2;
const FONT: &str = "sans-serif";

/// Colours that people with colour blindness tell apart (Okabe and Ito), one a preset.
const COLOURS: [RGBColor; 6] = [
    RGBColor(120, 120, 120),
    RGBColor(230, 159, 0),
    RGBColor(86, 180, 233),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(213, 94, 0),
];

/// A picture's file, whose name says the format.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlotFile {
    path: PathBuf,
    format: Format,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Format {
    Svg,
    Png,
}

impl PlotFile {
    /// Where the picture goes.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl FromStr for PlotFile {
    type Err = UsageError;

    fn from_str(text: &str) -> Result<Self, UsageError> {
        let path = PathBuf::from(text);
        let ending = path.extension().and_then(OsStr::to_str).unwrap_or_default();
        let format = match ending.to_ascii_lowercase().as_str() {
            "svg" => Format::Svg,
            "png" => Format::Png,
            _ => {
                return Err(UsageError::new(format!(
                    "`{text}` does not say the picture's format: write a name that ends in .svg or .png"
                )));
            }
        };
        Ok(Self { path, format })
    }
}

/// Draws the sweep into a file; the time instead of the speed-up if raw did not take part.
///
/// # Errors
/// When the file cannot be written.
pub(super) fn draw(file: &PlotFile, setting: &Setting, sweep: &Sweep) -> anyhow::Result<()> {
    let font = register_font(FONT, FontStyle::Normal, UBUNTU_LIGHT);
    font.map_err(|_| anyhow::anyhow!("the font that comes with this program cannot be read"))?;
    match file.format {
        Format::Svg => {
            let mut svg = String::new();
            let root = SVGBackend::with_string(&mut svg, SIZE).into_drawing_area();
            draw_on(root, 1, setting, sweep)?;
            fs::write(&file.path, svg)?;
        }
        Format::Png => {
            let (width, height) = (SIZE.0 * PNG_SCALE, SIZE.1 * PNG_SCALE);
            let mut rgb = vec![0; 3 * (width * height) as usize];
            let root = BitMapBackend::with_buffer(&mut rgb, (width, height)).into_drawing_area();
            draw_on(root, PNG_SCALE, setting, sweep)?;
            Image::from_rgb(width as usize, &rgb).save(&file.path)?;
        }
    }
    Ok(())
}

/// Draws on anything, `scale` times as large as [`SIZE`].
fn draw_on<B: DrawingBackend<ErrorType: 'static>>(
    root: DrawingArea<B, Shift>,
    scale: u32,
    setting: &Setting,
    sweep: &Sweep,
) -> anyhow::Result<()> {
    let has_raw = sweep.rows.iter().all(|row| row.speedup_raw.is_some());
    let value = |row: &super::sweep::Row| match row.speedup_raw {
        Some(speedup) if has_raw => speedup,
        _ => row.time_s * 1e3,
    };
    let first = setting.ranks.iter().copied().min().unwrap_or(1) as f64;
    // One number of ranks still needs an axis.
    let last = (setting.ranks.iter().copied().max().unwrap_or(1) as f64).max(first * 1.01);
    let top = sweep.rows.iter().map(value).fold(0.0, f64::max) * 1.08;
    let font = |size: u32| (FONT, size * scale);
    root.fill(&WHITE)?;
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
    let length = 18 * scale as i32;
    for &preset in &setting.presets {
        let at = Preset::ALL.iter().position(|&known| known == preset).unwrap_or(0);
        let colour = COLOURS[at % COLOURS.len()];
        let of_preset = sweep.rows.iter().filter(|row| row.preset == preset);
        let points: Vec<_> = of_preset.map(|row| (row.ranks as f64, value(row))).collect();
        let stroke = colour.stroke_width(2 * scale);
        let line = LineSeries::new(points.clone(), stroke).point_size(0);
        chart
            .draw_series(line)?
            .label(title(preset))
            .legend(move |(x, y)| PathElement::new([(x, y), (x + length, y)], stroke));
        chart.draw_series(
            points.into_iter().map(|point| Circle::new(point, 3 * scale, colour.filled())),
        )?;
    }
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::UpperLeft)
        .label_font(font(12))
        .legend_area_size(30 * scale)
        .background_style(WHITE.mix(0.8))
        .border_style(RGBColor(200, 200, 200))
        .draw()?;
    root.present()?;
    Ok(())
}
