//! The bytes of one chunk of fZ-light codes, and the one check that makes later access infallible.
//!
//! ```text
//! tag            1 byte        DENSE | SPECIAL | CONSTANT; bits 4 and 5: log₂ of the first code's bytes
//! payload                      the occupied blocks, in order
//! widths         1 byte each   one per occupied block
//! occupancy      ⌈blocks/8⌉    bit b: block b is occupied; absent if DENSE or CONSTANT
//! first code     1, 2, 4 or 8  little-endian, signed; the code before the first residual
//! ```
//!
//! The trailer (widths, occupancy, first code) stands last so that an encoder writes the payload
//! where it stays; a reader finds it from the chunk's end, which the frame's index gives. An
//! occupied block of width c ≤ 32 (64) is 32 zig-zag residuals of c bits, value i at bit i·c,
//! little-endian: 4·c bytes. Of a block with *exceptions*, values that are on no lattice, the width
//! is [`MIXED`] + c: a mask of four bytes (bit i: value i is one), how many exceptions are stored,
//! the residuals of the others without gaps, and the exceptions themselves; those that are not
//! stored have the bits of the last one before them in the chunk. A block of nothing but exceptions
//! is [`VERBATIM`], its values themselves, [`REPEAT`], one value that fills it, or [`AGAIN`], which
//! the exception before it fills.

use super::error::DecodeError;
use super::{BLOCK, BLOCKS, CHUNK, Code, PAD};
use crate::element::Float;

/// Every block is occupied; there is no occupancy bitmap.
pub(super) const DENSE: u8 = 1;
/// Some width byte is [`MIXED`] or above.
pub(super) const SPECIAL: u8 = 2;
/// No block is occupied; there is no bitmap.
pub(super) const CONSTANT: u8 = 4;

/// Where the tag holds log₂ of the first code's bytes.
pub(super) const FIRST_SIZE_SHIFT: u32 = 4;
const FIRST_SIZE: u8 = 3 << FIRST_SIZE_SHIFT;

/// Width byte of a block with some exceptions whose residuals take no bits; if they take c bits it
/// is c more.
pub(super) const MIXED: u8 = 0x80;
/// Width byte of a block of exceptions, stored as it is.
pub(super) const VERBATIM: u8 = 0xff;
/// Width byte of a block of exceptions that all have the same bits.
pub(super) const REPEAT: u8 = 0xfe;
/// Width byte of a block of exceptions that all have the bits of the one before them in the chunk,
/// of the canonical NaN if there is none.
pub(super) const AGAIN: u8 = 0xfd;

/// Bytes of the mask of a block with some exceptions.
pub(super) const MASK_BYTES: usize = size_of::<u32>();
/// Bytes before its residuals: the mask, and how many exceptions are stored.
pub(super) const MIXED_HEAD: usize = MASK_BYTES + 1;

/// A bit for each of the `n` values of a block, 1 to 32.
#[inline(always)]
pub(super) const fn every(n: usize) -> u32 {
    u32::MAX >> (BLOCK - n)
}

/// Bytes that the residuals of a block take beside so many exceptions.
pub(super) const fn residuals_len(width: usize, n_exceptions: usize) -> usize {
    (width * (BLOCK - n_exceptions)).div_ceil(8)
}

/// Bytes of the largest block.
pub(super) const fn max_block_len<T: Float>() -> usize {
    // Another exception takes the place of residuals that may be as long: no type is wider than its
    // codes.
    MIXED_HEAD + residuals_len(T::Code::BITS as usize, 1) + T::BYTES
}

/// A chunk whose structure has been checked. Invariants that kernels rely on:
/// the occupied blocks' sizes add up to the payload; every width is valid; at least [`PAD`] bytes
/// are readable after the payload; occupancy has no bit at or above `n_blocks`.
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
    /// Checks `bytes[..len]` as a chunk of `n_values` (1…4096); `bytes` must be at least [`PAD`]
    /// longer than `len`.
    pub(crate) fn parse(bytes: &'a [u8], len: usize, n_values: usize) -> Result<Self, DecodeError> {
        let damaged = Err(DecodeError::Damaged);
        // `len` comes from outside: `len + PAD` might overflow.
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
        let last_is_short = occupied >> (n_blocks - 1) & 1 == 1;
        let last_values = n_values - (n_blocks - 1) * BLOCK;
        let payload = if special {
            special_payload_len::<T>(
                &bytes[1..widths_at],
                widths,
                last_is_short.then_some(last_values),
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

    /// The code before the first residual.
    #[inline(always)]
    pub(super) fn first(&self) -> T::Code {
        self.first
    }

    /// Start of the payload; readable to the end of the payload and [`PAD`] bytes on.
    #[inline(always)]
    pub(super) fn payload(&self) -> &'a [u8] {
        &self.bytes[1..]
    }

    /// One width byte for each occupied block.
    #[inline(always)]
    pub(super) fn widths(&self) -> &'a [u8] {
        &self.bytes[self.widths_at..self.widths_at + self.n_widths]
    }

    /// Bit b of word b / 64: block b is occupied.
    #[inline(always)]
    pub(crate) fn occupied(&self) -> [u64; 2] {
        self.occupied
    }

    /// Whether some block has exceptions.
    #[inline(always)]
    pub(super) fn is_special(&self) -> bool {
        self.special
    }
}

/// A code from its low bytes.
fn signed<T: Float>(bytes: &[u8]) -> T::Code {
    let negative = bytes[bytes.len() - 1] >> 7 == 1;
    let mut word = [if negative { 0xff } else { 0 }; 8];
    word[..bytes.len()].copy_from_slice(bytes);
    T::Code::from_bits(u64::from_le_bytes(word))
}

/// 4·Σ widths, if all are in 1…`max`.
fn plain_payload_len(widths: &[u8], max: u32) -> Option<usize> {
    let (mut sum, mut low, mut high) = (0u32, u8::MAX, 0u8);
    for &width in widths {
        sum += u32::from(width);
        low = low.min(width);
        high = high.max(width);
    }
    (widths.is_empty() || (low >= 1 && u32::from(high) <= max)).then_some(4 * sum as usize)
}

/// As [`plain_payload_len`] where blocks may have exceptions; `last` is the number of values in the
/// last occupied block if that is the chunk's last block. Heads of blocks are read and checked in
/// order, each within `payload`.
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
