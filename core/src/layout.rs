//! Division of an array into shares of ranks, parts of a schedule and segments of rounds.
//!
//! The engine processes a schedule's parts in *rounds*. In each round, every part contributes one
//! segment, at most as large as fits a frame in the worst case. Shorter parts contribute empty
//! segments in the last rounds, so that every rank sees the same sequence of messages for any
//! count. If no rank knows the lengths of all parts ([`Shares::Exchanged`]), a part has only the
//! rounds that it needs, but at least one.
//!
//! If a part must be a rank's share (reduce-scatter, all-gather, …), it is one contiguous block. An
//! all-reduce may choose its parts freely. Contiguous blocks of real fields compress unequally, and
//! a ring moves at the pace of its largest message. [`Division::Interleaved`] therefore deals
//! neighbouring segments to the parts in turn. All parts then compress to about the same size in
//! every round.

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

/// Returns the share of rank `index` if `count` values are divided among `size` ranks.
///
/// Shares are contiguous and in rank order. The first `count % size` shares are one value longer
/// than the others. A rank that does not exist (`index >= size`) has an empty share,
/// `count..count`.
#[must_use]
pub const fn share(count: usize, size: usize, index: usize) -> Range<usize> {
    if index >= size {
        return count..count;
    }
    let (base, extra) = (count / size, count % size);
    let longer = if index < extra { index } else { extra };
    let start = index * base + longer;
    start..start + base + (index < extra) as usize
}

/// Returns the largest segment length, in values, for which `n_parts` segments always fit a frame
/// of `capacity` bytes.
///
/// # Errors
/// [`Error::FrameTooSmall`] if not even segments of one value fit a frame.
pub fn max_segment(codec: &Sizes, capacity: usize, n_parts: usize) -> Result<usize, Error> {
    let per_value = codec.bytes_per_value();
    let room = bundle::max_segment_bytes(n_parts, capacity.saturating_sub(HEADER_BYTES));
    // Frames may hold partial sums as floats, so the uncompressed values must fit as well.
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

/// Division of the logical array among ranks or parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shares<'a> {
    /// Number of values, divided evenly ([`share`]). In an all-to-all, the number of values that
    /// each rank sends.
    Even(usize),
    /// Length of each rank's share.
    Given(&'a [usize]),
    /// End of each array in a group call whose arrays share frames: each array is a part.
    Arrays(&'a [usize]),
    /// Counts of an all-to-all, known only to this rank.
    Exchanged {
        /// Number of values to each rank.
        send: &'a [usize],
        /// Number of values from each rank.
        recv: &'a [usize],
    },
}

impl Shares<'_> {
    /// Number of values in the logical array; 0 if no rank knows it.
    #[must_use]
    pub fn count(&self) -> usize {
        match self {
            Self::Even(count) => *count,
            Self::Given(lens) => saturating_sum(lens),
            Self::Arrays(ends) => ends.last().copied().unwrap_or(0),
            Self::Exchanged { .. } => 0,
        }
    }

    /// Returns whether each rank knows only its own lengths.
    #[must_use]
    pub const fn is_exchanged(&self) -> bool {
        matches!(self, Self::Exchanged { .. })
    }

    /// Returns share `index` of `n`.
    fn share(&self, n: usize, index: usize) -> Range<usize> {
        match self {
            Self::Even(count) => share(*count, n, index),
            Self::Given(_) if n == 1 => 0..self.count(),
            Self::Given(lens) => range_of(lens, index),
            Self::Arrays(ends) => range_between(ends, index),
            Self::Exchanged { .. } => 0..0,
        }
    }

    /// Number of values in a rank's portion.
    pub(crate) fn len(&self, portion: Portion, size: usize, rank: Rank) -> usize {
        match (portion, self) {
            (Portion::Nothing, _) => 0,
            (Portion::Share, _) => self.share(size, rank.index()).len(),
            (Portion::Row, Self::Exchanged { send: lens, .. })
            | (Portion::Column, Self::Exchanged { recv: lens, .. }) => saturating_sum(lens),
            (Portion::Column, _) => size.saturating_mul(self.share(size, rank.index()).len()),
            (Portion::Whole | Portion::Row, _) => self.count(),
        }
    }

    /// Returns the range of a rank's portion in a buffer that holds the whole array.
    pub(crate) fn within_whole(&self, portion: Portion, size: usize, rank: Rank) -> Range<usize> {
        match portion {
            Portion::Share => self.share(size, rank.index()),
            portion => 0..self.len(portion, size, rank),
        }
    }

    /// Length of the longest part that the rank knows.
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

/// Returns the range of item `index` in a sequence of items of these lengths.
fn range_of(lens: &[usize], index: usize) -> Range<usize> {
    let start = saturating_sum(&lens[..index.min(lens.len())]);
    start..start.saturating_add(lens.get(index).copied().unwrap_or(0))
}

/// Returns the range of item `index` in a sequence of items that end at `ends`.
fn range_between(ends: &[usize], index: usize) -> Range<usize> {
    let start = index.checked_sub(1).and_then(|before| ends.get(before)).copied().unwrap_or(0);
    start..ends.get(index).copied().unwrap_or(start)
}

/// Returns the sum, or `usize::MAX` on overflow: a later check then finds that no buffer is so
/// long.
fn saturating_sum(lens: &[usize]) -> usize {
    lens.iter().fold(0, |sum, len| sum.saturating_add(*len))
}

/// Values that a step moves in one round, and their positions in this rank's buffers.
///
/// A position is meaningful only if the buffer holds the segment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Segment {
    /// Number of values.
    pub len: usize,
    /// Position of the first value in the input.
    pub input: usize,
    /// Position of the first value in the output.
    pub output: usize,
}

impl Segment {
    /// Range of the segment in the input.
    #[must_use]
    pub const fn in_input(&self) -> Range<usize> {
        self.input..self.input + self.len
    }

    /// Range of the segment in the output.
    #[must_use]
    pub const fn in_output(&self) -> Range<usize> {
        self.output..self.output + self.len
    }
}

/// Section of the logical array that a rank's buffers hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Window {
    /// One buffer of the whole array, for input and output, as in calls in place.
    Whole,
    /// Two buffers: the rank's input, and its output.
    Own,
    /// One buffer: the rank's input. Nothing is stored.
    Input,
}

/// Parameters of the division into segments; the same on all ranks.
#[derive(Clone, Copy, Debug)]
pub struct Cut {
    /// Number of parts of the schedule.
    pub n_parts: usize,
    /// Rule by which an all-reduce divides the array into parts.
    pub division: Division,
    /// Largest number of values in a segment ([`max_segment`]).
    pub max_segment: usize,
    /// Number of lanes. Parts are divided so that all lanes have work.
    pub lanes: usize,
    /// Smallest length, in chunks, to which segments are shortened to occupy all lanes
    /// ([`select::shortest`](crate::select::shortest)).
    pub shortest: usize,
}

/// Division of a call's array into parts, and of parts into segments of rounds, as one rank sees
/// it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout<'a> {
    call: ProgramSpec,
    rank: Rank,
    shares: Shares<'a>,
    n_parts: usize,
    segment: usize,
    n_rounds: usize,
    division: Division,
    /// Positions in the logical array at which the buffers begin.
    input_start: usize,
    output_start: usize,
}

impl<'a> Layout<'a> {
    /// Returns the division that `rank` uses in a call.
    #[must_use]
    pub fn new(
        call: ProgramSpec,
        rank: Rank,
        shares: Shares<'a>,
        window: Window,
        cut: Cut,
    ) -> Self {
        let Cut { n_parts, division, max_segment, lanes, shortest } = cut;
        // Whole chunks compress best. Segments shorter than a chunk stay as they are.
        let max_segment =
            if max_segment > CHUNK { max_segment / CHUNK * CHUNK } else { max_segment };
        let longest = shares.longest(n_parts, call);
        // Ranks that do not know each other's lengths can agree only on the largest segment.
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

    /// Returns the same division with `shares`, which must be equal but may have another lifetime.
    #[cfg(feature = "alloc")]
    pub(crate) const fn of_shares<'s>(&self, shares: Shares<'s>) -> Layout<'s> {
        Layout { shares, ..*self }
    }

    /// Number of rounds. It is at least one, so that ranks compare their arguments even in an empty
    /// call.
    #[must_use]
    pub const fn n_rounds(&self) -> usize {
        self.n_rounds
    }

    /// Number of values in the longest segment.
    #[must_use]
    pub fn longest_segment(&self) -> usize {
        self.segment.min(self.shares.longest(self.n_parts, self.call))
    }

    /// Returns whether ranks skip `part` in `round` because the part has ended.
    ///
    /// Ranks that know all lengths never skip: they send the same sequence of messages for any
    /// lengths. Skipping cannot cause a deadlock: sender and receiver skip the same messages, and
    /// an order of messages that is free of deadlock stays so if some messages are left out.
    #[must_use]
    pub fn skips(&self, part: Part, round: usize) -> bool {
        self.shares.is_exchanged() && round > 0 && self.segment(part, round).len == 0
    }

    /// Number of values in the logical array; 0 if no rank knows it.
    #[must_use]
    pub fn count(&self) -> usize {
        self.shares.count()
    }

    /// Returns the length of a part if messages must carry it, because no rank knows all lengths.
    #[must_use]
    pub fn received_len(&self, part: Part) -> Option<usize> {
        self.shares.is_exchanged().then(|| self.part(part).len)
    }

    /// Returns the length of the longest part, if all ranks know it and whole parts fit a frame.
    #[must_use]
    pub fn longest_short_part(&self) -> Option<usize> {
        let is_short = self.n_rounds == 1 && !self.shares.is_exchanged();
        is_short.then(|| self.shares.longest(self.n_parts, self.call))
    }

    /// Returns the segments of a step's parts in `round`.
    #[must_use]
    pub fn run(&self, step: &Step, round: usize) -> Run<'_> {
        Run::new(self, step, round)
    }

    /// Returns the segment of `part` in `round`.
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
                // Each round takes the next stretch of the array, and divides it among the parts.
                let count = self.shares.count();
                let stretch = self.n_parts.saturating_mul(self.segment);
                let start = count.min(round * stretch);
                let piece = share(stretch.min(count - start), self.n_parts, part.index());
                let start = start + piece.start;
                Segment { len: piece.len(), input: start, output: start }
            }
        }
    }

    /// Returns a whole part of a division into blocks.
    fn part(&self, part: Part) -> Segment {
        if self.call.collective != Collective::AllToAll {
            let block = self.shares.share(self.n_parts, part.index());
            // Positions are meaningful only for parts that the buffers hold; others saturate to 0.
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
            // No all-to-all has these shares.
            Shares::Given(_) | Shares::Arrays(_) => Segment::default(),
        }
    }
}

/// Returns the length of segments into which parts are divided; `longest` is the length of the
/// longest part.
///
/// Segments have about equal lengths of at most `max_segment`, in whole chunks if possible. Their
/// number is a multiple of `lanes`, so that all lanes are busy to the end. It is smaller if
/// segments would otherwise be shorter than `shortest` chunks.
fn even_segment(longest: usize, max_segment: usize, lanes: usize, shortest: usize) -> usize {
    let needed = longest.div_ceil(max_segment).max(1);
    let balanced = needed.next_multiple_of(lanes);
    let n_rounds = balanced.min(longest / CHUNK / shortest.max(1)).max(needed);
    longest.div_ceil(n_rounds).next_multiple_of(CHUNK).min(max_segment).max(1)
}

#[cfg(test)]
mod tests;
