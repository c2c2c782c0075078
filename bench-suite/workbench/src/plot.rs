//! Plots as SVG or PNG.
//!
//! The same code draws both formats. A PNG has twice the pixels in each direction. The program
//! brings its own font for the letters, so that a PNG looks the same on machines without fonts.

mod curves;
mod look;

use std::ffi::OsStr;
use std::path::PathBuf;
use std::str::FromStr;

use anyhow::Context as _;
use epaint_default_fonts::UBUNTU_LIGHT;
use foldwire_fields::usage::{UsageError, usage};
use plotters::coord::Shift;
use plotters::coord::ranged1d::Ranged;
use plotters::prelude::*;
use plotters::style::{FontStyle, register_font};

use crate::picture::Image;
use crate::{files, streams};

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

/// Draws a plot into a file. It is a macro because builds without plots have another version, which
/// does not evaluate the plot (see `plot/absent.rs`).
#[macro_export]
macro_rules! draw {
    ($file:expr, $plot:expr) => {
        $file.draw(&$plot)
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

/// Draws lines with marked points on a chart, and a legend at this position. Each line has a label,
/// a colour and points.
///
/// # Errors
/// If drawing fails.
pub fn lines<'a, B, X, Y>(
    chart: &mut ChartContext<'a, B, Cartesian2d<X, Y>>,
    lines: impl IntoIterator<Item = (String, RGBColor, Vec<(f64, f64)>)>,
    legend: SeriesLabelPosition,
    scale: u32,
) -> anyhow::Result<()>
where
    B: DrawingBackend<ErrorType: 'static> + 'a,
    X: Ranged<ValueType = f64>,
    Y: Ranged<ValueType = f64>,
{
    let length = 18 * scale as i32;
    for (label, colour, points) in lines {
        let stroke = colour.stroke_width(2 * scale);
        chart
            .draw_series(LineSeries::new(points.clone(), stroke).point_size(0))?
            .label(label)
            .legend(move |(x, y)| PathElement::new([(x, y), (x + length, y)], stroke));
        let dots = points.into_iter().map(|point| Circle::new(point, 3 * scale, colour.filled()));
        chart.draw_series(dots)?;
    }
    chart
        .configure_series_labels()
        .position(legend)
        .label_font((FONT, 12 * scale))
        .legend_area_size(30 * scale)
        .background_style(WHITE.mix(0.8))
        .border_style(RGBColor(200, 200, 200))
        .draw()?;
    Ok(())
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
