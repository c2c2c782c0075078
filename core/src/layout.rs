//! Who has what, and how an array is divided: shares of ranks, parts of a schedule, segments of a
//! round.
//!
//! A schedule's parts are processed in *rounds*: in each round every part contributes one segment,
//! the largest that fits a frame in the worst case. Shorter parts contribute empty segments in the
//! last rounds, so that every rank sees the same sequence of messages whatever the count. Where no
//! rank knows the lengths of all parts ([`Shares::Exchanged`]), a part has only the rounds that it
//! needs, and one at least.
//!
//! Where a part must be a rank's share (reduce-scatter, all-gather, …) it is one contiguous block.
//! An all-reduce is free to choose, and blocks of real fields compress unequally: the ring then
//! moves at the pace of its heaviest part. [`Division::Interleaved`] deals neighbouring segments to
//! the parts in turn, so that all parts weigh about the same in every round.

use crate::bundle;
use crate::codec::Sizes;
use crate::error::Error;
use crate::frame::HEADER_BYTES;
use crate::kernel::CHUNK;
use crate::schedule::{Collective, Part, Portion, ProgramSpec, Step};
use crate::transport::Rank;
use core::ops::Range;

mod run;

pub use crate::schedule::Division;
pub use run::Run;

/// The share of rank `index` when `count` values are divided among `size` ranks: contiguous, in
/// rank order, the first `count % size` shares one value longer than the rest.
#[must_use]
pub const fn share(count: usize, size: usize, index: usize) -> Range<usize> {
    let (base, extra) = (count / size, count % size);
    let longer = if index < extra { index } else { extra };
    let start = index * base + longer;
    start..start + base + (index < extra) as usize
}

/// The largest segment of which `n_parts` in a frame are sure to fit `capacity` bytes, in values.
///
/// # Errors
/// [`Error::FrameTooSmall`] if not even one value of each fits a frame.
pub fn max_segment(codec: &Sizes, capacity: usize, n_parts: usize) -> Result<usize, Error> {
    let per_value = codec.bytes_per_value();
    let room = bundle::max_segment_bytes(n_parts, capacity.saturating_sub(HEADER_BYTES));
    // Partial sums are kept in frames as floats, so those must fit as well.
    let fits = |n: usize| {
        n * per_value <= room && codec.max_encoded_len(n).is_some_and(|need| need <= room)
    };
    let (mut low, mut high) = (0, room / per_value + 1);
    while high - low > 1 {
        let middle = low.midpoint(high);
        if fits(middle) { low = middle } else { high = middle }
    }
    if low == 0 {
        let least = codec.max_encoded_len(1).unwrap_or(per_value).max(per_value);
        let need = HEADER_BYTES + bundle::n_bytes(core::iter::repeat_n(least, n_parts));
        return Err(Error::FrameTooSmall { need, have: capacity });
    }
    Ok(low)
}

/// How many values are whose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shares<'a> {
    /// So many, divided as evenly as can be ([`share`]). In an all-to-all, those of one rank.
    Even(usize),
    /// The length of each rank's share.
    Given(&'a [usize]),
    /// Where each array of a group ends, if several share frames: arrays are parts.
    Arrays(&'a [usize]),
    /// In an all-to-all, what this rank sends to each, and what it receives from each.
    Exchanged {
        /// Values to each rank.
        send: &'a [usize],
        /// Values from each rank.
        recv: &'a [usize],
    },
}

impl Shares<'_> {
    /// Values in the logical array; 0 where no rank knows that.
    #[must_use]
    pub fn count(&self) -> usize {
        match self {
            Self::Even(count) => *count,
            Self::Given(lens) => saturating_sum(lens),
            Self::Arrays(ends) => ends.last().copied().unwrap_or(0),
            Self::Exchanged { .. } => 0,
        }
    }

    /// Whether ranks know only their own lengths.
    #[must_use]
    pub const fn is_exchanged(&self) -> bool {
        matches!(self, Self::Exchanged { .. })
    }

    /// Share `index` of `n`.
    fn share(&self, n: usize, index: usize) -> Range<usize> {
        match self {
            Self::Even(count) => share(*count, n, index),
            Self::Given(_) if n == 1 => 0..self.count(),
            Self::Given(lens) => range_of(lens, index),
            Self::Arrays(ends) => range_between(ends, index),
            Self::Exchanged { .. } => 0..0,
        }
    }

    /// How many values a rank has of this portion.
    pub(crate) fn len(&self, portion: Portion, size: usize, rank: Rank) -> usize {
        match (portion, self) {
            (Portion::Nothing, _) => 0,
            (Portion::Share, _) => self.share(size, rank.index()).len(),
            (Portion::Row, Self::Exchanged { send: lens, .. })
            | (Portion::Column, Self::Exchanged { recv: lens, .. }) => saturating_sum(lens),
            (Portion::Column, _) => size * self.share(size, rank.index()).len(),
            (Portion::Whole | Portion::Row, _) => self.count(),
        }
    }

    /// Where a rank's own portion lies in a buffer that holds the whole array.
    pub(crate) fn within_whole(&self, portion: Portion, size: usize, rank: Rank) -> Range<usize> {
        match portion {
            Portion::Share => self.share(size, rank.index()),
            portion => 0..self.len(portion, size, rank),
        }
    }

    /// Length of the longest part that the rank knows of.
    fn longest(&self, n_parts: usize, call: ProgramSpec) -> usize {
        let longest = |lens: &[usize]| lens.iter().copied().max().unwrap_or(0);
        match self {
            Self::Even(count) if call.collective == Collective::AllToAll => {
                count.div_ceil(call.size)
            }
            Self::Even(count) => count.div_ceil(n_parts),
            Self::Given(_) if n_parts == 1 => self.count(),
            Self::Given(lens) => longest(lens),
            Self::Arrays(ends) => {
                (0..ends.len()).map(|at| range_between(ends, at).len()).max().unwrap_or(0)
            }
            Self::Exchanged { send, recv } => longest(send).max(longest(recv)),
        }
    }
}

/// Where the `index`th of things of these lengths lies.
fn range_of(lens: &[usize], index: usize) -> Range<usize> {
    let start = saturating_sum(&lens[..index.min(lens.len())]);
    start..start.saturating_add(lens.get(index).copied().unwrap_or(0))
}

/// Where the `index`th of things lies that end at `ends`.
fn range_between(ends: &[usize], index: usize) -> Range<usize> {
    let start = index.checked_sub(1).and_then(|before| ends.get(before)).copied().unwrap_or(0);
    start..ends.get(index).copied().unwrap_or(start)
}

/// More than any buffer can have, if that is what a caller says.
fn saturating_sum(lens: &[usize]) -> usize {
    lens.iter().fold(0, |sum, len| sum.saturating_add(*len))
}

/// What a step is about: so many values, and where they lie in the rank's own buffers, if it has
/// them there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Segment {
    /// Values.
    pub len: usize,
    /// The first in the buffer of own values.
    pub input: usize,
    /// The first in the output.
    pub output: usize,
}

impl Segment {
    /// Where it lies among own values.
    #[must_use]
    pub const fn in_input(&self) -> Range<usize> {
        self.input..self.input + self.len
    }

    /// Where it lies in the output.
    #[must_use]
    pub const fn in_output(&self) -> Range<usize> {
        self.output..self.output + self.len
    }
}

/// Which part of the logical array a rank's buffers hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Window {
    /// One buffer of the whole array for both, as calls in place have.
    Whole,
    /// Two, each of just what the rank has and gets.
    Own,
    /// One, of just what the rank has: nothing is stored.
    Input,
}

/// How an array is cut; the same on all ranks.
#[derive(Clone, Copy, Debug)]
pub struct Cut {
    /// Parts of the schedule.
    pub n_parts: usize,
    /// How an all-reduce divides the array among them.
    pub division: Division,
    /// Most values of a segment ([`max_segment`]).
    pub max_segment: usize,
    /// Lanes, which should all have something to do.
    pub lanes: usize,
    /// Chunks of the shortest segments into which parts are divided for the sake of lanes, where
    /// frames hold longer ones ([`select::shortest`](crate::select::shortest)).
    pub shortest: usize,
}

/// The division of one call's array into parts, and of parts into the segments of rounds, as one
/// rank sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout<'a> {
    call: ProgramSpec,
    rank: Rank,
    shares: Shares<'a>,
    n_parts: usize,
    segment: usize,
    n_rounds: usize,
    division: Division,
    /// Where the buffers begin in the logical array.
    input_start: usize,
    output_start: usize,
}

impl<'a> Layout<'a> {
    /// The division that `rank` makes in a call.
    #[must_use]
    pub fn new(
        call: ProgramSpec,
        rank: Rank,
        shares: Shares<'a>,
        window: Window,
        cut: Cut,
    ) -> Self {
        let Cut { n_parts, division, max_segment, lanes, shortest } = cut;
        // Whole chunks encode best; short parts go in one frame anyway.
        let max_segment =
            if max_segment > CHUNK { max_segment / CHUNK * CHUNK } else { max_segment };
        let longest = shares.longest(n_parts, call);
        // Where ranks do not know each other's lengths, they cannot agree on anything better.
        let segment = if shares.is_exchanged() {
            max_segment
        } else {
            even_segment(longest, max_segment, lanes, shortest)
        };
        let start = |portion| match window {
            Window::Whole => 0,
            Window::Own | Window::Input => shares.within_whole(portion, call.size, rank).start,
        };
        let n_rounds = longest.div_ceil(segment).max(1);
        let (input_start, output_start) = (start(call.input(rank)), start(call.output(rank)));
        Self { call, rank, shares, n_parts, segment, n_rounds, division, input_start, output_start }
    }

    /// The same division of equal shares.
    #[cfg(feature = "alloc")]
    pub(crate) const fn of_shares<'s>(&self, shares: Shares<'s>) -> Layout<'s> {
        Layout { shares, ..*self }
    }

    /// Rounds, at least one, so that even an empty call compares its parameters.
    #[must_use]
    pub const fn n_rounds(&self) -> usize {
        self.n_rounds
    }

    /// Values of the longest segment.
    #[must_use]
    pub fn longest_segment(&self) -> usize {
        self.segment.min(self.shares.longest(self.n_parts, self.call))
    }

    /// Whether nothing is sent of `part` in `round`, which is beyond its end. Where all ranks know
    /// all lengths, they rather send the same sequence of messages whatever those are.
    #[must_use]
    pub fn skips(&self, part: Part, round: usize) -> bool {
        self.shares.is_exchanged() && round > 0 && self.segment(part, round).len == 0
    }

    /// Values in the logical array; 0 where no rank knows that.
    #[must_use]
    pub fn count(&self) -> usize {
        self.shares.count()
    }

    /// The length of a part where each message says it, because no rank knows them all.
    #[must_use]
    pub fn told_len(&self, part: Part) -> Option<usize> {
        self.shares.is_exchanged().then(|| self.part(part).len)
    }

    /// The length of the longest part, if all ranks know it and whole parts fit a frame.
    #[must_use]
    pub fn longest_short_part(&self) -> Option<usize> {
        let is_short = self.n_rounds == 1 && !self.shares.is_exchanged();
        is_short.then(|| self.shares.longest(self.n_parts, self.call))
    }

    /// The segments of a step's parts in `round`.
    #[must_use]
    pub fn run(&self, step: &Step, round: usize) -> Run<'_> {
        Run::new(self, step, round)
    }

    /// Where the segment of `part` in `round` lies.
    #[must_use]
    pub fn segment(&self, part: Part, round: usize) -> Segment {
        match self.division {
            Division::Blocks => {
                let part = self.part(part);
                let start = part.len.min(round.saturating_mul(self.segment));
                Segment {
                    len: self.segment.min(part.len - start),
                    input: part.input + start,
                    output: part.output + start,
                }
            }
            Division::Interleaved => {
                let count = self.shares.count();
                let stretch = self.n_parts.saturating_mul(self.segment);
                let start = count.min(round * stretch);
                let piece = share(stretch.min(count - start), self.n_parts, part.index());
                let start = start + piece.start;
                Segment { len: piece.len(), input: start, output: start }
            }
        }
    }

    /// All of a part that is a block.
    fn part(&self, part: Part) -> Segment {
        if self.call.collective != Collective::AllToAll {
            let block = self.shares.share(self.n_parts, part.index());
            // A rank has places only for the parts that it has.
            let input = block.start.saturating_sub(self.input_start);
            let output = block.start.saturating_sub(self.output_start);
            return Segment { len: block.len(), input, output };
        }
        let (source, destination) = self.call.ends_of(part);
        match self.shares {
            Shares::Even(count) => {
                let block = share(count, self.call.size, destination.index());
                let len = block.len();
                Segment { len, input: block.start, output: source.index() * len }
            }
            Shares::Exchanged { send, recv } => {
                let sent = range_of(send, destination.index());
                let received = range_of(recv, source.index());
                let len = if source == self.rank { sent.len() } else { received.len() };
                Segment { len, input: sent.start, output: received.start }
            }
            // No collective has these.
            Shares::Given(_) | Shares::Arrays(_) => Segment::default(),
        }
    }
}

/// The length of segments into which parts, of which `longest` is the longest, are divided: at most
/// `max_segment`, all about equally long, and whole chunks where that is possible; as many as keep
/// all lanes busy to the end, or fewer lanes, where they would get shorter than so many chunks.
fn even_segment(longest: usize, max_segment: usize, lanes: usize, shortest: usize) -> usize {
    let needed = longest.div_ceil(max_segment).max(1);
    let balanced = needed.next_multiple_of(lanes);
    let n_rounds = balanced.min(longest / CHUNK / shortest.max(1)).max(needed);
    longest.div_ceil(n_rounds).next_multiple_of(CHUNK).min(max_segment).max(1)
}

#[cfg(test)]
mod tests;
