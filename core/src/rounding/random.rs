//! Random numbers by place: a function of (seed, rank, place), so that nobody keeps a state, and
//! the order in which values are visited does not matter.
//!
//! A stream is a rank's, a key a chunk's; both are made by the finaliser of SplitMix64 (G. Steele
//! et al., OOPSLA 2014). Within a chunk a place is hashed with the key: in 64 bits by that
//! finaliser again, in 32 bits, of which vectors hold more, by two rounds of multiplying and
//! shifting (constants by C. Wellons, "Prospecting for hash functions", 2018). Good enough to
//! round by, and nothing to keep secrets with.

use crate::transport::Rank;

/// 2⁶⁴ divided by the golden ratio: multiples of it lie far from each other.
pub(super) const STRIDE: u64 = 0x9e37_79b9_7f4a_7c15;

/// Every bit of the result depends on every bit of `x`, one to one.
#[inline(always)]
const fn mix64(x: u64) -> u64 {
    let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// What a rank's numbers are made of.
pub(super) const fn stream(seed: u64, rank: Rank) -> u64 {
    let rank = mix64((rank.index() as u64).wrapping_add(1).wrapping_mul(STRIDE));
    mix64(seed ^ rank)
}

/// What those of a chunk are made of.
pub(super) const fn key(stream: u64, chunk: usize) -> u64 {
    mix64(stream.wrapping_add((chunk as u64).wrapping_mul(STRIDE)))
}

/// A float of which there are random ones.
pub(super) trait Unit {
    /// A number between 0 and 1, of this key and place: an odd multiple of 2⁻²⁴, or of 2⁻⁵³.
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
        // From 1 to 2, less what leaves half a unit above 0.
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
