//! A growing sequence of numbers with a few bits each, as [`BitReader`] reads it.
//!
//! [`BitReader`]: crate::codec::bits::BitReader

use alloc::vec::Vec;

/// Collects bits: bit k of the sequence is bit k mod 8 of byte ⌊k/8⌋.
#[derive(Default)]
pub(super) struct BitSink {
    bytes: Vec<u8>,
    held: u64,
    n_held: u32,
}

impl BitSink {
    /// Appends the low `n_bits` ≤ 56 of a number whose other bits are 0.
    pub(super) fn put(&mut self, bits: u64, n_bits: u32) {
        self.held |= bits << self.n_held;
        self.n_held += n_bits;
        let n_whole = self.n_held / 8;
        self.bytes.extend_from_slice(&self.held.to_le_bytes()[..n_whole as usize]);
        self.held = self.held.checked_shr(8 * n_whole).unwrap_or(0);
        self.n_held %= 8;
    }

    /// Appends this many ones, at most 32, and a zero.
    pub(super) fn put_unary(&mut self, n_ones: u32) {
        self.put((1 << n_ones) - 1, n_ones + 1);
    }

    /// Returns the bytes; zeros fill the last one.
    pub(super) fn finish(mut self) -> Vec<u8> {
        if self.n_held > 0 {
            self.bytes.push(self.held as u8);
        }
        self.bytes
    }
}
