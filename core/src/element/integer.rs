//! Integer elements, which travel and are reduced exactly.

use super::sealed::Value;
use super::{DType, Element, Integer};
use crate::op::{Op, OpCode, of_integers};

macro_rules! integer {
    ($($integer:ident: $dtype:ident),*) => {
        $(
            impl Element for $integer {
                const DTYPE: DType = DType::$dtype;
                type Residue = Self;
            }

            impl Integer for $integer {}

            impl Value for $integer {
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

                fn on_bits(code: OpCode) -> Option<Op<'static, Self>> {
                    of_integers(code)
                }

                // Calls refuse averages of integers, so the next three functions do nothing.

                fn weight(_: u32) -> Self {
                    Self::ONE
                }

                #[inline(always)]
                fn weighted(self, _: Self) -> Self {
                    self
                }

                fn divide(_: &mut [Self], _: u32, _: Self) {}
            }
        )*
    };
}

integer!(i8: I8, u8: U8, i16: I16, u16: U16, i32: I32, u32: U32, i64: I64, u64: U64);
