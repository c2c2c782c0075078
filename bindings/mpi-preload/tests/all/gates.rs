//! Calls that are passed on before anybody looks.

use foldwire::Collective::{AllReduce, Broadcast};
use foldwire_preload::decide::Why;
use foldwire_preload::ffi::abi::{Abi, Mpich};
use foldwire_preload::ffi::door::Weight;
use foldwire_preload::gates::{ALL, Gates};

const FLOAT: i32 = 0x4c00_040a;
const MADE: i32 = 0x0c00_0001;

fn number(datatype: i32) -> usize {
    Mpich::erase(datatype).number()
}

/// An all-reduce, as an entry weighs it.
fn sum(count: i64, datatype: i32) -> Weight {
    let mut weight = Weight::of(AllReduce);
    weight.values(count);
    weight.datatype(Mpich::erase(datatype));
    weight
}

fn passed(gates: &Gates) -> u64 {
    gates.passed().map(|(_, n_calls)| n_calls).sum()
}

#[test]
fn short_calls_of_types_that_are_kept_pass_and_are_counted() {
    let gates = Gates::new();
    gates.keep_type(number(FLOAT), 4);
    gates.open(AllReduce, false, (1 << 20, Why::Short));
    let gate = gates.of(AllReduce, false);
    assert!(gates.passes(gate, &sum(1, FLOAT)) && gates.passes(gate, &sum(1000, FLOAT)));
    assert!(!gates.passes(gate, &sum(1 << 20, FLOAT)), "it may be long");
    assert!(!gates.passes(gate, &sum(1, MADE)), "nobody knows how long its values are");
    assert!(!gates.passes(gate, &sum(-1, FLOAT)), "MPI is to judge it");
    assert!(gates.passes_bytes(gate, (1 << 20) - 1) && !gates.passes_bytes(gate, 1 << 20));
    assert_eq!(passed(&gates), 3);
}

#[test]
fn shut_gates_count_nothing_and_those_of_which_no_call_is_taken_count_all() {
    let gates = Gates::new();
    gates.keep_type(number(FLOAT), 4);
    let gate = gates.of(Broadcast, true);
    assert!(gate.is_shut());
    gates.open(Broadcast, true, (ALL, Why::NoGain));
    assert!(!gate.is_shut() && gates.passes(gate, &sum(1 << 40, FLOAT)));
    gates.shut();
    assert!(gate.is_shut() && passed(&gates) == 1);
}

#[test]
fn every_call_is_looked_at_while_a_communicator_waits_for_one() {
    let gates = Gates::new();
    gates.keep_type(number(FLOAT), 4);
    gates.open(AllReduce, false, (1 << 20, Why::Short));
    let gate = gates.of(AllReduce, false);
    (0..2).for_each(|_| gates.want(true));
    gates.want(false);
    assert!(!gates.passes(gate, &sum(1, FLOAT)) && !gates.passes_bytes(gate, 4));
    gates.want(false);
    assert!(gates.passes(gate, &sum(1, FLOAT)));
    assert!(gates.of(Broadcast, false).is_shut());
}
