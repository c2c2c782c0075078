//! Planes of four bits, as bits: zfp's group tests, by tables.
//!
//! n of a block's coefficients have had a 1. A plane is their n bits, and then for the others, as
//! long as there are any: a bit whether one of them has a 1; if so, bits up to the first that has,
//! which joins the n with all before it. The last one's 1 needs no bit.

use crate::codec::bits::BitReader;

/// Planes in a word, the highest first: a nibble each.
pub(super) const PLANES_PER_WORD: usize = 16;
/// Most bits of a plane.
const MAX_BITS: u32 = 7;
/// Most words of a block's bits, and two that are read beyond them.
const WORDS: usize = 256 / 64 + 2;

/// Of n and a plane: n after it (from bit 12), its length (from bit 8) and its bits.
static WRITTEN: [[u16; 16]; 5] = {
    let mut table = [[0; 16]; 5];
    let mut n = 0;
    while n < 5 {
        let mut plane = 0;
        while plane < 16 {
            table[n as usize][plane as usize] = written(n, plane);
            plane += 1;
        }
        n += 1;
    }
    table
};

const fn written(mut n: u32, plane: u32) -> u16 {
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
    (n << 12 | len << 8 | bits) as u16
}

/// Of the number of bits that are left (if that is below [`MAX_BITS`]), n, and the next bits: n
/// after the plane (from bit 8), its length (from bit 4) and the plane, as far as it goes.
static READ: [[[u16; 128]; 5]; 8] = {
    let mut table = [[[0; 128]; 5]; 8];
    let mut n_left = 0;
    while n_left < 8 {
        let mut n = 0;
        while n < 5 {
            let mut bits = 0;
            while bits < 128 {
                table[n_left as usize][n as usize][bits as usize] = read(n_left, n, bits);
                bits += 1;
            }
            n += 1;
        }
        n_left += 1;
    }
    table
};

const fn read(n_left: u32, mut n: u32, bits: u32) -> u16 {
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
    (n << 8 | len << 4 | plane) as u16
}

/// Bits 0 … 15, and each four places from the next.
#[inline(always)]
pub(super) fn spread(bits: u64) -> u64 {
    let bits = bits & 0xffff;
    let bits = (bits | bits << 24) & 0x0000_00ff_0000_00ff;
    let bits = (bits | bits << 12) & 0x000f_000f_000f_000f;
    let bits = (bits | bits << 6) & 0x0303_0303_0303_0303;
    (bits | bits << 3) & 0x1111_1111_1111_1111
}

/// And back, of every fourth bit.
#[inline(always)]
pub(super) fn gather(bits: u64) -> u64 {
    let bits = bits & 0x1111_1111_1111_1111;
    let bits = (bits | bits >> 3) & 0x0303_0303_0303_0303;
    let bits = (bits | bits >> 6) & 0x000f_000f_000f_000f;
    let bits = (bits | bits >> 12) & 0x0000_00ff_0000_00ff;
    (bits | bits >> 24) & 0xffff
}

/// The bits of a block as they are made.
pub(super) struct PlaneWriter {
    block_bits: u32,
    words: [u64; WORDS],
    n_words: usize,
    held: u64,
    n_held: u32,
}

impl PlaneWriter {
    #[inline(always)]
    pub(super) fn new(block_bits: u32) -> Self {
        Self { block_bits, words: [0; WORDS], n_words: 0, held: 0, n_held: 0 }
    }

    /// Up to 64 bits.
    #[inline(always)]
    pub(super) fn put(&mut self, bits: u64, n_bits: u32) {
        self.held |= bits << self.n_held;
        self.n_held += n_bits;
        if self.n_held >= 64 {
            self.words[self.n_words % WORDS] = self.held;
            self.n_words += 1;
            self.n_held -= 64;
            self.held = bits.checked_shr(n_bits - self.n_held).unwrap_or(0);
        }
    }

    /// The first `n_planes` of the planes in these words, or as many as there is room for.
    #[inline(always)]
    pub(super) fn put_planes(&mut self, words: &[u64], n_planes: u32) {
        let n_planes = n_planes.min((words.len() * PLANES_PER_WORD) as u32);
        // Planes of zeros, before any has had a 1, are a zero each.
        let mut first = 0;
        for word in words {
            first += word.leading_zeros() / 4;
            if *word != 0 {
                break;
            }
        }
        let first = first.min(n_planes);
        self.put(0, first);
        let mut n = 0;
        for nth in first as usize..n_planes as usize {
            if 64 * self.n_words as u32 + self.n_held >= self.block_bits {
                break;
            }
            let word = words[nth / PLANES_PER_WORD] >> (60 - 4 * (nth % PLANES_PER_WORD));
            let entry = u32::from(WRITTEN[n][word as usize & 15]);
            n = (entry >> 12) as usize % 5;
            self.put((entry & 0x7f).into(), entry >> 8 & 7);
        }
    }

    /// All the block's bits, 64 or fewer at a time.
    #[inline(always)]
    pub(super) fn finish(mut self) -> impl Iterator<Item = (u64, u32)> {
        self.words[self.n_words % WORDS] = self.held;
        let n_words = self.block_bits.div_ceil(64) as usize;
        self.words.into_iter().take(n_words).enumerate().map(move |(nth, word)| {
            let n_bits = (self.block_bits - 64 * nth as u32).min(64);
            (word & (u64::MAX >> (64 - n_bits)), n_bits)
        })
    }
}

/// The bits of a block that was read.
pub(super) struct PlaneReader {
    words: [u64; WORDS],
    at: u32,
    end: u32,
}

impl PlaneReader {
    #[inline(always)]
    pub(super) fn new(reader: &mut BitReader<'_>, block_bits: u32) -> Self {
        let mut words = [0; WORDS];
        for (nth, word) in words.iter_mut().take(block_bits.div_ceil(64) as usize).enumerate() {
            *word = reader.take_long((block_bits - 64 * nth as u32).min(64));
        }
        Self { words, at: 0, end: block_bits }
    }

    /// The next 64 bits, zeros behind the last.
    #[inline(always)]
    fn next(&self) -> u64 {
        let (nth, shift) = (self.at as usize / 64, self.at % 64);
        let [low, high] = [nth, nth + 1].map(|nth| self.words.get(nth).copied().unwrap_or(0));
        low >> shift | high << 1 << (63 - shift)
    }

    /// The next bits, below 64.
    #[inline(always)]
    pub(super) fn take(&mut self, n_bits: u32) -> u64 {
        let bits = self.next() & ((1 << n_bits) - 1);
        self.at += n_bits;
        bits
    }

    /// The first `n_planes` planes into these words, which are zeros, as far as there are bits.
    #[inline(always)]
    pub(super) fn take_planes(&mut self, words: &mut [u64], n_planes: u32) {
        let n_planes = n_planes.min((words.len() * PLANES_PER_WORD) as u32);
        let n_zeros = self.next().trailing_zeros().min(self.end - self.at).min(n_planes);
        self.at += n_zeros;
        let mut n = 0;
        for nth in n_zeros as usize..n_planes as usize {
            let n_left = (self.end - self.at).min(MAX_BITS);
            let entry = READ[n_left as usize][n][self.next() as usize & 127];
            words[nth / PLANES_PER_WORD] |=
                u64::from(entry & 15) << (60 - 4 * (nth % PLANES_PER_WORD));
            self.at += u32::from(entry >> 4 & 7);
            n = usize::from(entry >> 8) % 5;
            if self.at >= self.end {
                break;
            }
        }
    }
}
