//! Coding of words as a count of leading zero nibbles and the remaining nibbles. It suits words
//! that are the XOR of similar values: neighbours, or the same value in two time steps.
//!
//! All counts come first, four bits for each word, then the nibbles, low ones first. A reader thus
//! knows the lengths of all words before it takes the first. To find a word, it only adds the
//! length of the previous one.
//!
//! Words have `n_nibbles` ≤ 16 nibbles, but a count is at most 15. For words of 16 nibbles, the
//! count 15 therefore means that the word is zero, which is more frequent than a single remaining
//! nibble. A word of 16 nibbles with a single remaining nibble has the count 14 and stores two
//! nibbles.
//!
//! Source: CAM's lossless compression (Kumar et al., Parallel Computing 2008).

use crate::element::sealed::Word;
use bytemuck::pod_read_unaligned;

/// Words written or read together. An even number.
pub(super) const BATCH: usize = 128;
/// Maximum bytes of a batch's nibbles, which may start within a byte, and of the accesses past
/// their end.
const REACH: usize = BATCH * 8 + 16;

/// Writes words, batch by batch.
pub(super) struct NibbleWriter<'a> {
    n_nibbles: u32,
    counts: &'a mut [u8],
    nibbles: &'a mut [u8],
    /// Whole bytes of nibbles so far.
    n_bytes: usize,
    /// Nibble after these bytes, which waits for the other half of its byte.
    pending: Option<u8>,
}

impl<'a> NibbleWriter<'a> {
    /// Makes a writer of `n_words` words; `None` if their counts alone do not fit.
    #[inline(always)]
    pub(super) fn new(n_nibbles: u32, n_words: usize, dst: &'a mut [u8]) -> Option<Self> {
        let (counts, nibbles) = dst.split_at_mut_checked(n_words.div_ceil(2))?;
        Some(Self { n_nibbles, counts, nibbles, n_bytes: 0, pending: None })
    }

    /// Writes the next words: a whole [`BATCH`] unless they are the last. `None` if there is no
    /// space.
    #[inline(always)]
    pub(super) fn put<W: Word>(&mut self, words: &[W]) -> Option<()> {
        let mut lens = [0; BATCH];
        let lens = &mut lens[..words.len()];
        for (len, word) in lens.iter_mut().zip(words) {
            let len_of_word = (W::BITS - word.leading_zeros()).div_ceil(4);
            let is_long = self.n_nibbles == 16 && len_of_word == 1;
            *len = len_of_word + u32::from(is_long);
        }
        let count = |len: u32| (self.n_nibbles - len).min(15) as u8;
        let (counts, rest) =
            core::mem::take(&mut self.counts).split_at_mut(words.len().div_ceil(2));
        self.counts = rest;
        for (counts, lens) in counts.iter_mut().zip(lens.chunks(2)) {
            *counts = count(lens[0]) | lens.get(1).map_or(0, |&len| count(len) << 4);
        }

        let mut buffer = [0; REACH];
        let mut carry = u64::from(self.pending.unwrap_or(0));
        let mut at = usize::from(self.pending.is_some());
        for (word, &len) in words.iter().zip(&*lens) {
            let word = word.to_u64();
            let shift = 4 * (at % 2) as u32;
            // The next word overwrites the bytes beyond this one.
            let bytes = buffer.get_mut(at / 2..at / 2 + 9)?;
            bytes[..8].copy_from_slice(&(word << shift | carry).to_le_bytes());
            bytes[8] = (word >> 60) as u8;
            at += len as usize;
            let last = if len == 0 { carry } else { word >> (4 * (len - 1)) };
            carry = if at.is_multiple_of(2) { 0 } else { last };
        }
        let end = self.n_bytes + at / 2;
        self.nibbles.get_mut(self.n_bytes..end)?.copy_from_slice(&buffer[..at / 2]);
        self.n_bytes = end;
        self.pending = (!at.is_multiple_of(2)).then_some(carry as u8);
        Some(())
    }

    /// Returns the number of bytes written, for `n_words` as passed to `new`. `None` if there is no
    /// space.
    #[inline(always)]
    pub(super) fn finish(self, n_words: usize) -> Option<usize> {
        if let Some(nibble) = self.pending {
            *self.nibbles.get_mut(self.n_bytes)? = nibble;
        }
        Some(n_words.div_ceil(2) + self.n_bytes + usize::from(self.pending.is_some()))
    }
}

/// Reads words, batch by batch.
pub(super) struct NibbleReader<'a> {
    n_nibbles: u32,
    counts: &'a [u8],
    nibbles: &'a [u8],
    /// Nibbles read so far.
    at: usize,
}

impl<'a> NibbleReader<'a> {
    /// Makes a reader of `n_words` words that take all of `src`; `None` if no writer writes such
    /// bytes.
    #[inline(always)]
    pub(super) fn new(n_nibbles: u32, n_words: usize, src: &'a [u8]) -> Option<Self> {
        let (counts, nibbles) = src.split_at_checked(n_words.div_ceil(2))?;
        let len = |count: u8| u64::from(len(n_nibbles, count));
        let mut total = 0;
        let mut largest = 0;
        for &counts in counts {
            let (low, high) = (counts & 15, counts >> 4);
            total += len(low) + len(high);
            largest = largest.max(low).max(high);
        }
        if !n_words.is_multiple_of(2) {
            // The count after the last one belongs to no word.
            let last = counts.last()? >> 4;
            if last != 0 {
                return None;
            }
            total -= len(0);
        }
        let is_whole = total.div_ceil(2) == nibbles.len() as u64;
        let is_clean = total.is_multiple_of(2) || nibbles.last()? >> 4 == 0;
        let is_known = u32::from(largest) <= n_nibbles;
        (is_whole && is_clean && is_known).then_some(Self { n_nibbles, counts, nibbles, at: 0 })
    }

    /// Reads the next words: a whole [`BATCH`] unless they are the last.
    #[inline(always)]
    pub(super) fn take<W: Word>(&mut self, words: &mut [W]) {
        let (counts, rest) = self.counts.split_at(words.len().div_ceil(2));
        self.counts = rest;
        let mut lens = [0; BATCH];
        for (lens, counts) in lens.chunks_exact_mut(2).zip(counts) {
            lens[0] = len(self.n_nibbles, counts & 15);
            lens[1] = len(self.n_nibbles, counts >> 4);
        }

        let rest = self.nibbles.get(self.at / 2..).unwrap_or_default();
        let mut buffer = [0; REACH];
        let nibbles: &[u8; REACH] = match rest.first_chunk() {
            Some(nibbles) => nibbles,
            None => {
                buffer[..rest.len()].copy_from_slice(rest);
                &buffer
            }
        };
        let first = self.at / 2 * 2;
        let mut at = self.at - first;
        for (word, &len) in words.iter_mut().zip(&lens) {
            let Some(bytes) = nibbles.get(at / 2..at / 2 + 9) else { return };
            let shift = 4 * (at % 2) as u32;
            let low: u64 = pod_read_unaligned(&bytes[..8]);
            let high = u64::from(bytes[8]) << 60;
            let bits = low >> shift | if shift == 0 { 0 } else { high };
            let mask = !(u64::MAX.checked_shl(4 * len).unwrap_or(0));
            *word = W::from_u64(bits & mask);
            at += len as usize;
        }
        self.at = first + at;
    }
}

/// Returns the number of nibbles in a word with this count.
#[inline(always)]
fn len(n_nibbles: u32, count: u8) -> u32 {
    if count == 15 { 0 } else { n_nibbles.saturating_sub(count.into()) }
}
