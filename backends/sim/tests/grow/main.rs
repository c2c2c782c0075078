//! Groups that lose ranks and take in newcomers, on the simulated network: whatever goes wrong at
//! whatever moment, every process ends in time, with the right sums of its group or a typed error,
//! and no two groups mix.
//!
//! `FOLDWIRE_GROW_SEEDS=1000000 cargo test --release -p foldwire-sim --test grow long::` runs as
//! many seeds; `FOLDWIRE_GROW_FIRST` is the first one.

#![allow(unreachable_pub, reason = "modules of one test program")]

mod judge;
mod network;
mod scenario;

use foldwire_sim::NetSettings;
use judge::judge;
use scenario::{Scenario, run};
use std::collections::BTreeMap;
use std::env;
use std::time::Duration;

/// Seeds of the short test.
const N_SEEDS: u64 = 400;
/// Seeds of the long test, unless the environment says more.
const N_LONG_SEEDS: u64 = 4000;

type Tally = BTreeMap<&'static str, u64>;

fn check(seeds: std::ops::Range<u64>) -> Tally {
    check_drawn(seeds, Scenario::draw)
}

fn check_drawn(seeds: std::ops::Range<u64>, draw: impl Fn(u64) -> Scenario) -> Tally {
    let mut tally = Tally::new();
    for seed in seeds {
        let scenario = draw(seed);
        let record = run(&scenario);
        match judge(&scenario, &record) {
            Ok(seen) => seen.into_iter().for_each(|what| *tally.entry(what).or_default() += 1),
            Err(why) => panic!("seed {seed}: {why}\n{scenario:#?}\n{record:#?}"),
        }
    }
    tally
}

#[test]
fn whoever_leaves_or_joins_at_whatever_moment_groups_do_not_mix_and_nobody_hangs() {
    let tally = check(0..N_SEEDS);
    for what in ["grew", "shrank and grew", "leader died", "newcomer died", "nobody came"] {
        assert!(tally.get(what).is_some_and(|&n| n >= 10), "{what}: {tally:?}");
    }
}

/// Two processes that cannot reach each other may be left out, but the same holds.
#[test]
fn links_that_fail_do_not_mix_groups_and_nobody_hangs() {
    let tally = check_drawn(0..N_SEEDS / 2, Scenario::with_cut_links);
    for what in ["grew", "shrank and grew", "work done"] {
        assert!(tally.get(what).is_some_and(|&n| n >= 10), "{what}: {tally:?}");
    }
}

/// A member that misses the plan connects late. While it waits for a dead member, others must not
/// vote it out.
#[test]
fn who_connects_late_beside_a_dead_member_is_not_left_out() {
    for seed in [3616, 12601, 121_420, 151_946, 201_138] {
        check(seed..seed + 1);
    }
}

/// A survivor dies before it has handed on the number of the leader's attempt. Without a call after
/// that, the leader would go on alone: the others would not look for its plan.
#[test]
fn a_death_while_the_attempt_is_handed_on_does_not_split_the_survivors() {
    check(3730..3731);
}

/// A rank dies when it has sent its fences to some: the others go on to the next epoch. One that
/// has all fences, but no credit to send its own, must notice.
#[test]
fn who_waits_for_credit_for_a_fence_follows_to_the_next_epoch() {
    check(278_100..278_101);
}

/// A process leaves one half of a network that has split, and the other half takes it in.
#[test]
fn a_process_may_go_from_one_half_of_a_split_network_to_the_other() {
    check_drawn(10_540_842..10_540_843, Scenario::with_cut_links);
}

/// Survivors wait for a newcomer many times as long as they wait for each other.
#[test]
fn a_short_patience_does_not_end_the_wait_for_a_newcomer() {
    let drawn = Scenario::draw(0);
    let scenario = Scenario {
        size: 3,
        n_newcomers: 1,
        arrivals: vec![Duration::from_secs(2)],
        grows_at: vec![3],
        wanted: 4,
        limit: Duration::from_secs(4),
        patience: Duration::from_millis(20),
        leavers: Vec::new(),
        faults: Vec::new(),
        stranger: None,
        junk: Vec::new(),
        net: NetSettings { jump: Duration::from_millis(1), frames_per_rank: 28, ..drawn.net },
        ..drawn
    };
    let record = run(&scenario);
    let seen = judge(&scenario, &record).expect("a right run");
    assert!(seen.contains(&"grew") && seen.contains(&"work done"), "{seen:?}\n{record:#?}");
}

#[test]
fn a_seed_replays_exactly() {
    for seed in 0..20 {
        let scenario = Scenario::draw(seed);
        assert_eq!(run(&scenario), run(&scenario), "seed {seed}");
    }
}

/// Slow tests.
mod long {
    use super::*;

    fn number(name: &str, default: u64) -> u64 {
        env::var(name).map_or(default, |text| text.parse().expect("a number"))
    }

    #[test]
    fn many_seeds() {
        let first = number("FOLDWIRE_GROW_FIRST", N_SEEDS);
        let seeds = first..first + number("FOLDWIRE_GROW_SEEDS", N_LONG_SEEDS);
        println!("{:#?}", check(seeds.clone()));
        // A tenth with links that fail.
        let n_cut = (seeds.end - seeds.start) / 10;
        println!("{:#?}", check_drawn(first..first + n_cut, Scenario::with_cut_links));
    }
}
