//! Arbitrary bytes as an encoding: everything that reads one returns a typed error or a result of the
//! right length, at every level, and never panics. All levels agree on what they return.
#![no_main]

use foldwire::Op;
use foldwire::codec::{Codec, FzLight, Homomorphic};
use foldwire::kernel::Level;
use foldwire_fuzz::{MAX_VALUES, Value, buffer, encode, quantum_of};
use libfuzzer_sys::fuzz_target;

/// What the levels must agree on: status and, where there are any, the bytes.
type Outcome = Result<Vec<u8>, String>;

fuzz_target!(|input: &[u8]| {
    check::<f32>(input);
    check::<f64>(input);
});

fn check<T: Value>(src: &[u8]) {
    let quantum = quantum_of::<T>(src);
    let mut first: Option<Vec<Outcome>> = None;
    for level in Level::available() {
        let codec = FzLight::<T>::with_level(quantum, u32::MAX, level);
        let outcomes = read_all(&codec, src);
        match &first {
            Some(first) => assert_eq!(first, &outcomes, "{level} differs from the specification"),
            None => first = Some(outcomes),
        }
    }
}

fn read_all<T: Value>(codec: &FzLight<T>, src: &[u8]) -> Vec<Outcome> {
    let mut outcomes = Vec::new();
    let n_values = match codec.n_values(src) {
        // Decoders must not trust the number; neither do we allocate by it.
        Ok(n_values) if n_values <= MAX_VALUES => n_values,
        Ok(_) => MAX_VALUES,
        Err(error) => {
            outcomes.push(Err(error.to_string()));
            // Whatever is asked of a bad header is refused.
            assert!(codec.decode(src, 1, &mut [T::from_f64(0.0); 40]).is_err());
            return outcomes;
        }
    };
    let mut decoded = vec![T::from_f64(0.0); n_values];
    for divisor in [1, 3] {
        let result = codec.decode(src, divisor, &mut decoded);
        let raw = decoded.iter().flat_map(|x| canonical(*x).to_le_bytes()).collect();
        outcomes.push(result.map(|()| raw).map_err(|error| error.to_string()));
    }
    let local: Vec<T> = (0..n_values).map(|i| T::from_f64((i % 50) as f64 * 0.25)).collect();
    let valid = encode(codec, &local);
    for op in [Op::Sum, Op::Min, Op::Max, Op::Prod] {
        for pair in [None, Some((src, src)), Some((src, &valid[..])), Some((&valid[..], src))] {
            let mut dst = buffer(codec, n_values);
            let written = match pair {
                None => codec.fold(&op, src, &local, &mut dst),
                // A frame that claims more values than we allow would need a larger buffer: refused.
                Some((a, b)) => codec.combine(&op, a, b, &mut dst),
            };
            outcomes.push(match written {
                Ok(written) => {
                    dst.truncate(written.n_bytes);
                    assert_eq!(codec.n_values(&dst), Ok(n_values));
                    codec.decode(&dst, 1, &mut decoded).expect("what we write, we can read");
                    Ok(dst)
                }
                Err(error) => Err(error.to_string()),
            });
        }
    }
    outcomes
}

/// The bits, with one NaN for all: a sum's NaN may differ in its payload between levels.
fn canonical<T: Value>(x: T) -> u64 {
    if x.to_f64().is_nan() { u64::MAX } else { x.raw() }
}
