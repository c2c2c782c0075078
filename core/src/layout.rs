//! How an array is divided: shares of ranks, parts of a schedule, segments of a round.
//!
//! A schedule's parts are processed in *rounds*: in each round every part contributes one segment, the
//! largest that fits a frame in the worst case. Shorter parts contribute empty segments in the last
//! rounds, so that every rank sees the same sequence of messages whatever the count.

use core::ops::Range;

/// The share of rank `index` when `count` values are divided among `size` ranks: contiguous, in rank
/// order, the first `count % size` shares one value longer than the rest.
#[must_use]
pub const fn share(count: usize, size: usize, index: usize) -> Range<usize> {
    let (base, extra) = (count / size, count % size);
    let longer = if index < extra { index } else { extra };
    let start = index * base + longer;
    start..start + base + (index < extra) as usize
}

/// The division of one call's array.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Layout {
    count: usize,
    n_parts: usize,
    segment: usize,
    n_rounds: usize,
}

impl Layout {
    /// Divides `count` values into `n_parts` and those into segments of at most `max_segment`, all
    /// about equally long, and multiples of `unit` where that is possible.
    pub(crate) fn new(count: usize, n_parts: usize, max_segment: usize, unit: usize) -> Self {
        let longest = count.div_ceil(n_parts);
        let n_rounds = longest.div_ceil(max_segment).max(1);
        let even = longest.div_ceil(n_rounds).next_multiple_of(unit).min(max_segment).max(1);
        Self { count, n_parts, segment: even, n_rounds: longest.div_ceil(even).max(1) }
    }

    /// Rounds, at least one, so that even an empty call compares its parameters.
    pub(crate) const fn n_rounds(&self) -> usize {
        self.n_rounds
    }

    /// Where the segment of `part` in `round` lies in the array.
    pub(crate) fn segment(&self, part: usize, round: usize) -> Range<usize> {
        let part = share(self.count, self.n_parts, part);
        let start = part.end.min(part.start + round * self.segment);
        start..part.end.min(start + self.segment)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
            let layout = Layout::new(count, n_parts, max_segment, unit);
            for part in 0..n_parts {
                let whole = share(count, n_parts, part);
                let mut end = whole.start;
                for round in 0..layout.n_rounds() {
                    let segment = layout.segment(part, round);
                    assert!(segment.start == end && segment.len() <= max_segment);
                    end = segment.end;
                }
                assert_eq!(end, whole.end);
            }
        }
    }
}
