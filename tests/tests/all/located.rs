//! Extremes and where they are, compared with a search over all ranks' pairs.

use foldwire::{Element, Error, Plan, SharedCommunicator, f16};
use foldwire_tests::data::Random;
use foldwire_threads::World;

/// Returns the best value of all ranks and the smallest index that comes with it.
fn searched<T: Copy>(pairs: &[(T, i64)], is_better: impl Fn(T, T) -> bool) -> (T, i64) {
    pairs.iter().skip(1).fold(pairs[0], |best, &(value, index)| {
        if is_better(value, best.0) || !is_better(best.0, value) && index < best.1 {
            (value, index)
        } else {
            best
        }
    })
}

/// Checks `max_loc` and `min_loc` of `of`, a function of random bits. `order` compares two values.
fn check<T: Element>(of: impl Fn(u64) -> T + Sync, order: fn(&T, &T) -> std::cmp::Ordering) {
    for size in [1, 2, 3, 5, 8] {
        for n in [0, 1, 2, 7, 1000] {
            let mut random = Random(7 + n as u64);
            // Few different values, so that ranks have the same one.
            let all: Vec<Vec<(T, i64)>> = (0..size)
                .map(|_| {
                    let pair = |_| (of(random.bits() % 6), (random.bits() % 50) as i64 - 10);
                    (0..n).map(pair).collect()
                })
                .collect();
            let all = &all;
            World::new(size).run(|mut comm| {
                let own = &all[comm.rank().index()];
                for is_max in [true, false] {
                    let mut values: Vec<T> = own.iter().map(|pair| pair.0).collect();
                    let mut indices: Vec<i64> = own.iter().map(|pair| pair.1).collect();
                    let found = match is_max {
                        true => comm.max_loc(&mut values, &mut indices),
                        false => comm.min_loc(&mut values, &mut indices),
                    };
                    found.expect("extremes");
                    for place in 0..n {
                        let pairs: Vec<_> = all.iter().map(|of_rank| of_rank[place]).collect();
                        let (value, index) = searched(&pairs, |a, b| match is_max {
                            true => order(&a, &b).is_gt(),
                            false => order(&a, &b).is_lt(),
                        });
                        let bytes = bytemuck::bytes_of(&values[place]);
                        assert_eq!(bytes, bytemuck::bytes_of(&value), "{is_max}, {size} ranks");
                        assert_eq!(indices[place], index, "{is_max}, {size} ranks");
                    }
                }
            });
        }
    }
}

#[test]
fn extremes_come_with_the_smallest_index_that_has_them() {
    let doubles = [0.0, -0.0, 1.5, -2.0, f64::INFINITY, f64::NEG_INFINITY];
    check(|bits| doubles[bits as usize], f64::total_cmp);
    check(|bits| f16::from_f64(doubles[bits as usize]), f16::total_cmp);
    check(|bits| bits as i8 - 3, i8::cmp);
    check(|bits| bits << 60, u64::cmp);
}

#[test]
fn nan_is_the_extreme_of_both_kinds() {
    World::new(3).run_endpoints(|endpoint| {
        let comm = SharedCommunicator::new(endpoint, 1).expect("channels");
        let rank = comm.rank().index();
        let own = [1.0f32, f32::NAN, f32::from_bits(0xffc0_1234)][rank];
        for is_max in [true, false] {
            let (mut value, mut index) = ([own], [10 - rank as i64]);
            let found = match is_max {
                true => comm.max_loc(&mut value, &mut index),
                false => comm.min_loc(&mut value, &mut index),
            };
            found.expect("an extreme");
            assert_eq!((value[0].to_bits(), index[0]), (f32::NAN.to_bits(), 8));
        }
    });
}

/// Searches and sums are in progress together, and ranks wait for them in different orders.
#[test]
fn started_searches_keep_to_the_order_of_their_starts() {
    for n_calls in [1, 2, 5] {
        World::new(3).run_endpoints(|endpoint| {
            let comm = SharedCommunicator::new(endpoint, n_calls).expect("channels");
            let rank = comm.rank().index();
            let values: Vec<f64> = (0..9000).map(|at| ((at * 7 + rank * 5) % 11) as f64).collect();
            let ranks = vec![rank as i64; values.len()];
            let best = |at: usize| (0..3).max_by_key(|rank| ((at * 7 + rank * 5) % 11, 3 - rank));
            for turn in 0..4 {
                let mut running = Vec::new();
                let mut sum = None;
                for _ in 0..n_calls.min(2) {
                    let search = comm.start_max_loc(values.clone(), ranks.clone());
                    running.push(search.expect("a search"));
                }
                if n_calls > 2 {
                    let ones = vec![1i32; 5000];
                    let call = foldwire::Call::all_reduce(ones, foldwire::Op::Sum);
                    sum = Some(comm.start(call, &Plan::raw()).expect("a sum"));
                    let lowest = comm.start_min_loc([rank as i64], [7]).expect("a search");
                    let (found, _) = lowest.wait().into_result().expect("found");
                    assert_eq!(found, ([0], [7]));
                }
                if (rank + turn) % 2 == 0 {
                    running.reverse();
                }
                for search in running {
                    let ((found, places), report) = search.wait().into_result().expect("found");
                    assert!(report.wire_bytes > 0);
                    for (at, (&value, &place)) in found.iter().zip(&places).enumerate() {
                        let best = best(at).expect("a rank");
                        assert_eq!(
                            (value, place),
                            (((at * 7 + best * 5) % 11) as f64, best as i64)
                        );
                    }
                }
                if let Some(sum) = sum {
                    assert_eq!(sum.wait().into_result().expect("a sum").0, [3; 5000]);
                }
            }
        });
    }
}

#[test]
fn a_search_that_is_dropped_or_cannot_start_is_an_error_on_all_ranks() {
    World::new(2).run_endpoints(|endpoint| {
        let comm = SharedCommunicator::new(endpoint, 1).expect("channels");
        let refused = comm.start_max_loc(vec![1.0, 2.0], vec![1]).map(drop);
        assert!(matches!(refused, Err(Error::Length { need: 2, have: 1, .. })), "{refused:?}");
        let first = comm.start_max_loc(vec![1.0], vec![1]).expect("a search");
        let second = comm.start_max_loc(vec![1.0], vec![1]).map(drop);
        assert!(matches!(second, Err(Error::TooManyCalls { max: 1 })), "{second:?}");
        first.wait().into_result().expect("found");
        let dropped = comm.start_min_loc(vec![1.0; 3], vec![1; 3]).expect("a search");
        if comm.rank().index() == 0 {
            drop(dropped);
        } else {
            let failed = dropped.wait().into_result().map(drop);
            assert!(matches!(failed, Err(Error::Aborted { .. })), "{failed:?}");
        }
        assert!(matches!(comm.barrier(), Err(Error::Poisoned)));
    });
}

#[test]
fn an_index_for_each_value_is_required() {
    World::new(2).run(|mut comm| {
        let refused = comm.max_loc(&mut [1.0, 2.0], &mut [1]);
        assert!(matches!(refused, Err(Error::Length { need: 2, have: 1, .. })), "{refused:?}");
        comm.barrier().expect("a usable communicator");
    });
}

#[test]
fn complex_numbers_are_summed_as_pairs() {
    World::new(3).run(|mut comm| {
        let rank = f64::from(comm.rank().0);
        let mut spectrum = vec![[rank, -2.0 * rank]; 5];
        let pairs = spectrum.as_flattened_mut();
        comm.all_reduce(pairs, foldwire::Op::Sum, &Plan::raw()).expect("a sum");
        assert_eq!(spectrum, [[3.0, -6.0]; 5]);
    });
}
