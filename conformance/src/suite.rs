//! Requirements of every backend: checks that run on any [`Backend`]. Its ranks are threads of one
//! process, or separate processes.
//!
//! `make` returns the backend with frames of the given size in bytes. For `None` it returns the
//! backend's default; a backend with a fixed size always returns that. A check panics on the rank
//! that finds a mistake.

use crate::concurrent_calls::concurrent_calls;
use crate::concurrent_messages::concurrent_messages;
use crate::integers::integers;
use crate::messages::messages;
use crate::places::Places;
use crate::prepared::prepared;
use crate::repro_sums::repro_sums;
use crate::tamper::tamper;
use crate::{
    AnyBackend, Backend, Case, Operation, Threads,
    case::{ROUTES, needs_all},
    data,
    data::Random,
    pairwise_of, with_type,
};
use foldwire::frame::MessageKind;
use foldwire::schedule::{Binomial, Linear, Pairwise, Ring, Schedule};
use foldwire::transport::TransportErrorKind;
use foldwire::{Bound, Call, Collective, Communicator, DType, Error, Op, Plan, Rank, Transport};
use std::thread;
use std::time::{Duration, Instant};

/// Group sizes of the suite, whose cases together cover every pair of choices. 5 ranks are more
/// than many machines have cores.
pub const SIZES: [usize; 4] = [1, 2, 3, 5];

/// Returns the backend with frames of the given number of bytes, or with its default.
pub type Make<'a> = dyn Fn(Option<usize>) -> AnyBackend<'a> + 'a;

/// A check: its name, and the function that runs it on groups of a size.
pub type Check = (&'static str, fn(&Make<'_>, usize));

/// Number of checks.
pub const N_CHECKS: usize = 16;

/// Number of checks that also make their calls in the memory of [devices](crate::OnDevices). They
/// are the first. A device takes part in no message between two ranks, in no prepared call and in
/// no reproducible sum.
pub const N_ON_DEVICES: usize = 12;

/// All checks. The cases of the first check are divided among the [`SIZES`]. The others run with
/// any size.
#[must_use]
pub fn checks() -> [Check; N_CHECKS] {
    [
        ("every pair of choices gives the result of threads, which is right", conformance),
        ("shares may be of any lengths", unequal_shares),
        ("calls in a row on one communicator", many_calls),
        ("calls at once, on groups that overlap", concurrent_calls),
        ("integers are moved and reduced exactly", integers),
        ("ranks that disagree get an error", disagreement),
        ("damaged frames are an error on every rank", damage),
        ("a dropped operation is an error on the others", dropped_operation),
        ("a silent rank stalls the others no longer than the time limit", silence),
        ("after a cancelled call all ranks go on", go_on_after_cancel),
        ("survivors of a rank that leaves go on", go_on_without_a_rank),
        ("what a rank sent in a call arrives while it does other work", inattention),
        ("messages between two ranks, several at once", messages),
        ("messages under way come to the receives they are for", concurrent_messages),
        ("prepared calls give the bits of calls made in full", prepared),
        ("reproducible sums have the same bits everywhere", repro_sums),
    ]
}

/// Runs all checks on groups of `size`. The process that has rank 0 prints a line `ok: …` for each.
///
/// If ranks are processes, all of them call this function with the number of processes. Run the
/// suite once with each of [`SIZES`].
///
/// # Panics
/// If the backend does not meet a requirement.
pub fn run<'a, B: Backend + 'a>(make: &'a dyn Fn(Option<usize>) -> B, size: usize)
where
    B::Transport: 'static,
{
    let make: &Make<'a> = &move |frame_bytes| AnyBackend::new(make(frame_bytes));
    for (name, check) in checks() {
        let start = Instant::now();
        check(make, size);
        if make(None).ranks(size).start == 0 {
            println!("ok: {name}, {size} ranks, {:.2} s", start.elapsed().as_secs_f64());
        }
    }
}

/// Timeout of calls in most checks. Only a silent rank can exceed it.
pub(crate) const PATIENT: Duration = Duration::from_secs(20);

/// Compares every case of this size with the threads backend, in frames of different sizes.
fn conformance(make: &Make<'_>, size: usize) {
    let cases = pairwise_of(&SIZES);
    for (i, case) in cases.iter().enumerate().filter(|(_, case)| case.size == size) {
        case.compare_with_threads(&make([None, Some(40_000), Some(5_000)][i % 3]));
    }
}

/// Gathers and exchanges shares of random lengths, many of them empty.
fn unequal_shares(make: &Make<'_>, size: usize) {
    let lossy = Plan::foldwire(Bound::Absolute(1e-3));
    let plans = [Plan::raw(), lossy, lossy.with_bound(Bound::Relative(1e-3))];
    let gathers: [&dyn Schedule; 2] = [&Ring, &Pairwise];
    let exchanges: [&dyn Schedule; 2] = [&Linear, &Pairwise];
    for seed in 0..6 {
        let mut random = Random(size as u64 * 100 + seed);
        let mut len = || *random.pick(&[0, 0, 1, 31, 4096, 4097, 9000, 30_011]);
        // Number of values from each rank to each rank.
        let matrix: Vec<Vec<usize>> =
            (0..size).map(|_| (0..size).map(|_| len()).collect()).collect();
        let plan = plans[seed as usize % plans.len()];
        let (gather, exchange) = (gathers[seed as usize / 3], exchanges[seed as usize / 3]);
        let backend = make(Some(20_000));
        let places = Places::of(&backend, size);
        let digests = backend.run(size, |mut comm| -> Result<u64, Error> {
            comm.config_mut().timeout = PATIENT;
            let comm = &mut comm;
            let rank = comm.rank().index();
            // The values of a part depend on its source and destination only.
            let part = |source: usize, to: usize| {
                data::smooth::<f32>(source * size + to, matrix[source][to])
            };
            let expect_near = |got: &[f32], want: Vec<f32>, bound: f64, what: &str| {
                assert_eq!(got.len(), want.len());
                for (got, want) in got.iter().zip(&want) {
                    let off = (f64::from(*got) - f64::from(*want)).abs();
                    assert!(off <= bound, "{what} {seed}: {want} became {got}, bound {bound:e}");
                }
            };

            let counts = &matrix[0];
            let starts: Vec<usize> = (0..size).map(|r| counts[..r].iter().sum()).collect();
            let mut recv = vec![-77.0; counts.iter().sum()];
            let plan = plan.with_schedule(gather);
            let report =
                places.run(comm, Call::all_gather_v(part(0, rank), &mut recv, counts), &plan)?;
            let want = (0..size).flat_map(|r| part(0, r)).collect();
            expect_near(&recv, want, report.bound, "gather");
            let mut data = vec![-77.0; recv.len()];
            data[starts[rank]..][..counts[rank]].copy_from_slice(&part(0, rank));
            places.run(comm, Call::all_gather_v_in_place(&mut data, counts), &plan)?;
            assert!(data::bits(&data) == data::bits(&recv), "gather {seed} in place");

            let root = Rank::new(seed as usize % size);
            let mut gathered = vec![-77.0; if rank == root.index() { recv.len() } else { 0 }];
            let tree = plan.with_schedule(&Binomial);
            let call = Call::gather_v(counts, part(0, rank), &mut gathered, root);
            let report = places.run(comm, call, &tree)?;
            if rank == root.index() {
                let want = (0..size).flat_map(|r| part(0, r)).collect();
                expect_near(&gathered, want, report.bound, "gather to a root");
                let mut data = vec![-77.0; recv.len()];
                data[starts[rank]..][..counts[rank]].copy_from_slice(&part(0, rank));
                places.run(comm, Call::gather_v_in_place(&mut data, counts), &tree)?;
                assert!(data::bits(&data) == data::bits(&gathered), "gather {seed} in place");
            } else {
                places.run(comm, Call::gather_v(counts, part(0, rank), [], root), &tree)?;
            }
            let mut own = vec![-77.0; counts[rank]];
            let whole: Vec<f32> = (0..size).flat_map(|r| part(0, r)).collect();
            let send = if rank == root.index() { &whole[..] } else { &[] };
            let report = places.run(comm, Call::scatter_v(counts, send, &mut own, root), &tree)?;
            expect_near(&own, part(0, rank), report.bound, "scatter");

            // Each rank's values differ by its number.
            let operand = |r: usize| whole.iter().map(|x| x + r as f32).collect::<Vec<f32>>();
            let mut sum = vec![-77.0; counts[rank]];
            let call = Call::reduce_scatter_v(operand(rank), &mut sum, counts, Op::Sum);
            let report = places.run(comm, call, &plan)?;
            let mut want = vec![0.0; counts[rank]];
            for r in 0..size {
                let operand = &operand(r)[starts[rank]..][..counts[rank]];
                want.iter_mut().zip(operand).for_each(|(sum, x)| *sum += x);
            }
            let rounding = 1e-6 * (size * size) as f64;
            let allowed = report.worst_case.unwrap_or(f64::NAN) + rounding;
            expect_near(&sum, want, allowed, "sum");
            let mut data = operand(rank);
            let call = Call::reduce_scatter_v_in_place(&mut data, counts, Op::Sum);
            places.run(comm, call, &plan)?;
            let share = &data[starts[rank]..][..counts[rank]];
            assert!(data::bits(share) == data::bits(&sum), "sum {seed} in place");
            let mut data = operand(rank);
            let call = Call::reduce_scatter_v_to_front(&mut data, counts, Op::Sum);
            places.run(comm, call, &plan)?;
            let share = &data[..counts[rank]];
            assert!(data::bits(share) == data::bits(&sum), "sum {seed} to the front");

            let send: Vec<f32> = (0..size).flat_map(|to| part(rank, to)).collect();
            let want: Vec<f32> = (0..size).flat_map(|source| part(source, rank)).collect();
            let recv_counts: Vec<usize> = matrix.iter().map(|row| row[rank]).collect();
            let mut exchanged = vec![-77.0; want.len()];
            let plan = plan.with_schedule(exchange);
            let counts = &matrix[rank];
            let call = Call::all_to_all_v(send, counts, &mut exchanged, &recv_counts);
            let report = places.run(comm, call, &plan)?;
            expect_near(&exchanged, want, report.bound, "exchange");
            Ok(data::digest(&recv))
        });
        let digests: Result<Vec<u64>, Error> = digests.into_iter().collect();
        let digests = backend.gather(digests.unwrap_or_else(|error| panic!("{seed}: {error}")));
        assert!(digests.iter().all(|digest| *digest == digests[0]), "{seed}: other bits");
    }
    if size > 1 {
        unequal_expectations(make, size);
    }
}

/// Rank 0 sends more or fewer values than rank 1 expects. Rank 1 must report the mismatch, and no
/// rank may get an unexpected error or stall.
fn unequal_expectations(make: &Make<'_>, size: usize) {
    for (sent, expected) in [(5, 6), (9000, 30_000), (30_000, 9000), (0, 1), (1, 0)] {
        let backend = make(Some(20_000));
        let places = Places::of(&backend, size);
        let outcomes = backend.run(size, |mut comm| {
            comm.config_mut().timeout = PATIENT;
            let rank = comm.rank().index();
            let (mut send_counts, mut recv_counts) = (vec![7; size], vec![7; size]);
            if rank == 0 {
                send_counts[1] = sent;
            } else if rank == 1 {
                recv_counts[0] = expected;
            }
            let send = vec![1.0f32; send_counts.iter().sum()];
            let mut recv = vec![0.0f32; recv_counts.iter().sum()];
            let call = Call::all_to_all_v(send, &send_counts, &mut recv, &recv_counts);
            places.run(&mut comm, call, &Plan::raw()).map(drop)
        });
        let codes = backend.gather(outcomes.iter().map(code).collect());
        let context = format!("{sent} sent, {expected} expected: {outcomes:?}, all {codes:?}");
        assert!(codes[1] == MISMATCH, "{context}");
        assert!(!codes.contains(&UNEXPECTED) && !codes.contains(&STALLED), "{context}");
    }
}

/// Runs all-reduces, barriers and broadcasts in a row, on arrays of various lengths.
fn many_calls(make: &Make<'_>, size: usize) {
    let plan = Plan::foldwire(Bound::Absolute(1e-3));
    let backend = make(Some(20_000));
    let places = Places::of(&backend, size);
    let outcomes = backend.run(size, |mut comm| -> Result<(), Error> {
        for call in 0..40 {
            let count = [0, 1, size, 7000, 30_001][call % 5];
            let mut values = vec![1.0f64 + comm.rank().0 as f64; count];
            let report = places.run(&mut comm, Call::all_reduce(&mut values, Op::Sum), &plan)?;
            let exact = (size * (size + 1) / 2) as f64;
            let allowed = report.worst_case.unwrap_or(0.0) + 1e-9;
            for value in values {
                assert!((value - exact).abs() <= allowed, "{value} for {exact} in call {call}");
            }
            comm.barrier()?;
            let rank = comm.rank().0 as f32 + 1.0;
            assert_eq!(comm.all_reduce_scalar(rank, Op::Sum)?, exact as f32);
            // Roots other than 0 occur, and a root may already be ahead of the other ranks.
            let (root, expected) = (Rank::new(call % size), data::smooth::<f32>(call, 9000));
            let mut values = vec![-77.0f32; 9000];
            if comm.rank() == root {
                values.copy_from_slice(&expected);
            }
            let plan = [Plan::raw(), plan][call % 2];
            let report = match comm.rank() == root && call % 3 > 0 {
                true => places.run(&mut comm, Call::broadcast_from(&values), &plan)?,
                false => places.run(&mut comm, Call::broadcast(&mut values, root), &plan)?,
            };
            for (got, sent) in values.iter().zip(&expected) {
                let off = f64::from((got - sent).abs());
                assert!(off <= report.bound, "{sent} became {got} in the broadcast of call {call}");
            }
        }
        Ok(())
    });
    assert!(outcomes.iter().all(Result::is_ok), "{outcomes:?}");
}

/// Outcome of a rank as a number, so that ranks can exchange outcomes.
fn code(outcome: &Result<(), Error>) -> u64 {
    match outcome {
        Ok(()) => 0,
        Err(Error::Mismatch { .. }) => 1,
        Err(Error::Frame { .. }) => 2,
        Err(Error::Aborted { .. }) => 3,
        Err(Error::Transport { kind: TransportErrorKind::PeerLost, .. }) => 4,
        Err(Error::Stalled { .. }) => 5,
        Err(Error::Poisoned) => 6,
        Err(Error::Codec(_)) => 7,
        Err(_) => 99,
    }
}
const OK: u64 = 0;
const MISMATCH: u64 = 1;
const FRAME: u64 = 2;
const STALLED: u64 = 5;
const POISONED: u64 = 6;
const CODEC: u64 = 7;
/// The rank's call succeeded before the rank learned of an error, and its next call failed.
const DONE_BEFORE: u64 = 8;
const UNEXPECTED: u64 = 99;

type CaseChange = (&'static str, fn(&mut Case));

const CASE_CHANGES: [CaseChange; 4] = [
    ("count", |case| case.count += 1),
    ("op", |case| case.op = Operation::Max),
    ("type", |case| case.dtype = DType::Bf16),
    ("bound", |case| case.bound = Bound::Absolute(1.1e-3)),
];

fn run_case<X: Transport>(
    case: &Case,
    places: &Places<'_>,
    comm: &mut Communicator<X>,
) -> Result<(), Error> {
    with_type!(case.dtype, T => case.run_rank_at::<T, _>(places, comm).map(|_| ()))
}

/// The last rank passes another argument than the other ranks. Some rank must report the mismatch,
/// and all ranks must get an error, in this call or in the next.
fn disagreement(make: &Make<'_>, size: usize) {
    if size == 1 {
        return;
    }
    for (collective, schedule) in ROUTES {
        for (name, change) in CASE_CHANGES {
            if name == "op" && !collective.reduces() {
                continue;
            }
            let agreed = Case { collective, schedule, ..Case::all_reduce(size, 7000) };
            let mut different = agreed;
            change(&mut different);
            let backend = make(Some(20_000));
            let places = Places::of(&backend, size);
            let start = Instant::now();
            let outcomes = backend.run(size, |mut comm| {
                comm.config_mut().timeout = PATIENT;
                let is_last = comm.rank().index() == size - 1;
                let case = if is_last { &different } else { &agreed };
                let first = run_case(case, &places, &mut comm);
                // A rank that only sends may finish its call before another rank receives the
                // call's header. Its next call must fail.
                let next = comm.all_reduce(&mut [1.0f32; 100], Op::Sum, &Plan::raw());
                (first, next.is_err())
            });
            let took = start.elapsed();
            let code = |(first, next_fails): &(Result<(), Error>, bool)| match code(first) {
                OK if *next_fails => DONE_BEFORE,
                code => code,
            };
            let codes = backend.gather(outcomes.iter().map(code).collect());
            let context = format!(
                "{} by {}, {size} ranks, the last has another {name}: {outcomes:?}, all {codes:?}",
                collective.name(),
                schedule.name()
            );
            assert!(codes.contains(&MISMATCH), "{context}");
            assert!(!codes.contains(&UNEXPECTED) && !codes.contains(&STALLED), "{context}");
            assert!(!codes.contains(&OK), "{context}");
            assert!(!needs_all(collective) || !codes.contains(&DONE_BEFORE), "{context}");
            assert!(took < PATIENT / 2, "{context}");
        }
    }
}

/// Flips a bit in a frame that rank 0 receives.
fn damage(make: &Make<'_>, size: usize) {
    if size == 1 {
        return;
    }
    let plan = Plan::foldwire(Bound::Absolute(1e-3)).with_schedule(&Ring);
    // Index of the damaged frame among the data frames that rank 0 receives, and index of the
    // damaged byte.
    for (nth, byte) in [(0, 0), (0, 20), (1, 64), (2, 100), (0, 300)] {
        let backend = make(Some(20_000));
        let places = Places::of(&backend, size);
        let outcomes = backend.run_transports(size, |transport| {
            let is_victim = transport.rank() == Rank(0);
            let mut n_seen = 0;
            let harm = Box::new(move |message: &mut [u8], n_bytes: usize| {
                // Count data frames only: waiting ranks also send queries.
                if MessageKind::of(message) == Some(MessageKind::Data) {
                    if is_victim && n_seen == nth && byte < n_bytes {
                        message[byte] ^= 0x10;
                    }
                    n_seen += 1;
                }
                n_bytes
            });
            let mut comm = Communicator::new(tamper(transport, harm))?;
            comm.config_mut().timeout = PATIENT;
            let mut values: Vec<f32> = data::smooth(comm.rank().index(), 40_000);
            places.run(&mut comm, Call::all_reduce(&mut values, Op::Sum), &plan).map(drop)
        });
        let codes = backend.gather(outcomes.iter().map(code).collect());
        let context = format!("byte {byte} of frame {nth}: {outcomes:?}, all {codes:?}");
        assert!(!codes.contains(&UNEXPECTED) && !codes.contains(&STALLED), "{context}");
        assert!(!codes.contains(&OK) && [FRAME, CODEC].contains(&codes[0]), "{context}");
    }
}

/// The last rank drops a call after a few polls.
fn dropped_operation(make: &Make<'_>, size: usize) {
    if size == 1 {
        return;
    }
    let plan = Plan::foldwire(Bound::Absolute(1e-3)).with_schedule(&Ring);
    for n_polls in [0, 1, 3] {
        let backend = make(Some(20_000));
        let places = Places::of(&backend, size);
        let outcomes = backend.run(size, |mut comm| {
            comm.config_mut().timeout = PATIENT;
            let mut values = vec![1.5f32; 50_000];
            if comm.rank().index() == size - 1 {
                let call = Call::all_reduce(&mut values[..], Op::Sum);
                places.abandon(&mut comm, call, &plan, n_polls)?;
            }
            places.run(&mut comm, Call::all_reduce(&mut values, Op::Sum), &plan).map(drop)
        });
        let codes = backend.gather(outcomes.iter().map(code).collect());
        let context = format!("{n_polls} polls: {outcomes:?}, all {codes:?}");
        assert_eq!(codes[size - 1], POISONED, "{context}");
        let others = &codes[..size - 1];
        assert!(others.iter().all(|code| ![OK, STALLED, UNEXPECTED].contains(code)), "{context}");
    }
}

/// The last rank starts its call later than the other ranks' timeout.
fn silence(make: &Make<'_>, size: usize) {
    if size == 1 {
        return;
    }
    let (timeout, late) = (Duration::from_millis(300), Duration::from_millis(1500));
    let case = Case {
        collective: Collective::AllReduce,
        schedule: &Ring,
        ..Case::all_reduce(size, 50_000)
    };
    let backend = make(Some(20_000));
    let places = Places::of(&backend, size);
    let outcomes = backend.run(size, |mut comm| {
        comm.config_mut().timeout = timeout;
        if comm.rank().index() == size - 1 {
            thread::sleep(late);
        }
        let start = Instant::now();
        let outcome = run_case(&case, &places, &mut comm);
        let took = start.elapsed();
        assert!(took < late, "{outcome:?} after {took:?}");
        outcome
    });
    let codes = backend.gather(outcomes.iter().map(code).collect());
    let context = format!("{outcomes:?}, all {codes:?}");
    assert!(!codes.contains(&OK) && !codes.contains(&UNEXPECTED), "{context}");
    // Some rank must report the stall; the other ranks may learn of it by an abort notice first.
    // The test `simulated` checks each rank, because virtual time makes the order known.
    assert!(codes[..size - 1].contains(&STALLED), "{context}");
}

/// Time that survivors wait for a silent rank before they shrink the group.
const SHRINK_TIMEOUT: Duration = Duration::from_secs(3);

fn go_on_after_cancel(make: &Make<'_>, size: usize) {
    go_on(make, size, false);
}

fn go_on_without_a_rank(make: &Make<'_>, size: usize) {
    if size > 1 {
        go_on(make, size, true);
    }
}

/// Sum of all ranks' values along a ring.
fn sum<X: Transport>(
    comm: &mut Communicator<X>,
    places: &Places<'_>,
    plan: &Plan,
) -> Result<Vec<u8>, Error> {
    let mut values: Vec<f32> = data::rough(comm.rank().index(), 30_011);
    places.run(comm, Call::all_reduce(&mut values, Op::Sum), plan)?;
    Ok(data::bytes(&values))
}

/// The last rank cancels a call, and leaves the group or stays. The other ranks continue, and get
/// the same result as a new group of their size.
fn go_on(make: &Make<'_>, size: usize, leaves: bool) {
    let plan = Plan::foldwire(Bound::Absolute(1e-3)).with_schedule(&Ring);
    let n_left = if leaves { size - 1 } else { size };
    let backend = make(Some(20_000));
    let places = Places::of(&backend, size);
    let outcomes = backend.run(size, |mut comm| {
        comm.config_mut().timeout = PATIENT;
        let rank = comm.rank().index();
        if rank == size - 1 {
            let mut values = vec![1.5f32; 50_000];
            let call = Call::all_reduce(&mut values[..], Op::Sum);
            places.abandon(&mut comm, call, &plan, 1)?;
            if leaves {
                return Ok(None);
            }
        } else if size > 1 {
            let outcome = sum(&mut comm, &places, &plan).map(|_| ());
            assert!(outcome.is_err(), "a call that a rank cancelled");
        }
        let start = Instant::now();
        let mut comm = comm.shrink(SHRINK_TIMEOUT)?;
        let took = start.elapsed();
        // The last rank is the one that left, so no other rank's number changes.
        assert!((comm.size(), comm.rank().index()) == (n_left, rank), "{} left", comm.size());
        assert!(took < SHRINK_TIMEOUT + Duration::from_secs(5), "{took:?}");
        let first = sum(&mut comm, &places, &plan)?;
        assert!(first == sum(&mut comm, &places, &plan)?, "the same call twice");
        Ok(Some(first))
    });
    let expected = Threads { frame_bytes: Some(20_000) }
        .run(n_left, |mut comm| sum(&mut comm, &Places::slices(), &plan).expect("it works"));
    let own = backend.ranks(size).zip(outcomes);
    let codes = own.map(|(rank, outcome): (usize, Result<_, Error>)| match outcome {
        Ok(Some(bytes)) => {
            assert!(bytes == expected[0], "rank {rank}: another sum");
            OK
        }
        Ok(None) => OK,
        Err(error) => panic!("rank {rank} of {size}: {error}"),
    });
    let codes = backend.gather(codes.collect());
    assert_eq!(codes, vec![OK; size]);
}

/// Delay of the receivers before they start a call, and delay of the root after its call before it
/// polls again. Both begin at about the same time.
const RECEIVER_DELAY: Duration = Duration::from_millis(50);
const ROOT_DELAY: Duration = Duration::from_millis(250);
/// Number of tries, because receivers on a busy machine may be slow for other reasons.
const N_TRIES: usize = 5;

/// Checks that receivers do not wait for a root that has left the call. A root that only sends may
/// end its call before its receivers start theirs, and then does not poll for a while. If a
/// transport's frames arrive only while their sender polls, it must report them in
/// [`Transport::undelivered`], which keeps the root in the call.
fn inattention(make: &Make<'_>, size: usize) {
    if size == 1 {
        return;
    }
    let plan = Plan::raw().with_schedule(&Binomial);
    // 100 values fit one frame, and 12,000 take a few frames on each lane. A link may hold them
    // all.
    for count in [100, 12_000] {
        let backend = make(Some(5_000));
        let places = Places::of(&backend, size);
        let outcomes = backend.run(size, |mut comm| -> Result<f64, Error> {
            comm.config_mut().timeout = PATIENT;
            let is_root = comm.rank() == Rank(0);
            let mut values = vec![1.0f32; count];
            let mut quickest = f64::INFINITY;
            for _ in 0..N_TRIES {
                comm.all_reduce(&mut [0.0f64], Op::Sum, &Plan::raw())?;
                let start = Instant::now();
                if !is_root {
                    thread::sleep(RECEIVER_DELAY);
                }
                places.run(&mut comm, Call::broadcast(&mut values[..], Rank(0)), &plan)?;
                let mut slowest = [if is_root { 0.0 } else { start.elapsed().as_secs_f64() }];
                if is_root {
                    thread::sleep(ROOT_DELAY);
                }
                comm.all_reduce(&mut slowest, Op::Max, &Plan::raw())?;
                quickest = quickest.min(slowest[0]);
                if is_prompt(quickest) {
                    break;
                }
            }
            Ok(quickest)
        });
        for outcome in outcomes {
            let seconds = outcome.expect("a correct call");
            assert!(
                is_prompt(seconds),
                "{count} values, {size} ranks: after a call in which it only sends, a rank does \
                 not poll for {ROOT_DELAY:?}. The other ranks had its values only after \
                 {seconds:.3} s, {RECEIVER_DELAY:?} of it their own delay. Does \
                 `Transport::undelivered` report frames that have not left?"
            );
        }
    }
}

/// Returns whether receivers with this total time cannot have waited until the root polled again.
fn is_prompt(seconds: f64) -> bool {
    seconds < ((RECEIVER_DELAY + ROOT_DELAY) / 2).as_secs_f64()
}
