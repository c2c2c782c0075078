use super::*;
use crate::bound::{Bound, ValueRange};
use std::vec;
use std::vec::Vec;

#[test]
fn a_quantum_of_another_type_is_as_good_as_this_type_can() {
    let codec = FzLight::<f32>::new(Quantum::new::<f64>(1e60).unwrap(), 1);
    let mut bytes = vec![0; codec.max_encoded_len(2).unwrap()];
    let n = codec.encode(&[1.0, -2e30], &mut bytes).unwrap().n_bytes;
    let mut values = [0.0; 2];
    codec.decode(&bytes[..n], 1, &mut values).unwrap();
    let bound = codec.quantum().bound();
    assert!(
        bound < 1e30
            && values.map(f64::from).iter().zip([1.0, -2e30]).all(|(x, y)| (x - y).abs() <= bound)
    );
}

/// The index gives a chunk the largest possible end, which might overflow on 32 bits.
#[test]
fn an_index_beyond_everything_is_damage() {
    let codec = FzLight::<f32>::new(Quantum::new::<f32>(0.1).unwrap(), 1);
    let values = vec![1.5; 5000];
    let mut bytes = vec![0; codec.max_encoded_len(5000).unwrap()];
    let n = codec.encode(&values, &mut bytes).unwrap().n_bytes;
    for entry in 0..2 {
        let mut damaged = bytes[..n].to_vec();
        let at = HEADER_BYTES + chunked::INDEX_ENTRY * entry;
        damaged[at..at + 4].fill(0xff);
        assert!(codec.decode(&damaged, 1, &mut vec![0.0; 5000]).is_err(), "{entry}");
    }
}

/// docs/guarantees.md warns of this: one array has one value range.
#[test]
fn a_relative_bound_on_a_flat_buffer_erases_its_small_tensors() {
    let wide = (0..4096).map(|i| (i as f32 * 0.01).sin());
    let small = (0..4096).map(|i| 1e-4 * (i as f32 * 0.01).cos());
    let flat: vec::Vec<f32> = wide.chain(small).collect();
    let eb = Bound::Relative(1e-3).absolute(ValueRange::of(&flat)).unwrap();
    let codec = FzLight::<f32>::new(Quantum::new::<f32>(eb).unwrap(), 1);
    let mut bytes = vec![0; codec.max_encoded_len(flat.len()).unwrap()];
    let n = codec.encode(&flat, &mut bytes).unwrap().n_bytes;
    let mut values = vec![1.0; flat.len()];
    codec.decode(&bytes[..n], 1, &mut values).unwrap();
    assert!(values[4096..].iter().all(|&x| x == 0.0));
    assert!(values[..4096].iter().any(|&x| x != 0.0));
}

/// hZCCL's baseline differs from the codec only in speed.
#[test]
fn adding_by_the_static_pipeline_gives_the_same_bytes() {
    let quantum = Quantum::new::<f32>(1e-3).unwrap();
    for level in Level::available() {
        let params = CodecParams::new(quantum).for_sums_of(2).at(level);
        let dynamic = FzLight::<f32, false>::from_params(&params);
        let fixed = FzStatic::<f32>::from_params(&params);
        for odd in [0.0, f32::NAN] {
            let field = |phase: f32| -> Vec<f32> {
                let value = |i: u16| (f32::from(i / 500) * 0.7 + phase).sin();
                (0..9_001).map(|i| if i % 97 == 5 { value(i) + odd } else { value(i) }).collect()
            };
            let mut frames = [0.0, 1.0].map(|phase| {
                let values = field(phase);
                let mut dst = vec![0; dynamic.max_encoded_len(values.len()).unwrap()];
                let n_bytes = dynamic.encode(&values, &mut dst).unwrap().n_bytes;
                dst.truncate(n_bytes);
                dst
            });
            frames.sort();
            let [a, b] = &frames;
            for op in [Op::Sum, Op::Min, Op::Max] {
                let room = || vec![0; dynamic.max_encoded_len(9_001).unwrap()];
                let (mut dst, mut other) = (room(), room());
                let n_bytes = dynamic.combine(&op, a, b, &mut dst).unwrap().n_bytes;
                assert_eq!(fixed.combine(&op, a, b, &mut other).unwrap().n_bytes, n_bytes);
                assert!(dst[..n_bytes] == other[..n_bytes], "{level}, {op:?}");
            }
        }
    }
}
