//! Reading blocks in order: of a chunk as they are, and of a chunk or of floats as absolute codes.

use super::super::chunk::{ChunkView, MIXED};
use super::super::prefetch;
use super::super::stores::{self, Stores, can_stream};
use super::super::{BLOCK, Lattice, Scale};
use super::Convert;
use super::mixed::{LoadedBlock, MixedBlock, PrecedingCodes};
use crate::element::Float;

/// Walks the blocks of a chunk in order.
pub(super) struct ChunkReader<'a, T: Float> {
    payload: *const u8,
    widths: core::slice::Iter<'a, u8>,
    occupied: [u64; 2],
    /// The last exception.
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

    /// The width byte of `block`, 0 if it is not occupied. Call once for each block, in order.
    #[inline(always)]
    pub(super) fn width(&mut self, block: usize) -> u8 {
        if self.occupied[(block / 64) & 1] & (1 << (block % 64)) == 0 {
            return 0;
        }
        self.widths.next().copied().unwrap_or(0)
    }

    /// Takes the next `n_bytes` of payload.
    ///
    /// # Safety
    /// The view must have that many left.
    #[inline(always)]
    pub(super) unsafe fn take(&mut self, n_bytes: usize) -> *const u8 {
        let at = self.payload;
        // SAFETY: by the caller's promise.
        self.payload = unsafe { at.add(n_bytes) };
        at
    }

    /// A block of `n` values with exceptions.
    ///
    /// # Safety
    /// The level's instruction set; `width` must be what [`width`](Self::width) just returned for
    /// the block, MIXED or above.
    #[inline(always)]
    pub(super) unsafe fn mixed<S: Convert<T>>(
        &mut self,
        width: u8,
        n: usize,
        code: T::Code,
    ) -> LoadedBlock<T> {
        // SAFETY: the view's heads of blocks and sizes were checked.
        unsafe {
            let before = PrecedingCodes { code, exception: self.exception };
            let loaded = S::load(width, n, self.payload, before);
            self.payload = self.payload.add(loaded.n_bytes);
            self.exception = loaded.after.exception;
            loaded
        }
    }
}

/// The block at `block`, padded with its last value (whose residuals are then zero) if it is short.
#[inline(always)]
pub(super) fn padded<T: Float>(src: &[T], block: usize) -> [T; BLOCK] {
    let tail = &src[block * BLOCK..];
    let mut values = [tail[tail.len() - 1]; BLOCK];
    values[..tail.len()].copy_from_slice(tail);
    values
}

/// A block between reading and writing: codes, or beside them values that are on no lattice.
#[derive(Clone, Copy)]
pub(super) enum DecodedBlock<T: Float, S: Convert<T>> {
    Codes(S::Block),
    Mixed(MixedBlock<T>),
}

impl<T: Float, S: Convert<T>> DecodedBlock<T, S> {
    /// # Safety
    /// The level's instruction set.
    #[inline(always)]
    pub(super) unsafe fn mixed(self) -> MixedBlock<T> {
        match self {
            Self::Mixed(block) => block,
            // SAFETY: by the caller's promise.
            Self::Codes(codes) => MixedBlock::of_codes(unsafe { S::to_array(codes) }),
        }
    }

    /// Decodes the block, of `n` values, to `at`.
    ///
    /// # Safety
    /// The level's instruction set; room for the values.
    #[inline(always)]
    pub(super) unsafe fn store(self, scale: &Scale<T>, n: usize, at: *mut T) {
        // SAFETY: whole blocks have room for 32 values, short ones go through an array.
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

/// Where decoded blocks go.
pub(super) struct BlockOutput<T> {
    at: *mut T,
    streams: bool,
}

impl<T: Float> BlockOutput<T> {
    pub(super) fn new(at: *mut T, stores: Stores) -> Self {
        Self { at, streams: stores == Stores::PastCaches && can_stream(at) }
    }

    /// Asks for the place of a block that will come soon.
    #[inline(always)]
    pub(super) fn prepare(&self, block: usize) {
        if !self.streams {
            prefetch::block(self.at.wrapping_add(block * BLOCK).cast_const());
        }
    }

    /// Decodes a block of `n` values to its place.
    ///
    /// # Safety
    /// The level's instruction set; room for the values.
    #[inline(always)]
    pub(super) unsafe fn put<S: Convert<T>>(
        &self,
        block: usize,
        n: usize,
        values: DecodedBlock<T, S>,
        scale: &Scale<T>,
    ) {
        // SAFETY: by the caller's promise; `streams` says that whole blocks can be streamed.
        unsafe {
            let at = self.at.add(block * BLOCK);
            if self.streams && n == BLOCK {
                let mut near = [T::ZERO; BLOCK];
                values.store(scale, BLOCK, near.as_mut_ptr());
                stores::block(near.as_ptr(), at);
            } else {
                values.store(scale, n, at);
            }
        }
    }
}

/// Blocks in order, from a chunk or from floats.
pub(super) trait BlockSource<T: Float, S: Convert<T>> {
    /// # Safety
    /// The level's instruction set; call once for each block in order; `n` is the block's length.
    unsafe fn next(&mut self, block: usize, n: usize) -> DecodedBlock<T, S>;
}

pub(super) struct FromChunk<'a, T: Float, S: Convert<T>> {
    reader: ChunkReader<'a, T>,
    before: S::Carry,
}

impl<'a, T: Float, S: Convert<T>> FromChunk<'a, T, S> {
    /// # Safety
    /// The level's instruction set.
    #[inline(always)]
    pub(super) unsafe fn new(view: &ChunkView<'a, T>) -> Self {
        // SAFETY: by the caller's promise.
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

/// Floats, as many as blocks are asked for. A pointer, because the output may be in the same place.
pub(super) struct FromFloats<'a, T: Float> {
    pub(super) values: *const T,
    pub(super) lattice: &'a Lattice<T>,
}

impl<T: Float, S: Convert<T>> BlockSource<T, S> for FromFloats<'_, T> {
    #[inline(always)]
    unsafe fn next(&mut self, block: usize, n: usize) -> DecodedBlock<T, S> {
        // SAFETY: the block's values are there; the instruction set by the caller's promise.
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
