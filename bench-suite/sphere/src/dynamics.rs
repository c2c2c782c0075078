//! Tendencies of one level: the change of winds and heights per second. All terms but
//! viscosity are those of the current step. `band` then corrects the terms of gravity waves to the
//! semi-implicit scheme.
//!
//! In the cell of row r and column i, the centre holds height, kinetic energy and divergence. The
//! western face holds the eastward wind, and the southern face the northward wind. The
//! south-western corner holds the vorticity.
//!
//! Row 0 of a band is its southern halo. Row r of the band is entry `own.start + r` in the sphere's
//! tables, and row `own.start + r - 1` of the sphere.

use std::f64::consts::PI;
use std::ops::Range;

use super::fields::Fields;
use super::{GRAVITY, N_TRACERS, RADIUS, Sphere, TestCase, jets};

/// One value per point of a band's rows and halos, for one level.
#[derive(Debug, Clone)]
pub(super) struct LevelField {
    values: Vec<f64>,
    n_columns: usize,
}

impl LevelField {
    fn new(n_rows: usize, n_columns: usize) -> Self {
        Self { values: vec![0.0; n_rows * n_columns], n_columns }
    }

    pub(super) fn row(&self, row: usize) -> &[f64] {
        &self.values[row * self.n_columns..][..self.n_columns]
    }

    pub(super) fn row_mut(&mut self, row: usize) -> &mut [f64] {
        &mut self.values[row * self.n_columns..][..self.n_columns]
    }
}

/// Tendencies and the quantities that they are computed from.
#[derive(Debug)]
pub(super) struct Dynamics<'s> {
    sphere: &'s Sphere,
    /// Rows of the band.
    own: Range<usize>,
    /// Height of the ground, halos included.
    ground: LevelField,
    /// Eastward flux of water at the current step.
    to_east: LevelField,
    /// Northward flux of water at the current step, times the cosine of latitude.
    to_north: LevelField,
    /// Potential vorticity at the current step: absolute vorticity / height.
    potential_vorticity: LevelField,
    /// Kinetic plus potential energy at the current step.
    energy: LevelField,
    /// Quantities of the previous step, for viscosity.
    divergence: LevelField,
    vorticity: LevelField,
    /// Tendencies of the band's rows.
    pub(super) east: LevelField,
    pub(super) north: LevelField,
    pub(super) height: LevelField,
    pub(super) tracers: [LevelField; N_TRACERS],
}

impl<'s> Dynamics<'s> {
    pub(super) fn new(sphere: &'s Sphere, own: Range<usize>) -> Self {
        let plane = || LevelField::new(own.len() + 2, sphere.n_columns);
        let mut ground = plane();
        for row in 0..own.len() + 2 {
            let of_sphere = (own.start + row).saturating_sub(1).min(sphere.n_rows - 1);
            let heights = sphere.ground(of_sphere);
            ground.row_mut(row).iter_mut().zip(heights).for_each(|(x, height)| *x = height);
        }
        Self {
            ground,
            to_east: plane(),
            to_north: plane(),
            potential_vorticity: plane(),
            energy: plane(),
            divergence: plane(),
            vorticity: plane(),
            east: plane(),
            north: plane(),
            height: plane(),
            tracers: [(); N_TRACERS].map(|()| plane()),
            sphere,
            own,
        }
    }

    /// Computes the tendencies of one level.
    pub(super) fn compute(&mut self, level: usize, now: &Fields, old: &Fields) {
        let n = self.sphere.n_columns;
        let n_own = self.own.len();
        for row in 0..n_own + 2 {
            let (east, height) = (now.east(row, level), now.height(row, level));
            for (i, flux) in self.to_east.row_mut(row).iter_mut().enumerate() {
                *flux = 0.5 * (height[i] + height[west(i, n)]) * east[i];
            }
        }
        for row in 1..n_own + 2 {
            let cos = self.sphere.cos_face[self.own.start + row];
            let coriolis = self.sphere.coriolis[self.own.start + row];
            let (north, height) = (now.north(row, level), now.height(row, level));
            let south = now.height(row - 1, level);
            for (i, flux) in self.to_north.row_mut(row).iter_mut().enumerate() {
                *flux = 0.5 * (height[i] + south[i]) * north[i] * cos;
            }
            vorticity(self.sphere, self.own.start, row, level, now, &mut self.potential_vorticity);
            vorticity(self.sphere, self.own.start, row, level, old, &mut self.vorticity);
            for (i, vorticity) in self.potential_vorticity.row_mut(row).iter_mut().enumerate() {
                let w = west(i, n);
                let around = height[i] + height[w] + south[i] + south[w];
                *vorticity = 4.0 * (*vorticity + coriolis) / around;
            }
        }
        for row in 0..=n_own {
            self.row_of_energy(row, level, now);
            divergence(self.sphere, self.own.start, row, level, old, self.divergence.row_mut(row));
        }
        for row in 1..=n_own {
            self.row_of_tendencies(row, level, old);
            if self.sphere.case == TestCase::Jets {
                self.drive(row, level, old);
            }
            for tracer in 0..N_TRACERS {
                self.row_of_tracer(row, tracer, level, now, old);
            }
        }
    }

    /// Adds the force that keeps the jets unstable: it pulls the mean wind of a row back to the
    /// jet, and damps what departs from the mean.
    fn drive(&mut self, row: usize, level: usize, old: &Fields) {
        let [_, latitude] = self.sphere.latitudes(self.own.start + row - 1);
        let jet = jets::wind(self.sphere.strength(level), latitude);
        let (east, north) = (old.east(row, level), old.north(row, level));
        let mean = east.iter().sum::<f64>() / east.len() as f64;
        for (tendency, east) in self.east.row_mut(row).iter_mut().zip(east) {
            *tendency += jets::PULL * (jet - mean) + jets::DRAG * (mean - east);
        }
        for (tendency, north) in self.north.row_mut(row).iter_mut().zip(north) {
            *tendency -= jets::DRAG * north;
        }
    }

    /// Computes a tracer's tendencies in a row: it is carried by the wind, and viscosity spreads
    /// it. Both are differences of fluxes, so its amount is conserved.
    fn row_of_tracer(
        &mut self,
        row: usize,
        tracer: usize,
        level: usize,
        now: &Fields,
        old: &Fields,
    ) {
        let sphere = self.sphere;
        let n = sphere.n_columns;
        let at = self.own.start + row;
        let [d_lat, d_lon] = sphere.spacing;
        let (cos, viscosity) = (sphere.cos_centre[at], sphere.viscosity);
        let [south, own, north] = [row - 1, row, row + 1].map(|row| now.tracer(row, tracer, level));
        let [old_south, old_own, old_north] =
            [row - 1, row, row + 1].map(|row| old.tracer(row, tracer, level));
        let east = now.east(row, level);
        let [v_south, v_north] = [row, row + 1].map(|row| now.north(row, level));
        let [cos_south, cos_north] = [sphere.cos_face[at], sphere.cos_face[at + 1]];
        let to_east = |i: usize| {
            let w = west(i, n);
            0.5 * (own[i] + own[w]) * east[i]
                - viscosity * (old_own[i] - old_own[w]) / (RADIUS * cos * d_lon)
        };
        let spread = viscosity / (RADIUS * d_lat);
        for (i, tendency) in self.tracers[tracer].row_mut(row).iter_mut().enumerate() {
            let from_south =
                0.5 * (south[i] + own[i]) * v_south[i] - spread * (old_own[i] - old_south[i]);
            let to_north =
                0.5 * (own[i] + north[i]) * v_north[i] - spread * (old_north[i] - old_own[i]);
            let out = (to_east(next(i, n)) - to_east(i)) / d_lon
                + (cos_north * to_north - cos_south * from_south) / d_lat;
            *tendency = -out / (RADIUS * cos);
        }
    }

    /// Computes the energy of a row.
    fn row_of_energy(&mut self, row: usize, level: usize, now: &Fields) {
        let n = self.sphere.n_columns;
        let at = self.own.start + row;
        let cos = self.sphere.cos_centre[at];
        let shares = [self.sphere.cos_face[at], self.sphere.cos_face[at + 1]].map(|x| x / cos);
        let (east, height) = (now.east(row, level), now.height(row, level));
        let (south, north) = (now.north(row, level), now.north(row + 1, level));
        let ground = self.ground.row(row);
        for (i, energy) in self.energy.row_mut(row).iter_mut().enumerate() {
            let of_east = east[i] * east[i] + east[next(i, n)] * east[next(i, n)];
            let of_north = shares[0] * south[i] * south[i] + shares[1] * north[i] * north[i];
            *energy = GRAVITY * (height[i] + ground[i]) + 0.25 * (of_east + of_north);
        }
    }

    /// Computes the tendencies of a row.
    fn row_of_tendencies(&mut self, row: usize, level: usize, old: &Fields) {
        let Self {
            sphere,
            to_east,
            to_north,
            potential_vorticity,
            energy,
            divergence,
            vorticity,
            ..
        } = self;
        let n = sphere.n_columns;
        let at = self.own.start + row;
        let (cos, cos_face) = (sphere.cos_centre[at], sphere.cos_face[at]);
        let [d_lat, d_lon] = sphere.spacing;
        // Extent of a cell in metres, from west to east and from south to north.
        let (west_east, south_north) = (RADIUS * cos * d_lon, RADIUS * d_lat);
        let viscosity = sphere.viscosity;
        // Compensates the vorticity of solid rotation, which viscosity must not damp.
        let rotation = 2.0 / (RADIUS * RADIUS);

        let (q, q_north) = (potential_vorticity.row(row), potential_vorticity.row(row + 1));
        // Fluxes: h times the winds u and v. The northward one includes the cosine.
        let (hv, hv_north) = (to_north.row(row), to_north.row(row + 1));
        let (hu, hu_south) = (to_east.row(row), to_east.row(row - 1));
        let (e, e_south) = (energy.row(row), energy.row(row - 1));
        let (d, d_south) = (divergence.row(row), divergence.row(row - 1));
        let (z, z_north) = (vorticity.row(row), vorticity.row(row + 1));
        let (east, north) = (old.east(row, level), old.north(row, level));

        for (i, tendency) in self.east.row_mut(row).iter_mut().enumerate() {
            let w = west(i, n);
            // Absolute vorticity times v, as potential vorticity times flux: the Coriolis force
            // and, with the gradient of the kinetic energy, advection.
            let vorticity_flux =
                0.25 * (q[i] * (hv[i] + hv[w]) + q_north[i] * (hv_north[i] + hv_north[w]));
            let friction =
                (d[i] - d[w]) / west_east - (z_north[i] - z[i]) / south_north + rotation * east[i];
            *tendency = vorticity_flux / cos - (e[i] - e[w]) / west_east + viscosity * friction;
        }
        for (i, tendency) in self.north.row_mut(row).iter_mut().enumerate() {
            // No wind blows across a pole.
            if cos_face == 0.0 {
                *tendency = 0.0;
                continue;
            }
            let x = next(i, n);
            let vorticity_flux =
                0.25 * (q[i] * (hu[i] + hu_south[i]) + q[x] * (hu[x] + hu_south[x]));
            let friction = (d[i] - d_south[i]) / south_north
                + (z[x] - z[i]) / (RADIUS * cos_face * d_lon)
                + rotation * north[i];
            *tendency = viscosity * friction - vorticity_flux - (e[i] - e_south[i]) / south_north;
        }
        for (i, tendency) in self.height.row_mut(row).iter_mut().enumerate() {
            let out = (hu[next(i, n)] - hu[i]) / d_lon + (hv_north[i] - hv[i]) / d_lat;
            *tendency = -out / (RADIUS * cos);
        }
    }
}

/// Computes the vorticity at the south-western corners of a row of the band that begins at `start`.
fn vorticity(
    sphere: &Sphere,
    start: usize,
    row: usize,
    level: usize,
    fields: &Fields,
    out: &mut LevelField,
) {
    let n = sphere.n_columns;
    let face = start + row;
    let [d_lat, d_lon] = sphere.spacing;
    let (north, south) = (fields.east(row, level), fields.east(row - 1, level));
    let [cos_north, cos_south] = [sphere.cos_centre[face], sphere.cos_centre[face - 1]];
    let cos = sphere.cos_face[face];
    let out = out.row_mut(row);
    if cos == 0.0 {
        // At a pole: the circulation along the nearest row, divided by the area of the polar cap.
        let is_south = face == 1;
        let (around, sign) = if is_south { (north, -1.0) } else { (south, 1.0) };
        let mean = around.iter().sum::<f64>() / n as f64;
        let cap_height = 1.0 - (PI / 2.0 - d_lat / 2.0).sin();
        out.fill(sign * mean * (d_lat / 2.0).sin() / (RADIUS * cap_height));
        return;
    }
    let v = fields.north(row, level);
    for (i, out) in out.iter_mut().enumerate() {
        let of_north = (v[i] - v[west(i, n)]) / d_lon;
        let of_east = (cos_north * north[i] - cos_south * south[i]) / d_lat;
        *out = (of_north - of_east) / (RADIUS * cos);
    }
}

/// Computes the divergence of the winds of a row of the band that begins at `start`.
pub(super) fn divergence(
    sphere: &Sphere,
    start: usize,
    row: usize,
    level: usize,
    fields: &Fields,
    out: &mut [f64],
) {
    let n = sphere.n_columns;
    let at = start + row;
    let [d_lat, d_lon] = sphere.spacing;
    let [cos_south, cos_north] = [sphere.cos_face[at], sphere.cos_face[at + 1]];
    let length = RADIUS * sphere.cos_centre[at];
    let u = fields.east(row, level);
    let (south, north) = (fields.north(row, level), fields.north(row + 1, level));
    for (i, out) in out.iter_mut().enumerate() {
        let of_east = (u[next(i, n)] - u[i]) / d_lon;
        *out = (of_east + (north[i] * cos_north - south[i] * cos_south) / d_lat) / length;
    }
}

/// Column to the west, around the sphere.
pub(super) const fn west(column: usize, n_columns: usize) -> usize {
    if column == 0 { n_columns - 1 } else { column - 1 }
}

const fn next(column: usize, n_columns: usize) -> usize {
    if column + 1 == n_columns { 0 } else { column + 1 }
}
