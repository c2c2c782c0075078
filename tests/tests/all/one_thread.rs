//! One thread can drive all ranks. Then every run is the same, which helps debuggers and tests.

use foldwire::{
    Bound, Call, Communicator, Error, Float, Op, Operation, Plan, Rank, Report, Transport,
};
use foldwire_tests::data;
use foldwire_threads::{World, drive};
use std::time::Duration;

const SIZE: usize = 5;
const COUNT: usize = 23_456;
const ROOT: Rank = Rank(3);

/// A rank's buffers.
struct RankBuffers<T> {
    send: Vec<T>,
    recv: Vec<T>,
}

type StartCall<X, T> = for<'a> fn(
    &'a mut Communicator<X>,
    &'a mut RankBuffers<T>,
    &Plan,
) -> Result<Operation<'a, X, T>, Error>;

/// Returns every call of a communicator.
fn calls<X: Transport, T: Float>() -> [(&'static str, StartCall<X, T>); 12] {
    [
        ("all_reduce", |comm, b, plan| comm.start(Call::all_reduce(&mut b.send, Op::Sum), plan)),
        ("all_reduce_into", |comm, b, plan| {
            comm.start(Call::all_reduce_into(&b.send, &mut b.recv, Op::Avg), plan)
        }),
        ("reduce_scatter", |comm, b, plan| {
            let n = comm.share(COUNT).len();
            comm.start(Call::reduce_scatter(&b.send, &mut b.recv[..n], Op::Max), plan)
        }),
        ("reduce_scatter_in_place", |comm, b, plan| {
            comm.start(Call::reduce_scatter_in_place(&mut b.send, Op::Prod), plan)
        }),
        ("all_gather", |comm, b, plan| {
            let share = comm.share(COUNT);
            comm.start(Call::all_gather(&b.send[share], &mut b.recv), plan)
        }),
        ("all_gather_in_place", |comm, b, plan| {
            comm.start(Call::all_gather_in_place(&mut b.send), plan)
        }),
        ("broadcast", |comm, b, plan| comm.start(Call::broadcast(&mut b.send, ROOT), plan)),
        ("scatter", |comm, b, plan| {
            let n = comm.share(COUNT).len();
            comm.start(Call::scatter(COUNT, &b.send, &mut b.recv[..n], ROOT), plan)
        }),
        ("gather", |comm, b, plan| {
            let share = comm.share(COUNT);
            comm.start(Call::gather(COUNT, &b.send[share], &mut b.recv, ROOT), plan)
        }),
        ("gather_in_place", |comm, b, plan| {
            let share = comm.share(COUNT);
            match comm.rank() {
                ROOT => comm.start(Call::gather_in_place(&mut b.send), plan),
                _ => comm.start(Call::gather(COUNT, &b.send[share], &mut b.recv, ROOT), plan),
            }
        }),
        ("reduce", |comm, b, plan| {
            comm.start(Call::reduce(&b.send, &mut b.recv, Op::Min, ROOT), plan)
        }),
        ("reduce_in_place", |comm, b, plan| {
            comm.start(Call::reduce_in_place(&mut b.send, Op::Sum, ROOT), plan)
        }),
    ]
}

/// Returns a report without its times.
fn untimed(mut report: Report) -> Report {
    let zero = Duration::ZERO;
    (report.encode, report.fold, report.decode, report.total) = (zero, zero, zero, zero);
    report
}

fn fresh<T: Float>() -> Vec<RankBuffers<T>> {
    let of = |rank| RankBuffers {
        send: data::rough(rank, COUNT),
        recv: vec![T::from_f64(-77.0); COUNT],
    };
    (0..SIZE).map(of).collect()
}

type DrivenOutcome = (Vec<Report>, Vec<(Vec<u8>, Vec<u8>)>);

/// Makes every call once, on one set of communicators.
fn all_calls<T: Float>(plan: &Plan) -> Vec<DrivenOutcome> {
    let mut comms = World::new(SIZE).frame_bytes(9_000).communicators();
    let outcome = |(name, start): (&str, StartCall<_, T>)| {
        let mut buffers = fresh::<T>();
        let operations = comms.iter_mut().zip(&mut buffers);
        let operations = operations.map(|(comm, b)| start(comm, b, plan).expect("a correct call"));
        let reports = drive(operations).into_iter();
        let reports =
            reports.map(|r| untimed(r.unwrap_or_else(|error| panic!("{name}: {error}")))).collect();
        let bytes = buffers.iter().map(|b| (data::bytes(&b.send), data::bytes(&b.recv)));
        (reports, bytes.collect())
    };
    calls().into_iter().map(outcome).collect()
}

fn plans() -> [Plan; 3] {
    [Plan::raw(), Plan::foldwire(Bound::Absolute(1e-3)), Plan::foldwire(Bound::Relative(1e-40))]
}

fn twice_is_the_same<T: Float>() {
    for plan in plans() {
        let (first, second) = (all_calls::<T>(&plan), all_calls::<T>(&plan));
        let names = calls::<foldwire_threads::Endpoint, T>().map(|(name, _)| name);
        for ((first, second), name) in first.iter().zip(&second).zip(names) {
            assert!(first == second, "{name}, {plan:?}");
        }
    }
}

#[test]
fn every_collective_driven_twice_gives_the_same_bits_and_reports() {
    twice_is_the_same::<f32>();
    twice_is_the_same::<f64>();
}

/// Threads change only the timing.
#[test]
fn one_thread_gives_the_bits_and_reports_of_many() {
    for plan in plans() {
        let driven = all_calls::<f32>(&plan);
        let threaded = World::new(SIZE).frame_bytes(9_000).run(|mut comm| {
            let rank = comm.rank().index();
            calls().map(|(_, start)| {
                let mut buffers = fresh::<f32>().swap_remove(rank);
                let operation = start(&mut comm, &mut buffers, &plan).expect("a correct call");
                let report = untimed(operation.wait().expect("a correct call"));
                (report, (data::bytes(&buffers.send), data::bytes(&buffers.recv)))
            })
        });
        for (i, (reports, bytes)) in driven.iter().enumerate() {
            for (rank, outcomes) in threaded.iter().enumerate() {
                assert!(outcomes[i] == (reports[rank], bytes[rank].clone()), "call {i}, {plan:?}");
            }
        }
    }
}

#[test]
fn waiting_for_a_rank_that_is_not_driven_ends_by_the_time_limit() {
    let mut comms = World::new(3).communicators();
    let mut values = vec![vec![1.0f32; 1000]; 2];
    let plan = Plan::foldwire(Bound::Absolute(1e-3));
    for comm in &mut comms {
        comm.config_mut().timeout = Duration::from_millis(50);
    }
    let operations = comms.iter_mut().zip(&mut values);
    let operations = operations
        .map(|(comm, x)| comm.start(Call::all_reduce(x, Op::Sum), &plan).expect("correct"));
    let results = drive(operations);
    assert!(results.iter().all(Result::is_err), "{results:?}");
    assert!(results.iter().any(|r| matches!(r, Err(Error::Stalled { rank: Rank(2), .. }))));
}
