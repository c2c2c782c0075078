//! What the codes of a line become: symbols, and the contexts in which they are coded.
//!
//! A *residual* is the number of bins between a code and its prediction. Its symbol holds a small
//! residual, or the leading bits of a large one; other bits follow elsewhere. The context of a
//! symbol is how large the residuals around it are. First come the line's even values, whose
//! contexts are the lines before, and then its odd values, which also know the values beside them.
//! So a reader knows the contexts of half a line before it reads its symbols. Only in a raster of
//! one row, a value's context is the values before it.

use super::grid::{DIMS, Grid, Group, LINE, Line, Pass};
use super::predict::gather;

/// The value before it in coding order was also off the lattice, and has the same bits.
pub(super) const REPEATED: u8 = 0;
/// The value is off the lattice; its bits follow.
pub(super) const NEW: u8 = 1;
/// The first symbol of a residual.
const FIRST: u32 = 2;
/// Zig-zag residuals below it have a symbol each.
const SMALL: u64 = 32;
/// Logarithm of [`SMALL`].
const SMALL_BITS: u32 = SMALL.ilog2();
/// Largest number of a symbol: that of a zig-zag residual of 52 bits.
pub(super) const LAST: u8 = (FIRST + SMALL as u32 + 4 * (52 - SMALL_BITS) - 1) as u8;

/// Activity of a value off the lattice, more than that of any residual.
pub(super) const OFF: u16 = 1 << 12;
/// Contexts of a group.
pub(super) const BUCKETS: usize = 32;
/// Groups of contexts: the two last stages, those before, and anchors.
pub(super) const GROUPS: usize = 4;

/// Splits a zig-zag residual: its symbol, and the number of low bits that follow elsewhere.
#[inline(always)]
pub(super) const fn split(zigzag: u64) -> (u8, u32) {
    if zigzag < SMALL {
        return (zigzag as u8 + FIRST as u8, 0);
    }
    let exponent = 63 - zigzag.leading_zeros();
    let n_low = exponent - 2;
    let symbol = FIRST + SMALL as u32 + 4 * (exponent - SMALL_BITS) + (zigzag >> n_low & 3) as u32;
    (symbol as u8, n_low)
}

/// Inverse of [`split`]: the zig-zag residual whose low bits are 0, and their number. The symbol is
/// that of a residual.
#[inline(always)]
pub(super) const fn join(symbol: u8) -> (u64, u32) {
    let number = symbol as u32 - FIRST;
    if number < SMALL as u32 {
        return (number as u64, 0);
    }
    let large = number - SMALL as u32;
    let n_low = large / 4 + SMALL_BITS - 2;
    ((4 + large as u64 % 4) << n_low, n_low)
}

/// How large a residual is, as contexts see it.
#[inline(always)]
pub(super) const fn activity(zigzag: u64) -> u16 {
    let magnitude = zigzag.div_ceil(2);
    if magnitude < OFF as u64 { magnitude as u16 } else { OFF - 1 }
}

/// Returns the context of a value whose neighbours have this weighted activity.
#[inline(always)]
fn bucket(activity: u32) -> u8 {
    if activity < 8 {
        return activity as u8;
    }
    // Two contexts for each power of two.
    let exponent = 31 - activity.leading_zeros();
    let bucket = 8 + 2 * (exponent - 3) + (activity >> (exponent - 1) & 1);
    if bucket < BUCKETS as u32 { bucket as u8 } else { BUCKETS as u8 - 1 }
}

/// Returns the first context of a group.
const fn first(group: Group) -> u8 {
    group as u8 * BUCKETS as u8
}

/// Contexts of a line's values.
pub(super) struct Contexts {
    /// Activity of lines before, of a value and those beside it.
    line: [u16; LINE + 2],
    even: [u16; LINE],
    odd: [u16; LINE],
    pub(super) of: [u8; LINE],
    group: Group,
}

impl Contexts {
    pub(super) const fn new() -> Self {
        Self {
            line: [0; LINE + 2],
            even: [0; LINE],
            odd: [0; LINE],
            of: [0; LINE],
            group: Group::Last,
        }
    }

    /// Prepares a line. `active` holds the activities of all values before it.
    #[inline(always)]
    pub(super) fn begin(&mut self, active: &[u16], grid: &Grid, pass: &Pass, line: &Line) {
        let n_values = line.n_values;
        let step = pass.steps[2];
        self.group = pass.group;
        self.even[..n_values].fill(0);
        self.odd[..n_values].fill(0);
        // Nothing is known before the anchors.
        if pass.group == Group::Anchors {
            return;
        }
        let n_between = pass.is_between.iter().filter(|&&is_between| is_between).count() as u16;
        // Values that predict it. The mean over dimensions, times 4.
        for dim in (0..DIMS).filter(|&dim| pass.is_between[dim]) {
            let distance = grid.strides[dim] << pass.stage;
            let has_right = line.at[dim] + (1 << pass.stage) < grid.sizes[dim];
            let weight = if n_between == 1 { 2 } else { 1 };
            if dim == DIMS - 1 {
                // The last value of the line may have no right neighbour.
                let n_known = (grid.sizes[2] - (line.at[2] - (1 << pass.stage))).div_ceil(step);
                let n_known = n_known.min(n_values + 1);
                gather(active, line.start - distance, step, &mut self.line[..n_known]);
                self.line[n_known..=n_values].fill(0);
                for i in 0..n_values {
                    self.even[i] += weight * (self.line[i] + self.line[i + 1]);
                }
            } else {
                for at in [Some(line.start - distance), has_right.then(|| line.start + distance)] {
                    let Some(at) = at else { continue };
                    gather(active, at, step, &mut self.line[..n_values]);
                    for i in 0..n_values {
                        self.even[i] += weight * self.line[i];
                    }
                }
            }
        }
        self.odd[..n_values].copy_from_slice(&self.even[..n_values]);
        if line.at[1] >= pass.starts[1] + pass.steps[1] {
            self.add_row(active, line.start - pass.steps[1] * grid.strides[1], step, n_values);
        }
        if line.at[0] >= pass.starts[0] + pass.steps[0] {
            let plane = line.start - pass.steps[0] * grid.strides[0];
            gather(active, plane, step, &mut self.line[..n_values]);
            for i in 0..n_values {
                self.even[i] += 2 * self.line[i];
                self.odd[i] += self.line[i];
            }
        }
    }

    /// Adds the activity of the row before.
    #[inline(always)]
    fn add_row(&mut self, active: &[u16], start: usize, step: usize, n_values: usize) {
        self.line[0] = 0;
        self.line[n_values + 1] = 0;
        gather(active, start, step, &mut self.line[1..=n_values]);
        for i in 0..n_values {
            let row = self.line[i] + 2 * self.line[i + 1] + self.line[i + 2];
            self.even[i] += row + row / 2;
            self.odd[i] += row;
        }
    }

    /// Finds the contexts of even values, of a line of this many.
    #[inline(always)]
    pub(super) fn even(&mut self, n_values: usize) {
        for (of, &activity) in self.of[..n_values].iter_mut().zip(&self.even).step_by(2) {
            *of = first(self.group) + bucket(u32::from(activity) / 4);
        }
    }

    /// Finds the contexts of odd values, by the activities of the even ones.
    #[inline(always)]
    pub(super) fn odd(&mut self, active: &[u16]) {
        let mut i = 1;
        while i < active.len() {
            let right = active.get(i + 1).copied().unwrap_or(0);
            let beside = u32::from(active[i - 1]) + u32::from(right);
            self.of[i] = first(self.group) + bucket(beside + u32::from(self.odd[i]) / 4);
            i += 2;
        }
    }

    /// Returns the context of value `i` by the values before it.
    #[inline(always)]
    pub(super) fn in_row(&self, i: usize, active: &[u16]) -> u8 {
        let activity = |n: usize| i.checked_sub(n).map_or(0, |i| u32::from(active[i]));
        first(self.group) + bucket(2 * activity(1) + activity(2) + (activity(3) + activity(4)) / 2)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn symbols_hold_residuals_of_any_size() {
        let powers = (0..52).map(|n| 1_u64 << n);
        for zigzag in (0..5000).chain(powers.flat_map(|x| [x - 1, x, x + x / 2, 2 * x - 1])) {
            let (symbol, n_low) = split(zigzag);
            assert!((FIRST as u8..=LAST).contains(&symbol), "{zigzag}");
            let low = zigzag & ((1 << n_low) - 1);
            assert_eq!(join(symbol), (zigzag - low, n_low), "{zigzag}");
        }
        assert_eq!(split((1 << 52) - 1).0, LAST);
    }
}
