//! The exact codec that suits: of each chunk, the one of which a sample is shortest.
//!
//! Candidates are XOR with the value before ([`XorLz`](super::XorLz)) and residuals as bit planes
//! ([`Mpc`](super::Mpc)) to each of the eight values before, for arrays in which that many
//! quantities take turns. A coded chunk begins with a byte that names one, so ranks need not agree
//! and an array may be of several kinds.

use super::CodecId;
use super::coder::{Coded, Coder, CoderParams};
use super::mpc::Mixed;
use super::xor_lz::Neighbour;
use crate::element::Float;
use crate::element::sealed::Word;

/// The codec.
pub type Lossless<T> = Coded<T, Shortest>;

/// Its coder.
#[derive(Clone, Copy, Debug)]
pub struct Shortest;

/// XOR with the value before. Other names are how many places back the value is that residuals are
/// to.
const XOR: u8 = 0;
/// How many places back at most.
const MAX_DIM: usize = 8;
/// Samples of a chunk at most.
const N_SAMPLES: usize = 8;

impl<T: Float> Coder<T> for Shortest {
    const ID: CodecId = CodecId::Lossless;

    fn new(_: &CoderParams) -> Self {
        Self
    }

    #[inline(always)]
    fn encode(&self, values: &[T], dst: &mut [u8]) -> Option<usize> {
        let (name, dst) = dst.split_first_mut()?;
        *name = shortest(values);
        let n_bytes = match *name {
            XOR => Neighbour.encode(values, dst),
            dim => mpc::<T>(dim).encode(values, dst),
        };
        Some(1 + n_bytes?)
    }

    #[inline(always)]
    fn decode(&self, src: &[u8], values: &mut [T]) -> Option<()> {
        match src.split_first()? {
            (&XOR, src) => Neighbour.decode(src, values),
            (&dim, src) if usize::from(dim) <= MAX_DIM => mpc::<T>(dim).decode(src, values),
            _ => None,
        }
    }
}

fn mpc<T: Float>(dim: u8) -> Mixed {
    <Mixed as Coder<T>>::new(&CoderParams { setting: dim.into(), ..CoderParams::default() })
}

/// The candidate that takes the fewest bits by a sample: as many values as words have bits, at
/// some places of the chunk.
#[inline(always)]
fn shortest<T: Float>(values: &[T]) -> u8 {
    let n_values = T::Bits::BITS as usize;
    let n_places = values.len().saturating_sub(MAX_DIM) / n_values;
    if n_places == 0 {
        return XOR;
    }
    let mut n_bits = [0; 1 + MAX_DIM];
    for place in (0..n_places).step_by(n_places.div_ceil(N_SAMPLES)) {
        let sample = &values[place * n_values..][..MAX_DIM + n_values];
        let [xor, planes @ ..] = &mut n_bits;
        *xor += bits_by_xor(sample);
        for (n_bits, dim) in planes.iter_mut().zip(1..) {
            *n_bits += bits_by_planes(sample, dim);
        }
    }
    let best = (0..).zip(n_bits).min_by_key(|&(_, n_bits)| n_bits);
    best.map_or(XOR, |(name, _)| name)
}

/// Bits that XOR makes of the values after the first [`MAX_DIM`].
#[inline(always)]
fn bits_by_xor<T: Float>(sample: &[T]) -> u32 {
    let pairs = sample[MAX_DIM..].iter().zip(&sample[MAX_DIM - 1..]);
    let n_nibbles = |(x, before): (&T, &T)| {
        1 + (T::Bits::BITS - (x.bits() ^ before.bits()).leading_zeros()).div_ceil(4)
    };
    4 * pairs.map(n_nibbles).sum::<u32>()
}

/// Bits that residuals make of them: a bitmap, and each plane that is not the one below it.
#[inline(always)]
fn bits_by_planes<T: Float>(sample: &[T], dim: usize) -> u32 {
    let mut changes = T::Bits::ZERO;
    for (x, before) in sample[MAX_DIM..].iter().zip(&sample[MAX_DIM - dim..]) {
        let residual = x.bits().minus(before.bits());
        changes = changes | (residual ^ residual << 1);
    }
    (1 + changes.to_u64().count_ones()) * T::Bits::BITS
}
