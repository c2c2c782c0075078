//! Calls that are passed on without an inspection.

use foldwire::Collective::{
    self, AllGather, AllReduce, AllToAll, Broadcast, Gather, Reduce, ReduceScatter, Scatter,
};
use foldwire_preload::decide::PassReason;
use foldwire_preload::ffi::abi::{Abi, Mpich};
use foldwire_preload::ffi::interceptor::CallSize;
use foldwire_preload::filter::{ALL, CallFilters};

/// MPICH's handle of `MPI_FLOAT`.
const FLOAT: i32 = 0x4c00_040a;
/// Handle of a datatype that the filters do not know.
const MADE: i32 = 0x0c00_0001;

fn number(datatype: i32) -> usize {
    Mpich::erase(datatype).number()
}

/// Size of a call with one count, as an exported function builds it.
fn call(collective: Collective, filters: &CallFilters, count: i64, datatype: i32) -> CallSize {
    let mut size = CallSize::of(collective);
    size.values(filters, count);
    size.datatype(Mpich::erase(datatype));
    size
}

/// Size of an all-reduce.
fn sum(count: i64, datatype: i32) -> CallSize {
    call(AllReduce, &CallFilters::new(), count, datatype)
}

fn passed(filters: &CallFilters) -> u64 {
    filters.passed().map(|(_, n_calls)| n_calls).sum()
}

#[test]
fn short_calls_of_types_that_are_kept_pass_and_are_counted() {
    let filters = CallFilters::new();
    filters.keep_type(number(FLOAT), 4);
    filters.set_threshold(AllReduce, false, (1 << 20, PassReason::Short));
    let filter = filters.of(AllReduce, false);
    assert!(filters.passes(filter, &sum(1, FLOAT)) && filters.passes(filter, &sum(1000, FLOAT)));
    assert!(!filters.passes(filter, &sum(1 << 20, FLOAT)), "it may be long");
    assert!(!filters.passes(filter, &sum(1, MADE)), "nobody knows how long its values are");
    assert!(!filters.passes(filter, &sum(-1, FLOAT)), "MPI is to judge it");
    assert!(filters.passes_bytes(filter, (1 << 20) - 1) && !filters.passes_bytes(filter, 1 << 20));
    assert_eq!(passed(&filters), 3);
}

#[test]
fn shut_gates_count_nothing_and_those_of_which_no_call_is_taken_count_all() {
    let filters = CallFilters::new();
    filters.keep_type(number(FLOAT), 4);
    let filter = filters.of(Broadcast, true);
    assert!(filter.passes_all_uncounted());
    filters.set_threshold(Broadcast, true, (ALL, PassReason::NoGain));
    assert!(!filter.passes_all_uncounted() && filters.passes(filter, &sum(1 << 40, FLOAT)));
    assert!(filters.passes(filter, &sum(1, MADE)), "its size does not matter");
    filters.pass_all_uncounted();
    assert!(filter.passes_all_uncounted() && passed(&filters) == 2);
}

#[test]
fn a_count_of_a_share_is_that_of_all_ranks() {
    let filters = CallFilters::new();
    filters.keep_type(number(FLOAT), 4);
    filters.set_ranks(3, false);
    // An inspection decides by the bytes of all shares. Values of kept types have up to 16 bytes.
    let n = 1000;
    for (collective, n_shares) in [(AllReduce, 1), (Broadcast, 1), (Reduce, 1), (ReduceScatter, 3)]
    {
        let min_bytes = 16 * n * n_shares as u64;
        filters.set_threshold(collective, false, (min_bytes, PassReason::Short));
        let passes = |count: i64| {
            let filter = filters.of(collective, false);
            filters.passes(filter, &call(collective, &filters, count, FLOAT))
        };
        assert!(passes(n as i64 - 1) && !passes(n as i64), "{collective:?}");
        assert!(!passes(-1), "{collective:?}: MPI is to judge it");
    }
    for collective in [AllGather, AllToAll, Gather, Scatter] {
        filters.set_threshold(collective, false, (3 * 16 * n, PassReason::Short));
        let passes = |counts: [i64; 2]| {
            let mut size = CallSize::of(collective);
            counts.into_iter().for_each(|count| size.shares(&filters, count));
            size.datatype(Mpich::erase(FLOAT));
            filters.passes(filters.of(collective, false), &size)
        };
        let n = n as i64;
        assert!(passes([n - 1; 2]) && !passes([n, 0]) && !passes([0, n]), "{collective:?}");
    }
}

#[test]
fn calls_whose_counts_a_rank_may_not_know_are_inspected_unless_all_pass() {
    let filters = CallFilters::new();
    filters.keep_type(number(FLOAT), 4);
    for collective in [Gather, Scatter, AllToAll] {
        let mut size = CallSize::of(collective);
        size.shares(&filters, 1);
        size.counts();
        size.shares(&filters, 1);
        size.datatype(Mpich::erase(FLOAT));
        let filter = filters.of(collective, false);
        filters.set_threshold(collective, false, (ALL - 1, PassReason::Short));
        assert!(!filters.passes(filter, &size), "{collective:?}");
        filters.set_threshold(collective, false, (ALL, PassReason::NoGain));
        assert!(filters.passes(filter, &size), "{collective:?}");
    }
}

#[test]
fn every_call_is_looked_at_while_a_communicator_waits_for_one() {
    let filters = CallFilters::new();
    filters.keep_type(number(FLOAT), 4);
    filters.set_threshold(AllReduce, false, (1 << 20, PassReason::Short));
    let filter = filters.of(AllReduce, false);
    (0..2).for_each(|_| filters.set_setup_due(true));
    filters.set_setup_due(false);
    assert!(!filters.passes(filter, &sum(1, FLOAT)) && !filters.passes_bytes(filter, 4));
    filters.set_setup_due(false);
    assert!(filters.passes(filter, &sum(1, FLOAT)));
    assert!(filters.of(Broadcast, false).passes_all_uncounted());
}
