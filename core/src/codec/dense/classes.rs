//! Numbers of a few bits in sequence, low bits first, and the classes of a chunk's blocks among
//! them. `chunk` has a class for each block, and `widths` a width, which is written the same way.

use crate::kernel::BLOCKS;

/// Writes bits, low ones first.
pub(super) struct LowBitWriter<'a> {
    dst: &'a mut [u8],
    at: usize,
    bits: u64,
    n_bits: u32,
}

impl<'a> LowBitWriter<'a> {
    pub(super) fn new(dst: &'a mut [u8], at: usize) -> Self {
        Self { dst, at, bits: 0, n_bits: 0 }
    }

    /// Writes at most 56 bits; `None` if there is no space.
    #[inline(always)]
    pub(super) fn put(&mut self, bits: u64, n_bits: u32) -> Option<()> {
        self.bits |= bits << self.n_bits;
        self.n_bits += n_bits;
        match self.dst.get_mut(self.at..)?.first_chunk_mut() {
            Some(to) => *to = self.bits.to_le_bytes(),
            None => self.put_last()?,
        }
        self.at += (self.n_bits / 8) as usize;
        self.bits >>= self.n_bits & !7;
        self.n_bits &= 7;
        Some(())
    }

    /// Writes no more bytes than the bits take.
    #[cold]
    fn put_last(&mut self) -> Option<()> {
        let bytes = &self.bits.to_le_bytes()[..self.n_bits.div_ceil(8) as usize];
        self.dst.get_mut(self.at..self.at + bytes.len())?.copy_from_slice(bytes);
        Some(())
    }

    /// Returns the number of bytes so far. The unused bits of a partial last byte are 0.
    pub(super) fn end(&self) -> usize {
        self.at + usize::from(self.n_bits > 0)
    }
}

/// Returns at least 57 bits from bit `bit` on.
#[inline(always)]
pub(super) fn bits_at(src: &[u8], bit: usize) -> Option<u64> {
    let word = src.get(bit / 8..)?.first_chunk()?;
    Some(u64::from_le_bytes(*word) >> (bit % 8))
}

/// Returns the byte at which the next whole byte begins. `None` if a bit before it is not 0.
#[inline(always)]
pub(super) fn next_byte(src: &[u8], bit: usize) -> Option<usize> {
    (bit.is_multiple_of(8) || bits_at(src, bit)? & ((1 << (8 - bit % 8)) - 1) == 0)
        .then_some(bit.div_ceil(8))
}

/// Largest class that the format can represent.
const MAX_CLASS: u8 = 63;
/// Class before the first one.
const FIRST: u8 = 2;
/// Number of classes that one bit marks if all of them equal the class before them.
const GROUP: usize = 16;
/// Number of codes of classes, of at most 8 bits each, that fit a call of `put`.
const AT_ONCE: usize = 7;
/// Maximum bytes of classes, and 8 more that the last write may reach past them.
pub(super) const MAX_CLASS_BYTES: usize = BLOCKS + BLOCKS.div_ceil(8 * GROUP) + 8;

/// Writes the classes of blocks. A group of 16 begins with a bit: 0 if all of its classes equal the
/// class before the group, and then no more follows. Otherwise a class takes 1 bit if it equals the
/// previous one, 3 bits if it is one above or below, and 8 bits if not. The class before the first
/// one counts as 2. `None` if there is no space or a class is above [`MAX_CLASS`].
#[inline(always)]
pub(super) fn put_classes(classes: &[u8], writer: &mut LowBitWriter<'_>) -> Option<()> {
    let mut before = FIRST;
    if classes.iter().any(|class| *class > MAX_CLASS) {
        return None;
    }
    for group in classes.chunks(GROUP) {
        let is_mixed = group.iter().fold(0, |any, class| any | (class ^ before)) > 0;
        writer.put(is_mixed.into(), 1)?;
        if !is_mixed {
            continue;
        }
        // Joining codes takes no branches, which would be unpredictable.
        for some in group.chunks(AT_ONCE) {
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
    }
    Some(())
}

/// Decoding table for classes, by their first three bits. An entry holds whether the class is
/// relative to the previous one, the step to add, and the number of bits.
const STEPS: [(bool, u8, u32); 8] = {
    let [same, other] = [(true, 0, 1), (false, 0, 8)];
    let [up, down] = [(true, 1, 3), (true, u8::MAX, 3)];
    [same, up, same, other, same, down, same, other]
};

/// Inverse of [`put_classes`], from bit `bit` on. Returns where the classes end; `None` if one is
/// above `most`.
#[inline(always)]
pub(super) fn take_classes(
    classes: &mut [u8],
    most: u32,
    src: &[u8],
    mut bit: usize,
) -> Option<usize> {
    let (mut before, mut largest) = (FIRST, FIRST);
    for group in classes.chunks_mut(GROUP) {
        let is_mixed = bits_at(src, bit)? & 1 == 1;
        bit += 1;
        if !is_mixed {
            group.fill(before);
            continue;
        }
        for some in group.chunks_mut(AT_ONCE) {
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
    }
    (u32::from(largest) <= most && largest <= MAX_CLASS).then_some(bit)
}
