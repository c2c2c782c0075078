//! Tests that parts, rounds and segments cover the array, and that ranks agree on them.

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
fn a_rank_that_does_not_exist_has_an_empty_share() {
    for count in [0, 5, usize::MAX] {
        for (size, index) in [(0, 0), (0, 3), (2, 2), (2, usize::MAX)] {
            assert_eq!(share(count, size, index), count..count);
        }
        assert_eq!(share(count, 1, 0), 0..count);
    }
}

fn call(collective: Collective, size: usize) -> ProgramSpec {
    ProgramSpec::new(collective, size, Rank(0))
}

fn layout(
    call: ProgramSpec,
    rank: usize,
    shares: Shares<'_>,
    window: Window,
    division: Division,
    max_segment: usize,
    lanes: usize,
) -> Layout<'_> {
    let n_parts = call.collective.n_parts(call.size);
    let cut = Cut { n_parts, division, max_segment, lanes, shortest: 2 };
    Layout::new(call, Rank::new(rank), shares, window, cut)
}

#[test]
fn segments_cover_every_part_and_fit() {
    for (count, size, max_segment) in
        [(0, 3, 10), (1, 3, 10), (100, 3, 10), (100_003, 7, 5000), (9, 1, 100)]
    {
        for (division, lanes) in [(Division::Blocks, 1), (Division::Interleaved, 4)] {
            let call = call(Collective::AllReduce, size);
            let shares = Shares::Even(count);
            let layout = layout(call, 0, shares, Window::Whole, division, max_segment, lanes);
            let mut segments: Vec<_> = (0..size)
                .flat_map(|part| (0..layout.n_rounds()).map(move |round| (part, round)))
                .map(|(part, round)| layout.segment(Part::new(part), round))
                .filter(|segment| segment.len > 0)
                .collect();
            segments.sort_by_key(|segment| segment.input);
            let mut end = 0;
            for segment in segments {
                assert_eq!(segment.in_input(), segment.in_output());
                assert!(segment.input == end && segment.len <= max_segment);
                end = segment.in_input().end;
            }
            assert_eq!(end, count);
        }
    }
}

/// Every rank's parts cover its buffers, and both ends of a part agree on its segments.
#[test]
fn portions_are_covered_and_ranks_agree() {
    let lens = [3, 0, 25, 1];
    // Row r lists the numbers of values that rank r sends to ranks 0 to 3.
    let matrix = [[1, 0, 30, 2], [7, 4, 0, 0], [12, 0, 0, 5], [0, 1, 10, 11]];
    let columns: [[usize; 4]; 4] = core::array::from_fn(|r| matrix.map(|row| row[r]));
    for collective in Collective::ALL {
        for kind in 0..3 {
            let call = call(collective, 4);
            let shares = |rank: usize| match kind {
                0 => Some(Shares::Even(29)),
                1 => (collective != Collective::AllToAll).then_some(Shares::Given(&lens)),
                _ => (collective == Collective::AllToAll)
                    .then_some(Shares::Exchanged { send: &matrix[rank], recv: &columns[rank] }),
            };
            if shares(0).is_none() {
                continue;
            }
            let of = |rank: usize| {
                let shares = shares(rank).unwrap_or(Shares::Even(0));
                (layout(call, rank, shares, Window::Own, Division::Blocks, 4, 1), shares)
            };
            for rank in (0..4).map(Rank::new) {
                let (layout, shares) = of(rank.index());
                for (portion, is_input) in [(call.input(rank), true), (call.output(rank), false)] {
                    let mut covered = std::vec![0; shares.len(portion, 4, rank)];
                    for part in (0..layout.n_parts).map(Part::new) {
                        if !call.has(portion, rank, part) {
                            continue;
                        }
                        for round in 0..layout.n_rounds() {
                            let segment = layout.segment(part, round);
                            let range =
                                if is_input { segment.in_input() } else { segment.in_output() };
                            covered[range].iter_mut().for_each(|n| *n += 1);
                        }
                    }
                    assert!(covered.iter().all(|&n| n == 1), "{call:?} {rank}: {covered:?}");
                }
            }
            for part in (0..of(0).0.n_parts).map(Part::new) {
                let ends = if collective == Collective::AllToAll {
                    let (source, destination) = call.ends_of(part);
                    [source.index(), destination.index()]
                } else {
                    [0, 3]
                };
                let [a, b] = ends.map(|rank| of(rank).0);
                for round in 0..a.n_rounds().min(b.n_rounds()) {
                    assert_eq!(a.segment(part, round).len, b.segment(part, round).len);
                    assert_eq!(a.skips(part, round), b.skips(part, round));
                }
                // A rank with more rounds sends nothing in the additional rounds.
                for (short, long) in [(&a, &b), (&b, &a)] {
                    for round in short.n_rounds()..long.n_rounds() {
                        assert!(long.skips(part, round), "{call:?}, {part}");
                    }
                }
            }
        }
    }
}

#[test]
fn long_parts_give_all_lanes_the_same_number_of_rounds() {
    let call = call(Collective::AllReduce, 8);
    let rounds = |count| {
        let shares = Shares::Even(count);
        layout(call, 0, shares, Window::Whole, Division::Blocks, 61_440, 4).n_rounds()
    };
    assert_eq!(
        [0, 8, 8 * 4096, 8 * 8192 * 3, 8 * 8192 * 4, 8 * 61_440, 8 * 500_000].map(rounds),
        [1, 1, 1, 3, 4, 4, 12]
    );
}
