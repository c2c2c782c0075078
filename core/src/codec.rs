//! Codecs: encode values to bytes and decode them.
//!
//! A [`Codec`] turns a segment of values into the payload of a frame and back, and can reduce on
//! the way. A [`Homomorphic`] codec also combines two payloads without decoding them. Codecs see
//! plain slices; they know nothing about ranks or transports.
//!
//! To add a codec, add a file in `codec/` and a line in `codecs!` (`list.rs`). ARCHITECTURE.md
//! lists the other steps.

pub(crate) mod bits;
mod chunked;
mod coder;
mod cuszp;
mod demote;
mod dense;
pub(crate) mod estimate;
mod extension;
mod filled;
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
mod zfp;
mod zfp_abs;
mod zfp_rate;

use crate::element::Element;
use crate::kernel::CHUNK;
use crate::op::{Op, with_op};
use crate::threads::Threads;
use chunked::for_each_chunk;
use core::ops::AddAssign;

pub(crate) use chunked::{Pieces, for_each_run};

pub use crate::kernel::error::{CodecError, DecodeError, EncodeError};
pub use crate::kernel::stores::Stores;
pub use crate::values::Values;
pub use cuszp::CuSzp;
pub use demote::Demote;
pub use dense::{Dense, FzNd, Prediction};
pub use extension::CodecExt;
pub(crate) use filled::Filled;
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
pub use source::{SharedReader, Source};
pub use szx::Szx;
pub use truncate::Truncate;
pub use truncate_xor::TruncateXor;
pub use xor_lz::XorLz;
pub use zfp_abs::ZfpAbs;
pub use zfp_rate::ZfpRate;

/// Counts of exceptions, of blocks with exceptions, and of pairs of blocks by the path that they
/// took through [`CodecExt::combine`] (statistics of hZCCL).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BlockStats {
    /// Blocks with exceptions. An exception is a value off the lattice, stored unchanged; a block
    /// may have one or more.
    pub verbatim: u64,
    /// Exceptions in all blocks.
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

/// Size and block statistics of an encoding.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Written {
    /// Bytes of the encoding.
    pub n_bytes: usize,
    /// Statistics of the encoding's blocks.
    pub blocks: BlockStats,
}

/// Encodes values to bytes and decodes them.
///
/// Implementors must provide `id`, `max_encoded_len`, `n_values`, `encode_paced` and
/// `decode_paced`, and `weight` if the codec supports averages. The other methods have defaults
/// that work chunk by chunk with these (decompress – operate – compress). Override them for speed.
/// Callers also have [`CodecExt`].
///
/// *Local values* are a rank's input, unchanged. *Partial results* are the values in frames:
/// decoding with divisor 1 yields them. A partial result of a single operand is the local value
/// times the [`weight`](Self::weight).
///
/// Methods named `…_paced` report their progress to a [`Pace`].
pub trait Codec<T: Element>: Sync {
    /// The codec's identifier in a frame.
    fn id(&self) -> CodecId;

    /// Returns the maximum number of bytes for `n_values` values. Every destination must be at
    /// least this long. `None` if one frame cannot address that many bytes.
    fn max_encoded_len(&self, n_values: usize) -> Option<usize>;

    /// Returns the factor by which local values are multiplied to make partial results. It is 1
    /// except for averages. For averages it is a power of two so small that no sum overflows
    /// ([`CodecParams::for_averages_of`]).
    fn weight(&self) -> T {
        T::ONE
    }

    /// Returns the threads that do the work. The default methods divide their work among them,
    /// chunk by chunk.
    fn threads(&self) -> Threads {
        Threads::ONE
    }

    /// Returns the number of values in an encoding.
    ///
    /// # Errors
    /// [`DecodeError`] if the number cannot be determined.
    fn n_values(&self, src: &[u8]) -> Result<usize, DecodeError>;

    /// Encodes all values of a source.
    ///
    /// # Errors
    /// [`EncodeError`] if `dst` is too short or a frame cannot hold the result; any error that the
    /// source returns.
    fn encode_paced(
        &self,
        source: Source<'_, T>,
        dst: &mut [u8],
        pace: &dyn Pace,
    ) -> Result<Written, CodecError>;

    /// Decodes values `start..start + dst.len()` and divides each by `divisor`. A divisor of 1
    /// gives the values exactly as encoded. A divisor of n gives the average of a sum of n
    /// operands, whatever their weight. `start` must be a multiple of [`CHUNK`]. A codec may ignore
    /// [`Stores::PastCaches`].
    ///
    /// # Errors
    /// [`DecodeError`] if `src` is not a valid encoding of at least that many values.
    fn decode_paced(
        &self,
        src: &[u8],
        start: usize,
        divisor: u32,
        dst: &mut [T],
        stores: Stores,
        pace: &dyn Pace,
    ) -> Result<(), DecodeError>;

    /// Decodes and reduces into an accumulator in floats: acc ← acc ⊕ decoded. `acc` holds partial
    /// results.
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
        for_each_run(self.threads(), acc.len(), acc, pace, &|work| {
            let mut buffer = [T::ZERO; CHUNK];
            work(&mut |first, acc, pace| {
                for_each_chunk(first, acc, pace, |index, acc| {
                    let decoded = &mut buffer[..acc.len()];
                    self.decode_from(src, index * CHUNK, 1, decoded)?;
                    operate(op, acc, decoded);
                    Ok(())
                })
            });
        })
    }

    /// Reduces a frame with local values into a new frame: frame ⊕ local values → frame.
    ///
    /// Unless the output is [empty](Values::unstored), also stores the result there, with each
    /// value divided by `divisor`. The stored values equal those that [`decode`](CodecExt::decode)
    /// gives. A rank uses this when it needs a finished sum and also sends it on. After an error,
    /// part of the output may have been written.
    ///
    /// If `src` is valid but was not written by this library's encoders, the bytes of the new frame
    /// may depend on whether there is an output. The values to which they decode do not.
    ///
    /// # Errors
    /// If `src` is invalid, `dst` is too small, or the operands do not match;
    /// [`DecodeError::Count`] if the output has space for another number of values.
    fn fold_paced(
        &self,
        op: &Op<'_, T>,
        src: &[u8],
        values: Values<'_, T>,
        divisor: u32,
        dst: &mut [u8],
        pace: &dyn Pace,
    ) -> Result<Written, CodecError> {
        let local = Some((op, values.local()));
        let written = self.recode_paced(src, values.local().len(), local, dst, pace)?;
        store_folded(self, written, values, divisor, dst, pace)
    }

    /// Decodes `n_values` values and encodes them again, chunk by chunk, for pipelines that
    /// compress at each hop. If `local` is given, reduces each decoded chunk with these local
    /// values before it is encoded.
    ///
    /// # Errors
    /// If `src` is not a valid encoding of `n_values` values, or `dst` is too small.
    fn recode_paced(
        &self,
        src: &[u8],
        n_values: usize,
        local: Option<(&Op<'_, T>, &[T])>,
        dst: &mut [u8],
        pace: &dyn Pace,
    ) -> Result<Written, CodecError> {
        self.expect_values(src, n_values)?;
        let give = |start: usize, out: &mut [T]| {
            self.decode_from(src, start, 1, out)?;
            if let Some((op, local)) = local {
                operate_own(op, out, &local[start..start + out.len()], self.weight());
            }
            Ok(())
        };
        self.encode_paced(Source::Shared(n_values, &give), dst, pace)
    }

    /// Returns the interface for reduction without decoding, if the codec supports it.
    fn homomorphic(&self) -> Option<&dyn Homomorphic<T>> {
        None
    }
}

/// Reduction without decoding (hZCCL, SC'24).
pub trait Homomorphic<T: Element>: Codec<T> {
    /// Reduces two frames into a new one: frame ⊕ frame → frame.
    ///
    /// # Errors
    /// If an operand is invalid, the operands do not match each other or this codec, or `dst` is
    /// too small.
    fn combine_paced(
        &self,
        op: &Op<'_, T>,
        a: &[u8],
        b: &[u8],
        dst: &mut [u8],
        pace: &dyn Pace,
    ) -> Result<Written, CodecError>;

    /// Same as [`combine`](CodecExt::combine), but leaves the result in `a` and keeps its length.
    /// `None` if the codec cannot do this. Saves a frame and a pass over memory.
    fn combine_in_place(
        &self,
        op: &Op<'_, T>,
        a: &mut [u8],
        b: &[u8],
    ) -> Option<Result<(), CodecError>> {
        let _ = (op, a, b);
        None
    }

    /// Same as [`fold`](CodecExt::fold), but leaves the result in `frame` and keeps its length.
    /// `None` if the codec cannot do this.
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

/// Decodes a folded frame into the output of `values`, unless that is empty. Returns `written`.
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

/// Reduces value by value: acc ← acc ⊕ other.
pub(crate) fn operate<T: Element>(op: &Op<'_, T>, acc: &mut [T], other: &[T]) {
    if let Op::Sum | Op::Avg = op {
        return T::add_all(acc, other);
    }
    if let Some(combine) = op.on_slices() {
        let n = acc.len().min(other.len());
        if n > 0 {
            combine(&mut acc[..n], &other[..n]);
        }
        return;
    }
    with_op!(op, |f| for (a, &b) in acc.iter_mut().zip(other) {
        *a = f(*a, b);
    });
}

/// Reduces with weighted local values, value by value: acc ← acc ⊕ local · weight.
pub(crate) fn operate_own<T: Element>(op: &Op<'_, T>, acc: &mut [T], local: &[T], weight: T) {
    if weight == T::ONE {
        return operate(op, acc, local);
    }
    with_op!(op, |f| for (a, &b) in acc.iter_mut().zip(local) {
        *a = f(*a, b.weighted(weight));
    });
}

#[cfg(test)]
mod tests;
