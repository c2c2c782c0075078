//! Initial states: three of Williamson's test cases. The crate's documentation names the paper.
//!
//! In this file, row 0 is the southernmost.

use std::f64::consts::PI;

use super::{GRAVITY, N_TRACERS, RADIUS, ROTATION, Sphere, jets};

/// Initial state of the flow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TestCase {
    /// Test case 2: a steady zonal flow.
    Steady,
    /// Test case 5: a zonal flow across a mountain.
    Mountain,
    /// Test case 6: a Rossby–Haurwitz wave of wavenumber 4.
    Wave,
    /// Two unstable jets, driven so that they stay unstable (`jets`).
    Jets,
}

/// Wavenumber of [`TestCase::Wave`].
const R: i32 = 4;

impl TestCase {
    /// Eastward and northward winds in m/s, and the height of the water surface in m. `strength`
    /// multiplies the winds. Angles are in radians.
    fn state(self, strength: f64, latitude: f64, longitude: f64) -> [f64; 3] {
        let (sin, cos) = latitude.sin_cos();
        let zonal = |wind: f64, height: f64| {
            let slope = (RADIUS * ROTATION + wind / 2.0) * wind / GRAVITY;
            [wind * cos, 0.0, height - slope * sin * sin]
        };
        match self {
            Self::Steady => {
                zonal(strength * 2.0 * PI * RADIUS / (12.0 * 86_400.0), 2.94e4 / GRAVITY)
            }
            Self::Mountain => zonal(strength * 20.0, 5960.0),
            Self::Jets => {
                [jets::wind(strength, latitude), 0.0, jets::height(strength, latitude, longitude)]
            }
            Self::Wave => {
                // The paper's ω and K, which are equal. `a`, `b` and `c` below are its A, B and C.
                let k = strength * 7.848e-6;
                let (r, wave) = (f64::from(R), f64::from(R) * longitude);
                let radial = cos.powi(R - 1);
                let east = k * cos + k * radial * (r * sin * sin - cos * cos) * wave.cos();
                let north = -k * r * radial * sin * wave.sin();
                let a = k / 2.0 * (2.0 * ROTATION + k) * cos * cos
                    + k * k / 4.0
                        * (cos.powi(2 * R) * ((r + 1.0) * cos * cos + 2.0 * r * r - r - 2.0)
                            - 2.0 * r * r * cos.powi(2 * R - 2));
                let b = 2.0 * (ROTATION + k) * k / ((r + 1.0) * (r + 2.0))
                    * cos.powi(R)
                    * (r * r + 2.0 * r + 2.0 - (r + 1.0).powi(2) * cos * cos);
                let c = k * k / 4.0 * cos.powi(2 * R) * ((r + 1.0) * cos * cos - (r + 2.0));
                let rise = a + b * wave.cos() + c * (2.0 * wave).cos();
                [RADIUS * east, RADIUS * north, 8000.0 + RADIUS * RADIUS * rise / GRAVITY]
            }
        }
    }

    /// Time in seconds in which viscosity damps the shortest waves.
    pub(super) const fn damping(self) -> f64 {
        match self {
            Self::Jets => 5.0 * 86_400.0,
            _ => 86_400.0,
        }
    }

    /// Height of the ground in m.
    fn ground(self, latitude: f64, longitude: f64) -> f64 {
        // Radius of the mountain, in radians.
        let reach = PI / 9.0;
        let squares = (longitude - 1.5 * PI).powi(2) + (latitude - PI / 6.0).powi(2);
        match self {
            Self::Mountain => 2000.0 * (1.0 - squares.sqrt().min(reach) / reach),
            _ => 0.0,
        }
    }
}

impl Sphere {
    /// Factor of a level's winds, relative to the test case: 1 at level 0, and smaller at the
    /// others.
    pub(super) fn strength(&self, level: usize) -> f64 {
        1.0 - 0.3 * level as f64 / self.n_levels as f64
    }

    fn levels_and_columns(&self) -> impl Iterator<Item = (usize, usize)> {
        let n_columns = self.n_columns;
        (0..self.n_levels).flat_map(move |level| (0..n_columns).map(move |column| (level, column)))
    }

    /// Heights of a row's levels, at the centres of cells.
    pub(super) fn initial_heights(&self, row: usize) -> impl Iterator<Item = f64> {
        let [_, latitude] = self.latitudes(row);
        self.levels_and_columns().map(move |(level, column)| {
            let longitude = (column as f64 + 0.5) * self.spacing[1];
            let [.., surface] = self.case.state(self.strength(level), latitude, longitude);
            surface - self.case.ground(latitude, longitude)
        })
    }

    /// Eastward winds of a row's levels at western faces, then northward winds at southern faces.
    pub(super) fn initial_winds(&self, row: usize) -> Vec<f64> {
        let [face, centre] = self.latitudes(row);
        let east = self.levels_and_columns().map(|(level, column)| {
            let longitude = column as f64 * self.spacing[1];
            self.case.state(self.strength(level), centre, longitude)[0]
        });
        let north = self.levels_and_columns().map(|(level, column)| {
            let longitude = (column as f64 + 0.5) * self.spacing[1];
            // No wind blows across a pole.
            if row == 0 { 0.0 } else { self.case.state(self.strength(level), face, longitude)[1] }
        });
        east.chain(north).collect()
    }

    /// Tracers of a row, each with all levels, at the centres of cells: one that is high in the
    /// north, one that is high in the east, and a patch in the tropics.
    pub(super) fn initial_tracers(&self, row: usize) -> Vec<f64> {
        let [_, latitude] = self.latitudes(row);
        let (sin, cos) = latitude.sin_cos();
        let of = |tracer: usize, longitude: f64| match tracer {
            0 => 2.0 + sin,
            1 => 2.0 + cos * longitude.sin(),
            _ => 1.0 + cos.powi(8) * (1.0 + longitude.cos()),
        };
        let layers = (0..N_TRACERS).map(|tracer| {
            self.levels_and_columns()
                .map(move |(_, column)| of(tracer, (column as f64 + 0.5) * self.spacing[1]))
        });
        layers.flatten().collect()
    }

    /// Height of the ground below a row, the same for all levels.
    pub(super) fn ground(&self, row: usize) -> impl Iterator<Item = f64> {
        let [_, latitude] = self.latitudes(row);
        let longitude = move |column: usize| (column as f64 + 0.5) * self.spacing[1];
        (0..self.n_columns).map(move |column| self.case.ground(latitude, longitude(column)))
    }
}
