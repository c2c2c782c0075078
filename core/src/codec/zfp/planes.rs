//! Coding of four-bit planes: zfp's group tests, by tables.
//!
//! Let n be the number of a block's coefficients up to the last one that had a 1 in a higher plane.
//! A plane starts with the bits of the first n coefficients. Then a bit says whether any of the
//! other coefficients has a 1 in this plane. If so, their bits follow up to the first 1. n grows to
//! include that coefficient, and the test repeats until no coefficient is left. The last
//! coefficient needs no bit: if those before it are 0, the test has said that it has a 1.

use crate::codec::bits::BitReader;
use bytemuck::pod_read_unaligned;

/// Planes in a word, a nibble each, the highest plane first.
pub(in crate::codec) const PLANES_PER_WORD: usize = 16;
/// Maximum words of planes in a block: 64 planes.
pub(in crate::codec) const MAX_WORDS: usize = 64 / PLANES_PER_WORD;
/// Maximum bits of a plane.
const MAX_BITS: u32 = 7;
/// Maximum words of a block's bits, and one that is written beyond them.
const WORDS: usize = 256 / 64 + 1;

/// Table of coded planes. The high nibble of the index is the OR of all higher planes, and the low
/// nibble is the plane. An entry holds the code's length from bit 8 on, and its bits below.
static ENCODED_PLANES: [u16; 256] = {
    let mut table = [0; 256];
    let mut index: u32 = 0;
    while index < 256 {
        let n = 32 - (index >> 4).leading_zeros();
        table[index as usize] = encoded_plane(n, index & 15);
        index += 1;
    }
    table
};

const fn encoded_plane(mut n: u32, plane: u32) -> u16 {
    let (mut bits, mut len) = (plane & ((1 << n) - 1), n);
    while n < 4 {
        let has_one = plane >> n != 0;
        bits |= (has_one as u32) << len;
        len += 1;
        if !has_one {
            break;
        }
        while n < 3 {
            let is_one = plane >> n & 1;
            bits |= is_one << len;
            len += 1;
            if is_one == 1 {
                break;
            }
            n += 1;
        }
        n += 1;
    }
    (len << 8 | bits) as u16
}

/// Table of decoded planes. The index holds the next seven bits, n from bit 7 on, and from bit 10
/// on the number of the block's bits that are left, at most [`MAX_BITS`]. An entry holds the plane,
/// the code's length from bit 4 on, and from bit 7 on the n after the plane. If the block's bits
/// end within the plane, the missing bits are 0.
static DECODED_PLANES: [u16; 8 << 10] = {
    let mut table = [0; 8 << 10];
    let mut index: u32 = 0;
    while index < 8 << 10 {
        let (n_left, n, bits) = (index >> 10, index >> 7 & 7, index & 127);
        if n <= 4 {
            table[index as usize] = decoded_plane(n_left, n, bits);
        }
        index += 1;
    }
    table
};

const fn decoded_plane(n_left: u32, mut n: u32, bits: u32) -> u16 {
    let mut len = if n < n_left { n } else { n_left };
    let mut plane = bits & ((1 << len) - 1);
    while len < n_left && n < 4 {
        len += 1;
        if bits >> (len - 1) & 1 == 0 {
            break;
        }
        while len < n_left && n < 3 {
            len += 1;
            if bits >> (len - 1) & 1 == 1 {
                break;
            }
            n += 1;
        }
        plane |= 1 << n;
        n += 1;
    }
    (n << 7 | len << 4 | plane) as u16
}

/// Spreads bits 0 … 15 to every fourth place.
#[inline(always)]
pub(in crate::codec) fn spread(bits: u64) -> u64 {
    let bits = bits & 0xffff;
    let bits = (bits | bits << 24) & 0x0000_00ff_0000_00ff;
    let bits = (bits | bits << 12) & 0x000f_000f_000f_000f;
    let bits = (bits | bits << 6) & 0x0303_0303_0303_0303;
    (bits | bits << 3) & 0x1111_1111_1111_1111
}

/// Inverse of [`spread`]: gathers every fourth bit.
#[inline(always)]
pub(in crate::codec) fn gather(bits: u64) -> u64 {
    let bits = bits & 0x1111_1111_1111_1111;
    let bits = (bits | bits >> 3) & 0x0303_0303_0303_0303;
    let bits = (bits | bits >> 6) & 0x000f_000f_000f_000f;
    let bits = (bits | bits >> 12) & 0x0000_00ff_0000_00ff;
    (bits | bits >> 24) & 0xffff
}

/// Collects the bits of a block.
pub(in crate::codec) struct PlaneWriter {
    block_bits: u32,
    words: [u64; WORDS],
    n_words: usize,
    held: u64,
    n_held: u32,
}

impl PlaneWriter {
    #[inline(always)]
    pub(in crate::codec) fn new(block_bits: u32) -> Self {
        Self { block_bits, words: [0; WORDS], n_words: 0, held: 0, n_held: 0 }
    }

    /// Appends up to 64 bits.
    #[inline(always)]
    pub(in crate::codec) fn put(&mut self, bits: u64, n_bits: u32) {
        self.held |= bits << self.n_held;
        self.n_held += n_bits;
        if self.n_held >= 64 {
            self.words[self.n_words % WORDS] = self.held;
            self.n_words += 1;
            self.n_held -= 64;
            self.held = bits.checked_shr(n_bits - self.n_held).unwrap_or(0);
        }
    }

    /// Appends the first `n_planes` planes of these words, up to the block's space. With each word
    /// of planes comes a word that holds, for each plane, the OR of all higher planes.
    #[inline(always)]
    pub(in crate::codec) fn put_planes(&mut self, words: &[[u64; 2]], n_planes: u32) {
        let mut n_left = n_planes;
        for [mut planes, mut before] in words.iter().copied() {
            for _ in 0..PLANES_PER_WORD {
                if 64 * self.n_words as u32 + self.n_held >= self.block_bits || n_left == 0 {
                    return;
                }
                n_left -= 1;
                let entry = ENCODED_PLANES[(before >> 60 << 4 | planes >> 60) as usize];
                self.put((entry & 0x7f).into(), (entry >> 8).into());
                (planes, before) = (planes << 4, before << 4);
            }
        }
    }

    /// Ends the block here.
    #[inline(always)]
    pub(in crate::codec) fn ended(self) -> Self {
        Self { block_bits: 64 * self.n_words as u32 + self.n_held, ..self }
    }

    /// Returns all bits of the block, at most 64 at a time.
    #[inline(always)]
    pub(in crate::codec) fn finish(mut self) -> impl Iterator<Item = (u64, u32)> {
        self.words[self.n_words % WORDS] = self.held;
        let n_words = self.block_bits.div_ceil(64) as usize;
        self.words.into_iter().take(n_words).enumerate().map(move |(nth, word)| {
            let n_bits = (self.block_bits - 64 * nth as u32).min(64);
            (word & (u64::MAX >> (64 - n_bits)), n_bits)
        })
    }
}

/// Reads this number of planes, word by word.
#[inline(always)]
pub(in crate::codec) fn take_block(reader: &mut BitReader<'_>, n_planes: u32) -> [u64; MAX_WORDS] {
    let mut words = [0; MAX_WORDS];
    // As in the table, from bit 7 on.
    let mut n_seen = 0;
    for nth in 0..n_planes as usize {
        let bits = reader.peek() as u32 & 127;
        let index = (MAX_BITS << 10 | n_seen | bits) as usize;
        let entry = u32::from(DECODED_PLANES[index % DECODED_PLANES.len()]);
        let at = 60 - 4 * (nth % PLANES_PER_WORD);
        words[nth / PLANES_PER_WORD % MAX_WORDS] |= u64::from(entry & 15) << at;
        reader.skip(entry >> 4 & 7);
        n_seen = entry & 7 << 7;
    }
    words
}

/// Reads the bits of [`LANES`] blocks side by side. Each step depends on the one before in the same
/// block, but not on the other blocks.
pub(in crate::codec) struct PlaneReader<'a> {
    src: &'a [u8; ROOM],
    at: [u32; LANES],
    end: [u32; LANES],
}

/// Blocks that are read side by side.
pub(in crate::codec) const LANES: usize = 2;
/// Bytes of the buffer. A power of two, with space for a batch of blocks and for reads past it.
pub(in crate::codec) const ROOM: usize = 2048;

impl<'a> PlaneReader<'a> {
    /// Makes a reader of blocks from block `first` on.
    #[inline(always)]
    pub(in crate::codec) fn new(src: &'a [u8; ROOM], first: usize, block_bits: u32) -> Self {
        let at = core::array::from_fn(|lane| (first + lane) as u32 * block_bits);
        Self { src, at, end: at.map(|at| at + block_bits) }
    }

    /// Returns the next bits of a block, at least 57. Bits past its end belong to other blocks.
    #[inline(always)]
    fn next(&self, lane: usize) -> u64 {
        let at = self.at[lane];
        let byte = at as usize / 8 % (ROOM / 2);
        pod_read_unaligned::<u64>(&self.src[byte..byte + 8]) >> (at % 8)
    }

    /// Reads a block's exponent e. Returns 0 if the block has none, because all its values are 0.
    /// `None` if the block's first bit says that it has an exponent, but the exponent is 0.
    #[inline(always)]
    pub(in crate::codec) fn exponent(&mut self, lane: usize, header_bits: u32) -> Option<u64> {
        let header = self.next(lane) & ((1 << header_bits) - 1);
        if header & 1 == 0 {
            self.end[lane] = self.at[lane];
            return Some(0);
        }
        self.at[lane] += header_bits;
        (header > 1).then_some(header >> 1)
    }

    /// Reads the planes of the blocks, word by word. Planes past the end of the bits are 0.
    #[inline(always)]
    pub(in crate::codec) fn take_planes(&mut self, words: &mut [[u64; LANES]]) {
        const STRIDE: usize = 4;
        // n of each block, in bits 7 to 9 as in the table.
        let mut n_seen = [0; LANES];
        for words in words {
            *words = [0; LANES];
            for nth in (0..PLANES_PER_WORD).step_by(STRIDE) {
                if self.at == self.end {
                    break;
                }
                for nth in nth..nth + STRIDE {
                    for lane in 0..LANES {
                        let n_left = (self.end[lane] - self.at[lane]).min(MAX_BITS);
                        let bits = self.next(lane) as u32 & 127;
                        let index = n_left << 10 | n_seen[lane] | bits;
                        let entry =
                            u32::from(DECODED_PLANES[index as usize % DECODED_PLANES.len()]);
                        words[lane] |= u64::from(entry & 15) << (60 - 4 * nth);
                        self.at[lane] += entry >> 4 & 7;
                        n_seen[lane] = entry & 7 << 7;
                    }
                }
            }
        }
    }
}
