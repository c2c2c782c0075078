//! XOR with the previous step, for programs that send the same array in every step.
//!
//! Simulations exchange the same fields in each time step. A value changes little between steps:
//! its sign, exponent and first digits stay. Sender and receiver both keep the previous step, and
//! the sender sends the XOR with it. That difference begins with zeros, which the codec
//! [`lz`](crate::codec::Lz) omits. The caller computes the difference, because only the caller
//! knows which messages follow each other: collectives and codecs keep no state.
//!
//! Cost: on each side, a pass over the values and an array of memory.
//!
//! This is CAM's inter-step lossless compression and, with dropped bits, its combination of lossy
//! and lossless compression (Kumar et al., Parallel Computing 2008).

use crate::element::Float;
use crate::error::{Buffer, Error};

/// Sender or receiver of a sequence of messages, each relative to the previous one.
///
/// The sender sends the results of [`difference`](Self::difference), and the receiver passes them
/// to [`restore`](Self::restore) in the same order. The differences may travel in any message or
/// collective that moves values without reducing them, through any exact codec;
/// [`lz`](crate::codec::CodecId::Lz) makes them short. All bits are kept, also those of NaN. With
/// [dropped](Self::dropping) bits, a NaN comes back as some NaN.
///
/// Both sides keep the previous step in memory of the caller. If a message is lost, the two copies
/// differ, and no error reveals it. After a failed call, both sides must therefore
/// [`forget`](Self::forget) the previous step.
///
/// # Examples
/// ```
/// use foldwire::codec::CodecId;
/// use foldwire::{Communicator, Error, InterStep, Plan, Rank, Transport};
///
/// /// Sends a field from rank 0 to rank 1; both keep the previous step in `previous`.
/// fn step<X: Transport>(
///     comm: &mut Communicator<X>,
///     field: &mut [f64],
///     previous: &mut [f64], // zeros before the first step
///     buffer: &mut [f64],
/// ) -> Result<(), Error> {
///     let plan = Plan::raw().with_codec(CodecId::Lz);
///     let mut side = InterStep::new(previous);
///     if comm.rank() == Rank(0) {
///         side.difference(field, buffer)?;
///         comm.send(buffer, Rank(1), 0, &plan)?;
///     } else {
///         comm.recv(field, Rank(0), 0)?;
///         side.restore(field)?;
///     }
///     Ok(())
/// }
///
/// let [mut here, mut there, mut message] = [[0.0; 2]; 3];
/// let [mut sender, mut receiver] = [InterStep::new(&mut here), InterStep::new(&mut there)];
/// for values in [[1.0, 300.5], [1.0, 300.25]] {
///     sender.difference(&values, &mut message)?;
///     receiver.restore(&mut message)?;
///     assert_eq!(message, values);
/// }
/// # Ok::<(), Error>(())
/// ```
#[derive(Debug)]
pub struct InterStep<'p, T: Float> {
    /// Values of the previous step, without the dropped bits.
    previous: &'p mut [T],
    n_dropped: u32,
}

impl<'p, T: Float> InterStep<'p, T> {
    /// Makes a sender or a receiver with the previous step in `previous`. The content must be the
    /// same on both sides, and zeros before the first step.
    ///
    /// `previous` is the only state, so a program may keep it and make a new `InterStep` in each
    /// step.
    #[must_use]
    pub const fn new(previous: &'p mut [T]) -> Self {
        Self { previous, n_dropped: 0 }
    }

    /// Drops the `n_bits` low bits of each value, which come back as zeros.
    ///
    /// Both sides must drop the same number of bits. The relative error is less than
    /// 2^(`n_bits` − 52) for `f64` and 2^(`n_bits` − 23) for `f32`, and values move towards zero.
    ///
    /// # Errors
    /// [`Error::TooManyBits`] unless a bit of the fraction is left.
    pub const fn dropping(self, n_bits: u32) -> Result<Self, Error> {
        let most = T::FRACTION_BITS - 1;
        if n_bits > most {
            return Err(Error::TooManyBits { dtype: T::DTYPE, n_bits, most });
        }
        Ok(Self { n_dropped: n_bits, ..self })
    }

    /// Writes the difference of `values` to the previous step to `out`, for the receiver.
    ///
    /// The difference is the XOR of the bit patterns, without the dropped bits. `values` becomes
    /// the previous step.
    ///
    /// # Errors
    /// [`Error::Length`] if `values` or `out` differs in length from the previous step; nothing
    /// changes then.
    pub fn difference(&mut self, values: &[T], out: &mut [T]) -> Result<(), Error> {
        self.check(Buffer::Send, values.len())?;
        self.check(Buffer::Recv, out.len())?;
        let n_dropped = self.n_dropped;
        for ((out, &x), previous) in out.iter_mut().zip(values).zip(&mut *self.previous) {
            let bits = without_low_bits(x, n_dropped);
            *out = T::from_bits((bits ^ previous.bits()) >> n_dropped);
            *previous = T::from_bits(bits);
        }
        Ok(())
    }

    /// Converts a received difference to the sender's values, in place. The values become the
    /// previous step.
    ///
    /// # Errors
    /// [`Error::Length`] if `received` differs in length from the previous step; nothing changes
    /// then.
    pub fn restore(&mut self, received: &mut [T]) -> Result<(), Error> {
        self.check(Buffer::Recv, received.len())?;
        let n_dropped = self.n_dropped;
        for (x, previous) in received.iter_mut().zip(&mut *self.previous) {
            *x = T::from_bits(x.bits() << n_dropped ^ previous.bits());
            *previous = *x;
        }
        Ok(())
    }

    /// Resets the previous step to zeros, as before the first step.
    pub fn forget(&mut self) {
        self.previous.fill(T::ZERO);
    }

    fn check(&self, buffer: Buffer, have: usize) -> Result<(), Error> {
        let need = self.previous.len();
        if have == need { Ok(()) } else { Err(Error::Length { buffer, need, have }) }
    }
}

/// Returns the value's bits, with the dropped ones set to zero. A NaN that would become an infinity
/// becomes another NaN.
#[inline(always)]
fn without_low_bits<T: Float>(x: T, n_dropped: u32) -> T::Bits {
    let bits = x.bits() >> n_dropped << n_dropped;
    let is_nan = x.partial_cmp(&x).is_none();
    if is_nan && n_dropped > 0 { bits | T::QUIET_NAN.bits() } else { bits }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::element::sealed::Word;
    use crate::{bf16, f16};
    use std::vec;
    use std::vec::Vec;

    /// Field that changes slowly, with arbitrary bits in every fifth value.
    fn field<T: Float>(step: usize, n_values: usize) -> Vec<T> {
        let value = |i: usize| {
            let odd = (i as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(step as u32);
            match i % 5 {
                0 => T::from_bits(T::Bits::from_u64(odd)),
                _ => T::from_f64(280.0 + (i as f64 * 0.1 + step as f64 * 1e-4).sin()),
            }
        };
        (0..n_values).map(value).collect()
    }

    /// Runs both sides over some steps. Calls `check` with the step, the values, the difference and
    /// the restored values.
    fn run<T: Float>(n_dropped: u32, mut check: impl FnMut(usize, &[T], &[T], &[T])) {
        let n_values = 300;
        let [mut here, mut there] = [vec![T::ZERO; n_values], vec![T::ZERO; n_values]];
        let mut difference = vec![T::ONE; n_values];
        for step in 0..20 {
            let values = field::<T>(step, n_values);
            // A new `InterStep` for each step, over the same memory.
            let mut sender = InterStep::new(&mut here).dropping(n_dropped).unwrap();
            sender.difference(&values, &mut difference).unwrap();
            let mut restored = difference.clone();
            let mut receiver = InterStep::new(&mut there).dropping(n_dropped).unwrap();
            receiver.restore(&mut restored).unwrap();
            check(step, &values, &difference, &restored);
        }
    }

    fn bits<T: Float>(values: &[T]) -> Vec<T::Bits> {
        values.iter().map(|x| x.bits()).collect()
    }

    fn any_bits_come_back<T: Float>() {
        run::<T>(0, |step, values, difference, restored| {
            assert_eq!(bits(values), bits(restored));
            if step == 0 {
                assert_eq!(bits(difference), bits(values), "the previous step is zeros");
            }
        });
    }

    #[test]
    fn values_of_any_bits_come_back_over_many_steps() {
        any_bits_come_back::<f32>();
        any_bits_come_back::<f64>();
        any_bits_come_back::<f16>();
        any_bits_come_back::<bf16>();
    }

    fn bits_are_dropped<T: Float>(n_dropped: u32) {
        let n_left = T::Bits::BITS - n_dropped;
        run::<T>(n_dropped, |_, values, difference, restored| {
            for ((&x, &word), &y) in values.iter().zip(difference).zip(restored) {
                assert_eq!(word.bits() >> (n_left - 1) >> 1, T::Bits::ZERO, "zeros lead");
                if x.to_f64().is_nan() {
                    assert!(y.to_f64().is_nan(), "{x:?} became {y:?}");
                } else {
                    assert_eq!(x.bits() >> n_dropped << n_dropped, y.bits());
                }
            }
        });
    }

    #[test]
    fn dropped_bits_come_back_as_zeros_and_a_nan_as_a_nan() {
        bits_are_dropped::<f32>(1);
        bits_are_dropped::<f32>(16);
        bits_are_dropped::<f32>(22);
        bits_are_dropped::<f64>(32);
        bits_are_dropped::<f64>(40);
        bits_are_dropped::<f64>(51);
        bits_are_dropped::<f16>(5);
        bits_are_dropped::<bf16>(6);
    }

    /// The method relies on this: few nibbles of a slow field change.
    #[test]
    fn differences_of_a_slow_field_begin_with_zeros() {
        run::<f64>(0, |step, _, difference, _| {
            let slow = difference.iter().enumerate().filter(|(i, _)| i % 5 != 0);
            for (i, word) in slow {
                let n_zeros = word.to_bits().leading_zeros();
                assert!(step == 0 || n_zeros >= 20, "step {step}, {i}: {n_zeros}");
            }
        });
    }

    #[test]
    fn other_lengths_and_too_many_bits_are_errors_that_change_nothing() {
        let mut memory = [7.0_f32; 3];
        let mut side = InterStep::new(&mut memory);
        let wrong = |buffer, have| Err(Error::Length { buffer, need: 3, have });
        let mut out = [0.0; 4];
        assert_eq!(side.difference(&[0.0; 4], &mut out[..3]), wrong(Buffer::Send, 4));
        assert_eq!(side.difference(&[0.0; 3], &mut out), wrong(Buffer::Recv, 4));
        assert_eq!(side.restore(&mut out), wrong(Buffer::Recv, 4));
        assert_eq!((out, memory), ([0.0; 4], [7.0; 3]));
        let dtype = crate::DType::F32;
        let refused = InterStep::new(&mut memory).dropping(23).unwrap_err();
        assert_eq!(refused, Error::TooManyBits { dtype, n_bits: 23, most: 22 });
        assert!(refused.is_usage());
    }

    #[test]
    fn forgetting_restores_the_state_before_the_first_step() {
        let mut memory = [1.5_f64; 2];
        let mut side = InterStep::new(&mut memory);
        side.forget();
        let mut out = [0.0; 2];
        side.difference(&[2.5, -1.0], &mut out).unwrap();
        assert_eq!(out, [2.5, -1.0]);
    }
}
