//! Reproducible sums: the same bits for any number of ranks, any schedule, any distribution and
//! order of the values, and each is the exact sum, rounded once.
//!
//! The oracle adds integers: the values are k · 2⁻⁶⁰ with integers k, and 128 bits hold their sum.

use foldwire::{Error, ExactSum, Op, Plan, Rank, SharedCommunicator, Summands};
use foldwire_tests::data::Random;
use foldwire_tests::repro_sums::{self, deal};
use foldwire_threads::World;

/// Returns values, and their sum.
fn values(random: &mut Random, n: usize) -> (Vec<f64>, f64) {
    let unit = 2f64.powi(-60);
    // Sizes from 2⁻⁶⁰ to 2⁻⁷.
    let integer = |random: &mut Random| random.bits() as i64 >> (11 + random.bits() % 53);
    let integers: Vec<i64> = (0..n).map(|_| integer(random)).collect();
    let sum: i128 = integers.iter().map(|&k| i128::from(k)).sum();
    (integers.iter().map(|&k| k as f64 * unit).collect(), sum as f64 * unit)
}

fn bits(sums: &[f64]) -> Vec<u64> {
    sums.iter().map(|sum| sum.to_bits()).collect()
}

#[test]
fn one_sum_has_the_same_bits_on_any_number_of_ranks() {
    let mut random = Random(1);
    let (mut all, expected) = values(&mut random, 5000);
    for size in [1, 2, 3, 4, 7, 16, 64] {
        random.shuffle(&mut all);
        let dealt = deal(&mut random, &all, size);
        let sums = World::new(size).run(|mut comm| {
            let own = &dealt[comm.rank().index()];
            let [first, second] = [comm.repro_sum(own), comm.repro_sum(own)];
            // A repeated call replays its steps.
            assert_eq!(first, comm.repro_sum(own));
            assert_eq!(first, second);
            first.expect("a sum")
        });
        assert!(sums.iter().all(|sum| sum.to_bits() == expected.to_bits()), "{size}: {sums:?}");
    }
}

/// Computes the suite's sums on each of `sizes` ranks, by the schedules that `chosen` takes.
fn suites_sums(sizes: impl IntoIterator<Item = usize>, chosen: fn(usize, usize) -> bool) {
    let (values, expected): (Vec<_>, Vec<u64>) = repro_sums::inputs().into_iter().unzip();
    let mut random = Random(2);
    for size in sizes {
        let dealt: Vec<_> = values.iter().map(|x| deal(&mut random, x, size)).collect();
        let schedules = repro_sums::schedules().into_iter().enumerate();
        let schedules: Vec<_> =
            schedules.filter(|&(at, _)| chosen(size, at)).map(|(_, one)| one).collect();
        World::new(size).run(|mut comm| {
            let rank = comm.rank().index();
            let own: Vec<_> = dealt.iter().map(|of_sum| of_sum[rank].clone()).collect();
            repro_sums::check(&mut comm, &own, &expected, &schedules).expect("sums");
        });
    }
}

/// The [suite](foldwire_tests::suite) does this on every backend, up to 5 ranks.
#[test]
fn many_sums_have_the_same_bits_for_every_schedule_and_distribution() {
    let quick = |size, at| size < 8 || at % 3 == size % 3;
    suites_sums([1, 4, 7, 8, 16, 17, 33, 64], quick);
}

/// Slow tests. When one fails, a faster test usually fails too.
mod long {
    use super::*;

    #[test]
    fn sums_have_the_same_bits_on_1_to_64_ranks_by_every_schedule() {
        suites_sums((1..=64).chain(1..=64), |_, _| true);
    }
}

#[test]
fn two_levels_and_split_communicators_have_the_same_bits() {
    let mut random = Random(3);
    let (all, expected) = values(&mut random, 900);
    let dealt = deal(&mut random, &all, 6);
    World::new(6).ranks_per_node(2).run_endpoints(|endpoint| {
        let world = SharedCommunicator::new(endpoint, 1).expect("channels");
        let levels = world.two_levels(1).expect("nodes of two");
        let values = &dealt[world.rank().index()];
        for comm in [&world, &levels] {
            assert_eq!(comm.repro_sum(values), Ok(expected));
            let rows = [&values[..], &values[..]].concat();
            let mut sums = [0.0; 2];
            comm.repro_sums(Summands::Rows(&rows), &mut sums, &Plan::raw()).expect("sums");
            assert_eq!(sums, [expected; 2]);
        }
        let alone = world.split(Some(world.rank().0), 0, 1).expect("a color").expect("a group");
        let mut sum = ExactSum::new();
        sum.add_all(values);
        assert_eq!(alone.repro_sum(values), Ok(sum.to_f64()));
    });
}

#[test]
fn columns_rows_and_single_precision_are_summed_alike() {
    const N_SUMS: usize = 21;
    World::new(3).run(|mut comm| {
        // The ranks have different numbers of rows.
        let n_rows = 100 * comm.rank().index() + 7;
        let value = |i: usize, row: usize| (i * 1000 + row) as f32 * 0.1;
        let columns: Vec<f32> =
            (0..n_rows * N_SUMS).map(|at| value(at % N_SUMS, at / N_SUMS)).collect();
        let rows: Vec<f32> =
            (0..n_rows * N_SUMS).map(|at| value(at / n_rows, at % n_rows)).collect();
        let mut sums = [[0.0; N_SUMS]; 2];
        comm.repro_sums(Summands::Columns(&columns), &mut sums[0], &Plan::raw()).expect("sums");
        comm.repro_sums(Summands::Rows(&rows), &mut sums[1], &Plan::raw()).expect("sums");
        assert_eq!(bits(&sums[0]), bits(&sums[1]));
        for (i, &sum) in sums[0].iter().enumerate() {
            // Each is a multiple of 2⁻³⁰ below 2²³.
            let all = (0..3).flat_map(|rank| (0..100 * rank + 7).map(move |row| (i, row)));
            let exact: f64 = all.map(|(i, row)| f64::from(value(i, row))).sum();
            assert_eq!(sum, exact);
        }
    });
}

#[test]
fn sums_take_part_in_the_rules_of_calls() {
    let ends = World::new(2).run(|mut comm| {
        // Without values for all sums nothing is sent, and the communicator stays usable.
        let mut sums = [0.0; 3];
        let refused = comm.repro_sums(Summands::Rows(&[1.0; 4]), &mut sums, &Plan::raw());
        assert!(matches!(refused, Err(Error::Length { need: 3, have: 4, .. })), "{refused:?}");
        assert_eq!(comm.repro_sum(&[1.0]), Ok(2.0));
        assert_eq!(comm.repro_sum::<f64>(&[]).map(f64::to_bits), Ok(0));
        comm.repro_sums(Summands::<f64>::Arrays(&[]), &mut [], &Plan::raw()).expect("no sums");
        // Ranks that make different calls hear of it.
        match comm.rank() {
            Rank(0) => comm.repro_sum(&[1.0]).map(drop),
            _ => comm.all_reduce(&mut [1_u64; 37], Op::Sum, &Plan::raw()).map(drop),
        }
    });
    assert!(ends.iter().any(|end| matches!(end, Err(Error::Mismatch { .. }))), "{ends:?}");
}
