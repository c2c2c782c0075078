//! Format of a chunk of codec `fz-light`, and a check of its structure. Access to a checked chunk
//! cannot fail.
//!
//! ```text
//! tag            1 byte        DENSE | SPECIAL | CONSTANT; bits 4, 5: log₂ of first code's bytes
//! payload                      the occupied blocks, in order
//! widths         1 byte each   one per occupied block
//! occupancy      ⌈blocks/8⌉    bit b: block b is occupied; absent if DENSE or CONSTANT
//! first code     1, 2, 4 or 8  little-endian, signed; the code before the first residual
//! ```
//!
//! The trailer (widths, occupancy, first code) comes last, so that an encoder writes the payload to
//! its final place. A reader finds the trailer from the chunk's end, which is in the payload's
//! index.
//!
//! An occupied block of width c ≤ 32 (64 for `f64`) has 32 zig-zag residuals of c bits. Value i
//! starts at bit i·c, little-endian; the block has 4·c bytes.
//!
//! *Exceptions* are values that are not on the lattice. A block with some exceptions has the width
//! byte [`MIXED`] + c. It consists of:
//!
//! - a mask of four bytes, in which bit i is set if value i is an exception,
//! - the number of exceptions that are stored,
//! - the residuals of the other values, without gaps,
//! - the stored exceptions. The remaining exceptions repeat the last one before them in the chunk.
//!
//! A block in which all values are exceptions has one of three width bytes. With [`VERBATIM`] it
//! stores all values, with [`REPEAT`] one value that fills the block, and with [`AGAIN`] nothing:
//! the last exception before the block fills it.
//!
//! −0.0 gets the code of +0.0, so its sign is lost, within every bound. As exceptions, −0.0 would
//! cost 5 bytes in each block, and sums with them would be sums of floats, whose bits depend on the
//! order. Masked gradients contain many −0.0 (w·0 with w < 0).

use super::error::DecodeError;
use super::{BLOCK, BLOCKS, CHUNK, Code, PAD};
use crate::element::Float;

/// Tag bit: every block is occupied, and there is no occupancy bitmap.
pub(super) const DENSE: u8 = 1;
/// Tag bit: a width byte is [`MIXED`] or above.
pub(super) const SPECIAL: u8 = 2;
/// Tag bit: no block is occupied, and there is no bitmap.
pub(super) const CONSTANT: u8 = 4;

/// Position in the tag of log₂ of the first code's size in bytes.
pub(super) const FIRST_SIZE_SHIFT: u32 = 4;
const FIRST_SIZE: u8 = 3 << FIRST_SIZE_SHIFT;

/// Width byte of a block with some exceptions and residuals of 0 bits. For residuals of c bits, add
/// c.
pub(super) const MIXED: u8 = 0x80;
/// Width byte of a block of exceptions that are all stored.
pub(super) const VERBATIM: u8 = 0xff;
/// Width byte of a block of exceptions with the same bits, stored once.
pub(super) const REPEAT: u8 = 0xfe;
/// Width byte of a block of exceptions that all repeat the last exception before the block, or the
/// canonical NaN if there is none.
pub(super) const AGAIN: u8 = 0xfd;

/// Number of bytes of the mask in a block with some exceptions.
pub(super) const MASK_BYTES: usize = size_of::<u32>();
/// Number of bytes before the residuals in a block with some exceptions: the mask, and the number
/// of stored exceptions.
pub(super) const MIXED_HEAD: usize = MASK_BYTES + 1;

/// Mask with a bit for each of the `n` values of a block, 1 to 32.
#[inline(always)]
pub(super) const fn every(n: usize) -> u32 {
    u32::MAX >> (BLOCK - n)
}

/// Number of bytes of the residuals in a block with `n_exceptions`.
pub(super) const fn residuals_len(width: usize, n_exceptions: usize) -> usize {
    (width * (BLOCK - n_exceptions)).div_ceil(8)
}

/// Number of bytes of the largest block.
pub(super) const fn max_block_len<T: Float>() -> usize {
    // A block with one exception is the largest. Each further exception replaces a residual that
    // may be as long, because no type is wider than its codes.
    MIXED_HEAD + residuals_len(T::Code::BITS as usize, 1) + T::BYTES
}

/// Chunk with a valid structure.
///
/// Kernels rely on these invariants:
///
/// - The sizes of the occupied blocks add up to the payload.
/// - Every width is valid.
/// - At least [`PAD`] bytes are readable after the payload.
/// - The occupancy has no bit at or above the number of blocks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ChunkView<'a, T: Float> {
    bytes: &'a [u8],
    n_values: usize,
    first: T::Code,
    widths_at: usize,
    n_widths: usize,
    occupied: [u64; 2],
    special: bool,
}

impl<'a, T: Float> ChunkView<'a, T> {
    /// Checks that `bytes[..len]` is a chunk of `n_values` (1 to 4096). `bytes` must have at least
    /// [`PAD`] more bytes than `len`.
    pub(crate) fn parse(bytes: &'a [u8], len: usize, n_values: usize) -> Result<Self, DecodeError> {
        let damaged = Err(DecodeError::Damaged);
        // `len` comes from a frame, so `len + PAD` might overflow.
        let fits = bytes.len().checked_sub(PAD).is_some_and(|room| len <= room);
        if !(1..=CHUNK).contains(&n_values) || len < 1 || !fits {
            return damaged;
        }
        let n_blocks = n_values.div_ceil(BLOCK);
        let every: u128 = if n_blocks == BLOCKS { u128::MAX } else { (1 << n_blocks) - 1 };
        let tag = bytes[0];
        let n_first = 1 << ((tag & FIRST_SIZE) >> FIRST_SIZE_SHIFT);
        if n_first > size_of::<T::Code>() || len < 1 + n_first {
            return damaged;
        }
        let first_at = len - n_first;
        let first = signed::<T>(&bytes[first_at..len]);
        let (occupied, occupied_at) = match tag & !(SPECIAL | FIRST_SIZE) {
            CONSTANT => (0, first_at),
            DENSE => (every, first_at),
            0 => {
                let n = n_blocks.div_ceil(8);
                if first_at < 1 + n {
                    return damaged;
                }
                let mut word = [0; 16];
                word[..n].copy_from_slice(&bytes[first_at - n..first_at]);
                (u128::from_le_bytes(word), first_at - n)
            }
            _ => return damaged,
        };
        if occupied & !every != 0 {
            return damaged;
        }
        let n_widths = occupied.count_ones() as usize;
        if occupied_at < 1 + n_widths {
            return damaged;
        }
        let widths_at = occupied_at - n_widths;
        let widths = &bytes[widths_at..widths_at + n_widths];
        let special = tag & SPECIAL != 0;
        let last_is_occupied = occupied >> (n_blocks - 1) & 1 == 1;
        let last_values = n_values - (n_blocks - 1) * BLOCK;
        let payload = if special {
            special_payload_len::<T>(
                &bytes[1..widths_at],
                widths,
                last_is_occupied.then_some(last_values),
            )
        } else {
            plain_payload_len(widths, T::Code::BITS)
        };
        if payload != Some(widths_at - 1) {
            return damaged;
        }
        let occupied = [occupied as u64, (occupied >> 64) as u64];
        Ok(Self { bytes, n_values, first, widths_at, n_widths, occupied, special })
    }

    /// Number of values.
    pub(crate) fn n_values(&self) -> usize {
        self.n_values
    }

    /// Code before the first residual.
    #[inline(always)]
    pub(super) fn first(&self) -> T::Code {
        self.first
    }

    /// Payload and the bytes after it, at least [`PAD`].
    #[inline(always)]
    pub(super) fn payload(&self) -> &'a [u8] {
        &self.bytes[1..]
    }

    /// Width bytes of the occupied blocks.
    #[inline(always)]
    pub(super) fn widths(&self) -> &'a [u8] {
        &self.bytes[self.widths_at..self.widths_at + self.n_widths]
    }

    /// Occupancy: bit b mod 64 of word b / 64 is set if block b is occupied.
    #[inline(always)]
    pub(crate) fn occupied(&self) -> [u64; 2] {
        self.occupied
    }

    /// Returns whether any block has exceptions.
    #[inline(always)]
    pub(super) fn is_special(&self) -> bool {
        self.special
    }
}

/// Returns the code with these low bytes, sign-extended.
fn signed<T: Float>(bytes: &[u8]) -> T::Code {
    let negative = bytes[bytes.len() - 1] >> 7 == 1;
    let mut word = [if negative { 0xff } else { 0 }; 8];
    word[..bytes.len()].copy_from_slice(bytes);
    T::Code::from_bits(u64::from_le_bytes(word))
}

/// Returns 4·Σ widths, if all widths are in 1…`max`.
fn plain_payload_len(widths: &[u8], max: u32) -> Option<usize> {
    let (mut sum, mut low, mut high) = (0u32, u8::MAX, 0u8);
    for &width in widths {
        sum += u32::from(width);
        low = low.min(width);
        high = high.max(width);
    }
    (widths.is_empty() || (low >= 1 && u32::from(high) <= max)).then_some(4 * sum as usize)
}

/// Returns the payload's length for blocks that may have exceptions, or `None` if a block is
/// invalid.
///
/// Reads and checks the heads of blocks in order, each within `payload`. `last` is the number of
/// values in the last occupied block, if that is the chunk's last block.
fn special_payload_len<T: Float>(
    payload: &[u8],
    widths: &[u8],
    last: Option<usize>,
) -> Option<usize> {
    let mut at = 0;
    for (i, &width) in widths.iter().enumerate() {
        let n = last.filter(|_| i + 1 == widths.len()).unwrap_or(BLOCK);
        at += match width {
            VERBATIM => T::BYTES * n,
            REPEAT => T::BYTES,
            AGAIN => 0,
            1.. if u32::from(width) <= T::Code::BITS => 4 * usize::from(width),
            MIXED.. if u32::from(width - MIXED) <= T::Code::BITS => {
                let head: [u8; MIXED_HEAD] = *payload.get(at..)?.first_chunk()?;
                let mask = u32::from_le_bytes([head[0], head[1], head[2], head[3]]);
                let n_exceptions = mask.count_ones() as usize;
                let n_stored = usize::from(head[MASK_BYTES]);
                if mask == 0 || mask >= every(n) || n_stored > n_exceptions {
                    return None;
                }
                let residuals = residuals_len(usize::from(width - MIXED), n_exceptions);
                MIXED_HEAD + residuals + n_stored * T::BYTES
            }
            _ => return None,
        };
    }
    Some(at)
}
