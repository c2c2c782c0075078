//! Sequences of numbers with a few bits each: bit k of the sequence is bit k mod 8 of byte ⌊k/8⌋.
//! For coders; the kernels of fz-light have their own packing.

use bytemuck::pod_read_unaligned;

/// Writes bits into a slice, four bytes at a time.
pub(super) struct BitWriter<'a> {
    dst: &'a mut [u8],
    n_bytes: usize,
    held: u64,
    n_held: u32,
}

impl<'a> BitWriter<'a> {
    #[inline(always)]
    pub(super) fn new(dst: &'a mut [u8]) -> Self {
        Self { dst, n_bytes: 0, held: 0, n_held: 0 }
    }

    /// Writes the low `n_bits` ≤ 32 of a number whose other bits are 0. `None` if there is no
    /// space.
    #[inline(always)]
    pub(super) fn put(&mut self, bits: u32, n_bits: u32) -> Option<()> {
        self.held |= u64::from(bits) << self.n_held;
        self.n_held += n_bits;
        if self.n_held >= 32 {
            let end = self.n_bytes + 4;
            let dst = self.dst.get_mut(self.n_bytes..end)?;
            dst.copy_from_slice(&(self.held as u32).to_le_bytes());
            self.n_bytes = end;
            self.held >>= 32;
            self.n_held -= 32;
        }
        Some(())
    }

    /// Writes the low `n_bits` ≤ 64 of a number whose other bits are 0. `None` if there is no
    /// space.
    #[inline(always)]
    pub(super) fn put_long(&mut self, bits: u64, n_bits: u32) -> Option<()> {
        self.put(bits as u32, n_bits.min(32))?;
        if n_bits > 32 { self.put((bits >> 32) as u32, n_bits - 32) } else { Some(()) }
    }

    /// Pads the last byte with zeros and returns the number of bytes written. `None` if there is no
    /// space.
    #[inline(always)]
    pub(super) fn finish(self) -> Option<usize> {
        let n_left = self.n_held.div_ceil(8) as usize;
        let end = self.n_bytes + n_left;
        let dst = self.dst.get_mut(self.n_bytes..end)?;
        dst.copy_from_slice(&self.held.to_le_bytes()[..n_left]);
        Some(end)
    }
}

/// Reads bits from a slice. Bits past its end are 0, and [`finish`](Self::finish) reports them.
pub(crate) struct BitReader<'a> {
    src: &'a [u8],
    at: usize,
}

impl<'a> BitReader<'a> {
    #[inline(always)]
    pub(crate) fn new(src: &'a [u8]) -> Self {
        Self { src, at: 0 }
    }

    /// Returns the next 57 bits or more, without moving past them.
    #[inline(always)]
    pub(crate) fn peek(&self) -> u64 {
        let byte = self.at / 8;
        let word: u64 = match self.src.get(byte..byte + 8) {
            Some(bytes) => pod_read_unaligned(bytes),
            None => self.last_bytes(byte),
        };
        word >> (self.at % 8)
    }

    /// Moves past `n_bits`.
    #[inline(always)]
    pub(crate) fn skip(&mut self, n_bits: u32) {
        self.at += n_bits as usize;
    }

    /// Returns the next `n_bits` ≤ 56.
    #[inline(always)]
    pub(crate) fn take(&mut self, n_bits: u32) -> u64 {
        let bits = self.peek() & ((1 << n_bits) - 1);
        self.skip(n_bits);
        bits
    }

    /// Returns the next `n_bits` ≤ 64.
    #[inline(always)]
    pub(crate) fn take_long(&mut self, n_bits: u32) -> u64 {
        let low = self.take(n_bits.min(32));
        if n_bits > 32 { low | self.take(n_bits - 32) << 32 } else { low }
    }

    #[cold]
    fn last_bytes(&self, byte: usize) -> u64 {
        let mut word = [0; 8];
        let rest = self.src.get(byte..).unwrap_or_default();
        word[..rest.len().min(8)].copy_from_slice(&rest[..rest.len().min(8)]);
        u64::from_le_bytes(word)
    }

    /// Returns `None` unless exactly all bytes were read and the bits after the last number are 0.
    pub(crate) fn finish(mut self) -> Option<()> {
        let is_whole = self.at.div_ceil(8) == self.src.len();
        let n_left = (8 * self.src.len()).saturating_sub(self.at) as u32;
        (is_whole && self.take(n_left.min(7)) == 0).then_some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

    #[test]
    fn numbers_come_back_and_no_byte_is_left_over() {
        let numbers: Vec<(u64, u32)> = (0..=64)
            .map(|n| (0x9e37_79b9_7f4a_7c15_u64.wrapping_mul(n + 1), n as u32))
            .map(|(bits, n)| (if n == 64 { bits } else { bits & ((1 << n) - 1) }, n))
            .collect();
        let n_bits: u32 = numbers.iter().map(|(_, n)| n).sum();
        let mut dst = [0; 400];
        let mut writer = BitWriter::new(&mut dst);
        for &(bits, n) in &numbers {
            writer.put_long(bits, n).unwrap();
        }
        let n_bytes = writer.finish().unwrap();
        assert_eq!(n_bytes, n_bits.div_ceil(8) as usize);
        for n_read in 0..=n_bytes + 1 {
            let mut reader = BitReader::new(&dst[..n_read]);
            let read: Vec<u64> = numbers.iter().map(|&(_, n)| reader.take_long(n)).collect();
            let is_same = read.iter().zip(&numbers).all(|(read, (bits, _))| read == bits);
            assert_eq!(is_same && reader.finish().is_some(), n_read == n_bytes);
        }
        assert!((0..n_bytes).all(|room| {
            let mut writer = BitWriter::new(&mut dst[..room]);
            let put = numbers.iter().try_for_each(|&(bits, n)| writer.put_long(bits, n));
            put.and_then(|()| writer.finish()).is_none()
        }));
    }
}
