//! Operations on the bits of integers, and on whether integers are 0.
//!
//! For codecs they are operations on slices, as the user's: exact, and the same in any order.

use super::{Op, OpCode};
use crate::element::Integer;

/// Function that combines each value of the first array with its partner in the second one, and
/// writes the result over it.
pub(crate) type CombineFn<T> = fn(&mut [T], &[T]);

/// Operation on the bits of integers, or on whether they are 0: [`Op::BIT_AND`] to
/// [`Op::LOGICAL_XOR`].
#[derive(Clone, Copy, Debug)]
pub struct BitOp<T> {
    pub(super) code: OpCode,
    pub(super) combine: CombineFn<T>,
}

/// Returns the operation with this code for a type of integers; `None` if it is none on bits.
pub(crate) fn of_integers<T: Integer>(code: OpCode) -> Option<Op<'static, T>> {
    Some(match code {
        OpCode::BitAnd => Op::BIT_AND,
        OpCode::BitOr => Op::BIT_OR,
        OpCode::BitXor => Op::BIT_XOR,
        OpCode::LogicalAnd => Op::LOGICAL_AND,
        OpCode::LogicalOr => Op::LOGICAL_OR,
        OpCode::LogicalXor => Op::LOGICAL_XOR,
        _ => return None,
    })
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
    pub const BIT_AND: Self = on_bits(OpCode::BitAnd, and);
    /// Bits that are set in any value.
    pub const BIT_OR: Self = on_bits(OpCode::BitOr, or);
    /// Bits that are set in an odd number of values.
    pub const BIT_XOR: Self = on_bits(OpCode::BitXor, xor);
    /// 1 if no value is 0, else 0.
    pub const LOGICAL_AND: Self = on_bits(OpCode::LogicalAnd, logical_and);
    /// 1 if any value is not 0, else 0.
    pub const LOGICAL_OR: Self = on_bits(OpCode::LogicalOr, logical_or);
    /// 1 if an odd number of values is not 0, else 0.
    pub const LOGICAL_XOR: Self = on_bits(OpCode::LogicalXor, logical_xor);
}

const fn on_bits<T>(code: OpCode, combine: CombineFn<T>) -> Op<'static, T> {
    Op::Bits(BitOp { code, combine })
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
