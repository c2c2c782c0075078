//! Shallow water on a rotating sphere, in double precision: a small dynamical core with the two
//! communication patterns of a climate model.
//!
//! Ranks divide the rows of a latitude–longitude grid. In each step neighbours exchange rows
//! (*halos*), and all ranks perform a *transposition*. Gravity waves are too fast for the time
//! step, so their terms are implicit. This results in a Helmholtz equation. Its Fourier
//! coefficients along longitude are independent, and each has a system of equations along latitude.
//! Each rank therefore transforms its rows, receives some wavenumbers of all rows, solves them, and
//! sends them back. The spectral core of the climate model CAM does the same between its Fourier
//! and Legendre transforms.
//!
//! | file | what it does |
//! |---|---|
//! | `case` | initial states: Williamson's test cases 2, 5 and 6, and tracers |
//! | `jets` | two unstable jets: initial state, and the force that keeps them unstable |
//! | `fields` | winds, tracers and heights of rows; the state of all rows |
//! | `band` | one rank's rows, and a time step of them |
//! | `dynamics` | tendencies of one level |
//! | `implicit` | the transposition and the systems along latitude |
//! | `fourier` | Fourier transforms of rows, and the filter at the poles |
//!
//! *Method.* Winds and heights are staggered (Arakawa's grid C). Momentum is in vector-invariant
//! form with Sadourny's fluxes of vorticity. Heights are in flux form, so mass is conserved up to
//! rounding. The time scheme is leapfrog, semi-implicit for gravity waves, with the Robert–Asselin
//! filter. Columns converge towards the poles. Poleward of 60°, a filter therefore damps in each
//! step the waves that are shorter than about the shortest wave at 60°. A weak viscosity damps the
//! shortest waves within a day (jets: five days), and does not affect solid rotation. Three tracers
//! are carried by the winds, as CAM carries water vapour, liquid water and ice; so the border of a
//! row has CAM's five quantities. Levels are independent layers
//! with different winds. They make messages as large as in a model with coupled levels.
//!
//! Every number is computed in the same order for any number of ranks. With lossless messages, all
//! runs therefore have the bits of a run on one rank.
//!
//! Sources: D. Williamson et al., "A standard test set for numerical approximations to the shallow
//! water equations in spherical geometry", J. Comput. Phys. 102 (1992); R. Sadourny, J. Atmos. Sci.
//! 32 (1975); A. Arakawa and V. Lamb, Methods in Comput. Phys. 17 (1977).

mod band;
mod case;
mod dynamics;
mod fields;
mod fourier;
mod implicit;
mod jets;
#[cfg(test)]
mod tests;

use std::f64::consts::PI;

pub use band::Band;
pub use case::TestCase;
pub use fields::State;

/// Radius of the sphere in m.
const RADIUS: f64 = 6.371_22e6;
/// Angular velocity in rad/s.
const ROTATION: f64 = 7.292e-5;
/// Acceleration in m/s².
const GRAVITY: f64 = 9.806_16;
/// Seconds per step on a grid of 64 rows. The step is inversely proportional to the number of rows.
const STEP_OF_64: f64 = 1200.0;
/// Number of tracers.
const N_TRACERS: usize = 3;

/// Kinds of halo exchanges. A step makes one of each kind, in this order. A message can therefore
/// be compressed relative to the message of the same kind in the previous step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HaloKind {
    /// New northward winds, before the gradient of the new heights is added. Sent to the south
    /// only.
    Flow,
    /// New heights.
    Heights,
    /// New winds, and the tracers that they carry.
    Winds,
}

/// Direction of a transposition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TransposeDirection {
    /// From rows to wavenumbers.
    ToWaves,
    /// From wavenumbers to rows.
    ToRows,
}

/// Communication that a [`Band`] needs.
pub trait SphereExchange {
    /// Error of a failed exchange.
    type Error;

    /// Sends the two arrays of `own` to the southern and the northern neighbour, and receives the
    /// arrays of `theirs` from them. A rank at a pole lacks one neighbour. Empty arrays are not
    /// sent.
    ///
    /// # Errors
    /// The errors of the network.
    fn halo(
        &mut self,
        halo: HaloKind,
        own: [&[f64]; 2],
        theirs: [&mut [f64]; 2],
    ) -> Result<(), Self::Error>;

    /// Sends each rank its block of `send`, and receives one block from each. `send` and `recv` are
    /// the values and the length of each rank's block.
    ///
    /// # Errors
    /// The errors of the network.
    fn transpose(
        &mut self,
        direction: TransposeDirection,
        send: (&[f64], &[usize]),
        recv: (&mut [f64], &[usize]),
    ) -> Result<(), Self::Error>;
}

/// A single rank, which has all rows.
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

/// The grid, and everything that stays the same in all steps.
#[derive(Debug)]
pub struct Sphere {
    n_rows: usize,
    n_columns: usize,
    n_levels: usize,
    case: TestCase,
    /// Distance between rows and between columns, in radians.
    spacing: [f64; 2],
    /// Cosines of latitude, from the south: at the centres and at the southern faces of rows. Both
    /// tables have an extra entry at each end, so that a band and its halos share one index.
    cos_centre: Vec<f64>,
    cos_face: Vec<f64>,
    /// Coriolis parameter at southern faces.
    coriolis: Vec<f64>,
    /// In m²/s.
    viscosity: f64,
    /// Largest initial height in m. It determines the speed of the fastest gravity waves.
    depth: f64,
}

impl Sphere {
    /// A grid with these rows, columns and levels. `None` if it has fewer than 4 rows, fewer than 8
    /// columns, an odd number of columns, or no level.
    #[must_use]
    pub fn new([n_rows, n_columns]: [usize; 2], n_levels: usize, case: TestCase) -> Option<Self> {
        let is_valid = n_rows >= 4 && n_columns >= 8 && n_columns.is_multiple_of(2) && n_levels > 0;
        if !is_valid {
            return None;
        }
        let spacing = [PI / n_rows as f64, 2.0 * PI / n_columns as f64];
        // In these tables, row 1 is the southernmost.
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
            // Rows beyond a pole do not exist. Their cosine may have any value but zero, because it
            // is a divisor.
            cos_centre: rows.clone().map(|row| centre(row).cos().abs()).collect(),
            cos_face: rows
                .clone()
                .map(|row| if is_inner(&row) { face(row).cos() } else { 0.0 })
                .collect(),
            coriolis: rows.map(|row| 2.0 * ROTATION * face(row).sin()).collect(),
            viscosity: (RADIUS * spacing[1] / PI).powi(2) / case.damping(),
            depth: 0.0,
        };
        let heights = (0..n_rows).flat_map(|row| sphere.initial_heights(row));
        sphere.depth = heights.fold(0.0, f64::max);
        Some(sphere)
    }

    /// Number of rows, which ranks divide.
    #[must_use]
    pub const fn n_rows(&self) -> usize {
        self.n_rows
    }

    /// Duration of a step in seconds.
    #[must_use]
    pub fn seconds_of_step(&self) -> f64 {
        STEP_OF_64 * 64.0 / self.n_rows as f64
    }

    /// The state at the beginning.
    #[must_use]
    pub fn initial(&self) -> State {
        State::initial(self)
    }

    /// The state `n_steps` steps after the beginning, computed on one rank. Calls `each` after each
    /// step.
    #[must_use]
    pub fn state_after(&self, n_steps: usize, mut each: impl FnMut()) -> State {
        let mut band = Band::new(self, 1, 0, &self.initial());
        for _ in 0..n_steps {
            let Ok(()) = band.step(&mut SingleRank);
            each();
        }
        band.into_state()
    }

    /// The band of one rank of `size`, which starts from `state`. `None` if there are fewer rows
    /// than ranks.
    #[must_use]
    pub fn band(&self, size: usize, rank: usize, state: &State) -> Option<Band<'_>> {
        (size <= self.n_rows).then(|| Band::new(self, size, rank, state))
    }

    /// Volume of water on all levels in m³, from the heights of all rows.
    #[must_use]
    pub fn mass(&self, heights: &[f64]) -> f64 {
        self.integral(heights.iter().copied())
    }

    /// Root mean square difference of two height fields, weighted by area, in m.
    #[must_use]
    pub fn rms(&self, heights: &[f64], others: &[f64]) -> f64 {
        let squares = heights.iter().zip(others).map(|(a, b)| (a - b).powi(2));
        (self.integral(squares) / self.integral(heights.iter().map(|_| 1.0))).sqrt()
    }

    /// Integral over the sphere and all levels.
    fn integral(&self, values: impl Iterator<Item = f64>) -> f64 {
        let n_each = self.n_columns * self.n_levels;
        let area = |row: usize| {
            RADIUS * RADIUS * self.cos_centre[row + 1] * self.spacing[0] * self.spacing[1]
        };
        values.enumerate().map(|(at, value)| value * area(at / n_each)).sum()
    }

    /// Latitudes of a row's southern face and of its centre. Row 0 is the southernmost.
    fn latitudes(&self, row: usize) -> [f64; 2] {
        let face = -PI / 2.0 + row as f64 * self.spacing[0];
        [face, face + self.spacing[0] / 2.0]
    }
}
