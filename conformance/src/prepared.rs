//! Prepared calls (persistent collectives in MPI): each start gives the same bits as the full call.
//!
//! A *full call* is one that is not prepared: it checks its arguments and scans its data.
//! Preparation does both once. It also turns a bound that refers to the data into an absolute
//! bound, which later starts keep.

use crate::Backend;
use crate::data;
use crate::suite::{Make, PATIENT};
use foldwire::{
    Bound, Call, Communicator, Error, Op, Plan, Prepared, Rank, Report, Scope, Transport, pipeline,
};
use std::thread;
use std::time::Duration;

/// Number of starts of each call.
const N_STARTS: usize = 3;

/// A delay longer than the time after which a waiting rank queries its peers about their calls.
const LATE: Duration = Duration::from_millis(5);

/// Prepares several kinds of calls together, and starts them in turn between full calls. `make`
/// takes the bytes of a frame, or `None` for the backend's default.
pub(crate) fn prepared(make: &Make<'_>, size: usize) {
    let plans = [
        Plan::raw(),
        Plan::foldwire(Bound::Absolute(1e-3)),
        Plan::foldwire(Bound::Relative(1e-3)),
        Plan::foldwire(Bound::Psnr(60.0)).with_pipeline(pipeline::PER_HOP),
    ];
    for (plan, count) in plans.iter().zip([3, 10_007, 10_007, size]) {
        let outcomes = make(Some(20_000)).run(size, |mut comm| -> Result<(), Error> {
            comm.config_mut().timeout = PATIENT;
            start_all(&mut comm, plan, count)?;
            for plan in [*plan, Plan::foldwire(Bound::Absolute(1e-3)).with_scope(Scope::Result)] {
                start_after_zeros(&mut comm, &plan, count)?;
            }
            refuse(&mut comm, plan, count)
        });
        for (rank, outcome) in make(None).ranks(size).zip(outcomes) {
            assert_eq!(outcome, Ok(()), "{size} ranks, {count} values: rank {rank}");
        }
    }
}

/// Plan with which a full call gives the same bits as the prepared one.
fn plan_of(plan: &Plan, prepared: &Prepared<'_, f32>) -> Plan {
    match prepared.report().bound {
        // The plan is exact, or all values are equal, so that their range is 0.
        0.0 => *plan,
        bound => plan.with_bound(Bound::Absolute(bound)),
    }
}

/// Prepares the calls, and compares each start with a full call on the same values.
fn start_all<X: Transport>(
    comm: &mut Communicator<X>,
    plan: &Plan,
    count: usize,
) -> Result<(), Error> {
    let (size, rank) = (comm.size(), comm.rank());
    let (root, share) = (Rank::new(size - 1), comm.share(count));
    let values = |start: usize| data::smooth::<f32>(rank.index() + start * size, count);
    let counts: Vec<usize> = (0..size).map(|rank| (count + rank) % 5 * 40).collect();
    let n_all: usize = counts.iter().sum();
    let part = |values: &[f32]| -> Vec<f32> {
        values.iter().cycle().take(counts[rank.index()]).copied().collect()
    };
    let larger = |a: f32, b: f32| a.max(b);

    let mut first = values(0);
    let mut room = vec![0.0; n_all.max(count + size * size)];
    let sum = comm.prepare(Call::all_reduce(&mut first, Op::Sum), plan)?;
    let scatter = {
        let recv = &mut room[..share.len()];
        comm.prepare(Call::reduce_scatter(&first, recv, Op::Avg), plan)?
    };
    let front = comm.prepare(Call::reduce_scatter_to_front(&mut first, Op::Avg), plan)?;
    let gather =
        comm.prepare(Call::all_gather_v(&part(&first), &mut room[..n_all], &counts), plan)?;
    let broadcast = comm.prepare(Call::broadcast(&mut first, root), plan)?;
    let scan = comm.prepare(Call::scan(&mut first, Op::User(&larger)), &Plan::raw())?;
    assert_eq!(first, values(0), "what a call is prepared with is not written");

    if rank == Rank(0) {
        // Meanwhile the other ranks query this rank's call, and must understand the answer.
        thread::sleep(LATE);
    }
    for start in 1..=N_STARTS {
        let mut data = values(start);
        let (mut mine, mut full) = (data.clone(), data.clone());
        let report = sum.run(comm, &mut mine[..])?;
        check(&report, &sum);
        comm.all_reduce(&mut full, Op::Sum, &plan_of(plan, &sum))?;
        same(&mine, &full, "all-reduce");

        let [mut mine, mut full] = [(); 2].map(|()| vec![-7.0; share.len()]);
        check(&scatter.run(comm, (&data[..], &mut mine[..]))?, &scatter);
        comm.reduce_scatter(&data, &mut full, Op::Avg, &plan_of(plan, &scatter))?;
        same(&mine, &full, "reduce-scatter");
        let mut mine = data.clone();
        front.run(comm, &mut mine[..])?;
        same(&mine[..share.len()], &full, "reduce-scatter to the front");

        let [mut mine, mut full] = [(); 2].map(|()| vec![-7.0; n_all]);
        let own = part(&data);
        check(&gather.run(comm, (&own[..], &mut mine[..]))?, &gather);
        comm.all_gather_v(&own, &mut full, &counts, &plan_of(plan, &gather))?;
        same(&mine, &full, "all-gather");

        let (mut mine, mut full) = (data.clone(), data.clone());
        let mut operation = broadcast.start(comm, &mut mine[..])?;
        let report = loop {
            if let std::task::Poll::Ready(report) = operation.poll() {
                break report?;
            }
        };
        drop(operation);
        check(&report, &broadcast);
        comm.broadcast(&mut full, root, &plan_of(plan, &broadcast))?;
        same(&mine, &full, "broadcast");

        let mut full = data.clone();
        scan.run(comm, &mut data[..])?;
        comm.scan(&mut full, Op::User(&larger), &Plan::raw())?;
        same(&data, &full, "scan");
    }
    Ok(())
}

/// Prepares a call on zeros, as in a buffer that has just been allocated, and starts it on other
/// values. The bounds of the preparation hold for them.
fn start_after_zeros<X: Transport>(
    comm: &mut Communicator<X>,
    plan: &Plan,
    count: usize,
) -> Result<(), Error> {
    let mut data = vec![0.0; count];
    let sum = comm.prepare(Call::all_reduce(&mut data, Op::Sum), plan)?;
    let operands: Vec<Vec<f32>> = (0..comm.size()).map(|rank| data::smooth(rank, count)).collect();
    data.copy_from_slice(&operands[comm.rank().index()]);
    let report = sum.run(comm, &mut data[..])?;
    check(&report, &sum);
    let allowed = report.worst_case.expect("a sum has a bound");
    for (i, &x) in data.iter().enumerate() {
        let values = || operands.iter().map(|operand| f64::from(operand[i]));
        // Each addition rounds once.
        let rounding =
            comm.size() as f64 * f64::from(f32::EPSILON) * values().map(f64::abs).sum::<f64>();
        let error = (f64::from(x) - values().sum::<f64>()).abs();
        assert!(error <= allowed + rounding, "{plan:?}, value {i}: {error} beyond {allowed}");
    }
    Ok(())
}

/// Checks that a start keeps the bounds of the preparation, without another scan of the data.
fn check(report: &Report, prepared: &Prepared<'_, f32>) {
    let set = prepared.report();
    assert_eq!((report.bound, report.worst_case), (set.bound, set.worst_case));
}

fn same(mine: &[f32], full: &[f32], what: &str) {
    assert_eq!(data::bits(mine), data::bits(full), "{what}: prepared, and in full");
}

/// Starts a prepared call with buffers that do not match the preparation. That is a usage error,
/// after which the call can still be started with matching buffers.
fn refuse<X: Transport>(
    comm: &mut Communicator<X>,
    plan: &Plan,
    count: usize,
) -> Result<(), Error> {
    let mut data = vec![1.0f32; count];
    let sum = comm.prepare(Call::all_reduce(&mut data, Op::Sum), plan)?;
    let send = data.clone();
    let apart = sum.run(comm, (&send[..], &mut data[..]));
    assert_eq!(apart, Err(Error::NotAsPrepared));
    let short = sum.run(comm, &mut data[1..]);
    assert!(matches!(short, Err(Error::Length { .. })), "{short:?}");
    sum.run(comm, &mut data[..])?;
    Ok(())
}
