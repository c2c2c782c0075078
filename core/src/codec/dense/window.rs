//! Codes of a chunk and of what is before it, and prediction from them.
//!
//! An array of several dimensions lies in memory row behind row, plane behind plane. The difference
//! to the place before, of it the difference to the row before, and of that the difference to the
//! plane before is what the Lorenzo predictor leaves over; here all three are taken on the array as
//! one line, so that neither the lengths of rows nor where they begin must suit those of chunks.
//! Any of the three may be left out. Where a curve is smooth within its rounding, the first two are
//! taken twice. Arithmetic wraps.

use crate::element::sealed::Word;
use crate::kernel::{BLOCK, CHUNK};

/// Codes of a window: a chunk more than are read together at most, so that they are moved to its
/// front for every other chunk at most.
const WINDOW: usize = 5 * CHUNK;
/// How far before a value those may be that predict it, but for the one before each.
pub(super) const MOST: usize = 3 * CHUNK - 2;

/// How far before a value its neighbours are: the one in the row before, and the one in the plane
/// before; 0 if there is none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Strides {
    pub(crate) row: u16,
    pub(crate) plane: u16,
}

impl Strides {
    /// These, without those that a window is too short for.
    pub(super) fn within(row: u32, plane: u32) -> Self {
        let most = MOST as u32;
        let is_row = (2..=most).contains(&row);
        let row = if is_row { row } else { 0 };
        let plane = if (row.max(1) + 1..=most - row).contains(&plane) { plane } else { 0 };
        Self { row: row as u16, plane: plane as u16 }
    }

    /// How far before a value the first is that may predict it.
    fn reach(self) -> usize {
        let [row, plane] = [self.row, self.plane].map(usize::from);
        2 + (row + plane).max(if self.has_two_rows() { 2 * row } else { 0 })
    }

    /// Whether a window holds the row before the row before.
    fn has_two_rows(self) -> bool {
        2 * usize::from(self.row) <= MOST
    }
}

/// Which of the differences are taken: bits of [`NEXT`](Self::NEXT), [`ROW`](Self::ROW) and
/// [`PLANE`](Self::PLANE), and [`TWICE`](Self::TWICE).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Predictor(u8);

impl Predictor {
    pub(super) const NEXT: u8 = 1;
    pub(super) const ROW: u8 = 2;
    pub(super) const PLANE: u8 = 4;
    /// Those to the place and to the row before are taken twice, and none to a plane.
    pub(super) const TWICE: u8 = 128;
    /// All bits.
    pub(super) const BITS: u8 = Self::NEXT | Self::ROW | Self::PLANE | Self::TWICE;
    /// All that take none twice, in the order in which a writer prefers them.
    const ALL: [Self; 7] = [Self(1), Self(3), Self(7), Self(5), Self(0), Self(2), Self(4)];

    /// Its bits.
    pub(super) const fn bits(self) -> u8 {
        self.0
    }

    /// The predictor of these bits, if there are such neighbours.
    pub(super) fn of_bits(bits: u8, strides: Strides) -> Option<Self> {
        let is_there = bits & Self::ROW == 0 || strides.row > 0;
        let is_there = is_there && (bits & Self::PLANE == 0 || strides.plane > 0);
        let once = bits & (Self::NEXT | Self::ROW | Self::PLANE);
        let is_there = is_there
            && match bits & !once {
                0 => true,
                Self::TWICE if once & Self::ROW > 0 => once < 4 && strides.has_two_rows(),
                Self::TWICE => once == Self::NEXT,
                _ => false,
            };
        is_there.then_some(Self(bits))
    }

    /// Whether the code before is among them.
    pub(super) const fn has_next(self) -> bool {
        self.0 & Self::NEXT > 0
    }

    /// Whether the difference to it is taken twice.
    pub(super) const fn has_next_twice(self) -> bool {
        self.0 & (Self::NEXT | Self::TWICE) == Self::NEXT | Self::TWICE
    }

    /// How far before a value the codes in other rows and planes are that it is predicted from.
    fn others(self, strides: Strides) -> FarNeighbours {
        let (row, plane) = (usize::from(strides.row), usize::from(strides.plane));
        match (self.0 & Self::ROW > 0, self.0 & Self::PLANE > 0) {
            (false, false) => FarNeighbours::None,
            (true, false) if self.0 & Self::TWICE > 0 => FarNeighbours::Two(row),
            (true, false) => FarNeighbours::One(row),
            (false, true) => FarNeighbours::One(plane),
            (true, true) => FarNeighbours::Three(row, plane),
        }
    }
}

/// Distances to codes in other rows and planes.
#[derive(Clone, Copy)]
enum FarNeighbours {
    None,
    /// In a row or a plane before.
    One(usize),
    /// In a row before, and as far before that.
    Two(usize),
    /// In a row before, in a plane before, and in both.
    Three(usize, usize),
}

/// Codes in order, of which the last are a chunk's.
#[derive(Clone, Debug)]
pub(super) struct CodeWindow<B> {
    codes: [B; WINDOW],
    strides: Strides,
    /// Where the chunk begins.
    start: usize,
    len: usize,
}

impl<B: Word> CodeWindow<B> {
    #[inline(always)]
    pub(super) fn new(strides: Strides) -> Self {
        Self { codes: [B::ZERO; WINDOW], strides, start: strides.reach(), len: 0 }
    }

    pub(super) const fn strides(&self) -> Strides {
        self.strides
    }

    /// Makes all codes before the first chunk this one.
    pub(super) fn begin(&mut self, strides: Strides, code: B) {
        self.strides = strides;
        self.start = strides.reach();
        self.codes[..self.start].fill(code);
    }

    /// Goes on to the next chunk, of so many codes, which may be anything yet.
    #[inline(always)]
    pub(super) fn go_on(&mut self, n_codes: usize) {
        self.start += self.len;
        self.len = n_codes;
        if self.start + n_codes.next_multiple_of(BLOCK) > WINDOW {
            let reach = self.strides.reach();
            self.codes.copy_within(self.start - reach..self.start, 0);
            self.start = reach;
        }
    }

    /// The chunk's codes.
    #[inline(always)]
    pub(super) fn chunk(&self) -> &[B] {
        &self.codes[self.start..self.start + self.len]
    }

    #[inline(always)]
    pub(super) fn chunk_mut(&mut self) -> &mut [B] {
        &mut self.codes[self.start..self.start + self.len]
    }

    /// The same up to a whole number of blocks.
    #[inline(always)]
    pub(super) fn blocks_mut(&mut self) -> &mut [B] {
        let len = self.len.next_multiple_of(BLOCK);
        &mut self.codes[self.start..self.start + len]
    }

    /// The code before the chunk.
    pub(super) fn before(&self) -> B {
        self.codes[self.start - 1]
    }

    /// The predictor that leaves the least over of a sample, one block in eleven: of which what
    /// `weigh` says of each block, together, is the least.
    #[inline(always)]
    pub(super) fn best(&self, weigh: impl Fn(&[B]) -> u64) -> Predictor {
        let mut costs = [u64::MAX; 8];
        // Not a power of two, as rows often are.
        let step = BLOCK * (self.len / (11 * BLOCK)).clamp(1, 11);
        for across in (0..8).step_by(2).filter_map(|bits| Predictor::of_bits(bits, self.strides)) {
            let with_next = Predictor(across.0 | Predictor::NEXT);
            let mut cost = [0; 2];
            for from in (0..self.len).step_by(step) {
                let n = BLOCK.min(self.len - from);
                if n == BLOCK {
                    let (left, next) = self.block(across, false, from);
                    cost[0] += weigh(&left);
                    cost[1] += weigh(&next);
                } else {
                    let left = &mut [B::ZERO; BLOCK][..n];
                    self.rest(across, from, left);
                    cost[0] += weigh(left);
                    self.rest(with_next, from, left);
                    cost[1] += weigh(left);
                }
            }
            costs[usize::from(across.0)] = cost[0];
            costs[usize::from(with_next.0)] = cost[1];
        }
        // The first of the least.
        let cost = |predictor: &Predictor| costs[usize::from(predictor.0)];
        let best = Predictor::ALL.into_iter().min_by_key(cost).unwrap_or(Predictor::ALL[0]);
        // So much is left over of rounding alone where differences are taken twice.
        let n_blocks = self.len.div_ceil(step) as u64;
        let [noise, more] = [2, 4].map(|number| n_blocks * weigh(&[B::from_u64(number); BLOCK]));
        if cost(&best) <= noise {
            return best;
        }
        let twice = best.0 & !Predictor::PLANE | Predictor::TWICE;
        let Some(twice) = Predictor::of_bits(twice, self.strides) else { return best };
        let mut cost_twice = 0;
        for from in (0..self.len).step_by(step) {
            let n = BLOCK.min(self.len - from);
            if n == BLOCK {
                let (left, next) = self.block(twice, twice.has_next_twice(), from);
                cost_twice += weigh(if twice.has_next() { &next } else { &left });
            } else {
                let left = &mut [B::ZERO; BLOCK][..n];
                self.rest(twice, from, left);
                cost_twice += weigh(left);
            }
        }
        // An eighth of a bit less, at least: estimates are no more exact.
        if cost_twice + (more - noise) / 8 < cost(&best) { twice } else { best }
    }

    /// What is left over of the chunk's codes from `from` on before a predictor takes the last
    /// difference to the place before, if it takes one.
    #[inline(always)]
    pub(super) fn across(&self, predictor: Predictor, from: usize, out: &mut [B]) {
        self.across_at(predictor, self.start + from, out);
    }

    #[inline(always)]
    fn across_at(&self, predictor: Predictor, at: usize, out: &mut [B]) {
        self.rows_at(predictor, at, out);
        if predictor.has_next_twice() {
            for (i, block) in out.chunks_mut(BLOCK).enumerate() {
                let before = &mut [B::ZERO; BLOCK][..block.len()];
                self.rows_at(predictor, at + i * BLOCK - 1, before);
                for (code, before) in block.iter_mut().zip(before) {
                    *code = code.minus(*before);
                }
            }
        }
    }

    /// What neighbours in other rows and planes leave over of codes from place `at` on.
    #[inline(always)]
    fn rows_at(&self, predictor: Predictor, at: usize, out: &mut [B]) {
        let len = out.len();
        let codes = &self.codes[at..at + len];
        match predictor.others(self.strides) {
            FarNeighbours::None => out.copy_from_slice(codes),
            FarNeighbours::One(distance) => {
                let other = &self.codes[at - distance..][..len];
                for i in 0..len {
                    out[i] = codes[i].minus(other[i]);
                }
            }
            FarNeighbours::Two(row) => {
                let one = &self.codes[at - row..][..len];
                let two = &self.codes[at - 2 * row..][..len];
                for i in 0..len {
                    out[i] = codes[i].minus(one[i]).minus(one[i]).plus(two[i]);
                }
            }
            FarNeighbours::Three(row, plane) => {
                let in_row = &self.codes[at - row..][..len];
                let in_plane = &self.codes[at - plane..][..len];
                let in_both = &self.codes[at - row - plane..][..len];
                for i in 0..len {
                    out[i] = codes[i].minus(in_row[i]).minus(in_plane[i]).plus(in_both[i]);
                }
            }
        }
    }

    /// The same of a block, and the difference of each to the one before.
    ///
    /// The latter is taken apart, as vectors that were just written are slow to read one place
    /// further.
    #[inline(always)]
    fn block(&self, predictor: Predictor, is_twice: bool, from: usize) -> ([B; BLOCK], [B; BLOCK]) {
        let mut rows = [[B::ZERO; BLOCK]; 3];
        for (i, rows) in rows[..if is_twice { 3 } else { 2 }].iter_mut().enumerate() {
            self.rows_at(predictor, self.start + from - i, rows);
        }
        let [mut left, mut before, two_before] = rows;
        if is_twice {
            left = minus(left, before);
            before = minus(before, two_before);
        }
        (left, minus(left, before))
    }

    /// What the predictor leaves over of the chunk's codes.
    #[inline(always)]
    pub(super) fn differences(&self, predictor: Predictor, out: &mut [B]) {
        if !predictor.has_next() {
            return self.rows_at(predictor, self.start, out);
        }
        let is_twice = predictor.has_next_twice();
        let (blocks, rest) = out.as_chunks_mut::<BLOCK>();
        for (i, block) in blocks.iter_mut().enumerate() {
            *block = self.block(predictor, is_twice, i * BLOCK).1;
        }
        self.rest(predictor, blocks.len() * BLOCK, rest);
    }

    /// The same of less than a block, from `from` on. Apart, as it needs no instructions of a
    /// level, and would be compiled for each.
    #[inline(never)]
    fn rest(&self, predictor: Predictor, from: usize, out: &mut [B]) {
        self.across(predictor, from, out);
        if predictor.has_next() {
            let before = &mut [B::ZERO; BLOCK][..out.len()];
            self.across_at(predictor, self.start + from - 1, before);
            for (code, before) in out.iter_mut().zip(before) {
                *code = code.minus(*before);
            }
        }
    }

    /// What [`across`](Self::across) is of the code before the chunk.
    pub(super) fn across_before(&self, predictor: Predictor) -> B {
        let code = &mut [B::ZERO];
        self.across_at(predictor, self.start - 1, code);
        code[0]
    }

    /// What neighbours in other rows and planes leave over of it.
    pub(super) fn rows_before(&self, predictor: Predictor) -> B {
        let code = &mut [B::ZERO];
        self.rows_at(predictor, self.start - 1, code);
        code[0]
    }

    /// Adds what neighbours in other rows and planes predict to what they left over of the chunk,
    /// in place.
    #[inline(always)]
    pub(super) fn undo_rows(&mut self, predictor: Predictor) {
        let (start, end) = (self.start, self.start + self.len);
        // So many codes are sure not to be predicted from each other.
        let batch = match predictor.others(self.strides) {
            FarNeighbours::None => return,
            FarNeighbours::One(distance)
            | FarNeighbours::Two(distance)
            | FarNeighbours::Three(distance, _) => distance,
        };
        for at in (start..end).step_by(batch) {
            let (before, codes) = self.codes[..end].split_at_mut(at);
            let len = batch.min(codes.len());
            let codes = &mut codes[..len];
            match predictor.others(self.strides) {
                FarNeighbours::None => {}
                FarNeighbours::One(distance) => {
                    let other = &before[at - distance..][..len];
                    for i in 0..len {
                        codes[i] = codes[i].plus(other[i]);
                    }
                }
                FarNeighbours::Two(row) => {
                    let one = &before[at - row..][..len];
                    let two = &before[at - 2 * row..][..len];
                    for i in 0..len {
                        codes[i] = codes[i].plus(one[i]).plus(one[i]).minus(two[i]);
                    }
                }
                FarNeighbours::Three(row, plane) => {
                    let in_row = &before[at - row..][..len];
                    let in_plane = &before[at - plane..][..len];
                    let in_both = &before[at - row - plane..][..len];
                    for i in 0..len {
                        codes[i] = codes[i].plus(in_row[i]).plus(in_plane[i]).minus(in_both[i]);
                    }
                }
            }
        }
    }
}

/// The differences of two blocks.
#[inline(always)]
fn minus<B: Word>(block: [B; BLOCK], other: [B; BLOCK]) -> [B; BLOCK] {
    core::array::from_fn(|i| block[i].minus(other[i]))
}

/// What codes of the entropy's length take, on a scale of its own.
#[inline(always)]
pub(super) fn entropy<B: Word>(left: &[B]) -> u64 {
    let magnitudes = left.iter().map(|&code| magnitude(code).to_u64());
    let sum = magnitudes.fold(8, u64::wrapping_add);
    // Bits grow as the logarithm, of which a float's bits are a fair picture.
    u64::from((sum as f32).to_bits())
}

/// What all take in as many bits as the largest.
#[inline(always)]
pub(super) fn width<B: Word>(left: &[B]) -> u64 {
    // Zig-zag numbers.
    let all = left.iter().fold(B::ZERO, |all, &code| all | ((code << 1) ^ sign_of(code)));
    u64::from(B::BITS - all.leading_zeros())
}

/// All bits of a negative code.
#[inline(always)]
fn sign_of<B: Word>(code: B) -> B {
    B::ZERO.minus(code >> (B::BITS - 1))
}

/// |code|, as a number without sign.
#[inline(always)]
pub(super) fn magnitude<B: Word>(code: B) -> B {
    let sign = sign_of(code);
    (code ^ sign).minus(sign)
}
