//! Unbiased rounding and error feedback: a pass over this rank's input before a call sends it.
//!
//! Codecs round to the nearest point of the lattice. That is deterministic: a value that is always
//! a third of a lattice step comes back as 0 in every iteration of a training, and its sum never
//! grows.
//! There are two remedies. Both need a pass over the input, after the ranks have agreed on the
//! lattice and before the first value is encoded:
//!
//! - *Unbiased* (stochastic) rounding chooses one of the two points next to a value x. It chooses
//!   the upper one with probability (x − lower) / (upper − lower), so that the mean over many calls
//!   is x. The error is then below one step instead of half a step. To keep a bound, the lattice
//!   step is therefore halved.
//! - *Error feedback* keeps the rounding error of each value (its *residue*), and adds it to the
//!   value in the next call.
//!
//! The results are points of the lattice, which every codec with a lattice encodes exactly. The
//! rest of the library is therefore unchanged. Values off the lattice (NaN, infinities, values far
//! too large) stay as they are.
//!
//! Kernels quantize in many places (encode, fold, refold). A separate pass keeps the random numbers
//! and the rounding errors out of the kernels and out of the wire format. But it needs memory for
//! the rounded values. A reduce-scatter from a read-only input into a share has none, and fails.
//!
//! Random numbers are a function of seed, rank and position. They are the same at any level, for
//! any number of threads, and if a call is repeated.
//!
//! Cost: one pass over this rank's input, as plain loops compiled for each level. The rank's
//! threads share it.
//!
//! Sources: D. Alistarh et al., "QSGD: Communication-efficient SGD via gradient quantization and
//! encoding" (NeurIPS 2017); F. Seide et al., "1-bit stochastic gradient descent" (Interspeech
//! 2014); J. Salmon et al., "Parallel random numbers: as easy as 1, 2, 3" (SC'11).

mod random;
#[cfg(test)]
mod tests;

use crate::bound::{Quantum, Scope};
use crate::codec::{Loss, Pieces, for_each_run};
use crate::element::sealed::Wide;
use crate::element::{DType, Element, Float, with_float};
use crate::error::Error;
use crate::kernel::{CHUNK, Level, at_level};
use crate::layout::Window;
use crate::plan::{Plan, Rounding};
use crate::schedule::Collective;
use crate::threads::Threads;
use crate::transport::Rank;
use bytemuck::{cast_slice, cast_slice_mut};
use core::convert::Infallible;
use random::Unit;

impl Rounding {
    /// Returns the rounding of the array at index `at` of a group call.
    ///
    /// Each array has its own seed, so that arrays do not share random numbers. The first array has
    /// the given seed.
    #[must_use]
    pub const fn of_array(self, at: usize) -> Self {
        match self {
            Self::Nearest => self,
            Self::Unbiased { seed } => {
                Self::Unbiased { seed: seed ^ (at as u64).wrapping_mul(random::STRIDE) }
            }
        }
    }
}

/// Returns whether values are rounded to a lattice under this plan.
///
/// Fails if the codec loses precision without a lattice.
fn is_lossy(plan: &Plan) -> Result<bool, Error> {
    match plan.codec.loss() {
        Loss::None => Ok(false),
        Loss::Bound if plan.bound.is_none() => Ok(false),
        _ if plan.codec.has_lattice() => Ok(true),
        _ => Err(Error::NoLattice { codec: plan.codec }),
    }
}

/// Returns whether a call with this plan begins with a pass over its input. Fails if it needs a
/// pass but cannot have one.
pub(crate) fn begins_with_pass(
    plan: &Plan,
    collective: Collective,
    window: Window,
    keeps_feedback: bool,
) -> Result<bool, Error> {
    if !plan.rounding.is_unbiased() && !keeps_feedback {
        return Ok(false);
    }
    let is_lossy = is_lossy(plan)?;
    if is_lossy && keeps_feedback && plan.scope == Scope::Result {
        return Err(Error::FeedbackOnResult);
    }
    // The pass needs a buffer with space for all rounded values of this rank.
    let has_room = match collective {
        Collective::AllReduce | Collective::AllGather => window != Window::Input,
        Collective::ReduceScatter => window == Window::Whole,
        _ => false,
    };
    // An exact call adds the feedback to its input, and keeps what the type does not hold.
    let begins = is_lossy || keeps_feedback;
    if begins && !has_room {
        return Err(Error::NoRoomToRound);
    }
    Ok(begins)
}

/// Refuses unbiased rounding in messages and prepared calls, which cannot begin with a pass.
/// Prepared calls refuse error feedback, too.
pub(crate) fn refuse(plan: &Plan) -> Result<(), Error> {
    if plan.rounding.is_unbiased() && is_lossy(plan)? {
        return Err(Error::NoRoomToRound);
    }
    Ok(())
}

/// Rounding pass over a rank's input at the beginning of a call.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RoundingPass {
    quantum: Quantum,
    /// Random stream from which the keys of chunks are derived; `None` for nearest rounding.
    stream: Option<u64>,
    threads: Threads,
    /// Leaves residues as they are.
    keeps_residues: bool,
}

/// Values to be rounded, where to copy them from, and their residues.
struct RoundedValues<'a, T: Float> {
    from: Option<&'a [T]>,
    values: &'a mut [T],
    residues: Option<&'a mut [T::Wide]>,
}

impl<T: Float> Pieces for RoundedValues<'_, T> {
    fn deal(self, n_values: usize) -> (Self, Self) {
        let (from, later) = self.from.map(|from| from.deal(n_values)).unzip();
        let (values, rest) = self.values.deal(n_values);
        let (residues, others) = self.residues.map(|residues| residues.deal(n_values)).unzip();
        (Self { from, values, residues }, Self { from: later, values: rest, residues: others })
    }
}

impl RoundingPass {
    pub(crate) fn new(quantum: Quantum, rounding: Rounding, rank: Rank) -> Self {
        let stream = match rounding {
            Rounding::Nearest => None,
            Rounding::Unbiased { seed } => Some(random::stream(seed, rank)),
        };
        Self { quantum, stream, threads: Threads::ONE, keeps_residues: false }
    }

    /// Leaves residues as they are, if told so.
    pub(crate) fn keeping_residues(self, keeps_residues: bool) -> Self {
        Self { keeps_residues, ..self }
    }

    /// Lets these threads share the pass.
    pub(crate) fn on(self, threads: Threads) -> Self {
        Self { threads, ..self }
    }

    /// Rounds `values` in place, after copying them from `from`, if given.
    ///
    /// With `residues`, each value's residue is added before rounding, and becomes the new rounding
    /// error.
    pub(crate) fn run<T: Element>(
        &self,
        from: Option<&[T]>,
        values: &mut [T],
        residues: Option<&mut [T::Residue]>,
        level: Level,
    ) {
        let (from, values) = (from.map(cast_slice), cast_slice_mut(values));
        self.run_on_bytes(T::DTYPE, from, values, residues.map(cast_slice_mut), level);
    }

    /// Does the work of [`run`](Self::run) for values as bytes, so that the loops are compiled in
    /// this crate. Integers are exact: they are only copied.
    fn run_on_bytes(
        &self,
        dtype: DType,
        from: Option<&[u8]>,
        values: &mut [u8],
        residues: Option<&mut [u8]>,
        level: Level,
    ) {
        let residues = residues.filter(|_| !self.keeps_residues);
        with_float!(dtype, T => {
            let (from, values) = (from.map(cast_slice), cast_slice_mut(values));
            self.run_on_floats::<T>(from, values, residues.map(cast_slice_mut), level);
        }, else {
            if let Some(from) = from {
                values.copy_from_slice(from);
            }
        });
    }

    fn run_on_floats<T: Float<Wide: Unit>>(
        &self,
        from: Option<&[T]>,
        values: &mut [T],
        residues: Option<&mut [T::Wide]>,
        level: Level,
    ) {
        let lattice = RoundingLattice::new(self.quantum, self.stream.is_some());
        let n_values = values.len();
        let values = RoundedValues { from, values, residues };
        let Ok(()) = for_each_run::<_, Infallible>(self.threads, n_values, values, &(), &|work| {
            work(&mut |first, mut run, _| {
                for at in first.. {
                    let (chunk, rest) = run.deal(CHUNK);
                    if chunk.values.is_empty() {
                        break;
                    }
                    self.round_chunk(lattice, at, chunk, level);
                    run = rest;
                }
                Ok(())
            });
        });
    }

    /// Rounds the chunk at this place.
    fn round_chunk<T: Float<Wide: Unit>>(
        &self,
        lattice: RoundingLattice<T>,
        at: usize,
        RoundedValues { from, values, residues }: RoundedValues<'_, T>,
        level: Level,
    ) {
        if let Some(from) = from {
            values.copy_from_slice(from);
        }
        let key = self.stream.map(|stream| random::key(stream, at));
        match (key, residues) {
            (Some(key), None) => {
                let residues = &mut [];
                let task = RoundedChunk::<T, true, false> { lattice, key, values, residues };
                at_level::run(level, task);
            }
            (Some(key), Some(residues)) => {
                let task = RoundedChunk::<T, true, true> { lattice, key, values, residues };
                at_level::run(level, task);
            }
            (None, Some(residues)) => {
                let task = RoundedChunk::<T, false, true> { lattice, key: 0, values, residues };
                at_level::run(level, task);
            }
            // The codec rounds to nearest itself.
            (None, None) => {}
        }
    }
}

/// Lattice of the points q·step, and the largest permitted distance between a value and its point.
#[derive(Clone, Copy)]
struct RoundingLattice<T: Float> {
    step: T::Wide,
    inverse: T::Wide,
    /// Largest |q|; negative if every value is exact.
    limit: T::Wide,
    /// Strict upper limit of errors.
    bound: T::Wide,
    /// Largest magnitude of a point.
    max: T::Wide,
}

impl<T: Float> RoundingLattice<T> {
    fn new(quantum: Quantum, is_unbiased: bool) -> Self {
        let (one, max) = (T::Wide::ONE, T::MAX.widen());
        if quantum.is_lossless() {
            let limit = T::Wide::nearest(-1.0);
            return Self { step: one, inverse: one, limit, bound: one, max };
        }
        let (step, bound) = (T::Wide::nearest(quantum.step()), quantum.limit_of_errors::<T>());
        // Unbiased errors reach one step instead of half a step. Doubling is exact.
        let bound = if is_unbiased { bound + bound } else { bound };
        let limit = T::Wide::nearest(T::MAX_CODE);
        Self { step, inverse: one / step, limit, bound, max }
    }

    /// Returns the code q of the nearest point, up to rounding of x/step.
    #[inline(always)]
    fn code(&self, x: T::Wide) -> T::Wide {
        (x * self.inverse + T::Wide::ROUNDER) - T::Wide::ROUNDER
    }

    /// Returns whether a point may represent a value. NaN has no such point.
    #[inline(always)]
    fn is_within(&self, x: T::Wide, point: T::Wide) -> bool {
        ((x - point).abs() < self.bound) & (point.abs() <= self.max)
    }

    /// Returns the nearest point, or the value itself if it is not on the lattice.
    #[inline(always)]
    fn nearest(&self, x: T::Wide) -> T::Wide {
        let code = self.code(x);
        let point = code * self.step;
        if (code.abs() <= self.limit) & self.is_within(x, point) { point } else { x }
    }

    /// Returns the next code from `code` towards x, the distance from the point of `code` to x, and
    /// the distance between the two points.
    #[inline(always)]
    fn neighbour(&self, code: T::Wide, x: T::Wide) -> (T::Wide, T::Wide, T::Wide) {
        let point = code * self.step;
        let off = x - point;
        let (zero, one) = (T::ZERO.widen(), T::Wide::ONE);
        let next = if off < zero { code - one } else { code + one };
        (next, off.abs(), (next * self.step - point).abs())
    }

    /// Returns one of the two points next to x, chosen by `unit`, a random number between 0 and 1.
    ///
    /// Returns the nearer point if the other may not represent x, and x itself if x is not on the
    /// lattice.
    #[inline(always)]
    fn unbiased(&self, x: T::Wide, unit: T::Wide) -> T::Wide {
        let first = self.code(x);
        let (next, off, width) = self.neighbour(first, x);
        // If codes are large, x/step may be rounded past the next point.
        let code = if off < width { first } else { next };
        let (next, off, width) = self.neighbour(code, x);
        let (near, far) = (code * self.step, next * self.step);
        let picked = if unit * width < off { far } else { near };
        let near = if self.is_within(x, near) { near } else { x };
        let point = if self.is_within(x, picked) { picked } else { near };
        if first.abs() <= self.limit { point } else { x }
    }
}

/// Task that rounds a chunk of values in place: to random neighbours if `UNBIASED`, and with
/// residues if `FEEDBACK`.
struct RoundedChunk<'a, T: Float, const UNBIASED: bool, const FEEDBACK: bool> {
    lattice: RoundingLattice<T>,
    key: u64,
    values: &'a mut [T],
    /// One residue for each value, or none.
    residues: &'a mut [T::Wide],
}

impl<T: Float<Wide: Unit>, const UNBIASED: bool, const FEEDBACK: bool>
    RoundedChunk<'_, T, UNBIASED, FEEDBACK>
{
    #[inline(always)]
    fn round(&self, x: T::Wide, at: usize) -> T::Wide {
        if UNBIASED {
            self.lattice.unbiased(x, T::Wide::unit(self.key, at as u32))
        } else {
            self.lattice.nearest(x)
        }
    }
}

impl<T: Float<Wide: Unit>, const UNBIASED: bool, const FEEDBACK: bool> at_level::Task
    for RoundedChunk<'_, T, UNBIASED, FEEDBACK>
{
    type Output = ();

    #[inline(always)]
    fn run(self) {
        if FEEDBACK {
            let zero = T::ZERO.widen();
            for at in 0..self.values.len().min(self.residues.len()) {
                let (value, residue) = (self.values[at], self.residues[at]);
                let x = value.widen() + residue;
                let sent = T::narrow(self.round(x, at));
                let lost = x - sent.widen();
                // NaN and values beyond the largest one have no rounding error: they stay as they
                // are.
                let is_finite = lost.abs() <= T::Wide::MAX;
                self.values[at] = if is_finite { sent } else { value };
                let residue = if residue.abs() <= T::Wide::MAX { residue } else { zero };
                self.residues[at] = if is_finite { lost } else { residue };
            }
        } else {
            for at in 0..self.values.len() {
                let value = self.values[at];
                let sent = self.round(value.widen(), at);
                // A NaN keeps its bits.
                self.values[at] = if sent.abs() <= T::Wide::MAX { T::narrow(sent) } else { value };
            }
        }
    }
}
