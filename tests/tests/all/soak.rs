//! The soak over a fixed range of seeds; `cargo xtask soak` runs more.

use foldwire_sim::Harm;
use foldwire_tests::soak::{SoakTally, replay, run};
use std::ops::Range;

/// Number of seeds in each run of the tests. `cargo xtask deep` continues from there.
const N_SEEDS: u64 = 4000;

/// Slow tests. When one fails, a faster test usually fails too.
mod long {
    use super::*;

    #[test]
    fn whatever_goes_wrong_every_rank_gets_the_right_result_or_a_typed_error_in_time() {
        let mut tally = SoakTally::default();
        for seed in 0..N_SEEDS {
            let verdict = run(seed);
            if let Some(failure) = verdict.failure {
                panic!("{failure}\n{}\ncargo xtask soak --seed {seed}", replay(seed).trace);
            }
            tally += verdict.tally;
        }
        println!("{tally:#?}");
        everything_was_seen(&tally);
    }

    #[test]
    fn hundreds_of_seeds_replay_exactly() {
        replays_exactly(20..300);
    }
}

/// Every kind of trouble must occur, or the soak would not test it.
fn everything_was_seen(tally: &SoakTally) {
    let kinds: Vec<_> = tally.troubles.keys().collect();
    let n_struck: u64 = tally.troubles.values().sum();
    // The kinds of frame damage; six kinds for ranks and links, five for calls.
    assert_eq!(kinds.len(), Harm::ALL.len() + 6 + 5, "{kinds:?}");
    assert!(tally.troubles.values().all(|&n| n > n_struck / 200), "{:?}", tally.troubles);
    assert!(tally.n_messages > 10_000, "{}", tally.n_messages);
    for (form, [n_made, n_succeeded]) in &tally.forms {
        assert!(*n_succeeded > 500 && n_made - n_succeeded > 100, "{form}: {:?}", tally.forms);
    }
    assert_eq!(tally.forms.len(), 3, "{:?}", tally.forms);
    for outcome in [
        "success",
        "disagreement",
        "damaged frame",
        "told by another",
        "stalled",
        "peer lost",
        "shrunk to all",
        "shrunk to survivors",
    ] {
        assert!(tally.outcomes.get(outcome).is_some_and(|&n| n > 100), "{:?}", tally.outcomes);
    }
}

/// Runs are equal to the last event, with or without a trace.
fn replays_exactly(seeds: Range<u64>) {
    for seed in seeds {
        let (first, second, third) = (run(seed), replay(seed), replay(seed));
        assert_eq!(first.digest, second.digest, "seed {seed}");
        assert_eq!(second.trace, third.trace, "seed {seed}");
        assert_eq!(first.tally, second.tally, "seed {seed}");
        assert!(second.trace.lines().count() >= second.tally.n_events as usize, "seed {seed}");
    }
}

#[test]
fn a_seed_replays_exactly() {
    replays_exactly(0..20);
}
