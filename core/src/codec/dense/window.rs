//! Window of the codes of a chunk and of the codes before it, and prediction from them.
//!
//! An array of several dimensions lies in memory row after row and plane after plane. The Lorenzo
//! predictor takes three differences in sequence: to the previous place, to the previous row, and
//! to the previous plane. Here all three treat the array as one line, so chunks need not match the
//! lengths or starts of rows. Any of the three may be left out. For very smooth data, the first two
//! may be taken twice. Arithmetic wraps.

use crate::element::sealed::Word;
use crate::kernel::{BLOCK, CHUNK};

/// Codes in a window. It holds one chunk more than a chunk and its farthest neighbours need, so
/// that codes move to the front of the window at most every other chunk.
pub(super) const WINDOW: usize = 5 * CHUNK;
/// Largest distance from a value to a neighbour in another row or plane. The window also holds the
/// two codes before that neighbour.
pub(super) const MAX_STRIDE: usize = 3 * CHUNK - 2;

/// Distances from a value to its neighbour in the row before and in the plane before; 0 if there is
/// none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Strides {
    pub(crate) row: u16,
    pub(crate) plane: u16,
}

impl Strides {
    /// Makes strides of these distances. A distance becomes 0 if it exceeds the window, if a row
    /// has less than two values, or if a plane has no more values than a row. If the window holds
    /// the plane but not the row besides, the plane is taken as row: in an array of so few rows per
    /// plane, a plane resembles the next one more than a row does.
    pub(crate) fn within(row: u32, plane: u32) -> Self {
        let most = MAX_STRIDE as u32;
        if row > 1 && row < plane && plane <= most && row + plane > most {
            return Self { row: plane as u16, plane: 0 };
        }
        let is_row = (2..=most).contains(&row);
        let row = if is_row { row } else { 0 };
        let plane = if (row.max(1) + 1..=most - row).contains(&plane) { plane } else { 0 };
        Self { row: row as u16, plane: plane as u16 }
    }

    /// Returns the distance from a value to the farthest code that may predict it.
    pub(super) fn reach(self) -> usize {
        let [row, plane] = [self.row, self.plane].map(usize::from);
        2 + (row + plane).max(if self.has_two_rows() { 2 * row } else { 0 })
    }

    /// Returns whether a window holds two previous rows.
    fn has_two_rows(self) -> bool {
        2 * usize::from(self.row) <= MAX_STRIDE
    }
}

/// Set of differences to take: bits [`NEXT`](Self::NEXT), [`ROW`](Self::ROW),
/// [`PLANE`](Self::PLANE) and [`TWICE`](Self::TWICE).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Predictor(u8);

impl Predictor {
    /// Takes the difference to the previous place.
    pub(super) const NEXT: u8 = 1;
    /// Takes the difference to the previous row.
    pub(super) const ROW: u8 = 2;
    /// Takes the difference to the previous plane.
    pub(super) const PLANE: u8 = 4;
    /// Takes the chosen differences twice. Not with [`PLANE`](Self::PLANE).
    pub(super) const TWICE: u8 = 128;
    /// All bits.
    pub(super) const BITS: u8 = Self::NEXT | Self::ROW | Self::PLANE | Self::TWICE;
    /// All predictors without [`TWICE`](Self::TWICE). If several have equal costs, a writer takes
    /// the first.
    const ALL: [Self; 7] = [Self(1), Self(3), Self(7), Self(5), Self(0), Self(2), Self(4)];

    /// Returns the bits.
    pub(super) const fn bits(self) -> u8 {
        self.0
    }

    /// Makes the predictor with these bits, if the strides provide its neighbours.
    pub(super) fn of_bits(bits: u8, strides: Strides) -> Option<Self> {
        let is_valid = bits & Self::ROW == 0 || strides.row > 0;
        let is_valid = is_valid && (bits & Self::PLANE == 0 || strides.plane > 0);
        let once = bits & (Self::NEXT | Self::ROW | Self::PLANE);
        let is_valid = is_valid
            && match bits & !once {
                0 => true,
                Self::TWICE if once & Self::ROW > 0 => once < 4 && strides.has_two_rows(),
                Self::TWICE => once == Self::NEXT,
                _ => false,
            };
        is_valid.then_some(Self(bits))
    }

    /// Returns whether it takes the difference to the previous place.
    pub(super) const fn has_next(self) -> bool {
        self.0 & Self::NEXT > 0
    }

    /// Returns whether it takes the difference to the previous place twice.
    pub(super) const fn has_next_twice(self) -> bool {
        self.0 & (Self::NEXT | Self::TWICE) == Self::NEXT | Self::TWICE
    }

    /// Returns the distances to the codes in other rows and planes that predict a value.
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
    /// In the previous row or the previous plane.
    One(usize),
    /// In the previous row, and in the row before that.
    Two(usize),
    /// In the previous row, in the previous plane, and in the previous row of the previous plane.
    Three(usize, usize),
}

/// Codes in order, ending with those of the current run of chunks. One of these is selected.
#[derive(Debug)]
pub(super) struct CodeWindow<'a, B> {
    codes: &'a mut [B],
    strides: Strides,
    /// Start of the run.
    run: usize,
    /// Number of codes in the run.
    n_codes: usize,
    /// Start of the selected chunk.
    start: usize,
    len: usize,
}

impl<'a, B: Word> CodeWindow<'a, B> {
    /// Makes a window in this space.
    #[inline(always)]
    pub(super) fn new(strides: Strides, codes: &'a mut [B]) -> Self {
        Self { codes, strides, run: strides.reach(), n_codes: 0, start: 0, len: 0 }
    }

    pub(super) const fn strides(&self) -> Strides {
        self.strides
    }

    /// Sets all codes before the first chunk to `code`.
    pub(super) fn begin(&mut self, code: B) {
        self.codes[..self.strides.reach()].fill(code);
    }

    /// Moves on to the next run of `n_codes` codes, which are still unspecified.
    #[inline(always)]
    pub(super) fn go_on(&mut self, n_codes: usize) {
        self.run += self.n_codes;
        self.n_codes = n_codes;
        if self.run + n_codes.next_multiple_of(BLOCK) > self.codes.len() {
            let reach = self.strides.reach();
            self.codes.copy_within(self.run - reach..self.run, 0);
            self.run = reach;
        }
    }

    /// Moves to a run of `n_codes` codes that need not follow the one before. [`take_over`]
    /// provides the codes before it.
    ///
    /// [`take_over`]: Self::take_over
    pub(super) fn go_to(&mut self, n_codes: usize) {
        self.run = self.strides.reach();
        self.n_codes = n_codes;
    }

    /// Sets the codes before the run, as many as predictors reach.
    pub(super) fn take_over(&mut self, codes: &[B]) {
        self.codes[..self.run].copy_from_slice(codes);
    }

    /// Copies the codes before the next run, as many as predictors reach.
    pub(super) fn hand_over(&self, codes: &mut [B]) {
        codes.copy_from_slice(&self.codes[self.n_codes..self.n_codes + self.run]);
    }

    /// Selects the run's chunk `nth`.
    #[inline(always)]
    pub(super) fn select(&mut self, nth: usize) {
        self.start = self.run + nth * CHUNK;
        self.len = (self.n_codes - nth * CHUNK).min(CHUNK);
    }

    /// Returns the codes of the run's chunk `nth`.
    pub(super) fn nth(&self, nth: usize) -> &[B] {
        let codes = &self.codes[self.run..self.run + self.n_codes];
        codes.chunks(CHUNK).nth(nth).unwrap_or_default()
    }

    /// Returns the chunk's codes.
    #[inline(always)]
    pub(super) fn chunk(&self) -> &[B] {
        &self.codes[self.start..self.start + self.len]
    }

    #[inline(always)]
    pub(super) fn chunk_mut(&mut self) -> &mut [B] {
        &mut self.codes[self.start..self.start + self.len]
    }

    /// Returns the chunk's codes, extended to a whole number of blocks.
    #[inline(always)]
    pub(super) fn blocks_mut(&mut self) -> &mut [B] {
        let len = self.len.next_multiple_of(BLOCK);
        &mut self.codes[self.start..self.start + len]
    }

    /// Returns the code before the chunk.
    pub(super) fn before(&self) -> B {
        self.codes[self.start - 1]
    }

    /// Returns the predictor with the smallest cost for a sample of the chunk: one block in eleven,
    /// or more blocks of a short chunk. `weigh` returns the cost of a block's residuals.
    #[inline(always)]
    pub(super) fn best(&self, weigh: impl Fn(&[B]) -> u64) -> Predictor {
        let mut costs = [u64::MAX; 8];
        // The step is not a power of two in a full chunk, because lengths of rows often are.
        let step = BLOCK * (self.len / (11 * BLOCK)).clamp(1, 11);
        for across in (0..8).step_by(2).filter_map(|bits| Predictor::of_bits(bits, self.strides)) {
            let with_next = Predictor(across.0 | Predictor::NEXT);
            let mut cost = [0; 2];
            for from in (0..self.len).step_by(step) {
                let n = BLOCK.min(self.len - from);
                if n == BLOCK {
                    let (residuals, next) = self.block(across, false, from);
                    cost[0] += weigh(&residuals);
                    cost[1] += weigh(&next);
                } else {
                    let residuals = &mut [B::ZERO; BLOCK][..n];
                    self.rest(across, from, residuals);
                    cost[0] += weigh(residuals);
                    self.rest(with_next, from, residuals);
                    cost[1] += weigh(residuals);
                }
            }
            costs[usize::from(across.0)] = cost[0];
            costs[usize::from(with_next.0)] = cost[1];
        }
        let cost = |predictor: &Predictor| costs[usize::from(predictor.0)];
        let best = Predictor::ALL.into_iter().min_by_key(cost).unwrap_or(Predictor::ALL[0]);
        // Rounding alone leaves second differences of magnitude 2: `noise` is their cost. `more` is
        // the cost of one bit more per value.
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
                let (residuals, next) = self.block(twice, twice.has_next_twice(), from);
                cost_twice += weigh(if twice.has_next() { &next } else { &residuals });
            } else {
                let residuals = &mut [B::ZERO; BLOCK][..n];
                self.rest(twice, from, residuals);
                cost_twice += weigh(residuals);
            }
        }
        // Require a gain of an eighth of a bit per value, because the estimates are not more exact.
        if cost_twice + (more - noise) / 8 < cost(&best) { twice } else { best }
    }

    /// Writes the residuals of the chunk's codes from `from` on, without the predictor's last
    /// difference to the previous place.
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

    /// Writes the residuals of the codes from place `at` on to their neighbours in other rows and
    /// planes.
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

    /// Returns the residuals of [`across`](Self::across) for a block, and the difference of each to
    /// the previous one.
    ///
    /// It computes the previous residuals anew, because vectors that were just written are slow to
    /// read at an offset of one place.
    #[inline(always)]
    fn block(&self, predictor: Predictor, is_twice: bool, from: usize) -> ([B; BLOCK], [B; BLOCK]) {
        let mut rows = [[B::ZERO; BLOCK]; 3];
        for (i, rows) in rows[..if is_twice { 3 } else { 2 }].iter_mut().enumerate() {
            self.rows_at(predictor, self.start + from - i, rows);
        }
        let [mut residuals, mut before, two_before] = rows;
        if is_twice {
            residuals = minus(residuals, before);
            before = minus(before, two_before);
        }
        (residuals, minus(residuals, before))
    }

    /// Writes the predictor's residuals of the chunk's codes.
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

    /// Writes the predictor's residuals for less than a block, from `from` on. It is not inlined,
    /// because it would otherwise be compiled for each level, whose instructions it does not need.
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

    /// Returns the result of [`across`](Self::across) for the code before the chunk.
    pub(super) fn across_before(&self, predictor: Predictor) -> B {
        let code = &mut [B::ZERO];
        self.across_at(predictor, self.start - 1, code);
        code[0]
    }

    /// Returns the result of [`rows_at`](Self::rows_at) for the code before the chunk.
    pub(super) fn rows_before(&self, predictor: Predictor) -> B {
        let code = &mut [B::ZERO];
        self.rows_at(predictor, self.start - 1, code);
        code[0]
    }

    /// Turns residuals to neighbours in other rows and planes back into the chunk's codes, in
    /// place.
    #[inline(always)]
    pub(super) fn undo_rows(&mut self, predictor: Predictor) {
        let (start, end) = (self.start, self.start + self.len);
        // Codes within this distance do not predict each other.
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

/// Returns the differences between the elements of two blocks.
#[inline(always)]
fn minus<B: Word>(block: [B; BLOCK], other: [B; BLOCK]) -> [B; BLOCK] {
    core::array::from_fn(|i| block[i].minus(other[i]))
}

/// Returns the cost of these residuals with an entropy code, up to a constant factor and summand.
#[inline(always)]
pub(super) fn entropy<B: Word>(residuals: &[B]) -> u64 {
    let magnitudes = residuals.iter().map(|&code| magnitude(code).to_u64());
    let sum = magnitudes.fold(8, u64::wrapping_add);
    // The cost is the logarithm of the sum, which a float's bit pattern approximates.
    u64::from((sum as f32).to_bits())
}

/// Returns the number of bits of the largest residual. A block of fixed width spends as many bits
/// on each residual.
#[inline(always)]
pub(super) fn width<B: Word>(residuals: &[B]) -> u64 {
    // Zig-zag numbers.
    let all = residuals.iter().fold(B::ZERO, |all, &code| all | ((code << 1) ^ sign_of(code)));
    u64::from(B::BITS - all.leading_zeros())
}

/// Returns all ones for a negative code, otherwise 0.
#[inline(always)]
fn sign_of<B: Word>(code: B) -> B {
    B::ZERO.minus(code >> (B::BITS - 1))
}

/// Returns |code| as an unsigned number.
#[inline(always)]
pub(super) fn magnitude<B: Word>(code: B) -> B {
    let sign = sign_of(code);
    (code ^ sign).minus(sign)
}
