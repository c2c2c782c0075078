//! Rounding own values to the lattice before a call moves them: without bias, and with what
//! earlier calls lost added first.
//!
//! Codecs round to the nearest point of the lattice. That is deterministic, so a value that is
//! always a third of a step comes back as 0 in every step of a training, and its sum never grows.
//! Two remedies need a pass of their own over the caller's values, after the ranks have agreed on
//! the lattice and before the first is encoded:
//!
//! - *Unbiased* (stochastic) rounding takes one of the two points beside a value x, the upper one
//!   with probability (x − lower) / (upper − lower), so that the mean of many is x. An error is
//!   below one step then, not half of one, so the lattice of a bound is half as coarse.
//! - *Error feedback* adds what rounding lost to the value of the next call.
//!
//! What comes out are points of the lattice, which every codec with a lattice encodes exactly, so
//! nothing else in the engine knows of it. Values on no lattice (NaN, infinities, what is far too
//! large) stay as they are.
//!
//! Random numbers are a function of seed, rank and place: the same at any level, for any number of
//! threads, and again.
//!
//! Cost: one pass over this rank's values, as plain loops compiled for each level.
//!
//! Sources: D. Alistarh et al., "QSGD: Communication-efficient SGD via gradient quantization and
//! encoding" (NeurIPS 2017); F. Seide et al., "1-bit stochastic gradient descent" (Interspeech
//! 2014); J. Salmon et al., "Parallel random numbers: as easy as 1, 2, 3" (SC'11).

mod random;
#[cfg(test)]
mod tests;

use crate::bound::{Quantum, Scope};
use crate::codec::Loss;
use crate::element::sealed::Wide;
use crate::element::{DType, Element, Float, with_float};
use crate::error::Error;
use crate::kernel::{CHUNK, Level, at_level};
use crate::layout::Window;
use crate::plan::{Plan, Rounding};
use crate::schedule::Collective;
use crate::transport::Rank;
use bytemuck::{cast_slice, cast_slice_mut};
use random::Unit;

impl Rounding {
    /// As the array at this place of a group call is rounded: by a seed of its own, so that arrays
    /// do not share their random numbers. The first has the seed given.
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

/// What a codec loses by a plan: nothing, to the points of a lattice, or otherwise.
fn is_lossy(plan: &Plan) -> Result<bool, Error> {
    match plan.codec.loss() {
        Loss::None => Ok(false),
        Loss::Bound if plan.bound.is_none() => Ok(false),
        _ if plan.codec.has_lattice() => Ok(true),
        _ => Err(Error::NoLattice { codec: plan.codec }),
    }
}

/// Whether a call by this plan begins with a pass over its values; what is wrong if it cannot.
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
    // Where rounded values go.
    let has_room = match collective {
        Collective::AllReduce | Collective::AllGather => window != Window::Input,
        Collective::ReduceScatter => window == Window::Whole,
        _ => false,
    };
    if is_lossy && !has_room {
        return Err(Error::NoRoomToRound);
    }
    Ok(is_lossy || keeps_feedback)
}

/// Refuses unbiased rounding where nothing can be rounded first: in messages and prepared calls.
pub(crate) fn refuse(plan: &Plan) -> Result<(), Error> {
    if plan.rounding.is_unbiased() && is_lossy(plan)? {
        return Err(Error::NoRoomToRound);
    }
    Ok(())
}

/// The pass over a rank's values that a call begins with.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RoundingPass {
    quantum: Quantum,
    /// Of unbiased rounding: what the keys of chunks are made of.
    stream: Option<u64>,
}

impl RoundingPass {
    pub(crate) fn new(quantum: Quantum, rounding: Rounding, rank: Rank) -> Self {
        let stream = match rounding {
            Rounding::Nearest => None,
            Rounding::Unbiased { seed } => Some(random::stream(seed, rank)),
        };
        Self { quantum, stream }
    }

    /// Rounds values, which are taken from elsewhere first if they are there. What is kept of each
    /// is added before, and becomes what this loses.
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

    /// The same on values of a type that is data, so that it is compiled here. Integers are exact:
    /// nothing is added to them, and nothing is lost.
    fn run_on_bytes(
        &self,
        dtype: DType,
        from: Option<&[u8]>,
        values: &mut [u8],
        residues: Option<&mut [u8]>,
        level: Level,
    ) {
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
        mut residues: Option<&mut [T::Wide]>,
        level: Level,
    ) {
        let points = RoundedPoints::new(self.quantum, self.stream.is_some());
        for (at, values) in values.chunks_mut(CHUNK).enumerate() {
            let places = at * CHUNK..at * CHUNK + values.len();
            if let Some(from) = from {
                values.copy_from_slice(&from[places.clone()]);
            }
            let residues = residues.as_deref_mut().map(|residues| &mut residues[places]);
            let key = self.stream.map(|stream| random::key(stream, at));
            match (key, residues) {
                (Some(key), None) => {
                    let residues = &mut [];
                    at_level::run(
                        level,
                        RoundedChunk::<T, true, false> { points, key, values, residues },
                    );
                }
                (Some(key), Some(residues)) => {
                    at_level::run(
                        level,
                        RoundedChunk::<T, true, true> { points, key, values, residues },
                    );
                }
                (None, Some(residues)) => {
                    let task = RoundedChunk::<T, false, true> { points, key: 0, values, residues };
                    at_level::run(level, task);
                }
                // The codec does that.
                (None, None) => {}
            }
        }
    }
}

/// The points q·step of a lattice, and how far from a value they may be.
#[derive(Clone, Copy)]
struct RoundedPoints<T: Float> {
    step: T::Wide,
    inverse: T::Wide,
    /// Largest |q|; negative where every value is exact.
    limit: T::Wide,
    /// What errors must be below.
    bound: T::Wide,
    /// Largest point.
    max: T::Wide,
}

impl<T: Float> RoundedPoints<T> {
    fn new(quantum: Quantum, is_unbiased: bool) -> Self {
        let (one, max) = (T::Wide::ONE, T::MAX.widen());
        if quantum.is_lossless() {
            let limit = T::Wide::nearest(-1.0);
            return Self { step: one, inverse: one, limit, bound: one, max };
        }
        let (step, bound) = (T::Wide::nearest(quantum.step()), quantum.limit_of_errors::<T>());
        // One step in place of half of one; doubling is exact.
        let bound = if is_unbiased { bound + bound } else { bound };
        let limit = T::Wide::nearest(T::MAX_CODE);
        Self { step, inverse: one / step, limit, bound, max }
    }

    /// q of the nearest point, but for rounding of x/step.
    #[inline(always)]
    fn code(&self, x: T::Wide) -> T::Wide {
        (x * self.inverse + T::Wide::ROUNDER) - T::Wide::ROUNDER
    }

    /// Whether a point may stand for a value. Of NaN none.
    #[inline(always)]
    fn is_within(&self, x: T::Wide, point: T::Wide) -> bool {
        ((x - point).abs() < self.bound) & (point.abs() <= self.max)
    }

    /// The nearest point, or the value itself if that is none of the lattice's.
    #[inline(always)]
    fn nearest(&self, x: T::Wide) -> T::Wide {
        let code = self.code(x);
        let point = code * self.step;
        if (code.abs() <= self.limit) & self.is_within(x, point) { point } else { x }
    }

    /// The next code from `code` towards x; what x is from its point, and from there to the next
    /// one's.
    #[inline(always)]
    fn neighbour(&self, code: T::Wide, x: T::Wide) -> (T::Wide, T::Wide, T::Wide) {
        let point = code * self.step;
        let off = x - point;
        let (zero, one) = (T::ZERO.widen(), T::Wide::ONE);
        let next = if off < zero { code - one } else { code + one };
        (next, off.abs(), (next * self.step - point).abs())
    }

    /// One of the two points beside a value by a number between 0 and 1, the nearest if the other
    /// may not be, or the value itself if it is none of the lattice's.
    #[inline(always)]
    fn unbiased(&self, x: T::Wide, unit: T::Wide) -> T::Wide {
        let first = self.code(x);
        let (next, off, width) = self.neighbour(first, x);
        // Where codes are large, x/step may be rounded past the next point.
        let code = if off < width { first } else { next };
        let (next, off, width) = self.neighbour(code, x);
        let (near, far) = (code * self.step, next * self.step);
        let picked = if unit * width < off { far } else { near };
        let near = if self.is_within(x, near) { near } else { x };
        let point = if self.is_within(x, picked) { picked } else { near };
        if first.abs() <= self.limit { point } else { x }
    }
}

/// A chunk of values, rounded where they are.
struct RoundedChunk<'a, T: Float, const UNBIASED: bool, const CARRIES: bool> {
    points: RoundedPoints<T>,
    key: u64,
    values: &'a mut [T],
    /// As many, or none.
    residues: &'a mut [T::Wide],
}

impl<T: Float<Wide: Unit>, const UNBIASED: bool, const CARRIES: bool>
    RoundedChunk<'_, T, UNBIASED, CARRIES>
{
    #[inline(always)]
    fn round(&self, x: T::Wide, at: usize) -> T::Wide {
        if UNBIASED {
            self.points.unbiased(x, T::Wide::unit(self.key, at as u32))
        } else {
            self.points.nearest(x)
        }
    }
}

impl<T: Float<Wide: Unit>, const UNBIASED: bool, const CARRIES: bool> at_level::Task
    for RoundedChunk<'_, T, UNBIASED, CARRIES>
{
    type Output = ();

    #[inline(always)]
    fn run(self) {
        if CARRIES {
            let zero = T::ZERO.widen();
            for at in 0..self.values.len().min(self.residues.len()) {
                let (own, kept) = (self.values[at], self.residues[at]);
                let x = own.widen() + kept;
                let sent = T::narrow(self.round(x, at));
                let lost = x - sent.widen();
                // Neither of a NaN nor beyond the largest value: those go as they are.
                let is_finite = lost.abs() <= T::Wide::MAX;
                self.values[at] = if is_finite { sent } else { own };
                let kept = if kept.abs() <= T::Wide::MAX { kept } else { zero };
                self.residues[at] = if is_finite { lost } else { kept };
            }
        } else {
            for at in 0..self.values.len() {
                let own = self.values[at];
                let sent = self.round(own.widen(), at);
                // A NaN keeps its bits.
                self.values[at] = if sent.abs() <= T::Wide::MAX { T::narrow(sent) } else { own };
            }
        }
    }
}
