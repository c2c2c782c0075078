//! Codec `lossless`: chooses, for each chunk, the exact coder with the shortest encoding of a
//! sample.
//!
//! One candidate is the XOR with the previous value ([`XorLz`](super::XorLz)). The others are bit
//! planes of residuals ([`Mpc`](super::Mpc)) to the value 1 to 8 places before, for arrays that
//! interleave that many quantities. The output for a chunk begins with a byte that names the
//! choice, so ranks need not agree on it, and it may vary within an array.

use super::CodecId;
use super::coder::{Coded, Coder, CoderParams};
use super::mpc::MpcCoder;
use super::xor_lz::XorLzCoder;
use crate::element::Float;
use crate::element::sealed::Word;

/// The codec `lossless`.
pub type Lossless<T> = Coded<T, LosslessCoder>;

/// Coder of [`Lossless`].
#[derive(Clone, Copy, Debug)]
pub struct LosslessCoder;

/// First byte of a chunk coded by XOR with the previous value. Any other first byte is the distance
/// to the value that residuals refer to.
const XOR: u8 = 0;
/// Largest distance of residuals.
const MAX_DIM: usize = 8;
/// Maximum number of samples of a chunk.
const N_SAMPLES: usize = 8;

impl<T: Float> Coder<T> for LosslessCoder {
    const ID: CodecId = CodecId::Lossless;

    fn new(_: &CoderParams) -> Self {
        Self
    }

    #[inline(always)]
    fn encode(&self, values: &[T], dst: &mut [u8]) -> Option<usize> {
        let (name, dst) = dst.split_first_mut()?;
        *name = shortest(values);
        let n_bytes = match *name {
            XOR => XorLzCoder.encode(values, dst),
            dim => mpc::<T>(dim).encode(values, dst),
        };
        Some(1 + n_bytes?)
    }

    #[inline(always)]
    fn decode(&self, src: &[u8], values: &mut [T]) -> Option<()> {
        match src.split_first()? {
            (&XOR, src) => XorLzCoder.decode(src, values),
            (&dim, src) if usize::from(dim) <= MAX_DIM => mpc::<T>(dim).decode(src, values),
            _ => None,
        }
    }
}

fn mpc<T: Float>(dim: u8) -> MpcCoder {
    <MpcCoder as Coder<T>>::new(&CoderParams { setting: dim.into(), ..CoderParams::default() })
}

/// Returns the first byte of the candidate that takes the fewest bits for samples of the chunk.
/// Each sample has as many values as a word has bits.
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

/// Counts the bits that XOR coding takes for the values after the first [`MAX_DIM`].
#[inline(always)]
fn bits_by_xor<T: Float>(sample: &[T]) -> u32 {
    let pairs = sample[MAX_DIM..].iter().zip(&sample[MAX_DIM - 1..]);
    let n_nibbles = |(x, before): (&T, &T)| {
        1 + (T::Bits::BITS - (x.bits() ^ before.bits()).leading_zeros()).div_ceil(4)
    };
    4 * pairs.map(n_nibbles).sum::<u32>()
}

/// Counts the bits that bit planes take for the same values: a bitmap, and the planes that differ
/// from the plane below.
#[inline(always)]
fn bits_by_planes<T: Float>(sample: &[T], dim: usize) -> u32 {
    let mut changes = T::Bits::ZERO;
    for (x, before) in sample[MAX_DIM..].iter().zip(&sample[MAX_DIM - dim..]) {
        let residual = x.bits().minus(before.bits());
        changes = changes | (residual ^ residual << 1);
    }
    (1 + changes.to_u64().count_ones()) * T::Bits::BITS
}
