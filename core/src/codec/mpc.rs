//! Codec `mpc`: stores residuals as bit planes, and only those words that differ from the previous
//! word.
//!
//! Source: Yang, Mukka, Hesaaraki and Burtscher, IEEE Cluster 2015, who name the components LnVs
//! BIT LVs ZE. Zhou et al. (IPDPS'21) compress messages with it. The steps for each section of 1024
//! values are:
//!
//! 1. Take the integer difference of each value to the one `dim` places before: the residual. `dim`
//!    is the number of quantities that the array interleaves, or the length of its rows. It is the
//!    setting; without one, a writer chooses it for each chunk from a sample.
//! 2. Transpose the bits of each group of residuals. A group has one residual for each bit of a
//!    word. After that, word p (a *plane*) holds bit p of all of them. If residuals are small and
//!    have one sign, all high planes are equal.
//! 3. Take the difference of each word to the previous word.
//! 4. Keep the words that are not 0, and a bitmap of their places.
//!
//! The coder works on a whole section at a time, so all steps but the last are loops over long
//! rows. A bit matrix is transposed in log₂ steps. Each step exchanges one bit of the row number
//! for one bit of the column number. Here a step moves rows (2k, 2k + 1) to (k, k + 512), so that
//! the exchanged bit becomes the highest of the row number. After all steps the row number is
//! plane · groups + group. Steps 3 and 4 thus work on all groups at once.

use super::CodecId;
use super::coder::{Coded, Coder, CoderParams};
use crate::element::Float;
use crate::element::sealed::Word;
use bytemuck::pod_read_unaligned;

/// The codec `mpc`.
pub type Mpc<T> = Coded<T, MpcCoder>;

/// Coder of [`Mpc`].
#[derive(Clone, Copy, Debug)]
pub struct MpcCoder {
    /// Distance to the value that residuals refer to; 0 if each chunk says its own.
    dim: usize,
}

/// Values in a section. Residuals do not refer to earlier sections.
const SECTION: usize = 1024;
/// Largest `dim`.
pub(super) const MAX_DIM: u16 = 64;
/// Maximum number of samples of a chunk. There are 64 distances to compare, so few.
const N_SAMPLES: usize = 4;

/// Maximum number of groups in a section: the number for words of 16 bits.
const MAX_GROUPS: usize = 64;

impl<T: Float> Coder<T> for MpcCoder {
    const ID: CodecId = CodecId::Mpc;

    fn new(params: &CoderParams) -> Self {
        Self { dim: params.setting.into() }
    }

    fn parameter(&self) -> f64 {
        self.dim as f64
    }

    fn of_parameter(parameter: f64) -> Option<Self> {
        let dim = parameter as u16;
        let is_valid = f64::from(dim) == parameter && dim <= MAX_DIM;
        is_valid.then_some(Self { dim: dim.into() })
    }

    #[inline(always)]
    fn encode(&self, values: &[T], dst: &mut [u8]) -> Option<usize> {
        if self.dim != 0 {
            return self.encode_residuals(values, dst);
        }
        let (name, dst) = dst.split_first_mut()?;
        let bits = bits_by_dim::<T, { MAX_DIM as usize }>(values, N_SAMPLES);
        let best = (1..).zip(bits).min_by_key(|&(_, n_bits)| n_bits);
        let dim = best.map_or(1, |(dim, _)| dim);
        *name = dim as u8;
        Some(1 + Self { dim }.encode_residuals(values, dst)?)
    }

    #[inline(always)]
    fn decode(&self, src: &[u8], values: &mut [T]) -> Option<()> {
        if self.dim != 0 {
            return self.decode_residuals(src, values);
        }
        let (name, src) = src.split_first()?;
        let dim = usize::from(*name);
        let is_valid = (1..=usize::from(MAX_DIM)).contains(&dim);
        is_valid.then_some(Self { dim })?.decode_residuals(src, values)
    }
}

impl MpcCoder {
    /// Makes the coder for residuals to the value `dim` > 0 places before.
    pub(super) const fn of_dim(dim: usize) -> Self {
        Self { dim }
    }

    #[inline(always)]
    pub(super) fn encode_residuals<T: Float>(self, values: &[T], dst: &mut [u8]) -> Option<usize> {
        let most = dst.len();
        let per_group = T::Bits::BITS as usize;
        let n_groups = values.len().div_ceil(per_group);
        let (bitmaps, words) = dst.split_at_mut_checked(n_groups * T::BYTES)?;
        let mut n_bytes = 0;
        let (mut one, mut other) = ([T::Bits::ZERO; SECTION], [T::Bits::ZERO; SECTION]);
        let sections = values.chunks(SECTION);
        for (values, bitmaps) in sections.zip(bitmaps.chunks_mut(SECTION / per_group * T::BYTES)) {
            let (residuals, padding) = one.split_at_mut(values.len());
            let (first, later) = residuals.split_at_mut(values.len().min(self.dim));
            for (residual, x) in first.iter_mut().zip(values) {
                *residual = x.bits();
            }
            for ((residual, x), before) in later.iter_mut().zip(&values[first.len()..]).zip(values)
            {
                *residual = x.bits().minus(before.bits());
            }
            padding.fill(T::Bits::ZERO);
            let (planes, changes) = planes_of(&mut one, &mut other);
            changes_of(planes, changes);
            let kept = eliminate_zeros(changes, bitmaps, planes);
            let kept: &[u8] = bytemuck::cast_slice(kept);
            words.get_mut(n_bytes..n_bytes + kept.len())?.copy_from_slice(kept);
            n_bytes += kept.len();
        }
        Some(n_groups * T::BYTES + n_bytes).filter(|&n_bytes| n_bytes < most)
    }

    #[inline(always)]
    pub(super) fn decode_residuals<T: Float>(self, src: &[u8], values: &mut [T]) -> Option<()> {
        let per_group = T::Bits::BITS as usize;
        let n_groups = values.len().div_ceil(per_group);
        let (bitmaps, mut words) = src.split_at_checked(n_groups * T::BYTES)?;
        let (mut one, mut other) = ([T::Bits::ZERO; SECTION], [T::Bits::ZERO; SECTION]);
        let sections = values.chunks_mut(SECTION);
        for (values, bitmaps) in sections.zip(bitmaps.chunks(SECTION / per_group * T::BYTES)) {
            let n_kept = bitmaps.iter().map(|byte| byte.count_ones() as usize).sum::<usize>();
            let (kept, rest) = words.split_at_checked(n_kept * T::BYTES)?;
            words = rest;
            insert_zeros(kept, bitmaps, &mut one, &mut other)?;
            sums_of(&other, &mut one);
            let residuals = residuals_of(&mut one, &mut other);
            let n_padded = values.len().next_multiple_of(per_group);
            if residuals[values.len()..n_padded].iter().any(|bits| *bits != T::Bits::ZERO) {
                return None;
            }
            if self.dim == 1 {
                // A separate loop, so that the sum stays in a register.
                let mut sum = T::Bits::ZERO;
                for (x, residual) in values.iter_mut().zip(residuals) {
                    sum = sum.plus(*residual);
                    *x = T::from_bits(sum);
                }
                continue;
            }
            for i in self.dim..values.len() {
                residuals[i] = residuals[i].plus(residuals[i - self.dim]);
            }
            for (x, bits) in values.iter_mut().zip(residuals) {
                *x = T::from_bits(*bits);
            }
        }
        words.is_empty().then_some(())
    }
}

/// Returns up to `n_samples` samples of a chunk: the values in front of each, as many as the
/// largest `dim`, and then as many as a word has bits. None if the chunk is too short.
#[inline(always)]
pub(super) fn samples<T: Float>(
    values: &[T],
    max_dim: usize,
    n_samples: usize,
) -> impl Iterator<Item = &[T]> {
    let n_values = T::Bits::BITS as usize;
    let n_places = values.len().saturating_sub(max_dim) / n_values;
    let places = (0..n_places).step_by(n_places.div_ceil(n_samples).max(1));
    places.map(move |place| &values[place * n_values..][..max_dim + n_values])
}

/// Counts the bits that the samples of a chunk take for each `dim` from 1 on: bitmaps, and the
/// planes that differ from the plane below. All 0 if there are no samples.
#[inline(always)]
pub(super) fn bits_by_dim<T: Float, const MAX_DIM: usize>(
    values: &[T],
    n_samples: usize,
) -> [u32; MAX_DIM] {
    let mut n_bits = [0; MAX_DIM];
    for sample in samples(values, MAX_DIM, n_samples) {
        for (n_bits, dim) in n_bits.iter_mut().zip(1..) {
            let mut changes = T::Bits::ZERO;
            for (x, before) in sample[MAX_DIM..].iter().zip(&sample[MAX_DIM - dim..]) {
                let residual = x.bits().minus(before.bits());
                changes = changes | (residual ^ residual << 1);
            }
            *n_bits += (1 + changes.to_u64().count_ones()) * T::Bits::BITS;
        }
    }
    n_bits
}

/// Returns the number of steps of the transposition: log₂ of the bits of a word.
const fn n_steps<W: Word>() -> u32 {
    W::BITS.trailing_zeros()
}

/// Returns the mask of all bits whose index has a 0 in place `step`.
#[inline(always)]
fn mask<W: Word>(step: u32) -> W {
    let distance = 1 << step;
    W::from_u64(u64::MAX / ((1 << distance) + 1))
}

/// Exchanges the bits of `low` whose index has a 1 in place `step` for the bits of `high` whose
/// index has a 0 there.
#[inline(always)]
fn exchange<W: Word>(low: W, high: W, step: u32) -> (W, W) {
    let (mask, distance) = (mask::<W>(step), 1 << step);
    (low & mask | (high & mask) << distance, low >> distance & mask | high & !mask)
}

/// Transposes residuals to planes: word p · groups + g becomes plane p of group g. Overwrites both
/// buffers, and returns the one with the result and then the other one.
#[inline(always)]
fn planes_of<'a, W: Word>(
    mut from: &'a mut [W; SECTION],
    mut to: &'a mut [W; SECTION],
) -> (&'a mut [W; SECTION], &'a mut [W; SECTION]) {
    for step in 0..n_steps::<W>() {
        let (lows, highs) = to.split_at_mut(SECTION / 2);
        for ((low, high), pair) in lows.iter_mut().zip(highs).zip(from.as_chunks::<2>().0) {
            (*low, *high) = exchange(pair[0], pair[1], step);
        }
        core::mem::swap(&mut from, &mut to);
    }
    (from, to)
}

/// Inverse of [`planes_of`]. Returns the buffer with the result.
#[inline(always)]
fn residuals_of<'a, W: Word>(
    mut from: &'a mut [W; SECTION],
    mut to: &'a mut [W; SECTION],
) -> &'a mut [W; SECTION] {
    for step in (0..n_steps::<W>()).rev() {
        let (lows, highs) = from.split_at(SECTION / 2);
        for ((low, high), pair) in lows.iter().zip(highs).zip(to.as_chunks_mut::<2>().0) {
            (pair[0], pair[1]) = exchange(*low, *high, step);
        }
        core::mem::swap(&mut from, &mut to);
    }
    from
}

/// Writes the difference of each word to the previous one. The word before the first plane of a
/// group is the last plane of the previous group.
#[inline(always)]
fn changes_of<W: Word>(planes: &[W; SECTION], changes: &mut [W; SECTION]) {
    let n_groups = SECTION / W::BITS as usize;
    *changes = *planes;
    let last = &planes[SECTION - n_groups..];
    for (change, before) in changes[1..n_groups].iter_mut().zip(last) {
        *change = change.minus(*before);
    }
    for (change, before) in changes[n_groups..].iter_mut().zip(planes) {
        *change = change.minus(*before);
    }
}

/// Inverse of [`changes_of`].
#[inline(always)]
fn sums_of<W: Word>(changes: &[W; SECTION], planes: &mut [W; SECTION]) {
    let n_groups = SECTION / W::BITS as usize;
    let mut sums = [W::ZERO; MAX_GROUPS];
    let sums = &mut sums[..n_groups];
    for changes in changes.chunks_exact(n_groups) {
        for (sum, change) in sums.iter_mut().zip(changes) {
            *sum = sum.plus(*change);
        }
    }
    let mut before = W::ZERO;
    for sum in &mut *sums {
        let all = before.plus(*sum);
        *sum = before;
        before = all;
    }
    for (planes, changes) in planes.chunks_exact_mut(n_groups).zip(changes.chunks_exact(n_groups)) {
        for ((word, sum), change) in planes.iter_mut().zip(&mut *sums).zip(changes) {
            *sum = sum.plus(*change);
            *word = *sum;
        }
    }
}

/// Returns the words that are not 0, group by group, and writes a bitmap of their places for each
/// group.
#[inline(always)]
fn eliminate_zeros<'a, W: Word>(
    changes: &[W; SECTION],
    bitmaps: &mut [u8],
    kept: &'a mut [W; SECTION],
) -> &'a [W] {
    let n_groups = SECTION / W::BITS as usize;
    let mut n_kept = 0;
    for (group, bitmap) in bitmaps.chunks_exact_mut(size_of::<W>()).enumerate() {
        let mut bits = 0;
        for (plane, changes) in changes.chunks_exact(n_groups).enumerate() {
            let word = changes[group];
            let is_kept = word != W::ZERO;
            // If this word is 0, the next one overwrites it.
            kept[n_kept % SECTION] = word;
            n_kept += usize::from(is_kept);
            bits |= u64::from(is_kept) << plane;
        }
        bitmap.copy_from_slice(bytemuck::bytes_of(&W::from_u64(bits)));
    }
    &kept[..n_kept]
}

/// Inverse of [`eliminate_zeros`]. The caller has checked that `src` has one word for each bit that
/// is set in the bitmaps. Returns `None` if one of the words is 0.
#[inline(always)]
fn insert_zeros<W: Word>(
    src: &[u8],
    bitmaps: &[u8],
    kept: &mut [W; SECTION],
    changes: &mut [W; SECTION],
) -> Option<()> {
    let n_groups = SECTION / W::BITS as usize;
    let n_all = src.len() / size_of::<W>();
    bytemuck::cast_slice_mut(kept.as_mut_slice())[..src.len()].copy_from_slice(src);
    if kept[..n_all].iter().fold(false, |any, word| any | (*word == W::ZERO)) {
        return None;
    }
    changes.fill(W::ZERO);
    let mut n_kept = 0;
    for (group, bitmap) in bitmaps.chunks_exact(size_of::<W>()).enumerate() {
        let mut bits = pod_read_unaligned::<W>(bitmap).to_u64();
        for planes in changes.chunks_exact_mut(n_groups) {
            // No branch, because it would be mispredicted.
            let is_kept = bits & 1;
            planes[group] = kept[n_kept % SECTION] & W::from_u64(is_kept.wrapping_neg());
            n_kept += is_kept as usize;
            bits >>= 1;
        }
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec;
    use std::vec::Vec;

    /// A chunk of interleaved quantities of different magnitude, one of rows that are alike, and
    /// one that is too short for a sample.
    #[test]
    fn a_chunk_says_the_distance_that_suits_it() {
        let interleaved: Vec<f32> =
            (0..300_u16).map(|i| 10_f32.powi(i32::from(i % 3) * 4) + f32::from(i)).collect();
        let rows: Vec<f32> =
            (0..1000_u16).map(|i| f32::from(i % 48).sin() + f32::from(i / 48)).collect();
        for (values, dim) in [(&interleaved[..], 3), (&rows, 48), (&rows[..95], 1)] {
            let coder = |setting| MpcCoder { dim: setting };
            let encoded = |coder: MpcCoder| {
                let mut dst = vec![0xa5; size_of_val(values)];
                let n_bytes = coder.encode(values, &mut dst).expect("shorter than the values");
                dst.truncate(n_bytes);
                dst
            };
            let found = encoded(coder(0));
            assert_eq!(found[0], dim);
            assert_eq!(found[1..], encoded(coder(dim.into())));
            let mut decoded = vec![7.0; values.len()];
            for name in 0..=u8::MAX {
                let chunk = [&[name], &found[1..]].concat();
                let is_read = coder(0).decode(&chunk, &mut decoded).is_some();
                assert!(is_read || name != dim);
                assert!(!is_read || (1..=64).contains(&name));
            }
            coder(0).decode(&found, &mut decoded).unwrap();
            assert_eq!(decoded, values);
        }
    }
}
