//! Huffman codes for pairs of small numbers.
//!
//! A number's magnitude is 0 … 6, or 7 for all larger ones. The 64 pairs of magnitudes have a
//! Huffman code of at most ten bits. A sign bit follows for each magnitude that is not 0. A number
//! can take a fraction of a bit in a code of pairs, but not in a code of single numbers. Signs are
//! not part of the code, because plus and minus are equally likely.
//!
//! There are eight codes, and each chunk says which one it has. They suit numbers that are
//! mostly 0, down to one in six, with few or many large ones among them. They were fitted to
//! residuals of real fields: on average a chunk takes 0.3 % more bytes than with a code of its own.

use crate::kernel::BLOCK;

/// Symbol of all magnitudes from 7 on. Smaller magnitudes have their own symbols.
pub(super) const ESCAPE: u8 = 7;
const MAGNITUDES: usize = ESCAPE as usize + 1;
/// Number of pairs of magnitudes.
const PAIRS: usize = MAGNITUDES * MAGNITUDES;
/// Longest code of a pair, without signs.
const MAX_LEN: u32 = 10;
/// Longest code of a pair, with signs.
pub(super) const MAX_BITS: u32 = MAX_LEN + 2;
/// Sign bit of a four-bit number.
pub(super) const SIGN: u8 = 8;

/// Number of codes.
pub(super) const CODES: usize = 8;
/// Code lengths of pairs, as hexadecimal digits, by code. A pair's place is its first magnitude
/// plus 8 times the second.
const LENGTHS: [&[u8; PAIRS]; CODES] = [
    b"139aaaaa249aaaaa99aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
    b"1379aaa933689aa97679aaaa9899aaaaa9aaaaaaaaaaaaaaaaaaaaaa99aaaaaa",
    b"1467889734678998566889a977889aa988899aaa899a99a9999aaaaa789999a8",
    b"2356788733567897556789a8667789a977889aaa8899aaaa89aaaaaa7789aaa8",
    b"235899aa325799aa54799aaa8799aaaa999aaaaa99aaaaaaaaaaaaaaaaaaaaaa",
    b"33579aaa32468aaa54568aaa76678aaa98889aaaaa99aaaaaaaaaaaaaaaaaaa9",
    b"434679aa33457899444679a9656789aa777899aa98999aaa999aaaaa999aaaaa",
    b"4356899933357898535789996579999987899aaa9899aaaa9999aaaa9899aaa9",
];

/// Code lengths of each pair of four-bit numbers, by code.
static LENGTHS_OF_PAIRS: [[u8; CODES]; 256] = {
    let mut all = [[0; CODES]; 256];
    let mut at = 0;
    while at < all.len() * CODES {
        let (code, pair) = (at % CODES, at / CODES);
        all[pair][code] = length(code, pair % MAGNITUDES + pair / 16 % MAGNITUDES * MAGNITUDES);
        at += 1;
    }
    all
};

const fn length(code: usize, pair: usize) -> u8 {
    let digit = LENGTHS[code][pair];
    if digit < b'a' { digit - b'0' } else { digit - b'a' + 10 }
}

/// Returns the number of bits that a block's pairs of four-bit numbers take with each code, without
/// signs.
#[inline(always)]
pub(super) fn lengths(pairs: &[u8; BLOCK / 2]) -> [u8; CODES] {
    // Eight sums side by side: sixteen pairs of ten bits do not overflow any.
    let of_pair = |pair: &u8| u64::from_le_bytes(LENGTHS_OF_PAIRS[usize::from(*pair)]);
    pairs.iter().map(of_pair).sum::<u64>().to_le_bytes()
}

/// Codes of all pairs of four-bit numbers. A number is a magnitude, plus [`SIGN`] if it is
/// negative.
///
/// The index holds the first number in its low nibble and the second above it. An entry holds the
/// code in its low 16 bits, lowest bit first, and the code's length above them. An entry of 0 means
/// that there is no such pair, because 0 has no sign.
pub(super) struct Encoder([u32; 256]);

/// Encoders by code.
pub(super) static ENCODERS: [Encoder; CODES] = {
    let mut all = [const { Encoder([0; 256]) }; CODES];
    let mut code = 0;
    while code < CODES {
        all[code] = Encoder::new(code);
        code += 1;
    }
    all
};

impl Encoder {
    // `while` loops instead of `for`, because the function is evaluated at compile time.
    const fn new(code: usize) -> Self {
        let mut table = [0; 256];
        let (mut next, mut len) = (0_u16, 1);
        while len <= MAX_LEN {
            let mut pair = 0;
            while pair < PAIRS {
                if length(code, pair) as u32 == len {
                    let bits = (next.reverse_bits() >> (u16::BITS - len)) as u32;
                    Self::set(&mut table, pair, bits, len);
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
    pub(super) fn code(&self, pair: u8) -> (u64, u32) {
        let entry = self.0[usize::from(pair)];
        (u64::from(entry & 0xffff), entry >> 16)
    }
}

/// Table of the pair at the start of every sequence of [`MAX_BITS`] bits. An entry holds the number
/// of bits taken in its low byte, and in its high byte the pair, each number in four bits as a
/// two's complement.
pub(super) struct Decoder([u16; 1 << MAX_BITS]);

/// Decoders by code.
pub(super) static DECODERS: [Decoder; CODES] = {
    let mut all = [const { Decoder([0; 1 << MAX_BITS]) }; CODES];
    let mut code = 0;
    while code < CODES {
        all[code].set(&ENCODERS[code]);
        code += 1;
    }
    all
};

impl Decoder {
    /// Turns `self` into the decoder of this code.
    const fn set(&mut self, encoder: &Encoder) {
        let Self(table) = self;
        let mut pair = 0;
        while pair < encoder.0.len() {
            let (bits, n_bits) = (encoder.0[pair] & 0xffff, encoder.0[pair] >> 16);
            let entry = n_bits as u16 | complement(pair % 16) << 8 | complement(pair / 16) << 12;
            let mut at = bits as usize;
            while n_bits > 0 && at < table.len() {
                table[at] = entry;
                at += 1 << n_bits;
            }
            pair += 1;
        }
    }

    /// Returns the pair at the start of these bits, as two's complements, and the number of bits
    /// taken.
    #[inline(always)]
    pub(super) fn pair(&self, bits: u64) -> (u8, u32) {
        let entry = self.0[bits as usize % (1 << MAX_BITS)];
        ((entry >> 8) as u8, u32::from(entry & 0xff))
    }
}

/// Returns a number of four bits as a two's complement.
const fn complement(number: usize) -> u16 {
    let magnitude = number as u16 % SIGN as u16;
    if number < SIGN as usize { magnitude } else { magnitude.wrapping_neg() & 15 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_encoded_is_decoded_with_each_code() {
        for (encoder, decoder) in ENCODERS.iter().zip(&DECODERS) {
            let mut kraft = 0.0;
            for pair in 0..=255_u8 {
                let numbers = [pair % 16, pair / 16];
                let (bits, n_bits) = encoder.code(pair);
                if numbers.contains(&SIGN) {
                    assert_eq!(n_bits, 0, "0 has no sign");
                    continue;
                }
                kraft += libm::ldexp(1.0, -(n_bits as i32));
                for behind in [0, u64::MAX] {
                    let (pair, n_read) = decoder.pair(bits | behind << n_bits);
                    assert_eq!(n_read, n_bits);
                    for (found, number) in [pair % 16, pair / 16].into_iter().zip(numbers) {
                        let magnitude = number % SIGN;
                        let value = if number < SIGN { magnitude } else { 16 - magnitude };
                        assert_eq!(found, value);
                    }
                }
            }
            assert_eq!(kraft, 1.0, "codes are complete");
        }
    }

    #[test]
    fn blocks_take_as_many_bits_as_is_said() {
        for seed in 0..200_u8 {
            let number = |i: usize| (i as u8).wrapping_mul(seed | 1) / 7 % SIGN;
            let pairs: [u8; BLOCK / 2] =
                core::array::from_fn(|i| number(2 * i) | number(2 * i + 1) << 4);
            for (encoder, n_bits) in ENCODERS.iter().zip(lengths(&pairs)) {
                let codes = pairs.iter().map(|pair| encoder.code(*pair).1).sum::<u32>();
                let signs = (0..BLOCK).filter(|i| number(*i) > 0).count();
                assert_eq!(codes, u32::from(n_bits) + signs as u32);
            }
        }
    }
}
