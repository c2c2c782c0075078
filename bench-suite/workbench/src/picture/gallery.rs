//! The pictures of one run: the exact result, and the result and error of every preset.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context;
use foldwire_fields::dims::Dims;

use super::{ColourScale, Image, Slice};

/// Results side by side in the overview.
const PER_BAND: usize = 3;

/// A folder of pictures that share the scale of the exact result.
#[derive(Debug)]
pub struct Gallery {
    folder: PathBuf,
    dims: Dims,
    exact: Slice,
    scale: ColourScale,
    exact_image: Image,
    results: Vec<Panels>,
}

#[derive(Debug)]
struct Panels {
    title: String,
    result: Image,
    error: Image,
}

impl Gallery {
    /// Opens a gallery in `folder`, which is created if needed, and writes `exact.png`.
    ///
    /// # Errors
    ///
    /// If the folder or the file cannot be written.
    pub fn open(folder: &Path, exact: &[f64], dims: &Dims) -> anyhow::Result<Self> {
        fs::create_dir_all(folder).with_context(|| {
            format!("cannot make {}; name another folder with --out", folder.display())
        })?;
        let exact = Slice::middle(exact, dims);
        let scale = ColourScale::of(&exact);
        let exact_image = exact.heat_map(scale);
        let gallery = Self {
            folder: folder.to_owned(),
            dims: dims.clone(),
            exact,
            scale,
            exact_image,
            results: Vec::new(),
        };
        gallery.save("exact", &gallery.exact_image)?;
        Ok(gallery)
    }

    /// Adds `NAME.png` and `NAME-error.png`. Errors of `bound` or more have the brightest colour.
    /// Use the same `bound` for pictures to be compared.
    ///
    /// # Errors
    ///
    /// If a file cannot be written.
    pub fn add<T: Copy + Into<f64>>(
        &mut self,
        name: &str,
        title: &str,
        result: &[T],
        bound: f64,
    ) -> anyhow::Result<()> {
        let slice = Slice::middle(result, &self.dims);
        let result = slice.heat_map(self.scale);
        let error = slice.error(&self.exact, bound).heat_map(ColourScale::Error);
        self.save(name, &result)?;
        self.save(&format!("{name}-error"), &error)?;
        self.results.push(Panels { title: title.to_owned(), result, error });
        Ok(())
    }

    /// Writes `overview.png` and returns its path. The exact result comes first, then the others in
    /// rows of three, each with its error below it.
    ///
    /// # Errors
    ///
    /// If the file cannot be written.
    pub fn finish(self) -> anyhow::Result<PathBuf> {
        let error_titles: Vec<_> =
            self.results.iter().map(|panels| format!("{} error", panels.title)).collect();
        let columns = 1 + self.results.len().min(PER_BAND);
        let mut sheet = Vec::new();
        let bands = self.results.chunks(PER_BAND).zip(error_titles.chunks(PER_BAND));
        for (panels, titles) in bands {
            sheet.push(None);
            sheet.extend(panels.iter().map(|panels| Some((panels.title.as_str(), &panels.result))));
            sheet.resize(sheet.len().next_multiple_of(columns), None);
            sheet.push(None);
            sheet.extend(
                titles
                    .iter()
                    .zip(panels)
                    .map(|(title, panels)| Some((title.as_str(), &panels.error))),
            );
            sheet.resize(sheet.len().next_multiple_of(columns), None);
        }
        sheet.resize(sheet.len().max(1), None);
        sheet[0] = Some(("exact", &self.exact_image));
        self.save("overview", &Image::sheet(columns, &sheet))
    }

    fn save(&self, name: &str, image: &Image) -> anyhow::Result<PathBuf> {
        let path = self.folder.join(format!("{name}.png"));
        image.save(&path).with_context(|| {
            format!("cannot write {}; name another folder with --out", path.display())
        })?;
        Ok(path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_preset_has_its_two_pictures_and_a_place_in_the_overview() {
        let folder = tempfile::tempdir().unwrap();
        let out = folder.path().join("new/out");
        let dims: Dims = "2x10x20".parse().unwrap();
        let exact: Vec<f64> = (0..400).map(|at| f64::from(at) - 300.0).collect();
        let mut gallery = Gallery::open(&out, &exact, &dims).unwrap();
        let result: Vec<f32> = exact.iter().map(|&value| value as f32 + 0.5).collect();
        gallery.add("a", "A", &result, 1.0).unwrap();
        gallery.add("b", "B", &exact, 1.0).unwrap();
        assert_eq!(gallery.finish().unwrap(), out.join("overview.png"));
        let mut names: Vec<_> = fs::read_dir(&out)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        assert_eq!(
            names,
            ["a-error.png", "a.png", "b-error.png", "b.png", "exact.png", "overview.png"]
        );
    }

    #[test]
    fn a_folder_that_cannot_be_made_says_so() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        fs::write(&file, b"").unwrap();
        let error = Gallery::open(&file, &[1.0], &Dims::flat(1)).unwrap_err();
        assert!(error.to_string().contains("--out"));
    }
}
