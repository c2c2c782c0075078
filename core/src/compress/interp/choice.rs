//! Choice of the scheme for an array, by a sample of it.

use super::grid::{DIMS, Grid, Order};
use super::memory::Memory;
use super::predict::Shape;
use super::raster::FILTER_BYTES;
use super::rounding::Sample;
use super::tables::cost;
use super::{GRID_RULE, Scheme};
use crate::bound::Quantum;
use crate::kernel::Level;
use alloc::vec::Vec;

/// Largest sizes of the sample of an array with one dimension, two and three.
const SAMPLE: Sizes = [[1, 1, 32_000], [1, 180, 180], [24, 40, 40]];
/// The same for a first look at all orders.
const FIRST_SAMPLE: Sizes = [[1, 1, 8_000], [1, 90, 90], [16, 24, 24]];
/// Orders that are looked at again.
const AGAIN: usize = 3;

type Sizes = [[usize; DIMS]; DIMS];

/// Returns a sample: a part in the middle of the array.
fn sample<T: Sample>(values: &[T], grid: &Grid, most: &Sizes) -> (Vec<T>, Grid) {
    let n_dims = grid.sizes.iter().filter(|&&size| size > 1).count();
    let most = most[n_dims.saturating_sub(1)];
    let sizes: [usize; DIMS] = core::array::from_fn(|dim| grid.sizes[dim].min(most[dim]));
    let starts: [usize; DIMS] = core::array::from_fn(|dim| (grid.sizes[dim] - sizes[dim]) / 2);
    let mut part = Vec::with_capacity(sizes.iter().product());
    for z in starts[0]..starts[0] + sizes[0] {
        for y in starts[1]..starts[1] + sizes[1] {
            let start = z * grid.strides[0] + y * grid.strides[1] + starts[2];
            part.extend_from_slice(&values[start..start + sizes[2]]);
        }
    }
    (part, Grid::new(sizes))
}

/// Returns the orders that are tried.
fn orders(grid: &Grid) -> Vec<Order> {
    let long: Vec<u8> = (0..DIMS as u8).filter(|&dim| grid.sizes[usize::from(dim)] > 1).collect();
    let order = |dims: &[u8], is_mean| {
        let mut order = Order { dims: [0; DIMS], n_dims: dims.len() as u8, is_mean };
        order.dims[..dims.len()].copy_from_slice(dims);
        order
    };
    match long[..] {
        [] => [order(&[2], false)].into(),
        [a] => [order(&[a], false)].into(),
        [a, b] => [
            order(&[a, b], false),
            order(&[b, a], false),
            order(&[a, b], true),
            order(&[a], false),
            order(&[b], false),
        ]
        .into(),
        _ => [
            order(&[0, 1, 2], false),
            order(&[2, 1, 0], false),
            order(&[0, 1, 2], true),
            order(&[1, 2], false),
            order(&[2, 1], false),
            order(&[1, 2], true),
            order(&[0], false),
            order(&[2], false),
        ]
        .into(),
    }
}

/// A scheme whose sample takes this much more than the best one's may still be the best for the
/// whole part.
const CLOSE: f64 = 1.25;

/// How much more the sample may take with an interpolation than as a raster, for other
/// interpolations to be tried.
const FAR: f64 = 1.6;

/// Scheme for arrays of a shape.
#[derive(Clone, Copy, Debug)]
pub(in crate::compress) struct Choice {
    grid: Grid,
    pub(super) scheme: Scheme,
    /// A scheme that may be better.
    pub(super) other: Option<Scheme>,
}

impl Choice {
    /// Returns whether the scheme suits this part of the array, too.
    pub(super) fn is_for(&self, grid: &Grid) -> bool {
        let is_long = |grid: &Grid| grid.sizes[0] > 1;
        self.grid.strides == grid.strides && is_long(&self.grid) == is_long(grid)
    }

    /// Chooses the scheme that codes a sample in the fewest bits, and perhaps another one. `None`
    /// if the bound is too small for a lattice.
    pub(super) fn of<T: Sample>(
        memory: &mut Memory,
        level: Level,
        values: &[T],
        grid: Grid,
        quantum: Quantum,
    ) -> Option<Self> {
        let mut bits_of = |(part, part_grid): &(Vec<T>, Grid), scheme: &Scheme| {
            let lattice = scheme.lattice(quantum)?;
            let Memory { coding, arrays, .. } = &mut *memory;
            let filter = coding.code(arrays, level, (part, *part_grid), *scheme, &lattice);
            let counts: f64 = coding.counts().iter().map(cost).sum();
            // The sample pays its share of the parts that a payload has once.
            let share = part.len() as f64 / values.len() as f64;
            let side = if filter.is_some() { 8.0 * FILTER_BYTES as f64 * share } else { 0.0 };
            Some(counts + side + coding.low_bits.n_bits() as f64 + 8.0 * coding.off.len() as f64)
        };
        // A lattice as wide as this is the grid of the values.
        let is_grid = quantum.step() >= 2.0 * quantum.bound();
        let rule = if is_grid { GRID_RULE } else { 1 };
        let cubic = |order| Scheme::Stages { order, shape: Shape::Cubic, rule };
        let mut orders = orders(&grid);
        if orders.len() > AGAIN {
            let part = sample(values, &grid, &FIRST_SAMPLE);
            let mut sizes = Vec::with_capacity(orders.len());
            for order in orders {
                sizes.push((bits_of(&part, &cubic(order))?, order));
            }
            sizes.sort_by(|a, b| a.0.total_cmp(&b.0));
            orders = sizes.into_iter().take(AGAIN).map(|(_, order)| order).collect();
        }
        let part = sample(values, &grid, &SAMPLE);
        let mut bits = |scheme: &Scheme| bits_of(&part, scheme);
        let raster = (bits(&Scheme::Raster)?, Scheme::Raster);
        let mut better = |best: (f64, Scheme), scheme: Scheme| {
            let bits = bits(&scheme)?;
            Some(if bits < best.0 { (bits, scheme) } else { best })
        };
        let mut best = (f64::INFINITY, Scheme::Raster);
        for order in orders {
            best = better(best, cubic(order))?;
        }
        // A small gain does not help a scheme that is far behind.
        let is_far = best.0 > FAR * raster.0;
        if let (Scheme::Stages { order, .. }, false) = (best.1, is_far) {
            best = better(best, Scheme::Stages { order, shape: Shape::Linear, rule })?;
        }
        if let (Scheme::Stages { order, shape, .. }, false) = (best.1, is_grid || is_far) {
            for rule in [0, 2] {
                best = better(best, Scheme::Stages { order, shape, rule })?;
            }
        }
        let [first, second] = if raster.0 < best.0 { [raster, best] } else { [best, raster] };
        let other = (second.0 < CLOSE * first.0).then_some(second.1);
        Some(Self { grid, scheme: first.1, other })
    }
}
