//! Any values through every codec. Each decoded value is within the bound or has the same bits; NaN
//! and infinities keep their bits. Every level gives the same bytes. Reductions of two operands are
//! within the stated worst case.
//!
//! Folding gives the same bytes as combining with the encoded operand.

use arbitrary::{Result, Unstructured};
use foldwire::bound::rounding;
use foldwire::codec::{AnyCodec, Codec, CodecExt, CodecId, CodecParams, Loss, Values};
use foldwire::kernel::Level;
use foldwire::{DType, Op, Quantum};
use foldwire_tests::with_type;

use crate::values::{
    FuzzValue, MAX_VALUES, UNDIVIDED, assert_within, bound, encode, operate, values,
};

/// Runs the target on an input.
pub fn check(input: &[u8]) {
    let mut u = Unstructured::new(input);
    // An input that ends early is valid.
    let choice: u8 = u.arbitrary().unwrap_or_default();
    // Bit 0 chooses f32 (if set) or f64, and bit 7 a 16-bit type instead. Other bits, or another
    // order, would change the meaning of the inputs in `corpus`.
    let dtype = DType::FLOATS[usize::from((1 - (choice & 1)) | (choice >> 7 << 1))];
    let _ = with_type!(dtype, T => of::<T>(&mut u));
}

fn of<T: FuzzValue>(u: &mut Unstructured<'_>) -> Result<()> {
    let bound = bound(u)?;
    // Mostly short arrays: many short inputs find more than few long ones.
    let most = MAX_VALUES >> u.int_in_range(0..=8)?;
    let n_values = u.int_in_range(0..=most)?;
    let left = values::<T>(u, n_values, bound)?;
    let right = values::<T>(u, n_values, bound)?;
    for &id in CodecId::ALL {
        let quantum = Quantum::new::<T>(bound);
        assert_eq!(quantum.is_err(), bound.is_nan() || bound < 0.0);
        let quantum = quantum.unwrap_or(Quantum::LOSSLESS);
        // Need not match `n_values`: codecs also encode parts of arrays.
        let shape = [2, 3, n_values % 50];
        let params = |level| CodecParams::new(quantum).for_sums_of(2).with_shape(&shape).at(level);
        let levels = Level::available().map(|level| id.instance::<T>(&params(level)));
        // The instance is the raw codec if `id` does not support `T`.
        let bound = match id.instance::<T>(&params(Level::Scalar)).as_dyn().id().loss() {
            Loss::Bound => quantum.bound(),
            Loss::Setting => f64::INFINITY,
            _ => 0.0,
        };
        OperandPair { levels: levels.collect(), bound, left: &left, right: &right }.check();
    }
    Ok(())
}

/// Two arrays and a codec for them.
struct OperandPair<'a, T: FuzzValue> {
    /// The scalar level first.
    levels: Vec<AnyCodec<T>>,
    bound: f64,
    left: &'a [T],
    right: &'a [T],
}

impl<T: FuzzValue> OperandPair<'_, T> {
    fn check(&self) {
        let specification = self.levels[0].as_dyn();
        let (a, b) = (encode(specification, self.left), encode(specification, self.right));
        for codec in &self.levels {
            for (values, bytes) in [(self.left, &a), (self.right, &b)] {
                assert!(encode(codec.as_dyn(), values) == *bytes, "{codec:?}");
                assert_within(self.bound, values, &decode(codec.as_dyn(), bytes, values.len()));
            }
        }
        for op in [Op::Sum, Op::Min, Op::Max] {
            let folded = fold(specification, &op, &a, self.right);
            self.assert_reduced(&op, &decode(specification, &folded, self.left.len()));
            for codec in &self.levels {
                let codec = codec.as_dyn();
                assert!(fold(codec, &op, &a, self.right) == folded, "{:?} {op:?}", codec.id());
                assert!(
                    fold_store(codec, &op, &a, self.right) == folded,
                    "{:?} {op:?}",
                    codec.id()
                );
                let Some(homomorphic) = codec.homomorphic() else { continue };
                let mut dst = room(codec, self.left.len());
                let written = homomorphic.combine(&op, &a, &b, &mut dst).expect("operands match");
                dst.truncate(written.n_bytes);
                assert!(dst == folded, "combine, {:?} {op:?}", codec.id());
                self.assert_reduced(&op, &decode(codec, &dst, self.left.len()));
            }
        }
    }

    /// Asserts that every value is the reduction of the two inputs, or within the worst case: the
    /// bound for minimum and maximum, twice the bound for sums, plus rounding.
    fn assert_reduced(&self, op: &Op<'_, T>, reduced: &[T]) {
        let n_bounds = if matches!(op, Op::Sum) { 2.0 } else { 1.0 };
        for (i, ((&a, &b), &got)) in self.left.iter().zip(self.right).zip(reduced).enumerate() {
            let (exact, got) = (operate(op, a, b).to_f64(), got.to_f64());
            let context = || format!("value {i}: {op:?} of {a:?} and {b:?} gave {got:e}");
            if !exact.is_finite() {
                // Finite values near the largest may overflow within the bound.
                let overflows = a.to_f64().is_finite() && b.to_f64().is_finite();
                let same = got == exact || (got.is_nan() && exact.is_nan());
                assert!(same || overflows, "{}", context());
                continue;
            }
            let exact = match op {
                Op::Sum => a.to_f64() + b.to_f64(),
                _ => exact,
            };
            let magnitude = a.to_f64().abs().max(b.to_f64().abs()) + n_bounds * self.bound;
            let allowed = n_bounds * self.bound + 2.0 * rounding::<T>(2, magnitude);
            // The exact sum may round to the largest value, while one that is off by the bound
            // overflows.
            let at_the_edge = exact.abs() + allowed >= T::MAX.to_f64();
            let off = (got - exact).abs();
            assert!(off <= allowed || at_the_edge, "{}, off by {off:e} of {allowed:e}", context());
        }
    }
}

fn room<T: FuzzValue>(codec: &dyn Codec<T>, n_values: usize) -> Vec<u8> {
    vec![0xa5; codec.max_encoded_len(n_values).expect("a few chunks fit a frame")]
}

fn decode<T: FuzzValue>(codec: &dyn Codec<T>, src: &[u8], n_values: usize) -> Vec<T> {
    let mut decoded = vec![T::from_f64(7.0); n_values];
    codec.decode(src, UNDIVIDED, &mut decoded).expect("what we write, we can read");
    decoded
}

fn fold<T: FuzzValue>(codec: &dyn Codec<T>, op: &Op<'_, T>, src: &[u8], local: &[T]) -> Vec<u8> {
    let mut dst = room(codec, local.len());
    let written = codec.fold(op, src, local, &mut dst).expect("operands match");
    dst.truncate(written.n_bytes);
    dst
}

fn fold_store<T: FuzzValue>(
    codec: &dyn Codec<T>,
    op: &Op<'_, T>,
    src: &[u8],
    local: &[T],
) -> Vec<u8> {
    let (mut dst, mut output) = (room(codec, local.len()), local.to_vec());
    let values = Values::InPlace(&mut output);
    let written = codec.fold_store(op, src, values, UNDIVIDED, &mut dst).expect("operands match");
    dst.truncate(written.n_bytes);
    dst
}
