//! Solution of the implicit equation of gravity waves: (1 − ε∇²) h = known terms, with ε =
//! Δt²·g·depth.
//!
//! A Fourier transform along longitude turns each row into coefficients. Each coefficient has its
//! own tridiagonal system along latitude, which its wavenumber determines. A first transposition
//! gives each rank some coefficients of all rows. The rank solves their systems. A second
//! transposition returns them to the ranks that own the rows.
//!
//! A *line* is one level of one row.

use std::ops::Range;

use foldwire::layout::share;

use super::fourier::Fourier;
use super::{RADIUS, Sphere, SphereExchange, TransposeDirection};

/// One rank's rows and coefficients.
pub(super) struct Implicit<'s> {
    sphere: &'s Sphere,
    /// Rows of each rank.
    rows: Vec<Range<usize>>,
    /// Coefficients that each rank solves for.
    waves: Vec<Range<usize>>,
    rank: usize,
    /// Coefficients of this rank's rows, ordered by coefficient, level and row.
    of_rows: Vec<f64>,
    /// This rank's coefficients of all rows, ordered by rank, coefficient, level and that rank's
    /// row.
    of_waves: Vec<f64>,
}

impl<'s> Implicit<'s> {
    pub(super) fn new(sphere: &'s Sphere, size: usize, rank: usize) -> Self {
        let of = |count: usize| (0..size).map(|rank| share(count, size, rank)).collect::<Vec<_>>();
        let (rows, waves) = (of(sphere.n_rows), of(sphere.n_columns));
        let n_levels = sphere.n_levels;
        Self {
            of_rows: vec![0.0; sphere.n_columns * n_levels * rows[rank].len()],
            of_waves: vec![0.0; waves[rank].len() * n_levels * sphere.n_rows],
            sphere,
            rows,
            waves,
            rank,
        }
    }

    /// Solves for the heights of this rank's rows in place, together with all other ranks.
    pub(super) fn solve<E: SphereExchange>(
        &mut self,
        epsilon: f64,
        heights: &mut [f64],
        fourier: &mut Fourier,
        net: &mut E,
    ) -> Result<(), E::Error> {
        let sphere = self.sphere;
        let Self { of_rows, of_waves, .. } = self;
        let (n_levels, n_own) = (sphere.n_levels, self.rows[self.rank].len());
        let place = |coefficient: usize, line: usize| {
            let (row, level) = (line / n_levels, line % n_levels);
            (coefficient * n_levels + level) * n_own + row
        };
        for (line, values) in heights.chunks_exact(sphere.n_columns).enumerate() {
            fourier.waves(values, |at, wave| of_rows[place(at, line)] = wave);
        }
        let n_waves = self.waves[self.rank].len();
        // Numbers of values to exchange with each rank r: r's coefficients of this rank's rows, and
        // this rank's coefficients of r's rows.
        let of_rows_lens: Vec<usize> =
            self.waves.iter().map(|waves| waves.len() * n_levels * n_own).collect();
        let of_waves_lens: Vec<usize> =
            self.rows.iter().map(|rows| n_waves * n_levels * rows.len()).collect();
        let direction = TransposeDirection::ToWaves;
        net.transpose(direction, (of_rows, &of_rows_lens), (of_waves, &of_waves_lens))?;
        self.solve_waves(epsilon);
        let Self { of_rows, of_waves, .. } = self;
        let direction = TransposeDirection::ToRows;
        net.transpose(direction, (of_waves, &of_waves_lens), (of_rows, &of_rows_lens))?;
        for (line, values) in heights.chunks_exact_mut(sphere.n_columns).enumerate() {
            fourier.row(|at| of_rows[place(at, line)], values);
        }
        Ok(())
    }

    /// Solves the systems of this rank's coefficients.
    fn solve_waves(&mut self, epsilon: f64) {
        let (n_rows, n_levels) = (self.sphere.n_rows, self.sphere.n_levels);
        let own = self.waves[self.rank].clone();
        let mut column = vec![0.0; n_rows];
        for (nth, coefficient) in own.enumerate() {
            let system = System::new(self.sphere, Fourier::wavenumber(coefficient), epsilon);
            for level in 0..n_levels {
                let line = nth * n_levels + level;
                // `of_waves` has a block for each rank, in order of ranks, with that rank's rows.
                let n_waves = self.waves[self.rank].len();
                let place = |rows: &Range<usize>| {
                    let start = n_waves * n_levels * rows.start + line * rows.len();
                    start..start + rows.len()
                };
                for rows in &self.rows {
                    column[rows.clone()].copy_from_slice(&self.of_waves[place(rows)]);
                }
                system.solve(&mut column);
                for rows in &self.rows {
                    self.of_waves[place(rows)].copy_from_slice(&column[rows.clone()]);
                }
            }
        }
    }
}

/// The tridiagonal system of one wavenumber, after the steps of Thomas's algorithm that do not
/// depend on the right-hand side.
struct System {
    /// Coefficient of each row's southern neighbour.
    south: Vec<f64>,
    /// Coefficient of each row's northern neighbour, after the elimination.
    north: Vec<f64>,
    /// 1 / pivot of each row.
    inverse: Vec<f64>,
}

impl System {
    fn new(sphere: &Sphere, wavenumber: usize, epsilon: f64) -> Self {
        let [d_lat, d_lon] = sphere.spacing;
        let wave = (2.0 * (wavenumber as f64 * d_lon / 2.0).sin() / d_lon).powi(2);
        let (mut south, mut north, mut inverse) = (Vec::new(), Vec::new(), Vec::new());
        let mut north_before = 0.0;
        for row in 1..=sphere.n_rows {
            let cos = sphere.cos_centre[row];
            let of_face =
                |face: usize| epsilon * sphere.cos_face[face] / (cos * (RADIUS * d_lat).powi(2));
            // Faces at the poles have length 0, so they add nothing.
            let (below, above) = (of_face(row), of_face(row + 1));
            let diagonal = 1.0 + below + above + epsilon * wave / (RADIUS * cos).powi(2);
            let inverse_pivot = 1.0 / (diagonal + below * north_before);
            north_before = -above * inverse_pivot;
            south.push(-below);
            north.push(north_before);
            inverse.push(inverse_pivot);
        }
        Self { south, north, inverse }
    }

    /// Replaces the right-hand side, one value per row, by the solution.
    fn solve(&self, column: &mut [f64]) {
        let mut before = 0.0;
        for ((x, south), inverse) in column.iter_mut().zip(&self.south).zip(&self.inverse) {
            before = (*x - south * before) * inverse;
            *x = before;
        }
        let mut after = 0.0;
        for (x, north) in column.iter_mut().zip(&self.north).rev() {
            after = *x - north * after;
            *x = after;
        }
    }
}
