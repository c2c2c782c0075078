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
mod extension;
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
mod source;
mod szx;
mod truncate;
mod truncate_xor;
mod xor_lz;
mod zfp_rate;

use crate::element::Element;
use crate::kernel::CHUNK;
use crate::op::{Op, with_op};
use crate::threads::Threads;
use chunked::for_each_run;
use core::ops::AddAssign;

pub use crate::kernel::error::{CodecError, DecodeError, EncodeError};
pub use crate::kernel::stores::Stores;
pub use crate::values::Values;
pub use cuszp::CuSzp;
pub use demote::Demote;
pub use dense::{Dense, FzNd, Prediction};
pub use extension::CodecExt;
pub use fz_light::{FzLight, FzStatic};
pub(crate) use list::ErasedCodec;
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
pub use source::{SequentialReader, SharedReader, Source};
pub use szx::Szx;
pub use truncate::Truncate;
pub use truncate_xor::TruncateXor;
pub use xor_lz::XorLz;
pub use zfp_rate::ZfpRate;

/// Which path blocks took through [`CodecExt::combine`] (hZCCL's statistics), and how much of
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

/// Values ⇄ bytes.
///
/// For implementors: `id`, `max_encoded_len`, `n_values`, `encode_paced` and `decode_paced` are
/// enough, and `weight` if the codec is made for averages; the rest is chunk by chunk over them
/// (decompress – operate – compress), and worth overriding for speed. Callers have [`CodecExt`],
/// too.
///
/// *Own* values are a rank's, as they are; *partial results* are what frames hold, and what is
/// decoded from them with divisor 1. They differ by the [`weight`](Self::weight) of own values.
///
/// A method that is `…_paced` tells a [`Pace`] how far it has come.
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

    /// Who computes. What a codec does not divide itself is divided among them chunk by chunk.
    fn threads(&self) -> Threads {
        Threads::ONE
    }

    /// Number of values in an encoding.
    ///
    /// # Errors
    /// [`DecodeError`] if that cannot be told.
    fn n_values(&self, src: &[u8]) -> Result<usize, DecodeError>;

    /// Encodes what a source has.
    ///
    /// # Errors
    /// [`EncodeError`] for the destination; what the source returns.
    fn encode_paced(
        &self,
        source: Source<'_, T>,
        dst: &mut [u8],
        pace: &dyn Pace,
    ) -> Result<Written, CodecError>;

    /// Decodes values `start..start + dst.len()`, each divided by `divisor` (1: exactly as encoded;
    /// n: the average of a sum of n operands, whatever their weight). `start` must be a multiple of
    /// [`CHUNK`]. A codec may take [`Stores::PastCaches`] or leave it.
    ///
    /// # Errors
    /// [`DecodeError`] if `src` is no valid encoding of at least that many values.
    fn decode_paced(
        &self,
        src: &[u8],
        start: usize,
        divisor: u32,
        dst: &mut [T],
        stores: Stores,
        pace: &dyn Pace,
    ) -> Result<(), DecodeError>;

    /// acc ← acc ⊕ decoded, in floats; `acc` are partial results.
    ///
    /// # Errors
    /// [`DecodeError`] if `src` is not a valid encoding of exactly `acc.len()` values.
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

    /// Frame ⊕ own values → frame; and the result, each value divided by `divisor`, into the
    /// output, unless that is [empty](Values::unstored): what the owner of a sum does that sends it
    /// on. Values are those of [`decode`](CodecExt::decode). Where they are stored, the bytes may
    /// be others, of the same values, if `src` is valid but nothing that this library's encoders
    /// write. After an error part of the output may have been written.
    ///
    /// # Errors
    /// If `src` is invalid, `dst` too small, or the operands do not match; [`DecodeError::Count`]
    /// if the output has room for another number of values.
    fn fold_paced(
        &self,
        op: &Op<'_, T>,
        src: &[u8],
        values: Values<'_, T>,
        divisor: u32,
        dst: &mut [u8],
        pace: &dyn Pace,
    ) -> Result<Written, CodecError> {
        let own = Some((op, values.local()));
        let written = self.recode_paced(src, values.local().len(), own, dst, pace)?;
        store_folded(self, written, values, divisor, dst, pace)
    }

    /// Decodes and encodes again `n_values`, as a rank does that compresses each hop anew; ⊕ as
    /// many own values between the two, if there are any, in floats, chunk by chunk.
    ///
    /// # Errors
    /// If `src` is not a valid encoding of `n_values` values, or `dst` is too small.
    fn recode_paced(
        &self,
        src: &[u8],
        n_values: usize,
        own: Option<(&Op<'_, T>, &[T])>,
        dst: &mut [u8],
        pace: &dyn Pace,
    ) -> Result<Written, CodecError> {
        self.expect_values(src, n_values)?;
        let give = |start: usize, out: &mut [T]| {
            self.decode_from(src, start, 1, out)?;
            if let Some((op, own)) = own {
                operate_own(op, out, &own[start..start + out.len()], self.weight());
            }
            Ok(())
        };
        self.encode_paced(Source::Given(n_values, &give), dst, pace)
    }

    /// Reduction of frames without decoding, for codecs that can.
    fn homomorphic(&self) -> Option<&dyn Homomorphic<T>> {
        None
    }
}

/// Reduction without decoding (hZCCL, SC'24).
pub trait Homomorphic<T: Element>: Codec<T> {
    /// Frame ⊕ frame → frame.
    ///
    /// # Errors
    /// If an operand is invalid, they do not match each other or this codec, or `dst` is too small.
    fn combine_paced(
        &self,
        op: &Op<'_, T>,
        a: &[u8],
        b: &[u8],
        dst: &mut [u8],
        pace: &dyn Pace,
    ) -> Result<Written, CodecError>;

    /// As [`combine`](CodecExt::combine), leaving the result in `a`, whose length must not change;
    /// `None` if the codec cannot. Saves a frame and a pass over memory where it can.
    fn combine_in_place(
        &self,
        op: &Op<'_, T>,
        a: &mut [u8],
        b: &[u8],
    ) -> Option<Result<(), CodecError>> {
        let _ = (op, a, b);
        None
    }

    /// The same of [`fold`](CodecExt::fold).
    fn fold_in_place(
        &self,
        op: &Op<'_, T>,
        frame: &mut [u8],
        local: &[T],
    ) -> Option<Result<(), CodecError>> {
        let _ = (op, frame, local);
        None
    }
}

/// Stores what was folded into a frame, if there is room for it.
fn store_folded<T: Element, C: Codec<T> + ?Sized>(
    codec: &C,
    written: Written,
    mut values: Values<'_, T>,
    divisor: u32,
    frame: &[u8],
    pace: &dyn Pace,
) -> Result<Written, CodecError> {
    let output = values.output();
    if !output.is_empty() {
        codec.store(&frame[..written.n_bytes], divisor, output, Stores::Cached, pace)?;
    }
    Ok(written)
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
