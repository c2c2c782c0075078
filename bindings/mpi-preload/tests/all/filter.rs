//! Calls that are passed on without an inspection.

use foldwire::Collective::{AllReduce, Broadcast};
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

/// Size of an all-reduce, as an exported function builds it.
fn sum(count: i64, datatype: i32) -> CallSize {
    let mut size = CallSize::default();
    size.values(count);
    size.datatype(Mpich::erase(datatype));
    size
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
