//! One rank's rows, and a time step of them.

use std::ops::Range;

use foldwire::layout::share;

use super::dynamics::{Dynamics, divergence, west};
use super::fields::{Fields, State};
use super::fourier::{Fourier, polar_factors};
use super::implicit::Implicit;
use super::{GRAVITY, HaloKind, N_TRACERS, RADIUS, Sphere, SphereExchange};

/// Coefficient of the Robert–Asselin filter, which damps the oscillation of the leapfrog scheme.
const ASSELIN: f64 = 0.05;

/// A band: the rows of one rank.
pub struct Band<'s> {
    sphere: &'s Sphere,
    own: Range<usize>,
    /// Fields at the previous, the current and the next step.
    old: Fields,
    now: Fields,
    new: Fields,
    n_steps: usize,
    dynamics: Dynamics<'s>,
    implicit: Implicit<'s>,
    fourier: Fourier,
    /// Filter factors for waves near the poles, for each row of the band: at its centre, and at its
    /// southern face. `None` where nothing is filtered.
    filters: Vec<[Option<Vec<f64>>; 2]>,
    /// Divergence of the winds in one level of a row, at the three steps.
    divergences: [Vec<f64>; 3],
}

impl<'s> Band<'s> {
    pub(super) fn new(sphere: &'s Sphere, size: usize, rank: usize, state: &State) -> Self {
        let own = share(sphere.n_rows, size, rank);
        let [old, now] = state.band(&own);
        let filter = |cos: f64| polar_factors(cos, sphere.n_columns);
        let filters = (own.start + 1..=own.end)
            .map(|at| [filter(sphere.cos_centre[at]), filter(sphere.cos_face[at])])
            .collect();
        Self {
            new: now.clone(),
            old,
            now,
            n_steps: state.n_steps,
            dynamics: Dynamics::new(sphere, own.clone()),
            implicit: Implicit::new(sphere, size, rank),
            fourier: Fourier::new(sphere.n_columns),
            filters,
            divergences: [(); 3].map(|()| vec![0.0; sphere.n_columns]),
            sphere,
            own,
        }
    }

    /// Heights of this rank's rows, from south to north. Each row holds all levels.
    #[must_use]
    pub fn heights(&self) -> &[f64] {
        &self.now.heights[self.own_heights()]
    }

    /// The state, if this band is all rows.
    pub(super) fn into_state(self) -> State {
        State { fields: [self.old, self.now], n_steps: self.n_steps }
    }

    /// Tracers of this rank's rows, from south to north. Each row holds all levels of the first
    /// tracer, then those of the next one.
    #[must_use]
    pub fn tracers(&self) -> Vec<f64> {
        let rows = self.now.carried.chunks_exact(self.now.n_carried()).skip(1).take(self.own.len());
        rows.flat_map(|row| row[2 * self.now.n_each()..].to_vec()).collect()
    }

    /// Computes a time step together with all other ranks.
    ///
    /// # Errors
    /// The errors of `net`. The band cannot be used after an error.
    pub fn step<E: SphereExchange>(&mut self, net: &mut E) -> Result<(), E::Error> {
        // The first step has no previous state. It starts from the initial state alone, with half
        // the step length.
        let is_first = self.n_steps == 0;
        let dt = self.sphere.seconds_of_step() * if is_first { 0.5 } else { 1.0 };
        self.explicit(dt);
        self.exchange_flow(net)?;
        self.update_heights(dt);
        let own = self.own_heights();
        let heights = &mut self.new.heights[own];
        let epsilon = dt * dt * GRAVITY * self.sphere.depth;
        self.implicit.solve(epsilon, heights, &mut self.fourier, net)?;
        for (nth, line) in heights.chunks_exact_mut(self.sphere.n_columns).enumerate() {
            if let [Some(factors), _] = &self.filters[nth / self.sphere.n_levels] {
                self.fourier.filter(factors, line);
            }
        }
        exchange_rows(net, HaloKind::Heights, &mut self.new.heights, self.now.n_each())?;
        self.add_new_gradient(dt);
        exchange_rows(net, HaloKind::Winds, &mut self.new.carried, self.now.n_carried())?;
        if !is_first {
            robert_asselin(&self.old.carried, &mut self.now.carried, &self.new.carried);
            robert_asselin(&self.old.heights, &mut self.now.heights, &self.new.heights);
        }
        std::mem::swap(&mut self.old, &mut self.now);
        std::mem::swap(&mut self.now, &mut self.new);
        self.n_steps += 1;
        Ok(())
    }

    fn own_heights(&self) -> Range<usize> {
        let n_heights = self.now.n_each();
        n_heights..n_heights * (1 + self.own.len())
    }

    /// Computes the new winds without the gradient of the new heights, and the new heights without
    /// the divergence of the new winds.
    fn explicit(&mut self, dt: f64) {
        for level in 0..self.sphere.n_levels {
            self.dynamics.compute(level, &self.now, &self.old);
            for row in 1..=self.own.len() {
                let Self { old, now, new, dynamics, .. } = self;
                let advance = |new: &mut [f64], old: &[f64], tendencies: &[f64]| {
                    for ((new, old), tendency) in new.iter_mut().zip(old).zip(tendencies) {
                        *new = old + 2.0 * dt * tendency;
                    }
                };
                advance(new.east_mut(row, level), old.east(row, level), dynamics.east.row(row));
                advance(new.north_mut(row, level), old.north(row, level), dynamics.north.row(row));
                advance(
                    new.height_mut(row, level),
                    old.height(row, level),
                    dynamics.height.row(row),
                );
                for tracer in 0..N_TRACERS {
                    advance(
                        new.tracer_mut(row, tracer, level),
                        old.tracer(row, tracer, level),
                        dynamics.tracers[tracer].row(row),
                    );
                }
                // The gravity term of the previous and the current step, with the weights of the
                // semi-implicit scheme.
                let weighed = |old: &Fields, now: &Fields, row: usize| -> Vec<f64> {
                    let both = old.height(row, level).iter().zip(now.height(row, level));
                    both.map(|(old, now)| old - 2.0 * now).collect()
                };
                let [south, own] = [row - 1, row].map(|row| weighed(old, now, row));
                self.add_gradient(row, level, dt, &south, &own);
            }
        }
    }

    /// Adds −dt·g times the gradient of the given heights to the new winds of a row.
    fn add_gradient(&mut self, row: usize, level: usize, dt: f64, south: &[f64], own: &[f64]) {
        let Self { sphere, new, .. } = self;
        let at = self.own.start + row;
        let [d_lat, d_lon] = sphere.spacing;
        let across = dt * GRAVITY / (RADIUS * sphere.cos_centre[at] * d_lon);
        for (i, east) in new.east_mut(row, level).iter_mut().enumerate() {
            *east -= across * (own[i] - own[west(i, sphere.n_columns)]);
        }
        // No wind blows across a pole.
        if sphere.cos_face[at] > 0.0 {
            let along = dt * GRAVITY / (RADIUS * d_lat);
            for ((north, own), south) in new.north_mut(row, level).iter_mut().zip(own).zip(south) {
                *north -= along * (own - south);
            }
        }
    }

    /// Sends the northward winds of the first row to the southern neighbour.
    fn exchange_flow<E: SphereExchange>(&mut self, net: &mut E) -> Result<(), E::Error> {
        let (n_carried, n_each) = (self.now.n_carried(), self.now.n_each());
        let (rows, north) = self.new.carried.split_at_mut(n_carried * (1 + self.own.len()));
        let own = &rows[n_carried + n_each..][..n_each];
        net.halo(HaloKind::Flow, [own, &[]], [&mut [], &mut north[n_each..2 * n_each]])
    }

    /// Subtracts the divergence of the winds, with the weights of the semi-implicit scheme, from
    /// the new heights.
    fn update_heights(&mut self, dt: f64) {
        let Self { sphere, old, now, new, divergences, .. } = self;
        let start = self.own.start;
        let factor = dt * sphere.depth;
        for row in 1..=self.own.len() {
            for level in 0..sphere.n_levels {
                for (fields, out) in [&*old, &*now, &*new].into_iter().zip(&mut *divergences) {
                    divergence(sphere, start, row, level, fields, out);
                }
                let [before, middle, after] = &*divergences;
                for (i, height) in new.height_mut(row, level).iter_mut().enumerate() {
                    *height -= factor * (after[i] - 2.0 * middle[i] + before[i]);
                }
            }
        }
    }

    /// Adds the gradient of the new heights, which completes the new winds. Then filters the winds
    /// and the tracers.
    fn add_new_gradient(&mut self, dt: f64) {
        for row in 1..=self.own.len() {
            for level in 0..self.sphere.n_levels {
                let [south, own] = [row - 1, row].map(|row| self.new.height(row, level).to_vec());
                self.add_gradient(row, level, dt, &south, &own);
                let [centre, face] = &self.filters[row - 1];
                if let Some(factors) = centre {
                    self.fourier.filter(factors, self.new.east_mut(row, level));
                    for tracer in 0..N_TRACERS {
                        self.fourier.filter(factors, self.new.tracer_mut(row, tracer, level));
                    }
                }
                if let Some(factors) = face {
                    self.fourier.filter(factors, self.new.north_mut(row, level));
                }
            }
        }
    }
}

/// Sends the outermost rows, of `n_values` each, to the neighbours and receives theirs.
fn exchange_rows<E: SphereExchange>(
    net: &mut E,
    halo: HaloKind,
    rows: &mut [f64],
    n_values: usize,
) -> Result<(), E::Error> {
    let (south, rest) = rows.split_at_mut(n_values);
    let (own, north) = rest.split_at_mut(rest.len() - n_values);
    let ends = [&own[..n_values], &own[own.len() - n_values..]];
    net.halo(halo, ends, [south, north])
}

/// Applies the Robert–Asselin filter to the middle of three steps.
fn robert_asselin(old: &[f64], now: &mut [f64], new: &[f64]) {
    for ((now, old), new) in now.iter_mut().zip(old).zip(new) {
        *now += ASSELIN * (new - 2.0 * *now + old);
    }
}
