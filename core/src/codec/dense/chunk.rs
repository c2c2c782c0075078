//! Residuals of a chunk, called *numbers* here, as bits.
//!
//! ```text
//! code       3 bits             which of the eight codes of `huffman` the pairs have
//! lengths    4 bits, 3 × w      w, then the bytes of all streams but the last, w bits each
//! classes    `classes`          the class of each block of 32: 0 if all numbers are 0, 1 if it is
//!                               *sparse*, else 2 + k
//! sparse     bits               places and signs in sparse blocks, up to a whole byte
//! low bits   4·k bytes a block  the k low bits of each number
//! streams    4, whole bytes     pairs of h, coded by `huffman`. The first eight numbers of each
//!                               block are in the first stream, the next eight in the second, …
//!                               Blocks of class 0 and 1 are in no stream.
//! escapes    4 bits each        for each |h| of 7 or more: its excess over 7, 3 bits at a time
//! ```
//!
//! A number is h·2^k + low − 2^(k−1). With this offset, h is number / 2^k rounded to nearest, so
//! that a small number has h = 0. k grows with the mean magnitude of the block. Thus h is small,
//! the same few pairs are frequent at all magnitudes, and smooth and rough regions share one code.
//! A reader finds the start of a code only when it has read the previous one. With four streams, it
//! reads four codes side by side.
//!
//! The writer takes the code that is shortest for a sample of the blocks. A code of pairs spends
//! half a bit on a 0, so blocks of hardly anything else, the sparse ones, have no pairs.

use super::classes::{LowBitWriter, bits_at, next_byte, put_classes, take_classes};
use super::huffman::{CODES, DECODERS, ENCODERS, ESCAPE, SIGN, lengths};
use super::window::magnitude;
use crate::element::sealed::Word;
use crate::kernel::{BLOCK, BLOCKS, CHUNK};
use core::ops::Range;

const STREAMS: usize = 4;
/// Count of a block's numbers that are in one stream.
const SHARE: usize = BLOCK / STREAMS;
/// Count of pairs of a block, and of those that are in one stream.
const BLOCK_PAIRS: usize = BLOCK / 2;
const SHARE_PAIRS: usize = SHARE / 2;
/// Maximum bytes of a stream, and 8 more that the last write may reach past it.
const STREAM_BYTES: usize = BLOCKS * SHARE_PAIRS * super::huffman::MAX_BITS as usize / 8 + 8;
/// Largest k. A 64-bit word has space for this many bits after the bits of a partial byte.
const MAX_SHIFT: u32 = 56;
/// Class of sparse blocks.
const SPARSE: u8 = 1;
/// Class of blocks whose pairs are coded and whose numbers have no low bits.
const PAIRED: u8 = 2;
/// Most numbers other than 0 in a sparse block; all of them are 1 or −1.
const MOST_SPARSE: u64 = 4;
/// Number of blocks for which the writer compares the codes.
const SAMPLES: usize = 16;

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
    if n_bits <= 1 && sum.to_u64() <= MOST_SPARSE {
        return if n_bits == 0 { 0 } else { SPARSE };
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
    PAIRED + shift.min(MAX_SHIFT) as u8
}

/// Shifts a number right by `shift` bits and keeps its sign.
#[inline(always)]
pub(super) fn above<B: Word>(number: B, shift: u32) -> B {
    let sign = B::from_u64(1) << (B::BITS - 1);
    ((number ^ sign) >> shift).minus(sign >> shift)
}

/// Returns runs of adjacent blocks of one k: k, and the places of their first and last number plus
/// one. Blocks of class 0 and 1 belong to runs of k = 0.
fn runs(classes: &[u8]) -> impl Iterator<Item = (u32, Range<usize>)> {
    let mut end = 0;
    let shift = |class: &u8| u32::from(class.saturating_sub(PAIRED));
    classes.chunk_by(move |a, b| shift(a) == shift(b)).map(move |run| {
        let first = end;
        end += run.len() * BLOCK;
        (shift(&run[0]), first..end)
    })
}

/// Indices of some blocks of a chunk.
struct BlockList {
    indices: [u8; BLOCKS],
    n: usize,
}

impl BlockList {
    /// Lists the blocks whose class is such. It takes no branches, which would be unpredictable.
    #[inline(always)]
    fn of(classes: &[u8], is_such: impl Fn(u8) -> bool) -> Self {
        let (mut indices, mut n) = ([0; BLOCKS], 0);
        for (i, class) in classes.iter().enumerate().take(BLOCKS) {
            indices[n % BLOCKS] = i as u8;
            n += usize::from(is_such(*class));
        }
        Self { indices, n }
    }

    fn iter(&self) -> impl Iterator<Item = usize> {
        self.indices[..self.n].iter().map(|i| usize::from(*i))
    }
}

/// Writes the numbers, which must be whole blocks, and returns the number of bytes. `None` if there
/// is no space; the numbers would then take more bytes than uncompressed.
#[inline(always)]
pub(super) fn write<B: Word>(numbers: &[B], dst: &mut [u8]) -> Option<usize> {
    let mut classes = [0; BLOCKS];
    let classes = &mut classes[..numbers.len() / BLOCK];
    for (class, block) in classes.iter_mut().zip(numbers.chunks_exact(BLOCK)) {
        *class = class_of(block);
    }
    let mut nibbles = [0; CHUNK];
    let mut has_escapes = false;
    for (shift, run) in runs(classes) {
        let half = B::from_u64(1 << shift >> 1);
        let mut largest = B::ZERO;
        for (nibble, number) in nibbles[run.clone()].iter_mut().zip(&numbers[run]) {
            let high = above(number.plus(half), shift);
            let magnitude = magnitude(high);
            largest = largest.max(magnitude);
            let sign = (high >> (B::BITS - 1)).to_u64() as u8 * SIGN;
            *nibble = magnitude.min(B::from_u64(ESCAPE.into())).to_u64() as u8 | sign;
        }
        has_escapes |= largest >= B::from_u64(ESCAPE.into());
    }
    let mut pairs = [0; CHUNK / 2];
    for (pair, nibbles) in pairs.iter_mut().zip(nibbles.as_chunks::<2>().0) {
        *pair = nibbles[0] | nibbles[1] << 4;
    }
    let pairs = pairs.as_chunks::<BLOCK_PAIRS>().0;
    let paired = BlockList::of(classes, |class| class >= PAIRED);
    let code = best_code(&paired, pairs);
    let encoder = &ENCODERS[code];
    let mut streams = [[0; STREAM_BYTES]; STREAMS];
    let [a, b, c, d] = &mut streams;
    let mut writers = [a, b, c, d].map(|stream| LowBitWriter::new(stream, 0));
    for i in paired.iter() {
        let block: [u8; BLOCK_PAIRS] = pairs[i];
        for (writer, share) in writers.iter_mut().zip(block.as_chunks::<SHARE_PAIRS>().0) {
            let (mut bits, mut n_bits) = (0, 0);
            for &pair in share {
                let (code, n_code) = encoder.code(pair);
                bits |= code << n_bits;
                n_bits += n_code;
            }
            writer.put(bits, n_bits)?;
        }
    }
    let lens = writers.map(|writer| writer.end());
    let mut writer = LowBitWriter::new(dst, 0);
    put_head(code, lens, &mut writer)?;
    put_classes(classes, &mut writer)?;
    for i in BlockList::of(classes, |class| class == SPARSE).iter() {
        put_sparse(&pairs[i], &mut writer)?;
    }
    let mut at = writer.end();
    for (shift, run) in runs(classes).filter(|(shift, _)| *shift > 0) {
        at = put_low(&numbers[run], shift, dst, at)?;
    }
    for (stream, len) in streams.iter().zip(lens) {
        dst.get_mut(at..at + len)?.copy_from_slice(&stream[..len]);
        at += len;
    }
    if has_escapes {
        let blocks = nibbles.as_chunks::<BLOCK>().0;
        let mut writer = LowBitWriter::new(dst, at);
        for i in paired.iter() {
            if has_escape(&blocks[i]) {
                let block = &numbers[i * BLOCK..(i + 1) * BLOCK];
                put_escapes(block, u32::from(classes[i] - PAIRED), &mut writer)?;
            }
        }
        at = writer.end();
    }
    Some(at)
}

/// Returns the code that is shortest for a sample of these blocks.
#[inline(always)]
fn best_code(blocks: &BlockList, pairs: &[[u8; BLOCK_PAIRS]]) -> usize {
    let mut sums = [0_u32; CODES];
    for i in blocks.iter().step_by(blocks.n.div_ceil(SAMPLES).max(1)) {
        for (sum, length) in sums.iter_mut().zip(lengths(&pairs[i])) {
            *sum += u32::from(length);
        }
    }
    (0..CODES).min_by_key(|code| sums[*code]).unwrap_or_default()
}

/// Writes the number of the code, and the lengths of streams that a reader cannot know.
fn put_head(code: usize, lens: [usize; STREAMS], writer: &mut LowBitWriter<'_>) -> Option<()> {
    let lens = &lens[..STREAMS - 1];
    let any = lens.iter().fold(0, |any, len| any | *len as u64);
    let width = u64::BITS - any.leading_zeros();
    let (mut bits, mut n_bits) = (code as u64 | u64::from(width) << 3, 7);
    for len in lens {
        bits |= (*len as u64) << n_bits;
        n_bits += width;
    }
    writer.put(bits, n_bits)
}

/// Writes the places and signs of a sparse block's numbers.
#[inline(always)]
fn put_sparse(pairs: &[u8; BLOCK_PAIRS], writer: &mut LowBitWriter<'_>) -> Option<()> {
    // Number i of the block has bits 4·i (it is not 0) and 4·i + 3 (it is negative).
    let block = u128::from_le_bytes(*pairs);
    let mut rest = block & (u128::MAX / 15);
    let n_bits = 2 + 6 * rest.count_ones();
    let mut bits = 0;
    // Always as many rounds, because a branch would be unpredictable.
    for i in 0..MOST_SPARSE as u32 {
        let at = rest.trailing_zeros() % u128::BITS;
        let negative = (block >> at) as u64 >> 3 & 1;
        bits |= (u64::from(at / 4) | negative << 5) << (2 + 6 * i);
        rest &= rest.wrapping_sub(1);
    }
    writer.put(bits & ((1 << n_bits) - 1) | u64::from(n_bits / 6 - 1), n_bits)
}

/// Writes the low bits of blocks of one class. Returns where they end.
#[inline(always)]
fn put_low<B: Word>(numbers: &[B], shift: u32, dst: &mut [u8], at: usize) -> Option<usize> {
    let half = B::from_u64(1 << shift >> 1);
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

/// Writes the excess over 7 of each magnitude of at least 7 in a block.
#[inline(always)]
fn put_escapes<B: Word>(block: &[B], shift: u32, writer: &mut LowBitWriter<'_>) -> Option<()> {
    let half = B::from_u64(1 << shift >> 1);
    for &number in block {
        let magnitude = magnitude(above(number.plus(half), shift)).to_u64();
        let Some(mut more) = magnitude.checked_sub(ESCAPE.into()) else { continue };
        while more > 7 {
            writer.put(more & 7 | 8, 4)?;
            more >>= 3;
        }
        writer.put(more, 4)?;
    }
    Some(())
}

/// Inverse of [`write`]: reads from `src[..len]` and returns the number of bytes read. `src` has at
/// least eight bytes after `len`. `None` if no writer writes such bytes.
#[inline(always)]
pub(super) fn read<B: Word>(src: &[u8], len: usize, numbers: &mut [B]) -> Option<usize> {
    let mut classes = [0; BLOCKS];
    let classes = &mut classes[..numbers.len() / BLOCK];
    let most = u32::from(PAIRED) + MAX_SHIFT.min(B::BITS - 2);
    let (code, lens, bit) = take_head(src)?;
    let mut bit = take_classes(classes, most, src, bit)?;
    let mut pairs = [0_u8; CHUNK / 2];
    let pairs = pairs.as_chunks_mut::<BLOCK_PAIRS>().0;
    for i in BlockList::of(classes, |class| class == SPARSE).iter() {
        bit = take_sparse(src, bit, &mut pairs[i])?;
    }
    let mut low_at = next_byte(src, bit)?;
    let shifts = classes.iter().map(|class| usize::from(class.saturating_sub(PAIRED)));
    let mut starts = [low_at + 4 * shifts.sum::<usize>(); STREAMS];
    for (i, len) in lens.into_iter().enumerate() {
        starts[i + 1] = starts[i] + len;
    }
    let decoder = &DECODERS[code];
    let paired = BlockList::of(classes, |class| class >= PAIRED);
    let mut bits = starts.map(|start| 8 * start);
    for i in paired.iter() {
        for (bit, share) in bits.iter_mut().zip(pairs[i].as_chunks_mut::<SHARE_PAIRS>().0) {
            let mut word = bits_at(src, *bit)?;
            for to in share {
                let (pair, n_bits) = decoder.pair(word);
                *to = pair;
                word >>= n_bits;
                *bit += n_bits as usize;
            }
        }
    }
    if (1..STREAMS).any(|i| bits[i - 1].div_ceil(8) != starts[i]) {
        return None;
    }
    let mut high = [0_i8; CHUNK];
    for (to, &pair) in high.as_chunks_mut::<2>().0.iter_mut().zip(pairs.as_flattened()) {
        *to = [(pair << 4) as i8 >> 4, pair as i8 >> 4];
    }
    let mut bit = bits[STREAMS - 1].next_multiple_of(8);
    for (shift, run) in runs(classes) {
        let (numbers, high) = (&mut numbers[run.clone()], &high[run]);
        let mut has_escapes = false;
        for (number, &high) in numbers.iter_mut().zip(high) {
            has_escapes |= high.unsigned_abs() == ESCAPE;
            *number = B::from_u64(i64::from(high) as u64) << shift;
        }
        if has_escapes {
            let blocks = high.as_chunks::<BLOCK>().0.iter().zip(numbers.chunks_mut(BLOCK));
            for (high, numbers) in blocks {
                if has_escape(&high.map(i8::unsigned_abs)) {
                    bit = take_escapes(high, shift, src, bit, numbers)?;
                }
            }
        }
        if shift > 0 {
            take_low(numbers, shift, src, low_at)?;
            low_at += numbers.len() / 8 * shift as usize;
        }
    }
    let n_bytes = bit.div_ceil(8);
    (n_bytes <= len).then_some(n_bytes)
}

/// Inverse of [`put_head`]. Also returns the number of bits.
fn take_head(src: &[u8]) -> Option<(usize, [usize; STREAMS - 1], usize)> {
    let bits = bits_at(src, 0)?;
    let width = (bits >> 3 & 15) as usize;
    let mask = (1 << width) - 1;
    let len = |i: usize| (bits >> (7 + i * width) & mask) as usize;
    Some(((bits & 7) as usize, core::array::from_fn(len), 7 + (STREAMS - 1) * width))
}

/// Inverse of [`put_sparse`]. Returns where the block ends; `None` if its places do not ascend.
#[inline(always)]
fn take_sparse(src: &[u8], bit: usize, pairs: &mut [u8; BLOCK_PAIRS]) -> Option<usize> {
    let mut bits = bits_at(src, bit)?;
    let n = 1 + (bits & 3) as usize;
    bits >>= 2;
    let mut next = 0;
    for _ in 0..n {
        let place = (bits & 31) as usize;
        if place < next {
            return None;
        }
        next = place + 1;
        let number = if bits >> 5 & 1 == 1 { 15 } else { 1 };
        pairs[place / 2] |= number << (4 * (place % 2));
        bits >>= 6;
    }
    Some(bit + 2 + 6 * n)
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

/// Reads the excesses of a block's escapes from bit `bit` on and adds them to the numbers. Returns
/// where they end.
#[inline(always)]
fn take_escapes<B: Word>(
    high: &[i8; BLOCK],
    shift: u32,
    src: &[u8],
    mut bit: usize,
    numbers: &mut [B],
) -> Option<usize> {
    for (number, &high) in numbers.iter_mut().zip(high) {
        if high.unsigned_abs() != ESCAPE {
            continue;
        }
        let mut more = 0;
        for place in (0..u64::BITS).step_by(3) {
            let bits = bits_at(src, bit)?;
            bit += 4;
            more |= (bits & 7) << place;
            if bits & 8 == 0 {
                break;
            }
        }
        let more = B::from_u64(more) << shift;
        *number = if high < 0 { number.minus(more) } else { number.plus(more) };
    }
    Some(bit)
}
