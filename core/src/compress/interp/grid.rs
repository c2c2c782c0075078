//! The order in which a closed loop of interpolations visits an array's values.
//!
//! In *stage* k the values lie 2ᵏ apart in each interpolated dimension. The first stage has only
//! the *anchors*: one value of each line along the interpolated dimensions. Each later stage halves
//! the distance: its *passes* fill in the values between those of the stage before. In a pass all
//! values have the same parity in each dimension, and none of them predicts another one. A pass is
//! cut into *lines* along the fastest dimension.
//!
//! Without interpolation there is one pass, in the order of memory.

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
    /// Whether a value between others in several dimensions is the mean of its interpolations.
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

/// Values with the same parities.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pass {
    pub(super) stage: u32,
    pub(super) group: Group,
    /// True in dimensions in which the values lie between known ones.
    pub(super) is_between: [bool; DIMS],
    /// Coordinates of the first value, and distances from one to the next.
    pub(super) starts: [usize; DIMS],
    pub(super) steps: [usize; DIMS],
    /// Most values of a line.
    line: usize,
}

/// Values of a pass next to each other in the fastest dimension.
#[derive(Clone, Copy, Debug)]
pub(super) struct Line {
    /// Coordinates of the first value.
    pub(super) at: [usize; DIMS],
    /// Place of the first value in the array.
    pub(super) start: usize,
    pub(super) n_values: usize,
}

/// Returns the passes over an array, in order.
pub(super) fn passes(grid: &Grid, order: &Order) -> Vec<Pass> {
    let n_stages = order.n_stages(grid);
    let (starts, is_between) = ([0; DIMS], [false; DIMS]);
    let mut steps = [1; DIMS];
    for dim in order.dims() {
        steps[dim] = 1 << n_stages;
    }
    let group = Group::Anchors;
    let anchors = Pass { stage: n_stages, group, is_between, starts, steps, line: LINE };
    let mut passes = Vec::from([anchors]);
    let n_dims = u32::from(order.n_dims);
    for stage in (0..n_stages).rev() {
        if order.is_mean {
            // Bit i of a mask: the values are between others in dimension i of the order.
            for n_between in 1..=n_dims {
                let masks = (1_u32..1 << n_dims).filter(|mask| mask.count_ones() == n_between);
                passes.extend(masks.map(|mask| pass(order, stage, |i| mask >> i & 1 == 1, |_| 2)));
            }
        } else {
            for nth in 0..n_dims as usize {
                let scale = |i: usize| if i < nth { 1 } else { 2 };
                passes.push(pass(order, stage, |i| i == nth, scale));
            }
        }
    }
    passes
}

/// Returns the only pass over an array in the order of memory.
pub(super) const fn raster(grid: &Grid) -> Pass {
    let (is_between, starts, steps) = ([false; DIMS], [0; DIMS], [1; DIMS]);
    let line = if grid.is_row() { LONG_LINE } else { LINE };
    Pass { stage: 0, group: Group::Last, is_between, starts, steps, line }
}

/// Makes a pass. `scale` tells how many times the stage's distance the values are apart in each
/// dimension of the order.
fn pass(
    order: &Order,
    stage: u32,
    is_between: impl Fn(usize) -> bool,
    scale: impl Fn(usize) -> usize,
) -> Pass {
    let group = match stage {
        0 => Group::Last,
        1 => Group::LastButOne,
        _ => Group::Early,
    };
    let (starts, steps) = ([0; DIMS], [1; DIMS]);
    let mut pass = Pass { stage, group, is_between: [false; DIMS], starts, steps, line: LINE };
    for (i, dim) in order.dims().enumerate() {
        pass.is_between[dim] = is_between(i);
        pass.starts[dim] = usize::from(is_between(i)) << stage;
        pass.steps[dim] = scale(i) << stage;
    }
    pass
}

/// Returns the lines of a pass, in order.
#[inline(always)]
pub(super) fn lines<'a>(grid: &'a Grid, pass: &'a Pass) -> Lines<'a> {
    let n_row = grid.sizes[2].saturating_sub(pass.starts[2]).div_ceil(pass.steps[2]);
    let is_empty = n_row == 0 || (0..DIMS).any(|dim| pass.starts[dim] >= grid.sizes[dim]);
    let [z, y, _] = pass.starts;
    Lines { grid, pass, n_row, at: if is_empty { [usize::MAX; 2] } else { [z, y] }, done: 0 }
}

/// Lines of a pass.
pub(super) struct Lines<'a> {
    grid: &'a Grid,
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
        let Self { grid, pass, n_row, .. } = *self;
        let [z, y] = self.at;
        if z >= grid.sizes[0] {
            return None;
        }
        let x = pass.starts[2] + self.done * pass.steps[2];
        let start = z * grid.strides[0] + y * grid.strides[1] + x;
        let n_values = pass.line.min(n_row - self.done);
        self.done += n_values;
        if self.done == n_row {
            self.done = 0;
            self.at[1] += pass.steps[1];
            if self.at[1] >= grid.sizes[1] {
                self.at = [z + pass.steps[0], pass.starts[1]];
            }
        }
        Some(Line { at: [z, y, x], start, n_values })
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
                    let passes = passes(&grid, &order);
                    let all = passes
                        .iter()
                        .flat_map(|pass| lines(&grid, pass).map(move |line| (pass, line)));
                    for (pass, line) in all {
                        let before = next;
                        for i in 0..line.n_values {
                            let at = line.start + i * pass.steps[2];
                            assert_eq!(times[at], 0, "{sizes:?}, {order:?}: {pass:?}, {line:?}");
                            next += 1;
                            times[at] = next;
                            for dim in (0..DIMS).filter(|&dim| pass.is_between[dim]) {
                                let known = at - (grid.strides[dim] << pass.stage);
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
