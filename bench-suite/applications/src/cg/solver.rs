//! Conjugate gradients on a slab of a grid: the computation between two exchanges.

use std::ops::Range;

use crate::borders::HaloPlanes;

/// The system −Δu = f on a grid of a × b × c points, with u = 0 beyond the border.
///
/// The operator is six times the value of a point minus the values of its six neighbours.
#[derive(Debug)]
pub(super) struct Grid {
    pub(super) shape: [usize; 3],
    /// f at each point.
    pub(super) right: Vec<f64>,
}

impl Grid {
    /// A right side of point charges with alternating signs: one per 4096 points, but at least two.
    /// Their positions follow a fixed rule.
    pub(super) fn of_charges(shape: [usize; 3]) -> Self {
        let n_points: usize = shape.iter().product();
        let mut right = vec![0.0; n_points];
        for charge in 0..(n_points as u64).div_ceil(4096).max(2) {
            // Fibonacci hashing (D. Knuth, TAOCP vol. 3, section 6.4).
            let hash = (charge + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            let at = ((u128::from(hash) * n_points as u128) >> 64) as usize;
            right[at] += if charge % 2 == 0 { 1.0 } else { -1.0 };
        }
        Self { shape, right }
    }

    /// A right side that holds the values of a field minus their mean.
    pub(super) fn of_field(shape: [usize; 3], values: &[f64]) -> Self {
        let mean = values.iter().sum::<f64>() / values.len().max(1) as f64;
        Self { shape, right: values.iter().map(|value| value - mean).collect() }
    }

    pub(super) const fn plane_len(&self) -> usize {
        self.shape[1] * self.shape[2]
    }

    fn points(&self, planes: &Range<usize>) -> Range<usize> {
        planes.start * self.plane_len()..planes.end * self.plane_len()
    }
}

/// Consecutive planes of the grid, with the vectors of conjugate gradients on them.
///
/// Every value is computed in the same order for any division into slabs, so its bits do not depend
/// on the number of ranks.
pub(super) struct GridSlab<'g> {
    grid: &'g Grid,
    planes: Range<usize>,
    /// The solution x, and the residual r = f − Ax.
    x: Vec<f64>,
    r: Vec<f64>,
    /// The search direction p, with one halo plane on each side, and the product q = Ap.
    p: Vec<f64>,
    q: Vec<f64>,
}

impl<'g> GridSlab<'g> {
    /// A slab of at least one plane, with an initial solution of 0.
    pub(super) fn new(grid: &'g Grid, planes: Range<usize>) -> Self {
        let r = grid.right[grid.points(&planes)].to_vec();
        let (n, border) = (r.len(), grid.plane_len());
        let mut slab = Self {
            grid,
            planes,
            x: vec![0.0; n],
            p: vec![0.0; n + 2 * border],
            q: vec![0.0; n],
            r,
        };
        slab.update_direction(0.0);
        slab
    }

    pub(super) fn halos(&mut self) -> HaloPlanes<'_, f64> {
        let border = self.grid.plane_len();
        let n = self.r.len();
        let (before, rest) = self.p.split_at_mut(border);
        let (own, after) = rest.split_at_mut(n);
        HaloPlanes { own: [&own[..border], &own[n - border..]], theirs: [before, after] }
    }

    /// Computes q = Ap.
    pub(super) fn multiply(&mut self) {
        let [_, n_rows, n_columns] = self.grid.shape;
        let border = self.grid.plane_len();
        for at in 0..self.q.len() {
            let (row, column, center) = (at / n_columns % n_rows, at % n_columns, at + border);
            let neighbour = |is_there: bool, at: usize| if is_there { self.p[at] } else { 0.0 };
            let across = self.p[center - border] + self.p[center + border];
            let along = neighbour(row > 0, center.wrapping_sub(n_columns))
                + neighbour(row + 1 < n_rows, center + n_columns);
            let beside = neighbour(column > 0, center.wrapping_sub(1))
                + neighbour(column + 1 < n_columns, center + 1);
            self.q[at] = 6.0 * self.p[center] - (across + along + beside);
        }
    }

    /// Takes a step of this length along the direction: updates x and r.
    pub(super) fn step(&mut self, length: f64) {
        let p = &self.p[self.grid.plane_len()..];
        for (((x, r), &p), &q) in self.x.iter_mut().zip(&mut self.r).zip(p).zip(&self.q) {
            *x += length * p;
            *r -= length * q;
        }
    }

    /// Computes the next direction: the residual plus `share` times the current direction.
    pub(super) fn update_direction(&mut self, share: f64) {
        let own = &mut self.p[self.grid.plane_len()..];
        for (p, &r) in own.iter_mut().zip(&self.r) {
            *p = r + share * *p;
        }
    }

    /// Dot products p·q, one per plane.
    pub(super) fn direction_products(&self) -> Vec<f64> {
        self.dots(&self.p[self.grid.plane_len()..], &self.q)
    }

    /// Dot products r·r, one per plane.
    pub(super) fn residual_squares(&self) -> Vec<f64> {
        self.dots(&self.r, &self.r)
    }

    fn dots(&self, a: &[f64], b: &[f64]) -> Vec<f64> {
        let len = self.grid.plane_len();
        let dot = |(a, b): (&[f64], &[f64])| a.iter().zip(b).map(|(a, b)| a * b).sum();
        a.chunks_exact(len).zip(b.chunks_exact(len)).map(dot).collect()
    }

    /// Copies the solution into the direction, so that `multiply` computes the product Ax.
    pub(super) fn set_direction_to_solution(&mut self) {
        let border = self.grid.plane_len();
        self.p[border..border + self.x.len()].copy_from_slice(&self.x);
    }

    /// Computes the true residual f − Ax. Call
    /// [`set_direction_to_solution`](Self::set_direction_to_solution) and
    /// [`multiply`](Self::multiply) first.
    pub(super) fn set_residual(&mut self) {
        let right = &self.grid.right[self.grid.points(&self.planes)];
        for ((r, &right), &q) in self.r.iter_mut().zip(right).zip(&self.q) {
            *r = right - q;
        }
    }

    pub(super) fn into_solution(self) -> Vec<f64> {
        self.x
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A product of sines along the axes is an eigenvector of the operator.
    #[test]
    fn the_operator_is_the_laplacian_with_a_border_of_zeros() {
        let shape = [5, 6, 7];
        let wave = |at: usize, n: usize| std::f64::consts::PI * (at + 1) as f64 / (n + 1) as f64;
        let eigenvalue: f64 = shape.iter().map(|&n| 2.0 - 2.0 * wave(0, n).cos()).sum();
        let value = |i: usize| {
            let (a, b, c) = (i / 42, i / 7 % 6, i % 7);
            wave(a, 5).sin() * wave(b, 6).sin() * wave(c, 7).sin()
        };
        let right: Vec<f64> = (0..210).map(value).collect();
        let grid = Grid { shape, right };
        let mut slab = GridSlab::new(&grid, 0..5);
        slab.multiply();
        for (q, u) in slab.q.iter().zip(&grid.right) {
            assert!((q - eigenvalue * u).abs() < 1e-14, "{q} of {u}");
        }
        // On an eigenvector, one step reaches the solution.
        let (rr, pq): (f64, f64) =
            (slab.residual_squares().iter().sum(), slab.direction_products().iter().sum());
        slab.step(rr / pq);
        assert!(slab.residual_squares().iter().sum::<f64>() < 1e-25);
        slab.set_direction_to_solution();
        slab.multiply();
        slab.set_residual();
        assert!(slab.residual_squares().iter().sum::<f64>() < 1e-25);
    }

    #[test]
    fn two_slabs_compute_the_bits_of_one() {
        let grid = Grid::of_charges([8, 16, 16]);
        let mut whole = GridSlab::new(&grid, 0..8);
        let [mut a, mut b] = [GridSlab::new(&grid, 0..3), GridSlab::new(&grid, 3..8)];
        a.halos().theirs[1].copy_from_slice(b.halos().own[0]);
        b.halos().theirs[0].copy_from_slice(a.halos().own[1]);
        [&mut whole, &mut a, &mut b].into_iter().for_each(GridSlab::multiply);
        assert_eq!(
            [a.direction_products(), b.direction_products()].concat(),
            whole.direction_products()
        );
        assert_eq!([a.q, b.q].concat(), whole.q);
        assert!(grid.right.iter().any(|&f| f > 0.0) && grid.right.iter().any(|&f| f < 0.0));
    }
}
