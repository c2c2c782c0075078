//! Pixels: an RGB image, its PNG file, and a sheet of labelled images.

use std::path::Path;

use super::font;
use crate::files;

const WHITE: [u8; 3] = [255; 3];
const BLACK: [u8; 3] = [0; 3];

/// Pixels between the images of a sheet, and around it.
const SEPARATOR: usize = 4;

/// Pixels per dot of a label.
const DOT: usize = 2;

/// Height of a label with space around it.
const LABEL: usize = DOT * (font::HEIGHT + 4);

/// An RGB image of 8 bits per channel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Image {
    width: usize,
    height: usize,
    pixels: Vec<[u8; 3]>,
}

impl Image {
    /// An image of one colour.
    fn plain(width: usize, height: usize, colour: [u8; 3]) -> Self {
        Self { width, height, pixels: vec![colour; width * height] }
    }

    /// The image of these pixels, three bytes each, row by row.
    ///
    /// # Panics
    ///
    /// If the last row is incomplete.
    pub fn from_rgb(width: usize, bytes: &[u8]) -> Self {
        let (pixels, rest) = bytes.as_chunks();
        assert!(rest.is_empty() && pixels.len().is_multiple_of(width), "rows are whole");
        Self { width, height: pixels.len() / width, pixels: pixels.to_vec() }
    }

    /// Creates an image in which `colour` returns the colour at a column and a row.
    pub(super) fn draw(
        width: usize,
        height: usize,
        colour: impl Fn(usize, usize) -> [u8; 3],
    ) -> Self {
        let pixels = (0..height).flat_map(|y| (0..width).map(move |x| (x, y)));
        Self { width, height, pixels: pixels.map(|(x, y)| colour(x, y)).collect() }
    }

    /// Width and height in pixels.
    pub fn size(&self) -> [usize; 2] {
        [self.width, self.height]
    }

    /// Colour at column `x` of row `y`.
    ///
    /// # Panics
    ///
    /// If the pixel is outside the image.
    pub fn pixel(&self, x: usize, y: usize) -> [u8; 3] {
        assert!(x < self.width, "column {x} of {}", self.width);
        self.pixels[y * self.width + x]
    }

    /// Arranges images in rows of `columns`, each under its label, with separators around them.
    /// Cells are as large as the largest image. `None` leaves a cell empty.
    ///
    /// # Panics
    ///
    /// If `columns` is zero.
    pub fn sheet(columns: usize, panels: &[Option<(&str, &Self)>]) -> Self {
        let images = || panels.iter().flatten().map(|(_, image)| image);
        let cell = [
            images().map(|image| image.width).max().unwrap_or(0) + SEPARATOR,
            images().map(|image| image.height).max().unwrap_or(0) + LABEL + SEPARATOR,
        ];
        let used = columns.min(panels.len());
        let rows = panels.len().div_ceil(columns);
        let mut sheet = Self::plain(used * cell[0] + SEPARATOR, rows * cell[1] + SEPARATOR, WHITE);
        for (at, panel) in panels.iter().enumerate() {
            let Some((label, image)) = panel else { continue };
            let [x, y] = [at % columns * cell[0] + SEPARATOR, at / columns * cell[1] + SEPARATOR];
            sheet.write(label, x, y + 2 * DOT, cell[0] - SEPARATOR);
            sheet.paste(image, x, y + LABEL);
        }
        sheet
    }

    fn paste(&mut self, image: &Self, x: usize, y: usize) {
        for (row, source) in image.pixels.chunks_exact(image.width).enumerate() {
            let start = (y + row) * self.width + x;
            self.pixels[start..start + image.width].copy_from_slice(source);
        }
    }

    /// Writes the characters of `text` that fit in `width` pixels. (x, y) is the upper left corner.
    fn write(&mut self, text: &str, x: usize, y: usize, width: usize) {
        let advance = (font::WIDTH + 1) * DOT;
        for (at, character) in text.chars().take(width / advance).enumerate() {
            for (row, bits) in font::glyph(character).into_iter().enumerate() {
                for column in
                    (0..font::WIDTH).filter(|column| bits >> (font::WIDTH - 1 - column) & 1 == 1)
                {
                    let dot = Self::plain(DOT, DOT, BLACK);
                    self.paste(&dot, x + at * advance + column * DOT, y + row * DOT);
                }
            }
        }
    }

    /// Writes a PNG file.
    ///
    /// # Errors
    ///
    /// If the file cannot be written.
    pub fn save(&self, path: &Path) -> anyhow::Result<()> {
        let mut bytes = Vec::new();
        let mut encoder =
            png::Encoder::new(&mut bytes, u32::try_from(self.width)?, u32::try_from(self.height)?);
        encoder.set_color(png::ColorType::Rgb);
        encoder.set_depth(png::BitDepth::Eight);
        let mut writer = encoder.write_header()?;
        writer.write_image_data(self.pixels.as_flattened())?;
        writer.finish()?;
        Ok(files::replace(path, &bytes)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_holds_the_pixels() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.png");
        let image = Image::draw(3, 2, |x, y| [x as u8, y as u8, 9]);
        image.save(&path).unwrap();
        let decoder =
            png::Decoder::new(std::io::BufReader::new(std::fs::File::open(&path).unwrap()));
        let mut reader = decoder.read_info().unwrap();
        let mut bytes = vec![0; reader.output_buffer_size().unwrap()];
        let info = reader.next_frame(&mut bytes).unwrap();
        assert_eq!((info.width, info.height, info.color_type), (3, 2, png::ColorType::Rgb));
        assert_eq!(bytes, image.pixels.as_flattened());
    }

    #[test]
    fn a_sheet_has_space_for_all_of_its_images() {
        let image = |shade| Image::plain(30, 20, [shade; 3]);
        let (a, b, c) = (image(1), image(2), image(3));
        let panels =
            [Some(("a label that is too long", &a)), Some(("b", &b)), None, Some(("d", &c))];
        let sheet = Image::sheet(2, &panels);
        assert_eq!(sheet.size(), [2 * 34 + 4, 2 * (24 + LABEL) + 4]);
        let [right, below] = [34, 24 + LABEL];
        assert_eq!(sheet.pixel(4, 4 + LABEL), [1; 3]);
        assert_eq!(sheet.pixel(4 + right, 4 + LABEL), [2; 3]);
        assert_eq!(sheet.pixel(4, 4 + LABEL + below), WHITE);
        assert_eq!(sheet.pixel(4 + right + 29, 4 + LABEL + below + 19), [3; 3]);
        let is_inked = |x: usize| (0..LABEL).any(|y| sheet.pixel(x, 4 + y) == BLACK);
        assert!((4..34).any(is_inked) && !(34..38).any(is_inked), "labels stay above their image");
    }
}
