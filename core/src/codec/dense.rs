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
//!    parts, which it codes in pairs with one of eight fixed Huffman codes (`chunk.rs`,
//!    `huffman.rs`). Each chunk says which one, so that its length does not depend on the chunks
//!    before it. `fz-nd` instead packs each block as wide as its largest residual (`widths.rs`).
//!
//! The payload records every choice, so ranks need not agree on predictors, nor on the array's
//! shape. Each chunk depends on earlier chunks, which contain the previous row and plane. A reader
//! therefore has to start with the first chunk. Several threads hand on from chunk to chunk what
//! later chunks need (`chain.rs`).
//!
//! Reductions operate on codes, not on residuals, because residuals of different predictors cannot
//! be added. The writer of a sum predicts the sum's codes anew. Its bytes therefore depend only on
//! these codes, and not on the order of the additions.
//!
//! Cost: a window of 20,480 codes on the stack for each payload read or written, on each thread.
//!
//! *Not implemented: sums of residuals.* Prediction is linear. If two payloads of `fz-nd` have the
//! same predictors in all chunks, their residuals could be added as in fz-light. That should be
//! several times as fast. But the bytes of a sum would then depend on the order of the additions,
//! and exceptions would need codes that both sides can derive.

mod chain;
mod chunk;
mod classes;
mod codes;
mod find;
mod huffman;
mod prediction;
mod reader;
mod space;
mod stream;
mod widths;
mod window;

use super::chunked::{self, CheckedPayload, Container, INDEX_ENTRY, Pieces, Run, for_each_run};
use super::{
    Codec, CodecError, CodecId, CodecParams, DecodeError, FzLight, Homomorphic, Pace, Source,
    Stores, Values, Written, operate, operate_own, store_folded,
};
use crate::element::Float;
use crate::kernel::at_level::run;
use crate::kernel::{CHUNK, Lattice, Level, Scale, prefetch};
use crate::op::{LatticeOp, Op};
use crate::threads::Threads;
use chain::{Attempt, Chain};
use codes::{DequantiseTask, Exceptions, OperateTask, QuantiseTask};
pub(crate) use find::find;
pub use prediction::Prediction;
use reader::{Input, Reader};
use space::{MAX_RUN, with_spaces};
use stream::{Packing, Writer};
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
    threads: Threads,
}

/// fZ-light in n dimensions: the predictors of [`Dense`] with the blocks of [`FzLight`]. Its output
/// is shorter than fZ-light's if values in other rows predict a value well. It is faster than
/// `Dense`.
pub type FzNd<T> = Dense<T>;

/// A chunk's index, and its place in the readers' run.
type ChunkPlace = (usize, usize);

/// Makes the codes and exceptions of a chunk from the chunks of the inputs and from the chunk's
/// values.
type CodeSource<'a, T, B, const N: usize> = dyn Fn(
        &[Reader<'_, T>; N],
        ChunkPlace,
        Values<'_, T>,
        &mut [B],
        &mut Exceptions<T>,
    ) -> Result<(), CodecError>
    + Sync
    + 'a;

/// Receives the codes and exceptions of a chunk, and the values that belong to it.
type ChunkTaker<'a, T, B> = dyn Fn((&[B], &Exceptions<T>), &mut [T]) + Sync + 'a;

/// Same as [`CodeSource`], but makes partial results from local values.
type ValueSource<'a, T, const N: usize> =
    dyn Fn(&[Reader<'_, T>; N], ChunkPlace, &[T], &mut [T]) -> Result<(), DecodeError> + Sync + 'a;

impl<T: Float> Dense<T> {
    pub(crate) fn from_params(params: &CodecParams) -> Self {
        let [row, plane] = params.strides;
        let strides = Strides::within(row, plane);
        let packing = match params.codec {
            CodecId::FzNd => Packing::Fixed,
            _ => Packing::Entropy,
        };
        let (prediction, level) = (params.prediction, params.level);
        let threads = params.threads.in_pieces_of(MAX_RUN * CHUNK);
        Self { packing, prediction, fz: FzLight::from_params(params), strides, level, threads }
    }

    fn container(&self, operands: u32) -> Container {
        Container {
            max_chunk_len: self.packing.max_chunk_len::<T>(),
            ..self.fz.container(operands)
        }
    }

    /// Calls `work` with the threads that share `n_values` values, and with the chains of these
    /// inputs and of the output. One thread needs no chains.
    fn connect<R>(
        &self,
        n_values: usize,
        inputs: &[Input<'_, T>],
        work: impl FnOnce(Threads, &[&dyn Chain<T::Bits>]) -> R,
    ) -> R {
        // A pool might answer otherwise when asked again.
        let n_threads = self.threads.n_for(n_values);
        let threads = self.threads.at_most(n_threads);
        #[cfg(feature = "std")]
        if n_threads > 1 {
            let chain = |strides: Strides, code| chain::SharedChain::new(strides.reach(), code);
            let input = |i| {
                inputs.get(i).map_or_else(
                    || chain(self.strides, T::ZERO.bits()),
                    |input: &Input<'_, T>| chain(input.strides, input.before),
                )
            };
            let [a, b, c] = [input(0), input(1), input(2)];
            let chains: [&dyn Chain<T::Bits>; 3] = [&a, &b, &c];
            return work(threads, &chains[..=inputs.len()]);
        }
        let _ = inputs;
        work(threads, &[])
    }

    /// Writes a payload. `fill` makes the codes of each chunk from the inputs and its values.
    #[inline(never)]
    fn write<const N: usize>(
        &self,
        (operands, n_values): (u32, usize),
        inputs: [Input<'_, T>; N],
        values: Values<'_, T>,
        dst: &mut [u8],
        pace: &dyn Pace,
        fill: &CodeSource<'_, T, T::Bits, N>,
    ) -> Result<Written, CodecError> {
        let (kernel, format) = ((self.fz.kernel, self.level), (self.packing, self.prediction));
        let container = self.container(operands);
        self.connect(n_values, &inputs, |threads, chains| {
            let chain = |i: usize| chains.get(i).copied();
            container.write(threads, n_values, values, dst, pace, &|work| {
                with_spaces::<T, N>(chains.len(), &mut |spaces| {
                    let mut i = 0..;
                    let mut readers = spaces.map(|space| {
                        let i = i.next().unwrap_or_default();
                        Reader::new(inputs[i], kernel, space, chain(i))
                    });
                    with_spaces::<T, 1>(chains.len(), &mut |[space]| {
                        let mut writer = Writer::new(format, self.strides, kernel, space, chain(N));
                        work(&mut |run, pace| {
                            let streams = (&mut readers, &mut writer);
                            self.write_run(n_values, run, streams, chains, pace, fill)
                        });
                    });
                });
            })
        })
    }

    /// Writes a run of chunks.
    fn write_run<const N: usize>(
        &self,
        n_values: usize,
        run: Run<'_, Values<'_, T>>,
        (readers, writer): (&mut [Reader<'_, T>; N], &mut Writer<'_, T>),
        chains: &[&dyn Chain<T::Bits>],
        pace: &dyn Pace,
        fill: &CodeSource<'_, T, T::Bits, N>,
    ) -> Result<Written, CodecError> {
        let Run { first, pieces: mut values, index, body } = run;
        let mut written = Written::default();
        let mut next = first;
        for entries in index.chunks_mut(writer.max_run() * INDEX_ENTRY) {
            let entries = entries.as_chunks_mut::<INDEX_ENTRY>().0;
            let chunks = next..next + entries.len();
            next = chunks.end;
            let attempt = Attempt::at(chains, chunks.start);
            let n_codes = n_values.min(chunks.end * CHUNK) - chunks.start * CHUNK;
            if N > 0 {
                let local = values.local();
                prefetch::values(&local[..n_codes.min(local.len())]);
            }
            for reader in &mut *readers {
                reader.read(chunks.clone())?;
            }
            writer.begin(n_codes);
            for (nth, index) in chunks.clone().enumerate() {
                let (piece, rest) = values.deal(CHUNK);
                values = rest;
                let (codes, exceptions) = writer.next(nth);
                fill(readers, (index, nth), piece, codes, exceptions)?;
            }
            writer.settle(chunks.clone()).ok_or(DecodeError::Damaged)?;
            for ((nth, index), entry) in chunks.enumerate().zip(entries) {
                let body = &mut body[written.n_bytes..];
                let chunk = writer.write(index, nth, body);
                written.n_bytes += chunk.n_bytes;
                written.blocks += chunk.blocks;
                *entry = (written.n_bytes as u32).to_le_bytes();
                pace.passed(chunked::chunk_len(n_values, index));
            }
            attempt.done();
        }
        Ok(written)
    }

    /// Writes these values on the given lattice.
    fn write_slice(
        &self,
        lattice: &Lattice<T>,
        src: &[T],
        dst: &mut [u8],
        pace: &dyn Pace,
    ) -> Result<Written, CodecError> {
        let fill = &|_: &[Reader<'_, T>; 0],
                     (index, _),
                     values: Values<'_, T>,
                     codes: &mut [T::Bits],
                     exceptions: &mut Exceptions<T>| {
            let values = values.local();
            run(self.level, QuantiseTask { values, lattice, codes, exceptions });
            // Prefetch the next values while these are predicted and packed.
            let next = src[index * CHUNK + values.len()..].chunks(CHUNK).next();
            prefetch::values(next.unwrap_or_default());
            Ok(())
        };
        self.write((1, src.len()), [], Values::unstored(src), dst, pace, fill)
    }

    /// Writes partial results: `give` makes those of a chunk from the inputs and its local values.
    fn write_given<const N: usize>(
        &self,
        n_values: usize,
        inputs: [Input<'_, T>; N],
        local: &[T],
        dst: &mut [u8],
        pace: &dyn Pace,
        give: &ValueSource<'_, T, N>,
    ) -> Result<Written, CodecError> {
        let (local, lattice) = (Values::unstored(local), &self.fz.partial);
        let fill = &|readers: &[Reader<'_, T>; N],
                     at,
                     local: Values<'_, T>,
                     codes: &mut [T::Bits],
                     exceptions: &mut Exceptions<T>| {
            let values = &mut [T::ZERO; CHUNK][..codes.len()];
            give(readers, at, local.local(), values)?;
            run(self.level, QuantiseTask { values, lattice, codes, exceptions });
            Ok(())
        };
        self.write((1, n_values), inputs, local, dst, pace, fill)
    }

    /// Reduces a payload with local values into a new payload. If there is a `scale`, also stores
    /// the decoded result, divided by the scale's divisor, in the output of `values`.
    fn fold_to(
        &self,
        op: LatticeOp,
        stream: CheckedPayload<'_, T>,
        values: Values<'_, T>,
        scale: Option<&Scale<T>>,
        dst: &mut [u8],
        pace: &dyn Pace,
    ) -> Result<Written, CodecError> {
        let operands = self.fz.headroom(stream.operands, 1)?;
        let (n_values, inputs, lattice) = (stream.n_values, [Input::of(stream)?], &self.fz.lattice);
        let fill = &|[reader]: &[Reader<'_, T>; 1],
                     (_, nth),
                     mut values: Values<'_, T>,
                     codes: &mut [T::Bits],
                     exceptions: &mut Exceptions<T>| {
            let local = values.local();
            run(self.level, QuantiseTask { values: local, lattice, codes, exceptions });
            self.join(op, reader.chunk(nth), codes, exceptions);
            if let Some(scale) = scale {
                let values = values.output();
                run(self.level, DequantiseTask { codes, exceptions, scale, values });
            }
            Ok(())
        };
        self.write((operands, n_values), inputs, values, dst, pace, fill)
    }

    /// Reduces codes in place: codes ← others ⊕ codes.
    fn join(
        &self,
        op: LatticeOp,
        others: (&[T::Bits], &Exceptions<T>),
        codes: &mut [T::Bits],
        exceptions: &mut Exceptions<T>,
    ) {
        if !(exceptions.is_empty() && others.1.is_empty()) {
            exceptions.join(codes, others, op, &self.fz.lattice);
        }
        run(self.level, OperateTask::<T> { op, codes, others: others.0 });
    }

    /// Reduces two payloads by operating on their codes.
    fn combine_codes(
        &self,
        op: LatticeOp,
        a: CheckedPayload<'_, T>,
        b: CheckedPayload<'_, T>,
        dst: &mut [u8],
        pace: &dyn Pace,
    ) -> Result<Written, CodecError> {
        let operands = self.fz.headroom(a.operands, b.operands)?;
        let inputs = [Input::of(a)?, Input::of(b)?];
        let fill = &|[left, right]: &[Reader<'_, T>; 2],
                     (_, nth),
                     _: Values<'_, T>,
                     codes: &mut [T::Bits],
                     exceptions: &mut Exceptions<T>| {
            let right = right.chunk(nth);
            codes.copy_from_slice(right.0);
            if !right.1.is_empty() {
                exceptions.copy_from(right.1);
            }
            self.join(op, left.chunk(nth), codes, exceptions);
            Ok(())
        };
        self.write((operands, a.n_values), inputs, Values::unstored(&[]), dst, pace, fill)
    }

    /// Reduces two payloads by operating on their decoded values.
    fn recombine(
        &self,
        op: &Op<'_, T>,
        a: CheckedPayload<'_, T>,
        b: CheckedPayload<'_, T>,
        dst: &mut [u8],
        pace: &dyn Pace,
    ) -> Result<Written, CodecError> {
        let scale = Scale::new(a.step, 1, self.fz.lattice.weight);
        let inputs = [Input::of(a)?, Input::of(b)?];
        self.write_given(a.n_values, inputs, &[], dst, pace, &|[left, right], at, _, values| {
            let others = &mut [T::ZERO; CHUNK][..values.len()];
            self.decode_chunk(left.chunk(at.1), &scale, values);
            self.decode_chunk(right.chunk(at.1), &scale, others);
            operate(op, values, others);
            Ok(())
        })
    }

    /// Reads all chunks up to the last of these values. Calls `take` with the codes and exceptions
    /// of each chunk, and with the part of the values that belongs to it.
    #[inline(never)]
    fn read(
        &self,
        stream: CheckedPayload<'_, T>,
        values: LateValues<'_, T>,
        pace: &dyn Pace,
        take: &ChunkTaker<'_, T, T::Bits>,
    ) -> Result<(), DecodeError> {
        let (input, kernel) = (Input::of(stream)?, (self.fz.kernel, self.level));
        let n_values = values.n_before + values.values.len();
        self.connect(n_values, &[input], |threads, chains| {
            for_each_run(threads, n_values, values, pace, &|work| {
                with_spaces(chains.len(), &mut |[space]| {
                    let max_run = space.exceptions.len();
                    let mut reader = Reader::new(input, kernel, space, chains.first().copied());
                    work(&mut |mut next, mut values, pace| {
                        while !values.is_empty() {
                            let (run, rest) = values.deal(max_run * CHUNK);
                            values = rest;
                            let chunks = next..next + run.n_chunks();
                            next = chunks.end;
                            let attempt = Attempt::at(chains, chunks.start);
                            prefetch::values(run.values);
                            reader.read(chunks.clone())?;
                            let mut values = run;
                            for nth in 0..chunks.len() {
                                let (chunk, rest) = values.deal(CHUNK);
                                values = rest;
                                take(reader.chunk(nth), &mut *chunk.values);
                                pace.passed(chunk.n_before + chunk.values.len());
                            }
                            attempt.done();
                        }
                        Ok(())
                    });
                });
            })
        })
    }

    /// Decodes the first values of a chunk from its codes and exceptions.
    fn decode_chunk(
        &self,
        (codes, exceptions): (&[T::Bits], &Exceptions<T>),
        scale: &Scale<T>,
        values: &mut [T],
    ) {
        run(self.level, DequantiseTask { codes, exceptions, scale, values });
    }
}

/// Values that begin after `n_before` others.
struct LateValues<'a, T> {
    n_before: usize,
    values: &'a mut [T],
}

impl<T> LateValues<'_, T> {
    const fn is_empty(&self) -> bool {
        self.n_before == 0 && self.values.is_empty()
    }

    const fn n_chunks(&self) -> usize {
        (self.n_before + self.values.len()).div_ceil(CHUNK)
    }
}

impl<T> Pieces for LateValues<'_, T> {
    fn deal(self, n_values: usize) -> (Self, Self) {
        let n_skipped = n_values.min(self.n_before);
        let (values, rest) = self.values.deal(n_values - n_skipped);
        let rest = Self { n_before: self.n_before - n_skipped, values: rest };
        (Self { n_before: n_skipped, values }, rest)
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

    fn threads(&self) -> Threads {
        self.threads
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
            Source::Shared(n_values, give) => {
                self.write_given(n_values, [], &[], dst, pace, &|[], (index, _), _, values| {
                    give(index * CHUNK, values)
                })
            }
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
        let stream = CheckedPayload::<T>::with_values(src, start + dst.len())?;
        let scale = Scale::new(stream.step, divisor, self.fz.lattice.weight);
        let values = LateValues { n_before: start, values: dst };
        self.read(stream, values, pace, &|chunk, values| self.decode_chunk(chunk, &scale, values))
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
        let scale = Scale::new(stream.step, 1, self.fz.lattice.weight);
        let values = LateValues { n_before: 0, values: acc };
        self.read(stream, values, pace, &|chunk, acc| {
            let values = &mut [T::ZERO; CHUNK][..acc.len()];
            self.decode_chunk(chunk, &scale, values);
            operate(op, acc, values);
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
        let (local, op) = local.map_or((&[][..], None), |(op, local)| (local, Some(op)));
        let inputs = [Input::of(stream)?];
        self.write_given(n_values, inputs, local, dst, pace, &|[reader], at, local, values| {
            self.decode_chunk(reader.chunk(at.1), &scale, values);
            if let Some(op) = op {
                operate_own(op, values, &local[..values.len()], self.weight());
            }
            Ok(())
        })
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

#[cfg(test)]
mod tests;
