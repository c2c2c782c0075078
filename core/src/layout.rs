//! How an array is divided: shares of ranks, parts of a schedule, segments of a round.
//!
//! A schedule's parts are processed in *rounds*: in each round every part contributes one segment,
//! the largest that fits a frame in the worst case. Shorter parts contribute empty segments in the
//! last rounds, so that every rank sees the same sequence of messages whatever the count.
//!
//! Where a part must be a rank's share (reduce-scatter, all-gather, …) it is one contiguous block.
//! An all-reduce is free to choose, and blocks of real fields compress unequally: the ring then
//! moves at the pace of its heaviest part. [`Division::Interleaved`] deals neighbouring segments to
//! the parts in turn, so that all parts weigh about the same in every round.

use crate::codec::Codec;
use crate::element::Element;
use crate::error::Error;
use crate::frame::HEADER_BYTES;
use crate::kernel::CHUNK;
use core::ops::Range;

/// The share of rank `index` when `count` values are divided among `size` ranks: contiguous, in
/// rank order, the first `count % size` shares one value longer than the rest.
#[must_use]
pub const fn share(count: usize, size: usize, index: usize) -> Range<usize> {
    let (base, extra) = (count / size, count % size);
    let longer = if index < extra { index } else { extra };
    let start = index * base + longer;
    start..start + base + (index < extra) as usize
}

/// How an all-reduce divides the array among the parts of its schedule.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Division {
    /// Part p is one block, the share of rank p, as in the published systems.
    #[default]
    Blocks = 0,
    /// Each round takes the next stretch of the array and deals it to the parts.
    Interleaved = 1,
}

impl Division {
    pub(crate) const ALL: [Self; 2] = [Self::Blocks, Self::Interleaved];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Blocks => "blocks",
            Self::Interleaved => "interleaved",
        }
    }
}

/// The largest segment whose frame is sure to fit `capacity` bytes, in values.
pub(crate) fn max_segment<T: Element>(
    codec: &dyn Codec<T>,
    capacity: usize,
) -> Result<usize, Error> {
    let room = capacity.saturating_sub(HEADER_BYTES);
    // Partial sums are kept in frames as floats, so those must fit as well.
    let fits = |n: usize| {
        n * T::BYTES <= room && codec.max_encoded_len(n).is_some_and(|need| need <= room)
    };
    let (mut low, mut high) = (0, room / T::BYTES + 1);
    while high - low > 1 {
        let middle = low.midpoint(high);
        if fits(middle) { low = middle } else { high = middle }
    }
    if low == 0 {
        let need = HEADER_BYTES + codec.max_encoded_len(1).unwrap_or(T::BYTES).max(T::BYTES);
        return Err(Error::FrameTooSmall { need, have: capacity });
    }
    Ok(low)
}

/// The division of one call's array into parts, and of parts into the segments of rounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    count: usize,
    n_parts: usize,
    segment: usize,
    n_rounds: usize,
    division: Division,
}

impl Layout {
    /// The division that a call of `count` values makes by a schedule of `n_parts` parts, in frames
    /// of `capacity` bytes, with `lanes` lanes.
    ///
    /// # Errors
    /// [`Error::FrameTooSmall`] if not even one value fits a frame.
    pub fn for_frames<T: Element>(
        count: usize,
        n_parts: usize,
        codec: &dyn Codec<T>,
        capacity: usize,
        lanes: usize,
        division: Division,
    ) -> Result<Self, Error> {
        let fits = max_segment(codec, capacity)?;
        // Whole chunks encode best; short parts go in one frame anyway.
        let max_segment = if fits > CHUNK { fits / CHUNK * CHUNK } else { fits };
        Ok(Self::new(count, n_parts, max_segment, CHUNK, lanes, division))
    }

    /// Divides `count` values into `n_parts` and those into segments of at most `max_segment`, all
    /// about equally long, and multiples of `unit` where that is possible; into as many as keep all
    /// lanes busy to the end, unless they would get shorter than two units.
    pub(crate) fn new(
        count: usize,
        n_parts: usize,
        max_segment: usize,
        unit: usize,
        lanes: usize,
        division: Division,
    ) -> Self {
        let longest = count.div_ceil(n_parts);
        let needed = longest.div_ceil(max_segment).max(1);
        let balanced = needed.next_multiple_of(lanes);
        let n_rounds = if longest / balanced >= 2 * unit { balanced } else { needed };
        let even = longest.div_ceil(n_rounds).next_multiple_of(unit).min(max_segment).max(1);
        Self { count, n_parts, segment: even, n_rounds: longest.div_ceil(even).max(1), division }
    }

    /// Rounds, at least one, so that even an empty call compares its parameters.
    #[must_use]
    pub const fn n_rounds(&self) -> usize {
        self.n_rounds
    }

    /// Where the segment of `part` in `round` lies in the array.
    #[must_use]
    pub fn segment(&self, part: usize, round: usize) -> Range<usize> {
        match self.division {
            Division::Blocks => {
                let block = share(self.count, self.n_parts, part);
                let start = block.end.min(block.start + round * self.segment);
                start..block.end.min(start + self.segment)
            }
            Division::Interleaved => {
                let stretch = self.n_parts.saturating_mul(self.segment);
                let start = self.count.min(round * stretch);
                let piece = share(stretch.min(self.count - start), self.n_parts, part);
                start + piece.start..start + piece.end
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

    #[test]
    fn shares_cover_the_array_in_order_and_differ_by_one_at_most() {
        for count in [0, 1, 5, 8, 63, 64, 1000] {
            for size in 1..20 {
                let mut end = 0;
                for index in 0..size {
                    let share = share(count, size, index);
                    assert_eq!(share.start, end);
                    assert!((count / size..=count.div_ceil(size)).contains(&share.len()));
                    end = share.end;
                }
                assert_eq!(end, count);
            }
        }
    }

    #[test]
    fn segments_cover_every_part_and_fit() {
        for (count, n_parts, max_segment, unit) in [
            (0, 3, 10, 1),
            (1, 3, 10, 4),
            (100, 3, 10, 4),
            (100_003, 7, 5000, 4096),
            (9, 1, 100, 64),
        ] {
            for (division, lanes) in [(Division::Blocks, 1), (Division::Interleaved, 4)] {
                let layout = Layout::new(count, n_parts, max_segment, unit, lanes, division);
                let mut segments: Vec<_> = (0..n_parts)
                    .flat_map(|part| (0..layout.n_rounds()).map(move |round| (part, round)))
                    .map(|(part, round)| layout.segment(part, round))
                    .filter(|segment| !segment.is_empty())
                    .collect();
                segments.sort_by_key(|segment| segment.start);
                let mut end = 0;
                for segment in segments {
                    assert!(segment.start == end && segment.len() <= max_segment);
                    end = segment.end;
                }
                assert_eq!(end, count);
            }
        }
    }

    #[test]
    fn long_parts_give_all_lanes_the_same_number_of_rounds() {
        let rounds = |count| Layout::new(count, 8, 61_440, 4096, 4, Division::Blocks).n_rounds();
        assert_eq!(
            [0, 8, 8 * 4096, 8 * 8192 * 4, 8 * 61_440, 8 * 500_000].map(rounds),
            [1, 1, 1, 4, 4, 12]
        );
    }
}
