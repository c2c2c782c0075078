//! Codes for pairs of small numbers.
//!
//! A number's magnitude is 0 … 6, or 7 for all that are larger; the 64 pairs of magnitudes have a
//! Huffman code of at most ten bits, and a sign follows for each magnitude that is not 0. Half a
//! pair's code is a fraction of a bit, which single numbers could not have; signs take no part, as
//! they are as likely one way as the other.
//!
//! Nobody sends a code: both sides make it of how often pairs were in chunks before, and begin with
//! one for numbers of which two in five are 0.

/// Magnitudes that have a symbol of their own are below this.
pub(super) const ESCAPE: u8 = 7;
const MAGNITUDES: usize = ESCAPE as usize + 1;
/// Pairs of magnitudes.
pub(super) const PAIRS: usize = MAGNITUDES * MAGNITUDES;
/// Longest code of a pair, without signs.
const MAX_LEN: u32 = 10;
/// Longest code of a pair.
pub(super) const MAX_BITS: u32 = MAX_LEN + 2;
/// The sign in a number of four bits.
pub(super) const SIGN: u8 = 8;

/// The lengths of all pairs' codes, which say all about them.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lengths([u8; PAIRS]);

impl Lengths {
    /// The code that payloads begin with.
    pub(super) fn initial() -> Self {
        const WEIGHTS: [u32; MAGNITUDES] = [200, 160, 80, 40, 20, 10, 5, 4];
        Self::of(&core::array::from_fn(|pair| {
            WEIGHTS[pair % MAGNITUDES] * WEIGHTS[pair / MAGNITUDES]
        }))
    }

    /// The best code of at most [`MAX_LEN`] bits that is found by making rare pairs more frequent.
    pub(super) fn of(counts: &[u32; PAIRS]) -> Self {
        // A pair that has not been seen may come.
        let mut weights = counts.map(|count| count + 1);
        loop {
            let lengths = huffman(&weights);
            if lengths.iter().all(|len| u32::from(*len) <= MAX_LEN) {
                return Self(lengths);
            }
            weights = weights.map(|weight| weight / 2 + 1);
        }
    }

    /// Of each pair its code without signs, to be read from its lowest bit on.
    fn codes(&self) -> [u16; PAIRS] {
        let mut codes = [0; PAIRS];
        let mut next = 0;
        for len in 1..=MAX_LEN {
            for (code, _) in codes.iter_mut().zip(self.0).filter(|(_, of)| u32::from(*of) == len) {
                *code = u16::reverse_bits(next) >> (u16::BITS - len);
                next += 1;
            }
            next <<= 1;
        }
        codes
    }

    /// Calls `put(low, high, bits, n_bits)` for each pair of numbers of four bits (magnitude, and
    /// [`SIGN`]) that there is.
    fn for_each(&self, mut put: impl FnMut(u8, u8, u32, u32)) {
        let codes = self.codes();
        for (pair, (code, len)) in codes.into_iter().zip(self.0).enumerate() {
            let magnitudes = [(pair % MAGNITUDES) as u8, (pair / MAGNITUDES) as u8];
            let [low_signs, high_signs] = magnitudes.map(|magnitude| u32::from(magnitude > 0));
            let len = u32::from(len);
            for signs in 0..1 << (low_signs + high_signs) {
                let low = magnitudes[0] + if signs & low_signs == 1 { SIGN } else { 0 };
                let high = magnitudes[1] + if signs >> low_signs == 1 { SIGN } else { 0 };
                put(low, high, u32::from(code) | signs << len, len + low_signs + high_signs);
            }
        }
    }
}

/// Lengths of Huffman's codes: the two lightest nodes become one, until one is left.
fn huffman(counts: &[u32; PAIRS]) -> [u8; PAIRS] {
    const NODES: usize = 2 * PAIRS - 1;
    let mut order: [u64; PAIRS] = core::array::from_fn(|i| u64::from(counts[i]) << 8 | i as u64);
    order.sort_unstable();
    let (mut weights, mut parents) = ([0; NODES], [0; NODES]);
    for (weight, key) in weights.iter_mut().zip(order) {
        *weight = key >> 8;
    }
    // Leaves are in order, and so are the nodes made of them, behind: the lightest comes first of
    // one or the other.
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

/// Of each pair of numbers of four bits, the first below, its code and above 16 bits how long that
/// is.
#[derive(Clone, Debug)]
pub(super) struct Encoder([u32; 256]);

impl Encoder {
    pub(super) fn new(lengths: &Lengths) -> Self {
        let mut table = [0; 256];
        lengths.for_each(|low, high, bits, n_bits| {
            table[usize::from(low | high << 4)] = bits | n_bits << 16;
        });
        Self(table)
    }

    /// The code of a pair, and its bits.
    #[inline(always)]
    pub(super) fn code(&self, low: u8, high: u8) -> (u64, u32) {
        let entry = self.0[usize::from(low | high << 4)];
        (u64::from(entry & 0xffff), entry >> 16)
    }
}

/// Of each sequence of [`MAX_BITS`] bits the pair that it begins with: bits taken, and two signed
/// bytes.
#[derive(Clone, Debug)]
pub(super) struct Decoder([u32; 1 << MAX_BITS]);

impl Decoder {
    pub(super) fn new(lengths: &Lengths) -> Self {
        let mut decoder = Self([0; 1 << MAX_BITS]);
        decoder.set(lengths);
        decoder
    }

    /// Makes it the decoder of another code.
    pub(super) fn set(&mut self, lengths: &Lengths) {
        let byte = |number: u8| {
            let magnitude = number % SIGN;
            if number < SIGN { magnitude } else { magnitude.wrapping_neg() }
        };
        lengths.for_each(|low, high, bits, n_bits| {
            let entry = n_bits | u32::from(byte(low)) << 8 | u32::from(byte(high)) << 16;
            for at in (bits as usize..1 << MAX_BITS).step_by(1 << n_bits) {
                self.0[at] = entry;
            }
        });
    }

    /// The pair that these bits begin with, as signed bytes, and how many bits it takes.
    #[inline(always)]
    pub(super) fn pair(&self, bits: u64) -> ([u8; 2], u32) {
        let entry = self.0[bits as usize % (1 << MAX_BITS)];
        ([(entry >> 8) as u8, (entry >> 16) as u8], entry & 0xff)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_encoded_is_decoded_whatever_the_counts() {
        let mut counts = [0; PAIRS];
        let mut all = std::vec![Lengths::initial(), Lengths::of(&counts)];
        // Fibonacci numbers make the deepest trees.
        let (mut a, mut b) = (1_u32, 1_u32);
        for count in &mut counts {
            *count = a;
            (a, b) = (b, a.saturating_add(b).min(1 << 20));
        }
        all.push(Lengths::of(&counts));
        for lengths in all {
            let (encoder, decoder) = (Encoder::new(&lengths), Decoder::new(&lengths));
            let mut kraft = 0.0;
            lengths.for_each(|low, high, _, _| {
                let (bits, n_bits) = encoder.code(low, high);
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
            });
            assert_eq!(kraft, 1.0, "codes are complete");
        }
    }
}
