//! Makes values from arbitrary input, encodes them, and compares them.
//!
//! Values are bit patterns, so NaN payloads, infinities, subnormals and −0 all occur. A few
//! *shapes* let short inputs produce real chunks: long, smooth, constant, with outliers.

use arbitrary::{Arbitrary, Result, Unstructured};
use foldwire::codec::{Codec, CodecExt};
use foldwire::{Float, Op, bf16, f16};

/// Most values of an input: two chunks and a few values more.
pub const MAX_VALUES: usize = 2 * 4096 + 40;

/// Divisor with which decoding leaves the values as they are.
pub(crate) const UNDIVIDED: u32 = 1;

/// Element types, with access to their bits.
pub trait FuzzValue: Float {
    /// Returns the value with these bits; types of less than 64 bits use the low ones.
    fn from_raw(bits: u64) -> Self;
    /// Returns the value's bits.
    fn raw(self) -> u64;
}

macro_rules! value {
    ($($float:ident: $bits:ident;)*) => {
        $(impl FuzzValue for $float {
            fn from_raw(bits: u64) -> Self {
                Self::from_bits(bits as $bits)
            }

            fn raw(self) -> u64 {
                self.to_bits().into()
            }
        })*
    };
}
value! { f32: u32; f64: u64; f16: u16; bf16: u16; }

/// Rule that makes values from bytes.
#[derive(Arbitrary, Clone, Copy, Debug)]
enum ValueShape {
    /// Bit patterns from the bytes, repeated.
    Patterns,
    /// Small multiples of the bound, so that most values lie on the lattice.
    Lattice,
    /// A walk in steps of a few bounds, with a few bit patterns.
    Walk,
    /// One bit pattern everywhere, except in a few places.
    Constant,
}

/// Makes `n_values` values with a shape and content from the input.
///
/// # Errors
/// When the input ends too early.
pub fn values<T: FuzzValue>(
    u: &mut Unstructured<'_>,
    n_values: usize,
    bound: f64,
) -> Result<Vec<T>> {
    let shape = u.arbitrary()?;
    let seed = T::from_raw(u.arbitrary()?);
    let n_bytes = usize::from(u.arbitrary::<u8>()?).min(u.len());
    let bytes = u.bytes(n_bytes)?;
    let byte = |i: usize| bytes.get(i % bytes.len().max(1)).copied().unwrap_or(0);
    let pattern = |i: usize| {
        let bits = (0..8).fold(0, |bits, k| bits << 8 | u64::from(byte(8 * i + k)));
        T::from_raw(bits)
    };
    let mut walk = seed.to_f64();
    Ok((0..n_values)
        .map(|i| match shape {
            ValueShape::Patterns => pattern(i),
            ValueShape::Lattice => T::from_f64(f64::from(byte(i) as i8) * bound),
            ValueShape::Walk if byte(i) == 255 => pattern(i),
            ValueShape::Walk => {
                walk += f64::from(byte(i) as i8) * bound;
                T::from_f64(walk)
            }
            ValueShape::Constant if byte(i) == 255 && i % 7 == 0 => pattern(i),
            ValueShape::Constant => seed,
        })
        .collect())
}

/// Returns a bound: any bit pattern, or a power of two of ordinary size.
///
/// # Errors
/// When the input ends too early.
pub fn bound(u: &mut Unstructured<'_>) -> Result<f64> {
    Ok(if u.arbitrary()? { u.arbitrary()? } else { 2f64.powi(u.int_in_range(-40..=20)?) })
}

/// Returns the encoding of `values`, written to a buffer of exactly the size that the codec
/// requests.
///
/// # Panics
/// If encoding fails, which it must not for counts up to [`MAX_VALUES`].
#[must_use]
pub fn encode<T: FuzzValue>(codec: &dyn Codec<T>, values: &[T]) -> Vec<u8> {
    let worst = codec.max_encoded_len(values.len()).expect("a few chunks fit a frame");
    let mut bytes = vec![0xa5; worst];
    let written = codec.encode(values, &mut bytes).expect("the destination holds the worst case");
    bytes.truncate(written.n_bytes);
    bytes
}

/// Asserts that every decoded value has the original's bits, or both are finite and differ by at
/// most `bound`.
///
/// # Panics
/// If a value does not.
pub fn assert_within<T: FuzzValue>(bound: f64, values: &[T], returned: &[T]) {
    for (i, (&x, &y)) in values.iter().zip(returned).enumerate() {
        let finite = x.to_f64().is_finite() && y.to_f64().is_finite();
        let near = finite && (x.to_f64() - y.to_f64()).abs() <= bound;
        assert!(near || x.raw() == y.raw(), "value {i}: {x:?} became {y:?}, bound {bound:e}");
    }
}

/// Reduces two values as `foldwire::op` documents it, written as simply as possible: NaN wins, and
/// −0 is less than +0.
pub fn operate<T: FuzzValue>(op: &Op<'_, T>, a: T, b: T) -> T {
    let smaller_first = || {
        let swap = if a == b { !a.to_f64().is_sign_negative() } else { b < a };
        if swap { (b, a) } else { (a, b) }
    };
    let is_nan = a.to_f64().is_nan() || b.to_f64().is_nan();
    match op {
        Op::Min | Op::Max if is_nan => T::from_f64(f64::NAN),
        Op::Min => smaller_first().0,
        Op::Max => smaller_first().1,
        Op::Prod => a * b,
        Op::User(operation) => operation(a, b),
        _ => a + b,
    }
}
