//! Codecs `raw`, `cuszp`, `mpc` and `zfp-rate` as kernels, against the scalar codecs of core.

mod shim;

use foldwire::codec::{CodecId, CodecParams};
use foldwire::{Float, Op, Quantum, bf16, f16};
use shim::{Pair, arrays};

/// Number of values of a chunk.
const CHUNK: usize = 4096;

/// Checks a codec with each of these bounds and settings, one for each array in turn.
fn bytes_are_equal<T: Float>(id: CodecId, bounds: &[f64], settings: &[u16]) {
    for n_values in [0, 1, 3, 31, 33, 65, 301, CHUNK, CHUNK + 1101] {
        let arrays = arrays::<T>(n_values, 1).into_iter().zip(arrays::<T>(n_values, 2));
        for (i, ((name, x), (_, y))) in arrays.enumerate() {
            let pairs = bounds.iter().flat_map(|bound| settings.iter().map(move |s| (*bound, *s)));
            for (k, (bound, setting)) in pairs.enumerate() {
                if (i + k) % (1 + n_values / 50).min(7) != 0 {
                    continue;
                }
                let params = CodecParams::new(Quantum::new::<T>(bound).unwrap());
                let params = params.with_setting(setting);
                let params = match (i + k / 7) % 2 {
                    0 => params.for_sums_of(3),
                    _ => params.for_averages_of(3),
                };
                let context = format!("{n_values} values, {name}");
                let pair = &mut Pair::<T>::new(id, &params, &context);
                let (a, b) = (pair.encode(&x, false), pair.encode(&y, true));
                pair.decode(&a, n_values, 1);
                pair.decode(&b, n_values, 3);
                let op = [Op::Sum, Op::Min, Op::Max, Op::Prod][(i + k) % 4];
                pair.fold(&op, &a, &y, None);
                pair.fold(&op, &b, &x, Some(3));
                pair.combine(&op, &a, &b, n_values);
                pair.reduce(&op, &a, &y);
                pair.recode(Some(&op), &a, &y);
            }
        }
    }
}

#[test]
fn raw_is_that_of_core() {
    bytes_are_equal::<f32>(CodecId::Raw, &[1.0], &[0]);
    bytes_are_equal::<f64>(CodecId::Raw, &[1.0], &[0]);
    bytes_are_equal::<f16>(CodecId::Raw, &[1.0], &[0]);
    bytes_are_equal::<bf16>(CodecId::Raw, &[1.0], &[0]);
}

#[test]
fn cuszp_is_that_of_core() {
    bytes_are_equal::<f32>(CodecId::CuSzp, &[0.0, 1e-6, 1e-3, 0.5, 1.0], &[0]);
    bytes_are_equal::<f64>(CodecId::CuSzp, &[0.0, 1e-9, 1e-3, 0.5, 1.0], &[0]);
}

#[test]
fn mpc_is_that_of_core() {
    bytes_are_equal::<f32>(CodecId::Mpc, &[1.0], &[0, 1, 3, 64]);
    bytes_are_equal::<f64>(CodecId::Mpc, &[1.0], &[0, 1, 3, 64]);
}

#[test]
fn zfp_rate_is_that_of_core() {
    bytes_are_equal::<f32>(CodecId::ZfpRate, &[1.0], &[0, 1, 3, 8, 13, 16, 20, 32]);
    bytes_are_equal::<f64>(CodecId::ZfpRate, &[1.0], &[0, 1, 3, 8, 16, 17, 33, 64]);
}

fn damage_is_found_alike<T: Float>(id: CodecId, settings: &[u16]) {
    let params = CodecParams::new(Quantum::new::<T>(1e-3).unwrap()).for_sums_of(3);
    let names = ["smooth", "dotted", "steps"];
    for (name, x) in arrays::<T>(101, 1).into_iter().filter(|(name, _)| names.contains(name)) {
        for &setting in settings {
            let params = params.with_setting(setting);
            let pair = &mut Pair::<T>::new(id, &params, name);
            let payload = pair.encode(&x, false);
            for n_bytes in 0..payload.len() {
                pair.decode(&payload[..n_bytes], x.len(), 1);
            }
            for at in 0..payload.len() {
                for flip in [0x01, 0x80, 0xff] {
                    let mut payload = payload.clone();
                    payload[at] ^= flip;
                    pair.decode(&payload, x.len(), 1);
                    if flip == 0xff && at % 3 == 0 {
                        pair.reduce(&Op::Sum, &payload, &x);
                        pair.fold(&Op::Sum, &payload, &x, Some(3));
                    }
                }
            }
        }
    }
}

#[test]
fn damaged_payloads_are_refused_alike() {
    for (id, settings) in [(CodecId::CuSzp, [0]), (CodecId::Mpc, [0]), (CodecId::ZfpRate, [5])] {
        damage_is_found_alike::<f32>(id, &settings);
    }
}

mod long {
    use super::*;

    #[test]
    fn damaged_payloads_are_refused_alike_in_every_type_and_codec() {
        for (id, settings) in [
            (CodecId::Raw, &[0][..]),
            (CodecId::CuSzp, &[0]),
            (CodecId::Mpc, &[0, 2]),
            (CodecId::ZfpRate, &[5, 16, 24]),
        ] {
            damage_is_found_alike::<f32>(id, settings);
            damage_is_found_alike::<f64>(id, settings);
        }
    }
}

/// The parameter of a payload stands at bytes 8 to 15.
#[test]
fn parameters_out_of_range_are_refused_alike() {
    let (_, x) = arrays::<f32>(101, 1).swap_remove(0);
    for (id, parameters) in [
        (CodecId::CuSzp, [-1.0, 1e-300, 1e300, f64::NAN, f64::INFINITY]),
        (CodecId::Mpc, [-1.0, 0.5, 65.0, f64::NAN, 4_294_967_296.0]),
        (CodecId::ZfpRate, [-1.0, 0.0, 33.0, f64::NAN, 4_294_967_304.0]),
    ] {
        let params = CodecParams::new(Quantum::new::<f32>(1e-3).unwrap()).with_setting(8);
        let pair = &mut Pair::<f32>::new(id, &params, "out of range");
        let mut payload = pair.encode(&x, false);
        for parameter in parameters {
            payload[8..16].copy_from_slice(&parameter.to_le_bytes());
            pair.decode(&payload, x.len(), 1);
        }
    }
}
