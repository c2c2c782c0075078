//! All ranks learn of a failure: ranks that wait for a third rank, and ranks that only send. An
//! abort notice does not end calls before the aborted one.

use foldwire::error::{AbortReason, Field};
use foldwire::schedule::{Binomial, Ring};
use foldwire::transport::Tag;
use foldwire::{Bound, Call, Communicator, Config, Error, Op, Plan, Rank};
use foldwire_tests::deadline::{Comm, PATIENT, run, within_deadline};
use foldwire_tests::wrapped::{Hooks, Wrapped};
use foldwire_threads::World;
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::{Duration, Instant};

const LATE: Duration = Duration::from_millis(800);

fn plan() -> Plan {
    Plan::foldwire(Bound::Absolute(1e-3))
}

/// Returns the error of a call that `rank` dropped.
const fn dropped_by(rank: Rank) -> Result<(), Error> {
    Err(Error::Aborted { rank, culprit: rank, reason: AbortReason::Dropped })
}

#[test]
fn who_waits_for_a_late_rank_hears_at_once_that_another_gave_up() {
    for size in [3, 5, 17] {
        let outcomes = run(size, PATIENT, move |comm| {
            let (mut values, ring) = (vec![1.5f32; 50_000], plan().with_schedule(&Ring));
            let start = Instant::now();
            // In a ring, rank 1 waits for rank 0, which does not know of the failure yet.
            match comm.rank().index() {
                0 => thread::sleep(LATE),
                last if last == size - 1 => {
                    comm.start(Call::all_reduce(&mut values, Op::Sum), &ring)?.cancel();
                }
                _ => {}
            }
            let outcome = comm.all_reduce(&mut values, Op::Sum, &ring).map(|_| ());
            assert!(comm.rank() == Rank(0) || start.elapsed() < LATE, "{:?}", start.elapsed());
            outcome
        });
        let context = format!("{outcomes:?}");
        assert_eq!(outcomes[size - 1], Err(Error::Poisoned), "{context}");
        let others = &outcomes[..size - 1];
        assert!(others.iter().all(|o| matches!(o, Err(Error::Aborted { .. }))), "{context}");
    }
}

#[test]
fn a_rank_that_only_sends_hears_of_it_within_a_few_calls() {
    let size = 9;
    let gave_up = Barrier::new(size);
    let outcomes = run(size, PATIENT, move |comm| {
        let (mut values, tree) = (vec![1.5f32; 100], plan().with_schedule(&Binomial));
        if comm.rank().index() == size - 1 {
            comm.start(Call::broadcast(&mut values, Rank(0)), &tree)?.cancel();
        }
        gave_up.wait();
        // Links hold four frames, so flow control alone would stop the root only in its fifth call.
        (0..4).try_for_each(|_| comm.broadcast(&mut values, Rank(0), &tree).map(|_| ()))
    });
    assert!(matches!(outcomes[0], Err(Error::Aborted { .. })), "{outcomes:?}");
    assert!(outcomes.iter().all(Result::is_err), "{outcomes:?}");
}

#[test]
fn a_call_given_up_does_not_end_the_call_before_it() {
    let gave_up = Barrier::new(3);
    let outcomes = run(3, PATIENT, move |comm| -> Result<[Result<(), Error>; 2], Error> {
        let (rank, tree) = (comm.rank(), plan().with_schedule(&Binomial));
        let (send, mut recv) = (vec![1.0f32; 5000], vec![0.0f32; 5000]);
        if rank == Rank(2) {
            gave_up.wait();
        }
        if rank == Rank(1) {
            // Rank 1 only sends. So it can complete the first call and cancel the second before
            // rank 2 makes a call.
            let first = comm.reduce(&send, &mut recv, Op::Sum, Rank(0), &tree).map(|_| ());
            comm.start(Call::all_reduce(&mut recv, Op::Sum), &plan())?.cancel();
            gave_up.wait();
            return Ok([first, Err(Error::Poisoned)]);
        }
        let mut first = comm.start(Call::reduce(&send, &mut recv, Op::Sum, Rank(0)), &tree)?;
        if rank == Rank(0) {
            // This call begins before the cancellation, and ends after it.
            let _ = first.poll();
            gave_up.wait();
        }
        let first = first.wait().map(|_| ());
        if rank == Rank(0) {
            assert!(recv.iter().all(|x| (x - 3.0).abs() < 4e-3), "the sum of three ranks");
        }
        Ok([first, comm.all_reduce(&mut recv, Op::Sum, &plan()).map(|_| ())])
    });
    for (rank, outcome) in outcomes.iter().enumerate() {
        let [first, second] = outcome.expect("correct calls");
        assert_eq!(first, Ok(()), "rank {rank}: {outcomes:?}");
        let told = matches!(second, Err(Error::Aborted { .. } | Error::Poisoned));
        assert!(told, "rank {rank}: {outcomes:?}");
    }
}

/// After rank 0 has found no message of rank 1 on two lanes, waits until rank 1 has sent its
/// messages and an abort notice.
struct NoticeRace {
    sent: Option<Arc<Barrier>>,
}

impl Hooks for NoticeRace {
    fn found_nothing(&mut self, from: Rank, tag: Tag) {
        if from == Rank(1)
            && tag == Tag(1)
            && let Some(sent) = self.sent.take()
        {
            sent.wait();
            sent.wait();
        }
    }
}

#[test]
fn what_came_just_before_a_notice_is_not_missed() {
    let sent = Arc::new(Barrier::new(2));
    let world = World::new(2).frame_bytes(1024);
    let [receiver, sender] = world.communicators().try_into().expect("two ranks");
    let config = Config::default().with_lanes(2);
    let plan = plan().with_schedule(&Binomial);
    thread::scope(|scope| {
        scope.spawn(|| {
            let (mut comm, mut values) = (sender, [2.0f32; 300]);
            *comm.config_mut() = config;
            // Send after rank 0 has looked for messages.
            sent.wait();
            comm.broadcast(&mut values, Rank(1), &plan).expect("only sends");
            comm.start(Call::broadcast(&mut values, Rank(1)), &plan)
                .expect("a valid call")
                .cancel();
            sent.wait();
        });
        let hooks = NoticeRace { sent: Some(Arc::clone(&sent)) };
        let transport = Wrapped::new(receiver.into_transport(), hooks);
        let mut comm = Communicator::with_config(transport, config).expect("frames as before");
        let mut values = [0.0f32; 300];
        let first = comm.broadcast(&mut values, Rank(1), &plan).map(|_| ());
        assert_eq!(first, Ok(()));
        assert!(values.iter().all(|x| (x - 2.0).abs() <= 1e-3), "what rank 1 sent");
        let second = comm.broadcast(&mut values, Rank(1), &plan).map(|_| ());
        assert_eq!(second, dropped_by(Rank(1)));
    });
}

#[test]
fn of_two_calls_that_were_given_up_the_earlier_one_ends() {
    let [sent, gave_up] = [Barrier::new(2), Barrier::new(3)];
    let outcomes = run(3, PATIENT, move |comm| {
        let tree = plan().with_schedule(&Binomial);
        let (send, mut recv) = (vec![1.0f32; comm.share(300).len()], vec![0.0f32; 300]);
        let mut gather = |comm: &mut Comm| {
            let recv = if comm.rank() == Rank(2) { &mut recv[..] } else { &mut [] };
            comm.gather(300, &send, recv, Rank(2), &tree).map(|_| ())
        };
        let mut outcomes = vec![];
        match comm.rank().index() {
            0 => {
                outcomes.push(gather(comm));
                sent.wait();
                let second = comm.start(Call::gather(300, &send, &mut [], Rank(2)), &tree);
                second.expect("a valid call").cancel();
                sent.wait();
            }
            1 => {
                outcomes.extend([gather(comm), gather(comm)]);
                sent.wait();
                sent.wait();
                // Rank 1 receives rank 0's notice in its third call, and aborts that. Rank 0 has
                // cancelled its second call.
                outcomes.push(gather(comm));
            }
            _ => {}
        }
        gave_up.wait();
        if comm.rank() == Rank(2) {
            outcomes.extend([gather(comm), gather(comm)]);
        }
        outcomes
    });
    let dropped = dropped_by(Rank(0));
    assert_eq!(outcomes[1], [Ok(()), Ok(()), dropped]);
    assert_eq!(outcomes[2], [Ok(()), dropped]);
}

#[test]
fn a_rank_that_counts_its_calls_otherwise_is_not_waited_for_whoever_else_gave_up() {
    let [counted, gave_up] = [Barrier::new(2), Barrier::new(3)];
    let outcomes = run(3, PATIENT, move |comm| {
        let tree = plan().with_schedule(&Binomial);
        let (rank, send) = (comm.rank(), vec![1.0f32; comm.share(300).len()]);
        let mut recv = vec![0.0f32; if rank == Rank(2) { 300 } else { 0 }];
        let mut outcome = Ok(());
        if rank == Rank(1) {
            // Rank 2 takes no part in these calls, in which rank 1 only sends.
            let mut sum = |_| comm.reduce(&send, &mut [], Op::Sum, Rank(0), &tree).map(|_| ());
            outcome = (0..2).try_for_each(&mut sum);
            comm.start(Call::gather(300, &send, &mut [], Rank(2)), &tree)?.cancel();
            counted.wait();
        }
        if rank == Rank(0) {
            outcome = comm.gather(300, &send, &mut recv, Rank(2), &tree).map(|_| ());
            counted.wait();
            comm.start(Call::gather(300, &send, &mut [], Rank(2)), &tree)?.cancel();
        }
        gave_up.wait();
        if rank == Rank(2) {
            // Rank 2 learns that rank 0 cancelled call 2, and rank 1 call 3.
            outcome = comm.gather(300, &send, &mut recv, Rank(2), &tree).map(|_| ());
        }
        outcome
    });
    assert_eq!(outcomes, [Ok(()), Ok(()), dropped_by(Rank(1))]);
}

/// Ranks leave as soon as they have an error. One of them makes a different call.
#[test]
fn who_leaves_after_a_disagreement_has_said_on_what() {
    for round in 0..200 {
        let size = 2 + round % 5;
        let odd = round % size;
        let outcomes = within_deadline(move || {
            World::new(size).frame_bytes(20_000).run(|mut comm| {
                comm.config_mut().timeout = PATIENT;
                let op = if comm.rank().index() == odd { Op::Avg } else { Op::Sum };
                comm.all_reduce(&mut vec![1.5f32; 3000], op, &plan()).map(|_| ())
            })
        });
        for (rank, outcome) in outcomes.iter().enumerate() {
            let Err(error @ Error::Mismatch { field: Field::Op, .. }) = outcome else {
                panic!("rank {rank}, where rank {odd} of {size} differs: {outcomes:?}");
            };
            let [here, there] = if rank == odd { ["avg", "sum"] } else { ["sum", "avg"] };
            let said = error.to_string();
            assert!(said.ends_with(&format!("operation: {there} there, {here} here")), "{said}");
        }
    }
}

/// Errors name the first culprit and its reason, however many ranks forward the notice.
#[test]
fn who_hears_of_a_failure_hears_of_the_first_culprit_and_the_reason() {
    for size in [3, 5, 9] {
        let outcomes = within_deadline(move || {
            World::new(size).run(|mut comm| {
                comm.config_mut().timeout = PATIENT;
                let (mut values, ring) = (vec![1.5f32; 3000], plan().with_schedule(&Ring));
                let is_culprit = comm.rank() == Rank(1);
                let call = comm.start(Call::all_reduce(&mut values, Op::Sum), &ring)?;
                if is_culprit {
                    call.cancel();
                    return Ok(());
                }
                call.wait().map(|_| ())
            })
        });
        for outcome in &outcomes {
            match outcome {
                Ok(()) => {}
                Err(Error::Aborted { culprit: Rank(1), reason: AbortReason::Dropped, .. }) => {}
                other => panic!("{other:?} among {outcomes:?}"),
            }
        }
        assert_eq!(outcomes.iter().filter(|outcome| outcome.is_err()).count(), size - 1);
    }
}
