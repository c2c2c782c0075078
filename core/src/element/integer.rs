//! Integers: they travel and are reduced exactly, by the raw codec.

use super::sealed::Value;
use super::{DType, Element};
use crate::codec::estimate::Estimate;
use crate::codec::{Codec, CodecId, CodecParams, Raw};
use crate::collective::EXTENT_VALUES;
use crate::kernel::Level;
use crate::rounding::Pass;

macro_rules! integer {
    ($($integer:ident: $dtype:ident),*) => {
        $(
            impl Element for $integer {
                const DTYPE: DType = DType::$dtype;
                type Residue = Self;
            }

            impl Value for $integer {
                type Codecs = Raw<Self>;
                const ZERO: Self = 0;
                const ONE: Self = 1;

                #[inline(always)]
                fn sum(self, other: Self) -> Self {
                    self.wrapping_add(other)
                }

                #[inline(always)]
                fn product(self, other: Self) -> Self {
                    self.wrapping_mul(other)
                }

                #[inline(always)]
                fn minimum(self, other: Self) -> Self {
                    self.min(other)
                }

                #[inline(always)]
                fn maximum(self, other: Self) -> Self {
                    self.max(other)
                }

                fn add_all(acc: &mut [Self], other: &[Self]) {
                    acc.iter_mut().zip(other).for_each(|(a, &b)| *a = a.sum(b));
                }

                // There are no averages of integers: calls refuse them.

                fn weight(_: u32) -> Self {
                    Self::ONE
                }

                #[inline(always)]
                fn weighted(self, _: Self) -> Self {
                    self
                }

                fn divide(_: &mut [Self], _: u32, _: Self) {}

                /// Nothing is asked for: integers have no bound.
                fn look(_: &[Self], _: Level, _: bool) -> [f64; EXTENT_VALUES] {
                    [f64::NEG_INFINITY; EXTENT_VALUES]
                }

                fn with_shape_of(_: &[Self], params: CodecParams) -> CodecParams {
                    params
                }

                /// Integers are exact: nothing is added to them, and nothing is lost.
                fn round(
                    _: &Pass,
                    from: Option<&[Self]>,
                    values: &mut [Self],
                    _: Option<&mut [Self]>,
                    _: Level,
                ) {
                    if let Some(from) = from {
                        values.copy_from_slice(from);
                    }
                }

                fn estimate(_: &[Self], _: [u32; 2], _: f64) -> Option<Estimate> {
                    None
                }

                fn codec(_: CodecId, _: &CodecParams) -> Raw<Self> {
                    Raw::new()
                }

                fn raw(_: Self) -> Raw<Self> {
                    Raw::new()
                }

                fn erase(codec: &Raw<Self>) -> &dyn Codec<Self> {
                    codec
                }
            }
        )*
    };
}

integer!(i8: I8, u8: U8, i16: I16, u16: U16, i32: I32, u32: U32, i64: I64, u64: U64);
