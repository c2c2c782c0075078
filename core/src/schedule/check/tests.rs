//! Every schedule passes the checker at every size, and costs what its documentation says.

mod faults;

use alloc::string::ToString;
use alloc::vec;
use alloc::vec::Vec;

use super::{Fault, Summary, check, messages};
use crate::schedule::{
    ALL, Binomial, Bruck, Chain, Circulant, Collective, DoubleTree, Linear, Pairwise, Part,
    PrefixDoubling, ProgramSpec, RecursiveDoubling, RecursiveHalving, ReduceScatterGather, Ring,
    ScatterAllGather, Schedule, SourceRows, Step, program,
};
use crate::transport::Rank;

const LARGE_SIZES: [usize; 6] = [100, 127, 128, 129, 257, 1000];

fn call(collective: Collective, size: usize, root: usize) -> ProgramSpec {
    ProgramSpec::new(collective, size, Rank::new(root))
}

fn roots(collective: Collective, size: usize) -> Vec<usize> {
    use Collective::{Broadcast, Gather, Reduce, Scatter};
    if !matches!(collective, Broadcast | Scatter | Gather | Reduce) {
        return vec![0];
    }
    if size <= 16 {
        return (0..size).collect();
    }
    vec![0, 1, size / 2, size - 1]
}

/// Values of `max_run` to test; only scatter and gather depend on it.
fn max_runs(collective: Collective) -> &'static [u16] {
    use Collective::{Gather, Scatter};
    if matches!(collective, Scatter | Gather) { &[1, 2, 3, 4, 8, u16::MAX] } else { &[1] }
}

/// All calls of these sizes that `schedule` supports.
fn calls(schedule: &dyn Schedule, sizes: impl Iterator<Item = usize> + Clone) -> Vec<ProgramSpec> {
    let supported = Collective::ALL.into_iter().filter(|&c| schedule.supports(c));
    supported
        .flat_map(|c| {
            let with_root = move |n, root| {
                let with_runs = move |&max_run| {
                    let call = call(c, n, root).with_runs(max_run);
                    // Only a scatter's root can encode before it sends.
                    let first = (c == Collective::Scatter).then(|| call.encoding_first());
                    [call].into_iter().chain(first)
                };
                max_runs(c).iter().flat_map(with_runs)
            };
            let of_size = move |n| roots(c, n).into_iter().flat_map(move |root| with_root(n, root));
            sizes.clone().flat_map(of_size)
        })
        .collect()
}

fn floor_log2(n: usize) -> usize {
    n.ilog2() as usize
}

fn ceil_log2(n: usize) -> usize {
    n.next_power_of_two().ilog2() as usize
}

fn expect_right(schedule: &dyn Schedule, call: ProgramSpec) -> Summary {
    check(schedule, call)
        .unwrap_or_else(|fault| panic!("{} for {call:?}: {fault}", schedule.name()))
}

fn every_schedule_is_right(sizes: impl Iterator<Item = usize> + Clone) {
    for &schedule in ALL {
        for call in calls(schedule, sizes.clone()) {
            // An all-to-all has size² parts, so larger ones take too long.
            if call.collective == Collective::AllToAll && call.size > 129 {
                continue;
            }
            expect_right(schedule, call);
        }
    }
}

#[test]
fn every_schedule_is_right_at_every_even_size() {
    every_schedule_is_right((2..=64).step_by(2).chain([100, 128]));
}

#[test]
fn every_schedule_is_right_at_every_odd_size() {
    every_schedule_is_right((1..=63).step_by(2).chain([127, 129, 257]));
}

/// Takes ten times as long as all smaller sizes together.
mod long {
    use super::*;

    #[test]
    fn every_schedule_is_right_for_a_thousand_ranks() {
        every_schedule_is_right([1000].into_iter());
    }
}

#[test]
fn ring_costs_what_its_documentation_says() {
    for n in (2..=64).chain([100, 257]) {
        let summary = |collective| expect_right(&Ring, call(collective, n, 0));
        for (collective, factor) in
            [(Collective::AllReduce, 2), (Collective::ReduceScatter, 1), (Collective::AllGather, 1)]
        {
            let n_messages = factor * (n - 1);
            let expected = Summary {
                n_steps: n * (n_messages + 1),
                max_steps: n_messages + 1,
                n_messages: n * n_messages,
                n_root_messages: n_messages,
                critical_path: n_messages,
            };
            assert_eq!(summary(collective), expected, "{} of {n}", collective.name());
        }
    }
}

#[test]
fn circulant_graphs_cost_what_their_documentation_says() {
    for n in (2..=64).chain(LARGE_SIZES) {
        for (collective, factor) in
            [(Collective::AllReduce, 2), (Collective::ReduceScatter, 1), (Collective::AllGather, 1)]
        {
            let call = call(collective, n, 0);
            let (summary, messages) = messages(&Circulant, call).expect("a correct schedule");
            let n_rounds = factor * ceil_log2(n);
            assert_eq!(summary.critical_path, n_rounds, "{call:?}");
            assert_eq!(summary.n_messages, n * n_rounds, "{call:?}");
            let n_parts: usize = messages.iter().map(|message| message.n_parts).sum();
            assert_eq!(n_parts, factor * n * (n - 1), "{call:?}: as few as a ring");
        }
    }
}

#[test]
fn recursive_doubling_costs_what_its_documentation_says() {
    for n in (2..=64).chain(LARGE_SIZES) {
        let summary = expect_right(&RecursiveDoubling, call(Collective::AllReduce, n, 0));
        let extra = if n.is_power_of_two() { 0 } else { 2 };
        assert_eq!(summary.critical_path, floor_log2(n) + extra, "{n} ranks");
    }
}

#[test]
fn recursive_halving_costs_what_its_documentation_says() {
    for n in (2..=64).chain(LARGE_SIZES) {
        for (collective, factor) in
            [(Collective::AllReduce, 2), (Collective::ReduceScatter, 1), (Collective::AllGather, 1)]
        {
            let call = call(collective, n, 0);
            let (summary, messages) =
                messages(&RecursiveHalving, call).expect("a correct schedule");
            let extra = match collective {
                _ if n.is_power_of_two() => 0,
                Collective::AllReduce => 4,
                _ => 3,
            };
            assert_eq!(summary.critical_path, factor * floor_log2(n) + extra, "{call:?}");
            for rank in (0..n).map(Rank::new) {
                let sent = messages.iter().filter(|message| message.from == rank);
                let n_parts: usize = sent.map(|message| message.n_parts).sum();
                if n.is_power_of_two() {
                    assert_eq!(n_parts, factor * (n - 1), "{call:?}: as few as a ring");
                }
                // The documented limits, in fifths of the array.
                let fifths = match collective {
                    Collective::ReduceScatter => 5,
                    Collective::AllGather => 12,
                    _ => 17,
                };
                assert!(5 * n_parts <= fifths * n, "{call:?}");
            }
        }
    }
}

#[test]
fn binomial_costs_what_its_documentation_says() {
    for call in calls(&Binomial, (2..=64).chain(LARGE_SIZES)) {
        let n = call.size;
        let block = 1 << call.max_run.ilog2();
        let n_blocks = n.div_ceil(block);
        let (critical_path, n_messages) = match call.collective {
            Collective::Broadcast | Collective::Reduce => (ceil_log2(n), n - 1),
            _ => (
                n_blocks - 1 + ceil_log2(block.min(n)),
                (0..n_blocks).map(|head| head.count_ones() as usize).sum::<usize>() + n - n_blocks,
            ),
        };
        let summary = expect_right(&Binomial, call);
        assert_eq!(summary.critical_path, critical_path, "{call:?}");
        assert_eq!(summary.n_messages, n_messages, "{call:?}");
        if call.collective == Collective::Scatter {
            assert_eq!(summary.n_root_messages, critical_path, "{call:?}");
        }
    }
}

#[test]
fn a_chain_costs_what_its_documentation_says() {
    use Collective::{Broadcast, ExclusiveScan, Reduce, Scan};
    for size in 1..=20 {
        for collective in [Broadcast, Reduce, Scan, ExclusiveScan] {
            let summary = expect_right(&Chain, call(collective, size, 0));
            assert_eq!((summary.n_messages, summary.critical_path), (size - 1, size - 1));
        }
    }
}

#[test]
fn doubling_prefixes_cost_what_their_documentation_says() {
    for n in (1..=64).chain(LARGE_SIZES) {
        let scan = expect_right(&PrefixDoubling, call(Collective::Scan, n, 0));
        assert_eq!(scan.critical_path, ceil_log2(n), "{n} ranks");
        let exclusive = expect_right(&PrefixDoubling, call(Collective::ExclusiveScan, n, 0));
        let rounds = if n > 1 { 1 + ceil_log2(n - 1) } else { 0 };
        assert_eq!(exclusive.critical_path, rounds, "{n} ranks");
    }
}

#[test]
fn a_broadcast_in_two_halves_costs_what_its_documentation_says() {
    for n in (2..=64).chain(LARGE_SIZES) {
        for root in roots(Collective::Broadcast, n) {
            let call = call(Collective::Broadcast, n, root);
            let (summary, messages) =
                messages(&ScatterAllGather, call).expect("a correct schedule");
            assert!(summary.critical_path <= 2 * ceil_log2(n), "{call:?}: {summary:?}");
            let of_root = messages.iter().filter(|message| message.from == call.root);
            let n_parts: usize = of_root.map(|message| message.n_parts).sum();
            assert_eq!(n_parts, 2 * (n - 1), "{call:?}: the array twice, but for a part");
        }
    }
}

#[test]
fn a_reduce_in_two_halves_costs_what_its_documentation_says() {
    for n in (2..=64).chain(LARGE_SIZES) {
        for root in roots(Collective::Reduce, n) {
            let call = call(Collective::Reduce, n, root);
            let (summary, messages) =
                messages(&ReduceScatterGather, call).expect("a correct schedule");
            assert!(summary.critical_path <= 2 * ceil_log2(n), "{call:?}: {summary:?}");
            let to_root = messages.iter().filter(|message| message.to == call.root);
            let n_parts: usize = to_root.map(|message| message.n_parts).sum();
            assert_eq!(n_parts, 2 * (n - 1), "{call:?}: the array twice, but for a part");
        }
    }
}

#[test]
fn a_double_tree_costs_what_its_documentation_says() {
    for n in (2..=64).chain(LARGE_SIZES) {
        for (collective, ways) in
            [(Collective::Broadcast, 1), (Collective::Reduce, 1), (Collective::AllReduce, 2)]
        {
            let call = call(collective, n, 0);
            let (summary, messages) = messages(&DoubleTree, call).expect("a correct schedule");
            // The limit for one round (k = 1). Its two halves leave one after the other.
            assert!(summary.critical_path <= ways * 4 * ceil_log2(n), "{call:?}: {summary:?}");
            assert_eq!(summary.n_messages, ways * 2 * (n - 1), "{call:?}");
            for rank in 0..n {
                // Counted in halves of the array. A rank that sends to two ranks in one tree sends
                // to none in the other.
                let sent = messages.iter().filter(|message| message.from == Rank::new(rank));
                let received = messages.iter().filter(|message| message.to == Rank::new(rank));
                let most = 2 * ways;
                assert!(sent.count() <= most && received.count() <= most, "{call:?}: {rank}");
            }
        }
    }
}

#[test]
fn short_parts_take_as_many_messages_as_there_are_levels() {
    for n in (2..=64).chain(LARGE_SIZES) {
        // If half of all parts fit a message, so do all parts of a subtree.
        for max_run in [n.next_power_of_two() as u16 / 2, n as u16, u16::MAX] {
            let scatter = call(Collective::Scatter, n, n / 3).with_runs(max_run);
            let gather = call(Collective::Gather, n, n / 3).with_runs(max_run);
            let [scatter, gather] = [scatter, gather].map(|call| expect_right(&Binomial, call));
            assert_eq!(scatter.n_root_messages, ceil_log2(n), "{n} ranks");
            assert_eq!(scatter.critical_path, ceil_log2(n), "{n} ranks");
            assert_eq!(gather.critical_path, ceil_log2(n), "{n} ranks");
            assert_eq!((scatter.n_messages, gather.n_messages), (n - 1, n - 1), "{n} ranks");
        }
    }
}

#[test]
fn an_all_to_all_costs_what_its_documentation_says() {
    for n in 2..=33 {
        for schedule in [&Linear as &dyn Schedule, &Pairwise] {
            let summary = expect_right(schedule, call(Collective::AllToAll, n, 0));
            assert_eq!(summary.n_messages, n * (n - 1), "{}", schedule.name());
            // A pairwise exchange takes n turns, because in each turn one or two ranks have no
            // partner.
            let turns = if schedule.name() == "pairwise" && n > 2 { n } else { n - 1 };
            assert_eq!(summary.critical_path, turns, "{} of {n}", schedule.name());
        }
    }
}

#[test]
fn an_all_to_all_in_rounds_costs_what_its_documentation_says() {
    for n in (2..=64).chain([100, 127, 128, 129]) {
        let call = call(Collective::AllToAll, n, 0);
        let (summary, messages) = messages(&Bruck, call).expect("a correct schedule");
        let n_rounds = ceil_log2(n);
        assert_eq!(summary.critical_path, n_rounds, "{n} ranks");
        assert_eq!(summary.n_messages, n * n_rounds, "{n} ranks");
        // A part takes one hop for each set bit in the distance from source to destination.
        let n_hops: usize = (1..n).map(|distance| distance.count_ones() as usize).sum();
        let n_parts: usize = messages.iter().map(|message| message.n_parts).sum();
        assert_eq!(n_parts, n * n_hops, "{n} ranks");
        assert_eq!(Bruck::n_passed(n), n_hops, "{n} ranks");
        assert!(2 * n_hops <= n_rounds * n, "{n} ranks");
        assert!(2 * n_hops == n_rounds * n || !n.is_power_of_two(), "{n} ranks");
        assert!(messages.iter().all(|message| message.n_parts <= n / 2), "{n} ranks");
    }
}
