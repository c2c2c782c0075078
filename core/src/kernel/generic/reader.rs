//! Readers of blocks in order: [`ChunkReader`] of the packed blocks of a chunk, and [`BlockSource`]
//! of absolute codes, which come from a chunk or from floats.

use super::super::chunk::{ChunkView, MIXED};
use super::super::prefetch;
use super::super::stores::{self, Stores, can_stream};
use super::super::{BLOCK, Lattice, Scale};
use super::Convert;
use super::mixed::{LoadedBlock, MixedBlock, PrecedingCodes};
use crate::element::Float;

/// Reader of the blocks of a chunk, in order.
pub(super) struct ChunkReader<'a, T: Float> {
    payload: *const u8,
    widths: core::slice::Iter<'a, u8>,
    occupied: [u64; 2],
    /// Last exception so far.
    exception: T,
}

impl<'a, T: Float> ChunkReader<'a, T> {
    #[inline(always)]
    pub(super) fn new(view: &ChunkView<'a, T>) -> Self {
        Self {
            payload: view.payload().as_ptr(),
            widths: view.widths().iter(),
            occupied: view.occupied(),
            exception: T::QUIET_NAN,
        }
    }

    /// Returns the width byte of `block`; 0 if it is not occupied. Must be called once for each
    /// occupied block, in order.
    #[inline(always)]
    pub(super) fn width(&mut self, block: usize) -> u8 {
        if self.occupied[(block / 64) & 1] & (1 << (block % 64)) == 0 {
            return 0;
        }
        self.widths.next().copied().unwrap_or(0)
    }

    /// Returns a pointer to the next `n_bytes` of payload and advances past them.
    ///
    /// # Safety
    /// The view must have `n_bytes` left.
    #[inline(always)]
    pub(super) unsafe fn take(&mut self, n_bytes: usize) -> *const u8 {
        let at = self.payload;
        // SAFETY: guaranteed by the caller.
        self.payload = unsafe { at.add(n_bytes) };
        at
    }

    /// Reads a block of `n` values with exceptions. `code` is the last code before the block.
    ///
    /// # Safety
    /// Requires the level's instruction set. [`width`](Self::width) must have just returned `width`
    /// for this block, and it must be MIXED or above.
    #[inline(always)]
    pub(super) unsafe fn mixed<S: Convert<T>>(
        &mut self,
        width: u8,
        n: usize,
        code: T::Code,
    ) -> LoadedBlock<T> {
        // SAFETY: the view's constructor checked the heads and sizes of blocks.
        unsafe {
            let before = PrecedingCodes { code, exception: self.exception };
            let loaded = S::load(width, n, self.payload, before);
            self.payload = self.payload.add(loaded.n_bytes);
            self.exception = loaded.after.exception;
            loaded
        }
    }
}

/// Returns block `block` of `src`. A short block is padded with its last value, so that the padding
/// has residuals of 0.
#[inline(always)]
pub(super) fn padded<T: Float>(src: &[T], block: usize) -> [T; BLOCK] {
    let tail = &src[block * BLOCK..];
    let mut values = [tail[tail.len() - 1]; BLOCK];
    values[..tail.len()].copy_from_slice(tail);
    values
}

/// Block with absolute codes, or with codes and exceptions.
#[derive(Clone, Copy)]
pub(super) enum DecodedBlock<T: Float, S: Convert<T>> {
    Codes(S::Block),
    Mixed(MixedBlock<T>),
}

impl<T: Float, S: Convert<T>> DecodedBlock<T, S> {
    /// Converts the block to the form that may have exceptions.
    ///
    /// # Safety
    /// Requires the level's instruction set.
    #[inline(always)]
    pub(super) unsafe fn mixed(self) -> MixedBlock<T> {
        match self {
            Self::Mixed(block) => block,
            // SAFETY: guaranteed by the caller.
            Self::Codes(codes) => MixedBlock::of_codes(unsafe { S::to_array(codes) }),
        }
    }

    /// Decodes the block, of `n` values, to `at`.
    ///
    /// # Safety
    /// Requires the level's instruction set; `at` must be writable for `n` values.
    #[inline(always)]
    pub(super) unsafe fn store(self, scale: &Scale<T>, n: usize, at: *mut T) {
        // SAFETY: `at` has space for 32 values if the block is full; a short block goes through an
        // array.
        unsafe {
            match self {
                Self::Codes(codes) if n == BLOCK => S::dequantise(codes, scale.of_codes, at),
                Self::Codes(codes) => {
                    let mut values = [T::ZERO; BLOCK];
                    S::dequantise(codes, scale.of_codes, values.as_mut_ptr());
                    at.copy_from_nonoverlapping(values.as_ptr(), n);
                }
                Self::Mixed(block) => S::decode(&block, scale, n, at),
            }
        }
    }
}

/// Destination of decoded blocks.
pub(super) struct BlockOutput<T> {
    at: *mut T,
    /// True if full blocks are stored past the caches.
    streams: bool,
}

impl<T: Float> BlockOutput<T> {
    pub(super) fn new(at: *mut T, stores: Stores) -> Self {
        Self { at, streams: stores == Stores::PastCaches && can_stream(at) }
    }

    /// Prefetches the place of a block that will be written soon.
    #[inline(always)]
    pub(super) fn prepare(&self, block: usize) {
        if !self.streams {
            prefetch::block(self.at.wrapping_add(block * BLOCK).cast_const());
        }
    }

    /// Decodes a block of `n` values to its place.
    ///
    /// # Safety
    /// Requires the level's instruction set; the output must have space for the values.
    #[inline(always)]
    pub(super) unsafe fn put<S: Convert<T>>(
        &self,
        block: usize,
        n: usize,
        values: DecodedBlock<T, S>,
        scale: &Scale<T>,
    ) {
        // SAFETY: guaranteed by the caller; if `streams` is set, the output passed `can_stream`.
        unsafe {
            let at = self.at.add(block * BLOCK);
            if self.streams && n == BLOCK {
                let mut decoded = [T::ZERO; BLOCK];
                values.store(scale, BLOCK, decoded.as_mut_ptr());
                stores::block(decoded.as_ptr(), at);
            } else {
                values.store(scale, n, at);
            }
        }
    }
}

/// Source of blocks in order: a chunk or floats.
pub(super) trait BlockSource<T: Float, S: Convert<T>> {
    /// Returns block `block`, which has `n` values.
    ///
    /// # Safety
    /// Requires the level's instruction set. Must be called once for each block, in order; `n` must
    /// be the block's length.
    unsafe fn next(&mut self, block: usize, n: usize) -> DecodedBlock<T, S>;
}

/// Source of blocks from a chunk.
pub(super) struct FromChunk<'a, T: Float, S: Convert<T>> {
    reader: ChunkReader<'a, T>,
    /// Last code so far.
    before: S::Carry,
}

impl<'a, T: Float, S: Convert<T>> FromChunk<'a, T, S> {
    /// # Safety
    /// Requires the level's instruction set.
    #[inline(always)]
    pub(super) unsafe fn new(view: &ChunkView<'a, T>) -> Self {
        // SAFETY: guaranteed by the caller.
        Self { reader: ChunkReader::new(view), before: unsafe { S::splat(view.first()) } }
    }
}

impl<T: Float, S: Convert<T>> BlockSource<T, S> for FromChunk<'_, T, S> {
    #[inline(always)]
    unsafe fn next(&mut self, block: usize, n: usize) -> DecodedBlock<T, S> {
        let width = self.reader.width(block);
        // SAFETY: as in `decode`.
        unsafe {
            match width {
                0 => DecodedBlock::Codes(S::fill(self.before)),
                MIXED.. => {
                    let before = S::first(S::fill(self.before));
                    let loaded = self.reader.mixed::<S>(width, n, before);
                    self.before = S::splat(loaded.after.code);
                    DecodedBlock::Mixed(loaded.block)
                }
                _ => {
                    let at = self.reader.take(4 * usize::from(width));
                    let residuals = S::unzigzag(S::unpack(at, u32::from(width)));
                    let codes = S::scan(residuals, self.before);
                    self.before = S::last(codes);
                    DecodedBlock::Codes(codes)
                }
            }
        }
    }
}

/// Source of blocks from floats. It has a pointer instead of a slice, because the caller may write
/// its output to the same buffer.
pub(super) struct FromFloats<'a, T: Float> {
    pub(super) values: *const T,
    pub(super) lattice: &'a Lattice<T>,
}

impl<T: Float, S: Convert<T>> BlockSource<T, S> for FromFloats<'_, T> {
    #[inline(always)]
    unsafe fn next(&mut self, block: usize, n: usize) -> DecodedBlock<T, S> {
        // SAFETY: the block's values are readable; the caller guarantees the instruction set.
        unsafe {
            let at = self.values.add(block * BLOCK);
            if n == BLOCK {
                let (codes, on_lattice) = S::quantise(at, self.lattice);
                if on_lattice {
                    DecodedBlock::Codes(codes)
                } else {
                    DecodedBlock::Mixed(S::of_values(at, self.lattice))
                }
            } else {
                let values = padded(core::slice::from_raw_parts(at, n), 0);
                let (codes, on_lattice) = S::quantise(values.as_ptr(), self.lattice);
                if on_lattice {
                    DecodedBlock::Codes(codes)
                } else {
                    DecodedBlock::Mixed(S::of_values(values.as_ptr(), self.lattice))
                }
            }
        }
    }
}
