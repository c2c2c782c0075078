//! What a predictor left over of a chunk, in blocks as wide as their largest number, and back.
//!
//! ```text
//! widths   bits                 one for each block of 32, as classes of `chunk` are written
//! blocks   4·width bytes each   zig-zag numbers, as fz-light packs them
//! ```

use super::chunk::{MAX_CLASS_BYTES, put_classes, take_classes};
use crate::element::Float;
use crate::element::sealed::{OnLattice, Word};
use crate::kernel::{BLOCK, BLOCKS, Code, Kernel, packed_room};

type DifferenceBlock<T> = [<T as OnLattice>::Code; BLOCK];

/// Most bytes that are written to for so many blocks.
pub(super) const fn room<T: Float>(n_blocks: usize) -> usize {
    MAX_CLASS_BYTES + packed_room::<T>(n_blocks)
}

/// Numbers as blocks. `None` for types whose codes are longer than they are: those have no shapes.
fn blocks<T: Float>(numbers: &[T::Bits]) -> Option<&[DifferenceBlock<T>]> {
    bytemuck::try_cast_slice(numbers).ok()
}

fn blocks_mut<T: Float>(numbers: &mut [T::Bits]) -> Option<&mut [DifferenceBlock<T>]> {
    bytemuck::try_cast_slice_mut(numbers).ok()
}

fn code<T: Float>(number: T::Bits) -> T::Code {
    T::Code::from_bits(number.to_u64())
}

/// Makes numbers, whole blocks of them, the sums of those up to them and what is before.
pub(super) fn add_up<T: Float>(
    kernel: Kernel<T>,
    numbers: &mut [T::Bits],
    before: T::Bits,
) -> Option<()> {
    kernel.scan(blocks_mut::<T>(numbers)?, code::<T>(before));
    Some(())
}

/// Writes the numbers, whole blocks of them, or if something is before them the difference of each
/// to the one before; into how many bytes. `None` if they cannot be said so.
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
    let n_widths = put_classes(widths, dst, 0)?;
    dst.copy_within(MAX_CLASS_BYTES..MAX_CLASS_BYTES + n_packed, n_widths);
    Some(n_widths + n_packed)
}

/// Inverse of [`write`], from `src[..len]`, behind which vector loads may read; how many bytes they
/// took. `None` if no writer wrote it.
pub(super) fn read<T: Float>(
    kernel: Kernel<T>,
    src: &[u8],
    len: usize,
    before: Option<T::Bits>,
    numbers: &mut [T::Bits],
) -> Option<usize> {
    let blocks = blocks_mut::<T>(numbers)?;
    let widths = &mut [0; BLOCKS][..blocks.len()];
    let at = take_classes(widths, T::Code::BITS, src, 0)?;
    let n_bytes = at + kernel.unpack(src.get(at..)?, widths, before.map(code::<T>), blocks)?;
    (n_bytes <= len).then_some(n_bytes)
}
