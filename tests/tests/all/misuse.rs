//! Invalid calls are refused with a specific error. The communicator stays usable.

use foldwire::bound::BoundError;
use foldwire::error::{AbortReason, Buffer, Field};
use foldwire::layout::{Shares, Window, share};
use foldwire::pipeline::{COMPRESS_ONCE, FUSED};
use foldwire::schedule::Binomial;
use foldwire::{Bound, Call, Collective, Error, Op, Plan, Rank, Scope};
use foldwire_tests::data;
use foldwire_tests::deadline::{Comm, PATIENT, plan, run};
use foldwire_threads::World;

/// Name of an invalid call, the call, and a check of its error.
type MisuseCase = (&'static str, fn(&mut Comm) -> Error, fn(&Error) -> bool);

/// Returns the error of an invalid call.
fn failed<R>(result: Result<R, Error>) -> Error {
    result.err().expect("the call is wrong and must be refused")
}

fn all_reduce_with(comm: &mut Comm, plan: &Plan) -> Error {
    failed(comm.all_reduce(&mut vec![1.5f32; 1000], Op::Sum, plan))
}

/// Runs an all-to-all in which this rank sends and receives these numbers of values to and from
/// itself, and one value to and from each other rank.
fn own_block(comm: &mut Comm, sent: usize, received: usize) -> Error {
    let [to, from] = [sent, received].map(|own| {
        let mut counts = vec![1; comm.size()];
        counts[comm.rank().index()] = own;
        counts
    });
    let send = vec![1.5f32; to.iter().sum()];
    let mut recv = vec![0.0; from.iter().sum()];
    failed(comm.all_to_all_v(&send, &to, &mut recv, &from, &Plan::raw()))
}

const MISUSES: [MisuseCase; 23] = [
    (
        "send buffer of a rank without a share",
        |comm| {
            // Rank 0's share is one value, so a gather to rank 0 takes nothing from the other
            // ranks.
            let (extra, mut all) = ([1.5f32; 2], [0.0; 1]);
            failed(comm.gather(1, &extra, &mut all, Rank(0), &plan().with_schedule(&Binomial)))
        },
        |e| matches!(e, Error::Length { buffer: Buffer::Send, have: 2, .. }),
    ),
    (
        "root",
        |comm| {
            let root = Rank::new(comm.size());
            failed(comm.broadcast(&mut [1.5f32; 10], root, &plan().with_schedule(&Binomial)))
        },
        |e| matches!(e, Error::Root { .. }),
    ),
    (
        "root of a gather",
        |comm| failed(comm.gather(0, &[0.0f32; 0], &mut [], Rank(u32::MAX), &Plan::raw())),
        |e| matches!(e, Error::Root { .. }),
    ),
    (
        "shares of an all-reduce",
        |comm| {
            let (counts, mut x) = (vec![1; comm.size()], [1.5f32; 10]);
            let shares = Shares::Given(&counts);
            let empty: &[f32] = &[];
            let call = Call::of(Collective::AllReduce, shares, Window::Whole, empty, &mut x[..]);
            failed(comm.run(call, &Plan::raw()))
        },
        |e| matches!(e, Error::NoSuchCall { collective: Collective::AllReduce }),
    ),
    (
        "a gather in place to another rank",
        |comm| {
            let (shares, mut x) = (Shares::Even(10), [1.5f32; 10]);
            let empty: &[f32] = &[];
            let call = Call::of(Collective::Gather, shares, Window::Whole, empty, &mut x[..]);
            let root = Rank::new((comm.rank().index() + 1) % comm.size());
            failed(comm.run(call.with_root(root), &Plan::raw()))
        },
        |e| matches!(e, Error::NoSuchCall { collective: Collective::Gather }),
    ),
    (
        "an all-to-all in place of blocks that differ in length",
        |comm| {
            let (size, count) = (comm.size(), 3 * comm.size() + 1);
            // As many values as `size` blocks of this rank have.
            let n_own = share(count, size, comm.rank().index()).len();
            let (mut x, empty) = (vec![1.5f32; size * n_own], &[1.5f32; 0][..]);
            let (shares, window) = (Shares::Even(count), Window::Whole);
            let call = Call::of(Collective::AllToAll, shares, window, empty, &mut x[..]);
            failed(comm.run(call, &Plan::raw()))
        },
        |e| matches!(e, Error::Length { buffer: Buffer::Recv, .. }),
    ),
    (
        "a scan of arrays of a group",
        |comm| {
            let (x, mut y) = ([1.5f32; 10], [0.0; 10]);
            let shares = Shares::Arrays(&[4, 10]);
            let call = Call::of(Collective::Scan, shares, Window::Own, &x[..], &mut y[..]);
            failed(comm.run(call, &Plan::raw()))
        },
        |e| matches!(e, Error::NoSuchCall { collective: Collective::Scan }),
    ),
    (
        "receive buffer",
        |comm| failed(comm.all_reduce_into(&[1.5f32; 10], &mut [0.0; 9], Op::Sum, &plan())),
        |e| matches!(e, Error::Length { buffer: Buffer::Recv, need: 10, have: 9 }),
    ),
    (
        "share",
        |comm| failed(comm.reduce_scatter(&[1.5f32; 1000], &mut [0.0; 7], Op::Sum, &plan())),
        |e| matches!(e, Error::Length { buffer: Buffer::Recv, have: 7, .. }),
    ),
    (
        "send buffer",
        |comm| failed(comm.all_gather(&[1.5f32; 1001], &mut [0.0; 1000], &plan())),
        |e| matches!(e, Error::Length { buffer: Buffer::Send, have: 1001, .. }),
    ),
    (
        "a short own block",
        |comm| own_block(comm, 2, 1),
        |e| matches!(e, Error::OwnCount { sent: 2, received: 1 }),
    ),
    (
        "a long own block",
        |comm| own_block(comm, 1, 2),
        |e| matches!(e, Error::OwnCount { sent: 1, received: 2 }),
    ),
    (
        "bound 0",
        |comm| all_reduce_with(comm, &Plan::foldwire(Bound::Absolute(0.0))),
        |e| matches!(e, Error::Bound(BoundError::NotPositive { .. })),
    ),
    (
        "bound below 0",
        |comm| all_reduce_with(comm, &Plan::foldwire(Bound::Relative(-1e-3))),
        |e| matches!(e, Error::Bound(BoundError::NotPositive { .. })),
    ),
    (
        "bound NaN",
        |comm| all_reduce_with(comm, &Plan::foldwire(Bound::Absolute(f64::NAN))),
        |e| matches!(e, Error::Bound(BoundError::NotPositive { .. })),
    ),
    (
        "infinite PSNR",
        |comm| all_reduce_with(comm, &Plan::foldwire(Bound::Psnr(f64::INFINITY))),
        |e| matches!(e, Error::Bound(BoundError::NotPositive { .. })),
    ),
    (
        "bound beyond the range",
        |comm| all_reduce_with(comm, &Plan::auto(Bound::Relative(2.0))),
        |e| matches!(e, Error::Bound(BoundError::BeyondRange { value: 2.0 })),
    ),
    (
        "bound of 0 for the raw codec",
        |comm| all_reduce_with(comm, &Plan::raw().with_bound(Bound::Absolute(0.0))),
        |e| matches!(e, Error::Bound(BoundError::NotPositive { .. })),
    ),
    (
        "schedule",
        |comm| all_reduce_with(comm, &plan().with_schedule(&Binomial)),
        |e| matches!(e, Error::Unsupported { .. }),
    ),
    (
        "average of a scan",
        |comm| failed(comm.scan(&mut vec![1.5f32; 1000], Op::Avg, &Plan::raw())),
        |e| matches!(e, Error::NoAverage { collective: Collective::Scan }),
    ),
    (
        "bound on a product",
        |comm| {
            let plan = plan().with_scope(Scope::Result);
            failed(comm.all_reduce(&mut vec![1.5f32; 1000], Op::Prod, &plan))
        },
        |e| matches!(e, Error::Bound(BoundError::Unbounded)),
    ),
    (
        "relative bound on a user operation's result",
        |comm| {
            let plan = Plan::foldwire(Bound::Relative(1e-3)).with_scope(Scope::Result);
            let mut values: Vec<f32> = data::smooth(comm.rank().index(), 1000);
            failed(comm.all_reduce(&mut values, Op::User(&|a, b| a + b), &plan))
        },
        |e| matches!(e, Error::Bound(BoundError::Unbounded)),
    ),
    (
        "result below precision",
        |comm| {
            let plan = Plan::foldwire(Bound::Absolute(1e-9)).with_scope(Scope::Result);
            all_reduce_with(comm, &plan)
        },
        |e| matches!(e, Error::Bound(BoundError::BelowPrecision { .. })),
    ),
];

/// Number of calls in [`MISUSES`] that are refused before anything is sent.
const N_REFUSED_AT_ONCE: usize = MISUSES.len() - 1;

fn check_misuses(misuses: &[MisuseCase]) {
    let mut broken = Vec::new();
    for &(name, misuse, expected) in misuses {
        for size in [2, 3] {
            let outcomes = run(size, PATIENT, move |comm| {
                let error = misuse(comm);
                let mut values = vec![1.5f32; 10_000];
                (error, comm.all_reduce(&mut values, Op::Sum, &plan()), values)
            });
            for (error, next, values) in outcomes {
                let sum = 1.5 * size as f32;
                let is_right = next.is_ok() && values.iter().all(|x| (x - sum).abs() < 1e-2);
                if !expected(&error) || !error.is_usage() || !is_right {
                    broken.push((name, size, error, next.map(|_| ())));
                }
            }
        }
    }
    assert!(broken.is_empty(), "wrong call, ranks, its error, a correct call after it: {broken:?}");
}

#[test]
fn errors_of_use_leave_the_communicator_usable() {
    check_misuses(&MISUSES[..N_REFUSED_AT_ONCE]);
}

#[test]
fn errors_of_use_that_depend_on_the_extent_leave_the_communicator_usable() {
    check_misuses(&MISUSES[N_REFUSED_AT_ONCE..]);
}

/// Arguments that are invalid for any data are refused before anything is sent. So one rank may
/// correct its call while the other ranks wait.
#[test]
fn one_rank_may_correct_its_call() {
    for (name, misuse, expected) in MISUSES.into_iter().take(N_REFUSED_AT_ONCE) {
        let outcomes = run(3, PATIENT, move |comm| {
            if comm.rank().index() == 1 {
                let error = misuse(comm);
                assert!(expected(&error), "{name}: {error:?}");
            }
            comm.all_reduce(&mut vec![1.5f32; 10_000], Op::Sum, &plan())
        });
        assert!(outcomes.iter().all(Result::is_ok), "{name}: {outcomes:?}");
    }
}

/// An error that depends on the value range needs all ranks. No rank may hang or be left alone.
#[test]
fn a_bound_that_only_some_ranks_find_wrong_is_an_error_on_every_rank() {
    let outcomes = run(3, PATIENT, |comm| {
        let bound = if comm.rank().index() == 1 { 1e-9 } else { 1.0 };
        let plan = Plan::foldwire(Bound::Absolute(bound)).with_scope(Scope::Result);
        comm.all_reduce(&mut vec![1.5f32; 10_000], Op::Sum, &plan)
    });
    let differs = |e: &Error| matches!(e, Error::Mismatch { field: Field::Quantum, .. });
    let told = |e: &Error| differs(e) || matches!(e, Error::Aborted { .. });
    assert!(outcomes.iter().all(|outcome| outcome.as_ref().is_err_and(told)), "{outcomes:?}");
    assert!(outcomes.iter().filter_map(|outcome| outcome.as_ref().err()).any(differs));
}

#[test]
fn a_communicator_serves_call_after_call_with_any_plan() {
    let outcomes = run(3, PATIENT, |comm| {
        (0..50).try_for_each(|i| {
            let pipeline = [FUSED, COMPRESS_ONCE][i % 2];
            let plan = Plan::raw().compressed(pipeline, Bound::Relative(1e-3));
            let mut values: Vec<f32> = data::smooth(comm.rank().index(), 100 * i);
            comm.all_reduce(&mut values, Op::Avg, &plan).map(|_| ())
        })
    });
    assert_eq!(outcomes, [Ok(()); 3]);
}

#[test]
fn rows_choose_the_schedule_unless_the_plan_does_and_ranks_that_differ_hear_of_it() {
    use foldwire::schedule::{Pairwise, Ring};
    use foldwire::select::{LinkFilter, SelectionRule};

    static ROWS: &[SelectionRule] = &[SelectionRule::new(Collective::AllReduce, &Pairwise)];
    let n_messages = |rows: fn(Rank) -> &'static [SelectionRule], plan: Plan| {
        run(4, PATIENT, move |comm| {
            comm.config_mut().select = rows(comm.rank());
            comm.all_reduce(&mut [1.5f32; 10], Op::Sum, &plan).map(|report| report.n_messages)
        })
    };
    assert_eq!(n_messages(|_| &[], Plan::raw()), vec![Ok(2); 4]);
    assert_eq!(n_messages(|_| ROWS, Plan::raw()), vec![Ok(6); 4]);
    let doubling = Plan::raw().with_schedule(&foldwire::schedule::RecursiveDoubling);
    assert_eq!(n_messages(|_| ROWS, doubling), vec![Ok(2); 4]);
    let different = |rank: Rank| if rank == Rank(1) { ROWS } else { &[] };
    for outcome in n_messages(different, Plan::raw()) {
        let told = matches!(
            outcome,
            Err(Error::Mismatch { field: Field::Schedule, .. }
                | Error::Aborted { reason: AbortReason::Mismatch(Field::Schedule), .. })
        );
        assert!(told, "{outcome:?}");
    }
    // The threads backend reports links only if they are configured.
    static UNKNOWN: &[SelectionRule] =
        &[SelectionRule::new(Collective::AllReduce, &Pairwise).with_links(LinkFilter::Unknown)];
    static SLOW: &[SelectionRule] = &[SelectionRule::new(Collective::AllReduce, &Pairwise)
        .with_links(LinkFilter::Rates(0..=1_000_000_000))];
    assert_eq!(n_messages(|_| UNKNOWN, Plan::raw()), vec![Ok(6); 4]);
    assert_eq!(n_messages(|_| SLOW, Plan::raw()), vec![Ok(2); 4]);
    let over = |rate: f64, rows: &'static [SelectionRule]| {
        World::new(4).link_rate(rate).run(|mut comm| {
            comm.config_mut().select = rows;
            let report = comm.all_reduce(&mut [1.5f32; 10], Op::Sum, &Plan::raw());
            report.expect("a sum").n_messages
        })
    };
    assert_eq!(over(1e9, SLOW), [6; 4]);
    assert_eq!(over(2e9, SLOW), [2; 4]);
    assert_eq!(over(1e9, UNKNOWN), [2; 4]);
    // A rule must name a schedule that supports the collective.
    static WRONG: &[SelectionRule] = &[SelectionRule::new(Collective::Broadcast, &Ring)];
    let refused = run(2, PATIENT, |comm| {
        comm.config_mut().select = WRONG;
        comm.broadcast(&mut [1.5f32; 10], Rank(0), &Plan::raw()).map(|_| ())
    });
    assert!(refused.iter().all(|outcome| matches!(outcome, Err(Error::Unsupported { .. }))));
}
