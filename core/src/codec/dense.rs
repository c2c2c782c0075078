//! Codecs `dense` and `fz-nd`: the lattice of fZ-light in fewer bytes, by prediction in up to three
//! dimensions and variable-length codes.
//!
//! Values become the same codes as with [`FzLight`], so sums are exact and decoded values agree bit
//! for bit. Only the way from codes to bytes differs:
//!
//! 1. The writer chooses, for each chunk, the predictor with the smallest residuals. A predictor
//!    uses the previous code, the previous row, the previous plane, or several of them
//!    (`window.rs`).
//! 2. `dense` splits the residuals of a block of 32 into low bits, stored unchanged, and high
//!    parts, which it Huffman-codes in pairs (`chunk.rs`, `huffman.rs`). `fz-nd` instead packs each
//!    block as wide as its largest residual (`widths.rs`).
//!
//! The payload records every choice, so ranks need not agree on predictors, nor on the array's
//! shape. Each chunk depends on earlier chunks: they contain the previous row and plane, and
//! `dense` derives its Huffman code from them, so that payloads need no code table. One thread
//! therefore has to write or read all chunks in order.
//!
//! Reductions operate on codes, not on residuals, because residuals of different predictors cannot
//! be added. The writer of a sum predicts the sum's codes anew. Its bytes therefore depend only on
//! these codes, and not on the order of the additions.
//!
//! Cost: a window of 20,480 codes on the stack for each payload read or written.
//!
//! *Not implemented: sums of residuals.* Prediction is linear. If two payloads of `fz-nd` have the
//! same predictors in all chunks, their residuals could be added as in fz-light. That should be
//! several times as fast. But the bytes of a sum would then depend on the order of the additions,
//! and exceptions would need codes that both sides can derive.

mod chunk;
mod codes;
mod find;
mod huffman;
mod prediction;
mod stream;
mod widths;
mod window;

use super::chunked::{self, CheckedPayload, Container};
use super::{
    BlockStats, Codec, CodecError, CodecId, CodecParams, DecodeError, FzLight, Homomorphic, Pace,
    Source, Stores, Values, Written, operate, operate_own, store_folded,
};
use crate::element::Float;
use crate::kernel::at_level::{Task, run};
use crate::kernel::{CHUNK, Lattice, Level, Scale, prefetch};
use crate::op::{LatticeOp, Op};
use codes::{Exceptions, dequantise, quantise};
pub(crate) use find::find;
pub use prediction::Prediction;
use stream::{Packing, Reader, Writer};
pub(crate) use window::Strides;

/// Codec for one lattice, communicator size and shape.
///
/// This is also the type of [`FzNd`], which packs each block of residuals as wide as the largest of
/// them. Each of the two codecs reads the payloads of the other.
#[derive(Clone, Copy, Debug)]
pub struct Dense<T: Float> {
    packing: Packing,
    prediction: Prediction,
    fz: FzLight<T>,
    strides: Strides,
    level: Level,
}

/// fZ-light in n dimensions: the predictors of [`Dense`] with the blocks of [`FzLight`]. Its output
/// is shorter than fZ-light's if values in other rows predict a value well. It is faster than
/// `Dense`.
pub type FzNd<T> = Dense<T>;

/// Makes the codes and exceptions of the chunk with this index.
type CodeSource<'a, T, B> =
    dyn FnMut(usize, &mut [B], &mut Exceptions<T>) -> Result<(), CodecError> + 'a;
/// Receives the codes and exceptions of a chunk that has been written.
type CodeVisitor<'a, T, B> = dyn FnMut(usize, &[B], &Exceptions<T>) + 'a;

impl<T: Float> Dense<T> {
    pub(crate) fn from_params(params: &CodecParams) -> Self {
        let [row, plane] = params.strides;
        let strides = Strides::within(row, plane);
        let packing = match params.codec {
            CodecId::FzNd => Packing::Fixed,
            _ => Packing::Entropy,
        };
        let (prediction, level) = (params.prediction, params.level);
        Self { packing, prediction, fz: FzLight::from_params(params), strides, level }
    }

    fn container(&self, operands: u32) -> Container {
        Container {
            max_chunk_len: self.packing.max_chunk_len::<T>(),
            ..self.fz.container(operands)
        }
    }

    #[inline(always)]
    fn reader<'a>(&self, stream: CheckedPayload<'a, T>) -> Reader<'a, T> {
        Reader::new(stream, (self.fz.kernel, self.level))
    }

    /// Writes a payload. `fill(index, codes, exceptions)` makes the codes of each chunk, and `done`
    /// receives them after the chunk is written.
    fn write(
        &self,
        operands: u32,
        n_values: usize,
        dst: &mut [u8],
        pace: &dyn Pace,
        fill: &mut CodeSource<'_, T, T::Bits>,
        done: &mut CodeVisitor<'_, T, T::Bits>,
    ) -> Result<Written, CodecError> {
        let format = (self.packing, self.prediction);
        let kernel = (self.fz.kernel, self.level);
        let mut writer = Writer::new(format, self.strides, kernel, n_values);
        let mut exceptions = Exceptions::NONE;
        self.container(operands).write(n_values, (), dst, pace, &mut |index, (), dst| {
            exceptions.clear();
            fill(index, writer.next(chunked::chunk_len(n_values, index)), &mut exceptions)?;
            let n_bytes = writer.write(&exceptions, dst);
            done(index, writer.codes(), &exceptions);
            let (verbatim, n_exceptions) = exceptions.counts();
            let blocks = BlockStats {
                verbatim: verbatim.into(),
                exceptions: n_exceptions.into(),
                ..BlockStats::default()
            };
            Ok(Written { n_bytes, blocks })
        })
    }

    /// Writes these values on the given lattice. Like the following functions, it is not inlined,
    /// so that a caller does not reserve the windows and buffers of all of them on the stack.
    #[inline(never)]
    fn write_slice(
        &self,
        lattice: &Lattice<T>,
        src: &[T],
        dst: &mut [u8],
        pace: &dyn Pace,
    ) -> Result<Written, CodecError> {
        let mut fill = |index: usize, codes: &mut [T::Bits], exceptions: &mut Exceptions<T>| {
            let values = &src[index * CHUNK..][..codes.len()];
            run(self.level, QuantiseTask { values, lattice, codes, exceptions });
            // Prefetch the next values while these are predicted and packed.
            let next = src[index * CHUNK + codes.len()..].chunks(CHUNK).next();
            prefetch::values(next.unwrap_or_default());
            Ok(())
        };
        self.write(1, src.len(), dst, pace, &mut fill, &mut |_, _, _| ())
    }

    /// Writes partial results that the source provides chunk by chunk.
    #[inline(never)]
    fn write_pieces(
        &self,
        mut source: Source<'_, T>,
        dst: &mut [u8],
        pace: &dyn Pace,
    ) -> Result<Written, CodecError> {
        let mut buffer = [T::ZERO; CHUNK];
        let n_values = source.n_values();
        let mut fill = |index: usize, codes: &mut [T::Bits], exceptions: &mut Exceptions<T>| {
            let values = &mut buffer[..codes.len()];
            source.fill(index * CHUNK, values, T::ONE)?;
            let lattice = &self.fz.partial;
            run(self.level, QuantiseTask { values, lattice, codes, exceptions });
            Ok(())
        };
        self.write(1, n_values, dst, pace, &mut fill, &mut |_, _, _| ())
    }

    /// Reduces a payload with local values into a new payload. If there is a `scale`, also stores
    /// the decoded result, divided by the scale's divisor, in the output of `values`.
    #[inline(never)]
    fn fold_to(
        &self,
        op: LatticeOp,
        stream: CheckedPayload<'_, T>,
        mut values: Values<'_, T>,
        scale: Option<&Scale<T>>,
        dst: &mut [u8],
        pace: &dyn Pace,
    ) -> Result<Written, CodecError> {
        let operands = self.fz.headroom(stream.operands, 1)?;
        let mut reader = self.reader(stream);
        let values = core::cell::RefCell::new(&mut values);
        let lattice = &self.fz.lattice;
        let mut fill = |index: usize, codes: &mut [T::Bits], exceptions: &mut Exceptions<T>| {
            let values = values.borrow();
            let values = &values.local()[index * CHUNK..][..codes.len()];
            prefetch::values(values);
            reader.read()?;
            run(self.level, QuantiseTask { values, lattice, codes, exceptions });
            self.join(op, &reader, codes, exceptions);
            Ok(())
        };
        let mut done = |index: usize, codes: &[T::Bits], exceptions: &Exceptions<T>| {
            if let Some(scale) = scale {
                let mut values = values.borrow_mut();
                let values = &mut values.output()[index * CHUNK..][..codes.len()];
                run(self.level, DequantiseTask { codes, exceptions, scale, values });
            }
        };
        self.write(operands, stream.n_values, dst, pace, &mut fill, &mut done)
    }

    /// Reduces codes in place: codes ← the reader's chunk ⊕ codes.
    fn join(
        &self,
        op: LatticeOp,
        reader: &Reader<'_, T>,
        codes: &mut [T::Bits],
        exceptions: &mut Exceptions<T>,
    ) {
        if !(exceptions.is_empty() && reader.exceptions.is_empty()) {
            let others = (reader.codes(), &reader.exceptions);
            exceptions.join(codes, others, op, &self.fz.lattice);
        }
        run(self.level, OperateTask::<T> { op, codes, others: reader.codes() });
    }

    /// Reduces two payloads by operating on their codes.
    #[inline(never)]
    fn combine_codes(
        &self,
        op: LatticeOp,
        a: CheckedPayload<'_, T>,
        b: CheckedPayload<'_, T>,
        dst: &mut [u8],
        pace: &dyn Pace,
    ) -> Result<Written, CodecError> {
        let operands = self.fz.headroom(a.operands, b.operands)?;
        let mut left = self.reader(a);
        let mut right = self.reader(b);
        let mut fill = |_: usize, codes: &mut [T::Bits], exceptions: &mut Exceptions<T>| {
            left.read()?;
            right.read()?;
            codes.copy_from_slice(right.codes());
            if !right.exceptions.is_empty() {
                exceptions.copy_from(&right.exceptions);
            }
            self.join(op, &left, codes, exceptions);
            Ok(())
        };
        self.write(operands, a.n_values, dst, pace, &mut fill, &mut |_, _, _| ())
    }

    /// Reduces two payloads by operating on their decoded values.
    #[inline(never)]
    fn recombine(
        &self,
        op: &Op<'_, T>,
        a: CheckedPayload<'_, T>,
        b: CheckedPayload<'_, T>,
        dst: &mut [u8],
        pace: &dyn Pace,
    ) -> Result<Written, CodecError> {
        let scale = Scale::new(a.step, 1, self.fz.lattice.weight);
        let mut left = self.reader(a);
        let mut right = self.reader(b);
        let mut fill = |_: usize, out: &mut [T]| {
            let other = &mut [T::ZERO; CHUNK][..out.len()];
            self.next(&mut left, &scale, out)?;
            self.next(&mut right, &scale, other)?;
            operate(op, out, other);
            Ok(())
        };
        self.write_pieces(Source::Sequential(a.n_values, &mut fill), dst, pace)
    }

    /// Decodes the first `n_values` values and passes them chunk by chunk to
    /// `take(start, values)`.
    #[inline(never)]
    fn read_all(
        &self,
        stream: CheckedPayload<'_, T>,
        n_values: usize,
        divisor: u32,
        take: &mut dyn FnMut(usize, &[T]),
    ) -> Result<(), DecodeError> {
        let scale = Scale::new(stream.step, divisor, self.fz.lattice.weight);
        let mut reader = self.reader(stream);
        let mut buffer = [T::ZERO; CHUNK];
        for start in (0..n_values).step_by(CHUNK) {
            let values = &mut buffer[..CHUNK.min(stream.n_values - start)];
            self.next(&mut reader, &scale, values)?;
            take(start, &values[..values.len().min(n_values - start)]);
        }
        Ok(())
    }

    /// Decodes all values directly into `dst`.
    #[inline(never)]
    fn read_whole(
        &self,
        stream: CheckedPayload<'_, T>,
        divisor: u32,
        dst: &mut [T],
        pace: &dyn Pace,
    ) -> Result<(), DecodeError> {
        let scale = Scale::new(stream.step, divisor, self.fz.lattice.weight);
        let mut reader = self.reader(stream);
        for values in dst.chunks_mut(CHUNK) {
            prefetch::values(values);
            self.next(&mut reader, &scale, values)?;
            pace.passed(values.len());
        }
        Ok(())
    }

    /// Decodes the next chunk.
    fn next(
        &self,
        reader: &mut Reader<'_, T>,
        scale: &Scale<T>,
        values: &mut [T],
    ) -> Result<(), DecodeError> {
        reader.read()?;
        let (codes, exceptions) = (reader.codes(), &reader.exceptions);
        run(self.level, DequantiseTask { codes, exceptions, scale, values });
        Ok(())
    }
}

impl<T: Float> Codec<T> for Dense<T> {
    fn id(&self) -> CodecId {
        match self.packing {
            Packing::Fixed => CodecId::FzNd,
            Packing::Entropy => CodecId::Dense,
        }
    }

    fn max_encoded_len(&self, n_values: usize) -> Option<usize> {
        chunked::max_len(n_values, self.packing.max_chunk_len::<T>())
    }

    fn weight(&self) -> T {
        self.fz.weight()
    }

    fn n_values(&self, src: &[u8]) -> Result<usize, DecodeError> {
        Ok(CheckedPayload::<T>::parse(src)?.n_values)
    }

    fn encode_paced(
        &self,
        source: Source<'_, T>,
        dst: &mut [u8],
        pace: &dyn Pace,
    ) -> Result<Written, CodecError> {
        match source {
            Source::Input(src) => self.write_slice(&self.fz.lattice, src, dst, pace),
            Source::Partial(src) => self.write_slice(&self.fz.partial, src, dst, pace),
            source => self.write_pieces(source, dst, pace),
        }
    }

    fn decode_paced(
        &self,
        src: &[u8],
        start: usize,
        divisor: u32,
        dst: &mut [T],
        _: Stores,
        pace: &dyn Pace,
    ) -> Result<(), DecodeError> {
        let end = start + dst.len();
        let stream = CheckedPayload::<T>::with_values(src, end)?;
        if dst.len() < stream.n_values {
            return self.read_all(stream, end, divisor, &mut |at, values| {
                if at >= start {
                    dst[at - start..][..values.len()].copy_from_slice(values);
                    pace.passed(values.len());
                }
            });
        }
        self.read_whole(stream, divisor, dst, pace)
    }

    fn reduce_paced(
        &self,
        op: &Op<'_, T>,
        src: &[u8],
        acc: &mut [T],
        pace: &dyn Pace,
    ) -> Result<(), DecodeError> {
        let stream = CheckedPayload::<T>::parse(src)?;
        stream.expect_values(acc.len())?;
        self.read_all(stream, acc.len(), 1, &mut |at, values| {
            operate(op, &mut acc[at..at + values.len()], values);
            pace.passed(values.len());
        })
    }

    fn fold_paced(
        &self,
        op: &Op<'_, T>,
        src: &[u8],
        mut values: Values<'_, T>,
        divisor: u32,
        dst: &mut [u8],
        pace: &dyn Pace,
    ) -> Result<Written, CodecError> {
        let stream = self.fz.operand(src)?;
        stream.expect_values(values.local().len())?;
        let is_stored = !values.output().is_empty();
        if is_stored {
            stream.expect_values(values.output().len())?;
        }
        let Some(lattice_op) = op.on_lattice() else {
            let local = Some((op, values.local()));
            let written = self.recode_paced(src, stream.n_values, local, dst, pace)?;
            return store_folded(self, written, values, divisor, dst, pace);
        };
        let scale = Scale::new(self.fz.quantum().step(), divisor, self.fz.lattice.weight);
        self.fold_to(lattice_op, stream, values, is_stored.then_some(&scale), dst, pace)
    }

    fn recode_paced(
        &self,
        src: &[u8],
        n_values: usize,
        local: Option<(&Op<'_, T>, &[T])>,
        dst: &mut [u8],
        pace: &dyn Pace,
    ) -> Result<Written, CodecError> {
        let stream = CheckedPayload::<T>::parse(src)?;
        stream.expect_values(n_values)?;
        let scale = Scale::new(stream.step, 1, self.fz.lattice.weight);
        let mut reader = self.reader(stream);
        let mut fill = |start: usize, out: &mut [T]| {
            self.next(&mut reader, &scale, out)?;
            if let Some((op, local)) = local {
                operate_own(op, out, &local[start..start + out.len()], self.weight());
            }
            Ok(())
        };
        self.write_pieces(Source::Sequential(n_values, &mut fill), dst, pace)
    }

    fn homomorphic(&self) -> Option<&dyn Homomorphic<T>> {
        Some(self)
    }
}

impl<T: Float> Homomorphic<T> for Dense<T> {
    fn combine_paced(
        &self,
        op: &Op<'_, T>,
        left_src: &[u8],
        right_src: &[u8],
        dst: &mut [u8],
        pace: &dyn Pace,
    ) -> Result<Written, CodecError> {
        let (a, b) = (self.fz.operand(left_src)?, self.fz.operand(right_src)?);
        b.expect_values(a.n_values)?;
        match op.on_lattice() {
            Some(op) => self.combine_codes(op, a, b, dst, pace),
            None => self.recombine(op, a, b, dst, pace),
        }
    }
}

struct QuantiseTask<'a, T: Float> {
    values: &'a [T],
    lattice: &'a Lattice<T>,
    codes: &'a mut [T::Bits],
    exceptions: &'a mut Exceptions<T>,
}

impl<T: Float> Task for QuantiseTask<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        quantise(self.values, self.lattice, self.codes, self.exceptions);
    }
}

struct DequantiseTask<'a, T: Float> {
    codes: &'a [T::Bits],
    exceptions: &'a Exceptions<T>,
    scale: &'a Scale<T>,
    values: &'a mut [T],
}

impl<T: Float> Task for DequantiseTask<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        dequantise(self.codes, self.exceptions, self.scale, self.values);
    }
}

struct OperateTask<'a, T: Float> {
    op: LatticeOp,
    codes: &'a mut [T::Bits],
    others: &'a [T::Bits],
}

impl<T: Float> Task for OperateTask<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        codes::operate::<T>(self.op, self.codes, self.others);
    }
}

#[cfg(test)]
mod tests;
