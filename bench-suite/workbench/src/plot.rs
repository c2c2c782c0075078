//! Plots as SVG or PNG.
//!
//! The same code draws both formats. A PNG has twice the pixels in each direction. The program
//! brings its own font for the letters, so that a PNG looks the same on machines without fonts.

mod chart;
mod curves;
mod look;

use std::ffi::OsStr;
use std::path::PathBuf;
use std::str::FromStr;

use anyhow::Context as _;
use epaint_default_fonts::UBUNTU_LIGHT;
use foldwire_fields::usage::{UsageError, usage};
use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::{FontStyle, register_font};

use crate::picture::Image;
use crate::{files, streams};

pub use chart::{Axis, AxisScale, Chart, PANEL, WHOLE, around};
pub use curves::Curves;
pub use look::{CurveStyle, Mark, legend, legend_height};
pub use plotters::chart::SeriesLabelPosition as Legend;

/// Pixels of a PNG for each pixel of an SVG, in each direction.
const PNG_SCALE: u32 = 2;
/// Font of all letters.
pub const FONT: &str = "sans-serif";

/// Colours that people with colour blindness can distinguish (Okabe and Ito).
pub const COLOURS: [RGBColor; 6] = [
    RGBColor(120, 120, 120),
    RGBColor(230, 159, 0),
    RGBColor(86, 180, 233),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(213, 94, 0),
];

/// Returns colour number `at`. After the last colour, the first follows.
pub const fn colour(at: usize) -> RGBColor {
    COLOURS[at % COLOURS.len()]
}

/// Draws a plot into a file, if there is one. It is a macro because builds without plots have
/// another version, which does not evaluate the plot (see `plot/absent.rs`).
#[macro_export]
macro_rules! draw {
    ($file:expr, $plot:expr) => {
        match &$file {
            Some(file) => file.draw(&$plot),
            None => Ok(()),
        }
    };
}

/// A plot that can be drawn.
pub trait Plot {
    /// Width and height in pixels.
    fn size(&self) -> (u32, u32);

    /// Draws the plot on a white area, `scale` times as large as its size.
    ///
    /// # Errors
    /// If drawing fails.
    fn draw_on<B: DrawingBackend<ErrorType: 'static>>(
        &self,
        root: DrawingArea<B, Shift>,
        scale: u32,
    ) -> anyhow::Result<()>;
}

/// A picture file. The ending of its name determines the format.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlotFile {
    path: PathBuf,
    format: PictureFormat,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PictureFormat {
    Svg,
    Png,
}

impl PlotFile {
    /// The same file with `-name` inserted before the ending.
    pub fn of(&self, name: &str) -> Self {
        let stem = self.path.file_stem().map_or_else(Default::default, OsStr::to_string_lossy);
        let ending = self.path.extension().map_or_else(Default::default, OsStr::to_string_lossy);
        Self { path: self.path.with_file_name(format!("{stem}-{name}.{ending}")), ..*self }
    }

    /// Draws into the file, and says so on stderr.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn draw(&self, plot: &impl Plot) -> anyhow::Result<()> {
        let path = self.path.display();
        self.write(plot).with_context(|| format!("{path}: the plot cannot be written"))?;
        streams::remark(format_args!("plot: {path}"));
        Ok(())
    }

    fn write(&self, plot: &impl Plot) -> anyhow::Result<()> {
        let font = register_font(FONT, FontStyle::Normal, UBUNTU_LIGHT);
        font.map_err(|_| anyhow::anyhow!("the font that comes with this program cannot be read"))?;
        let (width, height) = plot.size();
        match self.format {
            PictureFormat::Svg => {
                let mut svg = String::new();
                let root = SVGBackend::with_string(&mut svg, plot.size()).into_drawing_area();
                draw_white(plot, root, 1)?;
                files::replace(&self.path, svg.as_bytes())?;
            }
            PictureFormat::Png => {
                let size = (width * PNG_SCALE, height * PNG_SCALE);
                let mut rgb = vec![0; 3 * size.0 as usize * size.1 as usize];
                let root = BitMapBackend::with_buffer(&mut rgb, size).into_drawing_area();
                draw_white(plot, root, PNG_SCALE)?;
                Image::from_rgb(size.0 as usize, &rgb).save(&self.path)?;
            }
        }
        Ok(())
    }
}

/// Draws a plot on an area that is white before.
fn draw_white<B: DrawingBackend<ErrorType: 'static>>(
    plot: &impl Plot,
    root: DrawingArea<B, Shift>,
    scale: u32,
) -> anyhow::Result<()> {
    root.fill(&WHITE)?;
    plot.draw_on(root.clone(), scale)?;
    Ok(root.present()?)
}

impl FromStr for PlotFile {
    type Err = UsageError;

    fn from_str(text: &str) -> Result<Self, UsageError> {
        let path = PathBuf::from(text);
        let ending = path.extension().and_then(OsStr::to_str).unwrap_or_default();
        let format = match ending.to_ascii_lowercase().as_str() {
            "svg" => PictureFormat::Svg,
            "png" => PictureFormat::Png,
            _ => {
                return Err(usage!(
                    "`{text}` does not say the picture's format: write a name that ends in .svg or \
                     .png"
                ));
            }
        };
        Ok(Self { path, format })
    }
}
