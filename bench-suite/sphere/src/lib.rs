//! Shallow water on a rotating sphere, in double precision: a small dynamical core with the two
//! patterns of communication of a climate model.
//!
//! Ranks divide the rows of a grid of latitudes and longitudes. In each step neighbours exchange
//! rows (*halos*), and all ranks a *transposition*: gravity waves are too fast for the time step,
//! so what drives them is taken implicitly, which gives a Helmholtz equation. Its Fourier
//! coefficients along longitude do not depend on each other, but each has a system of equations
//! along latitude. So each rank transforms its rows, gets some wavenumbers of all rows, solves, and
//! gives them back. That is what CAM's spectral core does between its Fourier and Legendre
//! transforms.
//!
//! | file | what it does |
//! |---|---|
//! | `case` | initial states: Williamson's test cases 2, 5 and 6 |
//! | `band` | one rank's rows, and a step of theirs |
//! | `dynamics` | tendencies of one level |
//! | `implicit` | the transposition and the systems along latitude |
//! | `fourier` | rows as waves, and the filter at the poles |
//!
//! *Method.* Winds and heights are staggered (Arakawa's grid C). Momentum in vector-invariant form
//! with Sadourny's fluxes of vorticity; heights in flux form, so mass is conserved up to rounding.
//! Leapfrog, semi-implicit for gravity waves, with the Robert–Asselin filter. Poleward of 60°
//! fields lose the waves that are shorter than those of 60°. A weak viscosity (a day for the
//! shortest waves) that leaves solid rotation alone. Levels are layers of their own with other
//! winds and do not act on each other: they make messages as large as those of a model with levels.
//!
//! Every number is computed in the same order whatever the number of ranks, so that without loss in
//! messages all have the bits of one rank alone.
//!
//! Sources: D. Williamson et al., "A standard test set for numerical approximations to the shallow
//! water equations in spherical geometry", J. Comput. Phys. 102 (1992); R. Sadourny, J. Atmos. Sci.
//! 32 (1975); A. Arakawa and V. Lamb, Methods in Comput. Phys. 17 (1977).

mod band;
mod case;
mod dynamics;
mod fourier;
mod implicit;
#[cfg(test)]
mod tests;

use std::f64::consts::PI;

pub use band::Band;
pub use case::TestCase;

/// Metres.
const RADIUS: f64 = 6.371_22e6;
/// Radians a second.
const ROTATION: f64 = 7.292e-5;
/// Metres a second².
const GRAVITY: f64 = 9.806_16;
/// Seconds of a step on a grid of 64 rows; on others in proportion.
const STEP_OF_64: f64 = 1200.0;
/// Seconds in which viscosity takes the shortest waves.
const DAMPING: f64 = 86_400.0;

/// What ranks tell each other in a step, in this order. Messages of one kind follow each other from
/// step to step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HaloKind {
    /// Northward wind before gravity waves: to the south alone.
    Flow,
    /// Heights.
    Heights,
    /// Both winds.
    Winds,
}

/// Which way a transposition goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TransposeDirection {
    /// From rows to wavenumbers.
    ToWaves,
    /// And back.
    ToRows,
}

/// How ranks exchange values.
pub trait SphereExchange {
    /// Why it failed.
    type Error;

    /// Gives the neighbours in the south and in the north what they need, and takes theirs. A rank
    /// at a pole lacks one of them; what is empty is not sent.
    ///
    /// # Errors
    /// Whatever the network says.
    fn halo(
        &mut self,
        halo: HaloKind,
        own: [&[f64]; 2],
        theirs: [&mut [f64]; 2],
    ) -> Result<(), Self::Error>;

    /// Gives each rank its block of `send`, and takes one of each; lengths are known to both.
    ///
    /// # Errors
    /// Whatever the network says.
    fn transpose(
        &mut self,
        direction: TransposeDirection,
        send: (&[f64], &[usize]),
        recv: (&mut [f64], &[usize]),
    ) -> Result<(), Self::Error>;
}

/// One rank that has all rows.
#[derive(Debug)]
pub struct SingleRank;

impl SphereExchange for SingleRank {
    type Error = std::convert::Infallible;

    fn halo(&mut self, _: HaloKind, _: [&[f64]; 2], _: [&mut [f64]; 2]) -> Result<(), Self::Error> {
        Ok(())
    }

    fn transpose(
        &mut self,
        _: TransposeDirection,
        (send, _): (&[f64], &[usize]),
        (recv, _): (&mut [f64], &[usize]),
    ) -> Result<(), Self::Error> {
        recv.copy_from_slice(send);
        Ok(())
    }
}

/// The grid, and what is the same in all steps.
#[derive(Debug)]
pub struct Sphere {
    n_rows: usize,
    n_columns: usize,
    n_levels: usize,
    case: TestCase,
    /// Radians between rows, and between columns.
    spacing: [f64; 2],
    /// Of rows from the south: at their centres, and at their southern faces. Both begin with one
    /// of no row and end with one, so that the rows of a band and its halos have the same index.
    cos_centre: Vec<f64>,
    cos_face: Vec<f64>,
    /// Of southern faces.
    coriolis: Vec<f64>,
    /// m²/s.
    viscosity: f64,
    /// The largest of the initial heights: gravity waves as fast as there are.
    depth: f64,
}

impl Sphere {
    /// A grid of rows and columns with so many levels; `None` if it is too small to be one: at
    /// least 4 rows, 8 columns, of which there is an even number, and a level.
    #[must_use]
    pub fn new([n_rows, n_columns]: [usize; 2], n_levels: usize, case: TestCase) -> Option<Self> {
        let is_one = n_rows >= 4 && n_columns >= 8 && n_columns.is_multiple_of(2) && n_levels > 0;
        if !is_one {
            return None;
        }
        let spacing = [PI / n_rows as f64, 2.0 * PI / n_columns as f64];
        // Row 1 is the southernmost.
        let face = |row: usize| -PI / 2.0 + (row as f64 - 1.0) * spacing[0];
        let centre = |row: usize| face(row) + spacing[0] / 2.0;
        let rows = 0..n_rows + 2;
        let is_inner = |row: &usize| (2..=n_rows).contains(row);
        let mut sphere = Self {
            n_rows,
            n_columns,
            n_levels,
            case,
            spacing,
            // Beyond the poles as on this side: it is divided by, and weighs nothing.
            cos_centre: rows.clone().map(|row| centre(row).cos().abs()).collect(),
            cos_face: rows
                .clone()
                .map(|row| if is_inner(&row) { face(row).cos() } else { 0.0 })
                .collect(),
            coriolis: rows.map(|row| 2.0 * ROTATION * face(row).sin()).collect(),
            viscosity: (RADIUS * spacing[1] / PI).powi(2) / DAMPING,
            depth: 0.0,
        };
        let heights = (0..n_rows).flat_map(|row| sphere.initial_heights(row, 0.0));
        sphere.depth = heights.fold(0.0, f64::max);
        Some(sphere)
    }

    /// Seconds of a step.
    #[must_use]
    pub fn seconds_of_step(&self) -> f64 {
        STEP_OF_64 * 64.0 / self.n_rows as f64
    }

    /// The rows of one rank of `size`, whose initial heights are off by `perturbation` of
    /// themselves, up or down; `None` if there are too few rows or columns for so many ranks.
    #[must_use]
    pub fn band(&self, size: usize, rank: usize, perturbation: f64) -> Option<Band<'_>> {
        let is_enough = size <= self.n_rows && size <= self.n_columns;
        is_enough.then(|| Band::new(self, size, rank, perturbation))
    }

    /// The heights of all rows at the beginning, from the south: of each row all levels.
    #[must_use]
    pub fn initial(&self, perturbation: f64) -> Vec<f64> {
        (0..self.n_rows).flat_map(|row| self.initial_heights(row, perturbation)).collect()
    }

    /// Volume of water on all levels, in m³, of the heights of all rows.
    #[must_use]
    pub fn mass(&self, heights: &[f64]) -> f64 {
        self.integral(heights.iter().copied())
    }

    /// The root of the mean square difference of two fields of heights, by area, in metres.
    #[must_use]
    pub fn rms(&self, heights: &[f64], others: &[f64]) -> f64 {
        let squares = heights.iter().zip(others).map(|(a, b)| (a - b).powi(2));
        (self.integral(squares) / self.integral(heights.iter().map(|_| 1.0))).sqrt()
    }

    fn integral(&self, values: impl Iterator<Item = f64>) -> f64 {
        let n_each = self.n_columns * self.n_levels;
        let area = |row: usize| {
            RADIUS * RADIUS * self.cos_centre[row + 1] * self.spacing[0] * self.spacing[1]
        };
        values.enumerate().map(|(at, value)| value * area(at / n_each)).sum()
    }

    /// Latitude of a row's southern face; of its centre.
    fn latitudes(&self, row: usize) -> [f64; 2] {
        let face = -PI / 2.0 + row as f64 * self.spacing[0];
        [face, face + self.spacing[0] / 2.0]
    }
}
