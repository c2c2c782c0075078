//! Coding of all planes of a block at once, in one word, so that vectors code many blocks side by
//! side. Writes the bits of `planes`.
//!
//! There, n is the number of coefficients up to the last one that had a 1 in a higher plane. As
//! long as n stays the same, all planes have the same form: n bits, and a test that says 0. So the
//! code is a row of at most four *stages*, for n = 0, 1, 2 and for n ≥ 3. In stage n the first n
//! coefficients are spread to every (n + 1)th bit; the places between them are the tests. The first
//! test that says 1 ends the stage. It belongs to the plane of the highest 1 among the other
//! coefficients. Behind it, 0s lead to the coefficient that has this 1, and n grows by as much. The
//! same plane goes on with the next stage's first test. From n = 3 on, a plane's code is the plane
//! itself, because the fourth coefficient's bit is its own test.
//!
//! Words hold a plane, or a coefficient's bits, with the highest plane in bit 0. There are no
//! branches: a block computes also the stages that it skips.

use crate::element::sealed::Word;

/// Coefficients of a block: bit p is the bit in plane p, counted from the highest.
type Coefficients<W> = [W; 4];

/// Position in the code of a block.
#[derive(Clone, Copy)]
struct Position<W> {
    /// Bits before.
    bit: W,
    /// Current plane.
    plane: W,
    /// Number of coefficients up to the last one with a 1 so far.
    n: W,
}

/// Returns the code of a block, up to as many bits as a word has.
#[inline(always)]
pub(super) fn encode<W: Word>(coefficients: Coefficients<W>) -> W {
    let mut at = Position { bit: W::ZERO, plane: W::ZERO, n: W::ZERO };
    let mut code = encode_stage::<W, 0>(&coefficients, &mut at);
    code = code | encode_stage::<W, 1>(&coefficients, &mut at);
    code = code | encode_stage::<W, 2>(&coefficients, &mut at);
    // With n = 3, the current plane still lacks the fourth coefficient's bit.
    let is_open = at.n == word(3);
    let last = coefficients[3].shifted_down(at.plane) & word(1);
    code = code | if is_open { last.shifted_up(at.bit) } else { W::ZERO };
    let bit = at.bit.plus(if is_open { word(1) } else { W::ZERO });
    let quarter = W::BITS / 4;
    let rest = (0_u32..).zip(coefficients).fold(W::ZERO, |rest, (i, coefficient)| {
        let planes = coefficient.shifted_down(at.plane.plus(word(1)));
        rest | (planes & W::ONES >> (W::BITS - quarter)) << (i * quarter)
    });
    code | interleaved(rest).shifted_up(bit)
}

/// Returns the code of stage N, and moves behind it; 0 if the block skips the stage.
#[inline(always)]
fn encode_stage<W: Word, const N: usize>(
    coefficients: &Coefficients<W>,
    at: &mut Position<W>,
) -> W {
    let others = coefficients[N..].iter().fold(W::ZERO, |all, bits| all | *bits);
    let end = others.trailing_zeros();
    let n_planes = end.minus(at.plane);
    let mut code = W::ZERO;
    for (i, bits) in coefficients[..N].iter().enumerate() {
        let bits = bits.shifted_down(at.plane.plus(word(1))) & low_bits(n_planes);
        code = code | spread::<W, N>(bits) << i as u32;
    }
    code = code.shifted_up(at.bit.plus(word(1)));
    let test = (0..=N).fold(at.bit, |bit, _| bit.plus(n_planes));
    let mut n_zeros = word::<W>(3 - N as u64);
    for i in (N..3).rev() {
        let is_one = coefficients[i].shifted_down(end) & word(1) != W::ZERO;
        n_zeros = if is_one { word((i - N) as u64) } else { n_zeros };
    }
    let is_written = if n_zeros < word(3 - N as u64) { word(1) } else { W::ZERO };
    let found = word::<W>(1) | is_written.shifted_up(n_zeros.plus(word(1)));
    code = code | found.shifted_up(test);
    if at.n != word(N as u64) {
        return W::ZERO;
    }
    at.bit = test.plus(word(1)).plus(n_zeros).plus(is_written);
    at.plane = end;
    at.n = n_zeros.plus(word(N as u64 + 1));
    code
}

/// Returns the coefficients with this code of `n_bits`. All higher bits must be 0. Bits behind the
/// code's end are those of the format: 0, but for a search that it cuts off.
#[inline(always)]
pub(super) fn decode<W: Word>(code: W, n_bits: W) -> Coefficients<W> {
    let mut at = Position { bit: W::ZERO, plane: W::ZERO, n: W::ZERO };
    let mut coefficients = [W::ZERO; 4];
    decode_stage::<W, 0>(code, n_bits, &mut coefficients, &mut at);
    decode_stage::<W, 1>(code, n_bits, &mut coefficients, &mut at);
    decode_stage::<W, 2>(code, n_bits, &mut coefficients, &mut at);
    let rest = code.shifted_down(at.bit);
    let is_open = at.n == word(3);
    let last = if is_open { (rest & word(1)).shifted_up(at.plane) } else { W::ZERO };
    coefficients[3] = coefficients[3] | last;
    let rest = deinterleaved(if is_open { rest >> 1 } else { rest });
    let quarter = W::BITS / 4;
    for (i, coefficient) in (0_u32..).zip(&mut coefficients) {
        let planes = rest >> (i * quarter) & W::ONES >> (W::BITS - quarter);
        *coefficient = *coefficient | planes.shifted_up(at.plane.plus(word(1)));
    }
    coefficients
}

/// Reads stage N, and moves behind it; reads nothing if the block skips the stage.
#[inline(always)]
fn decode_stage<W: Word, const N: usize>(
    code: W,
    n_bits: W,
    coefficients: &mut Coefficients<W>,
    at: &mut Position<W>,
) {
    let is_taken = at.n == word(N as u64);
    let rest = if is_taken { code.shifted_down(at.bit) } else { W::ZERO };
    let test = (rest & tests::<W, N>()).trailing_zeros();
    let before = rest & low_bits(test);
    for (i, coefficient) in coefficients[..N].iter_mut().enumerate() {
        let bits = gather::<W, N>(before >> (1 + i as u32));
        *coefficient = *coefficient | bits.shifted_up(at.plane.plus(word(1)));
    }
    let search = rest.shifted_down(test.plus(word(1)));
    let mut n_zeros = word::<W>(3 - N as u64);
    for i in (0..3 - N).rev() {
        let is_one = search & word(1 << i) != W::ZERO;
        n_zeros = if is_one { word(i as u64) } else { n_zeros };
    }
    let start = at.bit.plus(test).plus(word(1));
    let n_left = if start < n_bits { n_bits.minus(start) } else { W::ZERO };
    n_zeros = n_zeros.min(n_left);
    let plane = at.plane.plus(divided::<W, N>(test));
    // Without a test that says 1, there is nothing left to read.
    let is_found = is_taken && test < word(W::BITS.into());
    let found = if is_found { word::<W>(1).shifted_up(plane) } else { W::ZERO };
    for (i, coefficient) in coefficients[N..].iter_mut().enumerate() {
        let is_here = n_zeros == word(i as u64);
        *coefficient = *coefficient | if is_here { found } else { W::ZERO };
    }
    if is_taken {
        let is_written = if n_zeros < word(3 - N as u64) { word(1) } else { W::ZERO };
        at.bit = start.plus(n_zeros).plus(is_written);
        at.plane = plane;
        at.n = n_zeros.plus(word(N as u64 + 1));
    }
}

#[inline(always)]
fn word<W: Word>(number: u64) -> W {
    W::from_u64(number)
}

/// Returns the mask of the n lowest bits.
#[inline(always)]
fn low_bits<W: Word>(n: W) -> W {
    word::<W>(1).shifted_up(n).minus(word(1))
}

/// Returns the mask of the places of tests in stage N: every (N + 1)th bit.
#[inline(always)]
fn tests<W: Word, const N: usize>() -> W {
    word([u64::MAX, 0x5555_5555_5555_5555, 0x9249_2492_4924_9249][N])
}

/// Returns ⌊number / (N + 1)⌋ for numbers of up to 64.
#[inline(always)]
fn divided<W: Word, const N: usize>(number: W) -> W {
    match N {
        0 => number,
        1 => number >> 1,
        // 43/128 is a little more than a third.
        _ => (number << 5).plus(number << 3).plus(number << 1).plus(number) >> 7,
    }
}

/// Distances and masks of the steps that spread bits to every second or every third place. The
/// first step only limits the bits.
const STEPS: [[(u32, u64); 6]; 2] = [
    [
        (0, 0xffff_ffff),
        (16, 0x0000_ffff_0000_ffff),
        (8, 0x00ff_00ff_00ff_00ff),
        (4, 0x0f0f_0f0f_0f0f_0f0f),
        (2, 0x3333_3333_3333_3333),
        (1, 0x5555_5555_5555_5555),
    ],
    [
        (0, 0x001f_ffff),
        (32, 0x001f_0000_0000_ffff),
        (16, 0x001f_0000_ff00_00ff),
        (8, 0x100f_00f0_0f00_f00f),
        (4, 0x10c3_0c30_c30c_30c3),
        (2, 0x1249_2492_4924_9249),
    ],
];

/// Spreads bits to every (N + 1)th place, for N = 1 and 2.
#[inline(always)]
fn spread<W: Word, const N: usize>(bits: W) -> W {
    let mut bits = bits & word(STEPS[N - 1][0].1);
    for (distance, mask) in &STEPS[N - 1][1..] {
        if *distance < W::BITS {
            bits = (bits | bits << *distance) & word(*mask);
        }
    }
    bits
}

/// Inverse of [`spread`]. Ignores the bits in other places.
#[inline(always)]
fn gather<W: Word, const N: usize>(bits: W) -> W {
    let steps = &STEPS[N - 1];
    let mut bits = bits & word(steps[5].1);
    for i in (1..6).rev() {
        if steps[i].0 < W::BITS {
            bits = (bits | bits >> steps[i].0) & word(steps[i - 1].1);
        }
    }
    bits
}

/// Pairs of places in a bit's index. Exchanging them, pair by pair, moves the two highest places to
/// the lowest, and so turns four rows of bits into columns. The first table is for 64 bits.
const PAIRS: [[(u32, u32); 4]; 2] =
    [[(5, 1), (5, 3), (4, 0), (4, 2)], [(4, 2), (3, 1), (2, 0), (1, 0)]];

/// Turns four rows of bits, the quarters of the word, into columns.
#[inline(always)]
fn interleaved<W: Word>(bits: W) -> W {
    let pairs = &PAIRS[usize::from(W::BITS == 32)];
    pairs.iter().fold(bits, |bits, &(high, low)| exchanged(bits, high, low))
}

/// Inverse of [`interleaved`].
#[inline(always)]
fn deinterleaved<W: Word>(bits: W) -> W {
    let pairs = &PAIRS[usize::from(W::BITS == 32)];
    pairs.iter().rev().fold(bits, |bits, &(high, low)| exchanged(bits, high, low))
}

/// Exchanges two places in the index of each bit.
#[inline(always)]
fn exchanged<W: Word>(bits: W, high: u32, low: u32) -> W {
    // Bits whose index has a 0 in the high place and a 1 in the low place.
    let zeros = |place: u32| u64::MAX / ((1 << (1 << place)) + 1);
    let mask = word::<W>(zeros(high) & !zeros(low));
    let distance = (1 << high) - (1 << low);
    let change = (bits ^ bits >> distance) & mask;
    bits ^ change ^ change << distance
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

    /// Returns the code's bits as docs/format.md describes them, for planes of four bits.
    fn coded(planes: &[[bool; 4]]) -> Vec<bool> {
        let (mut code, mut n) = (Vec::new(), 0);
        for plane in planes {
            code.extend(&plane[..n]);
            while n < 4 {
                let has_one = plane[n..].contains(&true);
                code.push(has_one);
                if !has_one {
                    break;
                }
                while n < 3 {
                    code.push(plane[n]);
                    if plane[n] {
                        break;
                    }
                    n += 1;
                }
                n += 1;
            }
        }
        code
    }

    /// Returns the planes of a code that may be cut off.
    fn decoded(code: &[bool], n_planes: usize) -> Vec<[bool; 4]> {
        let (mut code, mut n) = (code.iter().copied(), 0);
        let mut plane = || {
            let mut plane = [false; 4];
            plane[..n].fill_with(|| code.next().unwrap_or(false));
            while n < 4 && code.next() == Some(true) {
                // The first bit that is missing is the 1.
                while n < 3 && code.next() == Some(false) {
                    n += 1;
                }
                plane[n] = true;
                n += 1;
            }
            plane
        };
        (0..n_planes).map(|_| plane()).collect()
    }

    fn planes_of<W: Word>(coefficients: Coefficients<W>) -> Vec<[bool; 4]> {
        let bits = |plane| coefficients.map(|bits| bits.to_u64() >> plane & 1 == 1);
        (0..W::BITS).map(bits).collect()
    }

    /// Blocks whose coefficients begin in any planes, with few or many ones.
    fn check<W: Word>() {
        let mut state = 0x2545_f491_4f6c_dd1d_u64;
        let mut random = move || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state
        };
        for _ in 0..20_000 {
            let mut coefficients = [W::ZERO; 4];
            for bits in &mut coefficients {
                let sparse = if random() % 8 == 0 { random() & random() } else { u64::MAX };
                let start = W::from_u64(random() % u64::from(W::BITS + 1));
                *bits = W::from_u64(random() & sparse).shifted_up(start);
            }
            let code = encode(coefficients);
            let expected = coded(&planes_of(coefficients));
            let n_bits = expected.len().min(W::BITS as usize);
            for (i, bit) in expected[..n_bits].iter().enumerate() {
                assert_eq!(code.to_u64() >> i & 1 == 1, *bit, "{coefficients:x?}, bit {i}");
            }
            // Any bits are a code, and any code may be cut off.
            for code in [code, W::from_u64(random()), W::from_u64(random() & random())] {
                let n_bits = random() % u64::from(W::BITS);
                let code = code & low_bits(W::from_u64(n_bits));
                let bits: Vec<_> = (0..n_bits).map(|i| code.to_u64() >> i & 1 == 1).collect();
                let found = planes_of(decode(code, W::from_u64(n_bits)));
                assert_eq!(found, decoded(&bits, W::BITS as usize), "{n_bits} bits of {code:x?}");
            }
        }
    }

    #[test]
    fn codes_are_those_of_the_format_and_may_be_cut_off() {
        check::<u32>();
        check::<u64>();
    }
}
