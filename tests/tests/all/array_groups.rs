//! Group calls: several arrays as one call.

use super::concurrent_calls::UnparkWaker;
use foldwire::codec::CodecId;
use foldwire::error::{AbortReason, Field};
use foldwire::layout::Division;
use foldwire::schedule::RecursiveDoubling;
use foldwire::{Bound, Error, Float, Op, Plan, Rank, SharedCommunicator, f16, pipeline};
use foldwire_tests::case::Operation;
use foldwire_tests::{Backend, Threads, data};
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

/// Holds for any length, scale and bound of an array, and any limit on concurrent calls.
#[test]
fn a_group_of_arrays_has_the_bits_of_a_call_for_each() {
    for n_calls in [1, 3, 16] {
        Threads::default().run_transports(3, |transport| {
            let world = SharedCommunicator::new(transport, n_calls).unwrap();
            let rank = world.rank().index();
            let lengths = [0, 1, 5000, 200_000, 2, 31, 4096, 70_000, 12, 100];
            let array = |at: usize| {
                let scale = 10f32.powi(at as i32 * 3 - 12);
                let smooth = data::smooth::<f32>(rank + at, lengths[at]);
                let mut values: Vec<_> = smooth.into_iter().map(|x| scale * x).collect();
                if (rank, at) == (1, 3) {
                    values[7..70].fill(1e20);
                }
                values
            };
            let bound = |at: usize| match at % 3 {
                0 => Bound::Relative(1e-3),
                1 => Bound::Absolute(1e-2),
                _ => Bound::Psnr(60.0),
            };
            let plan = Plan::foldwire(Bound::Relative(1e-6));
            let mut together: Vec<_> = (0..lengths.len()).map(array).collect();
            let mut arrays: Vec<_> =
                together.iter_mut().enumerate().map(|(at, x)| (&mut x[..], bound(at))).collect();
            let reports = world.all_reduce_group(&mut arrays, Op::Avg, &plan).unwrap();
            for (at, (array_of_group, report)) in together.iter().zip(&reports).enumerate() {
                let mut alone = array(at);
                let plan = plan.with_bound(bound(at));
                let of_one = world.all_reduce(&mut alone, Op::Avg, &plan).unwrap();
                assert!(data::bits(array_of_group) == data::bits(&alone), "array {at}");
                assert_eq!((report.bound, report.worst_case), (of_one.bound, of_one.worst_case));
                let fill = ((rank, at) == (1, 3)).then_some(f64::from(1e20_f32));
                assert_eq!([report.suspected_fill, of_one.suspected_fill], [fill; 2]);
            }
            assert!(world.all_reduce_group::<f64>(&mut [], Op::Sum, &plan).unwrap().is_empty());
        });
    }
}

/// Arrays of a few values use one message in place of many, with any pipeline and operation.
#[test]
fn short_arrays_of_a_group_share_frames() {
    fn check<T: Float>(size: usize, plan: Plan, op: Operation) {
        Threads::default().run_transports(size, |transport| {
            let world = SharedCommunicator::new(transport, 2).unwrap();
            let (rank, lengths) = (world.rank().index(), [1, 0, 33, 700, 5, 0]);
            let array = |at: usize| data::smooth::<T>(rank + at, lengths[at]);
            let bound = |at: usize| Bound::Absolute([1e-2, 1e-3, 1e-5][at % 3]);
            let op = op.op::<T>();
            let mut together: Vec<_> = (0..lengths.len()).map(array).collect();
            let mut arrays: Vec<_> =
                together.iter_mut().enumerate().map(|(at, x)| (&mut x[..], bound(at))).collect();
            let reports = world.all_reduce_group(&mut arrays, op, &plan).unwrap();
            let n_messages: u64 = reports.iter().map(|report| report.n_messages).sum();
            let mut most = 0;
            for (at, (of_group, report)) in together.iter().zip(&reports).enumerate() {
                let mut alone = array(at);
                let of_one = world.all_reduce(&mut alone, op, &plan.with_bound(bound(at))).unwrap();
                assert!(data::bits(of_group) == data::bits(&alone), "{plan:?}, array {at}");
                assert_eq!((report.bound, report.worst_case), (of_one.bound, of_one.worst_case));
                most = most.max(of_one.n_messages);
            }
            assert_eq!(n_messages, most, "{plan:?} on {size} ranks");
        });
    }
    for size in [2, 3, 4, 6] {
        for pipeline in pipeline::ALL {
            let plan = Plan::foldwire(Bound::Absolute(1.0))
                .with_pipeline(pipeline)
                .with_schedule(&RecursiveDoubling);
            for op in Operation::ALL {
                check::<f32>(size, plan, op);
                check::<f16>(size, plan.with_division(Division::Blocks), op);
                check::<f64>(size, plan.with_codec(CodecId::Raw), op);
            }
        }
    }
}

/// The first message shows that the bounds differ, even if all arrays have the same length.
#[test]
fn groups_within_different_bounds_are_a_mismatch() {
    Threads::default().run_transports(2, |transport| {
        let world = SharedCommunicator::new(transport, 1).unwrap();
        let mut data = [[1.0f32; 50]; 3];
        let bounds = [1e-3, if world.rank() == Rank(1) { 1e-4 } else { 1e-3 }, 1e-3];
        let bounds = bounds.map(Bound::Absolute);
        let mut arrays: Vec<_> = data.iter_mut().map(|x| &mut x[..]).zip(bounds).collect();
        let outcome = world.all_reduce_group(&mut arrays, Op::Sum, &Plan::foldwire(bounds[0]));
        assert!(
            matches!(outcome, Err(Error::Mismatch { field: Field::Quantum, .. })),
            "{outcome:?}"
        );
    });
}

#[test]
fn a_group_with_one_wrong_bound_sends_nothing() {
    Threads::default().run_transports(2, |transport| {
        let world = SharedCommunicator::new(transport, 2).unwrap();
        let (mut a, mut b) = ([1.0f32; 100], [2.0f32; 100]);
        let mut arrays =
            [(&mut a[..], Bound::Absolute(1e-3)), (&mut b[..], Bound::Absolute(f64::NAN))];
        let plan = Plan::foldwire(Bound::Absolute(1.0));
        let wrong = world.all_reduce_group(&mut arrays, Op::Sum, &plan);
        assert!(matches!(wrong, Err(Error::Bound(_))), "{wrong:?}");
        arrays[1].1 = Bound::Absolute(1e-3);
        world.all_reduce_group(&mut arrays, Op::Sum, &plan).unwrap();
        assert!((a[7] - 2.0).abs() < 2e-3 && (b[7] - 4.0).abs() < 2e-3);
    });
}

/// Ranks with different groups detect it, and no rank waits forever.
#[test]
fn groups_of_different_arrays_are_a_mismatch() {
    Threads::default().run_transports(3, |transport| {
        let world = SharedCommunicator::new(transport, 4).unwrap();
        let n_arrays = if world.rank() == Rank(1) { 2 } else { 3 };
        let mut data = vec![vec![1.0f32; 50]; n_arrays];
        let mut arrays: Vec<_> =
            data.iter_mut().map(|x| (&mut x[..], Bound::Relative(1e-3))).collect();
        let plan = Plan::foldwire(Bound::Relative(1e-3));
        let outcome = world.all_reduce_group(&mut arrays, Op::Sum, &plan);
        assert!(
            matches!(outcome, Err(Error::Mismatch { .. } | Error::Aborted { .. })),
            "{outcome:?}"
        );
    });
}

/// All ranks report the mismatch, also those that wait in another call of the group.
#[test]
fn all_ranks_hear_on_what_groups_disagree() {
    for _ in 0..20 {
        let outcomes = Threads::default().run_transports(4, |transport| {
            let world = SharedCommunicator::new(transport, 3).unwrap();
            let last = if world.rank() == Rank(2) { 20_001 } else { 20_000 };
            let mut data = [9000, 30_000, last].map(|count| vec![1.0f32; count]);
            let bound = Bound::Absolute(1e-3);
            let mut arrays: Vec<_> = data.iter_mut().map(|x| (&mut x[..], bound)).collect();
            world.all_reduce_group(&mut arrays, Op::Sum, &Plan::foldwire(bound))
        });
        for outcome in outcomes {
            let is_told = matches!(
                outcome,
                Err(Error::Mismatch { .. }
                    | Error::Aborted { reason: AbortReason::Mismatch(_), .. })
            );
            assert!(is_told, "{outcome:?}");
        }
    }
}

/// A task that sleeps until it is woken needs few polls. Meanwhile the communicator refuses other
/// calls.
#[test]
fn a_group_can_be_awaited_and_has_its_communicator_to_itself() {
    Threads::default().run_transports(3, |transport| {
        let world = SharedCommunicator::new(transport, 2).unwrap();
        let plan = Plan::foldwire(Bound::Relative(1e-4));
        let input = |at: usize| data::smooth::<f32>(world.rank().index() + at, 50_000 * at + 7);
        let sum_of = |arrays: &mut [Vec<f32>], awaits: bool| {
            let bound = Bound::Relative(1e-4);
            let mut arrays: Vec<_> = arrays.iter_mut().map(|x| (&mut x[..], bound)).collect();
            let call = world.start_all_reduce_group(&mut arrays, Op::Sum, &plan).unwrap();
            let other = world.start_barrier().err();
            assert_eq!(other, Some(Error::TooManyCalls { max: 2 }));
            if !awaits {
                return call.wait().unwrap();
            }
            let waker = Waker::from(Arc::new(UnparkWaker(std::thread::current())));
            let (mut call, mut n_polls) = (pin!(call), 0);
            loop {
                n_polls += 1;
                match call.as_mut().poll(&mut Context::from_waker(&waker)) {
                    Poll::Ready(reports) => break reports.unwrap(),
                    Poll::Pending => std::thread::park(),
                }
                assert!(n_polls < 20_000, "the task did not sleep");
            }
        };
        let mut awaited: Vec<Vec<f32>> = (0..4).map(input).collect();
        let mut waited = awaited.clone();
        let reports = [sum_of(&mut awaited, true), sum_of(&mut waited, false)];
        assert!(awaited == waited && reports.iter().all(|reports| reports.len() == 4));
        world.barrier().unwrap();
        // Dropping the group's call ends the communicator on all ranks.
        let mut data = [1.0f32; 90_000];
        let mut arrays = [(&mut data[..], Bound::Absolute(1e-3))];
        let call = world.start_all_reduce_group(&mut arrays, Op::Sum, &plan).unwrap();
        if world.rank() == Rank(1) {
            // Even before its first poll.
            drop(call);
        } else {
            assert!(matches!(
                call.wait(),
                Err(Error::Aborted { reason: AbortReason::Dropped, .. })
            ));
        }
        assert_eq!(world.barrier().err(), Some(Error::Poisoned));
    });
}
