//! The default input of `foldwire stack`: seismic images from a simulation that takes seconds.
//!
//! Each rank fires one shot near the surface of the same layered ground (private module `model`).
//! Waves travel through it (`solver`: 3-D acoustic wave equation, finite differences). The
//! wavefield at the time when the direct wave reaches the bottom is the rank's image. Reverse time
//! migration (RTM) correlates and sums such snapshots. The RTM fields of SDRBench and of the ZCCL
//! papers are such snapshots too. A snapshot holds a strong spherical front, with weak reflections
//! and refractions behind it. Ahead of the front, values are almost but not quite zero.
//!
//! Images are cached on disk, one file per shot (`cache`). The file name holds the parameters, so
//! that surveys with other ranks or dimensions can share a folder.
//!
//! Cost with the default volume: about 2.5 s of one core per shot, 60 MB of memory per core, and 16
//! MB of disk per shot.

mod cache;
mod model;
mod solver;

use std::path::{Path, PathBuf};
use std::time::Duration;

use foldwire_fields::dims::Dims;
use indicatif::{ProgressBar, ProgressStyle};
use rayon::prelude::*;

pub use solver::WaveSlab;

/// Version in the cache's key. Increase it with every change of solver or model that changes
/// images.
const VERSION: u32 = 1;

/// Distance between points in metres.
const SPACING: f32 = 10.0;

/// Default and largest peak frequency of a source, in Hz.
///
/// In the slowest layer, this frequency has 11 points per wavelength, and the highest frequency in
/// the source's spectrum has 4. Higher frequencies would only add numerical noise.
pub const MAX_HZ: f32 = 18.0;

/// Points of the absorbing sponge on each side.
const SPONGE: usize = 16;

/// Depth of the sources, in points.
const SOURCE_DEPTH: usize = 2;

/// Parameters of the images: their size, number, smoothness and time.
#[derive(Debug, Clone, PartialEq)]
pub struct Survey {
    /// Points of an image along y, depth and x.
    pub shape: [usize; 3],
    /// Number of shots, one per rank.
    pub n_shots: usize,
    /// Peak frequency of the sources in Hz, at most [`MAX_HZ`]. Lower frequencies give smoother
    /// images.
    pub hz: f32,
    /// Time of the images, in units of the time that the direct wave takes to the bottom.
    pub time: f32,
}

/// Images of a survey.
#[derive(Debug, Clone, PartialEq)]
pub struct Images {
    /// One image per shot, in order.
    pub volumes: Vec<Vec<f32>>,
    /// Number of images that were not in the cache and had to be simulated.
    pub n_simulated: usize,
    /// Problems that did not prevent the result, such as a cache that cannot be written.
    pub notes: Vec<String>,
}

impl Survey {
    /// The default survey: images of 176 × 128 × 176 points, 16 MB each.
    pub fn new(n_shots: usize) -> Self {
        Self { shape: [176, 128, 176], n_shots, hz: MAX_HZ, time: 1.0 }
    }

    /// Dimensions of an image: y, depth, x. A slice at a fixed y is a vertical section.
    ///
    /// # Panics
    ///
    /// If the shape is empty.
    pub fn dims(&self) -> Dims {
        Dims::new(self.shape.to_vec()).expect("a survey's shape is not empty")
    }

    /// Describes the images in one line.
    pub fn describe(&self) -> String {
        let [y, z, x] = self.shape.map(|n| n as f32 * SPACING / 1000.0);
        format!(
            "simulated wavefields of {} shots of {} Hz in {x:.2} x {y:.2} x {z:.2} km of layered \
             ground, {} of the way down",
            self.n_shots, self.hz, self.time
        )
    }

    /// The ground, for a simulation that is divided among ranks.
    pub fn ground(&self) -> Ground {
        Ground { medium: self.medium(), source: self.source(0), hz: self.hz }
    }

    /// Returns the images. Missing ones are simulated, and stored in the `cache` folder. Progress
    /// goes to stderr if that is a terminal.
    ///
    /// The values depend only on the survey and on the machine's arithmetic, not on the number of
    /// threads.
    pub fn images(&self, cache: Option<&Path>) -> Images {
        let n_values = self.shape.iter().product();
        let paths: Vec<_> =
            (0..self.n_shots).map(|shot| Some(cache?.join(self.file_name(shot)))).collect();
        let mut volumes: Vec<Option<Vec<f32>>> =
            paths.iter().map(|path| cache::read(path.as_deref()?, n_values)).collect();
        let n_simulated = volumes.iter().filter(|volume| volume.is_none()).count();
        let mut notes = Vec::new();
        if n_simulated > 0 {
            let medium = self.medium();
            let progress = progress(n_simulated * self.n_steps(&medium));
            let missing = volumes.par_iter_mut().zip(&paths).enumerate();
            let missing = missing.filter(|(_, (volume, _))| volume.is_none());
            let write_errors: Vec<_> = missing
                .filter_map(|(shot, (volume, path))| {
                    let image = volume.insert(self.simulate(&medium, shot, &progress));
                    path.as_deref().and_then(|path| cache::write(path, image).err())
                })
                .collect();
            progress.finish_and_clear();
            notes.extend(write_errors.first().map(|error| {
                format!("images are not kept for the next run: {error}; name a folder with --cache")
            }));
        }
        Images { volumes: volumes.into_iter().flatten().collect(), n_simulated, notes }
    }

    fn medium(&self) -> solver::Medium {
        let fraction = |at: [usize; 3]| {
            [0, 1, 2].map(|axis| (at[axis] as f32 + 0.5) / self.shape[axis] as f32)
        };
        solver::Medium::new(self.shape, SPONGE, SPACING, |at| model::velocity(fraction(at)))
    }

    /// Number of steps until the direct wave of a shot in the middle has travelled for `time`.
    fn n_steps(&self, medium: &solver::Medium) -> usize {
        let to_bottom = model::time_to_bottom(self.shape[1] as f32 * SPACING);
        ((solver::onset(self.hz) + self.time * to_bottom) / medium.dt).ceil() as usize
    }

    fn simulate(&self, medium: &solver::Medium, shot: usize, progress: &ProgressBar) -> Vec<f32> {
        let mut wave = solver::Shot::new(medium, self.source(shot), self.hz);
        let n_steps = self.n_steps(medium);
        for done in (0..n_steps).step_by(solver::STEPS_PER_PASS) {
            let n_next = solver::STEPS_PER_PASS.min(n_steps - done);
            wave.advance(n_next);
            progress.inc(n_next as u64);
        }
        wave.snapshot()
    }

    /// Position of a shot.
    ///
    /// Shots are evenly spaced along x. Their y is the fractional part of multiples of the golden
    /// ratio, so that shots also differ in y.
    fn source(&self, shot: usize) -> [usize; 3] {
        let [ny, nz, nx] = self.shape;
        let x = (2 * shot + 1) * nx / (2 * self.n_shots);
        let y = (0.25 + 0.5 * (0.5 + shot as f64 * 0.618_033_988_749_895).fract()) * ny as f64;
        [(y as usize).min(ny - 1), SOURCE_DEPTH.min(nz - 1), x]
    }

    fn file_name(&self, shot: usize) -> String {
        let [ny, nz, nx] = self.shape;
        let [y, z, x] = self.source(shot);
        let Self { hz, time, .. } = self;
        // Omitted for the default time, so that files of older versions keep their names.
        let time = if *time == 1.0 { String::new() } else { format!("-t{time}") };
        format!(
            "wave{VERSION}-{ny}x{nz}x{nx}-h{SPACING}-f{hz}{time}-sponge{SPONGE}-\
             at-{y}-{z}-{x}.image"
        )
    }
}

/// A medium with one source that fires again and again.
#[derive(Debug)]
pub struct Ground {
    medium: solver::Medium,
    source: [usize; 3],
    hz: f32,
}

impl Ground {
    /// The planes of the grid that one rank of `size` computes. `None` if there are too few planes
    /// for this many ranks.
    pub fn slab(&self, size: usize, rank: usize) -> Option<WaveSlab<'_>> {
        // Seconds between two shots.
        let period = 4.0 / self.hz;
        WaveSlab::new(&self.medium, self.source, (self.hz, period), (size, rank))
    }
}

/// The user's cache folder, if the system has one.
pub fn default_cache() -> Option<PathBuf> {
    directories::ProjectDirs::from("", "", "foldwire").map(|dirs| dirs.cache_dir().to_owned())
}

/// A progress bar on stderr that counts time steps. It is hidden if stderr is not a terminal.
fn progress(n_steps: usize) -> ProgressBar {
    let style = ProgressStyle::with_template("simulating [{bar:40}] {percent}%, {eta} left")
        .expect("the template is constant")
        .progress_chars("=> ");
    let bar = ProgressBar::new(n_steps as u64).with_style(style);
    bar.enable_steady_tick(Duration::from_millis(200));
    bar
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn small(n_shots: usize) -> Survey {
        Survey { shape: [20, 24, 28], ..Survey::new(n_shots) }
    }

    #[test]
    fn shots_differ_and_lie_near_the_surface() {
        for n_shots in [1, 2, 8, 64] {
            let survey = Survey::new(n_shots);
            let sources: Vec<_> = (0..n_shots).map(|shot| survey.source(shot)).collect();
            for (at, source) in sources.iter().enumerate() {
                assert!(source[1] <= 2 && (0..3).all(|axis| source[axis] < survey.shape[axis]));
                assert!(!sources[..at].contains(source), "{n_shots} shots: {source:?} twice");
            }
        }
    }

    #[test]
    fn a_second_run_reads_what_the_first_one_wrote() {
        let folder = tempfile::tempdir().unwrap();
        let first = small(2).images(Some(folder.path()));
        assert_eq!((first.n_simulated, first.notes.len()), (2, 0));
        let second = small(2).images(Some(folder.path()));
        assert_eq!(second.n_simulated, 0);
        assert_eq!(first.volumes, second.volumes);
        assert_ne!(first.volumes[0], first.volumes[1]);

        let damaged = folder.path().join(small(2).file_name(1));
        fs::write(&damaged, b"something else").unwrap();
        let third = small(2).images(Some(folder.path()));
        assert_eq!(third.n_simulated, 1);
        assert_eq!(first.volumes, third.volumes);
        assert_eq!(small(2).images(None).volumes, first.volumes);
    }

    #[test]
    fn a_cache_that_cannot_be_written_is_no_failure() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        fs::write(&file, b"").unwrap();
        let images = small(2).images(Some(&file));
        assert_eq!((images.n_simulated, images.notes.len()), (2, 1));
        assert!(images.notes[0].contains("--cache"));
    }

    /// Most values of an image are larger than numerical noise.
    #[test]
    fn waves_fill_the_image() {
        let survey = Survey { shape: [48, 40, 48], ..Survey::new(1) };
        let image = &survey.images(None).volumes[0];
        let largest = image.iter().fold(0.0_f32, |max, value| max.max(value.abs()));
        let filled = image.iter().filter(|value| value.abs() > 1e-4 * largest).count();
        assert!(largest.is_finite() && filled > image.len() / 2, "{filled} of {}", image.len());
    }

    /// Lower frequencies give smoother images, and earlier images are emptier.
    #[test]
    fn frequency_and_time_determine_how_smooth_and_how_full_an_image_is() {
        let folder = tempfile::tempdir().unwrap();
        let survey = Survey { shape: [48, 40, 48], ..Survey::new(1) };
        let image = |survey: Survey| survey.images(Some(folder.path())).volumes.remove(0);
        let usual = image(survey.clone());
        let smooth = image(Survey { hz: 9.0, ..survey.clone() });
        let early = image(Survey { time: 0.3, ..survey });
        let largest = |image: &[f32]| image.iter().fold(0.0_f32, |max, x| max.max(x.abs()));
        // Mean difference between adjacent values, in units of the mean magnitude.
        let roughness = |image: &[f32]| {
            let steps: f64 =
                image.windows(2).map(|pair| f64::from((pair[1] - pair[0]).abs())).sum();
            steps / image.iter().map(|x| f64::from(x.abs())).sum::<f64>()
        };
        assert!(roughness(&smooth) < 0.8 * roughness(&usual));
        let filled = |image: &[f32]| {
            let least = 1e-4 * largest(image);
            image.iter().filter(|x| x.abs() > least).count()
        };
        assert!(2 * filled(&early) < filled(&usual));
    }
}
