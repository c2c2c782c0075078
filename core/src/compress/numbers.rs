//! Values as whole numbers that a lattice holds exactly.
//!
//! A codec with a lattice predicts whole numbers k on the lattice of step 1, whose points come back
//! exactly. Codecs of bits save less: the bits of a float k/10ᵈ look random. There are three
//! [forms](NumberForm):
//!
//! - k/10ᵈ: tenths of degrees, prices, archives in decimal text, and integers (d = 0);
//! - k/2ᵇ: differences from a value of another magnitude, such as a pressure minus its mean;
//! - the bits of a float of up to 32 bits, numbered in the order of values. Neighbors have close
//!   numbers.
//!
//! A segment is coded so only if all its values come back with the same bits. Cost: a pass with a
//! division for each value and form; for decimals, as far as the first value that is no such
//! number, with up to seven numbers of digits.

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
const MAX_DIGITS: u8 = 6;
/// Powers of ten, by their number of digits.
const POWERS: [f64; MAX_DIGITS as usize + 1] = [1.0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6];
/// Most binary digits after the point. So 2ᵇ is the power of two with the exponent b.
const MAX_BITS: u8 = 127;
/// From here on, not all whole numbers are `f64`.
const LIMIT: f64 = 9_007_199_254_740_992.0;

/// How a whole number k stands for a value.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum NumberForm {
    /// The value k/10ᵈ, with d digits after the point, at most [`MAX_DIGITS`].
    Decimal(u8),
    /// The value k/2ᵇ, with 1 to [`MAX_BITS`] binary digits after the point.
    Binary(u8),
    /// The float with the rank k among all bit patterns, in the order of values; 0.0 is 0.
    Rank,
}

impl NumberForm {
    /// Byte in the head of a segment; 0 means no numbers.
    pub(super) const fn code(self) -> u8 {
        match self {
            Self::Decimal(digits) => 1 + digits,
            Self::Rank => 2 + MAX_DIGITS,
            Self::Binary(digits) => u8::MAX - MAX_BITS + digits,
        }
    }

    /// Returns the form of this code for values of this type; `None` if there is none.
    pub(super) fn of_code(code: u8, dtype: DType) -> Option<Self> {
        const RANK: u8 = NumberForm::Rank.code();
        const BINARY: u8 = NumberForm::Binary(0).code();
        match code {
            1 => Some(Self::Decimal(0)),
            _ if !dtype.is_float() => None,
            2..RANK => Some(Self::Decimal(code - 1)),
            RANK if dtype.n_bytes() <= 4 => Some(Self::Rank),
            BINARY.. if code > BINARY => Some(Self::Binary(code - BINARY)),
            _ => None,
        }
    }

    /// Number of lattice points for each unit; `None` for ranks.
    fn power(self) -> Option<f64> {
        match self {
            Self::Decimal(digits) => POWERS.get(usize::from(digits)).copied(),
            Self::Binary(digits) => Some(libm::scalbn(1.0, digits.into())),
            Self::Rank => None,
        }
    }
}

/// Numbers in place of values.
pub(super) struct Numbers {
    pub(super) form: NumberForm,
    pub(super) values: Vec<f64>,
}

impl Numbers {
    /// Returns the forms that can replace these values, the likely ones.
    pub(super) fn of(dtype: DType, values: &[u8]) -> Vec<Self> {
        with_float!(dtype, T => {
            let floats: &[T] = bytemuck::cast_slice(values);
            let (decimal, binary) = (of_decimals(floats), of_binaries(floats));
            // The coarser of two lattices has the smaller numbers. All values are on some
            // decimal lattice that is fine enough, so ranks may be shorter than that.
            let power = |numbers: &Self| numbers.form.power().unwrap_or(f64::INFINITY);
            let is_finer = |of: &Self, other: &Self| power(of) >= power(other);
            match (decimal, binary) {
                (Some(decimal), Some(binary)) if is_finer(&decimal, &binary) => {
                    Some(binary).into_iter().chain(of_ranks(dtype, values)).collect()
                }
                (Some(decimal), _) => alloc::vec![decimal],
                (None, binary) => binary.into_iter().chain(of_ranks(dtype, values)).collect(),
            }
        }, else {
            let values = with_integer!(dtype, N => of_integers::<N>(values), else None);
            let form = NumberForm::Decimal(0);
            values.map(|values| Self { form, values }).into_iter().collect()
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

fn of_decimals<T: Float>(values: &[T]) -> Option<Numbers> {
    (0..=MAX_DIGITS).find_map(|digits| on_lattice(NumberForm::Decimal(digits), values))
}

fn of_binaries<T: Float>(values: &[T]) -> Option<Numbers> {
    let finite = values.iter().map(|x| x.to_f64()).filter(|x| x.is_finite());
    let most = finite.map(binary_digits).max()?;
    let digits = u8::try_from(most).ok().filter(|digits| (1..=MAX_BITS).contains(digits))?;
    on_lattice(NumberForm::Binary(digits), values)
}

/// Number of binary digits after the point.
fn binary_digits(x: f64) -> i32 {
    if x == 0.0 {
        return 0;
    }
    let (mantissa, exponent) = libm::frexp(x);
    let whole = (mantissa * LIMIT) as i64;
    f64::MANTISSA_DIGITS as i32 - exponent - whole.trailing_zeros() as i32
}

/// Returns the numbers of values that all have this form.
fn on_lattice<T: Float>(form: NumberForm, values: &[T]) -> Option<Numbers> {
    let power = form.power()?;
    let number = |&x: &T| {
        let number = libm::rint(x.to_f64() * power);
        let is_held = number.abs() < LIMIT || !number.is_finite();
        // A lattice has no -0.0.
        let comes_back = !x.is_negative_zero() && T::from_f64(number / power).bits() == x.bits();
        (is_held && comes_back).then_some(number)
    };
    let values = values.iter().map(number).collect::<Option<Vec<f64>>>()?;
    Some(Numbers { form, values })
}

/// Evaluates `$body` with `$N` as the integer that is as wide as floats with ranks.
macro_rules! with_bits {
    ($dtype:expr, $N:ident => $body:expr, else $none:expr) => {
        with_type!($dtype, $N, $body; F16 i16, Bf16 i16, F32 i32; _ => $none)
    };
}

/// Bits of a float as an integer.
trait Bits: Whole {
    /// Returns the rank of a float with these bits, or the bits of the float with this rank. From
    /// the negative values of the largest magnitude up; -0.0 has the rank -1, 0.0 the rank 0.
    fn mirrored(self) -> Self;
}

macro_rules! bits {
    ($($N:ty)*) => {$(
        impl Bits for $N {
            fn mirrored(self) -> Self {
                if self < 0 { self ^ Self::MAX } else { self }
            }
        }
    )*};
}
bits!(i16 i32);

fn of_ranks(dtype: DType, values: &[u8]) -> Option<Numbers> {
    let values = with_bits!(dtype, N => {
        let bits: &[N] = bytemuck::cast_slice(values);
        bits.iter().map(|bits| bits.mirrored().to_number()).collect()
    }, else return None);
    Some(Numbers { form: NumberForm::Rank, values })
}

/// The lattice of whole numbers.
pub(super) fn quantum() -> Quantum {
    Quantum::with_spacing::<f64>(0.5, Spacing::PowerOfTwo).unwrap_or(Quantum::LOSSLESS)
}

/// Writes the values of numbers.
///
/// # Errors
/// [`DecodeError::Damaged`] if a number is no value of an integer type, or no rank, or one that no
/// writer takes.
pub(super) fn restore(
    dtype: DType,
    form: NumberForm,
    numbers: &[f64],
    values: &mut [u8],
) -> Result<(), DecodeError> {
    let Some(power) = form.power() else {
        return with_bits!(dtype, N => {
            let bits: &mut [N] = bytemuck::cast_slice_mut(values);
            restore_integers(numbers, bits)?;
            bits.iter_mut().for_each(|bits| *bits = bits.mirrored());
            Ok(())
        }, else Err(DecodeError::Damaged));
    };
    with_float!(dtype, T => {
        let values: &mut [T] = bytemuck::cast_slice_mut(values);
        values.iter_mut().zip(numbers).for_each(|(x, number)| *x = T::from_f64(number / power));
        Ok(())
    }, else with_integer!(dtype, N => {
        restore_integers::<N>(numbers, bytemuck::cast_slice_mut(values))
    }, else Err(DecodeError::Damaged)))
}

fn restore_integers<N: Whole>(numbers: &[f64], values: &mut [N]) -> Result<(), DecodeError> {
    for (value, &number) in values.iter_mut().zip(numbers) {
        *value = N::of_number(number);
        // At the end of 64 bits, conversions back and forth round to the same number.
        if value.to_number() != number || number.abs() >= LIMIT {
            return Err(DecodeError::Damaged);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::NumberForm::{Binary, Decimal, Rank};
    use super::*;
    use crate::element::{bf16, f16};

    fn check<T: Element>(values: &[T], forms: &[NumberForm]) {
        let bytes = bytemuck::cast_slice(values);
        let numbers = Numbers::of(T::DTYPE, bytes);
        let found: Vec<_> = numbers.iter().map(|numbers| numbers.form).collect();
        assert_eq!(found, forms, "{values:?}");
        for Numbers { form, values: numbers } in numbers {
            assert_eq!(NumberForm::of_code(form.code(), T::DTYPE), Some(form));
            let mut back = alloc::vec![T::ZERO; values.len()];
            let restored = bytemuck::cast_slice_mut(&mut back);
            restore(T::DTYPE, form, &numbers, restored).unwrap();
            assert_eq!(bytemuck::cast_slice::<T, u8>(&back), bytes);
        }
    }

    #[test]
    fn numbers_come_back_with_all_their_bits() {
        check(&[0.0_f32, -3.0, 1e15, 12.0], &[Decimal(0)]);
        check(&[273.15_f32, -0.1, 7.0, 1e5], &[Decimal(2)]);
        check(&[273.15_f64, -0.123456, 7.0], &[Decimal(6)]);
        check(&[0.1_f32, f32::NAN, f32::from_bits(0x7fc0_003a), f32::NEG_INFINITY], &[Decimal(1)]);
        check(&[f16::from_f64(0.1), f16::from_f64(-21.7)], &[Decimal(1)]);
        check(&[i64::from(i32::MIN), 1 << 50], &[Decimal(0)]);
        check(&[u8::MAX, 0], &[Decimal(0)]);
        check(&[u32::MAX, 0], &[Decimal(0)]);
    }

    #[test]
    fn a_lattice_of_a_power_of_two_is_taken_if_it_is_the_coarser_one() {
        check(&[bf16::from_f64(0.5)], &[Binary(1), Rank]);
        check(&[-0.0078125_f32, 4.5, f32::INFINITY], &[Binary(7), Rank]);
        check(&[f64::from_bits(1), 0.0], &[]);
        check(&[1.5 * f32::MIN_POSITIVE, 0.0], &[Binary(127), Rank]);
        check(&[-0.0078125_f64, 4.5, 1e9], &[Binary(7)]);
    }

    #[test]
    fn floats_of_all_bits_are_ranked() {
        let negative = [-0.0_f32, 1.0, f32::NAN, f32::MIN, f32::MAX, f32::from_bits(u32::MAX)];
        check(&negative, &[Rank]);
        check(&[1.0_f32 / 3.0], &[Binary(25), Rank]);
        let all: Vec<f16> = (0..=u16::MAX).map(f16::from_bits).collect();
        check(&all, &[Rank]);
        let mut finite: Vec<f16> = all.into_iter().filter(|x| x.is_finite()).collect();
        finite.sort_by(f16::total_cmp);
        let numbers = Numbers::of(DType::F16, bytemuck::cast_slice(&finite));
        assert!(numbers[0].values.windows(2).all(|pair| pair[1] == pair[0] + 1.0));
    }

    #[test]
    fn other_values_have_no_numbers() {
        check(&[-0.0_f64, 1.0], &[]);
        check(&[1e300_f64], &[]);
        check(&[std::f64::consts::PI, 1e15], &[]);
        check(&[i64::MAX], &[]);
        check(&[1_u64 << 53], &[]);
    }

    #[test]
    fn codes_of_no_form_are_refused() {
        for code in 0..=u8::MAX {
            let form = NumberForm::of_code(code, DType::F32);
            assert_eq!(form.is_some(), matches!(code, 1..=8 | 129..), "{code}");
            assert!(form.is_none_or(|form| form.code() == code), "{code}");
            let of_integers = NumberForm::of_code(code, DType::I32);
            assert_eq!(of_integers.is_some(), code == 1, "{code}");
        }
        assert_eq!(NumberForm::of_code(Rank.code(), DType::F64), None);
    }

    #[test]
    fn numbers_that_an_integer_type_lacks_are_damage() {
        for (dtype, number) in [
            (DType::U8, 256.0),
            (DType::I16, 0.5),
            (DType::U64, f64::NAN),
            (DType::U64, 18_446_744_073_709_551_616.0),
            (DType::I64, 9_223_372_036_854_775_808.0),
        ] {
            let mut value = [0_u64];
            let bytes = &mut bytemuck::cast_slice_mut(&mut value)[..dtype.n_bytes()];
            assert_eq!(restore(dtype, Decimal(0), &[number], bytes), Err(DecodeError::Damaged));
        }
    }
}
