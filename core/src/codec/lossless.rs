//! Codec `lossless`: chooses, for each chunk, the exact coder with the shortest encoding of a
//! sample.
//!
//! One candidate is the XOR with the previous value ([`XorLz`](super::XorLz)). The others are bit
//! planes of residuals ([`Mpc`](super::Mpc)) to the value 1 to 8 places before, for arrays that
//! interleave that many quantities. The output for a chunk begins with a byte that names the
//! choice, so ranks need not agree on it, and it may vary within an array.

use super::CodecId;
use super::coder::{Coded, Coder, CoderParams};
use super::mpc::{MpcCoder, bits_by_dim, samples};
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
            dim => MpcCoder::of_dim(dim.into()).encode_residuals(values, dst),
        };
        Some(1 + n_bytes?)
    }

    #[inline(always)]
    fn decode(&self, src: &[u8], values: &mut [T]) -> Option<()> {
        match src.split_first()? {
            (&XOR, src) => XorLzCoder.decode(src, values),
            (&dim, src) if usize::from(dim) <= MAX_DIM => {
                MpcCoder::of_dim(dim.into()).decode_residuals(src, values)
            }
            _ => None,
        }
    }
}

/// Returns the first byte of the candidate that takes the fewest bits for samples of the chunk.
#[inline(always)]
fn shortest<T: Float>(values: &[T]) -> u8 {
    let by_xor = samples(values, MAX_DIM, N_SAMPLES).map(bits_by_xor).sum();
    let by_planes = bits_by_dim::<T, MAX_DIM>(values, N_SAMPLES);
    let candidates = core::iter::once((XOR, by_xor)).chain((1..).zip(by_planes));
    candidates.min_by_key(|&(_, n_bits)| n_bits).map_or(XOR, |(name, _)| name)
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
