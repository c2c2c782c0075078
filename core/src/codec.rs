//! How values become bytes.
//!
//! A [`Codec`] turns a segment of values into the payload of a frame and back, and can reduce on
//! the way. A [`Homomorphic`] one also combines two payloads without decoding them. Codecs see
//! plain slices: no ranks, no transport.
//!
//! Adding one: a new file in `codec/`, one line in `codecs!` (`list.rs`).

mod bits;
mod chunked;
mod coder;
mod cuszp;
mod demote;
mod dense;
pub(crate) mod estimate;
pub mod fz_light;
mod lattice;
mod list;
mod lossless;
mod lz;
mod mpc;
mod nibbles;
mod ompszp;
mod pace;
mod params;
mod planes;
pub mod raw;
mod sizes;
mod szx;
mod truncate;
mod truncate_xor;
mod xor_lz;
mod zfp_rate;

use crate::element::Element;
use crate::kernel::CHUNK;
use crate::op::{Op, weigh, with_op};
use crate::threads::Threads;
use chunked::for_each_run;
use core::ops::AddAssign;
use pace::{encode_filled, encode_given};

pub use crate::kernel::error::{CodecError, DecodeError, EncodeError};
pub use crate::kernel::stores::Stores;
pub use crate::values::Values;
pub use cuszp::CuSzp;
pub use demote::Demote;
pub use dense::{Dense, FzNd, Prediction};
pub use fz_light::{FzLight, FzStatic};
pub use list::{AnyCodec, CodecId, Loss};
pub use lossless::Lossless;
pub use lz::Lz;
pub use mpc::Mpc;
pub use ompszp::OmpSzp;
pub use pace::Pace;
pub use params::CodecParams;
pub(crate) use params::strides;
pub use raw::Raw;
pub use sizes::Sizes;
pub use szx::Szx;
pub use truncate::Truncate;
pub use truncate_xor::TruncateXor;
pub use xor_lz::XorLz;
pub use zfp_rate::ZfpRate;

/// Which path blocks took through [`Homomorphic::combine`] (hZCCL's statistics), and how much of
/// what was written is beyond the lattice.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BlockStats {
    /// Blocks with exceptions, values stored as they are because they are beyond the lattice: some
    /// of the block's values or all.
    pub verbatim: u64,
    /// Exceptions in them.
    pub exceptions: u64,
    /// Both blocks constant: nothing to do.
    pub both_constant: u64,
    /// Only the left block non-constant: copied.
    pub left: u64,
    /// Only the right block non-constant: copied.
    pub right: u64,
    /// Both non-constant: unpacked, added, packed.
    pub neither_constant: u64,
}

impl AddAssign for BlockStats {
    fn add_assign(&mut self, other: Self) {
        self.verbatim += other.verbatim;
        self.exceptions += other.exceptions;
        self.both_constant += other.both_constant;
        self.left += other.left;
        self.right += other.right;
        self.neither_constant += other.neither_constant;
    }
}

/// What was written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Written {
    /// Bytes of the encoding.
    pub n_bytes: usize,
    /// What kind of blocks.
    pub blocks: BlockStats,
}

/// Gives values `start..start + out.len()` of a segment; `start` is a multiple of [`CHUNK`] and
/// `out` at most that long.
pub type Fill<'a, T> = dyn FnMut(usize, &mut [T]) -> Result<(), DecodeError> + 'a;

/// As [`Fill`], by whoever asks, in any order.
pub type Give<'a, T> = dyn Fn(usize, &mut [T]) -> Result<(), DecodeError> + Sync + 'a;

/// Values ⇄ bytes.
///
/// For implementors: `id`, `max_encoded_len`, `encode_with`, `decode_from` and `n_values` are
/// enough, and `weight` if the codec is made for averages; the rest is chunk by chunk over them
/// (decompress – operate – compress), and worth overriding for speed.
///
/// *Own* values are a rank's, as they are; *partial results* are what frames hold, and what is
/// decoded from them with divisor 1. They differ by the [`weight`](Self::weight) of own values.
///
/// A method that is `…_paced` tells a [`Pace`] how far it has come, and is the one to override;
/// that without the word does the same and tells nobody.
pub trait Codec<T: Element>: Sync {
    /// The codec's code in a frame.
    fn id(&self) -> CodecId;

    /// The most bytes that `n_values` can take, and what every destination must hold; `None` if one
    /// frame cannot address them.
    fn max_encoded_len(&self, n_values: usize) -> Option<usize>;

    /// What own values are multiplied by on their way into a partial result: 1, or for averages a
    /// power of two at which no sum of them overflows ([`CodecParams::for_averages_of`]).
    fn weight(&self) -> T {
        T::ONE
    }

    /// Encodes `n_values` partial results that `fill` gives piece by piece, in order.
    ///
    /// # Errors
    /// [`EncodeError`] for the destination; what `fill` returns.
    fn encode_with(
        &self,
        n_values: usize,
        fill: &mut Fill<'_, T>,
        dst: &mut [u8],
    ) -> Result<Written, CodecError>;

    /// As [`encode_with`](Self::encode_with), by several [`threads`](Self::threads) where the codec
    /// can.
    ///
    /// # Errors
    /// As [`encode_with`](Self::encode_with).
    fn encode_from(
        &self,
        n_values: usize,
        give: &Give<'_, T>,
        dst: &mut [u8],
    ) -> Result<Written, CodecError> {
        self.encode_with(n_values, &mut |start, out| give(start, out), dst)
    }

    /// Who computes. What a codec does not divide itself is divided among them chunk by chunk.
    fn threads(&self) -> Threads {
        Threads::ONE
    }

    /// How many threads share the work on so many values.
    fn n_threads(&self, n_values: usize) -> usize {
        let threads = self.threads();
        if chunked::is_divided(n_values, threads) { threads.n_threads() } else { 1 }
    }

    /// Decodes values `start..start + dst.len()`, each divided by `divisor` (1: exactly as encoded;
    /// n: the average of a sum of n operands, whatever their weight). `start` must be a multiple of
    /// [`CHUNK`].
    ///
    /// # Errors
    /// [`DecodeError`] if `src` is no valid encoding of at least that many values.
    fn decode_from(
        &self,
        src: &[u8],
        start: usize,
        divisor: u32,
        dst: &mut [T],
    ) -> Result<(), DecodeError>;

    /// Number of values in an encoding.
    ///
    /// # Errors
    /// [`DecodeError`] if that cannot be told.
    fn n_values(&self, src: &[u8]) -> Result<usize, DecodeError>;

    /// Encodes own values.
    ///
    /// # Errors
    /// [`EncodeError`] for the destination.
    fn encode(&self, src: &[T], dst: &mut [u8]) -> Result<Written, CodecError> {
        self.encode_paced(src, dst, &())
    }

    /// As [`encode`](Self::encode).
    ///
    /// # Errors
    /// As [`encode`](Self::encode).
    fn encode_paced(
        &self,
        src: &[T],
        dst: &mut [u8],
        pace: &dyn Pace,
    ) -> Result<Written, CodecError> {
        let mut copy = |start: usize, out: &mut [T]| {
            out.copy_from_slice(&src[start..start + out.len()]);
            weigh(out, self.weight());
            Ok(())
        };
        encode_filled(self, src.len(), &mut copy, dst, pace)
    }

    /// Encodes partial results.
    ///
    /// # Errors
    /// [`EncodeError`] for the destination.
    fn encode_partial(&self, src: &[T], dst: &mut [u8]) -> Result<Written, CodecError> {
        self.encode_partial_paced(src, dst, &())
    }

    /// As [`encode_partial`](Self::encode_partial).
    ///
    /// # Errors
    /// As [`encode_partial`](Self::encode_partial).
    fn encode_partial_paced(
        &self,
        src: &[T],
        dst: &mut [u8],
        pace: &dyn Pace,
    ) -> Result<Written, CodecError> {
        let mut copy = |start: usize, out: &mut [T]| {
            out.copy_from_slice(&src[start..start + out.len()]);
            Ok(())
        };
        encode_filled(self, src.len(), &mut copy, dst, pace)
    }

    /// Decodes a whole encoding, each value divided by `divisor`.
    ///
    /// # Errors
    /// [`DecodeError`] if `src` is not a valid encoding of exactly `dst.len()` values.
    fn decode(&self, src: &[u8], divisor: u32, dst: &mut [T]) -> Result<(), DecodeError> {
        self.expect_values(src, dst.len())?;
        self.decode_from(src, 0, divisor, dst)
    }

    /// As [`decode`](Self::decode) into a caller's output, telling how far it has come. A codec may
    /// take [`Stores::PastCaches`] or leave it.
    ///
    /// # Errors
    /// As [`decode`](Self::decode).
    fn store(
        &self,
        src: &[u8],
        divisor: u32,
        dst: &mut [T],
        stores: Stores,
        pace: &dyn Pace,
    ) -> Result<(), DecodeError> {
        let _ = stores;
        self.decode(src, divisor, dst)?;
        pace.passed(dst.len());
        Ok(())
    }

    /// acc ← acc ⊕ decoded, in floats; `acc` are partial results.
    ///
    /// # Errors
    /// As [`decode`](Self::decode).
    fn reduce(&self, op: &Op<'_, T>, src: &[u8], acc: &mut [T]) -> Result<(), DecodeError> {
        self.reduce_paced(op, src, acc, &())
    }

    /// As [`reduce`](Self::reduce).
    ///
    /// # Errors
    /// As [`reduce`](Self::reduce).
    fn reduce_paced(
        &self,
        op: &Op<'_, T>,
        src: &[u8],
        acc: &mut [T],
        pace: &dyn Pace,
    ) -> Result<(), DecodeError> {
        self.expect_values(src, acc.len())?;
        for_each_run(self.threads(), acc, pace, &|first, acc, pace| {
            let mut buffer = [T::ZERO; CHUNK];
            for (i, acc) in acc.chunks_mut(CHUNK).enumerate() {
                let decoded = &mut buffer[..acc.len()];
                self.decode_from(src, (first + i) * CHUNK, 1, decoded)?;
                operate(op, acc, decoded);
                pace.passed(acc.len());
            }
            Ok(())
        })
    }

    /// Frame ⊕ own values → frame.
    ///
    /// # Errors
    /// If `src` is invalid, `dst` too small, or the operands do not match.
    fn fold(
        &self,
        op: &Op<'_, T>,
        src: &[u8],
        local: &[T],
        dst: &mut [u8],
    ) -> Result<Written, CodecError> {
        self.fold_paced(op, src, local, dst, &())
    }

    /// As [`fold`](Self::fold).
    ///
    /// # Errors
    /// As [`fold`](Self::fold).
    fn fold_paced(
        &self,
        op: &Op<'_, T>,
        src: &[u8],
        local: &[T],
        dst: &mut [u8],
        pace: &dyn Pace,
    ) -> Result<Written, CodecError> {
        self.refold_paced(op, src, local, dst, pace)
    }

    /// As [`fold`](Self::fold), and the result, each value divided by `divisor`, into the output:
    /// what the owner of a sum does that sends it on. Bytes and values are those of `fold` and
    /// [`decode`](Self::decode); the bytes may be others, of the same values, if `src` is valid but
    /// nothing that this library's encoders write. After an error part of the output may have been
    /// written.
    ///
    /// # Errors
    /// As [`fold`](Self::fold); [`DecodeError::Count`] if the output has room for another number of
    /// values.
    fn fold_store(
        &self,
        op: &Op<'_, T>,
        src: &[u8],
        values: Values<'_, T>,
        divisor: u32,
        dst: &mut [u8],
    ) -> Result<Written, CodecError> {
        self.fold_store_paced(op, src, values, divisor, dst, &())
    }

    /// As [`fold_store`](Self::fold_store).
    ///
    /// # Errors
    /// As [`fold_store`](Self::fold_store).
    fn fold_store_paced(
        &self,
        op: &Op<'_, T>,
        src: &[u8],
        mut values: Values<'_, T>,
        divisor: u32,
        dst: &mut [u8],
        pace: &dyn Pace,
    ) -> Result<Written, CodecError> {
        let written = self.fold_paced(op, src, values.local(), dst, pace)?;
        self.store(&dst[..written.n_bytes], divisor, values.output(), Stores::Cached, pace)?;
        Ok(written)
    }

    /// As [`fold`](Self::fold), always by decompressing, operating on floats and compressing, chunk
    /// by chunk.
    ///
    /// # Errors
    /// As [`fold`](Self::fold).
    fn refold(
        &self,
        op: &Op<'_, T>,
        src: &[u8],
        local: &[T],
        dst: &mut [u8],
    ) -> Result<Written, CodecError> {
        self.refold_paced(op, src, local, dst, &())
    }

    /// As [`refold`](Self::refold).
    ///
    /// # Errors
    /// As [`refold`](Self::refold).
    fn refold_paced(
        &self,
        op: &Op<'_, T>,
        src: &[u8],
        local: &[T],
        dst: &mut [u8],
        pace: &dyn Pace,
    ) -> Result<Written, CodecError> {
        self.expect_values(src, local.len())?;
        let give = |start: usize, out: &mut [T]| {
            self.decode_from(src, start, 1, out)?;
            operate_own(op, out, &local[start..start + out.len()], self.weight());
            Ok(())
        };
        encode_given(self, local.len(), &give, dst, pace)
    }

    /// Decodes and encodes again, as a rank does that compresses each hop anew.
    ///
    /// # Errors
    /// If `src` is not a valid encoding of `n_values` values, or `dst` is too small.
    fn recode(&self, src: &[u8], n_values: usize, dst: &mut [u8]) -> Result<Written, CodecError> {
        self.recode_paced(src, n_values, dst, &())
    }

    /// As [`recode`](Self::recode).
    ///
    /// # Errors
    /// As [`recode`](Self::recode).
    fn recode_paced(
        &self,
        src: &[u8],
        n_values: usize,
        dst: &mut [u8],
        pace: &dyn Pace,
    ) -> Result<Written, CodecError> {
        self.expect_values(src, n_values)?;
        let give = |start: usize, out: &mut [T]| self.decode_from(src, start, 1, out);
        encode_given(self, n_values, &give, dst, pace)
    }

    /// As [`fold`](Self::fold), leaving the result in `frame`, whose length must not change; `None`
    /// if the codec cannot. Saves a frame and a pass over memory where it can.
    fn fold_in_place(
        &self,
        op: &Op<'_, T>,
        frame: &mut [u8],
        local: &[T],
    ) -> Option<Result<(), CodecError>> {
        let _ = (op, frame, local);
        None
    }

    /// Combining of frames, for codecs that can.
    fn homomorphic(&self) -> Option<&dyn Homomorphic<T>> {
        None
    }

    /// [`DecodeError::Count`] unless `src` holds `expected` values.
    ///
    /// # Errors
    /// That, or what [`n_values`](Self::n_values) finds.
    fn expect_values(&self, src: &[u8], expected: usize) -> Result<(), DecodeError> {
        let found = self.n_values(src)?;
        if found == expected { Ok(()) } else { Err(DecodeError::Count { found, expected }) }
    }
}

/// Reduction without decoding (hZCCL, SC'24).
pub trait Homomorphic<T: Element>: Codec<T> {
    /// Frame ⊕ frame → frame.
    ///
    /// # Errors
    /// If an operand is invalid, they do not match each other or this codec, or `dst` is too small.
    fn combine(
        &self,
        op: &Op<'_, T>,
        a: &[u8],
        b: &[u8],
        dst: &mut [u8],
    ) -> Result<Written, CodecError> {
        self.combine_paced(op, a, b, dst, &())
    }

    /// As [`combine`](Self::combine).
    ///
    /// # Errors
    /// As [`combine`](Self::combine).
    fn combine_paced(
        &self,
        op: &Op<'_, T>,
        a: &[u8],
        b: &[u8],
        dst: &mut [u8],
        pace: &dyn Pace,
    ) -> Result<Written, CodecError>;

    /// As [`combine`](Self::combine), leaving the result in `a`, whose length must not change;
    /// `None` if the codec cannot.
    fn combine_in_place(
        &self,
        op: &Op<'_, T>,
        a: &mut [u8],
        b: &[u8],
    ) -> Option<Result<(), CodecError>> {
        let _ = (op, a, b);
        None
    }
}

/// acc ← acc ⊕ other, value by value.
pub(crate) fn operate<T: Element>(op: &Op<'_, T>, acc: &mut [T], other: &[T]) {
    if matches!(op, Op::Sum | Op::Avg) {
        return T::add_all(acc, other);
    }
    with_op!(op, |f| for (a, &b) in acc.iter_mut().zip(other) {
        *a = f(*a, b);
    });
}

/// acc ← acc ⊕ own · weight, value by value.
pub(crate) fn operate_own<T: Element>(op: &Op<'_, T>, acc: &mut [T], own: &[T], weight: T) {
    if weight == T::ONE {
        return operate(op, acc, own);
    }
    with_op!(op, |f| for (a, &b) in acc.iter_mut().zip(own) {
        *a = f(*a, b.weighted(weight));
    });
}

#[cfg(test)]
mod tests;
