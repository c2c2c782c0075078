//! Tests of `f16` and `bf16` over all their values.

use super::*;
use crate::op;

/// Every bit pattern, in two orders: ascending, so that blocks have one magnitude, and scattered,
/// so that blocks mix exceptions and codes.
fn all_patterns<T: Float>() -> Vec<T> {
    let in_order = 0..=u16::MAX;
    let scattered = (0..=u16::MAX).map(|i| i.wrapping_mul(0x9e37));
    // Patterns of moderate magnitude, so that whole blocks are on the lattice.
    let ordinary = (0..=u16::MAX).map(|i| (i.wrapping_mul(0x9e37) & 0x83ff) | 0x3c00);
    let all: Vec<u16> = in_order.chain(scattered).chain(ordinary).collect();
    bytemuck::cast_slice::<u16, u8>(&all)
        .chunks_exact(T::BYTES)
        .map(bytemuck::pod_read_unaligned)
        .collect()
}

/// Quanta with steps finer and coarser than the distances between values.
fn quanta<T: Float>() -> Vec<Quantum> {
    let bounds = (-40..20).map(|exponent| libm::ldexp(0.7, exponent)).chain([1e-30, 1e30]);
    let quanta = bounds.map(|bound| Quantum::new::<T>(bound).unwrap());
    quanta.chain([Quantum::LOSSLESS]).collect()
}

fn every_pattern<T: Float>() {
    let x = all_patterns::<T>();
    for quantum in quanta::<T>() {
        for n_operands in [1, 8] {
            let codec = |level| FzLight::<T>::with_level(quantum, n_operands, level);
            let frame = encoded(&codec(Level::Scalar), &x);
            let y = decoded(&codec(Level::Scalar), &frame, x.len());
            for (x, y) in x.iter().zip(&y) {
                let close = (x.to_f64() - y.to_f64()).abs() <= quantum.bound();
                assert!(close || x.bits() == y.bits(), "{x:?} became {y:?} at {quantum:?}");
                assert!(x.finite() || x.bits() == y.bits());
            }
            let again = encoded(&codec(Level::Scalar), &y);
            let z = decoded(&codec(Level::Scalar), &again, x.len());
            assert!(bits(&z) == bits(&y), "encoding decoded values, {quantum:?}");
            for level in Level::available().skip(1) {
                assert!(encoded(&codec(level), &x) == frame, "{level}, {quantum:?}");
                let same = bits(&decoded(&codec(level), &frame, x.len())) == bits(&y);
                assert!(same, "{level}, {quantum:?}");
            }
        }
    }
}

#[test]
fn every_pattern_is_within_the_bound_stays_there_and_is_the_same_at_every_level() {
    every_pattern::<f16>();
    every_pattern::<bf16>();
}

/// Checks that encoding any decoded value gives it back (docs/guarantees.md, "Types of 16 bits").
/// Encoding again is therefore harmless.
fn decoded_values_are_fixed<T: Float>() {
    for quantum in quanta::<T>().into_iter().filter(|quantum| !quantum.is_lossless()) {
        let codec = FzLight::<T>::new(quantum, 1);
        let step = T::Wide::nearest(quantum.step());
        let x: Vec<T> = (-1 << 17..=1 << 17)
            .map(|q| T::narrow(T::Wide::nearest(f64::from(q)) * step))
            .collect();
        let y = decoded(&codec, &encoded(&codec, &x), x.len());
        // Compare values, not bits: for a product that underflows, −0 becomes +0.
        let changed = x.iter().zip(&y).find(|(x, y)| x != y);
        assert!(changed.is_none(), "{changed:?} at {quantum:?}");
    }
}

#[test]
fn encoding_any_decoded_code_gives_the_value_back() {
    decoded_values_are_fixed::<f16>();
    decoded_values_are_fixed::<bf16>();
}

/// Checks that every finite value whose code is within the limit is on the lattice, and that its
/// point is representable, so that only sums are rounded.
fn no_value_within_the_limit_is_an_exception<T: Float>() {
    let x = all_patterns::<T>();
    for quantum in quanta::<T>().into_iter().filter(|quantum| !quantum.is_lossless()) {
        let codec = FzLight::<T>::new(quantum, 1);
        for &x in &x {
            let code = libm::rint(x.to_f64() / quantum.step());
            let point = code * quantum.step();
            let is_code = x.finite() && code.abs() <= 65_536.0 && point.abs() <= T::MAX.to_f64();
            let is_exception = encoded(&codec, &[x])[28] & 2 != 0;
            assert_eq!(is_exception, !is_code, "{x:?} at {quantum:?}");
            assert!(!is_code || T::from_f64(point).to_f64() == point, "{x:?} at {quantum:?}");
        }
    }
}

/// Checks that sums of codes are exact and only the result is rounded: n equal operands give n
/// times their point, rounded once. (Repeated addition in `bf16` would stop at 256 times the
/// point.)
fn sums_are_rounded_once<T: Float>() {
    const N: u32 = 1000;
    for bound in [1e-4, 1e-3, 0.01, 0.3] {
        let quantum = Quantum::new::<T>(bound).unwrap();
        let codec = FzLight::<T>::new(quantum, N);
        let points: Vec<f64> = (0..4096).map(|i| f64::from(i % 100) * quantum.step()).collect();
        let x: Vec<T> = points.iter().map(|&x| T::from_f64(x)).collect();
        let mut frame = encoded(&codec, &x);
        for _ in 1..N {
            frame = folded(&codec, &Op::Sum, &frame, &x);
        }
        for (sum, point) in decoded(&codec, &frame, x.len()).iter().zip(points) {
            let exact = f64::from(N) * point;
            let error = (sum.to_f64() - exact).abs();
            assert!(error <= 1.001 * T::UNIT_ROUNDOFF * exact, "{sum:?} for {exact}");
        }
    }
}

/// Slow tests, which rarely fail unless a faster test fails too.
mod long {
    use super::*;

    #[test]
    fn finite_values_that_are_not_far_beyond_the_bound_are_never_exceptions() {
        no_value_within_the_limit_is_an_exception::<f16>();
        no_value_within_the_limit_is_an_exception::<bf16>();
    }
}

#[test]
fn sums_of_codes_are_exact_and_rounded_once() {
    sums_are_rounded_once::<f16>();
    sums_are_rounded_once::<bf16>();
}

#[test]
fn sums_beyond_the_largest_value_are_infinite_and_averages_are_not() {
    let quantum = Quantum::new::<f16>(100.0).unwrap();
    let x = [f16::MAX, f16::MIN, f16::from_f32(40_000.0), f16::from_f32(-10_000.0)].repeat(8);
    for level in Level::available() {
        let params = CodecParams::new(quantum).at(level);
        for averages in [false, true] {
            let params = if averages { params.for_averages_of(4) } else { params.for_sums_of(4) };
            let codec = FzLight::<f16>::from_params(&params);
            let mut frame = encoded(&codec, &x);
            for _ in 1..4 {
                frame = folded(&codec, &Op::Sum, &frame, &x);
            }
            let mut y = vec![f16::ZERO; x.len()];
            codec.decode(&frame, if averages { 4 } else { 1 }, &mut y).unwrap();
            for (y, x) in y.iter().zip(&x) {
                let exact = if averages { x.to_f64() } else { 4.0 * x.to_f64() };
                if averages || exact.abs() < 65_000.0 {
                    assert!((y.to_f64() - exact).abs() <= 400.0, "{x:?}: {y:?}, {level}");
                } else {
                    assert_eq!(y.to_f64(), f64::INFINITY.copysign(exact), "{level}");
                }
            }
        }
    }
}

fn values_are_added_alike<T: Float>() {
    let (x, y) = (all_patterns::<T>(), all_patterns::<T>());
    let y: Vec<T> = y.iter().rev().copied().skip(777).chain(x[..777].iter().copied()).collect();
    for n in [x.len(), 0, 1, 31, 33, 70] {
        let expected: Vec<T> = x.iter().zip(&y).take(n).map(|(&x, &y)| op::sum(x, y)).collect();
        for level in Level::available() {
            let mut sums = x[..n].to_vec();
            Kernel::at(level).sum(&mut sums, &y[..n]);
            assert!(bits(&sums) == bits(&expected), "{n} values, {level}");
        }
    }
}

#[test]
fn every_level_adds_values_as_the_definition_of_a_sum_does() {
    values_are_added_alike::<f16>();
    values_are_added_alike::<bf16>();
    values_are_added_alike::<f32>();
    values_are_added_alike::<f64>();
}
