//! Coding of all planes of a block at once, so that vectors code many blocks side by side. Writes
//! the bits of `planes`.
//!
//! Let p₀, p₁ and p₂ be the first plane in which a coefficient from number 0, 1 or 2 on has a 1.
//! The search in plane pⱼ passes coefficient j, whose bit there is fⱼ. If fⱼ is 1, the search ends
//! and the next begins with a test. If it is 0, the search goes on with the next coefficient in the
//! same plane, so pⱼ₊₁ = pⱼ. Between pⱼ₋₁ and pⱼ all planes have the same form, *stage* j: the bits
//! of the first j coefficients, and a test that says 0. So the code is a row of pieces, and pⱼ and
//! fⱼ tell the places of all:
//!
//! | piece | starts at |
//! |---|---|
//! | stage 0: a test for each plane | 0 |
//! | test 1, and f₀ | t₀ = p₀ |
//! | stage 1: two bits for each plane | t₀ + 2 |
//! | test 1 if f₀ = 1, and f₁ | t₁ = t₀ + 2 + 2 (p₁ − p₀) |
//! | stage 2: three bits for each plane | t₁ + 1 + f₀ |
//! | test 1 if f₁ = 1, and f₂ | t₂ = t₁ + 1 + f₀ + 3 (p₂ − p₁) |
//! | the last coefficient's bit in plane p₂ if f₂ = 1 | t₂ + 1 + f₁ |
//! | the rest: four bits for each plane | t₂ + 1 + f₁ + f₂ |
//!
//! With three coefficients before it, the last coefficient's bit is its own test. In stages 1 and 2
//! the first piece's test belongs to the plane before, so a plane's bits follow its predecessor's
//! test.
//!
//! Rows hold a coefficient's bits, with the highest plane in bit 0, or the bits of codes. There are
//! no branches: a block computes also the pieces that it lacks. Their places lie outside the code.

use super::{BATCH, BLOCK};
use crate::element::sealed::Word;

/// Coefficients of blocks side by side: bit p is the bit in plane p, counted from the highest.
type Rows<W> = [[W; BATCH]; BLOCK];
/// Codes of blocks side by side, of N words each.
pub(in crate::codec) type Codes<W, const N: usize> = [[W; BATCH]; N];

/// Writes codes of N words. Coefficients have at most 32 bits if there are several words.
///
/// It holds all rows, because to clear them for each batch takes a tenth of the time.
pub(in crate::codec) struct LaneWriter<D, W, const N: usize> {
    pub(super) coefficients: Rows<D>,
    pieces: Pieces<D, N>,
    /// Codes, up to their words.
    pub(in crate::codec) codes: Codes<W, N>,
}

/// Reads codes of N words.
pub(in crate::codec) struct LaneReader<W, const N: usize> {
    pub(in crate::codec) codes: Codes<W, N>,
    pieces: FoundPieces<W, N>,
    /// Coefficients. If one has several words, only its 32 highest planes have a meaning.
    pub(super) coefficients: Rows<W>,
}

/// Pieces of codes, as bits of coefficients, and their places.
struct Pieces<D, const N: usize> {
    p0: [D; BATCH],
    /// f₀, and the bits of stage 1.
    stage_1: [[D; BATCH]; 2],
    /// Bits of stage 2.
    stage_2: [[D; BATCH]; 2],
    stage_2_at: [D; BATCH],
    /// Bits behind stages 1 and 2.
    marks: [[D; BATCH]; 2],
    /// t₁ and t₂.
    marks_at: [[D; BATCH]; 2],
    /// As many planes of the rest as fit a word: two coefficients side by side, and two.
    rest: [[[D; BATCH]; 2]; N],
    rest_at: [D; BATCH],
}

/// Pieces of codes that were read, with the bits where the code has them.
struct FoundPieces<W, const N: usize> {
    /// p₀, p₁ and p₂.
    planes: [[W; BATCH]; 3],
    /// f₀, f₁ and f₂, and the last coefficient's bit in plane p₂.
    bits: [[W; BATCH]; 4],
    stage_1: [W; BATCH],
    stage_2: [[W; BATCH]; N],
    rest: [[W; BATCH]; N],
}

/// Planes of stage 2 that fit a word, and their bits.
const STAGE_2_PLANES: u32 = 21;
const STAGE_2_BITS: u64 = 3 * STAGE_2_PLANES as u64;

impl<D: Word, W: Word, const N: usize> LaneWriter<D, W, N> {
    const ROW: [D; BATCH] = [D::ZERO; BATCH];
    pub(in crate::codec) const NEW: Self = Self {
        coefficients: [Self::ROW; BLOCK],
        pieces: Pieces {
            p0: Self::ROW,
            stage_1: [Self::ROW; 2],
            stage_2: [Self::ROW; 2],
            stage_2_at: Self::ROW,
            marks: [Self::ROW; 2],
            marks_at: [Self::ROW; 2],
            rest: [[Self::ROW; 2]; N],
            rest_at: Self::ROW,
        },
        codes: [[W::ZERO; BATCH]; N],
    };

    /// Computes the codes.
    #[inline(always)]
    pub(super) fn encode(&mut self) {
        self.cut();
        let Self { pieces, codes, .. } = self;
        for i in 0..BATCH {
            let of = |row: &[D; BATCH]| W::from_u64(row[i].to_u64());
            let mut code = [W::ZERO; N];
            let [f0, stage_1] = pieces.stage_1.each_ref().map(of);
            let start = word::<W>(1) | f0 << 1 | spread::<W, 1>(stage_1) << 3;
            put(&mut code, start, of(&pieces.p0));
            for (mark, at) in pieces.marks.iter().zip(&pieces.marks_at) {
                put(&mut code, of(mark), of(at));
            }
            let stage_2 = pieces.stage_2.each_ref().map(of);
            let (stage_2_at, rest_at) = (of(&pieces.stage_2_at), of(&pieces.rest_at));
            for (nth, rest) in (0_u32..).zip(&pieces.rest) {
                let [a, b] = stage_2.map(|bits| spread::<W, 2>(bits >> (STAGE_2_PLANES * nth)));
                put(&mut code, a | b << 1, stage_2_at.plus(word(STAGE_2_BITS * u64::from(nth))));
                let [low, high] = rest.each_ref().map(of);
                let rest = interleaved(low | high << (W::BITS / 2));
                put(&mut code, rest, rest_at.plus(word((W::BITS * nth).into())));
            }
            for (codes, code) in codes.iter_mut().zip(code) {
                codes[i] = code;
            }
        }
    }

    /// Cuts the coefficients into pieces.
    #[inline(always)]
    fn cut(&mut self) {
        let Self { coefficients, pieces, .. } = self;
        let one = word::<D>(1);
        let quarter = W::BITS / 4;
        let rest = D::ONES >> (D::BITS - quarter);
        for i in 0..BATCH {
            let [a, b, c, d] = coefficients.each_ref().map(|row| row[i]);
            let p2 = (c | d).trailing_zeros();
            let p1 = (b | c | d).trailing_zeros();
            let p0 = (a | b | c | d).trailing_zeros();
            let from_p0 = a.shifted_down(p0);
            let from_p1 = [a, b].map(|bits| bits.shifted_down(p1));
            let from_p2 = [a, b, c, d].map(|bits| bits.shifted_down(p2));
            let [f0, f1, f2] = [from_p0, from_p1[1], from_p2[2]].map(|bits| bits & one);
            let last = from_p2[3] & f2;
            let t1 = (p1 << 1).minus(p0).plus(word(2));
            let after_t1 = t1.plus(one).plus(f0);
            let n_planes = p2.minus(p1);
            let t2 = after_t1.plus(n_planes << 1).plus(n_planes);
            pieces.p0[i] = p0;
            pieces.stage_1[0][i] = f0;
            pieces.stage_1[1][i] = from_p0 >> 1 & low_bits(p1.minus(p0));
            for (row, bits) in pieces.stage_2.iter_mut().zip(from_p1) {
                row[i] = bits >> 1 & low_bits(n_planes);
            }
            // Behind the test of the plane before.
            pieces.stage_2_at[i] = after_t1.plus(one);
            pieces.marks[0][i] = f0 | f1.shifted_up(f0);
            pieces.marks[1][i] = f1 | (f2 | last << 1).shifted_up(f1);
            pieces.marks_at[0][i] = t1;
            pieces.marks_at[1][i] = t2;
            for (nth, rows) in (0_u32..).zip(&mut pieces.rest) {
                let [a, b, c, d] = from_p2.map(|bits| bits >> (1 + quarter * nth) & rest);
                rows[0][i] = a | b << quarter;
                rows[1][i] = c | d << quarter;
            }
            pieces.rest_at[i] = t2.plus(one).plus(f1).plus(f2);
        }
    }
}

/// Puts bits at a place of a code. Drops those outside.
#[inline(always)]
fn put<W: Word, const N: usize>(code: &mut [W; N], bits: W, at: W) {
    code[0] = code[0] | bits.shifted_up(at);
    for (nth, code) in (1..).zip(&mut code[1..]) {
        // One of the two shifts has a number below 0, which is a large one, unless both have 0.
        let start = word::<W>((W::BITS * nth).into());
        let (up, down) = (bits.shifted_up(at.minus(start)), bits.shifted_down(start.minus(at)));
        *code = *code | up | down;
    }
}

/// Returns the bits that begin a few behind a place of a code; 0 for those outside.
#[inline(always)]
fn take<W: Word, const N: usize>(code: &[W; N], at: W, n_behind: u32) -> W {
    // In two steps, because vectors compare a sum with the number of bits.
    let mut bits = code[0].shifted_down(at) >> n_behind;
    let at = at.plus(word(n_behind.into()));
    for (nth, code) in (1..).zip(&code[1..]) {
        let start = word::<W>((W::BITS * nth).into());
        bits = bits | code.shifted_down(at.minus(start)) | code.shifted_up(start.minus(at));
    }
    bits
}

impl<W: Word, const N: usize> LaneReader<W, N> {
    const ROW: [W; BATCH] = [W::ZERO; BATCH];
    pub(in crate::codec) const NEW: Self = Self {
        codes: [Self::ROW; N],
        pieces: FoundPieces {
            planes: [Self::ROW; 3],
            bits: [Self::ROW; 4],
            stage_1: Self::ROW,
            stage_2: [Self::ROW; N],
            rest: [Self::ROW; N],
        },
        coefficients: [Self::ROW; BLOCK],
    };

    /// Computes the coefficients with these codes of `n_bits`. All higher bits of codes must be 0.
    /// Bits behind a code's end are those of the format: 0, but for a search that it cuts off.
    #[inline(always)]
    pub(super) fn decode(&mut self, n_bits: u32) {
        self.find(n_bits);
        let Self { pieces, coefficients, .. } = self;
        let quarter = W::BITS / 4;
        let rest_bits = W::ONES >> (W::BITS - quarter);
        for i in 0..BATCH {
            let [p0, p1, p2] = pieces.planes.each_ref().map(|row| row[i]);
            let [f0, f1, f2, last] = pieces.bits.each_ref().map(|row| row[i]);
            let stage_1 = gather::<W, 1>(pieces.stage_1[i] >> 1);
            let mut stage_2 = [W::ZERO; 2];
            let mut rest = [W::ZERO; BLOCK];
            for nth in 0..N {
                for (k, bits) in (1_u32..).zip(&mut stage_2) {
                    let planes = gather::<W, 2>(pieces.stage_2[nth][i] >> k);
                    *bits = *bits | planes << (STAGE_2_PLANES * nth as u32);
                }
                let columns = deinterleaved(pieces.rest[nth][i]);
                for (k, bits) in (0_u32..).zip(&mut rest) {
                    let planes = columns >> (k * quarter) & rest_bits;
                    *bits = *bits | planes << (nth as u32 * quarter);
                }
            }
            let stage_1 = (f0 | stage_1 << 1).shifted_up(p0);
            let [stage_2_a, stage_2_b] = stage_2.map(|bits| bits << 1);
            let [a, b, c, d] = rest.map(|bits| bits << 1);
            coefficients[0][i] = stage_1 | stage_2_a.shifted_up(p1) | a.shifted_up(p2);
            coefficients[1][i] = (f1 | stage_2_b).shifted_up(p1) | b.shifted_up(p2);
            coefficients[2][i] = (f2 | c).shifted_up(p2);
            coefficients[3][i] = (last | d).shifted_up(p2);
        }
    }

    /// Finds the pieces of the codes.
    #[inline(always)]
    fn find(&mut self, n_bits: u32) {
        let Self { codes, pieces, .. } = self;
        let one = word::<W>(1);
        // A search that is cut off finds a 1 there.
        let end: [W; N] = core::array::from_fn(|nth| {
            let n_bits = n_bits.saturating_sub(nth as u32 * W::BITS);
            W::ONES.shifted_up(word(n_bits.into()))
        });
        for i in 0..BATCH {
            let code: [W; N] = core::array::from_fn(|nth| codes[nth][i]);
            let ended: [W; N] = core::array::from_fn(|nth| code[nth] | end[nth]);
            let p0 = code[0].trailing_zeros();
            let f0 = take(&ended, p0, 1) & one;
            let stage = take(&code, p0, 2);
            // A stage that is not there ends at once.
            let tests = stage & tests::<W, 1>() | f0 ^ one;
            let n_coded = tests.trailing_zeros();
            pieces.stage_1[i] = stage & below_lowest(tests);
            let p1 = p0.plus(n_coded >> 1);
            let at = p0.plus(word(2)).plus(n_coded).plus(f0);
            let f1 = take(&ended, at, 0) & one;
            let mut n_coded = W::ZERO;
            let mut is_over = f1 ^ one;
            for (nth, stage_2) in (0..).zip(&mut pieces.stage_2) {
                let stage = take(&code, at.plus(word(STAGE_2_BITS * nth)), 1);
                let mut tests = stage & self::tests::<W, 2>() | is_over;
                if nth + 1 < N as u64 {
                    // Another word goes on behind as many planes as fit.
                    let end = word::<W>(1 << STAGE_2_BITS);
                    is_over = if tests & end.minus(one) == W::ZERO { W::ZERO } else { one };
                    tests = tests | end;
                }
                stage_2[i] = stage & below_lowest(tests);
                n_coded = n_coded.plus(tests.trailing_zeros());
            }
            let p2 = p1.plus(third(n_coded));
            let t2 = at.plus(one).plus(n_coded);
            let at = t2.plus(f1);
            let f2 = take(&ended, at, 0) & one;
            // Without coefficient 2, the search has found the last one, if there was a search.
            let is_search = if t2 < word(u64::from(W::BITS) * N as u64) { one } else { W::ZERO };
            let last = (take(&code, at, 1) | f2 ^ one) & is_search;
            for (nth, rest) in (0..).zip(&mut pieces.rest) {
                rest[i] = take(&code, at.plus(f2).plus(word((W::BITS * nth).into())), 1);
            }
            for (row, plane) in pieces.planes.iter_mut().zip([p0, p1, p2]) {
                row[i] = plane;
            }
            for (row, bit) in pieces.bits.iter_mut().zip([f0, f1, f2, last]) {
                row[i] = bit;
            }
        }
    }
}

#[inline(always)]
fn word<W: Word>(number: u64) -> W {
    W::from_u64(number)
}

/// Returns the mask of the n lowest bits.
#[inline(always)]
fn low_bits<W: Word>(n: W) -> W {
    !W::ONES.shifted_up(n)
}

/// Returns the mask of the places below the lowest 1.
#[inline(always)]
fn below_lowest<W: Word>(bits: W) -> W {
    !bits & bits.minus(word(1))
}

/// Returns the mask of the places of tests in stage N: every (N + 1)th bit.
#[inline(always)]
fn tests<W: Word, const N: usize>() -> W {
    word([u64::MAX, 0x5555_5555_5555_5555, 0x9249_2492_4924_9249][N])
}

/// Returns ⌊number / 3⌋ for numbers below 128.
#[inline(always)]
fn third<W: Word>(number: W) -> W {
    // 43/128 is a little more than a third.
    (number << 5).plus(number << 3).plus(number << 1).plus(number) >> 7
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

    fn planes_of<W: Word>(coefficients: [W; BLOCK]) -> Vec<[bool; 4]> {
        let bits = |plane| coefficients.map(|bits| bits.to_u64() >> plane & 1 == 1);
        (0..W::BITS).map(bits).collect()
    }

    fn batch<W: Word>(rows: &Rows<W>, i: usize) -> Vec<[bool; 4]> {
        planes_of(rows.each_ref().map(|row| row[i]))
    }

    /// Blocks whose coefficients begin in any planes, with few or many ones.
    fn check<D: Word, W: Word, const N: usize>() {
        let mut state = 0x2545_f491_4f6c_dd1d_u64;
        let mut random = move || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state
        };
        let room = N * W::BITS as usize;
        for _ in 0..800 {
            let mut writer = LaneWriter::<D, W, N>::NEW;
            for bits in writer.coefficients.as_flattened_mut() {
                let sparse = if random() % 8 == 0 { random() & random() } else { u64::MAX };
                let start = D::from_u64(random() % u64::from(D::BITS + 1));
                *bits = D::from_u64(random() & sparse).shifted_up(start);
            }
            writer.encode();
            let LaneWriter { coefficients: rows, codes, .. } = writer;
            let bit = |codes: &Codes<W, N>, i: usize, at: usize| {
                codes[at / W::BITS as usize][i].to_u64() >> (at % W::BITS as usize) & 1 == 1
            };
            for i in 0..BATCH {
                let expected = coded(&batch(&rows, i));
                let found: Vec<_> = (0..room).map(|at| bit(&codes, i, at)).collect();
                let n_bits = expected.len().min(room);
                assert_eq!(found[..n_bits], expected[..n_bits], "{:?}", batch(&rows, i));
            }
            // Any bits are a code, and any code may be cut off.
            let noise = codes.map(|row| row.map(|_| W::from_u64(random())));
            let sparse = noise.map(|row| row.map(|bits| bits & W::from_u64(random())));
            for codes in [codes, noise, sparse] {
                let n_bits = random() as u32 % room as u32;
                let kept = |nth: usize| {
                    let n_bits = n_bits.saturating_sub(nth as u32 * W::BITS);
                    low_bits::<W>(word(n_bits.into()))
                };
                let cut: Codes<W, N> =
                    core::array::from_fn(|nth| codes[nth].map(|bits| bits & kept(nth)));
                let mut reader = LaneReader { codes: cut, ..LaneReader::NEW };
                reader.decode(n_bits);
                for i in 0..BATCH {
                    let bits: Vec<_> = (0..n_bits as usize).map(|at| bit(&cut, i, at)).collect();
                    let n_planes = D::BITS.min(W::BITS) as usize;
                    let found = batch(&reader.coefficients, i);
                    assert_eq!(found[..n_planes], decoded(&bits, n_planes), "{n_bits}: {bits:?}");
                }
            }
        }
    }

    #[test]
    fn codes_are_those_of_the_format_and_may_be_cut_off() {
        check::<u32, u32, 1>();
        check::<u32, u64, 1>();
        check::<u64, u64, 1>();
        check::<u32, u64, 2>();
    }
}
