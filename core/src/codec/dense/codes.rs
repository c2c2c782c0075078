//! Codes of a chunk's values, and the exceptions among them.

use super::classes::{LowBitWriter, bits_at, next_byte, put_classes, take_classes};
use crate::element::Float;
use crate::element::sealed::{Wide, Word};
use crate::kernel::at_level::Task;
use crate::kernel::{BLOCK, BLOCKS, CHUNK, Code, Lattice, Scale};
use crate::op::{self, LatticeOp};

/// Kinds of blocks. Most blocks are of the kind that `classes` assume before the first.
const ALL: u8 = 0;
const SOME: u8 = 1;
const NONE: u8 = 2;
const SOME_FRESH: u8 = 3;
const ALL_FRESH: u8 = 4;

/// Values of a chunk that are not on the lattice.
#[derive(Debug)]
pub(super) struct Exceptions<T> {
    /// One mask per block; bit i marks value i as an exception.
    masks: [u32; BLOCKS],
    /// Values of the exceptions at their places. All other places are unspecified.
    values: [T; CHUNK],
    /// Number of leading blocks that may have exceptions.
    n_blocks: usize,
}

impl<T: Float> Exceptions<T> {
    /// No exceptions. A constant, because a function's result would be on the stack twice.
    pub(super) const NONE: Self =
        Self { masks: [0; BLOCKS], values: [T::ZERO; CHUNK], n_blocks: 0 };

    pub(super) fn clear(&mut self) {
        self.masks[..self.n_blocks].fill(0);
        self.n_blocks = 0;
    }

    /// Copies the other exceptions, in place because they are large.
    pub(super) fn copy_from(&mut self, others: &Self) {
        self.masks.copy_from_slice(&others.masks);
        self.values.copy_from_slice(&others.values);
        self.n_blocks = others.n_blocks;
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.n_blocks == 0
    }

    /// Returns the number of blocks with exceptions and the number of exceptions.
    pub(super) fn counts(&self) -> (u32, u32) {
        let masks = &self.masks[..self.n_blocks];
        let n_blocks = masks.iter().filter(|mask| **mask > 0).count();
        (n_blocks as u32, masks.iter().map(|mask| mask.count_ones()).sum())
    }

    /// Makes the value at `at` an exception.
    fn set(&mut self, at: usize, value: T) {
        self.masks[at / BLOCK] |= 1 << (at % BLOCK);
        self.values[at] = value;
        self.n_blocks = self.n_blocks.max(at / BLOCK + 1);
    }

    fn has(&self, at: usize) -> bool {
        self.masks[at / BLOCK] >> (at % BLOCK) & 1 == 1
    }

    /// Returns the places of the exceptions, in order.
    fn places(&self) -> impl Iterator<Item = usize> {
        places(&self.masks[..self.n_blocks])
    }

    /// Returns the place of the first value, among the first `n_values`, that is not an exception.
    pub(super) fn first_code(&self, n_values: usize) -> Option<usize> {
        (0..n_values).find(|&at| !self.has(at))
    }

    /// Sets the code at each exception to the previous code, so that it has a small residual. An
    /// exception at place 0 gets `first`.
    pub(super) fn hold(&self, codes: &mut [T::Bits], first: T::Bits) {
        for at in self.places() {
            codes[at] = if at == 0 { first } else { codes[at - 1] };
        }
    }

    /// Reduces two operands wherever one of them is an exception. `self` and `codes` are the
    /// exceptions and codes of one operand, and `others` holds the codes and exceptions of the
    /// other. Afterwards `self` has the exceptions of the result, others ⊕ self.
    ///
    /// If either operand is an exception at a place, so is the result. It is computed from the
    /// values to which the operands decode as partial results.
    pub(super) fn join(
        &mut self,
        codes: &mut [T::Bits],
        others: (&[T::Bits], &Self),
        op: LatticeOp,
        lattice: &Lattice<T>,
    ) {
        let step = lattice.step * lattice.weight.widen();
        let mut masks = [0; BLOCKS];
        let n_blocks = self.n_blocks.max(others.1.n_blocks);
        for (mask, (ours, theirs)) in masks.iter_mut().zip(self.masks.iter().zip(others.1.masks)) {
            *mask = ours | theirs;
        }
        for at in places(&masks[..n_blocks]) {
            let value = |all: &Self, codes: &[T::Bits]| {
                if all.has(at) { all.values[at] } else { value_of::<T>(codes[at], step) }
            };
            let (a, b) = (value(others.1, others.0), value(self, codes));
            let result = match op {
                LatticeOp::Sum => op::sum(a, b),
                LatticeOp::Min => op::minimum(a, b),
                LatticeOp::Max => op::maximum(a, b),
            };
            self.set(at, result);
        }
    }

    /// Writes the exceptions among the first `n_values` values to the front of `dst` and returns
    /// the number of bytes. `None` if there is no space.
    ///
    /// Each block has a kind, written as `classes` are. It says whether values, or all of them, are
    /// exceptions, and whether some are *fresh*: they differ from the exception before them. A
    /// mask follows of each block with exceptions and codes, then one of each block with fresh
    /// exceptions, and then the fresh values.
    pub(super) fn write(&self, n_values: usize, dst: &mut [u8]) -> Option<usize> {
        let masks = &self.masks[..n_values.div_ceil(BLOCK)];
        let (mut kinds, mut fresh) = ([NONE; BLOCKS], [0; BLOCKS]);
        let (kinds, fresh) = (&mut kinds[..masks.len()], &mut fresh[..masks.len()]);
        let mut last = T::QUIET_NAN.bits();
        for at in places(masks) {
            let bits = self.values[at].bits();
            fresh[at / BLOCK] |= u32::from(bits != last) << (at % BLOCK);
            last = bits;
        }
        for (i, kind) in kinds.iter_mut().enumerate().filter(|(i, _)| masks[*i] > 0) {
            *kind = match (masks[i] == full_mask(n_values - i * BLOCK), fresh[i] > 0) {
                (true, false) => ALL,
                (false, false) => SOME,
                (false, true) => SOME_FRESH,
                (true, true) => ALL_FRESH,
            };
        }
        let mut writer = LowBitWriter::new(dst, 0);
        put_classes(kinds, &mut writer)?;
        for (mask, _) in masks.iter().zip(&*kinds).filter(|(_, kind)| is_mixed(**kind)) {
            put_mask(*mask, &mut writer)?;
        }
        fresh.iter().filter(|mask| **mask > 0).try_for_each(|mask| put_mask(*mask, &mut writer))?;
        let mut at = writer.end();
        for place in places(fresh) {
            let bits = self.values[place].bits();
            dst.get_mut(at..at + T::BYTES)?.copy_from_slice(bytemuck::bytes_of(&bits));
            at += T::BYTES;
        }
        Some(at)
    }

    /// Inverse of [`write`](Self::write) for all of `src[..len]`; `None` if no writer writes such
    /// bytes. `src` has at least eight bytes after `len`.
    pub(super) fn read(&mut self, n_values: usize, src: &[u8], len: usize) -> Option<()> {
        let n_blocks = n_values.div_ceil(BLOCK);
        let (mut kinds, mut fresh) = ([NONE; BLOCKS], [0; BLOCKS]);
        let (kinds, fresh) = (&mut kinds[..n_blocks], &mut fresh[..n_blocks]);
        let mut bit = take_classes(kinds, ALL_FRESH.into(), src, 0)?;
        self.n_blocks = n_blocks;
        for (i, kind) in kinds.iter().enumerate() {
            let every = full_mask(n_values - i * BLOCK);
            self.masks[i] = match *kind {
                NONE => 0,
                ALL | ALL_FRESH => every,
                _ => take_mask(every, src, &mut bit)?,
            };
        }
        for (i, _) in kinds.iter().enumerate().filter(|(_, kind)| **kind > NONE) {
            fresh[i] = take_mask(self.masks[i], src, &mut bit)?;
        }
        if self.counts().0 == 0 {
            return None;
        }
        let mut values = src.get(next_byte(src, bit)?..len)?.chunks_exact(T::BYTES);
        let mut last = T::QUIET_NAN;
        for at in places(&self.masks[..n_blocks]) {
            if fresh[at / BLOCK] >> (at % BLOCK) & 1 == 1 {
                last = T::from_bits(bytemuck::pod_read_unaligned(values.next()?));
            }
            self.values[at] = last;
        }
        (values.next().is_none() && values.remainder().is_empty()).then_some(())
    }

    /// Writes the bits of all values: codes, or exceptions in their places. A bitmap of the
    /// exceptions follows, if there are any. Returns the number of bytes.
    pub(super) fn write_plain(&self, codes: &[T::Bits], dst: &mut [u8]) -> usize {
        let n_words = size_of_val(codes);
        dst[..n_words].copy_from_slice(bytemuck::cast_slice(codes));
        if self.is_empty() {
            return n_words;
        }
        for at in self.places() {
            dst[at * T::BYTES..][..T::BYTES]
                .copy_from_slice(bytemuck::bytes_of(&self.values[at].bits()));
        }
        let masks = &self.masks[..codes.len().div_ceil(BLOCK)];
        let n_bitmap = codes.len().div_ceil(8);
        dst[n_words..n_words + n_bitmap].copy_from_slice(&bytemuck::cast_slice(masks)[..n_bitmap]);
        n_words + n_bitmap
    }

    /// Inverse of [`write_plain`](Self::write_plain). Leaves the codes of exceptions unspecified.
    pub(super) fn read_plain(
        &mut self,
        has_exceptions: bool,
        codes: &mut [T::Bits],
        src: &[u8],
    ) -> Option<()> {
        let (words, bitmap) = src.split_at_checked(size_of_val(codes))?;
        bytemuck::cast_slice_mut(codes).copy_from_slice(words);
        if !has_exceptions {
            return bitmap.is_empty().then_some(());
        }
        if bitmap.len() != codes.len().div_ceil(8) {
            return None;
        }
        let bit = |at: usize| bitmap[at / 8] >> (at % 8) & 1 == 1;
        for at in (0..8 * bitmap.len()).filter(|&at| bit(at)) {
            self.set(at, T::from_bits(*codes.get(at)?));
        }
        (!self.is_empty()).then_some(())
    }
}

/// Returns whether a block of this kind has both exceptions and codes.
const fn is_mixed(kind: u8) -> bool {
    matches!(kind, SOME | SOME_FRESH)
}

/// Writes a mask that is not 0. One run of ones takes 11 bits, and any other mask 33.
fn put_mask(mask: u32, writer: &mut LowBitWriter<'_>) -> Option<()> {
    let first = mask.trailing_zeros();
    let ones = mask >> first;
    match ones & ones.wrapping_add(1) {
        0 => writer.put(u64::from(1 | first << 1 | (ones.count_ones() - 1) << 6), 11),
        _ => writer.put(u64::from(mask) << 1, 33),
    }
}

/// Inverse of [`put_mask`]; `None` if the mask is 0 or not part of `every`. Moves `bit` past it.
fn take_mask(every: u32, src: &[u8], bit: &mut usize) -> Option<u32> {
    let bits = bits_at(src, *bit)?;
    let is_run = bits & 1 == 1;
    *bit += if is_run { 11 } else { 33 };
    let run = || u64::from(full_mask(1 + (bits >> 6 & 31) as usize)) << (bits >> 1 & 31);
    let mask = u32::try_from(if is_run { run() } else { bits >> 1 & u64::from(u32::MAX) }).ok()?;
    (mask > 0 && mask & !every == 0).then_some(mask)
}

/// Returns the mask of the first `n` values of a block, or of all values if `n` is larger.
fn full_mask(n: usize) -> u32 {
    u32::MAX >> (BLOCK - n.min(BLOCK))
}

/// Returns the places of the set bits.
fn places(masks: &[u32]) -> impl Iterator<Item = usize> {
    masks.iter().enumerate().flat_map(|(i, &mask)| {
        let mut rest = mask;
        core::iter::from_fn(move || {
            let bit = rest.trailing_zeros() as usize;
            rest &= rest.wrapping_sub(1);
            (bit < BLOCK).then_some(i * BLOCK + bit)
        })
    })
}

/// Returns the value of a code.
#[inline(always)]
fn value_of<T: Float>(code: T::Bits, step: T::Wide) -> T {
    T::narrow(T::Wide::from_code(T::Code::from_bits(code.to_u64())) * step)
}

/// Writes the codes of values. Adds the values that are not on the lattice, multiplied by the
/// weight, to the exceptions (docs/guarantees.md, "The check").
#[inline(always)]
fn quantise<T: Float>(
    values: &[T],
    lattice: &Lattice<T>,
    codes: &mut [T::Bits],
    exceptions: &mut Exceptions<T>,
) {
    let rounder = T::narrow(T::Wide::ROUNDER).bits();
    let code = |x: T| {
        let x = x.widen();
        let rounded = x * lattice.inverse + T::Wide::ROUNDER;
        let nearest = rounded - T::Wide::ROUNDER;
        let error = (x - nearest * lattice.step).abs();
        let is_point = (nearest.abs() <= lattice.limit) & (error < lattice.bound);
        // Near the rounder, the bit patterns of floats count up by one per integer.
        (T::narrow(rounded).bits().minus(rounder), is_point)
    };
    let mut all = true;
    for (to, &x) in codes.iter_mut().zip(values) {
        let is_point;
        (*to, is_point) = code(x);
        all &= is_point;
    }
    if !all {
        for (at, &x) in values.iter().enumerate() {
            if !code(x).1 {
                // A product would turn a signalling NaN into a quiet one.
                let is_one = lattice.weight == T::ONE;
                exceptions.set(at, if is_one { x } else { op::weighted(x, lattice.weight) });
            }
        }
    }
}

/// Writes the values of codes and exceptions.
#[inline(always)]
fn dequantise<T: Float>(
    codes: &[T::Bits],
    exceptions: &Exceptions<T>,
    scale: &Scale<T>,
    values: &mut [T],
) {
    for (x, &code) in values.iter_mut().zip(codes) {
        *x = value_of::<T>(code, scale.of_codes());
    }
    let n_values = values.len();
    for at in exceptions.places().take_while(|&at| at < n_values) {
        let value = exceptions.values[at];
        let is_one = scale.divisor() == T::Wide::ONE;
        values[at] = if is_one { value } else { op::quotient(value, scale.divisor()) };
    }
}

/// Reduces codes in place: codes ← codes ⊕ others.
#[inline(always)]
fn operate<T: Float>(op: LatticeOp, codes: &mut [T::Bits], others: &[T::Bits]) {
    let signed = |code: T::Bits| T::Code::from_bits(code.to_u64());
    let pairs = codes.iter_mut().zip(others);
    match op {
        LatticeOp::Sum => pairs.for_each(|(a, b)| *a = a.plus(*b)),
        LatticeOp::Min => pairs.for_each(|(a, b)| {
            if signed(*b) < signed(*a) {
                *a = *b;
            }
        }),
        LatticeOp::Max => pairs.for_each(|(a, b)| {
            if signed(*b) > signed(*a) {
                *a = *b;
            }
        }),
    }
}

/// [`quantise`] at a level.
pub(super) struct QuantiseTask<'a, T: Float> {
    pub(super) values: &'a [T],
    pub(super) lattice: &'a Lattice<T>,
    pub(super) codes: &'a mut [T::Bits],
    pub(super) exceptions: &'a mut Exceptions<T>,
}

impl<T: Float> Task for QuantiseTask<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        quantise(self.values, self.lattice, self.codes, self.exceptions);
    }
}

/// [`dequantise`] at a level.
pub(super) struct DequantiseTask<'a, T: Float> {
    pub(super) codes: &'a [T::Bits],
    pub(super) exceptions: &'a Exceptions<T>,
    pub(super) scale: &'a Scale<T>,
    pub(super) values: &'a mut [T],
}

impl<T: Float> Task for DequantiseTask<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        dequantise(self.codes, self.exceptions, self.scale, self.values);
    }
}

/// [`operate`] at a level.
pub(super) struct OperateTask<'a, T: Float> {
    pub(super) op: LatticeOp,
    pub(super) codes: &'a mut [T::Bits],
    pub(super) others: &'a [T::Bits],
}

impl<T: Float> Task for OperateTask<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        operate::<T>(self.op, self.codes, self.others);
    }
}
