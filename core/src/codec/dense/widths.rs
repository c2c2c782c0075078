//! Residuals of a chunk, called *numbers* here, packed in blocks. Each block is as wide as its
//! largest number.
//!
//! ```text
//! widths   `classes`            one for each block of 32
//! blocks   4·width bytes each   zig-zag numbers, packed like those of fz-light
//! ```

use super::classes::{LowBitWriter, MAX_CLASS_BYTES, next_byte, put_classes, take_classes};
use crate::element::Float;
use crate::element::sealed::{OnLattice, Word};
use crate::kernel::{BLOCK, BLOCKS, Code, Kernel, packed_room};

type DifferenceBlock<T> = [<T as OnLattice>::Code; BLOCK];

/// Returns the number of bytes that [`write`] needs for `n_blocks` blocks. It writes to some of
/// them only temporarily.
pub(super) const fn room<T: Float>(n_blocks: usize) -> usize {
    MAX_CLASS_BYTES + packed_room::<T>(n_blocks)
}

/// Returns the numbers as blocks. `None` for types whose codes are longer than the type; `fz-nd`
/// and `dense` do not support these types.
fn blocks<T: Float>(numbers: &[T::Bits]) -> Option<&[DifferenceBlock<T>]> {
    bytemuck::try_cast_slice(numbers).ok()
}

fn blocks_mut<T: Float>(numbers: &mut [T::Bits]) -> Option<&mut [DifferenceBlock<T>]> {
    bytemuck::try_cast_slice_mut(numbers).ok()
}

fn code<T: Float>(number: T::Bits) -> T::Code {
    T::Code::from_bits(number.to_u64())
}

/// Replaces each number by the sum of `before` and all numbers up to it. `numbers` must be whole
/// blocks.
pub(super) fn add_up<T: Float>(
    kernel: Kernel<T>,
    numbers: &mut [T::Bits],
    before: T::Bits,
) -> Option<()> {
    kernel.scan(blocks_mut::<T>(numbers)?, code::<T>(before));
    Some(())
}

/// Writes the numbers, which must be whole blocks. If `before` is given, writes the difference of
/// each number to the previous one instead; `before` precedes the first. Returns the number of
/// bytes; `None` if the format cannot represent the numbers.
pub(super) fn write<T: Float>(
    kernel: Kernel<T>,
    numbers: &[T::Bits],
    before: Option<T::Bits>,
    dst: &mut [u8],
) -> Option<usize> {
    let blocks = blocks::<T>(numbers)?;
    let widths = &mut [0; BLOCKS][..blocks.len()];
    let n_packed =
        kernel.pack(blocks, before.map(code::<T>), widths, dst.get_mut(MAX_CLASS_BYTES..)?);
    let mut writer = LowBitWriter::new(dst, 0);
    put_classes(widths, &mut writer)?;
    let n_widths = writer.end();
    dst.copy_within(MAX_CLASS_BYTES..MAX_CLASS_BYTES + n_packed, n_widths);
    Some(n_widths + n_packed)
}

/// Inverse of [`write`]: reads from `src[..len]` and returns the number of bytes read. Vector loads
/// may touch the bytes after `len`. `None` if no writer writes such bytes.
pub(super) fn read<T: Float>(
    kernel: Kernel<T>,
    src: &[u8],
    len: usize,
    before: Option<T::Bits>,
    numbers: &mut [T::Bits],
) -> Option<usize> {
    let blocks = blocks_mut::<T>(numbers)?;
    let widths = &mut [0; BLOCKS][..blocks.len()];
    let at = next_byte(src, take_classes(widths, T::Code::BITS, src, 0)?)?;
    let n_bytes = at + kernel.unpack(src.get(at..)?, widths, before.map(code::<T>), blocks)?;
    (n_bytes <= len).then_some(n_bytes)
}
