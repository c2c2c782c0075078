//! After a failure, the survivors form a new communicator, and its results have the right bits.
//!
//! Each result is compared with the result of a fresh group of the same ranks. This detects
//! leftover frames of the failed call, and operands of lost ranks.

use foldwire::schedule::{Pairwise, RecursiveDoubling, Ring, Schedule};
use foldwire::transport::TransportErrorKind;
use foldwire::{
    Bound, Call, Communicator, Config, Error, Op, Plan, Rank, SharedCommunicator, Shrink,
};
use foldwire_tests::data;
use foldwire_tests::deadline::{Comm, PATIENT, in_parallel, within_deadline};
use foldwire_tests::join_all::join_all;
use foldwire_tests::wrapped::{Hooks, Wrapped};
use foldwire_threads::{Endpoint, World};
use std::panic::resume_unwind;
use std::sync::Barrier;
use std::task::Poll;
use std::thread;
use std::time::{Duration, Instant};

const COUNT: usize = 30_011;
/// Time that `shrink` waits for a silent rank. A rank on a busy machine answers much sooner.
const PATIENCE: Duration = Duration::from_millis(700);

fn plan() -> Plan {
    Plan::foldwire(Bound::Absolute(1e-3))
}

/// Returns the operand of a rank. `rank` is its number in the first group.
fn operand(rank: usize) -> Vec<f32> {
    data::rough(rank, COUNT)
}

/// Returns the sum that a fresh group of these ranks computes.
fn expected(members: &[usize]) -> Vec<u8> {
    let members = members.to_vec();
    let mut results = World::new(members.len()).frame_bytes(20_000).run(move |mut comm| {
        let mut values = operand(members[comm.rank().index()]);
        comm.all_reduce(&mut values, Op::Sum, &plan()).expect("all ranks agree");
        data::bytes(&values)
    });
    results.pop().expect("a rank")
}

/// Sums the operands of the ranks of `comm`.
fn sum(comm: &mut Comm) -> Result<Vec<u8>, Error> {
    let first = comm.transport_rank(comm.rank()).expect("this rank is a member");
    let mut values = operand(first.index());
    comm.all_reduce(&mut values, Op::Sum, &plan())?;
    Ok(data::bytes(&values))
}

/// Members of a survivor's group, by their numbers in the first group, and their sum.
type SurvivorGroup = (Vec<usize>, Vec<u8>);

/// Lists the members of `comm`, and computes their sum.
fn group(mut comm: Comm) -> Result<SurvivorGroup, Error> {
    let ranks = (0..comm.size()).map(|rank| comm.transport_rank(Rank::new(rank)));
    let ranks = ranks.map(|rank| rank.expect("below the size").index()).collect();
    assert_eq!(comm.transport_rank(Rank::new(comm.size())), None);
    Ok((ranks, sum(&mut comm)?))
}

/// Makes a call, which fails if a rank is missing.
fn fail(comm: &mut Comm, schedule: &'static dyn Schedule) -> Result<(), Error> {
    let mut values = vec![1.5f32; 50_000];
    comm.all_reduce(&mut values, Op::Sum, &plan().with_schedule(schedule)).map(|_| ())
}

fn check(groups: &[(usize, Result<SurvivorGroup, Error>)], members: &[usize], context: &str) {
    let sum = expected(members);
    for (rank, outcome) in groups {
        let (theirs, bytes) = outcome.as_ref().unwrap_or_else(|e| panic!("{context}: {rank}: {e}"));
        assert_eq!(theirs, members, "{context}: rank {rank}");
        assert!(*bytes == sum, "{context}: rank {rank} has another sum");
    }
    assert!(groups.iter().map(|group| &group.0).eq(members), "{context}: {:?}", groups.len());
}

/// Makes the ranks in `lost` panic or leave during a call; the other ranks shrink.
fn survivors(
    size: usize,
    lost: &'static [usize],
    schedule: &'static dyn Schedule,
    panics: bool,
) -> Vec<(usize, Result<SurvivorGroup, Error>)> {
    let outcomes = within_deadline(move || {
        World::new(size).frame_bytes(20_000).try_run(move |mut comm| {
            let rank = comm.rank().index();
            if lost.contains(&rank) {
                let mut values = vec![1.5f32; 50_000];
                let plan = plan().with_schedule(schedule);
                let operation = comm.start(Call::all_reduce(&mut values, Op::Sum), &plan);
                let mut operation = operation.expect("correct");
                for _ in 0..rank + 2 {
                    let _ = operation.poll();
                }
                if panics {
                    resume_unwind(Box::new("on purpose"));
                }
                return None;
            }
            assert!(fail(&mut comm, schedule).is_err(), "a rank is missing");
            // No rank is silent here: the transport reports lost ranks.
            let comm = comm.shrink(PATIENT);
            Some((rank, comm.and_then(group)))
        })
    });
    outcomes.into_iter().filter_map(|outcome| outcome.ok().flatten()).collect()
}

#[test]
fn survivors_of_lost_ranks_go_on_with_the_right_sums() {
    let lost: [(usize, &'static [usize]); 9] = [
        (2, &[0]),
        (2, &[1]),
        (3, &[1]),
        (5, &[0]),
        (5, &[4]),
        (5, &[1, 3]),
        (8, &[2, 3, 7]),
        (4, &[0, 1, 3]),
        (9, &[8, 0, 4, 5]),
    ];
    for (size, lost) in lost {
        for schedule in [&Ring as &'static dyn Schedule, &Pairwise, &RecursiveDoubling] {
            for panics in [false, true] {
                let start = Instant::now();
                let groups = survivors(size, lost, schedule, panics);
                let members: Vec<usize> = (0..size).filter(|rank| !lost.contains(rank)).collect();
                let context = format!("{size} ranks without {lost:?}, {}", schedule.name());
                check(&groups, &members, &context);
                assert!(start.elapsed() < PATIENT / 2, "{context}: {:?}", start.elapsed());
            }
        }
    }
}

#[test]
fn without_lost_ranks_all_are_members_again() {
    for size in [1, 2, 3, 5, 8] {
        for voluntary in [true, false] {
            let outcomes = run_owned(size, move |mut comm| {
                if !voluntary && size > 1 {
                    let count = 1000 + usize::from(comm.rank() == Rank(1));
                    let mut values = vec![1.0f32; count];
                    assert!(comm.all_reduce(&mut values, Op::Sum, &plan()).is_err());
                    assert!(comm.is_poisoned());
                }
                let comm = comm.shrink(PATIENT)?;
                assert!(!comm.is_poisoned());
                group(comm)
            });
            let all: Vec<usize> = (0..size).collect();
            check(&numbered(outcomes), &all, &format!("{size} ranks, voluntary: {voluntary}"));
        }
    }
}

fn numbered<T>(outcomes: Vec<T>) -> Vec<(usize, T)> {
    outcomes.into_iter().enumerate().collect()
}

/// Runs `body` on every rank, and passes it the communicator. Ranks wait for each other before they
/// end, but `body` may close its endpoint earlier.
fn run_owned<R: Send + 'static>(
    size: usize,
    body: impl Fn(Comm) -> R + Send + Sync + 'static,
) -> Vec<R> {
    let barrier = Barrier::new(size);
    within_deadline(move || {
        World::new(size).frame_bytes(20_000).run(|mut comm| {
            comm.config_mut().timeout = PATIENT;
            let result = body(comm);
            barrier.wait();
            result
        })
    })
}

#[test]
fn after_a_cancel_all_ranks_are_members_also_those_that_had_finished() {
    let cancelled = Barrier::new(5);
    let outcomes = run_owned(5, move |mut comm| {
        let rank = comm.rank().index();
        let mut values = operand(rank);
        comm.all_reduce(&mut values, Op::Sum, &plan())?;
        if rank == 3 {
            comm.start(Call::all_reduce(&mut values, Op::Sum), &plan())?.cancel();
        }
        cancelled.wait();
        // A rank that continues learns of the abort in its next call, and may then shrink.
        let next = comm.all_reduce(&mut values, Op::Sum, &plan());
        assert!(matches!(next, Err(Error::Aborted { .. } | Error::Poisoned)), "{next:?}");
        group(comm.shrink(PATIENT)?)
    });
    check(&numbered(outcomes), &[0, 1, 2, 3, 4], "rank 3 cancelled");
}

#[test]
fn ranks_that_were_stopped_shrink_like_others() {
    let sums = World::new(3).run_endpoints(|endpoint| {
        let world = SharedCommunicator::new(endpoint, 1).expect("there are channels");
        let is_stopped = world.rank() == Rank(1);
        if is_stopped {
            world.stopper().stop();
        }
        let mut sum = [1.0_f32; 9];
        let ended = world.all_reduce(&mut sum, Op::Sum, &Plan::raw()).map(drop);
        let is_told = match ended {
            Err(Error::Transport { .. }) => is_stopped,
            Err(Error::Aborted { .. }) => !is_stopped,
            _ => false,
        };
        assert!(is_told, "{ended:?}");
        let world = world.shrink(Duration::from_secs(20), 1).expect("all ranks are there");
        let mut sum = [1.0_f32; 9];
        world.all_reduce(&mut sum, Op::Sum, &Plan::raw()).expect("nothing is wrong");
        // A later stop counts again.
        world.stopper().stop();
        assert!(world.barrier().is_err());
        sum[0]
    });
    assert_eq!(sums, [3.0; 3]);
}

#[test]
fn a_silent_rank_is_excluded_after_the_patience_and_gets_an_error() {
    let cases = [2, 3, 5].into_iter().flat_map(|size| [(size, 0), (size, size - 1)]);
    in_parallel(cases, |(size, silent)| {
        let outcomes = run_owned(size, move |mut comm| {
            let rank = comm.rank().index();
            comm.config_mut().timeout = Duration::from_millis(100);
            if rank == silent {
                thread::sleep(4 * PATIENCE);
                return comm.shrink(PATIENCE).map(|comm| (comm.size(), None));
            }
            assert!(fail(&mut comm, &Ring).is_err(), "a rank is silent");
            let start = Instant::now();
            let mut comm = comm.shrink(PATIENCE)?;
            assert!(start.elapsed() >= PATIENCE && start.elapsed() < 3 * PATIENCE);
            comm.config_mut().timeout = PATIENT;
            Ok((comm.size(), Some(sum(&mut comm)?)))
        });
        let members: Vec<usize> = (0..size).filter(|&rank| rank != silent).collect();
        let sum = expected(&members);
        for (rank, outcome) in outcomes.iter().enumerate() {
            match outcome {
                Err(Error::Excluded { rank: by }) if rank == silent => {
                    assert!(members.contains(&by.index()));
                }
                Ok((n, Some(bytes))) if rank != silent => {
                    assert!(*n == size - 1 && *bytes == sum, "rank {rank}");
                }
                other => {
                    panic!("{size} ranks, {silent} silent: rank {rank}: {:?}", short(other))
                }
            }
        }
    });
}

fn short(outcome: &Result<(usize, Option<Vec<u8>>), Error>) -> Result<usize, Error> {
    outcome.as_ref().map(|(n, _)| *n).map_err(|error| *error)
}

#[test]
fn a_rank_that_comes_late_but_within_the_patience_is_a_member() {
    let outcomes = run_owned(4, |mut comm| {
        if comm.rank() == Rank(2) {
            thread::sleep(Duration::from_millis(600));
        } else {
            comm.config_mut().timeout = Duration::from_millis(100);
            assert!(fail(&mut comm, &Ring).is_err(), "rank 2 is late");
        }
        comm.config_mut().timeout = PATIENT;
        // The late rank's own call fails, because the other ranks have aborted it.
        if comm.rank() == Rank(2) {
            assert!(fail(&mut comm, &Ring).is_err(), "the others gave up");
        }
        group(comm.shrink(PATIENT)?)
    });
    check(&numbered(outcomes), &[0, 1, 2, 3], "rank 2 late");
}

/// Polls `shrink` until it ends, or `n` times.
fn poll_some(shrink: &mut Shrink<Endpoint>, n: usize) -> Option<Result<Comm, Error>> {
    (0..n).find_map(|_| match shrink.poll() {
        Poll::Ready(result) => Some(result),
        Poll::Pending => {
            thread::yield_now();
            None
        }
    })
}

#[test]
fn a_rank_that_dies_or_leaves_while_the_others_shrink_is_left_out() {
    for size in [2, 3, 5] {
        for n_polls in [0, 1, 2, 3, 5, 8, 13, 40] {
            for panics in [true, false] {
                let outcomes = within_deadline(move || {
                    World::new(size).frame_bytes(20_000).try_run(move |comm| {
                        let rank = comm.rank().index();
                        if rank == size / 2 {
                            let mut shrink = comm.start_shrink(PATIENT).expect("a small group");
                            let done = poll_some(&mut shrink, n_polls);
                            if panics {
                                resume_unwind(Box::new("on purpose"));
                            }
                            drop((shrink, done));
                            return None;
                        }
                        // If the group still contains the lost rank, the next call fails, and the
                        // group shrinks again.
                        let mut comm = comm.shrink(PATIENT).expect("the others are there");
                        while let Err(error) = sum(&mut comm) {
                            assert!(!error.is_usage(), "{error}");
                            comm = comm.shrink(PATIENT).expect("the others are there");
                        }
                        Some((rank, group(comm)))
                    })
                });
                let groups: Vec<_> =
                    outcomes.into_iter().filter_map(|o| o.ok().flatten()).collect();
                let members: Vec<usize> = (0..size).filter(|&rank| rank != size / 2).collect();
                check(&groups, &members, &format!("{size} ranks, {n_polls} polls"));
            }
        }
    }
}

#[test]
fn a_shrunk_communicator_shrinks_again_down_to_one() {
    let size = 6;
    let outcomes = within_deadline(move || {
        World::new(size).frame_bytes(20_000).run(|mut comm| {
            let me = comm.rank().index();
            let mut seen = Vec::new();
            // In each round, the first of the remaining ranks leaves.
            for first in 0..size {
                let members: Vec<usize> = (first..size).collect();
                seen.push((members, sum(&mut comm).expect("the remaining ranks")));
                if first == me {
                    break;
                }
                let outcome = fail(&mut comm, &Ring);
                let lost = TransportErrorKind::PeerLost;
                let is_expected = matches!(outcome, Err(Error::Aborted { .. } | Error::Poisoned))
                    || matches!(outcome, Err(Error::Transport { kind, .. }) if kind == lost);
                assert!(is_expected, "{outcome:?}");
                let epoch = comm.epoch();
                comm = comm.shrink(PATIENT).expect("some are left");
                assert_eq!(comm.rank().index(), me - first - 1);
                assert!(comm.epoch() > epoch && (first > 0 || epoch == 0));
            }
            seen
        })
    });
    for (me, seen) in outcomes.into_iter().enumerate() {
        assert_eq!(seen.len(), me + 1);
        for (members, bytes) in seen {
            assert!(bytes == expected(&members), "rank {me} among {members:?}");
        }
    }
}

/// An epoch has 16 bits, but the number of groups is unlimited. Every group around the wrap sums,
/// and one of `every` groups before it.
fn epochs_wrap(every: u32) {
    const WRAP: u32 = 1 << 16;
    let mut comms = World::new(2).communicators();
    for n in 1..=WRAP + 10 {
        let shrinks =
            comms.into_iter().map(|comm| comm.start_shrink(PATIENT).expect("a small group"));
        let shrunk = join_all(shrinks).into_iter().map(|comm| comm.expect("both are there"));
        comms = shrunk.collect();
        assert!(comms.iter().all(|comm| (comm.epoch(), comm.size()) == (n as u16, 2)), "{n}");
        if !n.is_multiple_of(every) && n.abs_diff(WRAP) > 10 {
            continue;
        }
        let mut values = [[n]; 2];
        let sums = comms.iter_mut().zip(&mut values);
        let sums = sums.map(|(comm, x)| {
            comm.start(Call::all_reduce(x, Op::Sum), &Plan::raw()).expect("short")
        });
        assert!(join_all(sums).iter().all(Result::is_ok), "{n}");
        assert_eq!(values, [[2 * n]; 2]);
    }
}

#[test]
fn groups_are_distinguished_from_earlier_ones_after_epochs_wrap() {
    epochs_wrap(64);
}

/// Slow tests. When one fails, a faster test usually fails too.
mod long {
    use super::*;

    #[test]
    fn each_group_is_distinguished_from_earlier_ones_until_epochs_wrap() {
        epochs_wrap(1);
    }
}

#[test]
fn one_thread_can_drive_the_shrinks_of_all_ranks() {
    let mut comms = World::new(4).frame_bytes(20_000).communicators();
    drop(comms.remove(1));
    let shrinks = comms.into_iter().map(|comm| comm.start_shrink(PATIENT).expect("a small group"));
    let mut shrinks: Vec<_> = shrinks.map(|shrink| (shrink, None)).collect();
    for _ in 0..1000 {
        for (shrink, done) in shrinks.iter_mut().filter(|(_, done)| done.is_none()) {
            *done = poll_some(shrink, 1);
        }
    }
    for (new, (mut shrink, done)) in shrinks.into_iter().enumerate() {
        let comm = done.expect("a thousand polls are plenty").expect("three survivors");
        assert_eq!((comm.rank(), comm.size()), (Rank::new(new), 3));
        assert!(matches!(shrink.poll(), Poll::Ready(Err(Error::Finished))));
    }
}

/// Shrinking works with the smallest credit of a link.
#[test]
fn links_of_one_frame_suffice() {
    let outcomes = within_deadline(|| {
        World::new(4).frame_bytes(20_000).link_depth(1).run(|mut comm| {
            if comm.rank() == Rank(3) {
                return None;
            }
            assert!(fail(&mut comm, &Ring).is_err(), "rank 3 is lost");
            Some(group(comm.shrink(PATIENT).expect("three survivors")))
        })
    });
    check(&numbered(outcomes.into_iter().flatten().collect()), &[0, 1, 2], "links of one frame");
}

/// Makes a transport report no lost peers, as with MPI.
struct SilentLoss;

impl Hooks for SilentLoss {
    fn tells_of_loss(&self) -> bool {
        false
    }
}

#[test]
fn a_rank_that_leaves_when_the_others_are_done_is_not_waited_for() {
    let comms = World::new(3).communicators().into_iter().map(|comm| {
        let transport = Wrapped::new(comm.into_transport(), SilentLoss);
        let config = Config::default().with_timeout(PATIENT);
        Communicator::with_config(transport, config).expect("frames as before")
    });
    let shrinks: Vec<_> =
        comms.map(|comm| comm.start_shrink(PATIENT).expect("a small group")).collect();
    let mut shrinks: [_; 3] = shrinks.try_into().expect("three ranks");
    // Rank 2 is the first to send its fences, and is not polled again.
    while !format!("{:?}", shrinks[2]).contains("fencing") {
        for shrink in shrinks.iter_mut().rev() {
            assert!(shrink.poll().is_pending());
        }
    }
    assert!(shrinks[2].poll().is_pending());
    let [first, second, leaving] = shrinks;
    let mut members = [(first, None), (second, None)];
    while members.iter().any(|(_, done)| done.is_none()) {
        for (shrink, done) in members.iter_mut().filter(|(_, done)| done.is_none()) {
            if let Poll::Ready(group) = shrink.poll() {
                *done = Some(group.expect("the fences of all are there"));
            }
        }
    }
    drop(leaving);
    let start = Instant::now();
    for (_, group) in members {
        let mut group = group.expect("done");
        assert_eq!(group.size(), 3);
        let outcome = group.broadcast(&mut [0.0f32; 10], Rank(2), &plan()).map(|_| ());
        assert!(matches!(outcome, Err(Error::Aborted { .. })), "{outcome:?}");
    }
    assert!(start.elapsed() < PATIENT / 2, "{:?}", start.elapsed());
}
