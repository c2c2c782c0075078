//! The time between two polls of a rank, or before its first poll, does not count as silence of its
//! peers.
//!
//! One thread drives all ranks, so the order of their messages is known.

use foldwire::schedule::Binomial;
use foldwire::{Bound, Call, Communicator, Error, Plan, Rank, Shrink};
use foldwire_threads::{Endpoint, World};
use std::task::Poll;
use std::thread;
use std::time::Duration;

const LIMIT: Duration = Duration::from_millis(60);
const GAP: Duration = Duration::from_millis(150);

fn shrinks(size: usize) -> Vec<Shrink<Endpoint>> {
    let comms = World::new(size).communicators().into_iter();
    comms.map(|comm| comm.start_shrink(LIMIT).expect("a small group")).collect()
}

/// Polls all shrinks until each rank has its group.
fn groups(mut shrinks: Vec<Shrink<Endpoint>>) -> Vec<Communicator<Endpoint>> {
    let mut groups = vec![];
    // Keep finished groups: a rank that has ended would be left out.
    while !shrinks.is_empty() {
        shrinks.retain_mut(|shrink| match shrink.poll() {
            Poll::Pending => true,
            Poll::Ready(group) => {
                groups.push(group.expect("no rank is excluded"));
                false
            }
        });
    }
    groups
}

#[test]
fn ranks_that_start_to_shrink_and_do_something_else_first_leave_nobody_out() {
    let shrinks = shrinks(3);
    thread::sleep(GAP);
    let sizes: Vec<_> = groups(shrinks).iter().map(Communicator::size).collect();
    assert_eq!(sizes, [3; 3]);
}

#[test]
fn a_rank_that_was_busy_between_two_polls_leaves_out_nobody_who_answers_then() {
    for n_early in 1..3 {
        let mut shrinks = shrinks(3);
        for shrink in &mut shrinks[..n_early] {
            assert!(shrink.poll().is_pending());
        }
        thread::sleep(GAP);
        let sizes: Vec<_> = groups(shrinks).iter().map(Communicator::size).collect();
        assert_eq!(sizes, [3; 3], "{n_early} ranks were busy");
    }
}

/// Broadcasts from rank 0 to rank 1. After `n_polls` polls, rank 1 is not polled for longer than
/// its limit. Then it is polled just before rank 0.
fn broadcast(n_polls: usize) -> Result<(), Error> {
    let plan = Plan::foldwire(Bound::Absolute(1e-3)).with_schedule(&Binomial);
    let [mut root, mut other] = World::new(2).communicators().try_into().expect("two ranks");
    let [mut sent, mut received] = [[3.0f32; 100], [0.0f32; 100]];
    let mut sending = root.start(Call::broadcast(&mut sent, Rank(0)), &plan)?;
    let receiving = other.start(Call::broadcast(&mut received, Rank(0)), &plan)?;
    let mut receiving = receiving.with_timeout(LIMIT);
    for _ in 0..n_polls {
        assert!(receiving.poll().is_pending());
    }
    thread::sleep(GAP);
    loop {
        match receiving.poll() {
            Poll::Ready(result) => return result.map(|_| ()),
            Poll::Pending => drop(sending.poll()),
        }
    }
}

#[test]
fn a_call_that_is_polled_late_or_rarely_does_not_stall() {
    for n_polls in 0..3 {
        assert_eq!(broadcast(n_polls), Ok(()), "after {n_polls} polls");
    }
}
