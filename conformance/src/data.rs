//! Input data: the same on every machine, different on every rank.

pub use foldwire_sim::Random;

use foldwire::{Element, Float};
use xxhash_rust::xxh3::xxh3_64;

/// A smooth positive curve with noise, in about 0.5…1.5, with a constant section.
#[must_use]
pub fn smooth<T: Float>(rank: usize, count: usize) -> Vec<T> {
    let mut random = Random(rank as u64 + 1);
    let phase = 0.7 * rank as f64;
    (0..count)
        .map(|i| {
            let noise = 0.01 * (random.unit() - 0.5);
            let x = 1.0 + 0.45 * (i as f64 * 2e-3 + phase).sin() + noise;
            T::from_f64(if (2000..3000).contains(&i) { 1.0 } else { x })
        })
        .collect()
}

/// Like [`smooth`], but with NaN, infinities and NetCDF's fill value at random places.
#[must_use]
pub fn rough<T: Float>(rank: usize, count: usize) -> Vec<T> {
    let mut random = Random(1000 + rank as u64);
    let mut values = smooth(rank, count);
    for x in &mut values {
        match random.bits() % 4001 {
            0 => *x = T::from_f64(f64::NAN),
            1 => *x = T::from_f64(f64::INFINITY),
            2 => *x = T::from_f64(f64::NEG_INFINITY),
            3 => *x = T::from_f64(9.96921e36),
            _ => {}
        }
    }
    values
}

/// The bits of each value as `f64`, to compare results.
#[must_use]
pub fn bits<T: Float>(values: &[T]) -> Vec<u64> {
    values.iter().map(|x| x.to_f64().to_bits()).collect()
}

/// The bytes of a slice in memory, exact for every NaN.
#[must_use]
pub fn bytes<T: Element>(values: &[T]) -> Vec<u8> {
    bytemuck::cast_slice(values).to_vec()
}

/// The values with these bytes in memory.
///
/// # Panics
/// If `bytes` is not a whole number of values.
#[must_use]
pub fn from_bytes<T: Element>(bytes: &[u8]) -> Vec<T> {
    assert!(bytes.len().is_multiple_of(T::BYTES), "{} bytes", bytes.len());
    bytes.chunks(T::BYTES).map(bytemuck::pod_read_unaligned).collect()
}

/// The value with the low bytes of `bits` in memory.
#[must_use]
pub fn from_bits<T: Element>(bits: u64) -> T {
    bytemuck::pod_read_unaligned(&bits.to_le_bytes()[..T::BYTES])
}

/// A digest of the bits of values.
#[must_use]
pub fn digest<T: Element>(values: &[T]) -> u64 {
    xxh3_64(bytemuck::cast_slice(values))
}
