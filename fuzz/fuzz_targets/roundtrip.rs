//! Arbitrary values through encode and decode: every value within the bound or bit-exact, every level
//! the same bytes, folding the same as combining with the encoded operand.
#![no_main]

use arbitrary::{Result, Unstructured};
use foldwire::codec::{Codec, FzLight, Homomorphic};
use foldwire::kernel::Level;
use foldwire::{Op, Quantum};
use foldwire_fuzz::{MAX_VALUES, Value, bound, buffer, encode, values};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    let mut u = Unstructured::new(input);
    // An input that ends early is no finding.
    let _ =
        if u.arbitrary().unwrap_or_default() { check::<f32>(&mut u) } else { check::<f64>(&mut u) };
});

fn check<T: Value>(u: &mut Unstructured<'_>) -> Result<()> {
    let bound = bound(u)?;
    let n_values = u.int_in_range(0..=MAX_VALUES)?;
    let left = values::<T>(u, n_values, bound)?;
    let right = values::<T>(u, n_values, bound)?;
    let quantum = Quantum::new::<T>(bound);

    let codecs: Vec<_> =
        Level::available().map(|l| FzLight::<T>::with_level(quantum, 2, l)).collect();
    let (first, others) = codecs.split_first().expect("the scalar level is always there");
    let (a, b) = (encode(first, &left), encode(first, &right));
    assert_within(first, &left, &a);
    assert_within(first, &right, &b);
    for codec in others {
        assert_eq!(encode(codec, &left), a, "{codec:?}");
        assert_within(codec, &left, &a);
    }
    for op in [Op::Sum, Op::Min, Op::Max] {
        let reduced = fold(first, &op, &a, &right);
        for codec in others {
            assert_eq!(fold(codec, &op, &a, &right), reduced, "{codec:?} {op:?}");
        }
        let is_verbatim = verbatim(first, &left) + verbatim(first, &right) > 0;
        for codec in &codecs {
            let mut dst = buffer(codec, n_values);
            let written = codec.combine(&op, &a, &b, &mut dst).expect("operands match");
            dst.truncate(written.n_bytes);
            // A verbatim block keeps its value where folding adds it, and loses up to the bound where
            // it was encoded first: only without any are the bytes promised to be equal.
            if !is_verbatim {
                assert_eq!(dst, reduced, "combine, {codec:?} {op:?}");
            }
            let mut decoded = left.clone();
            codec.decode(&dst, 1, &mut decoded).expect("what we write, we can read");
        }
    }
    Ok(())
}

fn fold<T: Value>(codec: &FzLight<T>, op: &Op<'_, T>, src: &[u8], local: &[T]) -> Vec<u8> {
    let mut dst = buffer(codec, local.len());
    let written = codec.fold(op, src, local, &mut dst).expect("operands match");
    dst.truncate(written.n_bytes);
    dst
}

fn verbatim<T: Value>(codec: &FzLight<T>, values: &[T]) -> u64 {
    let mut dst = buffer(codec, values.len());
    codec.encode(values, &mut dst).expect("the destination holds the worst case").blocks.verbatim
}

/// Every decoded value is the original's bits or, both finite, within the bound of it.
fn assert_within<T: Value>(codec: &FzLight<T>, values: &[T], src: &[u8]) {
    let mut decoded = vec![T::from_f64(7.0); values.len()];
    codec.decode(src, 1, &mut decoded).expect("what we write, we can read");
    let bound = codec.quantum().bound();
    for (i, (&x, &y)) in values.iter().zip(&decoded).enumerate() {
        let finite = x.to_f64().is_finite() && y.to_f64().is_finite();
        let near = finite && (x.to_f64() - y.to_f64()).abs() <= bound;
        assert!(near || x.raw() == y.raw(), "value {i}: {x:?} became {y:?}, bound {bound:e}");
    }
}
