//! Codes of a chunk and of what is before it, and prediction from them.
//!
//! An array of several dimensions lies in memory row behind row, plane behind plane. The difference
//! to the place before, of it the difference to the row before, and of that the difference to the
//! plane before is what the Lorenzo predictor leaves over; here all three are taken on the array as
//! one line, so that neither the lengths of rows nor where they begin must suit those of chunks.
//! Any of the three may be left out. Arithmetic wraps.

use crate::element::sealed::Word;
use crate::kernel::{BLOCK, CHUNK};

/// Codes of a window.
const WINDOW: usize = 4 * CHUNK;

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
        let most = (WINDOW - CHUNK - 2) as u32;
        let is_row = (2..=most).contains(&row);
        let row = if is_row { row } else { 0 };
        let plane = if (row.max(1) + 1..=most - row).contains(&plane) { plane } else { 0 };
        Self { row: row as u16, plane: plane as u16 }
    }

    /// How far before a value the first is that may predict it.
    fn reach(self) -> usize {
        1 + usize::from(self.row) + usize::from(self.plane)
    }
}

/// Which of the differences are taken: bits of [`NEXT`](Self::NEXT), [`ROW`](Self::ROW) and
/// [`PLANE`](Self::PLANE).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Predictor(u8);

impl Predictor {
    const NEXT: u8 = 1;
    const ROW: u8 = 2;
    const PLANE: u8 = 4;
    /// All, in the order in which a writer prefers them.
    const ALL: [Self; 7] = [Self(1), Self(3), Self(7), Self(5), Self(0), Self(2), Self(4)];

    /// Its bits.
    pub(super) const fn bits(self) -> u8 {
        self.0
    }

    /// The predictor of these bits, if there are such neighbours.
    pub(super) fn of_bits(bits: u8, strides: Strides) -> Option<Self> {
        let is_there = bits & Self::ROW == 0 || strides.row > 0;
        let is_there = is_there && (bits & Self::PLANE == 0 || strides.plane > 0);
        (bits < 8 && is_there).then_some(Self(bits))
    }

    /// The codes that a difference is made of beside the value's own: how far before it, and
    /// whether they are added.
    fn terms(self, strides: Strides) -> impl Iterator<Item = (usize, bool)> {
        (1..8_u8).filter(move |term| term & !self.0 == 0).map(move |term| {
            let next = usize::from(term & Self::NEXT);
            let row = usize::from(term >> 1 & 1) * usize::from(strides.row);
            let plane = usize::from(term >> 2) * usize::from(strides.plane);
            (next + row + plane, term.count_ones() % 2 == 0)
        })
    }

    /// How many values are sure not to be predicted from each other but by the one before.
    fn batch(self, strides: Strides) -> usize {
        match (self.0 & Self::ROW > 0, self.0 & Self::PLANE > 0) {
            (true, _) => strides.row.into(),
            (false, true) => strides.plane.into(),
            (false, false) => CHUNK,
        }
    }
}

/// Codes in order, of which the last are a chunk's.
#[derive(Clone, Debug)]
pub(super) struct Window<B> {
    codes: [B; WINDOW],
    strides: Strides,
    /// Where the chunk begins.
    start: usize,
    len: usize,
}

impl<B: Word> Window<B> {
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

    /// The predictor that leaves the least over of a sample: one block in eight.
    #[inline(always)]
    pub(super) fn best(&self) -> Predictor {
        let mut best = (Predictor::ALL[0], u64::MAX);
        for predictor in Predictor::ALL {
            if Predictor::of_bits(predictor.0, self.strides).is_none() {
                continue;
            }
            let mut cost = 0;
            let step = BLOCK * (self.len / (16 * BLOCK)).clamp(1, 8);
            for from in (0..self.len).step_by(step) {
                let len = BLOCK.min(self.len - from);
                let mut left = [B::ZERO; BLOCK];
                let left = &mut left[..len];
                self.differences(predictor, from, left);
                let magnitudes = left.iter().map(|&code| magnitude(code).to_u64());
                let sum = magnitudes.fold(8, u64::wrapping_add);
                // Bits grow as the logarithm, of which a float's bits are a fair picture.
                cost += u64::from((sum as f32).to_bits());
            }
            if cost < best.1 {
                best = (predictor, cost);
            }
        }
        best.0
    }

    /// What the predictor leaves over of the chunk's codes from `from` on.
    #[inline(always)]
    pub(super) fn differences(&self, predictor: Predictor, from: usize, out: &mut [B]) {
        let (at, len) = (self.start + from, out.len());
        out.copy_from_slice(&self.codes[at..at + len]);
        for (before, is_added) in predictor.terms(self.strides) {
            combine(out, &self.codes[at - before..][..len], is_added);
        }
    }

    /// Makes the chunk's codes of what the predictor left over, which stands in their place.
    #[inline(always)]
    pub(super) fn undo(&mut self, predictor: Predictor) {
        let batch = predictor.batch(self.strides);
        let has_next = predictor.0 & Predictor::NEXT > 0;
        let end = self.start + self.len;
        for at in (self.start..end).step_by(batch) {
            let (before, codes) = self.codes[..end].split_at_mut(at);
            let len = batch.min(codes.len());
            let codes = &mut codes[..len];
            for (distance, is_added) in predictor.terms(self.strides) {
                if distance > 1 {
                    combine(codes, &before[at - distance..][..len], !is_added);
                }
            }
            if has_next {
                let mut last = before[at - 1];
                for code in codes {
                    last = last.plus(*code);
                    *code = last;
                }
            }
        }
    }
}

/// |code|, as a number without sign.
#[inline(always)]
pub(super) fn magnitude<B: Word>(code: B) -> B {
    let sign = B::ZERO.minus(code >> (B::BITS - 1));
    (code ^ sign).minus(sign)
}

/// acc ± others.
#[inline(always)]
fn combine<B: Word>(acc: &mut [B], others: &[B], is_added: bool) {
    if is_added {
        for (acc, other) in acc.iter_mut().zip(others) {
            *acc = acc.plus(*other);
        }
    } else {
        for (acc, other) in acc.iter_mut().zip(others) {
            *acc = acc.minus(*other);
        }
    }
}
