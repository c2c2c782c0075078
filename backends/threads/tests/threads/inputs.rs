//! Ranks with their own inputs.

use std::panic::catch_unwind;

use foldwire_threads::World;

#[test]
fn each_rank_owns_its_input() {
    let inputs: Vec<Box<usize>> = (0..5).map(Box::new).collect();
    let ranks = World::new(5).run_with(inputs, |comm, input| (comm.rank().index(), *input));
    assert_eq!(ranks, [0, 1, 2, 3, 4].map(|rank| (rank, rank)));
}

#[test]
fn inputs_for_other_ranks_than_there_are_are_refused() {
    for n_inputs in [0, 2, 4] {
        let run = move || World::new(3).run_with(vec![(); n_inputs], |_, ()| ());
        assert!(catch_unwind(run).is_err(), "{n_inputs} inputs");
    }
}
