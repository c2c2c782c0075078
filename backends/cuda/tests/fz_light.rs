//! Codecs `fz-light` and `fz-static` as kernels, against the scalar codecs of core.

mod shim;

use foldwire::codec::{CodecId, CodecParams};
use foldwire::{Float, Op, Quantum, bf16, f16};
use shim::{Pair, arrays};

/// Number of values of a chunk.
const CHUNK: usize = 4096;

fn quanta<T: Float>() -> Vec<Quantum> {
    let bounds = [1e-6, 1e-3, 0.3, 1e4].map(|bound| Quantum::new::<T>(bound).unwrap());
    bounds.into_iter().chain([Quantum::LOSSLESS]).collect()
}

fn all_tasks<T: Float>(pair: &mut Pair<T>, x: &[T], y: &[T], n_operands: u32) {
    let (a, b) = (pair.encode(x, false), pair.encode(y, false));
    pair.encode(y, true);
    for divisor in [1, n_operands] {
        pair.decode(&a, x.len(), divisor);
    }
    for op in [Op::Sum, Op::Min, Op::Max, Op::Prod] {
        let folded = pair.fold(&op, &a, y, None);
        pair.fold(&op, &b, x, Some(n_operands));
        pair.combine(&op, &a, &b, x.len());
        pair.combine(&op, &a, &folded, x.len());
        pair.reduce(&op, &a, y);
        pair.recode(Some(&op), &a, y);
    }
    pair.recode(None, &a, x);
}

fn bytes_are_equal<T: Float>(id: CodecId) {
    for n_values in [0, 1, 31, 33, 300, CHUNK, CHUNK + 1, 2 * CHUNK + 77] {
        let arrays = arrays::<T>(n_values, 1).into_iter().zip(arrays::<T>(n_values, 2));
        for (i, ((name, x), (_, y))) in arrays.enumerate() {
            for (k, quantum) in quanta::<T>().into_iter().enumerate() {
                // Long arrays with one bound each, short ones with all.
                if n_values > 1000 && i % 5 != k {
                    continue;
                }
                let params = CodecParams::new(quantum);
                let params = match (i + k) % 2 {
                    0 => params.for_sums_of(3),
                    _ => params.for_averages_of(3),
                };
                let context = format!("{n_values} values, {name}");
                all_tasks(&mut Pair::<T>::new(id, &params, &context), &x, &y, 3);
            }
        }
    }
}

#[test]
fn bytes_and_values_of_f32_are_those_of_core() {
    bytes_are_equal::<f32>(CodecId::FzLight);
}

#[test]
fn bytes_and_values_of_f64_are_those_of_core() {
    bytes_are_equal::<f64>(CodecId::FzLight);
}

#[test]
fn bytes_and_values_of_f16_are_those_of_core() {
    bytes_are_equal::<f16>(CodecId::FzLight);
}

#[test]
fn bytes_and_values_of_bf16_are_those_of_core() {
    bytes_are_equal::<bf16>(CodecId::FzLight);
}

#[test]
fn fz_static_is_that_of_core() {
    for n_values in [0, 1, 33, 300, CHUNK + 77] {
        a_few::<f32>(CodecId::FzStatic, n_values);
        a_few::<f64>(CodecId::FzStatic, n_values);
        a_few::<f16>(CodecId::FzStatic, n_values);
        a_few::<bf16>(CodecId::FzStatic, n_values);
    }
}

/// Runs all tasks on two kinds of data.
fn a_few<T: Float>(id: CodecId, n_values: usize) {
    let arrays = arrays::<T>(n_values, 1).into_iter().zip(arrays::<T>(n_values, 2));
    let params = CodecParams::new(Quantum::new::<T>(1e-3).unwrap()).for_averages_of(3);
    for ((name, x), (_, y)) in arrays.filter(|((name, _), _)| ["smooth", "dotted"].contains(name)) {
        let context = format!("{n_values} values, {name}");
        all_tasks(&mut Pair::<T>::new(id, &params, &context), &x, &y, 3);
    }
}

/// Cuts payloads short, or changes a byte. The device refuses them where core does. Otherwise both
/// give the same values and bytes.
fn damage_is_found_alike<T: Float>(id: CodecId) {
    let quantum = Quantum::new::<T>(1e-3).unwrap();
    let params = CodecParams::new(quantum).for_sums_of(3);
    let names = ["smooth", "dotted", "holes", "sparse", "any magnitude"];
    let arrays = arrays::<T>(150, 1).into_iter().zip(arrays::<T>(150, 2));
    for ((name, x), (_, y)) in arrays.filter(|((name, _), _)| names.contains(name)) {
        let pair = &mut Pair::<T>::new(id, &params, name);
        let (payload, other) = (pair.encode(&x, false), pair.encode(&y, false));
        for n_bytes in 0..payload.len() {
            pair.decode(&payload[..n_bytes], x.len(), 1);
        }
        // Bytes of the pad have no meaning.
        for at in 0..payload.len() - 60 {
            for flip in [0x01, 0x80, 0xff] {
                let mut payload = payload.clone();
                payload[at] ^= flip;
                pair.decode(&payload, x.len(), 1);
                match (at + usize::from(flip)) % 3 {
                    0 => drop(pair.fold(&Op::Sum, &payload, &y, None)),
                    1 => pair.combine(&Op::Sum, &other, &payload, x.len()),
                    _ => pair.combine(&Op::Max, &payload, &other, x.len()),
                }
            }
        }
    }
}

#[test]
fn damaged_payloads_are_refused_alike() {
    damage_is_found_alike::<f32>(CodecId::FzLight);
}

/// The same for payloads of several chunks: all bytes before the chunks, which say where each chunk
/// ends, and bytes around the first chunks' ends.
fn damage_of_an_index_is_found_alike<T: Float>(id: CodecId, n_values: usize) {
    let params = CodecParams::new(Quantum::new::<T>(1e-3).unwrap()).for_sums_of(3);
    let n_chunks = n_values.div_ceil(CHUNK);
    for (name, x) in arrays::<T>(n_values, 1).into_iter().take(1) {
        let pair = &mut Pair::<T>::new(id, &params, name);
        let payload = pair.encode(&x, false);
        let other = payload.clone();
        // A header of 24 bytes, and the end of each chunk.
        let first = 24 + 4 * n_chunks;
        let ends = payload[24..first].as_chunks().0;
        let ends: Vec<usize> =
            ends.iter().map(|end| first + u32::from_le_bytes(*end) as usize).collect();
        assert!(ends.is_sorted() && *ends.last().unwrap() <= payload.len(), "{ends:?}");
        for n_bytes in (0..=first).chain(ends.iter().flat_map(|end| [end - 1, *end, end + 1])) {
            pair.decode(&payload[..n_bytes.min(payload.len())], x.len(), 1);
        }
        for at in (16..first).chain(ends.iter().flat_map(|end| [end - 1, *end])) {
            for flip in [0x01, 0x80, 0xff] {
                let mut payload = payload.clone();
                let Some(byte) = payload.get_mut(at) else { continue };
                *byte ^= flip;
                pair.decode(&payload, x.len(), 1);
                match (at + usize::from(flip)) % 3 {
                    0 => drop(pair.fold(&Op::Sum, &payload, &x, None)),
                    1 => pair.combine(&Op::Sum, &other, &payload, x.len()),
                    _ => pair.reduce(&Op::Sum, &payload, &x),
                }
            }
        }
    }
}

#[test]
fn damaged_indices_of_several_chunks_are_refused_alike() {
    damage_of_an_index_is_found_alike::<f32>(CodecId::FzLight, 2 * CHUNK + 77);
    damage_of_an_index_is_found_alike::<bf16>(CodecId::FzStatic, CHUNK + 1);
}

/// The slowest tests.
mod long {
    use super::*;

    #[test]
    fn a_million_values() {
        let quantum = Quantum::new::<f32>(1e-3).unwrap();
        let params = CodecParams::new(quantum).for_sums_of(4);
        for n_values in [1_000_000, 999_999] {
            let arrays = arrays::<f32>(n_values, 1).into_iter().zip(arrays::<f32>(n_values, 2));
            let names = ["smooth", "holes"];
            for ((name, x), (_, y)) in arrays.filter(|((name, _), _)| names.contains(name)) {
                let pair = &mut Pair::<f32>::new(CodecId::FzLight, &params, name);
                let (a, b) = (pair.encode(&x, false), pair.encode(&y, false));
                pair.decode(&a, n_values, 1);
                let folded = pair.fold(&Op::Sum, &a, &y, Some(2));
                pair.combine(&Op::Sum, &b, &folded, n_values);
            }
        }
    }

    #[test]
    fn damaged_payloads_are_refused_alike_in_every_type_and_codec() {
        damage_is_found_alike::<f64>(CodecId::FzLight);
        damage_is_found_alike::<f16>(CodecId::FzLight);
        damage_is_found_alike::<bf16>(CodecId::FzLight);
        damage_is_found_alike::<f32>(CodecId::FzStatic);
        damage_is_found_alike::<bf16>(CodecId::FzStatic);
    }

    #[test]
    fn damaged_indices_are_refused_alike_in_every_type() {
        damage_of_an_index_is_found_alike::<f64>(CodecId::FzLight, 3 * CHUNK);
        damage_of_an_index_is_found_alike::<f16>(CodecId::FzLight, 3 * CHUNK);
        damage_of_an_index_is_found_alike::<bf16>(CodecId::FzLight, 5 * CHUNK + 1);
    }

    #[test]
    fn long_arrays_of_every_type() {
        a_few::<f64>(CodecId::FzLight, 400_001);
        a_few::<f16>(CodecId::FzLight, 400_001);
        a_few::<bf16>(CodecId::FzLight, 400_001);
        a_few::<f32>(CodecId::FzStatic, 400_001);
    }
}

/// Payloads that do not suit are refused with the same error: another number of values, lattice,
/// type, or too many operands.
#[test]
fn operands_that_do_not_suit_are_refused_alike() {
    let [fine, coarse] = [1e-3, 1e-2].map(|bound| Quantum::new::<f32>(bound).unwrap());
    let x: Vec<f32> = (0..5000).map(|i| (i as f32 * 1e-3).sin()).collect();
    let pair = &mut Pair::<f32>::new(CodecId::FzLight, &CodecParams::new(fine).for_sums_of(2), "");
    let other = &mut Pair::<f32>::new(CodecId::FzLight, &CodecParams::new(coarse), "coarse");
    let a = pair.encode(&x, false);
    let (short, coarse) = (pair.encode(&x[..4999], false), other.encode(&x, false));
    let full = pair.fold(&Op::Sum, &a, &x, None);
    let wide = &mut Pair::<f64>::new(CodecId::FzLight, &CodecParams::new(fine), "f64");
    let wide = wide.encode(&vec![0.5; 5000], false);
    for bad in [&short, &coarse, &full, &wide] {
        pair.decode(bad, x.len(), 1);
        pair.combine(&Op::Sum, &a, bad, x.len());
        pair.combine(&Op::Prod, &a, bad, x.len());
        pair.reduce(&Op::Sum, bad, &x);
        for op in [Op::Sum, Op::Prod] {
            pair.fold(&op, bad, &x, None);
            pair.fold(&op, bad, &x, Some(2));
            pair.recode(Some(&op), bad, &x);
        }
    }
}

/// Payloads that core's encoders do not write, but readers accept: widths that are larger than the
/// residuals need, a residual before the first value, and residuals behind the last value.
#[test]
fn unusual_payloads_are_combined_alike() {
    let quantum = Quantum::new::<f32>(1e-3).unwrap();
    let pair =
        &mut Pair::<f32>::new(CodecId::FzLight, &CodecParams::new(quantum).for_sums_of(9), "");
    // Two blocks of 33 values. The first is occupied, or both are.
    let chunk = |widths: &[u8], tag: u8, occupied: Option<u8>, first: u8| {
        let packed = widths.iter().enumerate().flat_map(|(i, &width)| {
            (0..4 * width).map(move |k| if k % 5 == 0 { 1 << ((k + i as u8) % 3) } else { 0 })
        });
        let blocks: Vec<u8> = packed.collect();
        let tail = widths.iter().copied().chain(occupied).chain([first]);
        [tag].into_iter().chain(blocks).chain(tail).collect::<Vec<u8>>()
    };
    let step = quantum.step().to_le_bytes();
    let payload = |chunk: &[u8]| {
        let mut bytes = vec![2, 1, 0, 0, 1, 0, 0, 0];
        bytes.extend(step);
        bytes.extend([33, 0, 0, 0, 0, 0, 0, 0]);
        bytes.extend((chunk.len() as u32).to_le_bytes());
        bytes.extend(chunk);
        bytes.extend([7; 64]);
        bytes
    };
    let payloads = [
        payload(&chunk(&[9], 0, Some(1), 5)),
        payload(&chunk(&[7], 0, Some(2), 0xfb)),
        payload(&chunk(&[3, 32], 1, None, 1)),
        payload(&chunk(&[], 4, None, 9)),
        payload(&chunk(&[11, 4], 0, Some(3), 0)),
    ];
    let x: Vec<f32> = (0..33).map(|i| i as f32 * 0.1).collect();
    for a in &payloads {
        pair.decode(a, 33, 1);
        for op in [Op::Sum, Op::Min] {
            pair.fold(&op, a, &x, None);
            pair.fold(&op, a, &x, Some(1));
            for b in &payloads {
                pair.combine(&op, a, b, 33);
            }
        }
    }
}
