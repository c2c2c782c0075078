//! Fixed predictors, second differences, and low bits that are left out.

use super::*;
use crate::codec::Prediction;

fn n_bytes<T: Float>(id: CodecId, params: &CodecParams, values: &[T]) -> usize {
    encode(id.instance::<T>(params).as_dyn(), values).len()
}

#[test]
fn whatever_is_predicted_values_are_the_same() {
    for id in OURS {
        for array in arrays::<f32>(3) {
            let params = params::<f32>(1e-3, &array.shape).for_sums_of(2);
            let [auto, fz_light] = both::<f32>(id, &params);
            let expected = encode(fz_light.as_dyn(), &array.values);
            let other = encode(auto.as_dyn(), &array.values);
            for prediction in Prediction::ALL {
                let of = format!("{} by {id:?}, {prediction:?}", array.name);
                let codec = id.instance::<f32>(&params.with_prediction(prediction));
                let codec = codec.as_dyn();
                let bytes = encode(codec, &array.values);
                let n = array.values.len();
                assert_same_values([codec, fz_light.as_dyn()], [&bytes, &expected], n, &of);
                // The bytes of a sum do not depend on the predictors of its operands.
                let sum = |a: &[u8], b: &[u8]| {
                    let codec = auto.as_dyn().homomorphic().unwrap();
                    let add =
                        |_: &dyn Codec<f32>, dst: &mut [u8]| codec.combine(&Op::Sum, a, b, dst);
                    written(auto.as_dyn(), n, add).0
                };
                assert_eq!(sum(&bytes, &other), sum(&other, &other), "{of}");
            }
        }
    }
}

/// A field that is smooth for the bound, along rows and across them.
#[test]
fn second_differences_save_bytes_of_what_is_very_smooth() {
    let shape = [60, 500];
    let values: Vec<f64> = (0..30_000)
        .map(|i| (f64::from(i % 500) * 0.01).sin() * (f64::from(i / 500) * 0.02).cos())
        .collect();
    for id in OURS {
        for (shape, once) in [(&shape[..], Prediction::Lorenzo2), (&[], Prediction::First)] {
            let params = params::<f64>(1e-7, shape);
            let of = |prediction| n_bytes(id, &params.with_prediction(prediction), &values);
            let (best, once) = (of(Prediction::Auto), of(once));
            assert!(5 * best < 4 * once, "{id:?}: {best} bytes, {once} by first differences");
        }
    }
}

/// Multiples of 1/4, alone or with an offset, and a bound that requires steps of 1/256.
#[test]
fn what_was_rounded_before_takes_fewer_bytes() {
    let mut random = Random(9);
    let noise: Vec<f32> = (0..10_000).map(|_| (random.unit() * 100.0).round() as f32).collect();
    let steps = (0..10_000).map(|i| (f64::from(i) * 0.03).sin() * 400.0);
    let steps: Vec<f32> = steps.map(|x| x.round() as f32 + 1.0 / 16.0).collect();
    let quantum = Quantum::with_spacing::<f32>(1.0 / 512.0, crate::Spacing::PowerOfTwo).unwrap();
    let params = CodecParams::new(quantum);
    for values in [noise, steps] {
        let quarters: Vec<f32> = values.iter().map(|x| x / 4.0).collect();
        let bits = |id| n_bytes(id, &params, &quarters) as f64 * 8.0 / quarters.len() as f64;
        let [dense, fz_nd, fz_light] = [CodecId::Dense, CodecId::FzNd, CodecId::FzLight].map(bits);
        assert!(dense < fz_light - 5.0, "{dense} bits a value, {fz_light} by fz-light");
        assert!(fz_nd < fz_light - 5.0, "{fz_nd} bits a value, {fz_light} by fz-light");
    }
}
