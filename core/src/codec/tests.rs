//! Requirements on every codec of the list.

mod golden;
mod paced;

use super::{Codec, CodecExt, CodecId, CodecParams, Loss};
use crate::bound::Quantum;
use crate::element::{Float, sealed::OnLattice};
use crate::kernel::{CHUNK, Level};
use crate::op::Op;
use std::format;
use std::vec::Vec;
use std::{println, vec};

/// Arrays of different character.
pub(super) fn arrays<T: Float>(n_values: usize) -> Vec<(&'static str, Vec<T>)> {
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    let mut random = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    let unit = |bits: u64| (bits >> 11) as f64 / (1u64 << 53) as f64;
    let mut array = |make: &mut dyn FnMut(usize, u64) -> f64| -> Vec<T> {
        (0..n_values).map(|i| T::from_f64(make(i, random()))).collect()
    };
    let largest = T::MAX.to_f64();
    let odd = [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, largest, -largest, T::SMALLEST, -0.0];
    vec![
        ("smooth", array(&mut |i, _| (i as f64 * 1e-3).sin())),
        ("far from zero", array(&mut |i, _| 1e4 + (i as f64 * 1e-2).cos())),
        ("noise", array(&mut |_, bits| unit(bits) - 0.5)),
        ("constant", array(&mut |_, _| 3.25)),
        ("zeros", array(&mut |_, _| 0.0)),
        ("steps", array(&mut |i, _| (i / 100 % 7) as f64)),
        (
            "any magnitude",
            array(&mut |_, bits| {
                let sign = if bits & 1 == 0 { 1.0 } else { -1.0 };
                sign * largest.powf(2.0 * unit(bits) - 1.0)
            }),
        ),
        (
            "dotted",
            array(&mut |i, bits| match bits % 20 {
                0 => odd[(bits >> 32) as usize % odd.len()],
                _ => (i as f64 * 1e-3).sin(),
            }),
        ),
        ("subnormal", array(&mut |i, _| T::SMALLEST * (i % 1000) as f64)),
        ("sparse", array(&mut |_, bits| if bits % 50 == 0 { unit(bits) } else { 0.0 })),
    ]
}

fn encode<T: Float>(codec: &dyn Codec<T>, values: &[T]) -> Vec<u8> {
    let mut bytes = vec![0xa5; codec.max_encoded_len(values.len()).unwrap()];
    let written = codec.encode(values, &mut bytes).unwrap();
    bytes.truncate(written.n_bytes);
    bytes
}

fn decode<T: Float>(codec: &dyn Codec<T>, bytes: &[u8], n_values: usize) -> Vec<T> {
    let mut values = vec![T::from_f64(7.0); n_values];
    codec.decode(bytes, 1, &mut values).unwrap();
    values
}

fn bits<T: Float>(values: &[T]) -> Vec<<T as OnLattice>::Bits> {
    values.iter().map(|x| x.bits()).collect()
}

/// Calls `check` for every codec that supports the type, with its default and other settings.
/// Passes the bound that the codec keeps, which is infinite if it keeps none.
fn each_codec<T: Float>(mut check: impl FnMut(CodecId, CodecParams, f64)) {
    for &id in CodecId::ALL.iter().filter(|id| id.is_for(T::DTYPE)) {
        for bound in [0.0, 1e-6, 1e-3, 1.0] {
            for setting in [0, 1, 3, 7, 13, 16, 20] {
                let quantum = Quantum::new::<T>(bound).unwrap();
                let lacks_setting = id.setting(T::DTYPE, setting).is_none();
                // A codec that keeps no bound runs only with the first one.
                let ignores_bound = id.loss() != Loss::Bound && bound != 0.0;
                if lacks_setting || ignores_bound {
                    continue;
                }
                let bound = match id.loss() {
                    Loss::None => 0.0,
                    Loss::Bound => quantum.bound(),
                    Loss::Setting => f64::INFINITY,
                };
                check(id, CodecParams::new(quantum).with_setting(setting), bound);
            }
        }
    }
}

fn values_come_back<T: Float>() {
    each_codec::<T>(|id, params, bound| {
        for n_values in [0, 1, 2, 31, 32, 33, 127, 129, CHUNK - 1, CHUNK, 2 * CHUNK + 77] {
            for (name, values) in arrays::<T>(n_values) {
                let scalar = id.instance::<T>(&params.at(Level::Scalar));
                let bytes = encode(scalar.as_dyn(), &values);
                let decoded = decode(scalar.as_dyn(), &bytes, n_values);
                let context = format!("{} {params:?}, {n_values} {name}", id.name());
                for (i, (&x, &y)) in values.iter().zip(&decoded).enumerate() {
                    let is_near = x.finite()
                        && y.finite()
                        && (x.to_f64() - y.to_f64()).abs() <= bound
                        && id.loss() != Loss::None;
                    assert!(is_near || x.bits() == y.bits(), "{context}, {i}: {x:?} {y:?}");
                }
                for level in Level::available() {
                    let codec = id.instance::<T>(&params.at(level));
                    assert!(encode(codec.as_dyn(), &values) == bytes, "{context} at {level}");
                    let same = bits(&decode(codec.as_dyn(), &bytes, n_values)) == bits(&decoded);
                    assert!(same, "{context} at {level}");
                }
                // An instance of the codec without bound and setting decodes the bytes as well.
                let reader = id.instance::<T>(&CodecParams::new(Quantum::LOSSLESS));
                let read = decode(reader.as_dyn(), &bytes, n_values);
                assert!(bits(&read) == bits(&decoded), "{context}");
                if id.is_stable() {
                    let again = encode(scalar.as_dyn(), &decoded);
                    let again = decode(scalar.as_dyn(), &again, n_values);
                    assert!(bits(&again) == bits(&decoded), "{context}: not stable");
                }
                // Partial decoding gives the same values.
                for start in (0..n_values).step_by(CHUNK) {
                    let end = n_values.min(start + 100);
                    let mut part = vec![T::ZERO; end - start];
                    scalar.as_dyn().decode_from(&bytes, start, 1, &mut part).unwrap();
                    assert!(bits(&part) == bits(&decoded[start..end]), "{context}");
                }
            }
        }
    });
}

#[test]
fn values_come_back_within_the_bound_the_same_at_every_level() {
    values_come_back::<f32>();
    values_come_back::<f64>();
    values_come_back::<crate::f16>();
    values_come_back::<crate::bf16>();
}

fn damage_is_found_or_harmless<T: Float>() {
    each_codec::<T>(|id, params, bound| {
        if bound == 1.0 {
            return;
        }
        for (name, values) in arrays::<T>(300) {
            let codec = id.instance::<T>(&params);
            let codec = codec.as_dyn();
            let bytes = encode(codec, &values);
            let mut decoded = vec![T::ZERO; values.len()];
            let context = format!("{} {params:?}, {name}", id.name());
            for n_bytes in 0..bytes.len() {
                let result = codec.decode(&bytes[..n_bytes], 1, &mut decoded);
                assert!(result.is_err(), "{context}: {n_bytes} of {}", bytes.len());
            }
            let mut dst = vec![0; codec.max_encoded_len(values.len()).unwrap()];
            for at in 0..bytes.len() {
                for flip in [0x01, 0x80, 0xff] {
                    let mut bytes = bytes.clone();
                    bytes[at] ^= flip;
                    let _ = codec.decode(&bytes, 1, &mut decoded);
                    if flip == 0xff {
                        let _ = codec.fold(&Op::Sum, &bytes, &values, &mut dst);
                        let _ = codec.reduce(&Op::Max, &bytes, &mut decoded);
                    }
                }
            }
        }
    });
}

/// The slowest tests. They seldom fail unless a faster test fails too.
mod long {
    use super::*;

    #[test]
    fn every_prefix_is_refused_and_no_damage_panics() {
        damage_is_found_or_harmless::<f32>();
        damage_is_found_or_harmless::<f64>();
    }
}

/// A destination of the worst-case length suffices. One byte less is refused.
#[test]
fn the_worst_case_is_what_a_destination_must_hold() {
    each_codec::<f64>(|id, params, _| {
        for (name, values) in arrays::<f64>(CHUNK + 5) {
            let codec = id.instance::<f64>(&params);
            let codec = codec.as_dyn();
            let most = codec.max_encoded_len(values.len()).unwrap();
            assert!(codec.encode(&values, &mut vec![0; most]).is_ok());
            assert!(codec.encode(&values, &mut vec![0; most - 1]).is_err(), "{} {name}", id.name());
        }
    });
}

/// Sums of weighted operands, divided by their number, are averages. Each of three encodings may
/// err by the bound, so a third of their sum may err by the bound too. The test allows twice that,
/// and the rounding of `f32`.
#[test]
fn averages_are_within_twice_the_bound() {
    each_codec::<f32>(|id, params, bound| {
        if id.loss() != Loss::Bound {
            return;
        }
        let codec = id.instance::<f32>(&params.for_averages_of(3));
        let codec = codec.as_dyn();
        // The first six arrays have only finite values of moderate magnitude.
        for (name, values) in arrays::<f32>(500).into_iter().take(6) {
            let mut frame = encode(codec, &values);
            for _ in 1..3 {
                let mut dst = vec![0; codec.max_encoded_len(values.len()).unwrap()];
                let written = codec.fold(&Op::Avg, &frame, &values, &mut dst).unwrap();
                dst.truncate(written.n_bytes);
                frame = dst;
            }
            let mut averages = vec![0.0; values.len()];
            codec.decode(&frame, 3, &mut averages).unwrap();
            for (x, y) in values.iter().zip(&averages) {
                let off = f64::from((x - y).abs());
                let allowed = 2.0 * bound + 1e-6 * f64::from(x.abs());
                assert!(off <= allowed, "{} {name}: {x} became {y}", id.name());
            }
        }
    });
}

/// Run `cargo test -- --nocapture sizes` to print the sizes.
#[test]
fn no_codec_is_larger_than_its_values_but_for_heads() {
    for (name, values) in arrays::<f64>(4 * CHUNK) {
        each_codec::<f64>(|id, params, bound| {
            let codec = id.instance::<f64>(&params);
            let n_bytes = encode(codec.as_dyn(), &values).len();
            let n_value_bytes = size_of_val(&values[..]);
            // Heads: 8.5 bytes for each block of 32 values, and 200 bytes for those of payload and
            // chunks, the index and the pad.
            let most = n_value_bytes + n_value_bytes / 30 + 200;
            println!("{name}, {}, bound {bound}: {n_bytes}", id.name());
            assert!(n_bytes <= most, "{name}, {}", id.name());
        });
    }
}

/// A field that begins calm and becomes rough, so that a codec that learns only from its beginning
/// is worse for the rest.
#[test]
fn rolling_an_array_changes_no_size_by_more_than_three_per_cent() {
    let (rows, columns) = (500, 200);
    let mut state = 1_u32;
    let mut noise = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        f64::from(state >> 8) / f64::from(1 << 23) - 1.0
    };
    let turn = |i: usize, n: usize| (i as f64 / n as f64 * core::f64::consts::TAU).sin();
    let field: Vec<f32> = (0..rows * columns)
        .map(|i| (i / columns, i % columns))
        .map(|(y, x)| match y {
            0..100 => 0.0,
            100..250 => turn(x, columns) * turn(y - 100, 150),
            _ => turn(x, columns) * turn(y - 250, 250) + 1e-2 * (y - 250) as f64 / 250.0 * noise(),
        } as f32)
        .collect();
    for bound in [1e-2, 1e-3, 1e-4] {
        let params = CodecParams::new(Quantum::new::<f32>(2.0 * bound).unwrap());
        for id in CodecId::ALL.iter().filter(|id| id.loss() == Loss::Bound) {
            let codec = id.instance::<f32>(&params.with_shape(&[rows, columns]));
            let n_bytes = |by: usize| {
                let mut rolled = field.clone();
                rolled.rotate_left(by);
                encode(codec.as_dyn(), &rolled).len() as f64
            };
            let first = n_bytes(0);
            for by in [field.len() / 3 / columns * columns, field.len() / 2 + 17] {
                let change = n_bytes(by) / first;
                let of = format!("{}, {bound:e}, by {by}", id.name());
                assert!((0.97..1.03).contains(&change), "{of}: {change:.3} of the bytes");
            }
        }
    }
}
