//! Operations on the bits of integers, and on whether integers are 0.
//!
//! For all other code they are operations of the user's, on slices: exact, and the same in any
//! order. So ranks that pass different ones of them do not notice.

use super::Op;
use crate::element::{Element, Integer};

/// Operation on the bits of integers, or on whether they are 0.
///
/// In Rust, calls take the constants [`Op::BIT_AND`] to [`Op::LOGICAL_XOR`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum BitOp {
    /// See [`Op::BIT_AND`].
    And,
    /// See [`Op::BIT_OR`].
    Or,
    /// See [`Op::BIT_XOR`].
    Xor,
    /// See [`Op::LOGICAL_AND`].
    LogicalAnd,
    /// See [`Op::LOGICAL_OR`].
    LogicalOr,
    /// See [`Op::LOGICAL_XOR`].
    LogicalXor,
}

/// Function that combines each value of the first array with its partner in the second one, and
/// writes the result over it.
pub type CombineFn<T> = fn(&mut [T], &[T]);

impl BitOp {
    /// Returns the function for values of a type, as for [`Op::UserSlices`]. `None` for floats.
    ///
    /// # Examples
    /// ```
    /// use foldwire::op::BitOp;
    ///
    /// let combine = BitOp::Xor.function::<u8>().expect("bytes are integers");
    /// let mut acc = [0b1100, 7];
    /// combine(&mut acc, &[0b1010, 7]);
    /// assert_eq!(acc, [0b0110, 0]);
    /// assert!(BitOp::Xor.function::<f32>().is_none());
    /// ```
    #[must_use]
    pub fn function<T: Element>(self) -> Option<CombineFn<T>> {
        T::on_bits(self)
    }
}

/// Returns the function for a type of integers.
pub(crate) fn of_integers<T: Integer>(op: BitOp) -> CombineFn<T> {
    match op {
        BitOp::And => and,
        BitOp::Or => or,
        BitOp::Xor => xor,
        BitOp::LogicalAnd => logical_and,
        BitOp::LogicalOr => logical_or,
        BitOp::LogicalXor => logical_xor,
    }
}

/// Operations on the bits of integers, and on whether integers are 0. A result of the latter is 1
/// or 0, except where one value alone contributes: on one rank, and in a scan on rank 0, it stays
/// as it is.
///
/// ```
/// use foldwire::{Communicator, Error, Op, Plan, Transport};
///
/// /// Returns which flags are set on any rank, and whether all ranks are done.
/// fn agree<X: Transport>(
///     comm: &mut Communicator<X>, mut flags: [u64; 4], is_done: bool,
/// ) -> Result<([u64; 4], bool), Error> {
///     comm.all_reduce(&mut flags, Op::BIT_OR, &Plan::raw())?;
///     let all_done = comm.all_reduce_scalar(u8::from(is_done), Op::LOGICAL_AND)?;
///     Ok((flags, all_done == 1))
/// }
/// ```
impl<T: Integer> Op<'static, T> {
    /// Bits that are set in all values.
    pub const BIT_AND: Self = Self::UserSlices(&and::<T>);
    /// Bits that are set in any value.
    pub const BIT_OR: Self = Self::UserSlices(&or::<T>);
    /// Bits that are set in an odd number of values.
    pub const BIT_XOR: Self = Self::UserSlices(&xor::<T>);
    /// 1 if no value is 0, else 0.
    pub const LOGICAL_AND: Self = Self::UserSlices(&logical_and::<T>);
    /// 1 if any value is not 0, else 0.
    pub const LOGICAL_OR: Self = Self::UserSlices(&logical_or::<T>);
    /// 1 if an odd number of values is not 0, else 0.
    pub const LOGICAL_XOR: Self = Self::UserSlices(&logical_xor::<T>);
}

fn and<T: Integer>(acc: &mut [T], other: &[T]) {
    acc.iter_mut().zip(other).for_each(|(a, &b)| *a = *a & b);
}

fn or<T: Integer>(acc: &mut [T], other: &[T]) {
    acc.iter_mut().zip(other).for_each(|(a, &b)| *a = *a | b);
}

fn xor<T: Integer>(acc: &mut [T], other: &[T]) {
    acc.iter_mut().zip(other).for_each(|(a, &b)| *a = *a ^ b);
}

fn logical_and<T: Integer>(acc: &mut [T], other: &[T]) {
    acc.iter_mut().zip(other).for_each(|(a, &b)| *a = truth(is_true(*a) & is_true(b)));
}

fn logical_or<T: Integer>(acc: &mut [T], other: &[T]) {
    acc.iter_mut().zip(other).for_each(|(a, &b)| *a = truth(is_true(*a) | is_true(b)));
}

fn logical_xor<T: Integer>(acc: &mut [T], other: &[T]) {
    acc.iter_mut().zip(other).for_each(|(a, &b)| *a = truth(is_true(*a) ^ is_true(b)));
}

#[inline(always)]
fn is_true<T: Integer>(x: T) -> bool {
    x != T::ZERO
}

#[inline(always)]
fn truth<T: Integer>(is_true: bool) -> T {
    if is_true { T::ONE } else { T::ZERO }
}
