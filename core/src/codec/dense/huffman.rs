//! Huffman codes for pairs of small numbers.
//!
//! A number's magnitude is 0 … 6, or 7 for all larger ones. The 64 pairs of magnitudes have a
//! Huffman code of at most ten bits. A sign bit follows for each magnitude that is not 0. A number
//! can take a fraction of a bit in a code of pairs, but not in a code of single numbers. Signs are
//! not part of the code, because plus and minus are equally likely.
//!
//! The code is not sent. Writer and reader derive it from the frequencies of pairs in earlier
//! chunks. They start with a code for data in which two in five numbers are 0.

/// Symbol of all magnitudes from 7 on. Smaller magnitudes have their own symbols.
pub(super) const ESCAPE: u8 = 7;
const MAGNITUDES: usize = ESCAPE as usize + 1;
/// Number of pairs of magnitudes.
pub(super) const PAIRS: usize = MAGNITUDES * MAGNITUDES;
/// Number of occurrences of each pair of magnitudes in a chunk.
pub(super) type PairCounts = [u32; PAIRS];
/// Longest code of a pair, without signs.
const MAX_LEN: u32 = 10;
/// Longest code of a pair, with signs.
pub(super) const MAX_BITS: u32 = MAX_LEN + 2;
/// Sign bit of a four-bit number.
pub(super) const SIGN: u8 = 8;

/// Code lengths of all pairs, which determine the code.
#[derive(Clone, Copy, Debug)]
pub(super) struct CodeLengths([u8; PAIRS]);

impl CodeLengths {
    /// Lengths of the code at the start of a payload.
    #[rustfmt::skip]
    pub(super) const INITIAL: Self = Self([
        3, 3, 4, 5, 6, 7, 8, 8,
        3, 4, 5, 5, 7, 7, 8, 9,
        4, 5, 5, 6, 7, 8, 9, 9,
        5, 5, 6, 7, 8, 9, 10, 10,
        6, 6, 7, 8, 9, 10, 10, 10,
        7, 7, 8, 9, 9, 10, 10, 10,
        8, 8, 9, 9, 10, 10, 10, 10,
        8, 9, 9, 9, 10, 10, 10, 10,
    ]);

    /// Returns a code of at most [`MAX_LEN`] bits, found by raising the weights of rare pairs until
    /// the Huffman code is short enough.
    pub(super) fn of(counts: &PairCounts) -> Self {
        // Pairs that have not occurred may still occur.
        let mut weights = counts.map(|count| count + 1);
        loop {
            let lengths = huffman(&weights);
            if lengths.iter().all(|len| u32::from(*len) <= MAX_LEN) {
                return Self(lengths);
            }
            weights = weights.map(|weight| weight / 2 + 1);
        }
    }
}

/// Returns the lengths of a Huffman code. It merges the two lightest nodes until one is left.
fn huffman(counts: &PairCounts) -> [u8; PAIRS] {
    const NODES: usize = 2 * PAIRS - 1;
    let mut order: [u64; PAIRS] = core::array::from_fn(|i| u64::from(counts[i]) << 8 | i as u64);
    order.sort_unstable();
    let (mut weights, mut parents) = ([0; NODES], [0; NODES]);
    for (weight, key) in weights.iter_mut().zip(order) {
        *weight = key >> 8;
    }
    // Leaves are sorted, and so are the merged nodes after them. The lightest node is thus the next
    // leaf or the next merged node.
    let (mut leaf, mut inner) = (0, PAIRS);
    for node in PAIRS..NODES {
        for _ in 0..2 {
            let is_leaf = leaf < PAIRS && (inner == node || weights[leaf] <= weights[inner]);
            let next = if is_leaf { &mut leaf } else { &mut inner };
            weights[node] += weights[*next];
            parents[*next] = node;
            *next += 1;
        }
    }
    let mut depths = [0; NODES];
    for node in (0..NODES - 1).rev() {
        depths[node] = depths[parents[node]] + 1;
    }
    let mut lengths = [0; PAIRS];
    for (depth, key) in depths.into_iter().zip(order) {
        lengths[(key & 0xff) as usize] = depth;
    }
    lengths
}

/// Codes of all pairs of four-bit numbers. A number is a magnitude, plus [`SIGN`] if it is
/// negative.
///
/// The index holds the first number in its low nibble and the second above it. An entry holds the
/// code in its low 16 bits, lowest bit first, and the code's length above them. An entry of 0 means
/// that there is no such pair, because 0 has no sign.
#[derive(Clone, Debug)]
pub(super) struct Encoder([u32; 256]);

impl Encoder {
    /// The code at the start of a payload.
    pub(super) const INITIAL: &Self = &Self::new(&CodeLengths::INITIAL);

    // `while` loops instead of `for`, because the function is also evaluated at compile time.
    pub(super) const fn new(lengths: &CodeLengths) -> Self {
        let mut table = [0; 256];
        let (mut next, mut len) = (0_u16, 1);
        while len <= MAX_LEN {
            let mut pair = 0;
            while pair < PAIRS {
                if lengths.0[pair] as u32 == len {
                    let code = (next.reverse_bits() >> (u16::BITS - len)) as u32;
                    Self::set(&mut table, pair, code, len);
                    next += 1;
                }
                pair += 1;
            }
            next <<= 1;
            len += 1;
        }
        Self(table)
    }

    /// Enters a pair with all combinations of signs. A sign follows the code if its magnitude is
    /// not 0.
    const fn set(table: &mut [u32; 256], pair: usize, code: u32, len: u32) {
        let (low, high) = (pair % MAGNITUDES, pair / MAGNITUDES);
        let (low_signs, high_signs) = ((low > 0) as u32, (high > 0) as u32);
        let n_bits = len + low_signs + high_signs;
        let mut signs = 0;
        while signs < 1 << (low_signs + high_signs) {
            let low = low + SIGN as usize * (signs & low_signs) as usize;
            let high = high + SIGN as usize * (signs >> low_signs) as usize;
            table[low | high << 4] = code | signs << len | n_bits << 16;
            signs += 1;
        }
    }

    /// Returns the code of a pair and its number of bits.
    #[inline(always)]
    pub(super) fn code(&self, low: u8, high: u8) -> (u64, u32) {
        let entry = self.0[usize::from(low | high << 4)];
        (u64::from(entry & 0xffff), entry >> 16)
    }
}

/// Table of the pair at the start of every sequence of [`MAX_BITS`] bits. An entry holds the number
/// of bits taken, and the pair as two signed bytes.
#[derive(Clone, Debug)]
pub(super) struct Decoder([u32; 1 << MAX_BITS]);

impl Decoder {
    /// The code at the start of a payload.
    pub(super) const INITIAL: &Self = &Self::new(Encoder::INITIAL);

    pub(super) const fn new(encoder: &Encoder) -> Self {
        let mut decoder = Self([0; 1 << MAX_BITS]);
        decoder.set(encoder);
        decoder
    }

    /// Turns `self` into the decoder of this code.
    const fn set(&mut self, encoder: &Encoder) {
        let Self(table) = self;
        let mut pair = 0;
        while pair < encoder.0.len() {
            let (bits, n_bits) = (encoder.0[pair] & 0xffff, encoder.0[pair] >> 16);
            let entry = n_bits | signed_byte(pair % 16) << 8 | signed_byte(pair / 16) << 16;
            let mut at = bits as usize;
            while n_bits > 0 && at < table.len() {
                table[at] = entry;
                at += 1 << n_bits;
            }
            pair += 1;
        }
    }

    /// Turns `this` into the decoder of the code derived from these counts. It is not inlined, so
    /// that other paths do not have a second table on the stack.
    #[inline(never)]
    pub(super) fn learn(this: &mut Option<Self>, counts: &PairCounts) {
        let encoder = Encoder::new(&CodeLengths::of(counts));
        this.get_or_insert_with(|| Self([0; 1 << MAX_BITS])).set(&encoder);
    }

    /// Returns the pair at the start of these bits, as signed bytes, and the number of bits taken.
    #[inline(always)]
    pub(super) fn pair(&self, bits: u64) -> ([u8; 2], u32) {
        let entry = self.0[bits as usize % (1 << MAX_BITS)];
        ([(entry >> 8) as u8, (entry >> 16) as u8], entry & 0xff)
    }
}

/// Returns a four-bit number as a signed byte.
const fn signed_byte(number: usize) -> u32 {
    let magnitude = number as u8 % SIGN;
    (if (number as u8) < SIGN { magnitude } else { magnitude.wrapping_neg() }) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_encoded_is_decoded_whatever_the_counts() {
        const WEIGHTS: [u32; MAGNITUDES] = [200, 160, 80, 40, 20, 10, 5, 4];
        let product = |pair: usize| WEIGHTS[pair % MAGNITUDES] * WEIGHTS[pair / MAGNITUDES];
        let initial = CodeLengths::of(&core::array::from_fn(product));
        assert_eq!(initial.0, CodeLengths::INITIAL.0);
        let mut counts = [0; PAIRS];
        let mut all = std::vec![initial, CodeLengths::of(&counts)];
        // Fibonacci numbers make the deepest trees.
        let (mut a, mut b) = (1_u32, 1_u32);
        for count in &mut counts {
            *count = a;
            (a, b) = (b, a.saturating_add(b).min(1 << 20));
        }
        all.push(CodeLengths::of(&counts));
        for lengths in all {
            let encoder = Encoder::new(&lengths);
            let decoder = Decoder::new(&encoder);
            let mut kraft = 0.0;
            for [low, high] in (0..=255_u8).map(|pair| [pair % 16, pair / 16]) {
                let (bits, n_bits) = encoder.code(low, high);
                if low == SIGN || high == SIGN {
                    assert_eq!(n_bits, 0, "0 has no sign");
                    continue;
                }
                kraft += libm::ldexp(1.0, -(n_bits as i32));
                for behind in [0, u64::MAX] {
                    let (pair, n_read) = decoder.pair(bits | behind << n_bits);
                    assert_eq!(n_read, n_bits);
                    for (byte, number) in pair.into_iter().zip([low, high]) {
                        let magnitude = i32::from(number % SIGN);
                        let value = if number < SIGN { magnitude } else { -magnitude };
                        assert_eq!(i32::from(byte as i8), value);
                    }
                }
            }
            assert_eq!(kraft, 1.0, "codes are complete");
        }
    }
}
