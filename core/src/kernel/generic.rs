//! The chunk loops, written once over [`Isa`].
//!
//! A loop reads blocks of 32 values, turns them into residuals of lattice codes and hands them to a
//! [`ChunkWriter`]; or walks a [`ChunkView`] the other way. What is specific to an instruction set is
//! one block in registers: quantise, difference, prefix sum, bit packing.
//!
//! `fold` and `combine` have a fast loop, entered when no block is verbatim, which for sums stays in
//! the residual domain: differences add like the values do, so no prefix sum is needed and a
//! constant block costs nothing. Everything else (minimum, maximum, verbatim blocks) goes through
//! [`merge`], which works on absolute codes.
//!
//! Every function here is `inline(always)` into the level's `#[target_feature]` entry points, where
//! the intrinsics of the `Isa` become single instructions.

use super::chunk::{CONSTANT, ChunkView, DENSE, FIRST_SIZE_SHIFT, REPEAT, SPECIAL, VERBATIM};
use super::{BLOCK, BLOCKS, Code, Encoded, Lattice};
use crate::element::Element;
use crate::op::{self, LatticeOp};
use core::marker::PhantomData;

/// One block of 32 codes in an instruction set's registers.
///
/// # Safety
/// All methods require the instruction set. Pointers to values must be valid for 32 of them,
/// unaligned; `pack` may write [`STORE_SLACK`](super::STORE_SLACK) bytes past the 4·c it fills, `unpack` may read
/// [`PAD`](super::PAD) bytes past them.
pub(super) unsafe trait Isa<T: Element>: Copy {
    /// 32 codes, residuals or zig-zag residuals.
    type Block: Copy;
    /// One code in a form that `diff` and `scan` can use.
    type Carry: Copy;

    /// Codes of 32 values, and whether every value is on the lattice (docs/guarantees.md, "Check"):
    /// t = x·inverse; |t| ≤ limit; q = round-to-even(t); |x − q·step| < bound.
    unsafe fn quantise(src: *const T, lattice: &Lattice<T>) -> (Self::Block, bool);
    /// dst = codes · scale.
    unsafe fn dequantise(codes: Self::Block, scale: T, dst: *mut T);
    unsafe fn splat(code: T::Code) -> Self::Carry;
    unsafe fn first(codes: Self::Block) -> T::Code;
    unsafe fn last(codes: Self::Block) -> Self::Carry;
    /// Every code equal to the carry.
    unsafe fn fill(code: Self::Carry) -> Self::Block;
    /// Each code minus the one before; the carry stands before the first.
    unsafe fn diff(codes: Self::Block, before: Self::Carry) -> Self::Block;
    /// Inverse of `diff`.
    unsafe fn scan(residuals: Self::Block, before: Self::Carry) -> Self::Block;
    unsafe fn add(a: Self::Block, b: Self::Block) -> Self::Block;
    unsafe fn min(a: Self::Block, b: Self::Block) -> Self::Block;
    unsafe fn max(a: Self::Block, b: Self::Block) -> Self::Block;
    unsafe fn zigzag(residuals: Self::Block) -> Self::Block;
    unsafe fn unzigzag(bits: Self::Block) -> Self::Block;
    /// Bits of the largest value, 0 if all are zero.
    unsafe fn width(zigzags: Self::Block) -> u32;
    /// Writes 32 values of `width` ≥ 1 bits, 4·`width` bytes.
    unsafe fn pack(zigzags: Self::Block, width: u32, dst: *mut u8);
    unsafe fn unpack(src: *const u8, width: u32) -> Self::Block;
}

/// Writes a chunk block by block.
struct ChunkWriter<T: Element, S: Isa<T>> {
    start: *mut u8,
    payload: *mut u8,
    first: T::Code,
    before: Option<S::Carry>,
    occupied: [u64; 2],
    widths: [u8; BLOCKS],
    n_widths: usize,
    verbatim_blocks: u32,
}

impl<T: Element, S: Isa<T>> ChunkWriter<T, S> {
    /// # Safety
    /// `dst` must be valid for [`max_chunk_len`](super::max_chunk_len) bytes of the chunk written.
    #[inline(always)]
    unsafe fn new(dst: *mut u8) -> Self {
        Self {
            start: dst,
            // SAFETY: within the destination by the caller's promise.
            payload: unsafe { dst.add(1) },
            first: T::Code::ZERO,
            before: None,
            occupied: [0; 2],
            widths: [0; BLOCKS],
            n_widths: 0,
            verbatim_blocks: 0,
        }
    }

    #[inline(always)]
    fn occupy(&mut self, block: usize, width: u8) {
        self.occupied[(block / 64) & 1] |= 1 << (block % 64);
        self.widths[self.n_widths & (BLOCKS - 1)] = width;
        self.n_widths += 1;
    }

    /// Block `block` is these codes.
    ///
    /// # Safety
    /// The level's instruction set; no more blocks than the chunk has.
    #[inline(always)]
    unsafe fn codes(&mut self, block: usize, codes: S::Block) {
        // SAFETY: the caller has the instruction set.
        unsafe {
            let before = match self.before {
                Some(before) => before,
                None => {
                    self.first = S::first(codes);
                    S::splat(self.first)
                }
            };
            self.before = Some(S::last(codes));
            self.residuals(block, S::diff(codes, before));
        }
    }

    /// Block `block` is these residuals; `first` is the caller's business.
    ///
    /// # Safety
    /// As for [`codes`](Self::codes).
    #[inline(always)]
    unsafe fn residuals(&mut self, block: usize, residuals: S::Block) {
        // SAFETY: the instruction set is the caller's promise. At most 4·BITS bytes are written a block,
        // which is what `max_chunk_len` counts, plus its slack.
        unsafe {
            let zigzags = S::zigzag(residuals);
            let width = S::width(zigzags);
            if width == 0 {
                return;
            }
            self.occupy(block, width as u8);
            S::pack(zigzags, width, self.payload);
            self.payload = self.payload.add(4 * width as usize);
        }
    }

    /// Block `block` is a copy of a packed block.
    ///
    /// # Safety
    /// `src` must be readable for the block and [`PAD`](super::PAD) bytes more.
    #[inline(always)]
    unsafe fn copy(&mut self, block: usize, width: u8, src: *const u8) {
        let n_bytes = 4 * usize::from(width);
        self.occupy(block, width);
        // SAFETY: pieces of 32 bytes reach less than PAD past the block in `src` and less than
        // STORE_SLACK in the destination.
        unsafe {
            let mut at = 0;
            while at < n_bytes {
                self.payload
                    .add(at)
                    .cast::<[u8; 32]>()
                    .write_unaligned(src.add(at).cast::<[u8; 32]>().read_unaligned());
                at += 32;
            }
            self.payload = self.payload.add(n_bytes);
        }
    }

    /// Block `block` is these values as they are. The chain of codes passes over it.
    ///
    /// # Safety
    /// As for [`codes`](Self::codes).
    #[cold]
    #[inline(never)]
    unsafe fn verbatim(&mut self, block: usize, values: &[T]) {
        self.verbatim_blocks += 1;
        let repeated = values.iter().all(|v| v.bits() == values[0].bits());
        let stored = if repeated { &values[..1] } else { values };
        self.occupy(block, if repeated { REPEAT } else { VERBATIM });
        let bytes: &[u8] = bytemuck::cast_slice(stored);
        // SAFETY: a verbatim block is no larger than the widest packed one, which is in `max_chunk_len`.
        unsafe {
            self.payload.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len());
            self.payload = self.payload.add(bytes.len());
        }
    }

    /// Writes tag and trailer.
    ///
    /// # Safety
    /// Exactly `n_blocks` blocks were written or left constant.
    #[inline(always)]
    unsafe fn finish(self, n_blocks: usize) -> Encoded {
        let dense = self.n_widths == n_blocks;
        let mut tag = if self.verbatim_blocks > 0 { SPECIAL } else { 0 };
        tag |= match self.n_widths {
            0 => CONSTANT,
            n if n == n_blocks => DENSE,
            _ => 0,
        };
        // A code of b significant bits, sign included, in 1, 2, 4 or 8 bytes.
        let significant = u64::BITS - self.first.zigzag().leading_zeros();
        let first_size = significant.div_ceil(8).max(1).next_power_of_two();
        tag |= (first_size.trailing_zeros() << FIRST_SIZE_SHIFT) as u8;
        // SAFETY: tag and trailer are counted in `max_chunk_len`; widths has n_widths ≤ BLOCKS bytes; bitmap
        // and code are written whole, and what is past their own lengths is within the slack.
        unsafe {
            self.start.write(tag);
            let mut end = self.payload;
            end.copy_from_nonoverlapping(self.widths.as_ptr(), self.n_widths);
            end = end.add(self.n_widths);
            if self.n_widths > 0 && !dense {
                let words = self.occupied.map(u64::to_le);
                end.cast::<[u64; 2]>().write_unaligned(words);
                end = end.add(n_blocks.div_ceil(8));
            }
            end.cast::<[u8; 8]>().write_unaligned(self.first.bits().to_le_bytes());
            end = end.add(first_size as usize);
            let n_bytes = end.offset_from_unsigned(self.start);
            Encoded { n_bytes, verbatim_blocks: self.verbatim_blocks }
        }
    }
}

/// Walks the blocks of a chunk in order.
struct ChunkReader<'a, T: Element> {
    payload: *const u8,
    widths: core::slice::Iter<'a, u8>,
    occupied: [u64; 2],
    element: PhantomData<T>,
}

impl<'a, T: Element> ChunkReader<'a, T> {
    #[inline(always)]
    fn new(view: &ChunkView<'a, T>) -> Self {
        Self {
            payload: view.payload().as_ptr(),
            widths: view.widths().iter(),
            occupied: view.occupied(),
            element: PhantomData,
        }
    }

    /// The width byte of `block`, 0 if it is not occupied. Call once for each block, in order.
    #[inline(always)]
    fn width(&mut self, block: usize) -> u8 {
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
    unsafe fn take(&mut self, n_bytes: usize) -> *const u8 {
        let at = self.payload;
        // SAFETY: by the caller's promise.
        self.payload = unsafe { at.add(n_bytes) };
        at
    }

    /// The values of a verbatim block.
    ///
    /// # Safety
    /// `width` must be what [`width`](Self::width) just returned, VERBATIM or REPEAT, for a block of
    /// `n_values`.
    #[cold]
    #[inline(never)]
    unsafe fn special(&mut self, width: u8, n_values: usize) -> [T; BLOCK] {
        let mut values = [T::ZERO; BLOCK];
        // SAFETY: the view's sizes were checked: n_values, or one, are in the payload.
        unsafe {
            if width == REPEAT {
                values = [self.take(T::BYTES).cast::<T>().read_unaligned(); BLOCK];
            } else {
                let src = self.take(n_values * T::BYTES);
                values.as_mut_ptr().cast::<u8>().copy_from_nonoverlapping(src, n_values * T::BYTES);
            }
        }
        values
    }
}

/// Number of values in block `block` of a chunk of `n_values`.
#[inline(always)]
fn block_len(n_values: usize, block: usize) -> usize {
    (n_values - block * BLOCK).min(BLOCK)
}

/// The block at `block`, padded with its last value (whose residuals are then zero) if it is short.
#[inline(always)]
fn padded<T: Element>(src: &[T], block: usize) -> [T; BLOCK] {
    let tail = &src[block * BLOCK..];
    let mut values = [tail[tail.len() - 1]; BLOCK];
    values[..tail.len()].copy_from_slice(tail);
    values
}

/// # Safety
/// The level's instruction set; `dst` of `max_chunk_len` bytes; 1…4096 values.
#[inline(always)]
pub(super) unsafe fn encode<T: Element, S: Isa<T>>(
    src: &[T],
    lattice: &Lattice<T>,
    dst: &mut [u8],
) -> Encoded {
    let full = src.len() / BLOCK;
    // SAFETY: full blocks have 32 values, the padded one too; the writer writes what `dst` has room for.
    unsafe {
        let mut out = ChunkWriter::<T, S>::new(dst.as_mut_ptr());
        for block in 0..full {
            encode_block(&mut out, block, src.as_ptr().add(block * BLOCK), BLOCK, lattice);
        }
        if src.len() > full * BLOCK {
            let values = padded(src, full);
            encode_block(&mut out, full, values.as_ptr(), src.len() - full * BLOCK, lattice);
        }
        out.finish(src.len().div_ceil(BLOCK))
    }
}

/// # Safety
/// As for [`ChunkWriter::codes`]; 32 values, of which `n` are the chunk's.
#[inline(always)]
unsafe fn encode_block<T: Element, S: Isa<T>>(
    out: &mut ChunkWriter<T, S>,
    block: usize,
    values: *const T,
    n: usize,
    lattice: &Lattice<T>,
) {
    // SAFETY: by the caller's promise.
    unsafe {
        let (codes, on_lattice) = S::quantise(values, lattice);
        if on_lattice {
            out.codes(block, codes);
        } else {
            out.verbatim(block, core::slice::from_raw_parts(values, n));
        }
    }
}

/// # Safety
/// The level's instruction set; `dst.len()` equals the view's number of values.
#[inline(always)]
pub(super) unsafe fn decode<T: Element, S: Isa<T>>(
    view: &ChunkView<'_, T>,
    scale: T,
    divisor: T,
    dst: &mut [T],
) {
    let full = dst.len() / BLOCK;
    // SAFETY: full blocks have room for 32 values in `dst`, the short one goes through a buffer.
    unsafe {
        let mut src = FromChunk::<T, S>::new(view);
        for block in 0..full {
            let out = dst.as_mut_ptr().add(block * BLOCK);
            decode_block(&mut src, block, BLOCK, scale, divisor, out);
        }
        let rest = &mut dst[full * BLOCK..];
        if !rest.is_empty() {
            let mut values = [T::ZERO; BLOCK];
            decode_block(&mut src, full, rest.len(), scale, divisor, values.as_mut_ptr());
            rest.copy_from_slice(&values[..rest.len()]);
        }
    }
}

/// # Safety
/// As for [`Source::next`]; room for 32 values at `out`.
#[inline(always)]
unsafe fn decode_block<T: Element, S: Isa<T>>(
    src: &mut FromChunk<'_, T, S>,
    block: usize,
    n: usize,
    scale: T,
    divisor: T,
    out: *mut T,
) {
    // SAFETY: by the caller's promise.
    unsafe {
        match src.next(block, n) {
            Block::Codes(codes) => S::dequantise(codes, scale, out),
            Block::Values(mut values) => {
                if divisor != T::ONE {
                    for value in &mut values {
                        *value = *value / divisor;
                    }
                }
                out.copy_from_nonoverlapping(values.as_ptr(), BLOCK);
            }
        }
    }
}

/// # Safety
/// As for [`encode`] and [`decode`].
#[inline(always)]
pub(super) unsafe fn fold<T: Element, S: Isa<T>>(
    op: LatticeOp,
    view: &ChunkView<'_, T>,
    local: &[T],
    lattice: &Lattice<T>,
    dst: &mut [u8],
) -> Encoded {
    // SAFETY: the caller's promises are the callees' requirements.
    unsafe {
        if op == LatticeOp::Sum
            && !view.is_special()
            && let Some(encoded) = fold_sum::<T, S>(view, local, lattice, dst)
        {
            return encoded;
        }
        let a = FromChunk::<T, S>::new(view);
        merge::<T, S>(op, a, FromFloats { values: local, lattice }, lattice, local.len(), dst)
    }
}

/// The residuals of `local` plus those of the chunk; `None` if a local block is not on the lattice.
///
/// # Safety
/// As for [`fold`]; the view has no verbatim block.
#[inline(always)]
unsafe fn fold_sum<T: Element, S: Isa<T>>(
    view: &ChunkView<'_, T>,
    local: &[T],
    lattice: &Lattice<T>,
    dst: &mut [u8],
) -> Option<Encoded> {
    let full = local.len() / BLOCK;
    // SAFETY: as in `encode` and `decode`.
    unsafe {
        let start = padded(&local[..local.len().min(BLOCK)], 0);
        let first = S::first(S::quantise(start.as_ptr(), lattice).0);
        let mut state = FoldSum::<T, S> {
            reader: ChunkReader::new(view),
            before: S::splat(first),
            out: ChunkWriter::new(dst.as_mut_ptr()),
        };
        state.out.first = first.plus(view.first());
        for block in 0..full {
            if !state.block(block, local.as_ptr().add(block * BLOCK), lattice) {
                return None;
            }
        }
        if local.len() > full * BLOCK {
            let values = padded(local, full);
            if !state.block(full, values.as_ptr(), lattice) {
                return None;
            }
        }
        Some(state.out.finish(local.len().div_ceil(BLOCK)))
    }
}

struct FoldSum<'a, T: Element, S: Isa<T>> {
    reader: ChunkReader<'a, T>,
    before: S::Carry,
    out: ChunkWriter<T, S>,
}

impl<T: Element, S: Isa<T>> FoldSum<'_, T, S> {
    /// Adds one block; `false` if its values are not on the lattice.
    ///
    /// # Safety
    /// The level's instruction set; 32 values; call once for each block, in order.
    #[inline(always)]
    unsafe fn block(&mut self, block: usize, values: *const T, lattice: &Lattice<T>) -> bool {
        // SAFETY: by the caller's promise; the view's sizes add up.
        unsafe {
            let (codes, on_lattice) = S::quantise(values, lattice);
            if !on_lattice {
                return false;
            }
            let mut residuals = S::diff(codes, self.before);
            self.before = S::last(codes);
            let width = self.reader.width(block);
            if width > 0 {
                let at = self.reader.take(4 * usize::from(width));
                residuals = S::add(residuals, S::unzigzag(S::unpack(at, u32::from(width))));
            }
            self.out.residuals(block, residuals);
            true
        }
    }
}

/// # Safety
/// The level's instruction set; both views have the same number of values; `dst` of `max_chunk_len` bytes.
#[inline(always)]
pub(super) unsafe fn combine<T: Element, S: Isa<T>>(
    op: LatticeOp,
    a: &ChunkView<'_, T>,
    b: &ChunkView<'_, T>,
    lattice: &Lattice<T>,
    dst: &mut [u8],
) -> Encoded {
    // SAFETY: the caller's promises are the callees' requirements.
    unsafe {
        if op == LatticeOp::Sum && !a.is_special() && !b.is_special() {
            return combine_sum::<T, S>(a, b, dst);
        }
        let n_values = a.n_values();
        let (a, b) = (FromChunk::<T, S>::new(a), FromChunk::<T, S>::new(b));
        merge::<T, S>(op, a, b, lattice, n_values, dst)
    }
}

/// hZCCL's four paths (SC'24, "hZ-dynamic"), visiting only blocks that are occupied on some side.
///
/// # Safety
/// As for [`combine`]; no view has a verbatim block.
#[inline(always)]
unsafe fn combine_sum<T: Element, S: Isa<T>>(
    a: &ChunkView<'_, T>,
    b: &ChunkView<'_, T>,
    dst: &mut [u8],
) -> Encoded {
    let (mut from_a, mut from_b) = (ChunkReader::new(a), ChunkReader::new(b));
    // SAFETY: as in `encode` and `decode`; copied blocks have PAD bytes after them in a view.
    unsafe {
        let mut out = ChunkWriter::<T, S>::new(dst.as_mut_ptr());
        out.first = a.first().plus(b.first());
        for word in 0..2 {
            let mut either = a.occupied()[word] | b.occupied()[word];
            while either != 0 {
                let block = 64 * word + either.trailing_zeros() as usize;
                either &= either - 1;
                let (width_a, width_b) = (from_a.width(block), from_b.width(block));
                let at_a = from_a.take(4 * usize::from(width_a));
                let at_b = from_b.take(4 * usize::from(width_b));
                if width_b == 0 {
                    out.copy(block, width_a, at_a);
                } else if width_a == 0 {
                    out.copy(block, width_b, at_b);
                } else {
                    let left = S::unzigzag(S::unpack(at_a, u32::from(width_a)));
                    let right = S::unzigzag(S::unpack(at_b, u32::from(width_b)));
                    out.residuals(block, S::add(left, right));
                }
            }
        }
        out.finish(a.n_values().div_ceil(BLOCK))
    }
}

/// A block on its way through [`merge`]: codes, or values that are on no lattice.
#[derive(Clone, Copy)]
enum Block<T: Element, S: Isa<T>> {
    Codes(S::Block),
    Values([T; BLOCK]),
}

impl<T: Element, S: Isa<T>> Block<T, S> {
    /// # Safety
    /// The level's instruction set.
    #[inline(always)]
    unsafe fn values(self, step: T) -> [T; BLOCK] {
        match self {
            Self::Values(values) => values,
            Self::Codes(codes) => {
                let mut values = [T::ZERO; BLOCK];
                // SAFETY: room for 32 values.
                unsafe { S::dequantise(codes, step, values.as_mut_ptr()) };
                values
            }
        }
    }
}

/// Blocks in order, from a chunk or from floats.
trait Source<T: Element, S: Isa<T>> {
    /// # Safety
    /// The level's instruction set; call once for each block in order; `n` is the block's length.
    unsafe fn next(&mut self, block: usize, n: usize) -> Block<T, S>;
}

struct FromChunk<'a, T: Element, S: Isa<T>> {
    reader: ChunkReader<'a, T>,
    before: S::Carry,
}

impl<'a, T: Element, S: Isa<T>> FromChunk<'a, T, S> {
    /// # Safety
    /// The level's instruction set.
    #[inline(always)]
    unsafe fn new(view: &ChunkView<'a, T>) -> Self {
        // SAFETY: by the caller's promise.
        Self { reader: ChunkReader::new(view), before: unsafe { S::splat(view.first()) } }
    }
}

impl<T: Element, S: Isa<T>> Source<T, S> for FromChunk<'_, T, S> {
    #[inline(always)]
    unsafe fn next(&mut self, block: usize, n: usize) -> Block<T, S> {
        let width = self.reader.width(block);
        // SAFETY: as in `decode`.
        unsafe {
            match width {
                0 => Block::Codes(S::fill(self.before)),
                REPEAT.. => Block::Values(self.reader.special(width, n)),
                _ => {
                    let at = self.reader.take(4 * usize::from(width));
                    let residuals = S::unzigzag(S::unpack(at, u32::from(width)));
                    let codes = S::scan(residuals, self.before);
                    self.before = S::last(codes);
                    Block::Codes(codes)
                }
            }
        }
    }
}

struct FromFloats<'a, T> {
    values: &'a [T],
    lattice: &'a Lattice<T>,
}

impl<T: Element, S: Isa<T>> Source<T, S> for FromFloats<'_, T> {
    #[inline(always)]
    unsafe fn next(&mut self, block: usize, _: usize) -> Block<T, S> {
        let end = self.values.len().min((block + 1) * BLOCK);
        let values = padded(&self.values[..end], block);
        // SAFETY: 32 values; the instruction set by the caller's promise.
        let (codes, on_lattice) = unsafe { S::quantise(values.as_ptr(), self.lattice) };
        if on_lattice { Block::Codes(codes) } else { Block::Values(values) }
    }
}

/// Block by block on absolute codes. Where either side is verbatim, so is the result: a ⊕ b in `T`.
///
/// # Safety
/// The level's instruction set; `dst` of `max_chunk_len` bytes; sources of `n_values`.
#[inline(always)]
unsafe fn merge<T: Element, S: Isa<T>>(
    op: LatticeOp,
    mut a: impl Source<T, S>,
    mut b: impl Source<T, S>,
    lattice: &Lattice<T>,
    n_values: usize,
    dst: &mut [u8],
) -> Encoded {
    let n_blocks = n_values.div_ceil(BLOCK);
    // SAFETY: as in `encode`; each source is asked for each block once, in order.
    unsafe {
        let mut out = ChunkWriter::<T, S>::new(dst.as_mut_ptr());
        for block in 0..n_blocks {
            let n = block_len(n_values, block);
            match (a.next(block, n), b.next(block, n)) {
                (Block::Codes(x), Block::Codes(y)) => {
                    let codes = match op {
                        LatticeOp::Sum => S::add(x, y),
                        LatticeOp::Min => S::min(x, y),
                        LatticeOp::Max => S::max(x, y),
                    };
                    out.codes(block, codes);
                }
                (x, y) => {
                    let (mut x, y) = (x.values(lattice.step), y.values(lattice.step));
                    for (x, y) in x.iter_mut().zip(y) {
                        *x = match op {
                            LatticeOp::Sum => op::sum(*x, y),
                            LatticeOp::Min => op::minimum(*x, y),
                            LatticeOp::Max => op::maximum(*x, y),
                        };
                    }
                    out.verbatim(block, &x[..n]);
                }
            }
        }
        out.finish(n_blocks)
    }
}

/// Smallest and largest finite value, (+MAX, −MAX) if there is none. Many running extremes a side, so
/// that the loop is bound by memory and not by the latency of a comparison.
#[inline(always)]
pub(super) fn extent<T: Element>(src: &[T]) -> (T, T) {
    const LANES: usize = 64;
    let lowest = T::ZERO - T::MAX;
    let mut low = [T::MAX; LANES];
    let mut high = [lowest; LANES];
    let mut pieces = src.chunks_exact(LANES);
    // A comparison with NaN is false; infinities fail the second one.
    let lower = |x: T, low: T| if x < low && x >= lowest { x } else { low };
    let higher = |x: T, high: T| if x > high && x <= T::MAX { x } else { high };
    for piece in &mut pieces {
        for i in 0..LANES {
            low[i] = lower(piece[i], low[i]);
            high[i] = higher(piece[i], high[i]);
        }
    }
    let rest = pieces.remainder();
    let min = low.iter().chain(rest).fold(T::MAX, |min, &x| lower(x, min));
    let max = high.iter().chain(rest).fold(lowest, |max, &x| higher(x, max));
    (min, max)
}
