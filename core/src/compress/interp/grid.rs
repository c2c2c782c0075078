//! The order in which a closed loop of interpolations visits an array's values.
//!
//! In *stage* k the values lie 2ᵏ apart in each interpolated dimension. The first stage has only
//! the *anchors*: one value of each line along the interpolated dimensions. Each later stage halves
//! the distance: its *passes* fill in the values between those of the stage before. In a pass all
//! values have the same parity in each dimension, and none of them predicts another one. A pass is
//! cut into *lines* along the fastest dimension.
//!
//! The values of a stage and of those before it lie next to each other in a *layer*, and its rows
//! are parted: even values first. So values of a line are neighbours in memory, and so are those
//! that predict them.
//!
//! Without interpolation there is one layer, with one pass in the order of memory.

use super::halves::{Parity, join, part};
use alloc::vec::Vec;

/// Most values of a line.
pub(super) const LINE: usize = 1024;
/// Values of a raster of one row that are coded at a time.
pub(super) const ROW: usize = 32;
/// Most values of a line in a raster of one row.
pub(super) const LONG_LINE: usize = 4096;
/// Number of dimensions. Arrays with fewer have sizes of 1 in front.
pub(super) const DIMS: usize = 3;

/// Sizes of an array, slowest dimension first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Grid {
    pub(super) sizes: [usize; DIMS],
    /// Distances between neighbours, in values.
    pub(super) strides: [usize; DIMS],
}

impl Grid {
    pub(super) const fn new(sizes: [usize; DIMS]) -> Self {
        Self { sizes, strides: [sizes[1] * sizes[2], sizes[2], 1] }
    }

    /// Returns the grid of an array whose rows and planes are `strides` apart; 0 if unknown. It has
    /// one row if the array is no whole number of rows. `None` for an empty array.
    pub(super) fn of(n_values: usize, strides: [u32; 2]) -> Option<Self> {
        let [row, plane] = strides.map(|stride| stride as usize);
        let divides = |part: usize, whole: usize| part > 0 && whole.is_multiple_of(part);
        let row = if divides(row, n_values) { row } else { n_values };
        let plane = if divides(plane, n_values) && divides(row, plane) { plane } else { n_values };
        Self::of_sizes(n_values, plane / row.max(1), row)
    }

    /// Returns the grid of this many values with rows of `row` values and planes of `rows` rows;
    /// `None` if there is none.
    pub(super) fn of_sizes(n_values: usize, rows: usize, row: usize) -> Option<Self> {
        let plane = rows.checked_mul(row).filter(|&plane| plane > 0)?;
        let grid = Self::new([n_values / plane, rows, row]);
        (n_values > 0 && grid.n_values() == n_values).then_some(grid)
    }

    pub(super) const fn n_values(&self) -> usize {
        self.sizes[0] * self.strides[0]
    }

    /// Returns whether all values are one row.
    pub(super) const fn is_row(&self) -> bool {
        self.sizes[0] * self.sizes[1] == 1
    }
}

/// Dimensions along which values are interpolated, and their order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Order {
    /// The dimensions, in the order of the passes; the first `n_dims` count.
    pub(super) dims: [u8; DIMS],
    pub(super) n_dims: u8,
    /// True if a value between others in several dimensions is the mean of its interpolations.
    /// Otherwise each pass is along one dimension.
    pub(super) is_mean: bool,
}

impl Order {
    fn dims(&self) -> impl Iterator<Item = usize> + '_ {
        self.dims[..usize::from(self.n_dims)].iter().map(|&dim| usize::from(dim))
    }

    /// Number of the first stage below the anchors, plus 1.
    pub(super) fn n_stages(&self, grid: &Grid) -> u32 {
        let longest = self.dims().map(|dim| grid.sizes[dim]).max().unwrap_or(1);
        usize::BITS - longest.saturating_sub(1).leading_zeros()
    }
}

/// Passes whose symbols are distributed alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Group {
    /// The last stage, or all values in the order of memory.
    Last,
    /// The stage before.
    LastButOne,
    /// Stages before that.
    Early,
    /// The first stage.
    Anchors,
}

/// Values of a row that a pass visits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Columns {
    /// All of a row that is not parted.
    Whole,
    /// Columns of the front half.
    Even,
    /// Columns of the other half.
    Odd,
    /// Columns of both halves, in turn.
    Both,
}

/// Values with the same parities in a layer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pass {
    /// True in dimensions in which the values lie between known ones.
    pub(super) is_between: [bool; DIMS],
    /// Coordinates of the first value, and distances from one to the next.
    pub(super) starts: [usize; DIMS],
    pub(super) steps: [usize; DIMS],
    pub(super) columns: Columns,
}

/// Values of a stage and of those before it.
#[derive(Clone, Debug)]
pub(super) struct Layer {
    pub(super) stage: u32,
    pub(super) group: Group,
    pub(super) grid: Grid,
    /// Values in the front half of a parted row.
    pub(super) n_even: usize,
    pub(super) passes: Vec<Pass>,
    /// Distance in the array of the layer's neighbours in each dimension.
    spacing: [usize; DIMS],
    /// Most values of a line.
    line: usize,
}

/// Values of a pass next to each other in the fastest dimension.
#[derive(Clone, Copy, Debug)]
pub(super) struct Line {
    /// Coordinates of the first value in slower dimensions.
    pub(super) at: [usize; DIMS - 1],
    /// Values of the pass before it in its row.
    pub(super) n_before: usize,
    /// Place of the row in the layer.
    pub(super) row: usize,
    /// Place of the first value in the layer.
    pub(super) start: usize,
    pub(super) n_values: usize,
}

/// Returns the layers of an array, in order.
pub(super) fn layers(grid: &Grid, order: &Order) -> Vec<Layer> {
    let n_stages = order.n_stages(grid);
    (0..=n_stages).rev().map(|stage| Layer::of_stage(grid, order, stage, n_stages)).collect()
}

impl Layer {
    /// Returns the only layer of an array in the order of memory.
    pub(super) fn raster(grid: &Grid) -> Self {
        let line = if grid.is_row() { LONG_LINE } else { LINE };
        let (passes, spacing) = ([Pass::WHOLE].into(), [1; DIMS]);
        Self { stage: 0, group: Group::Last, grid: *grid, n_even: 0, passes, spacing, line }
    }

    fn of_stage(of_array: &Grid, order: &Order, stage: u32, n_stages: u32) -> Self {
        let mut spacing = [1; DIMS];
        order.dims().for_each(|dim| spacing[dim] = 1 << stage);
        let grid =
            Grid::new(core::array::from_fn(|dim| of_array.sizes[dim].div_ceil(spacing[dim])));
        let group = match stage {
            _ if stage == n_stages => Group::Anchors,
            0 => Group::Last,
            1 => Group::LastButOne,
            _ => Group::Early,
        };
        let n_dims = u32::from(order.n_dims);
        let passes: Vec<Pass> = if group == Group::Anchors {
            [Pass::WHOLE].into()
        } else if order.is_mean {
            // Bit i of a mask: the values are between others in dimension i of the order.
            let masks =
                |n_between| (1_u32..1 << n_dims).filter(move |mask| mask.count_ones() == n_between);
            let pass = |mask: u32| Pass::new(order, |i| mask >> i & 1 == 1, |_| 2);
            (1..=n_dims).flat_map(masks).map(pass).collect()
        } else {
            let pass = |nth| Pass::new(order, |i| i == nth, |i| if i < nth { 1 } else { 2 });
            (0..n_dims as usize).map(pass).collect()
        };
        Self { stage, group, grid, n_even: grid.sizes[2].div_ceil(2), passes, spacing, line: LINE }
    }

    /// Returns whether even values of rows come first.
    pub(super) fn is_parted(&self) -> bool {
        self.passes.iter().any(|pass| pass.columns != Columns::Whole)
    }

    /// Returns the lines of a pass, in order.
    #[inline(always)]
    pub(super) fn lines<'a>(&'a self, pass: &'a Pass) -> Lines<'a> {
        let sizes = self.grid.sizes;
        let n_row = sizes[2].saturating_sub(pass.starts[2]).div_ceil(pass.steps[2]);
        let is_empty = n_row == 0 || (0..DIMS).any(|dim| pass.starts[dim] >= sizes[dim]);
        let [z, y, _] = pass.starts;
        Lines {
            layer: self,
            pass,
            n_row,
            at: if is_empty { [usize::MAX; 2] } else { [z, y] },
            done: 0,
        }
    }

    /// Returns values of a line, or of one that is as long, whose first value is at `start`.
    /// Columns of both halves come from the buffer.
    #[inline(always)]
    pub(super) fn view<'a, V: Copy>(
        &self,
        values: &'a [V],
        (columns, start, n_values): (Columns, usize, usize),
        buffer: &'a mut [V],
    ) -> &'a [V] {
        if columns != Columns::Both {
            return &values[start..start + n_values];
        }
        let (even, odd) = (&values[start..], &values[start + self.n_even..]);
        let buffer = &mut buffer[..n_values];
        join((&even[..n_values.div_ceil(2)], &odd[..n_values / 2]), buffer);
        buffer
    }

    /// Stores values of a line.
    #[inline(always)]
    pub(super) fn store<V: Copy>(
        &self,
        columns: Columns,
        line: &Line,
        from: &[V],
        values: &mut [V],
    ) {
        let (n_values, start) = (line.n_values, line.start);
        let from = &from[..n_values];
        if columns != Columns::Both {
            return values[start..start + n_values].copy_from_slice(from);
        }
        let n_even = n_values.div_ceil(2);
        part(from, &mut values[start..start + n_even], Parity::Even);
        let start = start + self.n_even;
        part(from, &mut values[start..start + n_values / 2], Parity::Odd);
    }

    /// Takes over the values of the layer before.
    #[inline(always)]
    pub(super) fn spread<V: Copy>(&self, before: &Self, from: &[V], values: &mut [V]) {
        let [sz, sy, sx] = core::array::from_fn(|dim| before.spacing[dim] / self.spacing[dim]);
        let n_row = before.grid.sizes[2];
        let mut rows = from.chunks_exact(n_row);
        for z in 0..before.grid.sizes[0] {
            for y in 0..before.grid.sizes[1] {
                let start = z * sz * self.grid.strides[0] + y * sy * self.grid.strides[1];
                let (Some(row), out) = (rows.next(), &mut values[start..start + n_row]) else {
                    return;
                };
                if sx == 1 {
                    out.copy_from_slice(row);
                } else {
                    join(row.split_at(before.n_even), out);
                }
            }
        }
    }

    /// Copies values of the next layer that belong to this one, too.
    #[inline(always)]
    pub(super) fn thin<V: Copy>(&self, next: &Self, from: &[V], values: &mut [V]) {
        let [sz, sy, sx] = core::array::from_fn(|dim| self.spacing[dim] / next.spacing[dim]);
        let mut rows = values.chunks_exact_mut(self.grid.sizes[2]);
        for z in 0..self.grid.sizes[0] {
            for y in 0..self.grid.sizes[1] {
                let start = z * sz * next.grid.strides[0] + y * sy * next.grid.strides[1];
                let row = &from[start..start + next.grid.sizes[2]];
                let Some(out) = rows.next() else { return };
                if sx == 1 {
                    out.copy_from_slice(row);
                } else {
                    part(row, out, Parity::Even);
                }
            }
        }
    }

    /// Returns the place in the array of a value of a line.
    pub(super) fn place(&self, of_array: &Grid, pass: &Pass, line: &Line, nth: usize) -> usize {
        let [z, y] = line.at;
        let x = pass.starts[2] + (line.n_before + nth) * pass.steps[2];
        let at = [z, y, x];
        (0..DIMS).map(|dim| at[dim] * self.spacing[dim] * of_array.strides[dim]).sum()
    }
}

impl Pass {
    /// All values of a layer, in the order of memory.
    const WHOLE: Self = Self {
        is_between: [false; DIMS],
        starts: [0; DIMS],
        steps: [1; DIMS],
        columns: Columns::Whole,
    };

    /// Makes a pass. `step` tells how far the values are apart in each dimension of the order.
    fn new(
        order: &Order,
        is_between: impl Fn(usize) -> bool,
        step: impl Fn(usize) -> usize,
    ) -> Self {
        let mut pass = Self::WHOLE;
        for (i, dim) in order.dims().enumerate() {
            pass.is_between[dim] = is_between(i);
            pass.starts[dim] = usize::from(is_between(i));
            pass.steps[dim] = step(i);
            if dim == DIMS - 1 {
                pass.columns = match (is_between(i), step(i)) {
                    (true, _) => Columns::Odd,
                    (false, 1) => Columns::Both,
                    (false, _) => Columns::Even,
                };
            }
        }
        pass
    }
}

/// Lines of a pass.
pub(super) struct Lines<'a> {
    layer: &'a Layer,
    pass: &'a Pass,
    /// Values of a row.
    n_row: usize,
    /// Coordinates of the next line.
    at: [usize; DIMS - 1],
    /// Values of its row before it.
    done: usize,
}

impl Iterator for Lines<'_> {
    type Item = Line;

    #[inline(always)]
    fn next(&mut self) -> Option<Line> {
        let Self { layer, pass, n_row, done: n_before, .. } = *self;
        let Layer { grid, n_even, line, .. } = layer;
        let [z, y] = self.at;
        if z >= grid.sizes[0] {
            return None;
        }
        let row = z * grid.strides[0] + y * grid.strides[1];
        let start = row
            + match pass.columns {
                Columns::Whole | Columns::Even => n_before,
                Columns::Odd => n_even + n_before,
                Columns::Both => n_before / 2,
            };
        let n_values = (*line).min(n_row - n_before);
        self.done += n_values;
        if self.done == n_row {
            self.done = 0;
            self.at[1] += pass.steps[1];
            if self.at[1] >= grid.sizes[1] {
                self.at = [z + pass.steps[0], pass.starts[1]];
            }
        }
        Some(Line { at: [z, y], n_before, row, start, n_values })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    #[test]
    fn each_value_is_visited_once_after_those_that_predict_it() {
        for sizes in [[1, 1, 1], [1, 1, 5000], [1, 7, 9], [3, 4, 5], [2, 1, 33], [17, 2, 3]] {
            let grid = Grid::new(sizes);
            for (dims, n_dims) in [([0, 1, 2], 3), ([2, 1, 0], 3), ([1, 2, 0], 2), ([0; 3], 1)] {
                for is_mean in [false, true] {
                    let order = Order { dims, n_dims, is_mean };
                    let mut times = vec![0; grid.n_values()];
                    let mut next = 0;
                    let layers = layers(&grid, &order);
                    let passes = layers
                        .iter()
                        .flat_map(|layer| layer.passes.iter().map(move |pass| (layer, pass)));
                    let all = passes.flat_map(|(layer, pass)| {
                        layer.lines(pass).map(move |line| (layer, pass, line))
                    });
                    for (layer, pass, line) in all {
                        let before = next;
                        for i in 0..line.n_values {
                            let at = layer.place(&grid, pass, &line, i);
                            assert_eq!(times[at], 0, "{sizes:?}, {order:?}: {pass:?}, {line:?}");
                            next += 1;
                            times[at] = next;
                            for dim in (0..DIMS).filter(|&dim| pass.is_between[dim]) {
                                let known = at - (grid.strides[dim] << layer.stage);
                                assert!((1..=before).contains(&times[known]));
                            }
                        }
                    }
                    assert_eq!(next, grid.n_values());
                }
            }
        }
    }
}
