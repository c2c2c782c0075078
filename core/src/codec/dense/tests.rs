//! Tests of `dense` and `fz-nd`. For every operation on a payload and every shape, they must give
//! the values of `fz-light`. They must also handle arbitrary bytes.

mod damage;
mod prediction;
#[cfg(feature = "std")]
mod threads;

use super::*;
use crate::bound::Quantum;
use crate::codec::chunked::{HEADER_BYTES, INDEX_ENTRY};
use crate::codec::{AnyCodec, BlockStats, CodecExt};
use crate::element::sealed::{OnLattice, Word};
use crate::kernel::{BLOCK, PAD};
use std::string::String;
use std::vec::Vec;
use std::{format, vec};

/// xorshift64*.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    fn below(&mut self, n: usize) -> usize {
        (self.next() >> 33) as usize % n
    }

    /// Returns a number in −1 … 1.
    fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 52) as f64 - 1.0
    }
}

const SHAPE: [usize; 3] = [5, 37, 61];

/// Makes a three-dimensional field, smooth in each dimension. `phase` shifts its waves.
fn smooth([planes, rows, columns]: [usize; 3], phase: f64) -> Vec<f64> {
    let wave = |i: usize, rate: f64| (i as f64 * rate + phase).sin();
    let at = |i: usize| (i / columns / rows, i / columns % rows, i % columns);
    (0..planes * rows * columns)
        .map(at)
        .map(|(z, y, x)| wave(z, 0.1) * wave(y, 0.13) + 3.0 * wave(x + 2 * y, 0.07))
        .collect()
}

struct Array<T> {
    name: String,
    shape: Vec<usize>,
    values: Vec<T>,
}

/// Arrays that exercise different packings: long and short, of one and of three dimensions, with
/// values off the lattice.
fn arrays<T: Float>(seed: u64) -> Vec<Array<T>> {
    let mut random = Random(0x9e37_79b9_7f4a_7c15 ^ seed);
    let phase = seed as f64 * 0.01;
    let largest = T::MAX.to_f64();
    let odd = [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, largest, -largest, 1e30, -0.0];
    let field = smooth(SHAPE, phase);
    let n = field.len();
    let mut all = Vec::new();
    let mut put = |name: &str, shape: &[usize], values: &mut dyn Iterator<Item = f64>| {
        let values = values.map(T::from_f64).collect();
        all.push(Array { name: name.into(), shape: shape.into(), values });
    };
    put("smooth", &SHAPE, &mut field.iter().copied());
    put("smooth, as a line", &[], &mut field.iter().copied());
    put("of another shape", &[61, 37, 5], &mut field.iter().copied());
    // NaN in two of seven rows and wherever the value is below −2.
    let masked = |i: usize, x: f64| if i / 61 % 7 < 2 || x < -2.0 { f64::NAN } else { x };
    put("masked", &SHAPE, &mut field.iter().enumerate().map(|(i, &x)| masked(i, x)));
    // In the first of these two arrays, no lattice point represents the first 5000 values. In the
    // second, no lattice point represents any value.
    put("begins with none", &SHAPE, &mut (0..n).map(|i| if i < 5000 { 1e35 } else { field[i] }));
    put("none", &SHAPE, &mut (0..n).map(|_| f64::NAN));
    let mut dots = Random(seed + 1);
    let dotted = |&x: &f64| match dots.below(30) {
        0 => odd[dots.below(odd.len())],
        _ => x,
    };
    put("dotted", &SHAPE, &mut field.iter().map(dotted));
    // Includes signalling NaN, which arithmetic turns into quiet ones.
    let nan = |i: usize| {
        let fraction = (1 << T::FRACTION_BITS) - 1;
        let infinity = T::from_f64(f64::INFINITY).bits().to_u64();
        T::from_bits(Word::from_u64(
            infinity | ((i as u64).wrapping_mul(0x9e37_79b9_97f4_a7c1) & fraction).max(1),
        ))
    };
    let values = (0..n).map(|i| if i % 3 == 0 { nan(i) } else { T::from_f64(field[i]) }).collect();
    let not_numbers = Array { name: "NaN of all kinds".into(), shape: SHAPE.into(), values };
    let mut big = Random(seed + 2);
    let mut any = || largest.powf(0.5 * big.unit()) * big.unit();
    put("any magnitude", &SHAPE, &mut (0..n).map(|_| any()));
    put("noise", &SHAPE, &mut (0..n).map(|_| random.unit()));
    put(
        "noise of chunks of many scales",
        &[70, 70],
        &mut (0..4900).map(|i| random.unit() * libm::exp2(f64::from(i as u32 / 64 % 40) - 20.0)),
    );
    // Fields that only the previous row predicts, or only the previous plane.
    let mut near = |of: f64| of + 0.05 * random.unit();
    put(
        "rows alike",
        &[150, 61],
        &mut (0..9150).map(|i| near(libm::cos((i % 61 * i % 61) as f64))),
    );
    put(
        "planes alike",
        &[4, 41, 61],
        &mut (0..10_004).map(|i| near(libm::cos((i % 2501 * 77) as f64))),
    );
    put("constant", &[9000], &mut (0..9000).map(|_| 0.75));
    put("spikes", &[100, 90], &mut (0..9000).map(|i| if i % 701 == 3 { 1e3 } else { 0.0 }));
    // More than a window of chunks, one of them with exceptions alone.
    let shape = [8, 93, 97];
    let long = smooth(shape, phase);
    let long = long.iter().enumerate().map(|(i, &x)| match i / CHUNK {
        3 => f64::INFINITY * x,
        k => x + 0.01 * k as f64 * (i as f64 * 0.9).cos(),
    });
    put("long", &shape, &mut long.into_iter());
    for n in [0, 1, 2, 31, 32, 33, CHUNK - 1, CHUNK, CHUNK + 1] {
        let name = format!("{n} values");
        put(&name, &[n / 8, 2, 4], &mut (0..n).map(|i| field[i % field.len()]));
    }
    all.push(not_numbers);
    all
}

const BOUNDS: [f64; 5] = [0.0, 1e-9, 1e-5, 1e-2, 10.0];

fn params<T: Float>(bound: f64, shape: &[usize]) -> CodecParams {
    CodecParams::new(Quantum::new::<T>(bound).unwrap()).with_shape(shape)
}

/// Codecs under test.
const OURS: [CodecId; 2] = [CodecId::Dense, CodecId::FzNd];

/// Returns the codec under test and fz-light.
fn both<T: Float>(id: CodecId, params: &CodecParams) -> [AnyCodec<T>; 2] {
    [id, CodecId::FzLight].map(|id| id.instance::<T>(params))
}

/// Returns the bytes that `write` writes, and its statistics.
fn written<T: Float>(
    codec: &dyn Codec<T>,
    n_values: usize,
    write: impl FnOnce(&dyn Codec<T>, &mut [u8]) -> Result<Written, CodecError>,
) -> (Vec<u8>, BlockStats) {
    let mut dst = vec![0xa5; codec.max_encoded_len(n_values).unwrap()];
    let Written { n_bytes, blocks } = write(codec, &mut dst).unwrap();
    dst.truncate(n_bytes);
    (dst, blocks)
}

fn encode<T: Float>(codec: &dyn Codec<T>, values: &[T]) -> Vec<u8> {
    written(codec, values.len(), |codec, dst| codec.encode(values, dst)).0
}

fn bits<T: Float>(values: &[T]) -> Vec<<T as OnLattice>::Bits> {
    values.iter().map(|x| x.bits()).collect()
}

fn decode<T: Float>(codec: &dyn Codec<T>, bytes: &[u8], n: usize, divisor: u32) -> Vec<T> {
    let mut values = vec![T::from_f64(7.0); n];
    codec.decode(bytes, divisor, &mut values).unwrap();
    values
}

/// Checks that both payloads give the same bits: decoded whole or in parts, past the caches, or
/// reduced into an accumulator.
fn assert_same_values<T: Float>(codecs: [&dyn Codec<T>; 2], bytes: [&[u8]; 2], n: usize, of: &str) {
    for divisor in [1, 3] {
        let [ours, theirs] = [0, 1].map(|i| bits(&decode(codecs[i], bytes[i], n, divisor)));
        assert!(ours == theirs, "{of}, divided by {divisor}");
        let mut stored = vec![T::ONE; n];
        codecs[0]
            .store(bytes[0], divisor, &mut stored, crate::codec::Stores::PastCaches, &())
            .unwrap();
        assert!(bits(&stored) == ours, "{of}: stored");
        for start in (0..n).step_by(CHUNK) {
            let mut part = vec![T::ONE; (n - start).min(CHUNK + 77)];
            codecs[0].decode_from(bytes[0], start, divisor, &mut part).unwrap();
            assert!(bits(&part) == ours[start..][..part.len()], "{of}: from {start}");
        }
    }
    for op in [Op::Sum, Op::Max, Op::Prod] {
        let [ours, theirs] = [0, 1].map(|i| {
            let mut acc: Vec<T> = (0..n).map(|i| T::from_f64(i as f64 * 0.5 - 100.0)).collect();
            codecs[i].reduce(&op, bytes[i], &mut acc).unwrap();
            bits(&acc)
        });
        assert!(ours == theirs, "{of}: reduced");
    }
}

fn values_are_those_of_fz_light<T: Float>(id: CodecId) {
    for bound in BOUNDS {
        for Array { name, shape, values } in arrays::<T>(0) {
            let n = values.len();
            let params = params::<T>(bound, &shape);
            let all = [params, params.for_sums_of(100), params.for_averages_of(3)];
            for (i, params) in all.iter().enumerate() {
                let of = format!("{name}, {bound:e}, {i}");
                let codecs = both::<T>(id, params);
                let codecs = [codecs[0].as_dyn(), codecs[1].as_dyn()];
                let own = codecs.map(|codec| written(codec, n, |c, dst| c.encode(&values, dst)));
                assert_eq!(own[0].1, own[1].1, "{of}: exceptions");
                let own = own.map(|(bytes, _)| bytes);
                assert_same_values(codecs, [&own[0], &own[1]], n, &of);
                let partial = codecs.map(|codec| {
                    let write = |c: &dyn Codec<T>, dst: &mut [u8]| c.encode_partial(&values, dst);
                    written(codec, n, write).0
                });
                let given = written(codecs[0], n, |codec, dst| {
                    let give = |start: usize, out: &mut [T]| {
                        out.copy_from_slice(&values[start..start + out.len()]);
                        Ok(())
                    };
                    codec.encode_paced(Source::Shared(n, &give), dst, &())
                });
                assert!(given.0 == partial[0], "{of}");
                assert_same_values(codecs, [&partial[0], &partial[1]], n, &of);
                let again = [0, 1]
                    .map(|i| written(codecs[i], n, |codec, dst| codec.recode(&own[i], n, dst)).0);
                assert_same_values(codecs, [&again[0], &again[1]], n, &of);
            }
        }
    }
}

fn larger<T: Float>(a: T, b: T) -> T {
    if a > b { a } else { b }
}

/// Folds three arrays. After each fold, compares the values with those of fz-light, and the bytes
/// with those of `combine`.
fn reductions_are_those_of_fz_light<T: Float>(id: CodecId) {
    let operands = [arrays::<T>(0), arrays::<T>(1), arrays::<T>(2)];
    let larger = larger::<T>;
    let ops = [Op::Sum, Op::Min, Op::Max, Op::Avg, Op::Prod, Op::User(&larger)];
    for (i, Array { name, shape, .. }) in operands[0].iter().enumerate() {
        let values = operands.each_ref().map(|arrays| &arrays[i].values);
        let n = values[0].len();
        for (bound, op) in [1e-5, 1e-2, 0.0].iter().flat_map(|b| ops.map(|op| (*b, op))) {
            let of = format!("{name}, {bound:e}, {op:?}");
            let params = params::<T>(bound, shape);
            let parameters = match op {
                Op::Avg => params.for_averages_of(3),
                _ => params.for_sums_of(3),
            };
            let codecs = both::<T>(id, &parameters);
            let codecs = [codecs[0].as_dyn(), codecs[1].as_dyn()];
            let mut frames = codecs.map(|codec| encode(codec, values[0]));
            for own in &values[1..] {
                let others = codecs.map(|codec| encode(codec, own));
                let folded = [0, 1].map(|i| {
                    written(codecs[i], n, |codec, dst| codec.fold(&op, &frames[i], own, dst))
                });
                assert_eq!(folded[0].1.exceptions, folded[1].1.exceptions, "{of}: exceptions");
                let combined = [0, 1].map(|i| {
                    let codec = codecs[i].homomorphic().unwrap();
                    let write = |_: &dyn Codec<T>, dst: &mut [u8]| {
                        codec.combine(&op, &frames[i], &others[i], dst)
                    };
                    written(codecs[i], n, write).0
                });
                if op.on_lattice().is_some() {
                    assert!(folded[0].0 == combined[0], "{of}: fold is not combine");
                }
                assert_same_values(codecs, [&combined[0], &combined[1]], n, &of);
                for divisor in [1, 3] {
                    let decoded = bits(&decode(codecs[0], &folded[0].0, n, divisor));
                    let (mut in_place, mut output) = (own.to_vec(), vec![T::ONE; n]);
                    for values in [
                        Values::InPlace(&mut in_place),
                        Values::Apart { local: own, output: &mut output },
                    ] {
                        let stored = written(codecs[0], n, |codec, dst| {
                            codec.fold_store(&op, &frames[0], values, divisor, dst)
                        });
                        assert!(stored.0 == folded[0].0, "{of}: other bytes when stored");
                    }
                    assert!(bits(&in_place) == decoded, "{of}: stored in place");
                    assert!(bits(&output) == decoded, "{of}: stored");
                }
                frames = folded.map(|(bytes, _)| bytes);
                assert_same_values(codecs, [&frames[0], &frames[1]], n, &of);
            }
        }
    }
}

/// The slowest tests. They seldom fail unless a faster test fails too.
mod long {
    use super::*;

    #[test]
    fn decoded_values_are_those_of_fz_light_bit_for_bit() {
        for id in OURS {
            values_are_those_of_fz_light::<f32>(id);
            values_are_those_of_fz_light::<f64>(id);
        }
    }

    #[test]
    fn folds_give_the_bytes_of_combining_and_the_values_of_fz_light() {
        reductions_are_those_of_fz_light::<f32>(CodecId::Dense);
        reductions_are_those_of_fz_light::<f64>(CodecId::Dense);
        // fz-nd differs only in how it packs codes, so one type suffices.
        reductions_are_those_of_fz_light::<f32>(CodecId::FzNd);
    }
}

#[test]
fn frames_of_other_lattices_and_too_many_operands_are_refused_as_by_fz_light() {
    let values = [1.0_f32, 2.0, 3.0];
    let of = |bound: f64| {
        let params = params::<f32>(bound, &[]).for_sums_of(2);
        [CodecId::Dense, CodecId::FzNd, CodecId::FzLight].map(|id| id.instance::<f32>(&params))
    };
    for (ours, theirs) in of(1e-2).iter().zip(of(1e-3)).map(|(a, b)| (*a, b)) {
        let (codec, mut dst) = (ours.as_dyn(), [0; 1000]);
        let other = encode(theirs.as_dyn(), &values);
        for op in [Op::Sum, Op::Prod] {
            let is_refused = |outcome: Result<Written, CodecError>| {
                assert!(matches!(outcome, Err(CodecError::Quantum { .. })), "{op:?}: {outcome:?}");
            };
            is_refused(codec.fold(&op, &other, &values, &mut dst));
            let apart = Values::Apart { local: &values, output: &mut [0.0; 3] };
            is_refused(codec.fold_store(&op, &other, apart, 1, &mut dst));
            is_refused(codec.homomorphic().unwrap().combine(&op, &other, &other, &mut dst));
        }
        let one = encode(codec, &values);
        let two = written(codec, 3, |codec, dst| codec.fold(&Op::Sum, &one, &values, dst)).0;
        let outcome = codec.fold(&Op::Sum, &two, &values, &mut dst);
        let expected = CodecError::HeadRoom { operands: 3, limit: 2 };
        assert_eq!(outcome, Err(expected));
        // Other lengths.
        let short = Values::Apart { local: &values[..2], output: &mut [0.0; 2] };
        assert!(codec.fold_store(&Op::Sum, &one, short, 1, &mut dst).is_err());
        let short = Values::Apart { local: &values, output: &mut [0.0; 2] };
        assert!(codec.fold_store(&Op::Sum, &one, short, 1, &mut dst).is_err());
        assert!(codec.fold(&Op::Sum, &one, &values[..2], &mut dst).is_err());
    }
}

#[test]
fn sums_in_any_order_give_the_same_bytes() {
    let operands: [_; 4] = core::array::from_fn(|i| smooth(SHAPE, i as f64));
    for id in OURS {
        let codec = id.instance::<f64>(&params::<f64>(1e-4, &SHAPE).for_sums_of(4));
        let (codec, n) = (codec.as_dyn(), operands[0].len());
        let frames = operands.each_ref().map(|values| encode(codec, values));
        let combine = |a: &[u8], b: &[u8]| {
            let homomorphic = codec.homomorphic().unwrap();
            let write =
                |_: &dyn Codec<f64>, dst: &mut [u8]| homomorphic.combine(&Op::Sum, a, b, dst);
            written(codec, n, write).0
        };
        let fold = |a: &[u8], own: &[f64]| {
            written(codec, n, |codec, dst| codec.fold(&Op::Sum, a, own, dst)).0
        };
        let [a, b, c, d] = &frames;
        let expected = combine(&combine(&combine(a, b), c), d);
        for order in [[0, 2, 1, 3], [3, 2, 1, 0], [1, 3, 0, 2]] {
            let [a, b, c, d] = order.map(|i| &frames[i]);
            assert!(combine(&combine(a, b), &combine(c, d)) == expected);
            assert!(combine(a, &combine(&combine(d, b), c)) == expected);
            let [_, b, c, d] = order.map(|i| &operands[i]);
            assert!(fold(&fold(&fold(a, b), c), d) == expected);
        }
    }
}

#[test]
fn payloads_of_other_shapes_are_combined_to_the_same_values() {
    let operands = [arrays::<f32>(0), arrays::<f32>(1)].map(|mut arrays| arrays.swap_remove(6));
    assert_eq!(operands[0].name, "dotted");
    let n = operands[0].values.len();
    // Each codec reads the payloads of the other.
    let codec = |shape: &[usize]| {
        let id = if shape.len() == 3 { CodecId::Dense } else { CodecId::FzNd };
        id.instance::<f32>(&params::<f32>(1e-3, shape).for_sums_of(2))
    };
    let mut found: Vec<Vec<u32>> = Vec::new();
    for shapes in [
        [&SHAPE[..], &SHAPE[..]],
        [&SHAPE, &[]],
        [&[], &[100, 30, 4]],
        [&[185, 61], &[2, 150, 30, 4]],
    ] {
        let [a, b] = [0, 1].map(|i| encode(codec(shapes[i]).as_dyn(), &operands[i].values));
        for shape in [&SHAPE[..], &[], &[7, 7, 7], &[185, 61]] {
            let codec = codec(shape);
            let codec = codec.as_dyn();
            let homomorphic = codec.homomorphic().unwrap();
            let combined = written(codec, n, |_, dst| homomorphic.combine(&Op::Sum, &a, &b, dst));
            found.push(bits(&decode(codec, &combined.0, n, 1)));
        }
    }
    assert!(found.iter().all(|values| *values == found[0]));
}

fn levels_agree<T: Float>(id: CodecId) {
    for bound in [1e-6, 1e-2] {
        for Array { name, shape, values } in arrays::<T>(0) {
            let n = values.len();
            let found = Level::available().map(|level| {
                let params = params::<T>(bound, &shape).for_sums_of(2).at(level);
                let codec = id.instance::<T>(&params);
                let codec = codec.as_dyn();
                let one = encode(codec, &values);
                let two = written(codec, n, |codec, dst| codec.fold(&Op::Sum, &one, &values, dst));
                let decoded = bits(&decode(codec, &two.0, n, 1));
                (one, two, decoded)
            });
            let found: Vec<_> = found.collect();
            assert!(found.iter().all(|bytes| *bytes == found[0]), "{name}, {bound:e}");
        }
    }
}

#[test]
fn every_level_gives_the_same_bytes_of_shapes() {
    for id in OURS {
        levels_agree::<f32>(id);
        levels_agree::<f64>(id);
    }
}

#[test]
fn shapes_save_bytes() {
    let shape = [12, 60, 80];
    let values: Vec<f32> = smooth(shape, 0.0).into_iter().map(|x| x as f32).collect();
    let n_bytes = |id: CodecId, shape: &[usize]| {
        encode(id.instance::<f32>(&params::<f32>(1e-4, shape)).as_dyn(), &values).len()
    };
    let (with, without) = (n_bytes(CodecId::Dense, &shape), n_bytes(CodecId::Dense, &[]));
    let fz_light = n_bytes(CodecId::FzLight, &[]);
    let fz_nd = n_bytes(CodecId::FzNd, &shape);
    assert!(4 * fz_nd < 3 * fz_light, "{fz_nd} bytes by fz-nd, {fz_light} by fz-light");
    assert!(5 * with < 4 * without, "{with} bytes, {without} without a shape");
    assert!(10 * without < 9 * fz_light, "{without} bytes, {fz_light} by fz-light");
}

#[test]
fn strides_that_make_no_sense_are_harmless() {
    let values: Vec<f32> = smooth(SHAPE, 0.0).into_iter().map(|x| x as f32).collect();
    let most = 3 * CHUNK as u32 - 2;
    let rows = [0, 1, 2, 3, 4095, 4096, 4097, most - 3, most - 1, most, most + 1, u32::MAX];
    let planes = rows.into_iter().chain([u32::MAX - 1, u32::MAX - 2, u32::MAX - most]);
    for (row, plane) in planes.flat_map(|plane| rows.map(|row| (row, plane))) {
        let params = params::<f32>(1e-3, &[]).with_strides([row, plane]);
        let [dense, nd, fz_light] = [CodecId::Dense, CodecId::FzNd, CodecId::FzLight].map(|id| {
            let codec = id.instance::<f32>(&params);
            decode(codec.as_dyn(), &encode(codec.as_dyn(), &values), values.len(), 1)
        });
        assert!(dense == fz_light && nd == fz_light, "{row}, {plane}");
    }
}

/// Checks sums as large as codes can be, whose differences wrap around.
fn largest_sums_wrap_around<T: Float>(id: CodecId, doublings: u32) {
    let n = CHUNK + 300;
    let quantum = Quantum::new::<T>(0.5).unwrap();
    let params = CodecParams::new(quantum).for_sums_of(1 << doublings).with_shape(&[40, 10, 11]);
    let codecs = both::<T>(id, &params);
    let codecs = [codecs[0].as_dyn(), codecs[1].as_dyn()];
    // With n operands, the code of each is at most 2^(BITS − 2)/n, so that no sum overflows
    // (docs/guarantees.md, "Limit on codes"). The difference of two such sums may overflow.
    let room = libm::ldexp(1.0, <T as OnLattice>::Bits::BITS as i32 - 2 - doublings as i32);
    let largest = quantum.step() * T::MAX_CODE.min(room);
    let mut random = Random(7);
    let values: Vec<T> = (0..n)
        .map(|i| match i / 1000 {
            0 | 4 => T::from_f64(if i % 2 == 0 { largest } else { -largest }),
            1 => T::from_f64(if random.below(2) == 0 { largest } else { -largest }),
            2 => T::from_f64(if i % 110 < 55 { largest } else { -largest }),
            _ => T::from_f64(largest * random.unit()),
        })
        .collect();
    let mut frames = codecs.map(|codec| encode(codec, &values));
    for _ in 0..doublings {
        frames = [0, 1].map(|i| {
            let codec = codecs[i].homomorphic().unwrap();
            let frame = &frames[i];
            let write =
                |_: &dyn Codec<T>, dst: &mut [u8]| codec.combine(&Op::Sum, frame, frame, dst);
            written(codecs[i], n, write).0
        });
        assert_same_values(codecs, [&frames[0], &frames[1]], n, "largest");
    }
}

#[test]
fn sums_of_the_largest_codes_are_exact() {
    for id in OURS {
        largest_sums_wrap_around::<f32>(id, 8);
        largest_sums_wrap_around::<f32>(id, 12);
        largest_sums_wrap_around::<f64>(id, 11);
        largest_sums_wrap_around::<f64>(id, 14);
    }
}

/// Checks that numbers of all bit lengths decode, with few and with many zeros among them.
fn numbers_come_back<B: Word>() {
    let mut random = Random(3);
    for round in 0..400_u32 {
        let n = BLOCK * (1 + random.below(CHUNK / BLOCK));
        let most = 1 + random.below(B::BITS as usize);
        let numbers: Vec<B> = (0..n)
            .map(|i| {
                let n_bits = match round % 5 {
                    0 => random.below(most + 1),
                    1 => most,
                    2 => (i / BLOCK * 7 + round as usize) % (B::BITS as usize + 1),
                    // Blocks of zeros, sparse ones, and some with a few more or larger numbers.
                    3 => usize::from(random.below(1 + i / BLOCK % 24 * 4) == 1) * (1 + n % 2),
                    _ => {
                        if random.below(200) == 0 {
                            B::BITS as usize
                        } else {
                            most / 4
                        }
                    }
                };
                let bits = if n_bits == 0 { 0 } else { random.next() >> (64 - n_bits) };
                let number = B::from_u64(bits);
                if random.below(2) == 0 { number } else { B::ZERO.minus(number) }
            })
            .collect();
        let mut dst = vec![0xa5; 2 * size_of_val(&numbers[..]) + 1000];
        let n_bytes = chunk::write(&numbers, &mut dst).unwrap();
        let mut found = vec![B::ONES; n];
        assert_eq!(chunk::read(&dst, n_bytes, &mut found), Some(n_bytes), "round {round}");
        assert!(found == numbers, "round {round}");
        // Exactly as much space suffices, and less is reported.
        let mut exact = vec![0; n_bytes];
        assert_eq!(chunk::write(&numbers, &mut exact), Some(n_bytes));
        assert!(exact == dst[..n_bytes], "round {round}");
        for room in [0, 8, n_bytes / 2, n_bytes.saturating_sub(1)] {
            if room < n_bytes {
                assert_eq!(chunk::write(&numbers, &mut dst[..room]), None);
            }
        }
    }
}

#[test]
fn numbers_of_all_lengths_come_back() {
    numbers_come_back::<u32>();
    numbers_come_back::<u64>();
}

#[test]
fn what_cannot_be_compressed_takes_no_more_than_is_said() {
    fn check<T: Float>(make: &mut dyn FnMut(&mut Random) -> T) {
        let mut random = Random(1);
        for n in [1, 31, 33, 1000, CHUNK, CHUNK + 1, 3 * CHUNK + 100] {
            let values: Vec<T> = (0..n).map(|_| make(&mut random)).collect();
            for (bound, id) in BOUNDS.into_iter().flat_map(|bound| OURS.map(|id| (bound, id))) {
                let codec = id.instance::<T>(&params::<T>(bound, &[n / 4, 2, 2]));
                let codec = codec.as_dyn();
                let most = codec.max_encoded_len(n).unwrap();
                // A longer destination changes nothing.
                let mut long = vec![0x5a; 2 * most];
                let n_bytes = codec.encode(&values, &mut long).unwrap().n_bytes;
                assert!(n_bytes <= most && encode(codec, &values) == long[..n_bytes]);
                // At worst, values are stored unchanged, with a bit for each that marks exceptions.
                // Each chunk has an index entry and a tag, and the first one also a code and the
                // strides. The payload ends with `PAD` zero bytes.
                let n_chunks = n.div_ceil(CHUNK);
                let heads = HEADER_BYTES + n_chunks * (INDEX_ENTRY + 1) + T::BYTES + 4 + PAD;
                let n_most = n * T::BYTES + n.div_ceil(8) + heads;
                assert!(n_bytes <= n_most, "{n_bytes} bytes of {n} values");
                assert!(bits(&decode(codec, &long[..n_bytes], n, 1)).len() == n);
            }
        }
    }
    // Any bits, then any codes.
    check::<f32>(&mut |random| f32::from_bits(random.next() as u32));
    check::<f64>(&mut |random| f64::from_bits(random.next()));
    check::<f32>(&mut |random| 40.0 * random.unit() as f32);
    check::<f64>(&mut |random| 1e6 * random.unit());
}
