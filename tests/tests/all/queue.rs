//! Calls that own their buffers, submitted to a queue and polled by somebody else.

use foldwire::{Bound, Collective, Error, Op, Plan, Queue, Rank, Report};
use foldwire_tests::{Backend, Threads, data};
use std::sync::Barrier;
use std::task::Poll;

const LOSSY: fn() -> Plan = || Plan::foldwire(Bound::Relative(1e-3));

#[test]
fn calls_of_a_queue_end_in_order_with_the_results_of_blocking_ones() {
    for size in [1, 2, 3, 5] {
        let submitted = Threads::default().run(size, |comm| {
            let rank = comm.rank().index();
            let input = |call: usize, count| data::smooth::<f32>(rank + 100 * call, count);
            let mut queue = Queue::new(comm);
            let even = 1000 * size;
            queue.submit(foldwire::Call::all_reduce(input(0, 50_000), Op::Sum), &LOSSY());
            queue.submit(foldwire::Call::all_reduce(input(1, 0), Op::Max), &Plan::raw());
            queue.submit(foldwire::Call::broadcast(input(2, 7000), Rank::new(size - 1)), &LOSSY());
            queue
                .submit(foldwire::Call::reduce_scatter_in_place(input(3, 9001), Op::Avg), &LOSSY());
            queue.submit(foldwire::Call::all_gather_in_place(input(4, 12_345)), &LOSSY());
            queue
                .submit(foldwire::Call::reduce_in_place(input(5, 777), Op::Sum, Rank(0)), &LOSSY());
            queue.submit(foldwire::Call::all_to_all_in_place(input(6, even)), &LOSSY());
            queue.submit(foldwire::Call::scan(input(7, 4000), Op::Sum), &LOSSY());
            queue.submit(foldwire::Call::exclusive_scan(input(8, 50), Op::Max), &LOSSY());
            assert_eq!(queue.len(), 9);
            let mut results = Vec::new();
            // As an event loop does, and at last waiting.
            while results.len() < 4 {
                if let Poll::Ready(finished) = queue.poll() {
                    results.push(finished.expect("calls are left").into_result().unwrap().0);
                }
            }
            while let Some(finished) = queue.wait() {
                results.push(finished.into_result().unwrap().0);
            }
            assert!(queue.is_empty() && queue.poll().is_ready());
            let (mut comm, left) = queue.into_parts();
            assert!(left.is_empty());

            let mut expected = Vec::new();
            type Call<'a> = &'a mut dyn FnMut(&mut [f32]) -> Result<Report, Error>;
            let mut call = |count, of: Call<'_>| {
                let mut values = input(expected.len(), count);
                of(&mut values).unwrap();
                expected.push(values);
            };
            call(50_000, &mut |x| comm.all_reduce(x, Op::Sum, &LOSSY()));
            call(0, &mut |x| comm.all_reduce(x, Op::Max, &Plan::raw()));
            let root = Rank::new(size - 1);
            call(7000, &mut |x| comm.broadcast(x, root, &LOSSY()));
            call(9001, &mut |x| comm.reduce_scatter_in_place(x, Op::Avg, &LOSSY()));
            call(12_345, &mut |x| comm.all_gather_in_place(x, &LOSSY()));
            call(777, &mut |x| comm.reduce_in_place(x, Op::Sum, Rank(0), &LOSSY()));
            call(even, &mut |x| comm.all_to_all_in_place(x, &LOSSY()));
            call(4000, &mut |x| comm.scan(x, Op::Sum, &LOSSY()));
            call(50, &mut |x| comm.exclusive_scan(x, Op::Max, &LOSSY()));
            (results, expected)
        });
        for (rank, (results, expected)) in submitted.iter().enumerate() {
            for (call, (got, want)) in results.iter().zip(expected).enumerate() {
                assert!(data::bits(got) == data::bits(want), "rank {rank} of {size}, call {call}");
            }
            assert_eq!(results.len(), 9);
        }
    }
}

#[test]
fn a_wrong_call_fails_in_its_turn_and_the_others_go_on() {
    let outcomes = Threads::default().run(3, |comm| {
        let mut queue = Queue::new(comm);
        queue.submit(foldwire::Call::all_reduce(vec![1.0f64; 10], Op::Sum), &Plan::raw());
        // Not as many for each.
        queue.submit(foldwire::Call::all_to_all_in_place(vec![2.0; 10]), &Plan::raw());
        queue.submit(foldwire::Call::broadcast(vec![3.0; 10], Rank(7)), &Plan::raw());
        queue.submit(foldwire::Call::all_reduce(vec![4.0; 10], Op::Sum), &Plan::raw());
        std::iter::from_fn(|| queue.wait()).map(|f| (f.data, f.outcome.err())).collect::<Vec<_>>()
    });
    for outcome in outcomes {
        let [(sum, None), (kept, Some(length)), (_, Some(root)), (last, None)] = &outcome[..]
        else {
            panic!("{outcome:?}")
        };
        assert!(matches!(length, Error::Length { .. }) && matches!(root, Error::Root { .. }));
        assert_eq!((sum[9], kept[9], last[9]), (3.0, 2.0, 12.0));
    }
}

#[test]
fn a_queue_that_is_dropped_gives_its_call_up_and_the_others_get_their_arrays_back() {
    let given_up = Barrier::new(2);
    let outcomes = Threads::default().run(2, |comm| {
        let is_odd = comm.rank() == Rank(1);
        let mut queue = Queue::new(comm);
        for _ in 0..3 {
            queue.submit(foldwire::Call::all_reduce(vec![1.0f32; 300_000], Op::Sum), &Plan::raw());
        }
        if is_odd {
            assert!(queue.poll().is_pending(), "the other has not begun");
            drop(queue);
            given_up.wait();
            return Vec::new();
        }
        given_up.wait();
        let outcomes: Vec<_> =
            std::iter::from_fn(|| queue.wait()).map(|f| (f.data.len(), f.outcome)).collect();
        let (comm, left) = queue.into_parts();
        assert!(comm.is_poisoned() && left.is_empty());
        outcomes
    });
    let [(a, Err(first)), (b, Err(second)), (c, Err(third))] = &outcomes[0][..] else {
        panic!("{outcomes:?}")
    };
    assert_eq!((*a, *b, *c), (300_000, 300_000, 300_000));
    assert!(matches!(first, Error::Aborted { culprit: Rank(1), .. }), "{first}");
    assert_eq!([second, third], [&Error::Poisoned; 2]);
}

#[test]
fn a_queue_taken_apart_gives_back_what_has_not_begun() {
    let left = Threads::default().run(1, |comm| {
        let mut queue = Queue::new(comm);
        for call in 0..3 {
            queue.submit(foldwire::Call::all_reduce(vec![call as f32; 5], Op::Sum), &Plan::raw());
        }
        let first = queue.wait().expect("a call").into_result().unwrap().0;
        let (mut comm, left) = queue.into_parts();
        comm.all_reduce(&mut [1.0f32], Op::Sum, &Plan::raw()).expect("nothing was under way");
        (first, left)
    });
    assert_eq!(left[0].1, [vec![1.0; 5], vec![2.0; 5]]);
    assert_eq!(left[0].0, [0.0; 5]);
    assert_eq!(Collective::ALL.len(), 10, "does the queue have the new ones?");
}
