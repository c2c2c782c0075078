//! Tests of the words that ranks send, for any number of ranks.

use super::words::{MAX_LONG_WORDS, combine};
use super::*;
use crate::exact_sum::Short;
use crate::exact_sum::tests::{Random, oracle};
use std::vec::Vec;

/// Number of ranks of each test.
const SIZES: [usize; 10] = [1, 2, 3, 4, 5, 7, 64, 1000, 4096, 1 << 31];

/// Distributes values over at most 64 ranks, and returns the exact sum of each.
fn distribute(values: &[f64], size: usize, random: &mut Random) -> Vec<ExactSum> {
    let mut sums = std::vec![ExactSum::new(); size.min(64)];
    for &x in values {
        let rank = random.bits() as usize % sums.len();
        sums[rank].add(x);
    }
    sums
}

/// Combines the words of ranks pairwise, in a random order.
fn combined<const N: usize>(mut all: Vec<[u64; N]>, random: &mut Random) -> [u64; N] {
    while all.len() > 1 {
        random.shuffle(&mut all);
        let (last, first) = (all.pop().unwrap(), &mut all[0]);
        for (a, b) in first.iter_mut().zip(last) {
            assert_eq!(combine(*a, b), combine(b, *a));
            *a = combine(*a, b);
        }
    }
    all[0]
}

/// Returns the sum as both forms carry it.
fn both(sums: &[ExactSum], form: Form, random: &mut Random) -> (f64, Option<f64>) {
    let n = form.n_long_words();
    let long = sums.iter().map(|sum| {
        let mut words = [0; MAX_LONG_WORDS];
        form.write_long(&mut sum.clone(), &mut words[..n]);
        words
    });
    let long = combined(long.collect(), random);
    let short_form = ShortForm::of(form);
    let n_short = short_form.n_words;
    let short = sums.iter().map(|sum| {
        let mut words = [0; 3];
        write(short_form, sum.clone().take_short(), &mut words[..n_short]);
        words
    });
    let short = combined(short.collect(), random);
    let long = form.read_long(&long[..n]);
    let from_short = read_one(short_form, &short[..n_short]);
    if from_short.is_none() {
        assert_eq!(from_numbers(sums, form, short[0], random).to_bits(), long.to_bits());
    }
    (long, from_short)
}

fn write(form: ShortForm, sum: Short, words: &mut [u64]) {
    let mut batch = Batch::default();
    batch.set(0, sum);
    Writer::new(form, 1, words).write(&batch);
}

fn read_one(form: ShortForm, words: &[u64]) -> Option<f64> {
    let mut sum = [7.5];
    if form.read(words, &mut sum).is_empty() { Some(sum[0]) } else { None }
}

/// Returns the sum as the second all-reduce carries it, after the facts of the first one.
fn from_numbers(sums: &[ExactSum], form: Form, facts: u64, random: &mut Random) -> f64 {
    let numbers = form.numbers(facts);
    let (first, n) = (numbers.start, numbers.len());
    let all = sums.iter().map(|sum| {
        let mut words = [0; MAX_LONG_WORDS];
        form.write_numbers(&mut sum.clone(), first, &mut words[..n]);
        words
    });
    form.read_numbers(Seen::FINITE, first, &combined(all.collect(), random)[..n])
}

#[test]
fn both_forms_carry_the_exact_sum_for_any_number_of_ranks() {
    let mut random = Random(1);
    for size in SIZES {
        let form = Form::of(size);
        let mut n_short = 0;
        for exponents in [1023..1024, 1000..1040, 0..2047, 0..3, 2030..2047, 400..450] {
            for n in [1, 2, 50] {
                let values = random.values(n, exponents.clone());
                let sums = distribute(&values, size, &mut random);
                let expected = oracle(&values).to_bits();
                let (long, short) = both(&sums, form, &mut random);
                assert_eq!(long.to_bits(), expected, "{size} ranks: {values:?}");
                assert!(short.is_none_or(|sum| sum.to_bits() == expected), "{size}: {values:?}");
                n_short += usize::from(short.is_some());
            }
        }
        let fewest = if size == 1 << 31 { 0 } else { 3 };
        assert!((fewest..18).contains(&n_short), "{n_short} of 18 sums of {size} ranks are short");
    }
}

#[test]
fn sums_at_the_limit_of_the_short_form_are_exact() {
    for size in SIZES {
        let form = Form::of(size);
        // Every rank has the same largest sum that fits: m = 2ⁿ − 1 of n bits.
        let n_bits = ShortForm::of(form).n as u32 - form.n_doublings() - 1;
        for at in [0, 1, 31, 700, 1500] {
            for sign in [1.0, -1.0] {
                let mut sum = ExactSum::new();
                for bit in 0..n_bits {
                    let exponent = (at + bit) as i32 - 1074;
                    sum.add(sign * libm::ldexp(1.0, exponent));
                }
                let sums = std::vec![sum.clone(); size.min(64)];
                let mut whole = ExactSum::new();
                sums.iter().for_each(|sum| whole.merge(sum));
                let (long, short) = both(&sums, form, &mut Random(2));
                assert_eq!(long, whole.to_f64());
                assert_eq!(short.unwrap(), whole.to_f64(), "{size} ranks, {n_bits} bits");
                // One more bit on one rank does not fit.
                let mut more = sums;
                more[0].add(sign * libm::ldexp(1.0, (at + n_bits) as i32 - 1074));
                whole.add(sign * libm::ldexp(1.0, (at + n_bits) as i32 - 1074));
                let (long, short) = both(&more, form, &mut Random(2));
                assert_eq!((long, short), (whole.to_f64(), None));
            }
        }
    }
}

#[test]
fn special_values_and_zeros_travel_in_both_forms() {
    let [up, down, nan] = [f64::INFINITY, f64::NEG_INFINITY, f64::NAN];
    let mut random = Random(3);
    for values in [
        &[][..],
        &[0.0],
        &[-0.0],
        &[-0.0, -0.0, -0.0],
        &[0.0, -0.0],
        &[1.0, -1.0],
        &[up, 1.0, 1e300],
        &[down, 1e-300],
        &[up, down],
        &[nan],
        &[nan, 1.0],
        &[up, up],
        &[f64::MAX, f64::MAX],
        &[-f64::MAX, -f64::MAX, f64::MAX],
        &[5e-324, -5e-324, 5e-324],
    ] {
        for size in SIZES {
            let form = Form::of(size);
            let sums = distribute(values, size, &mut random);
            let expected = oracle(values).to_bits();
            let (long, short) = both(&sums, form, &mut random);
            assert_eq!(long.to_bits(), expected, "{values:?}");
            // Digits for 2³¹ ranks are too short for a whole f64.
            let may_be_long = size == 1 << 31 && short.is_none();
            assert!(may_be_long || short.unwrap().to_bits() == expected, "{values:?}");
        }
    }
}

#[test]
fn summands_give_each_sum_its_values() {
    let n_sums = 19;
    let n_values = 300;
    let columns: Vec<f64> = (0..n_sums * n_values).map(|i| i as f64).collect();
    let by_sum = |i: usize| columns.iter().skip(i).step_by(n_sums).copied();
    let rows: Vec<f64> = (0..n_sums).flat_map(by_sum).collect();
    let arrays: Vec<&[f64]> = rows.chunks(n_values).collect();
    for summands in [Summands::Columns(&columns), Summands::Rows(&rows), Summands::Arrays(&arrays)]
    {
        summands.check(n_sums).unwrap();
        assert!(summands.check(n_sums - 1).is_err());
        let which = [3, 0, 18, 5, 6, 7, 8, 9, 10, 11];
        let mut seen = Vec::new();
        summands.for_each(n_sums, &which, |place, sum| seen.push((place, sum.to_f64())));
        let expected: Vec<_> =
            which.iter().enumerate().map(|(place, &i)| (place, by_sum(i).sum())).collect();
        assert_eq!(seen, expected);
        check_short(summands, n_sums, by_sum);
    }
    for n_values in [1, 2, 16, 100, 128, 129] {
        let columns = &columns[..n_sums * n_values];
        let by_sum = |i: usize| columns.iter().skip(i).step_by(n_sums).copied();
        let rows: Vec<f64> = (0..n_sums).flat_map(by_sum).collect();
        let arrays: Vec<&[f64]> = rows.chunks(n_values).collect();
        check_short(Summands::Columns(columns), n_sums, by_sum);
        check_short(Summands::Rows(&rows), n_sums, by_sum);
        check_short(Summands::Arrays(&arrays), n_sums, by_sum);
    }
    check_short(Summands::<f64>::Rows(&[]), 3, |_| core::iter::empty());
    assert!(Summands::Rows(&[1.0]).check(0).is_err());
    Summands::<f64>::Rows(&[]).check(0).unwrap();
}

/// Compares short sums with sums of integers.
fn check_short<I: Iterator<Item = f64>>(
    summands: Summands<'_, f64>,
    n_sums: usize,
    by_sum: impl Fn(usize) -> I,
) {
    let form = ShortForm::of(Form::of(1));
    let mut words = std::vec![0; form.n_words * n_sums];
    let mut writer = Writer::new(form, n_sums, &mut words);
    summands.for_each_batch(n_sums, |sums| writer.write(sums));
    let mut sums = std::vec![7.5; n_sums];
    assert!(form.read(&words, &mut sums).is_empty());
    let expected: Vec<_> = (0..n_sums).map(|i| by_sum(i).sum()).collect();
    assert_eq!(sums, expected);
}

#[test]
fn places_of_bits_are_divided_exactly() {
    for size in SIZES {
        let form = ShortForm::of(Form::of(size));
        (0..1 << 12).for_each(|at| assert_eq!(form.rest(at), at % form.n));
    }
}
