//! The soak over a fixed range of seeds; `cargo xtask soak` runs more.

use foldwire_tests::soak::{Tally, replay, run};

/// In each run of the tests.
const N_SEEDS: u64 = 10_000;

#[test]
fn whatever_goes_wrong_every_rank_gets_the_right_result_or_a_typed_error_in_time() {
    let mut tally = Tally::default();
    for seed in 0..N_SEEDS {
        let verdict = run(seed);
        if let Some(failure) = verdict.failure {
            panic!("{failure}\n{}\ncargo xtask soak --seed {seed}", replay(seed).trace);
        }
        tally += verdict.tally;
    }
    println!("{tally:#?}");
}
