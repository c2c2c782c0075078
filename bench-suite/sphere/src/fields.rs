//! Winds, tracers and heights of rows, and the state of all rows at one time.

use std::ops::Range;

use super::{N_TRACERS, Sphere};

/// Fields of a band's rows, with a halo row on each side.
///
/// In `carried`, a row holds the eastward winds of all levels, then the northward ones, then each
/// tracer. In `heights`, a row holds the heights of all levels.
#[derive(Debug, Clone)]
pub(super) struct Fields {
    pub(super) carried: Vec<f64>,
    pub(super) heights: Vec<f64>,
    n_levels: usize,
    n_columns: usize,
}

impl Fields {
    /// The initial state of all rows. Halos beyond a pole have no wind. Their other values are
    /// those of the row at the pole: arbitrary, but heights are divisors and must not be zero.
    fn initial(sphere: &Sphere) -> Self {
        let (n_levels, n_columns) = (sphere.n_levels, sphere.n_columns);
        let (mut carried, mut heights) = (Vec::new(), Vec::new());
        for at in 0..sphere.n_rows + 2 {
            // Entry `at` of the sphere's tables is row `at - 1` of the sphere.
            let row = at.saturating_sub(1).min(sphere.n_rows - 1);
            heights.extend(sphere.initial_heights(row));
            if (1..=sphere.n_rows).contains(&at) {
                carried.extend(sphere.initial_winds(row));
            } else {
                carried.resize(carried.len() + 2 * n_levels * n_columns, 0.0);
            }
            carried.extend(sphere.initial_tracers(row));
        }
        Self { carried, heights, n_levels, n_columns }
    }

    /// A band of these rows, which are all rows, with its halos.
    fn band(&self, own: &Range<usize>) -> Self {
        let rows = |values: &[f64], n_each: usize| {
            values[own.start * n_each..(own.end + 2) * n_each].to_vec()
        };
        Self {
            carried: rows(&self.carried, self.n_carried()),
            heights: rows(&self.heights, self.n_each()),
            ..*self
        }
    }

    pub(super) fn east(&self, row: usize, level: usize) -> &[f64] {
        &self.carried[self.of_carried(row, level)]
    }

    pub(super) fn north(&self, row: usize, level: usize) -> &[f64] {
        &self.carried[self.of_carried(row, self.n_levels + level)]
    }

    pub(super) fn tracer(&self, row: usize, tracer: usize, level: usize) -> &[f64] {
        &self.carried[self.of_carried(row, (2 + tracer) * self.n_levels + level)]
    }

    pub(super) fn height(&self, row: usize, level: usize) -> &[f64] {
        &self.heights[self.of_height(row, level)]
    }

    pub(super) fn east_mut(&mut self, row: usize, level: usize) -> &mut [f64] {
        let at = self.of_carried(row, level);
        &mut self.carried[at]
    }

    pub(super) fn north_mut(&mut self, row: usize, level: usize) -> &mut [f64] {
        let at = self.of_carried(row, self.n_levels + level);
        &mut self.carried[at]
    }

    pub(super) fn tracer_mut(&mut self, row: usize, tracer: usize, level: usize) -> &mut [f64] {
        let at = self.of_carried(row, (2 + tracer) * self.n_levels + level);
        &mut self.carried[at]
    }

    pub(super) fn height_mut(&mut self, row: usize, level: usize) -> &mut [f64] {
        let at = self.of_height(row, level);
        &mut self.heights[at]
    }

    /// Number of values of one quantity in a row, such as heights.
    pub(super) const fn n_each(&self) -> usize {
        self.n_levels * self.n_columns
    }

    /// Number of winds and tracers in a row.
    pub(super) const fn n_carried(&self) -> usize {
        (2 + N_TRACERS) * self.n_each()
    }

    const fn of_carried(&self, row: usize, line: usize) -> Range<usize> {
        let start = row * self.n_carried() + line * self.n_columns;
        start..start + self.n_columns
    }

    const fn of_height(&self, row: usize, level: usize) -> Range<usize> {
        let start = (row * self.n_levels + level) * self.n_columns;
        start..start + self.n_columns
    }
}

/// All rows at one time, where runs can begin.
#[derive(Debug, Clone)]
pub struct State {
    /// Fields at the previous and at the current step.
    pub(super) fields: [Fields; 2],
    pub(super) n_steps: usize,
}

impl State {
    pub(super) fn initial(sphere: &Sphere) -> Self {
        let fields = Fields::initial(sphere);
        Self { fields: [fields.clone(), fields], n_steps: 0 }
    }

    pub(super) fn band(&self, own: &Range<usize>) -> [Fields; 2] {
        [self.fields[0].band(own), self.fields[1].band(own)]
    }

    /// This state with heights changed by `part` of themselves, up or down.
    #[must_use]
    pub fn perturbed(mut self, part: f64) -> Self {
        for fields in &mut self.fields {
            for (at, height) in fields.heights.iter_mut().enumerate() {
                *height += *height * part * sign(at as u64);
            }
        }
        self
    }

    /// Heights of all rows, from the south. Each row holds all levels.
    #[must_use]
    pub fn heights(&self) -> &[f64] {
        let [_, now] = &self.fields;
        &now.heights[now.n_each()..now.heights.len() - now.n_each()]
    }
}

/// Returns 1 or −1, pseudo-randomly.
fn sign(at: u64) -> f64 {
    let mixed = (at + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mixed = (mixed ^ mixed >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    if mixed >> 63 == 0 { 1.0 } else { -1.0 }
}
