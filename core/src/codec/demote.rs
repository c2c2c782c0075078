//! Codec `demote`: stores `f64` as `f32`, in half the bytes. It guarantees no error bound but only
//! the precision of `f32`: 24 binary digits.
//!
//! Source: CAM's DP-SP (Kumar et al., Parallel Computing 2008). A value moves by at most 2⁻²⁴ of
//! itself, or by 2⁻¹⁵⁰ in the range of subnormal `f32`. A chunk stays unchanged if a finite value
//! would become infinite or a NaN would become another NaN.

use super::CodecId;
use super::coder::{Coded, Coder, CoderParams};
use crate::element::Float;

/// The codec `demote`.
pub type Demote<T> = Coded<T, DemoteCoder>;

/// Coder of [`Demote`].
#[derive(Clone, Copy, Debug)]
pub struct DemoteCoder;

impl<T: Float> Coder<T> for DemoteCoder {
    const ID: CodecId = CodecId::Demote;

    fn new(_: &CoderParams) -> Self {
        Self
    }

    #[inline(always)]
    fn encode(&self, values: &[T], dst: &mut [u8]) -> Option<usize> {
        let dst = dst.get_mut(..4 * values.len())?;
        let mut is_kept = true;
        for (dst, x) in dst.chunks_exact_mut(4).zip(values) {
            let single = x.to_f64() as f32;
            let is_same = T::from_f64(single.into()).bits() == x.bits();
            is_kept &= if x.finite() { single.is_finite() } else { is_same };
            dst.copy_from_slice(&single.to_le_bytes());
        }
        is_kept.then_some(dst.len())
    }

    #[inline(always)]
    fn decode(&self, src: &[u8], values: &mut [T]) -> Option<()> {
        if src.len() != 4 * values.len() {
            return None;
        }
        for (src, x) in src.chunks_exact(4).zip(values) {
            let single = f32::from_le_bytes([src[0], src[1], src[2], src[3]]);
            *x = T::from_f64(single.into());
        }
        Some(())
    }
}
