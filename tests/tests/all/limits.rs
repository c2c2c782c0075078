//! Time limits and cancellation: limits of one call, limits of the configuration, `cancel`.
//!
//! Limits belong to one rank. The rank with the limit must end in time, with an error that names
//! the rank it waited for. The other ranks must be notified.

use foldwire::transport::TransportErrorKind;
use foldwire::{Call, Communicator, Config, Error, Op, Rank, Transport};
use foldwire_sim::NetSettings;
use foldwire_tests::deadline::{PATIENT, plan, run, within_deadline};
use foldwire_threads::World;
use std::thread;
use std::time::{Duration, Instant};

const LIMIT: Duration = Duration::from_millis(120);
/// Delay of the late rank; far beyond the limit.
const LATE: Duration = Duration::from_millis(800);

fn told(error: &Error) -> bool {
    let lost = TransportErrorKind::PeerLost;
    matches!(error, Error::Aborted { .. })
        || matches!(error, Error::Transport { kind, .. } if *kind == lost)
}

/// Runs ranks, where rank 0 has a limit and the last rank is late. Returns rank 0's error.
fn limited(
    size: usize,
    limit: fn(&mut foldwire_tests::deadline::Comm, &mut [f32]) -> Result<(), Error>,
) -> Error {
    let outcomes = run(size, PATIENT, move |comm| {
        let mut values = vec![1.5f32; 50_000];
        let start = Instant::now();
        if comm.rank().index() == size - 1 {
            thread::sleep(LATE);
        }
        let outcome = match comm.rank() {
            Rank(0) => limit(comm, &mut values),
            _ => comm.all_reduce(&mut values, Op::Sum, &plan()).map(|_| ()),
        };
        (outcome, start.elapsed())
    });
    for (rank, (outcome, took)) in outcomes.iter().enumerate() {
        let context = format!("rank {rank} of {size}: {outcomes:?}");
        assert!(rank == 0 || outcome.as_ref().is_err_and(told), "{context}");
        assert!(rank == size - 1 || *took < LATE, "{context}");
        // The other ranks may start later than rank 0.
        assert!(rank > 0 || *took >= LIMIT, "{context}");
    }
    outcomes[0].0.expect_err("no rank can finish without the late rank")
}

#[test]
fn a_deadline_ends_a_call_that_waits_and_the_others_are_told() {
    for size in [2, 3, 5] {
        let error = limited(size, |comm, values| {
            let operation = comm.start(Call::all_reduce(values, Op::Sum), &plan())?;
            operation.with_deadline(LIMIT).wait().map(|_| ())
        });
        // In a ring, rank 0 waits for the last rank.
        let last = Rank::new(size - 1);
        assert!(matches!(error, Error::Deadline { rank, .. } if rank == last), "{error:?}");
    }
}

#[test]
fn the_configuration_can_set_a_deadline_for_all_calls() {
    let error = limited(3, |comm, values| {
        comm.config_mut().deadline = Some(LIMIT);
        comm.all_reduce(values, Op::Sum, &plan()).map(|_| ())
    });
    assert!(matches!(error, Error::Deadline { rank: Rank(2), .. }), "{error:?}");
}

#[test]
fn a_stall_limit_can_be_set_for_one_call() {
    let error = limited(3, |comm, values| {
        let operation = comm.start(Call::all_reduce(values, Op::Sum), &plan())?;
        operation.with_timeout(LIMIT).wait().map(|_| ())
    });
    assert!(matches!(error, Error::Stalled { rank: Rank(2), .. }), "{error:?}");
}

#[test]
fn a_deadline_ends_a_call_that_moves_all_the_time() {
    // 8 MB at 4 MB/s take two seconds or more, without long pauses.
    let outcomes = within_deadline(|| {
        World::new(2).frame_bytes(20_000).link_rate(4e6).run(|mut comm| {
            let mut values = vec![1.5f32; 2_000_000];
            comm.config_mut().timeout = PATIENT;
            let start = Instant::now();
            let raw = foldwire::Plan::raw();
            let operation =
                comm.start(Call::all_reduce(&mut values, Op::Sum), &raw).expect("correct");
            (operation.with_deadline(LIMIT).wait(), start.elapsed())
        })
    });
    for (outcome, took) in &outcomes {
        let ended = matches!(outcome, Err(Error::Deadline { .. })) || {
            // The other rank's deadline passed a moment earlier.
            outcome.as_ref().is_err_and(told)
        };
        assert!(ended && *took < Duration::from_secs(1), "{outcomes:?}");
    }
    assert!(outcomes.iter().any(|(o, _)| matches!(o, Err(Error::Deadline { .. }))), "{outcomes:?}");
}

#[test]
fn a_call_that_keeps_its_deadline_is_not_touched_by_it() {
    let outcomes = run(3, PATIENT, |comm| {
        comm.config_mut().deadline = Some(PATIENT);
        let mut values = vec![1.5f32; 50_000];
        (0..20).try_for_each(|_| comm.all_reduce(&mut values, Op::Max, &plan()).map(|_| ()))
    });
    assert!(outcomes.iter().all(Result::is_ok), "{outcomes:?}");
}

#[test]
fn cancelling_a_finished_operation_does_nothing() {
    let outcomes = run(3, PATIENT, |comm| {
        let mut values = vec![1.5f32; 1000];
        let mut operation = comm.start(Call::all_reduce(&mut values, Op::Max), &plan())?;
        while operation.poll().is_pending() {
            thread::yield_now();
        }
        operation.cancel();
        comm.all_reduce(&mut values, Op::Max, &plan())
    });
    assert!(outcomes.iter().all(Result::is_ok), "{outcomes:?}");
}

/// A rank without limits waits for half a year, in a call and in a shrink, on virtual time.
#[test]
fn who_never_gives_up_waits_for_the_late_rank_however_late() {
    let half_a_year = Duration::from_secs(180 * 24 * 3600);
    let net = NetSettings {
        jump: Duration::from_secs(24 * 3600),
        patience: 3 * half_a_year,
        ..NetSettings::default()
    };
    let run = foldwire_sim::World::new(3, 1).net(net).run(async |endpoint| {
        let clock = endpoint.clock();
        let is_late = endpoint.rank() == Rank(2);
        let config = Config::default().with_timeout(Config::NEVER);
        let mut comm = Communicator::with_config(endpoint, config)?;
        let mut values = vec![1.5f32; 5000];
        for _ in 0..2 {
            if is_late {
                clock.sleep(half_a_year).await;
            }
            comm.start(Call::all_reduce(&mut values, Op::Sum), &plan())?.await?;
            let operation = comm.start(Call::all_reduce(&mut values, Op::Sum), &plan())?;
            operation.with_timeout(Config::NEVER).with_deadline(Config::NEVER).await?;
            if is_late {
                clock.sleep(half_a_year / 2).await;
            }
            comm = comm.start_shrink(Config::NEVER)?.await?;
        }
        Ok::<_, Error>(comm.size())
    });
    for end in &run.ends {
        assert_eq!(*end, foldwire_sim::End::Returned(Ok(3)));
    }
    assert!(run.time >= 3 * half_a_year);
}
