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
