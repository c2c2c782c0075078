//! Parts that the loops of a writer and of a reader over the lines of an array share.

use super::grid::{LINE, LONG_LINE, Layer, ROW};
use super::memory::Slab;
use super::predict::Integer;
use super::symbols::{Contexts, HALF};

/// Buffers for the symbols of a line.
pub(super) struct LineBuffers {
    pub(super) active: [u16; LINE],
    pub(super) symbols: [u8; LONG_LINE],
    /// Even values of a line, and then odd ones.
    pub(super) parted: [u8; LINE],
    pub(super) active_half: [u16; HALF],
    pub(super) contexts: Contexts,
    /// Activities of the four lines before, in a raster of one row.
    pub(super) before: [[u16; ROW]; 4],
}

impl LineBuffers {
    pub(super) const fn new() -> Self {
        Self {
            active: [0; LINE],
            symbols: [0; LONG_LINE],
            parted: [0; LINE],
            active_half: [0; HALF],
            contexts: Contexts::new(),
            before: [[0; ROW]; 4],
        }
    }
}

/// Codes and activities of a layer, and of the one before.
pub(super) struct Layered<'a, C> {
    pub(super) codes: &'a mut [C],
    pub(super) active: &'a mut [u16],
    codes_before: &'a mut [C],
    active_before: &'a mut [u16],
}

impl<'a, C: Integer> Layered<'a, C> {
    /// Takes space for the last two layers.
    pub(super) fn new(
        layers: &[Layer],
        [codes, codes_before]: &'a mut [Slab; 2],
        [active, active_before]: &'a mut [Slab; 2],
    ) -> Self {
        let n_values =
            |nth: usize| layers.iter().nth_back(nth).map_or(0, |layer| layer.grid.n_values());
        let [last, before] = [n_values(0), n_values(1)];
        // The first layer is the last one in turn.
        let is_swapped = layers.len().is_multiple_of(2);
        let [n_first, n_second] = if is_swapped { [before, last] } else { [last, before] };
        Self {
            codes: codes.of(n_first),
            active: active.of(n_first),
            codes_before: codes_before.of(n_second),
            active_before: active_before.of(n_second),
        }
    }

    /// Goes on to the next layer.
    #[inline(always)]
    pub(super) fn advance(&mut self, before: &Layer, layer: &Layer) {
        core::mem::swap(&mut self.codes, &mut self.codes_before);
        core::mem::swap(&mut self.active, &mut self.active_before);
        let n_before = before.grid.n_values();
        layer.spread(before, &self.codes_before[..n_before], self.codes);
        layer.spread(before, &self.active_before[..n_before], self.active);
    }
}

/// Copies values of an array that are `step` apart.
#[inline(always)]
pub(super) fn strided<V: Copy>(array: &[V], start: usize, step: usize, out: &mut [V]) {
    match (step, array.get(start..)) {
        (_, None) => {}
        (1, Some(array)) => out.copy_from_slice(&array[..out.len()]),
        (2, Some(array)) => {
            let pairs = array.as_chunks::<2>().0;
            let n_pairs = pairs.len().min(out.len());
            for (value, pair) in out.iter_mut().zip(pairs) {
                *value = pair[0];
            }
            if let Some(value) = out.get_mut(n_pairs) {
                *value = array[2 * n_pairs];
            }
        }
        (_, Some(array)) => {
            for (value, found) in out.iter_mut().zip(array.iter().step_by(step)) {
                *value = *found;
            }
        }
    }
}

/// Stores values in an array, `step` apart.
#[inline(always)]
pub(super) fn put_strided<V: Copy>(values: &[V], array: &mut [V], start: usize, step: usize) {
    let array = &mut array[start..];
    match step {
        1 => array[..values.len()].copy_from_slice(values),
        2 => {
            let pairs = array.as_chunks_mut::<2>().0;
            let n_pairs = pairs.len().min(values.len());
            // Store the values between again, so that whole vectors are stored.
            for (pair, value) in pairs.iter_mut().zip(values) {
                *pair = [*value, pair[1]];
            }
            if let Some(value) = values.get(n_pairs) {
                array[2 * n_pairs] = *value;
            }
        }
        _ => {
            for (place, value) in array.iter_mut().step_by(step).zip(values) {
                *place = *value;
            }
        }
    }
}

/// Returns the number of runs of a line in a raster of one row, and of each run its first place and
/// the number of its values. Values of a run are as far apart as there are runs.
pub(super) fn rows(n_values: usize) -> (usize, impl Iterator<Item = (usize, usize)>) {
    let n_rows = n_values.div_ceil(ROW);
    (n_rows, (0..n_rows).map(move |row| (row, (n_values - row).div_ceil(n_rows))))
}
