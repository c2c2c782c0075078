//! Whole numbers, and decimal numbers of few digits, as numbers that a lattice holds exactly.
//!
//! Integers, and floats that are k/10ᵈ rounded to their type (tenths of degrees, prices, archives
//! in decimal text), become the numbers k as `f64`. A codec with a lattice predicts them on the
//! lattice of step 1, whose points come back exactly. The bits of a float k/10ᵈ look random, so
//! codecs of bits save little.
//!
//! A segment is coded so only if all its values come back with the same bits. Cost: a pass with a
//! division for each value; for other values, as far as the first that is no such number, with up
//! to seven numbers of digits.

use crate::bound::{Quantum, Spacing};
use crate::codec::DecodeError;
use crate::element::{DType, Element, Float, with_float, with_type};
use alloc::vec::Vec;

/// Evaluates `$body` with `$N` as the integer type that `$dtype` names.
macro_rules! with_integer {
    ($dtype:expr, $N:ident => $body:expr, else $none:expr) => {
        with_type!(
            $dtype, $N, $body;
            I8 i8, U8 u8, I16 i16, U16 u16, I32 i32, U32 u32, I64 i64, U64 u64; _ => $none
        )
    };
}

/// Most decimal digits after the point.
pub(super) const MAX_DIGITS: u8 = 6;
/// Powers of ten, by their number of digits.
const POWERS: [f64; MAX_DIGITS as usize + 1] = [1.0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6];
/// From here on, not all whole numbers are `f64`.
const LIMIT: f64 = 9_007_199_254_740_992.0;

/// Numbers in place of values.
pub(super) struct Numbers {
    /// Decimal digits after the point.
    pub(super) digits: u8,
    pub(super) values: Vec<f64>,
}

impl Numbers {
    /// Returns the numbers of values that these can replace.
    pub(super) fn of(dtype: DType, values: &[u8]) -> Option<Self> {
        with_float!(dtype, T => of_floats::<T>(bytemuck::cast_slice(values)), else {
            let values = with_integer!(dtype, N => of_integers::<N>(values), else None)?;
            Some(Self { digits: 0, values })
        })
    }
}

/// Integer as a number.
trait Whole: Element {
    fn to_number(self) -> f64;
    /// Rounds towards 0, to the nearest value of the type.
    fn of_number(number: f64) -> Self;
}

macro_rules! whole {
    ($($N:ty)*) => {$(
        impl Whole for $N {
            fn to_number(self) -> f64 {
                self as f64
            }

            fn of_number(number: f64) -> Self {
                number as Self
            }
        }
    )*};
}
whole!(i8 u8 i16 u16 i32 u32 i64 u64);

fn of_integers<N: Whole>(values: &[u8]) -> Option<Vec<f64>> {
    let number = |value: &N| Some(value.to_number()).filter(|number| number.abs() < LIMIT);
    bytemuck::cast_slice(values).iter().map(number).collect()
}

fn of_floats<T: Float>(values: &[T]) -> Option<Numbers> {
    // A lattice has no -0.0.
    let comes_back = |x: T, number: f64, power: f64| {
        (number.abs() < LIMIT || !number.is_finite())
            && !x.is_negative_zero()
            && T::from_f64(number / power).bits() == x.bits()
    };
    (0..=MAX_DIGITS).find_map(|digits| {
        let power = POWERS[usize::from(digits)];
        let number = |&x: &T| {
            let number = libm::rint(x.to_f64() * power);
            comes_back(x, number, power).then_some(number)
        };
        let values = values.iter().map(number).collect::<Option<Vec<f64>>>()?;
        Some(Numbers { digits, values })
    })
}

/// The lattice of whole numbers.
pub(super) fn quantum() -> Quantum {
    Quantum::with_spacing::<f64>(0.5, Spacing::PowerOfTwo).unwrap_or(Quantum::LOSSLESS)
}

/// Writes the values of numbers.
///
/// # Errors
/// [`DecodeError::Damaged`] if a number is no value of an integer type.
pub(super) fn restore(
    dtype: DType,
    digits: u8,
    numbers: &[f64],
    values: &mut [u8],
) -> Result<(), DecodeError> {
    let power = POWERS.get(usize::from(digits)).copied().ok_or(DecodeError::Damaged)?;
    with_float!(dtype, T => {
        let values: &mut [T] = bytemuck::cast_slice_mut(values);
        values.iter_mut().zip(numbers).for_each(|(x, number)| *x = T::from_f64(number / power));
        Ok(())
    }, else with_integer!(dtype, N => {
        for (value, &number) in bytemuck::cast_slice_mut(values).iter_mut().zip(numbers) {
            *value = N::of_number(number);
            if value.to_number() != number {
                return Err(DecodeError::Damaged);
            }
        }
        Ok(())
    }, else Err(DecodeError::Damaged)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::element::{bf16, f16};

    fn check<T: Element>(values: &[T], digits: Option<u8>) {
        let bytes = bytemuck::cast_slice(values);
        let numbers = Numbers::of(T::DTYPE, bytes);
        assert_eq!(numbers.as_ref().map(|numbers| numbers.digits), digits, "{values:?}");
        if let Some(Numbers { digits, values: numbers }) = numbers {
            let mut back = alloc::vec![T::ZERO; values.len()];
            let restored = bytemuck::cast_slice_mut(&mut back);
            restore(T::DTYPE, digits, &numbers, restored).unwrap();
            assert_eq!(bytemuck::cast_slice::<T, u8>(&back), bytes);
        }
    }

    #[test]
    fn numbers_come_back_with_all_their_bits() {
        check(&[0.0_f32, -3.0, 1e15, 12.0], Some(0));
        check(&[273.15_f32, -0.1, 7.0, 1e5], Some(2));
        check(&[273.15_f64, -0.123456, 7.0], Some(6));
        check(&[0.1_f32, f32::NAN, f32::from_bits(0x7fc0_003a), f32::NEG_INFINITY], Some(1));
        check(&[f16::from_f64(0.1), f16::from_f64(-21.7)], Some(1));
        check(&[bf16::from_f64(0.5)], Some(1));
        check(&[i64::from(i32::MIN), 1 << 50], Some(0));
        check(&[u8::MAX, 0], Some(0));
        check(&[u32::MAX, 0], Some(0));
    }

    #[test]
    fn other_values_have_no_numbers() {
        check(&[1.0_f32 / 3.0], None);
        check(&[-0.0_f32, 1.0], None);
        check(&[1e300_f64], None);
        check(&[std::f64::consts::PI], None);
        check(&[i64::MAX], None);
        check(&[1_u64 << 53], None);
    }

    #[test]
    fn numbers_that_an_integer_type_lacks_are_damage() {
        for (dtype, number) in [(DType::U8, 256.0), (DType::I16, 0.5), (DType::U64, f64::NAN)] {
            let mut value = [0_u64];
            let bytes = &mut bytemuck::cast_slice_mut(&mut value)[..dtype.n_bytes()];
            assert_eq!(restore(dtype, 0, &[number], bytes), Err(DecodeError::Damaged));
        }
    }
}
