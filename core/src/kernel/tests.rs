//! Tests of the kernels at every level, against the bytes of the scalar level and the error bound.

mod exceptions;
mod sixteen;

use super::chunk::ChunkView;
use super::*;
use crate::bound::Quantum;
use crate::codec::{Codec, CodecExt, CodecParams, DecodeError, FzLight, Raw, Values};
use crate::op::Op;
use std::vec;
use std::vec::Vec;

/// SplitMix64 generator: random enough for tests, and the same on every machine.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Uniform in −1…1.
    fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 52) as f64 - 1.0
    }
}

/// Makes data whose blocks need widths from 0 to far beyond the lattice, with all kinds of special
/// values if `specials` is set.
fn field<T: Float>(n: usize, seed: u64, specials: bool) -> Vec<T> {
    let mut random = Random(seed);
    let mut scale = 0.0;
    let mut level = 0.0;
    (0..n)
        .map(|i| {
            if i % BLOCK == 0 {
                let exponent = (random.next() % 28) as i32 - 4;
                scale = if random.next() & 3 == 0 { 0.0 } else { libm::ldexp(1.0, exponent) };
            }
            level = level * 0.5 + scale * random.unit();
            let pick = if specials { random.next() % 97 } else { 96 };
            T::from_f64(match pick {
                0 => f64::NAN,
                1 => f64::INFINITY,
                2 => f64::NEG_INFINITY,
                3 => -0.0,
                4 => 1e-310,
                5 => 3e38,
                6 => -9.96921e36,
                _ => level,
            })
        })
        .collect()
}

fn encoded<T: Float>(codec: &dyn Codec<T>, values: &[T]) -> Vec<u8> {
    let mut bytes = vec![0xAA; codec.max_encoded_len(values.len()).unwrap()];
    let n_bytes = codec.encode(values, &mut bytes).unwrap().n_bytes;
    bytes.truncate(n_bytes);
    bytes
}

fn decoded<T: Float>(codec: &FzLight<T>, bytes: &[u8], n: usize) -> Vec<T> {
    let mut values = vec![T::ONE; n];
    codec.decode(bytes, 1, &mut values).unwrap();
    values
}

fn folded<T: Float>(codec: &FzLight<T>, op: &Op<'_, T>, frame: &[u8], local: &[T]) -> Vec<u8> {
    let mut bytes = vec![0x55; codec.max_encoded_len(local.len()).unwrap()];
    let n_bytes = codec.fold(op, frame, local, &mut bytes).unwrap().n_bytes;
    bytes.truncate(n_bytes);
    bytes
}

fn combined<T: Float>(codec: &FzLight<T>, op: &Op<'_, T>, a: &[u8], b: &[u8]) -> Vec<u8> {
    let n = codec.n_values(a).unwrap();
    let mut bytes = vec![0x33; codec.max_encoded_len(n).unwrap()];
    let n_bytes = codec.combine(op, a, b, &mut bytes).unwrap().n_bytes;
    bytes.truncate(n_bytes);
    bytes
}

const COUNTS: [usize; 16] =
    [0, 1, 2, 31, 32, 33, 63, 64, 65, 2049, 4095, 4096, 4097, 4128, 8192, 9001];

fn levels_agree<T: Float>() {
    for n in COUNTS {
        for specials in [false, true] {
            for bound in [1e-6, 1e-3, 0.3, 1e4] {
                let (x, y) = (field::<T>(n, 1, specials), field::<T>(n, 2, specials));
                let quantum = Quantum::new::<T>(bound).unwrap();
                let scalar = FzLight::with_level(quantum, 4, Level::Scalar);
                let (a, b) = (encoded(&scalar, &x), encoded(&scalar, &y));
                for level in Level::available().skip(1) {
                    let codec = FzLight::with_level(quantum, 4, level);
                    let context = (level, n, specials, bound);
                    assert_eq!(encoded(&codec, &x), a, "encode {context:?}");
                    assert_eq!(
                        bits(&decoded(&codec, &a, n)),
                        bits(&decoded(&scalar, &a, n)),
                        "decode {context:?}"
                    );
                    for op in [Op::Sum, Op::Min, Op::Max] {
                        let context = (level, n, specials, bound, &op);
                        let fold = folded(&scalar, &op, &a, &y);
                        assert_eq!(folded(&codec, &op, &a, &y), fold, "fold {context:?}");
                        let combine = combined(&scalar, &op, &a, &b);
                        assert_eq!(combined(&codec, &op, &a, &b), combine, "combine {context:?}");
                        assert_eq!(fold, combine, "fold is encode and combine {context:?}");
                    }
                }
            }
        }
    }
}

fn bits<T: Float>(values: &[T]) -> Vec<u8> {
    bytemuck::cast_slice(values).to_vec()
}

#[test]
fn every_level_gives_the_bytes_of_the_scalar_one() {
    levels_agree::<f32>();
    levels_agree::<f64>();
    levels_agree::<f16>();
    levels_agree::<bf16>();
}

/// Checks that `fold_store`, in place and with a separate output, gives the results of `fold` and
/// `decode`. Checks the same of `store` past the caches and `decode`.
fn one_pass_is_two<T: Float>(codec: &dyn Codec<T>, op: &Op<'_, T>, frame: &[u8], local: &[T]) {
    let n = local.len();
    let room = || vec![0x55; codec.max_encoded_len(n).unwrap()];
    for divisor in [1, 3] {
        let (mut bytes, mut values) = (room(), vec![T::ONE; n]);
        let written = codec.fold(op, frame, local, &mut bytes).unwrap();
        let bytes = &bytes[..written.n_bytes];
        codec.decode(bytes, divisor, &mut values).unwrap();

        // At addresses that are aligned for stores past the caches, and at one that is not.
        for offset in [0, 16 / T::BYTES, 1] {
            let mut output = vec![T::ONE; n + 8];
            let stored = &mut output[offset..offset + n];
            codec.store(bytes, divisor, stored, Stores::PastCaches, &()).unwrap();
            assert!(bits(stored) == bits(&values), "past the caches, {op:?}, {n} / {divisor}");
        }

        let (mut dst, mut output) = (room(), vec![T::ONE; n]);
        let apart = Values::Apart { local, output: &mut output };
        assert_eq!(codec.fold_store(op, frame, apart, divisor, &mut dst), Ok(written));
        assert!(dst[..written.n_bytes] == *bytes, "bytes apart, {op:?}, {n}");
        assert!(bits(&output) == bits(&values), "values apart, {op:?}, {n} / {divisor}");

        let (mut dst, mut data) = (room(), local.to_vec());
        let in_place = Values::InPlace(&mut data);
        assert_eq!(codec.fold_store(op, frame, in_place, divisor, &mut dst), Ok(written));
        assert!(dst[..written.n_bytes] == *bytes, "bytes in place, {op:?}, {n}");
        assert!(bits(&data) == bits(&values), "values in place, {op:?}, {n} / {divisor}");
    }
}

fn one_pass_is_two_for_all<T: Float>() {
    let larger = |a: T, b: T| if a.abs() < b.abs() { b } else { a };
    let all_larger = |acc: &mut [T], other: &[T]| {
        acc.iter_mut().zip(other).for_each(|(a, &b)| *a = larger(*a, b));
    };
    let users = [Op::User(&larger), Op::UserSlices(&all_larger)];
    let ops: Vec<_> =
        [Op::Sum, Op::Avg, Op::Min, Op::Max, Op::Prod].into_iter().chain(users).collect();
    let quanta = [1e-3, 0.3, 1e9]
        .map(|bound| Quantum::new::<T>(bound).unwrap())
        .into_iter()
        .chain([Quantum::LOSSLESS]);
    for n in COUNTS {
        // Exceptions in neither operand, in the first, in the second, and in both.
        for specials in 0..4 {
            let (x, y) = (field::<T>(n, 1, specials & 1 != 0), field::<T>(n, 2, specials & 2 != 0));
            let raw = encoded(&Raw::new(), &x);
            for op in &ops {
                one_pass_is_two(&Raw::new(), op, &raw, &y);
            }
            for quantum in quanta.clone() {
                for level in Level::available() {
                    let codec = FzLight::with_level(quantum, 2, level);
                    let frame = encoded(&codec, &x);
                    for op in &ops {
                        one_pass_is_two(&codec, op, &frame, &y);
                    }
                }
            }
        }
    }
}

/// Slow tests, which rarely fail unless a faster test fails too.
mod long {
    use super::*;

    #[test]
    fn folding_and_storing_at_once_gives_what_folding_and_then_decoding_gives() {
        one_pass_is_two_for_all::<f32>();
        one_pass_is_two_for_all::<f64>();
        one_pass_is_two_for_all::<f16>();
        one_pass_is_two_for_all::<bf16>();
    }
}

#[test]
fn an_output_of_another_length_is_refused() {
    let codec = FzLight::<f32>::new(Quantum::new::<f32>(1e-3).unwrap(), 2);
    let local = field::<f32>(100, 5, false);
    let frame = encoded(&codec, &local);
    let mut dst = vec![0; codec.max_encoded_len(100).unwrap()];
    for n in [0, 99, 101] {
        let mut output = vec![0.0; n];
        let values = Values::Apart { local: &local, output: &mut output };
        let refused = DecodeError::Count { found: 100, expected: n };
        assert_eq!(codec.fold_store(&Op::Sum, &frame, values, 1, &mut dst), Err(refused.into()));
    }
}

fn bound_holds<T: Float>() {
    for level in Level::available() {
        for bound in [1e-30, 1e-7, 1e-3, 0.3, 1e4, 1e30] {
            let x = field::<T>(20_001, 7, true);
            let codec = FzLight::with_level(Quantum::new::<T>(bound).unwrap(), 1, level);
            let y = decoded(&codec, &encoded(&codec, &x), x.len());
            for (x, y) in x.iter().zip(&y) {
                let close = (x.to_f64() - y.to_f64()).abs() <= bound;
                assert!(close || x.bits() == y.bits(), "{x:?} became {y:?} at {bound:e}, {level}");
                assert!(x.finite() || x.bits() == y.bits());
            }
        }
    }
}

#[test]
fn no_value_leaves_the_bound_and_non_finite_ones_are_exact() {
    bound_holds::<f32>();
    bound_holds::<f64>();
    bound_holds::<f16>();
    bound_holds::<bf16>();
}

#[test]
fn values_on_the_edge_of_a_bin_stay_within_the_bound() {
    // Midpoints between codes, and the values next to them, at many magnitudes. There, rounding
    // decides which code a value gets.
    for exponent in 0..22 {
        let quantum = Quantum::new::<f32>(0.1).unwrap();
        let middle = (f64::from(1u32 << exponent) + 0.5) * quantum.step();
        let at = (middle as f32).to_bits();
        let x: Vec<f32> = (at - 64..at + 64).map(f32::from_bits).collect();
        let codec = FzLight::new(quantum, 1);
        let y = decoded(&codec, &encoded(&codec, &x), x.len());
        for (x, y) in x.iter().zip(&y) {
            assert!((f64::from(*x) - f64::from(*y)).abs() <= 0.1, "{x} {y}");
        }
    }
}

#[test]
fn every_width_round_trips() {
    for level in Level::available() {
        for width in 1..=21 {
            let mut random = Random(width);
            let x: Vec<f64> = (0..4096)
                .map(|i| if i % 2 == 0 { 0.0 } else { (random.next() % (1 << width)) as f64 })
                .collect();
            let wide: Vec<f64> = x.iter().map(|x| x * 536_870_912.0 + x).collect();
            let narrow: Vec<f32> = x.iter().map(|&x| x as f32).collect();
            // The step is below 0.5, so codes are not the integers themselves.
            let quantum = Quantum::new::<f64>(0.25).unwrap();
            let codec = FzLight::with_level(quantum, 1, level);
            for x in [&x, &wide] {
                let y = decoded(&codec, &encoded(&codec, x), x.len());
                assert!(x.iter().zip(&y).all(|(x, y)| (x - y).abs() <= 0.25), "{width} {level}");
            }
            let codec = FzLight::with_level(Quantum::new::<f32>(0.75).unwrap(), 1, level);
            let y = decoded(&codec, &encoded(&codec, &narrow), x.len());
            assert!(narrow.iter().zip(&y).all(|(x, y)| (x - y).abs() <= 0.75), "{width} {level}");
        }
    }
}

#[test]
fn encoding_what_was_decoded_changes_nothing() {
    for bound in [1e-5, 1e-2, 3.0] {
        let codec = FzLight::<f32>::new(Quantum::new::<f32>(bound).unwrap(), 1);
        let x = field::<f32>(30_000, 3, true);
        let once = encoded(&codec, &x);
        let twice = encoded(&codec, &decoded(&codec, &once, x.len()));
        assert!(once == twice, "at {bound:e}");
    }
}

#[test]
fn constant_data_cost_a_few_bytes_a_chunk() {
    let codec = FzLight::<f32>::new(Quantum::new::<f32>(1e-3).unwrap(), 1);
    // A header and the pad; for each chunk 4 bytes of index, a tag, and a code of 2 bytes (7.0 is
    // 3556 steps).
    assert_eq!(encoded(&codec, &[7.0; 8192]).len(), 24 + 2 * (4 + 1 + 2) + PAD);
    // A fill value that is not on the lattice is stored once in each chunk, with one width byte for
    // each block.
    let fill = encoded(&codec, &[1e30; 8192]);
    assert_eq!(fill.len(), 24 + 2 * (4 + 1 + 4 + 128 + 1) + PAD);
    assert_eq!(decoded(&codec, &fill, 8192), [1e30; 8192]);
}

#[test]
fn extent_ignores_what_is_not_finite() {
    let mut x = field::<f64>(5000, 11, true);
    let finite = x.iter().copied().filter(|x| x.is_finite());
    let min = finite.clone().fold(f64::MAX, f64::min);
    let max = finite.fold(f64::MIN, f64::max);
    for level in Level::available() {
        assert_eq!(Kernel::at(level).value_range(&x), (min, max), "{level}");
    }
    x.fill(f64::NAN);
    assert_eq!(Kernel::at(Level::best()).value_range(&x), (f64::MAX, f64::MIN));
}

#[test]
fn a_chunk_view_refuses_sizes_that_do_not_add_up() {
    let codec = FzLight::<f32>::new(Quantum::new::<f32>(1e-3).unwrap(), 1);
    let bytes = encoded(&codec, &field::<f32>(100, 5, true));
    let chunk = &bytes[28..];
    let len = chunk.len() - PAD;
    assert!(ChunkView::<f32>::parse(chunk, len, 100).is_ok());
    assert!(ChunkView::<f32>::parse(chunk, len - 1, 100).is_err());
    assert!(ChunkView::<f32>::parse(chunk, len + 1, 100).is_err());
    assert!(ChunkView::<f32>::parse(chunk, len, 5000).is_err());
    assert!(ChunkView::<f32>::parse(chunk, len, 0).is_err());
}
