//! What the fuzz targets share: values and codecs made from arbitrary input.
//!
//! Values are bit patterns, so NaN payloads, infinities, subnormals and −0 all occur; a few *shapes*
//! put real chunks (long, smooth, constant, with outliers) within reach of short inputs.

use arbitrary::{Arbitrary, Result, Unstructured};
use foldwire::codec::{Codec, FzLight};
use foldwire::{Element, Quantum};

/// Most values of an input: two chunks and a bit.
pub const MAX_VALUES: usize = 2 * 4096 + 40;

/// What the targets need of `f32` and `f64`.
pub trait Value: Element {
    /// The value with these bits (the low ones, for `f32`).
    fn from_raw(bits: u64) -> Self;
    /// The value's bits.
    fn raw(self) -> u64;
}

impl Value for f32 {
    fn from_raw(bits: u64) -> Self {
        Self::from_bits(bits as u32)
    }

    fn raw(self) -> u64 {
        self.to_bits().into()
    }
}

impl Value for f64 {
    fn from_raw(bits: u64) -> Self {
        Self::from_bits(bits)
    }

    fn raw(self) -> u64 {
        self.to_bits()
    }
}

/// How values come from bytes.
#[derive(Arbitrary, Clone, Copy, Debug)]
enum Shape {
    /// Bit patterns, as many as there are bytes for, repeated.
    Patterns,
    /// Small multiples of the bound, so that most values lie on the lattice.
    Lattice,
    /// A walk in steps of a few bounds, with a bit pattern now and then.
    Walk,
    /// One bit pattern everywhere, but for a few places.
    Constant,
}

/// Values of a length, shape and content from the input; at most `MAX_VALUES`.
///
/// # Errors
/// When the input ends too early.
pub fn values<T: Value>(u: &mut Unstructured<'_>, n_values: usize, bound: f64) -> Result<Vec<T>> {
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
            Shape::Patterns => pattern(i),
            Shape::Lattice => T::from_f64(f64::from(byte(i) as i8) * bound),
            Shape::Walk if byte(i) == 255 => pattern(i),
            Shape::Walk => {
                walk += f64::from(byte(i) as i8) * bound;
                T::from_f64(walk)
            }
            Shape::Constant if byte(i) == 255 && i % 7 == 0 => pattern(i),
            Shape::Constant => seed,
        })
        .collect())
}

/// A bound: any bit pattern, or a power of two of ordinary size.
///
/// # Errors
/// When the input ends too early.
pub fn bound(u: &mut Unstructured<'_>) -> Result<f64> {
    Ok(if u.arbitrary()? { u.arbitrary()? } else { 2f64.powi(u.int_in_range(-40..=20)?) })
}

/// A buffer that holds any encoding of `n_values`.
///
/// # Panics
/// Never for counts up to [`MAX_VALUES`].
#[must_use]
pub fn buffer<T: Element>(codec: &FzLight<T>, n_values: usize) -> Vec<u8> {
    vec![0xa5; codec.max_encoded_len(n_values).expect("two chunks fit a frame")]
}

/// The encoding of `values`.
///
/// # Panics
/// If encoding fails, which it must not.
#[must_use]
pub fn encode<T: Element>(codec: &FzLight<T>, values: &[T]) -> Vec<u8> {
    let mut bytes = buffer(codec, values.len());
    let written = codec.encode(values, &mut bytes).expect("the destination holds the worst case");
    bytes.truncate(written.n_bytes);
    bytes
}

/// The codec's quantum, or one that is taken from an encoding's header, so that arbitrary bytes get
/// past the check of the lattice.
#[must_use]
pub fn quantum_of<T: Element>(src: &[u8]) -> Quantum {
    let step = src.get(8..16).map_or(0.0, |b| f64::from_le_bytes(b.try_into().unwrap_or_default()));
    // step = bound · 2 · (1 − 2⁻⁶); the nearest neighbours make up for the rounding.
    let bound = step / 2.0 / (1.0 - 1.0 / 64.0);
    [bound, bound.next_up(), bound.next_down()]
        .map(Quantum::new::<T>)
        .into_iter()
        .find(|quantum| quantum.step() == step)
        .unwrap_or(Quantum::LOSSLESS)
}
