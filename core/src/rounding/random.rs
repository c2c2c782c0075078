//! Random numbers as a function of seed, rank and position. There is no state, so the order in
//! which values are visited does not matter.
//!
//! Each rank has a number, its stream, and each chunk of a stream has a key. The finalizer of
//! SplitMix64 (G. Steele et al., OOPSLA 2014) derives both. Within a chunk, the position is hashed
//! with the key. The hash for `f64` is that finalizer again. The hash for `f32` has 32 bits, so
//! that vectors hold twice as many; it multiplies and shifts twice (constants by C. Wellons,
//! "Prospecting for hash functions", 2018). The numbers are good enough for rounding, but not for
//! cryptography.

use crate::transport::Rank;

/// 2⁶⁴ divided by the golden ratio: multiples of it lie far from each other.
pub(super) const STRIDE: u64 = 0x9e37_79b9_7f4a_7c15;

/// Mixes the bits of `x`: a bijection in which every bit of the result depends on every bit of `x`.
#[inline(always)]
const fn mix64(x: u64) -> u64 {
    let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// Returns the stream from which a rank's random numbers are derived.
pub(super) const fn stream(seed: u64, rank: Rank) -> u64 {
    let rank = mix64((rank.index() as u64).wrapping_add(1).wrapping_mul(STRIDE));
    mix64(seed ^ rank)
}

/// Returns the key from which a chunk's random numbers are derived.
pub(super) const fn key(stream: u64, chunk: usize) -> u64 {
    mix64(stream.wrapping_add((chunk as u64).wrapping_mul(STRIDE)))
}

/// Float type with random numbers.
pub(super) trait Unit {
    /// Returns the random number for this key and position. It is between 0 and 1: an odd multiple
    /// of 2⁻²⁴ for `f32`, of 2⁻⁵³ for `f64`.
    fn unit(key: u64, at: u32) -> Self;
}

impl Unit for f32 {
    #[inline(always)]
    fn unit(key: u64, at: u32) -> Self {
        let (low, high) = (key as u32, (key >> 32) as u32);
        let x = at.wrapping_mul(STRIDE as u32) ^ low;
        let x = (x ^ (x >> 16)).wrapping_mul(0x7feb_352d).wrapping_add(high);
        let x = (x ^ (x >> 15)).wrapping_mul(0x846c_a68b);
        let x = x ^ (x >> 16);
        // Uniform in [1, 2), shifted to (0, 1): the smallest number is half a unit.
        Self::from_bits(0x3f80_0000 | (x >> 9)) - (1.0 - Self::EPSILON / 2.0)
    }
}

impl Unit for f64 {
    #[inline(always)]
    fn unit(key: u64, at: u32) -> Self {
        let x = mix64(key.wrapping_add(u64::from(at).wrapping_mul(STRIDE)));
        Self::from_bits(0x3ff0_0000_0000_0000 | (x >> 12)) - (1.0 - Self::EPSILON / 2.0)
    }
}
