//! What the loops of a writer and a reader over the lines of an array have in common.

use super::grid::{LINE, LONG_LINE, Line, ROW};
use super::predict::{Integer, put_strided};
use super::symbols::{Contexts, HALF};
use alloc::vec::Vec;

/// Codes and activities of the values that were visited, and those of a line.
pub(super) struct Codes<'a, C> {
    pub(super) all: &'a mut [C],
    pub(super) active: Vec<u16>,
    pub(super) line: [C; LONG_LINE],
    pub(super) line_active: [u16; LINE],
    pub(super) symbols: [u8; LONG_LINE],
    /// Even values of a line, and then odd ones.
    pub(super) parted: [u8; LINE],
    pub(super) active_half: [u16; HALF],
    pub(super) contexts: Contexts,
    /// Activities of the four lines before, in a raster of one row.
    pub(super) before: [[u16; ROW]; 4],
    /// Code of the last anchor.
    pub(super) anchor: C,
}

/// Moves the even values of a line to the front half, and the odd ones behind them.
#[inline(always)]
pub(super) fn part(line: &[u8], parted: &mut [u8]) {
    let (pairs, last) = line.as_chunks::<2>();
    let (even, odd) = parted[..line.len()].split_at_mut(line.len().div_ceil(2));
    for (even, pair) in even.iter_mut().zip(pairs) {
        *even = pair[0];
    }
    for (odd, pair) in odd.iter_mut().zip(pairs) {
        *odd = pair[1];
    }
    if let ([last], Some(even)) = (last, even.last_mut()) {
        *even = *last;
    }
}

/// Inverse of [`part`].
#[inline(always)]
pub(super) fn join(parted: &[u8], line: &mut [u8]) {
    let (even, odd) = parted.split_at(parted.len().div_ceil(2));
    let (pairs, last) = line[..parted.len()].as_chunks_mut::<2>();
    for (pair, (&even, &odd)) in pairs.iter_mut().zip(even.iter().zip(odd)) {
        *pair = [even, odd];
    }
    if let ([last], Some(even)) = (last, even.last()) {
        *last = *even;
    }
}

impl<'a, C: Integer> Codes<'a, C> {
    pub(super) fn new(all: &'a mut [C]) -> Self {
        let active = alloc::vec![0; all.len()];
        Self {
            all,
            active,
            line: [C::default(); LONG_LINE],
            line_active: [0; LINE],
            symbols: [0; LONG_LINE],
            parted: [0; LINE],
            active_half: [0; HALF],
            contexts: Contexts::new(),
            before: [[0; ROW]; 4],
            anchor: C::default(),
        }
    }

    /// Stores the line's codes and activities in their places.
    #[inline(always)]
    pub(super) fn scatter(&mut self, line: &Line, step: usize) {
        put_strided(&self.line[..line.n_values], self.all, line.start, step);
        self.scatter_active(line, step);
    }

    #[inline(always)]
    pub(super) fn scatter_active(&mut self, line: &Line, step: usize) {
        put_strided(&self.line_active[..line.n_values], &mut self.active, line.start, step);
    }
}

/// Returns the number of runs of a line in a raster of one row, and of each run its first place and
/// the number of its values. Values of a run are as far apart as there are runs.
pub(super) fn rows(n_values: usize) -> (usize, impl Iterator<Item = (usize, usize)>) {
    let n_rows = n_values.div_ceil(ROW);
    (n_rows, (0..n_rows).map(move |row| (row, (n_values - row).div_ceil(n_rows))))
}
