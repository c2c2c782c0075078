//! Residuals of a chunk, called *numbers* here, as bits.
//!
//! ```text
//! lengths    4 × u16            bytes of each of the four streams
//! classes    1, 3 or 8 bits     the class of each block of 32: 0 if all numbers are 0, else 1 + k
//! low bits   4·k bytes a block  the k low bits of each number
//! streams                       pairs of h, coded by `huffman`. The first eight numbers of each
//!                               block are in the first stream, the next eight in the second, …
//!                               Blocks of class 0 are in no stream.
//! escapes                       for each |h| of 7 or more: its excess over 7, 7 bits a byte
//! ```
//!
//! A number is h·2^k + low − 2^(k−1). With this offset, h is number / 2^k rounded to nearest, so
//! that a small number has h = 0. k grows with the mean magnitude of the block. Thus h is small,
//! the same few pairs are frequent at all magnitudes, and smooth and rough regions share one code.
//! A reader finds the start of a code only when it has read the previous one. With four streams, it
//! reads four codes side by side.

use super::huffman::{Decoder, ESCAPE, Encoder, PairCounts, SIGN};
use super::window::magnitude;
use crate::element::sealed::Word;
use crate::kernel::{BLOCK, BLOCKS, CHUNK};

const STREAMS: usize = 4;
/// Size of the four stream lengths in bytes.
const LENGTHS: usize = 2 * STREAMS;
/// Count of a block's numbers that are in one stream.
const SHARE: usize = BLOCK / STREAMS;
/// Maximum bytes of a stream, and 8 more that the last write may reach past it.
const STREAM_BYTES: usize = BLOCKS * SHARE / 2 * super::huffman::MAX_BITS as usize / 8 + 8;
/// Largest k. A 64-bit word has space for this many bits after the bits of a partial byte.
const MAX_SHIFT: u32 = 56;
/// Largest class that the format can represent.
const MAX_CLASS: u8 = 63;
/// Maximum bytes of classes, and 8 more that the last write may reach past them.
pub(super) const MAX_CLASS_BYTES: usize = BLOCKS + 8;

/// Writes bits, low ones first.
struct LowBitWriter<'a> {
    dst: &'a mut [u8],
    at: usize,
    bits: u64,
    n_bits: u32,
}

impl<'a> LowBitWriter<'a> {
    fn new(dst: &'a mut [u8], at: usize) -> Self {
        Self { dst, at, bits: 0, n_bits: 0 }
    }

    /// Writes at most 56 bits; `None` if there is no space.
    #[inline(always)]
    fn put(&mut self, bits: u64, n_bits: u32) -> Option<()> {
        self.bits |= bits << self.n_bits;
        self.n_bits += n_bits;
        *self.dst.get_mut(self.at..)?.first_chunk_mut()? = self.bits.to_le_bytes();
        self.at += (self.n_bits / 8) as usize;
        self.bits >>= self.n_bits & !7;
        self.n_bits &= 7;
        Some(())
    }

    /// Returns the number of bytes so far. The unused bits of a partial last byte are 0.
    fn end(&self) -> usize {
        self.at + usize::from(self.n_bits > 0)
    }
}

/// Returns at least 57 bits from bit `bit` on.
#[inline(always)]
fn bits_at(src: &[u8], bit: usize) -> Option<u64> {
    let word = src.get(bit / 8..)?.first_chunk()?;
    Some(u64::from_le_bytes(*word) >> (bit % 8))
}

/// Returns the block's class.
#[inline(always)]
fn class_of<B: Word>(block: &[B]) -> u8 {
    let (mut largest, mut sum) = (B::ZERO, B::ZERO);
    for &number in block {
        let magnitude = magnitude(number);
        largest = largest.max(magnitude);
        sum = sum.plus(magnitude);
    }
    let n_bits = B::BITS - largest.leading_zeros();
    if n_bits == 0 {
        return 0;
    }
    let shift = if n_bits > B::BITS - 6 {
        // The sum may have overflowed.
        n_bits - 2
    } else {
        // The smallest k for which the other 31 magnitudes sum to at most 50·2^k. The largest one
        // does not count, because it may be an outlier.
        let rest = sum.minus(largest).to_u64();
        u64::BITS - (rest.saturating_sub(1) / 50).leading_zeros()
    };
    1 + shift.min(MAX_SHIFT) as u8
}

/// Writes the classes of blocks to `dst` from byte `at` on, and returns where they end. A class
/// takes 1 bit if it equals the previous one, 3 bits if it is one above or below, and 8 bits
/// otherwise. The class before the first one counts as 1. `None` if there is no space or a class is
/// above [`MAX_CLASS`].
pub(super) fn put_classes(classes: &[u8], dst: &mut [u8], at: usize) -> Option<usize> {
    let mut writer = LowBitWriter::new(dst, at);
    let mut before = 1;
    if classes.iter().any(|class| *class > MAX_CLASS) {
        return None;
    }
    // Seven codes of at most 8 bits fit one call of `put`. Joining them takes no branches, which
    // would be unpredictable.
    for some in classes.chunks(7) {
        let (mut bits, mut n_bits) = (0, 0);
        for &class in some {
            let (code, n_code) = match class.wrapping_sub(before) {
                0 => (0, 1),
                1 => (0b001, 3),
                u8::MAX => (0b101, 3),
                _ => (0b11 | u64::from(class) << 2, 8),
            };
            bits |= code << n_bits;
            n_bits += n_code;
            before = class;
        }
        writer.put(bits, n_bits)?;
    }
    Some(writer.end())
}

/// Decoding table for classes, by their first three bits. An entry holds whether the class is
/// relative to the previous one, the step to add, and the number of bits.
const STEPS: [(bool, u8, u32); 8] = {
    let [same, other] = [(true, 0, 1), (false, 0, 8)];
    let [up, down] = [(true, 1, 3), (true, u8::MAX, 3)];
    [same, up, same, other, same, down, same, other]
};

/// Inverse of [`put_classes`]. Returns where the classes end; `None` if one is above `most`.
pub(super) fn take_classes(classes: &mut [u8], most: u32, src: &[u8], at: usize) -> Option<usize> {
    let (mut bit, mut before, mut largest) = (8 * at, 1_u8, 0);
    for some in classes.chunks_mut(7) {
        let mut bits = bits_at(src, bit)?;
        for class in some {
            let (is_relative, step, n_bits) = STEPS[(bits & 7) as usize];
            // A step down from 0 wraps to a class above all limits.
            let next = if is_relative { before } else { (bits >> 2 & 63) as u8 };
            before = next.wrapping_add(step);
            largest = largest.max(before);
            *class = before;
            bits >>= n_bits;
            bit += n_bits as usize;
        }
    }
    if u32::from(largest) > most || largest > MAX_CLASS {
        return None;
    }
    (bit % 8 == 0 || bits_at(src, bit)? & ((1 << (8 - bit % 8)) - 1) == 0)
        .then_some(bit.div_ceil(8))
}

/// Shifts a number right by `shift` bits and keeps its sign.
#[inline(always)]
pub(super) fn above<B: Word>(number: B, shift: u32) -> B {
    let sign = B::from_u64(1) << (B::BITS - 1);
    ((number ^ sign) >> shift).minus(sign >> shift)
}

/// Returns runs of adjacent blocks of one class: the class, the first block, and the end.
fn runs(classes: &[u8]) -> impl Iterator<Item = (u8, usize, usize)> {
    let mut end = 0;
    classes.chunk_by(|a, b| a == b).map(move |run| {
        end += run.len();
        (run[0], end - run.len(), end)
    })
}

/// Writes the numbers, which must be whole blocks, and returns the number of bytes. Counts their
/// pairs in `counts`, if given. `None` if there is no space; the numbers would then take more bytes
/// than uncompressed.
#[inline(always)]
pub(super) fn write<B: Word>(
    numbers: &[B],
    encoder: &Encoder,
    counts: Option<&mut PairCounts>,
    dst: &mut [u8],
) -> Option<usize> {
    let mut classes = [0; BLOCKS];
    let classes = &mut classes[..numbers.len() / BLOCK];
    for (class, block) in classes.iter_mut().zip(numbers.chunks_exact(BLOCK)) {
        *class = class_of(block);
    }
    let mut at = put_classes(classes, dst, LENGTHS)?;
    let mut nibbles = [0; CHUNK];
    let mut has_escapes = false;
    for (class, first, end) in runs(classes).filter(|(class, ..)| *class > 0) {
        let shift = u32::from(class - 1);
        let half = B::from_u64(1 << shift >> 1);
        let numbers = &numbers[first * BLOCK..end * BLOCK];
        let nibbles = &mut nibbles[first * BLOCK..end * BLOCK];
        let mut largest = B::ZERO;
        for (nibble, number) in nibbles.iter_mut().zip(numbers) {
            let high = above(number.plus(half), shift);
            let magnitude = magnitude(high);
            largest = largest.max(magnitude);
            let sign = (high >> (B::BITS - 1)).to_u64() as u8 * SIGN;
            *nibble = magnitude.min(B::from_u64(ESCAPE.into())).to_u64() as u8 | sign;
        }
        has_escapes |= largest >= B::from_u64(ESCAPE.into());
        if shift > 0 {
            at = put_low(numbers, half, shift, dst, at)?;
        }
    }
    let mut streams = [[0; STREAM_BYTES]; STREAMS];
    let [a, b, c, d] = &mut streams;
    let mut writers = [a, b, c, d].map(|stream| LowBitWriter::new(stream, 0));
    let nibbles_of = |nibbles: &[u8; CHUNK], block: usize| -> [u8; BLOCK] {
        core::array::from_fn(|i| nibbles[block * BLOCK + i])
    };
    for block in (0..classes.len()).filter(|block| classes[*block] > 0) {
        let block = nibbles_of(&nibbles, block);
        for (writer, share) in writers.iter_mut().zip(block.as_chunks::<SHARE>().0) {
            let (mut bits, mut n_bits) = (0, 0);
            for pair in share.as_chunks::<2>().0 {
                let (code, n_code) = encoder.code(pair[0], pair[1]);
                bits |= code << n_bits;
                n_bits += n_code;
            }
            writer.put(bits, n_bits)?;
        }
    }
    let lens = writers.map(|writer| writer.end());
    for (i, (stream, len)) in streams.iter().zip(lens).enumerate() {
        dst[2 * i..2 * i + 2].copy_from_slice(&(len as u16).to_le_bytes());
        dst.get_mut(at..at + len)?.copy_from_slice(&stream[..len]);
        at += len;
    }
    if has_escapes {
        for (i, nibbles) in nibbles.as_chunks::<BLOCK>().0[..classes.len()].iter().enumerate() {
            if has_escape(nibbles) {
                let block = &numbers[i * BLOCK..(i + 1) * BLOCK];
                at = put_escapes(block, u32::from(classes[i] - 1), dst, at)?;
            }
        }
    }
    if let Some(counts) = counts {
        for block in (0..classes.len()).filter(|block| classes[*block] > 0) {
            count(nibbles_of(&nibbles, block), counts);
        }
    }
    Some(at)
}

/// Counts a block's pairs.
fn count(nibbles: [u8; BLOCK], counts: &mut PairCounts) {
    for pair in nibbles.as_chunks::<2>().0 {
        counts[usize::from((pair[0] % SIGN) | ((pair[1] % SIGN) << 3))] += 1;
    }
}

/// Writes the low bits of blocks of one class. Returns where they end.
#[inline(always)]
fn put_low<B: Word>(
    numbers: &[B],
    half: B,
    shift: u32,
    dst: &mut [u8],
    at: usize,
) -> Option<usize> {
    let mask = (1 << shift) - 1;
    let low = |number: B| number.plus(half).to_u64() & mask;
    let mut writer = LowBitWriter::new(dst, at);
    // The bits of eight numbers fill whole bytes.
    if shift <= 7 {
        for eight in numbers.as_chunks::<8>().0 {
            let mut bits = 0;
            for (i, &number) in eight.iter().enumerate() {
                bits |= low(number) << (i as u32 * shift);
            }
            writer.put(bits, 8 * shift)?;
        }
    } else {
        for &number in numbers {
            writer.put(low(number), shift)?;
        }
    }
    Some(writer.end())
}

/// Returns whether any magnitude in the block is an escape, which stands for 7 and above.
#[inline(always)]
fn has_escape(nibbles: &[u8; BLOCK]) -> bool {
    nibbles.iter().fold(false, |any, nibble| any | (nibble % SIGN == ESCAPE))
}

/// Writes the excess over 7 of each magnitude of at least 7 in a block. Returns where they end.
#[inline(always)]
fn put_escapes<B: Word>(block: &[B], shift: u32, dst: &mut [u8], mut at: usize) -> Option<usize> {
    let half = B::from_u64(1 << shift >> 1);
    for &number in block {
        let magnitude = magnitude(above(number.plus(half), shift)).to_u64();
        let Some(mut more) = magnitude.checked_sub(ESCAPE.into()) else { continue };
        while more > 127 {
            *dst.get_mut(at)? = more as u8 | 128;
            (more, at) = (more >> 7, at + 1);
        }
        *dst.get_mut(at)? = more as u8;
        at += 1;
    }
    Some(at)
}

/// Inverse of [`write`]: reads from `src[..len]` and returns the number of bytes read. `src` has at
/// least eight bytes after `len`. `None` if no writer writes such bytes.
#[inline(always)]
pub(super) fn read<B: Word>(
    src: &[u8],
    len: usize,
    decoder: &Decoder,
    counts: Option<&mut PairCounts>,
    numbers: &mut [B],
) -> Option<usize> {
    let lengths: &[u8; LENGTHS] = src[..len].first_chunk()?;
    let mut classes = [0; BLOCKS];
    let classes = &mut classes[..numbers.len() / BLOCK];
    let most = 1 + MAX_SHIFT.min(B::BITS - 2);
    let low_at = take_classes(classes, most, src, LENGTHS)?;
    let n_low: usize = classes.iter().map(|class| 4 * usize::from(class.saturating_sub(1))).sum();
    let mut ends = [low_at + n_low; STREAMS + 1];
    for (i, len) in lengths.as_chunks().0.iter().enumerate() {
        ends[i + 1] = ends[i] + usize::from(u16::from_le_bytes(*len));
    }
    let mut at = ends[STREAMS];
    if at > len {
        return None;
    }
    let mut high = [0_u8; CHUNK];
    let mut bits: [usize; STREAMS] = core::array::from_fn(|i| 8 * ends[i]);
    let (blocks, _) = high.as_chunks_mut::<BLOCK>();
    for (_, block) in classes.iter().zip(blocks).filter(|(class, _)| **class > 0) {
        for (bit, share) in bits.iter_mut().zip(block.as_chunks_mut::<SHARE>().0) {
            let mut word = bits_at(src, *bit)?;
            for to in share.as_chunks_mut::<2>().0 {
                let (pair, n_bits) = decoder.pair(word);
                *to = pair;
                word >>= n_bits;
                *bit += n_bits as usize;
            }
        }
    }
    if (1..=STREAMS).any(|i| bits[i - 1].div_ceil(8) != ends[i]) {
        return None;
    }
    let mut low_at = low_at;
    for (class, first, end) in runs(classes) {
        let (from, to) = (first * BLOCK, end * BLOCK);
        let numbers = &mut numbers[from..to];
        let high = &high[from..to];
        let Some(shift) = class.checked_sub(1).map(u32::from) else {
            numbers.fill(B::ZERO);
            continue;
        };
        let mut has_escapes = false;
        for (number, &high) in numbers.iter_mut().zip(high) {
            has_escapes |= (high as i8).unsigned_abs() == ESCAPE;
            *number = B::from_u64(i64::from(high as i8) as u64) << shift;
        }
        if has_escapes {
            let blocks = high.as_chunks::<BLOCK>().0.iter().zip(numbers.chunks_mut(BLOCK));
            for (high, numbers) in blocks {
                if has_escape(&high.map(|byte| (byte as i8).unsigned_abs())) {
                    at = take_escapes(high, shift, &src[..len], at, numbers)?;
                }
            }
        }
        if shift > 0 {
            take_low(numbers, shift, src, low_at)?;
            low_at += numbers.len() / 8 * shift as usize;
        }
    }
    if let Some(counts) = counts {
        for (block, _) in high.as_chunks::<BLOCK>().0.iter().zip(&*classes).filter(|(_, c)| **c > 0)
        {
            count(block.map(|byte| (byte as i8).unsigned_abs()), counts);
        }
    }
    (at <= len).then_some(at)
}

/// Adds the low bits of blocks of one class to their numbers and subtracts 2^(k−1).
#[inline(always)]
fn take_low<B: Word>(numbers: &mut [B], shift: u32, src: &[u8], at: usize) -> Option<()> {
    let half = B::from_u64(1 << shift >> 1);
    let mask = (1 << shift) - 1;
    let groups = numbers.as_chunks_mut::<8>().0.iter_mut();
    for (group, eight) in groups.enumerate() {
        let at = at + group * shift as usize;
        let bits = if shift <= 7 { bits_at(src, 8 * at)? } else { 0 };
        for (i, number) in eight.iter_mut().enumerate() {
            let bit = i * shift as usize;
            let bits = if shift <= 7 { bits >> bit } else { bits_at(src, 8 * at + bit)? };
            *number = number.plus(B::from_u64(bits & mask)).minus(half);
        }
    }
    Some(())
}

/// Reads the excesses of a block's escapes and adds them to the numbers. Returns where they end.
#[inline(always)]
fn take_escapes<B: Word>(
    high: &[u8; BLOCK],
    shift: u32,
    src: &[u8],
    mut at: usize,
    numbers: &mut [B],
) -> Option<usize> {
    for (number, &high) in numbers.iter_mut().zip(high) {
        if (high as i8).unsigned_abs() != ESCAPE {
            continue;
        }
        let mut more = 0;
        for place in (0..).step_by(7) {
            let byte = *src.get(at)?;
            at += 1;
            if place >= u64::BITS {
                return None;
            }
            more |= u64::from(byte & 127) << place;
            if byte < 128 {
                break;
            }
        }
        let more = B::from_u64(more) << shift;
        *number = if (high as i8) < 0 { number.minus(more) } else { number.plus(more) };
    }
    Some(at)
}
