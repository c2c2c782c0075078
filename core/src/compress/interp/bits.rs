//! A growing sequence of numbers with a few bits each, as [`BitReader`] reads it.
//!
//! [`BitReader`]: crate::codec::bits::BitReader

use alloc::vec::Vec;

/// Collects bits: bit k of the sequence is bit k mod 8 of byte ⌊k/8⌋.
#[derive(Default)]
pub(super) struct BitSink {
    /// Whole bytes, and then a part of one.
    bytes: Vec<u8>,
    n_bits: usize,
}

impl BitSink {
    /// Removes all bits.
    pub(super) fn clear(&mut self) {
        self.bytes.clear();
        self.n_bits = 0;
    }

    /// Appends the low `n_bits` ≤ 56 of a number whose other bits are 0.
    #[inline(always)]
    pub(super) fn put(&mut self, bits: u64, n_bits: u32) {
        let at = self.n_bits / 8;
        if self.bytes.len() < at + 8 {
            self.bytes.resize(2 * at + 64, 0);
        }
        if let Some(place) = self.bytes[at..].first_chunk_mut() {
            let held = u64::from(place[0]) | bits << (self.n_bits % 8);
            *place = held.to_le_bytes();
        }
        self.n_bits += n_bits as usize;
    }

    /// Appends this many ones, at most 32, and a zero.
    pub(super) fn put_unary(&mut self, n_ones: u32) {
        self.put((1 << n_ones) - 1, n_ones + 1);
    }

    /// Number of bits so far.
    pub(super) const fn n_bits(&self) -> usize {
        self.n_bits
    }

    /// Returns the bytes; zeros fill the last one.
    pub(super) fn finish(&mut self) -> &[u8] {
        self.bytes.truncate(self.n_bits.div_ceil(8));
        &self.bytes
    }
}
