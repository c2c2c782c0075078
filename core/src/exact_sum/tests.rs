//! Tests of exact sums against an oracle that counts bits and rounds by parsing decimal digits.

use super::*;
use crate::element::{bf16, f16};
use crate::kernel::Level;
use std::format;
use std::string::String;
use std::vec::Vec;

/// Sum of `values`, rounded once: adds bits of each weight in counters, converts the integer number
/// of 2⁻¹⁰⁷⁴ to decimal digits, and lets the standard library parse them.
pub(crate) fn oracle(values: &[f64]) -> f64 {
    if values.iter().any(|x| x.is_nan()) {
        return f64::NAN;
    }
    let [up, down] = [f64::INFINITY, f64::NEG_INFINITY].map(|end| values.contains(&end));
    match (up, down) {
        (true, true) => return f64::NAN,
        (true, false) => return f64::INFINITY,
        (false, true) => return f64::NEG_INFINITY,
        (false, false) => {}
    }
    let mut counters = std::vec![0i64; 2200];
    for x in values {
        let exponent = (x.to_bits() >> 52 & 0x7ff) as usize;
        let fraction = x.to_bits() & ((1 << 52) - 1);
        let (significand, at) =
            if exponent == 0 { (fraction, 0) } else { (fraction | 1 << 52, exponent - 1) };
        for bit in 0..53 {
            let one = i64::from(significand >> bit & 1 == 1);
            counters[at + bit] += if x.is_sign_negative() { -one } else { one };
        }
    }
    if carry(&mut counters) < 0 {
        let negated: Vec<f64> = values.iter().map(|x| -x).collect();
        return -oracle(&negated);
    }
    if counters.iter().all(|&bit| bit == 0) {
        let is_minus = |x: &f64| x.to_bits() == (-0.0f64).to_bits();
        return if !values.is_empty() && values.iter().all(is_minus) { -0.0 } else { 0.0 };
    }
    // n · 2⁻¹⁰⁷⁴ = n · 5¹⁰⁷⁴ · 10⁻¹⁰⁷⁴, with n in limbs of nine decimal digits.
    let mut limbs = Vec::new();
    for bit in counters.iter().rev() {
        multiply(&mut limbs, 2, *bit as u64);
    }
    for _ in 0..1074 {
        multiply(&mut limbs, 5, 0);
    }
    let digits: String = limbs.iter().rev().map(|limb| format!("{limb:09}")).collect();
    format!("{digits}e-1074").parse().unwrap()
}

/// Turns counters into bits, and returns the last carry.
fn carry(counters: &mut [i64]) -> i64 {
    counters.iter_mut().fold(0, |carry, bit| {
        let sum = *bit + carry;
        *bit = sum.rem_euclid(2);
        sum.div_euclid(2)
    })
}

/// Computes limbs · factor + `add`.
fn multiply(limbs: &mut Vec<u64>, factor: u64, add: u64) {
    let mut carry = add;
    for limb in limbs.iter_mut() {
        let product = *limb * factor + carry;
        (*limb, carry) = (product % 1_000_000_000, product / 1_000_000_000);
    }
    if carry > 0 {
        limbs.push(carry);
    }
}

/// A generator of numbers that look random (xorshift).
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn bits(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// Returns a finite value of any sign whose biased exponent is in `exponents`.
    pub(crate) fn value(&mut self, exponents: Range<u64>) -> f64 {
        let exponent = exponents.start + self.bits() % (exponents.end - exponents.start);
        f64::from_bits(self.bits() & !(0x7ff << 52) | exponent << 52)
    }

    pub(crate) fn values(&mut self, n: usize, exponents: Range<u64>) -> Vec<f64> {
        (0..n).map(|_| self.value(exponents.clone())).collect()
    }

    pub(crate) fn shuffle<T>(&mut self, values: &mut [T]) {
        for last in (1..values.len()).rev() {
            values.swap(last, self.bits() as usize % (last + 1));
        }
    }
}

/// Sums the same values in several ways and orders, and compares the bits with the oracle's.
fn check(values: &[f64], random: &mut Random) {
    let expected = oracle(values).to_bits();
    let mut values = values.to_vec();
    for _ in 0..3 {
        let mut one_by_one = ExactSum::new();
        values.iter().for_each(|&x| one_by_one.add(x));
        let mut whole = ExactSum::new();
        whole.add_all(&values);
        let mut parts = ExactSum::new();
        for part in values.chunks(1 + random.bits() as usize % 100) {
            let mut of_part = ExactSum::new();
            of_part.add_all(part);
            parts.merge(&of_part);
        }
        let numbers = through_numbers(&whole, 31 + random.bits() as u32 % 32);
        for sum in [&one_by_one, &whole, &parts, &numbers] {
            assert_eq!(sum.to_f64().to_bits(), expected, "{sum:?} of {values:?}");
        }
        if let Some(sum) = value_of(BatchSums::new().arrays(&[&values[..]]).get(0)) {
            assert_eq!(sum.to_bits(), expected, "{values:?}");
        }
        random.shuffle(&mut values);
    }
}

/// Checks the fields of a short sum, and returns its value. `None` if it has too many bits.
fn value_of(short: Short) -> Option<f64> {
    let [lower, upper] = short.magnitude.map(u128::from);
    let magnitude = lower | upper << 64;
    let is_zero = (short.begin, short.end) == (NONE, 0);
    if !is_zero && short.end - short.begin > 128 {
        return None;
    }
    assert_eq!(magnitude & 1, u128::from(!is_zero));
    assert!(is_zero || short.end - short.begin == (128 - magnitude.leading_zeros()).into());
    let finite = rounded(short.sign != 0, magnitude, short.begin as u32, false);
    Some(Seen(short.seen as u8).sum(is_zero, finite))
}

/// Writes a sum as numbers of so many bits, and adds them again.
fn through_numbers(sum: &ExactSum, n_bits: u32) -> ExactSum {
    let mut numbers = std::vec![7; N_BITS.div_ceil(n_bits) as usize];
    sum.clone().take_numbers(n_bits, 0, &mut numbers);
    let mut copy = ExactSum::new();
    for (i, &number) in (0..).zip(&numbers) {
        copy.add_number(number, i * n_bits);
    }
    copy.set_seen(sum.seen());
    copy
}

/// Compares a short sum with the sum of values. It may lack if they are wide.
fn check_short<T: Float>(short: Short, values: impl Iterator<Item = T> + Clone, is_wide: bool) {
    let mut expected = ExactSum::new();
    values.clone().for_each(|x| expected.add(x));
    match value_of(short) {
        None => assert!(is_wide, "{:?}", values.collect::<Vec<T>>()),
        Some(sum) => assert_eq!(sum.to_bits(), expected.to_f64().to_bits(), "{expected:?}"),
    }
}

#[test]
fn batches_stay_exact_while_values_grow_and_shrink() {
    let mut random = Random(13);
    let mut sums = BatchSums::new();
    for round in 0..2000 {
        // Arrays of few values, of more than a row, of one length, and of different ones.
        let most = [5, 16, 17, 128, 140][random.bits() as usize % 5];
        let n_arrays = 1 + random.bits() as usize % LANES;
        let wide: Vec<bool> = (0..n_arrays).map(|_| random.bits().is_multiple_of(4)).collect();
        let values = wide.iter().map(|&is_wide| {
            let exponent = [random.bits() % 2040, 900 + random.bits() % 200][round % 2];
            let n = random.bits() as usize % (most + 1);
            // Equal values, so that the sum is as long as it can be, or others; or zeros.
            match random.bits() % 4 {
                0 => std::vec![random.value(exponent..exponent + 1); n],
                1 => std::vec![[0.0, -0.0][random.bits() as usize % 2]; n],
                _ if is_wide => random.values(n, exponent..2047),
                _ => random.values(n, exponent..(exponent + 20).min(2047)),
            }
        });
        let values: Vec<Vec<f64>> = values.collect();
        let arrays: Vec<&[f64]> = values.iter().map(Vec::as_slice).collect();
        let batch = sums.arrays(&arrays);
        for (i, array) in arrays.iter().enumerate() {
            check_short(batch.get(i), array.iter().copied(), wide[i]);
        }
        if round % 100 == 0 {
            sums = BatchSums::new();
        }
    }
}

#[test]
fn all_levels_sum_batches_to_the_same_bits() {
    let mut random = Random(19);
    for (n, exponents) in [(3, 1000..1040), (100, 1000..1040), (100, 0..40), (30, 2000..2047)] {
        let values: Vec<f64> = random.values(n * LANES, exponents);
        let arrays: Vec<&[f64]> = values.chunks(n).collect();
        let all = [Level::Scalar, Level::Avx2, Level::Avx512].map(|level| {
            let mut sums = BatchSums::at(level);
            let of_rows = *sums.arrays(&arrays);
            let of_columns = *sums.columns(&values, LANES, 0);
            let of_few = *sums.columns(&values, 2, 0);
            [of_rows, of_columns, of_few].map(|batch| format!("{batch:?}"))
        });
        assert!(all.iter().all(|one| *one == all[0]), "{all:?}");
    }
}

#[test]
fn columns_are_summed_in_batches() {
    fn check<T: Float>(random: &mut Random, from_bits: impl Fn(u64) -> T) {
        let mut sums = BatchSums::new();
        for n_columns in [1, 3, 8, 9, 21] {
            for n_rows in [1, 2, 7, 128] {
                let values: Vec<T> =
                    (0..n_rows * n_columns).map(|_| from_bits(random.bits())).collect();
                for first in (0..n_columns).step_by(LANES) {
                    let batch = sums.columns(&values, n_columns, first);
                    for i in first..n_columns.min(first + LANES) {
                        let column = values.iter().skip(i).step_by(n_columns).copied();
                        check_short(batch.get(i - first), column, true);
                    }
                }
            }
        }
    }
    let mut random = Random(17);
    // Many of these are too wide, not finite, or subnormal.
    check(&mut random, f64::from_bits);
    check(&mut random, |bits| f32::from_bits(bits as u32));
    check(&mut random, |bits| f16::from_bits(bits as u16));
    check(&mut random, |bits| f64::from_bits(bits & (1 << 63)));
    check(&mut random, |bits| f64::from_bits(bits & !(0x7f0 << 52) | 0x3f0 << 52));
    check(&mut random, |bits| f64::from_bits(bits & !(0x7ff << 52)));
}

#[test]
fn sums_are_the_nearest_to_the_exact_ones_in_any_order() {
    let mut random = Random(42);
    // Like sizes, sizes around 1, the whole range, subnormals, and the largest values.
    let ranges = [1023..1024, 1000..1050, 0..2047, 0..1, 0..60, 2040..2047, 900..1100];
    for exponents in ranges {
        for n in [1, 2, 3, 31, 32, 33, 1000, 1030, 2500] {
            let values = random.values(n, exponents.clone());
            check(&values, &mut random);
        }
    }
}

#[test]
fn what_cancels_leaves_the_small_values() {
    let mut random = Random(7);
    for small in [0.0, 1.0, -1e-300, f64::from_bits(1), 5e-324, f64::MIN_POSITIVE] {
        for n in [1, 20, 700] {
            let large = random.values(n, 0..2047);
            let mut values: Vec<f64> = large.iter().flat_map(|&x| [x, -x]).collect();
            values.push(small);
            random.shuffle(&mut values);
            check(&values, &mut random);
            let mut sum = ExactSum::new();
            sum.add_all(&values);
            assert_eq!(sum.to_f64(), small);
        }
    }
    check(&[1e308, 1e308, -1e308, -1e308, 1e308], &mut random);
}

#[test]
fn rounding_is_to_nearest_even_with_all_bits_in_view() {
    let mut random = Random(3);
    let [one, ulp] = [1.0, f64::EPSILON];
    let tiny = f64::from_bits(1);
    for (values, expected) in [
        ([one, ulp / 2.0, 0.0], one),
        ([one, ulp / 2.0, tiny], one + ulp),
        ([one, ulp / 2.0, -tiny], one),
        ([one + ulp, ulp / 2.0, 0.0], one + 2.0 * ulp),
        ([one + ulp, ulp / 2.0, -tiny], one + ulp),
        ([f64::MAX, f64::MAX, 0.0], f64::INFINITY),
        ([f64::MAX, 2f64.powi(970), -tiny], f64::MAX),
        ([f64::MAX, 2f64.powi(970), 0.0], f64::INFINITY),
        ([-f64::MAX, -f64::MAX, f64::MAX], -f64::MAX),
        ([f64::MIN_POSITIVE, -tiny, 0.0], f64::from_bits((1 << 52) - 1)),
        ([f64::MIN_POSITIVE, f64::MIN_POSITIVE, tiny], f64::from_bits(2 << 52)),
    ] {
        check(&values, &mut random);
        let mut sum = ExactSum::new();
        sum.add_all(&values);
        assert_eq!(sum.to_f64().to_bits(), expected.to_bits(), "{values:?}");
    }
}

#[test]
fn special_values_follow_ieee_754() {
    let [up, down, nan] = [f64::INFINITY, f64::NEG_INFINITY, f64::NAN];
    let mut random = Random(5);
    for special in [
        &[][..],
        &[0.0],
        &[-0.0],
        &[-0.0, -0.0],
        &[0.0, -0.0],
        &[1.0, -1.0],
        &[-0.0, 1.0, -1.0],
        &[up],
        &[down],
        &[up, up, -1e308],
        &[up, down],
        &[nan],
        &[nan, up],
        &[-nan, 0.0],
    ] {
        for n in [0, 40, 2000] {
            // Among zeros of both signs, or among other values.
            for other in [None, Some(0.0), Some(-0.0), Some(1.5)] {
                let mut values = special.to_vec();
                values.extend(other.into_iter().flat_map(|x| std::iter::repeat_n(x, n)));
                random.shuffle(&mut values);
                check(&values, &mut random);
            }
        }
    }
}

#[test]
fn many_equal_values_carry_far() {
    // Every addition fills the same digits, past the number that fit without a carry.
    let mut sum = ExactSum::new();
    sum.n_pending = MAX_PENDING - 500;
    let values = std::vec![f64::MAX; 1000];
    values.iter().for_each(|&x| sum.add(x));
    assert!(sum.n_pending < 1000);
    for _ in 0..60 {
        let copy = sum.clone();
        sum.merge(&copy);
    }
    assert_eq!(sum.to_f64(), f64::INFINITY);
    let mut minus = ExactSum::new();
    minus.add_all(&std::vec![-f64::MAX; 1000]);
    for _ in 0..60 {
        let copy = minus.clone();
        minus.merge(&copy);
    }
    assert_eq!(minus.to_f64(), f64::NEG_INFINITY);
    minus.add(2.5);
    minus.merge(&sum);
    assert_eq!(minus.to_f64(), 2.5);
}

#[test]
fn shorter_types_are_added_exactly() {
    let mut random = Random(11);
    for n in [5, 100, 3000] {
        let singles: Vec<f32> = (0..n)
            .map(|_| f32::from_bits(random.bits() as u32))
            .filter(|x| x.is_finite())
            .collect();
        let wide: Vec<f64> = singles.iter().map(|&x| f64::from(x)).collect();
        let mut sum = ExactSum::new();
        sum.add_all(&singles);
        assert_eq!(sum.to_f64().to_bits(), oracle(&wide).to_bits());
    }
    for bits in 0..=u16::MAX {
        let mut sum = ExactSum::new();
        let x = f16::from_bits(bits);
        sum.add(x);
        let expected = if x.is_nan() { f64::NAN } else { x.to_f64() };
        assert_eq!(sum.to_f64().to_bits(), expected.to_bits());
        let mut sum = ExactSum::new();
        let x = bf16::from_bits(bits);
        sum.add(x);
        let expected = if x.is_nan() { f64::NAN } else { x.to_f64() };
        assert_eq!(sum.to_f64().to_bits(), expected.to_bits());
    }
}

#[test]
fn short_numbers_and_their_bits_are_found() {
    let mut random = Random(9);
    for _ in 0..2000 {
        let start = random.bits() % 2000;
        let end = start + 1 + random.bits() % 40;
        let n = 1 + random.bits() as usize % 40;
        let values = random.values(n, start..end);
        let mut sum = ExactSum::new();
        sum.add_all(&values);
        // 93 bits and 6 more fit.
        assert_eq!(value_of(sum.clone().take_short()), Some(sum.to_f64()));
    }
    let mut sum = ExactSum::new();
    sum.add_all(&[1.0, 2f64.powi(-127)]);
    let short = sum.clone().take_short();
    assert_eq!(short.magnitude, [1, 1 << 63]);
    sum.add(2.0);
    let short = sum.clone().take_short();
    assert_eq!((short.begin, short.end), (947, 1076));
    assert_eq!(value_of(short), None);
}

#[test]
fn single_values_of_every_type_become_short_sums() {
    fn check<T: Float>(value: T) {
        let mut sum = ExactSum::new();
        sum.add(value);
        let [short, of_sum] = [Short::of(value), sum.take_short()];
        let fields = |short: Short| {
            let sign = if short.end == 0 { 0 } else { short.sign };
            (short.magnitude, sign, short.begin, short.end, short.seen)
        };
        assert_eq!(fields(short), fields(of_sum), "{value:?}");
    }
    (0..=u16::MAX).for_each(|bits| check(f16::from_bits(bits)));
    (0..=u16::MAX).for_each(|bits| check(bf16::from_bits(bits)));
    let mut random = Random(21);
    for _ in 0..100_000 {
        let [exponent, fraction, sign] = [0, 0, 0].map(|_: u64| random.bits());
        let exponent = if sign & 2 == 0 { exponent } else { exponent % 2 * 0x7ff };
        // Few bits, and many.
        let fraction = (fraction & ((1 << 52) - 1)) >> (sign >> 8 & 63) << (sign >> 16 & 63);
        let bits = sign << 63 | (exponent & 0x7ff) << 52 | (fraction & ((1 << 52) - 1));
        check(f64::from_bits(bits));
        check(f32::from_bits((bits >> 32) as u32));
        check(f32::from_bits(bits as u32));
    }
}
