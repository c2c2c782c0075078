//! The faults found in the published fZ-light and hZCCL code cannot occur here. Each fault has a
//! test.

use foldwire::codec::{Codec, CodecError, CodecExt, DecodeError, FzLight};
use foldwire::kernel::Level;
use foldwire::pipeline::{FUSED, HOMOMORPHIC};
use foldwire::{Bound, DType, Float, Op, Plan, Quantum, bf16, f16};
use foldwire_tests::case::ROUTES;
use foldwire_tests::data::Random;
use foldwire_tests::{Backend, Case, Threads, coding, data};

fn codec<T: Float>(bound: f64, operands: u32) -> FzLight<T> {
    FzLight::new(Quantum::new::<T>(bound).expect("a bound"), operands)
}

fn round_trip<T: Float>(codec: &FzLight<T>, values: &[T]) -> Vec<T> {
    coding::decode(codec, &coding::encode(codec, values), values.len())
}

/// Asserts that values are within the bound in `f64` arithmetic, or have the same bits.
fn assert_within<T: Float>(values: &[T], decoded: &[T], bound: f64) {
    for (&x, &y) in values.iter().zip(decoded) {
        let close = (x.to_f64() - y.to_f64()).abs() <= bound;
        assert!(close || data::bytes(&[x]) == data::bytes(&[y]), "{x:?} became {y:?} at {bound:e}");
    }
}

/// Returns a smooth curve of this amplitude, with noise that is larger than most bounds here.
fn noisy<T: Float>(seed: u64, n: usize, amplitude: f64) -> Vec<T> {
    let mut random = Random(seed);
    let phase = random.unit();
    (0..n)
        .map(|i| {
            let x = (i as f64 * 1e-3 + phase).sin() + 0.1 * (random.unit() - 0.5);
            T::from_f64(amplitude * x)
        })
        .collect()
}

fn no_bias<T: Float>() {
    const N: usize = 100_000;
    const OPERANDS: u32 = 64;
    const EB: f64 = 1e-3;
    let codec = codec::<T>(EB, OPERANDS);
    let mut exact = vec![0.0; N];
    let mut sum: Option<Vec<u8>> = None;
    let mut of_operands = 0.0;
    for rank in 0..u64::from(OPERANDS) {
        let x = noisy::<T>(rank, N, 1.0);
        let y = round_trip(&codec, &x);
        let errors = x.iter().zip(&y).map(|(x, y)| y.to_f64() - x.to_f64());
        of_operands += errors.sum::<f64>() / (N as f64 * f64::from(OPERANDS));
        exact.iter_mut().zip(&x).for_each(|(sum, x)| *sum += x.to_f64());
        sum = Some(match sum {
            None => coding::encode(&codec, &x),
            Some(frame) => coding::fold(&codec, &Op::Sum, &frame, &x).expect("operands match"),
        });
    }
    assert!(of_operands.abs() < 0.02 * EB, "a mean error of {} eb", of_operands / EB);
    let sum = coding::decode(&codec, &sum.expect("operands"), N);
    let of_sum = sum.iter().zip(&exact).map(|(y, x)| y.to_f64() - x).sum::<f64>() / N as f64;
    // With the bound eb, errors of the published code average −0.5 eb for each operand, so −32 eb
    // here. Chance alone gives a standard deviation of 0.57·√64/√100000 = 0.015 eb.
    assert!(of_sum.abs() < 0.1 * EB, "a mean error of {} eb in the sum", of_sum / EB);
}

#[test]
fn errors_have_no_bias() {
    no_bias::<f32>();
    no_bias::<f64>();
}

#[test]
fn the_bound_holds_however_large_values_are_against_it() {
    for ratio in [1e4, 1e5, 1e6, 3e6, 1e7, 1e8] {
        for amplitude in [1.0, 250.0, 1e5] {
            let bound = amplitude / ratio;
            let x = noisy::<f32>(1, 50_001, amplitude);
            assert_within(&x, &round_trip(&codec(bound, 8), &x), bound);
            let x = noisy::<f64>(1, 50_001, amplitude);
            assert_within(&x, &round_trip(&codec(bound, 8), &x), bound);
        }
    }
}

#[test]
fn huge_values_and_tiny_bounds_do_not_overflow() {
    for amplitude in [1e10, 1e20, 1e30, 3e38] {
        for bound in [1e-30, 1e-10, 1.0, 1e9] {
            let x = noisy::<f32>(2, 10_001, amplitude);
            assert_within(&x, &round_trip(&codec(bound, 1), &x), bound);
            let x = noisy::<f64>(2, 10_001, amplitude * amplitude);
            assert_within(&x, &round_trip(&codec(bound, 1), &x), bound);
        }
    }
    // A ramp from the lattice's middle to its edge and far beyond.
    for operands in [1, 2, 1000, u32::MAX] {
        let x: Vec<f32> = (0..50_000).map(|i| 1.0005f32.powi(i) * 1e-3).collect();
        assert_within(&x, &round_trip(&codec(1e-3, operands), &x), 1e-3);
        let x: Vec<f64> = (0..50_000).map(|i| 1.001f64.powi(i) * 1e-3).collect();
        assert_within(&x, &round_trip(&codec(1e-3, operands), &x), 1e-3);
    }
}

#[test]
fn nan_and_infinity_are_exact_bit_for_bit() {
    let mut x: Vec<f32> = data::smooth(0, 10_000);
    let odd = [0x7fc0_0000, 0xffc0_0000, 0x7f80_0001, 0xffff_ffff, 0x7f80_0000, 0xff80_0000];
    for (i, bits) in odd.into_iter().enumerate() {
        x[1000 * i + 7] = f32::from_bits(bits);
    }
    let y = round_trip(&codec(1e-3, 4), &x);
    assert_within(&x, &y, 1e-3);
    assert!(odd.iter().enumerate().all(|(i, &bits)| y[1000 * i + 7].to_bits() == bits));
    let all = vec![f64::from_bits(0x7ff0_dead_beef_0001); 5000];
    assert_eq!(data::bytes(&round_trip(&codec(1e-3, 4), &all)), data::bytes(&all));
}

fn incompressible<T: Float>() {
    let mut random = Random(3);
    for level in Level::available() {
        for n in (0..200).chain([4095, 4096, 4097, 12_345]) {
            let codec =
                FzLight::<T>::with_level(Quantum::new::<T>(1e-3).expect("a bound"), 2, level);
            let [x, y] = [(); 2]
                .map(|()| -> Vec<T> { (0..n).map(|_| data::from_bits(random.bits())).collect() });
            // `coding` gives a destination of exactly `max_encoded_len`.
            let frame = coding::encode(&codec, &x);
            assert_within(&x, &coding::decode(&codec, &frame, n), 1e-3);
            let sum = coding::fold(&codec, &Op::Sum, &frame, &y).expect("it fits");
            let other = coding::encode(&codec, &y);
            coding::combine(&codec, &Op::Max, [&frame, &other], n).expect("it fits");
            coding::decode(&codec, &sum, n);
            // A destination that is one byte too short is refused.
            let need = codec.max_encoded_len(n).expect("short");
            assert!(codec.encode(&x, &mut vec![0; need - 1]).is_err());
        }
    }
}

#[test]
fn incompressible_input_fits_the_promised_size() {
    incompressible::<f32>();
    incompressible::<f64>();
    incompressible::<f16>();
    incompressible::<bf16>();
}

/// Runs every route and pipeline with `n_types` types of values; the cases take turns at types.
fn fewer_values_than_ranks(n_types: usize) {
    let types = DType::FLOATS;
    for (i, (collective, schedule)) in ROUTES.into_iter().enumerate() {
        for (j, pipeline) in [HOMOMORPHIC, FUSED].into_iter().enumerate() {
            let sizes = [(9, 1), (9, 8), (16, 3), (16, 0), (5, 5)];
            for (k, (size, count)) in sizes.into_iter().enumerate() {
                for n in 0..n_types {
                    let dtype = types[(i + 2 * j + k + n) % types.len()];
                    let case = Case::all_reduce(size, count);
                    let case = Case { collective, schedule, pipeline, dtype, ..case };
                    let frame_bytes = case.min_frame_bytes().max(4096);
                    case.check(&Threads { frame_bytes: Some(frame_bytes) });
                }
            }
        }
    }
}

#[test]
fn fewer_values_than_ranks_are_reduced_and_moved() {
    fewer_values_than_ranks(1);
}

/// Slow tests. When one fails, a faster test usually fails too.
mod long {
    use super::*;

    #[test]
    fn fewer_values_than_ranks_are_reduced_and_moved_in_every_type() {
        fewer_values_than_ranks(DType::FLOATS.len());
    }
}

/// The published decoder needs the encoder's thread count. Here, the frame holds all that is
/// needed.
#[test]
fn a_frame_is_decoded_without_knowing_how_it_was_made() {
    let x: Vec<f32> = data::rough(1, 20_000);
    let frame = coding::encode(&codec(1e-3, 64), &x);
    let theirs = coding::decode(&codec::<f32>(1e-3, 64), &frame, x.len());
    // Decode with another bound, group size and instruction set.
    let other =
        FzLight::<f32>::with_level(Quantum::new::<f32>(7.0).expect("a bound"), 3, Level::Scalar);
    assert_eq!(data::bytes(&coding::decode(&other, &frame, x.len())), data::bytes(&theirs));
}

#[test]
fn damaged_streams_are_refused() {
    let x: Vec<f32> = data::smooth(1, 20_000);
    let codec = codec(1e-3, 4);
    let frame = coding::encode(&codec, &x);
    let mut decoded = x.clone();
    // Make every entry of the index point far away.
    for entry in 0..x.len().div_ceil(4096) {
        for value in [0u32, 1, 5_000, 1 << 20, u32::MAX] {
            let mut damaged = frame.clone();
            damaged[24 + 4 * entry..][..4].copy_from_slice(&value.to_le_bytes());
            assert!(codec.decode(&damaged, 1, &mut decoded).is_err(), "{entry} {value}");
        }
    }
    let truncated = codec.decode(&frame[..frame.len() / 2], 1, &mut decoded);
    assert!(matches!(truncated, Err(DecodeError::Truncated { .. })), "{truncated:?}");
}

#[test]
fn f64_codes_go_beyond_32_bits() {
    let bound = 1e-6;
    let step = Quantum::new::<f64>(bound).expect("a bound").step();
    let mut random = Random(4);
    let mut max_code = 0.0f64;
    for bits in [33, 40, 45, 46] {
        let scale = step * 2f64.powi(bits);
        let x: Vec<f64> = (0..9000).map(|_| scale * (2.0 * random.unit() - 1.0)).collect();
        let codec = codec(bound, 2);
        let mut frame = vec![0; codec.max_encoded_len(x.len()).expect("short")];
        let written = codec.encode(&x, &mut frame).expect("room");
        assert_eq!(written.blocks.verbatim, 0, "codes of {bits} bits are codes");
        let y = coding::decode(&codec, &frame[..written.n_bytes], x.len());
        assert_within(&x, &y, bound);
        max_code = y.iter().fold(max_code, |max, y| max.max((y / step).abs()));
    }
    assert!(max_code > 2f64.powi(45));
}

#[test]
fn more_operands_than_there_is_head_room_for_are_an_error() {
    let x: Vec<f32> = vec![2000.0; 5000];
    let codec = codec(1e-3, 3);
    let one = coding::encode(&codec, &x);
    let two = coding::fold(&codec, &Op::Sum, &one, &x).expect("two of three");
    let three = coding::fold(&codec, &Op::Sum, &two, &x).expect("three of three");
    assert_eq!(codec.operands(&three), Ok(3));
    let no_room = CodecError::HeadRoom { operands: 4, limit: 3 };
    assert_eq!(coding::fold(&codec, &Op::Sum, &three, &x), Err(no_room));
    assert_eq!(coding::combine(&codec, &Op::Sum, [&two, &two], x.len()), Err(no_room));
    assert_eq!(coding::combine(&codec, &Op::Sum, [&one, &three], x.len()), Err(no_room));
    let sum = coding::decode(&codec, &three, x.len());
    assert!(sum.iter().all(|sum| (sum - 6000.0).abs() <= 3e-3 + 1e-3));
}

fn sums_at_the_limit_of_codes<T: Float>() {
    for operands in [2u32, 3, 7, 64, 1000] {
        let codec = codec::<T>(0.5, operands);
        // Values around the largest codes, with alternating signs, so that residuals are widest.
        let limit = if T::BYTES == 4 { 2f64.powi(21) } else { 2f64.powi(50) };
        let headroom = 2f64.powi(8 * T::BYTES as i32 - 2) / f64::from(operands);
        let edge = limit.min(headroom) * codec.quantum().step();
        let x: Vec<T> = (0..9000)
            .map(|i| T::from_f64(if i % 2 == 0 { edge } else { -edge } * (0.9 + i as f64 * 2e-5)))
            .collect();
        let mut frame = coding::encode(&codec, &x);
        for _ in 1..operands {
            frame = coding::fold(&codec, &Op::Sum, &frame, &x).expect("head-room");
        }
        let n = f64::from(operands);
        for (&x, &y) in x.iter().zip(&coding::decode(&codec, &frame, x.len())) {
            let (exact, rounding) = (n * x.to_f64(), n * n * x.to_f64().abs() * T::UNIT_ROUNDOFF);
            let error = (y.to_f64() - exact).abs();
            assert!(error <= n * 0.5 + rounding, "{n} times {x:?} gave {y:?}");
        }
    }
}

#[test]
fn sums_of_the_largest_codes_do_not_overflow() {
    sums_at_the_limit_of_codes::<f32>();
    sums_at_the_limit_of_codes::<f64>();
}

#[test]
fn frames_with_different_bounds_are_not_combined() {
    let x: Vec<f64> = data::smooth(1, 5000);
    let (fine, coarse) = (codec(1e-4, 4), codec(1e-3, 4));
    let (a, b) = (coding::encode(&fine, &x), coding::encode(&coarse, &x));
    let quanta = |result: Result<Vec<u8>, CodecError>| match result {
        Err(CodecError::Quantum { ours, theirs }) => ours != theirs,
        _ => false,
    };
    for op in [Op::Sum, Op::Avg, Op::Min, Op::Max, Op::Prod] {
        assert!(quanta(coding::combine(&fine, &op, [&a, &b], x.len())));
        assert!(quanta(coding::combine(&fine, &op, [&b, &a], x.len())));
        assert!(quanta(coding::combine(&coarse, &op, [&a, &b], x.len())));
        assert!(quanta(coding::fold(&fine, &op, &b, &x)));
    }
}

#[test]
fn three_nans_in_an_image_stay_three_nans() {
    const BOUND: f64 = 1e-3;
    let places = [5, 4097, 31_999];
    for pipeline in [HOMOMORPHIC, FUSED] {
        for size in [2, 4, 5] {
            let plan = Plan::raw().compressed(pipeline, Bound::Absolute(BOUND));
            let mut images: Vec<Vec<f32>> = (0..size).map(|r| data::smooth(r, 32_000)).collect();
            for place in places {
                images[size / 2][place] = f32::NAN;
            }
            let results = Threads::default().run(size, |mut comm| {
                let mut image = images[comm.rank().index()].clone();
                comm.all_reduce(&mut image, Op::Sum, &plan).expect("all-reduce");
                image
            });
            for image in results {
                for (i, y) in image.iter().enumerate() {
                    let exact: f64 = images.iter().map(|x| f64::from(x[i])).sum();
                    let error = (f64::from(*y) - exact).abs();
                    let allowed = size as f64 * BOUND + 1e-5;
                    assert_eq!(y.is_nan(), places.contains(&i));
                    assert!(y.is_nan() || error <= allowed, "{i}: {exact} became {y}");
                }
            }
        }
    }
}
