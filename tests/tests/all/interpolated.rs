//! Codec interp of compressed arrays: values of any kind in arrays of any shape come back within
//! the bound, and damaged payloads are refused.

use foldwire::bound::ValueRange;
use foldwire::codec::CodecId;
use foldwire::compress::{DecompressError, Encoder, Layout, SEGMENT, compress_with, decompress};
use foldwire::{Bound, Element, Error, Float, Op, Plan};
use foldwire_fuzz::decompress::correct;
use foldwire_tests::data::{self, Random};
use foldwire_tests::deadline::{PATIENT, run};
use proptest::prelude::*;

/// Bytes before the payload of the first segment: the head of an array with one dimension, and of a
/// segment.
const PAYLOAD: usize = 40 + 24;

fn plan(bound: f64) -> Plan {
    Plan::foldwire(Bound::Absolute(bound)).with_codec(CodecId::Interp)
}

/// Compresses and decompresses. Each value must be within the bound, or have the same bits.
fn check<T: Float>(values: &[T], shape: &[usize], bound: f64) -> usize {
    let bytes = compress_with(values, &Layout::new(shape), &plan(bound)).expect("a good plan");
    let restored: Vec<T> = decompress(&bytes).expect("undamaged");
    assert_eq!(restored.len(), values.len());
    for (i, (x, y)) in values.iter().zip(&restored).enumerate() {
        let is_near = (x.to_f64() - y.to_f64()).abs() <= bound;
        let is_same = data::bytes(&[*x]) == data::bytes(&[*y]);
        assert!(is_near || is_same, "{shape:?}, {bound}, value {i}: {x:?} became {y:?}");
    }
    bytes.len()
}

/// A surface with some noise.
fn surface<T: Float>(shape: &[usize]) -> Vec<T> {
    let [ny, nx] = [shape[shape.len() - 2], shape[shape.len() - 1]];
    let mut random = Random(9);
    let value = |i: usize| {
        let [z, y, x] = [i / nx / ny, i / nx % ny, i % nx].map(|at| at as f64);
        let noise = random.below(1000) as f64 * 1e-6;
        T::from_f64((x * 0.05).sin() * (y * 0.07).cos() + 0.1 * (z * 0.3).sin() + noise)
    };
    (0..shape.iter().product()).map(value).collect()
}

fn any_shape<T: Float>() {
    let odd = [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 1e300, -1e300, T::SMALLEST, -0.0, 1e9];
    for shape in [
        &[0][..],
        &[1],
        &[2],
        &[3],
        &[1023],
        &[1025],
        &[5000],
        &[1, 7],
        &[7, 1],
        &[33, 65],
        &[2, 2, 2],
        &[5, 17, 31],
        &[40, 3, 3],
        &[2, 3, 4, 5],
        &[3, 1, 1, 129],
    ] {
        let n_values: usize = shape.iter().product();
        let smooth: Vec<T> = match shape {
            [n] => data::smooth(1, *n),
            _ => surface(shape),
        };
        let mut random = Random(5);
        let dotted: Vec<T> = smooth
            .iter()
            .map(|&x| match random.below(9) {
                0 => T::from_f64(odd[random.below(odd.len())]),
                _ => x,
            })
            .collect();
        let holes =
            (0..n_values).map(|i| if i % 50 < 20 { T::from_f64(f64::NAN) } else { smooth[i] });
        let tiny = (0..n_values).map(|i| T::from_f64(T::SMALLEST * (i % 1000) as f64));
        let big =
            (0..n_values).map(|i| T::from_f64(T::MAX.to_f64() * ((i % 7) as f64 / 3.5 - 0.9)));
        for values in [
            smooth.clone(),
            dotted,
            data::rough(2, n_values),
            vec![T::from_f64(3.25); n_values],
            vec![T::from_f64(f64::NAN); n_values],
            holes.collect(),
            tiny.collect(),
            big.collect(),
        ] {
            for bound in [1e-2, 1e-5, 3.0, 1e-40, 1e30] {
                check(&values, shape, bound);
            }
        }
    }
}

#[test]
fn values_of_any_kind_and_shape_come_back_within_the_bound() {
    any_shape::<f32>();
    any_shape::<f64>();
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 200, failure_persistence: None, ..ProptestConfig::default()
    })]

    #[test]
    fn any_bits_come_back(
        bits in prop::collection::vec(any::<u64>(), 1..300), exponent in -300.0..300.0f64,
        row in 1..20usize
    ) {
        let bits = &bits[..bits.len() / row * row];
        let shape = [bits.len() / row, row];
        let single: Vec<f32> = bits.iter().map(|&bits| data::from_bits(bits)).collect();
        let double: Vec<f64> = bits.iter().map(|&bits| data::from_bits(bits)).collect();
        check(&single, &shape, 10f64.powf(exponent.clamp(-44.0, 38.0)));
        check(&double, &shape, 10f64.powf(exponent));
    }
}

#[test]
fn smooth_fields_are_much_shorter_than_with_dense() {
    let shape = [60, 200, 200];
    let values = surface::<f32>(&shape);
    let dense = plan(1e-2).with_codec(CodecId::Dense);
    let size = |plan: &Plan| compress_with(&values, &Layout::new(&shape), plan).unwrap().len();
    let (interp, dense, auto) =
        (size(&plan(1e-2)), size(&dense), size(&Plan::auto(Bound::Absolute(1e-2))));
    assert!(2 * interp < dense && auto <= interp, "{interp}, {dense}, {auto}");
}

#[test]
fn rows_are_found_in_flat_arrays() {
    // Longer than a segment, and shorter.
    for shape in [[1300, 1000], [200, 701]] {
        let value = |y: usize, x: usize| {
            let texture = (x.wrapping_mul(2_654_435_761) >> 7) % 1000;
            (1.5 + (y as f32 * 0.05).sin()) * texture as f32 * 1e-3
        };
        let values: Vec<f32> =
            (0..shape[0] * shape[1]).map(|i| value(i / shape[1], i % shape[1])).collect();
        let [told, flat] = [Layout::new(&shape), Layout::line(values.len())].map(|layout| {
            let bytes = compress_with(&values, &layout, &plan(1e-3)).expect("a good plan");
            let restored: Vec<f32> = decompress(&bytes).expect("undamaged");
            assert!(values.iter().zip(&restored).all(|(x, y)| (x - y).abs() <= 1e-3));
            bytes.len() as f64
        });
        assert!(flat < 1.1 * told, "{shape:?}: {flat} bytes, {told} if told");
    }
}

/// The bytes of a stream do not depend on where it begins.
#[test]
fn rolling_a_field_changes_its_size_little() {
    let shape = [300, 400];
    let values: Vec<f32> = (0..300 * 400)
        .map(|i| {
            let [y, x] = [i / 400, i % 400].map(|at| f64::from(at) * std::f64::consts::TAU);
            ((3.0 * x / 400.0).sin() * (5.0 * y / 300.0).cos() + (x * y * 1e-2).sin() * 0.01) as f32
        })
        .collect();
    for bound in [1e-2, 1e-3, 1e-4] {
        let sizes: Vec<usize> = [0, 7, 100 * 400, 150 * 400 + 123]
            .map(|n| {
                let mut rolled = values.clone();
                rolled.rotate_left(n);
                check(&rolled, &shape, bound)
            })
            .into();
        let (least, most) = (sizes.iter().min().unwrap(), sizes.iter().max().unwrap());
        assert!(100 * most <= 103 * least + 3000, "{bound}: {sizes:?}");
    }
}

#[test]
fn pieces_give_the_same_bytes_as_the_whole() {
    let shape = [3, 700, 1000];
    let values = surface::<f32>(&shape);
    let plan = plan(1e-3);
    for layout in [Layout::new(&shape), Layout::line(values.len())] {
        let whole = compress_with(&values, &layout, &plan).unwrap();
        for piece in [1000, 99_991, SEGMENT, values.len()] {
            let mut bytes = Vec::new();
            let range = ValueRange::of(&values);
            let mut encoder = Encoder::new(f32::DTYPE, &layout, &plan, range, &mut bytes).unwrap();
            values.chunks(piece).for_each(|piece| encoder.encode(piece, &mut bytes));
            encoder.finish(&mut bytes).unwrap();
            assert!(bytes == whole, "pieces of {piece}");
        }
    }
}

/// Bytes of a small array whose payload has all parts.
fn example() -> Vec<u8> {
    let mut values: Vec<f32> = data::smooth(3, 700);
    values[500] = f32::NAN;
    values[501] = 1e30;
    values[30] = 1000.0;
    compress_with(&values, &Layout::line(700), &plan(1e-3)).expect("a good plan")
}

#[test]
fn shortened_and_changed_payloads_are_refused_or_read_to_the_end() {
    let bytes = example();
    let end = bytes.len() - 24;
    for n_bytes in 0..end - PAYLOAD {
        let mut short = [&bytes[..PAYLOAD + n_bytes], &bytes[end..]].concat();
        short[44..48].copy_from_slice(&(n_bytes as u32).to_le_bytes());
        correct(&mut short);
        let refused = decompress::<f32>(&short);
        assert!(matches!(refused, Err(DecompressError::Decode(_))), "{n_bytes}: {refused:?}");
    }
    let mut random = Random(3);
    let mut n_refused = 0;
    for at in (PAYLOAD..end).cycle().take(20_000) {
        let mut damaged = bytes.clone();
        damaged[at] ^= 1 + random.below(255) as u8;
        if random.below(2) == 0 {
            damaged[PAYLOAD + random.below(40)] = random.below(256) as u8;
        }
        correct(&mut damaged);
        match decompress::<f32>(&damaged) {
            Ok(values) => assert_eq!(values.len(), 700),
            Err(error) => {
                assert!(matches!(error, DecompressError::Decode(_)), "{error:?}");
                n_refused += 1;
            }
        }
    }
    assert!(n_refused > 10_000, "{n_refused}");
}

#[test]
fn calls_and_messages_refuse_the_codec() {
    let refused = run(2, PATIENT, |comm| {
        comm.all_reduce(&mut vec![1.5f32; 10_000], Op::Sum, &plan(1e-3)).err()
    });
    for error in refused {
        assert!(matches!(error, Some(Error::ArraysOnly { codec: CodecId::Interp })), "{error:?}");
    }
}
