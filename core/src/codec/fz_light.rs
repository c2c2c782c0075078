//! Codec `fz-light`: an improved fZ-light. It quantizes to a lattice, takes 1-D Lorenzo
//! differences, and packs each block of 32 with one bit width.
//!
//! A payload consists of chunks of 4096 values (`chunked.rs`), which [`crate::kernel`] writes and
//! reads. docs/format.md gives the exact layout. Source: Huang et al., *ZCCL* (2025) and *hZCCL*
//! (SC'24). docs/algorithms.md explains the differences from the papers.
//!
//! Cost: one pass over the values. The encoder checks the bound for every value. A value that would
//! break it, or is not finite, is an *exception* and is stored unchanged.

use super::chunked::{self, CheckedPayload, Container, chunk_len, for_each_chunk, for_each_run};
use super::{
    BlockStats, Codec, CodecError, CodecExt, CodecId, CodecParams, DecodeError, Homomorphic, Pace,
    Source, Values, Written, operate, store_folded,
};
use crate::bound::Quantum;
use crate::element::{
    Float,
    sealed::{OnLattice, Wide},
};
use crate::kernel::chunk::ChunkView;
use crate::kernel::stores::{Fence, Stores};
use crate::kernel::{
    BLOCK, CHUNK, Code, Encoded, Kernel, Lattice, Level, Paths, Scale, max_chunk_len,
};
use crate::op::{self, Op};
use crate::threads::Threads;

pub use super::chunked::{HEADER_BYTES, VERSION};

/// Minimum number of values for which several threads are used. With two rayon threads instead of
/// one, encoding took 20 instead of 14 µs for 2¹⁶ values, 39 instead of 41 µs for 3·2¹⁶, and 81
/// instead of 105 µs for 2¹⁹. A sleeping thread takes 10 µs to wake.
const SHARED_FROM: u32 = 3 << 16;

/// Codec for one lattice and one communicator size.
///
/// # Examples
/// ```
/// use foldwire::{Quantum, codec::{Codec, CodecExt, FzLight}};
///
/// let values: Vec<f32> = (0..10_000).map(|i| (i as f32 * 1e-3).sin()).collect();
/// let quantum = Quantum::new::<f32>(1e-3).expect("positive");
/// let codec = FzLight::<f32>::new(quantum, 8);
/// let mut bytes = vec![0; codec.max_encoded_len(values.len()).unwrap()];
/// let n_bytes = codec.encode(&values, &mut bytes)?.n_bytes;
/// let mut decoded = vec![0.0; values.len()];
/// codec.decode(&bytes[..n_bytes], 1, &mut decoded)?;
/// assert!(values.iter().zip(&decoded).all(|(x, y)| (x - y).abs() <= 1e-3));
/// assert!(n_bytes < 4 * values.len() / 8);
/// # Ok::<(), foldwire::codec::CodecError>(())
/// ```
///
/// If `STATIC` is true, payloads are added as in hZCCL's baseline ([`FzStatic`]).
#[derive(Clone, Copy, Debug)]
pub struct FzLight<T: Float, const STATIC: bool = false> {
    quantum: Quantum,
    max_operands: u32,
    /// Lattice for local values.
    pub(super) lattice: Lattice<T>,
    /// Lattice for partial results: `lattice`, scaled by the weight of local values.
    pub(super) partial: Lattice<T>,
    pub(super) kernel: Kernel<T>,
    threads: Threads,
}

/// fZ-light that adds payloads by unpacking and packing all blocks: the static pipeline, which is
/// hZCCL's own baseline (SC'24). Its bytes and values equal those of [`FzLight`].
pub type FzStatic<T> = FzLight<T, true>;

/// Numbers of a lattice, for kernels outside of this crate. `f64` holds them exactly for all types.
///
/// A value x has the code q = round-to-even(x · inverse), and is on the lattice if |q| ≤ limit and
/// |x − q·step| < bound, all computed in the element type, or in `f32` for types of 16 bits.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LatticeNumbers {
    /// Spacing of the points.
    pub step: f64,
    /// 1 / step, rounded.
    pub inverse: f64,
    /// Largest |q|; negative if no value is on the lattice.
    pub limit: f64,
    /// Exclusive limit of errors.
    pub bound: f64,
    /// Factor for exceptions.
    pub weight: f64,
}

impl<T: Float> FzLight<T> {
    /// Makes the codec with the machine's best kernels. Its codes leave headroom for sums of
    /// `max_operands` operands (at least 1).
    #[must_use]
    pub fn new(quantum: Quantum, max_operands: u32) -> Self {
        Self::with_level(quantum, max_operands, Level::best())
    }

    /// Makes the codec with the kernels of one level, or of the next lower level that the machine
    /// has.
    #[must_use]
    pub fn with_level(quantum: Quantum, max_operands: u32, level: Level) -> Self {
        Self::from_params(&CodecParams::new(quantum).for_sums_of(max_operands).at(level))
    }
}

impl<T: Float, const STATIC: bool> FzLight<T, STATIC> {
    /// Makes the codec from parameters.
    #[must_use]
    pub fn from_params(params: &CodecParams) -> Self {
        let max_operands = params.max_operands.max(1);
        // Residuals are differences of two sums, so twice the range of sums must fit a code.
        let headroom = libm::ldexp(1.0, <T as OnLattice>::Code::BITS as i32 - 2);
        let weight = op::weight(if params.averages { max_operands } else { 1 });
        let quantum = params.quantum.of_type::<T>();
        // Points must not exceed the type's largest value. Then averages of points do not either.
        let last = T::MAX.to_f64() / quantum.step();
        let limit = libm::floor(T::MAX_CODE.min(headroom / f64::from(max_operands)).min(last));
        let one = T::Wide::ONE;
        let lattice = if quantum.is_lossless() {
            // No |code| is below a negative limit: every value is an exception.
            let (limit, bound) = (T::Wide::nearest(-1.0), T::Wide::nearest(0.0));
            Lattice { step: one, inverse: one, limit, bound, weight }
        } else {
            let (step, limit) = (T::Wide::nearest(quantum.step()), T::Wide::nearest(limit));
            let bound = quantum.limit_of_errors::<T>();
            Lattice { step, inverse: one / step, limit, bound, weight }
        };
        let partial = lattice.of_partial_results();
        let (kernel, threads) = (Kernel::at(params.level), params.threads.from(SHARED_FROM));
        Self { quantum, max_operands, lattice, partial, kernel, threads }
    }

    /// Returns the lattice's quantization step and bound.
    #[must_use]
    pub const fn quantum(&self) -> Quantum {
        self.quantum
    }

    /// Returns the numbers of the lattice for local values, or for partial results, which have been
    /// multiplied by the codec's weight.
    #[must_use]
    pub fn lattice_numbers(&self, of_partial_results: bool) -> LatticeNumbers {
        let Lattice { step, inverse, limit, bound, weight } =
            if of_partial_results { self.partial } else { self.lattice };
        let [step, inverse, limit, bound] = [step, inverse, limit, bound].map(Wide::to_f64);
        LatticeNumbers { step, inverse, limit, bound, weight: weight.to_f64() }
    }

    /// Returns the largest number of operands of a sum.
    #[must_use]
    pub const fn max_operands(&self) -> u32 {
        self.max_operands
    }

    /// Returns the number of operands summed up in an encoding.
    ///
    /// # Errors
    /// [`DecodeError`] if `src` is not a valid encoding.
    pub fn operands(&self, src: &[u8]) -> Result<u32, DecodeError> {
        Ok(CheckedPayload::<T>::parse(src)?.operands)
    }

    /// Returns the spacing of an encoding's lattice; 0 if it has none.
    ///
    /// # Errors
    /// [`DecodeError`] if `src` is not a valid encoding.
    pub fn step(&self, src: &[u8]) -> Result<f64, DecodeError> {
        Ok(CheckedPayload::<T>::parse(src)?.step)
    }

    /// Parses an operand of a reduction and checks that it uses this codec's lattice.
    pub(super) fn operand<'a>(&self, src: &'a [u8]) -> Result<CheckedPayload<'a, T>, CodecError> {
        let stream = CheckedPayload::parse(src)?;
        let ours = self.quantum.step();
        if stream.step.to_bits() != ours.to_bits() {
            return Err(CodecError::Quantum { ours, theirs: stream.step });
        }
        Ok(stream)
    }

    /// Returns the number of operands in the sum of two payloads of `a` and `b` operands. Fails if
    /// the codes have no headroom for that many.
    pub(super) fn headroom(&self, a: u32, b: u32) -> Result<u32, CodecError> {
        let operands = u64::from(a) + u64::from(b);
        match u32::try_from(operands) {
            Ok(sum) if sum <= self.max_operands => Ok(sum),
            _ => Err(CodecError::HeadRoom { operands, limit: self.max_operands }),
        }
    }

    /// Returns the description of a payload that sums this many operands.
    pub(super) const fn container(&self, operands: u32) -> Container {
        let (dtype, step) = (T::DTYPE, self.quantum.step());
        Container { dtype, operands, step, max_chunk_len: max_chunk_len::<T> }
    }

    /// Writes values on the given lattice.
    fn write_slice(
        &self,
        lattice: &Lattice<T>,
        src: &[T],
        dst: &mut [u8],
        pace: &dyn Pace,
    ) -> Result<Written, CodecError> {
        let (container, threads) = (self.container(1), self.threads);
        container.write_independent(threads, src.len(), src, dst, pace, &|_, src, dst| {
            Ok(self.kernel.encode(src, lattice, dst).into())
        })
    }

    /// Decodes the first values of a chunk. It is not inlined, so that other paths do not reserve
    /// its buffer on the stack.
    #[cold]
    #[inline(never)]
    fn decode_part(&self, chunk: &ChunkView<'_, T>, scale: &Scale<T>, dst: &mut [T]) {
        let mut whole = [T::ZERO; CHUNK];
        self.kernel.decode(chunk, scale, &mut whole[..chunk.n_values()], Stores::Cached);
        dst.copy_from_slice(&whole[..dst.len()]);
    }

    /// Reduces two payloads by operating on their decoded values. It is not inlined, so that
    /// combining on the lattice does not reserve its buffer on the stack.
    #[inline(never)]
    fn recombine(
        &self,
        op: &Op<'_, T>,
        left_src: &[u8],
        right_src: &[u8],
        n_values: usize,
        dst: &mut [u8],
        pace: &dyn Pace,
    ) -> Result<Written, CodecError> {
        let give = |start: usize, left: &mut [T]| {
            let right = &mut [T::ZERO; CHUNK][..left.len()];
            self.decode_from(left_src, start, 1, left)?;
            self.decode_from(right_src, start, 1, right)?;
            operate(op, left, right);
            Ok(())
        };
        self.encode_paced(Source::Shared(n_values, &give), dst, pace)
    }
}

/// Returns chunk `index` after checking its structure.
fn chunk_of<'a, T: Float>(
    stream: &CheckedPayload<'a, T>,
    index: usize,
) -> Result<ChunkView<'a, T>, DecodeError> {
    let (bytes, len) = stream.chunk(index)?;
    ChunkView::parse(bytes, len, chunk_len(stream.n_values, index))
}

impl From<Encoded> for Written {
    fn from(encoded: Encoded) -> Self {
        let (verbatim, exceptions) = (encoded.verbatim_blocks.into(), encoded.exceptions.into());
        let blocks = BlockStats { verbatim, exceptions, ..BlockStats::default() };
        Self { n_bytes: encoded.n_bytes, blocks }
    }
}

impl<T: Float, const STATIC: bool> Codec<T> for FzLight<T, STATIC> {
    fn id(&self) -> CodecId {
        if STATIC { CodecId::FzStatic } else { CodecId::FzLight }
    }

    fn max_encoded_len(&self, n_values: usize) -> Option<usize> {
        chunked::max_len(n_values, max_chunk_len::<T>)
    }

    fn n_values(&self, src: &[u8]) -> Result<usize, DecodeError> {
        Ok(CheckedPayload::<T>::parse(src)?.n_values)
    }

    fn weight(&self) -> T {
        self.lattice.weight
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
        let (container, threads) = (self.container(1), self.threads);
        let encode =
            |values: &[T], dst: &mut [u8]| self.kernel.encode(values, &self.partial, dst).into();
        match source {
            Source::Input(src) => self.write_slice(&self.lattice, src, dst, pace),
            Source::Partial(src) => self.write_slice(&self.partial, src, dst, pace),
            Source::Shared(n_values, give) => {
                container.write_given(threads, n_values, give, dst, pace, &encode)
            }
        }
    }

    fn decode_paced(
        &self,
        src: &[u8],
        start: usize,
        divisor: u32,
        dst: &mut [T],
        stores: Stores,
        pace: &dyn Pace,
    ) -> Result<(), DecodeError> {
        let stream = CheckedPayload::<T>::with_values(src, start + dst.len())?;
        let scale = Scale::new(stream.step, divisor, self.lattice.weight);
        let read = |index, dst: &mut [T]| {
            let chunk = chunk_of(&stream, start / CHUNK + index)?;
            if chunk.n_values() == dst.len() {
                self.kernel.decode(&chunk, &scale, dst, stores);
            } else {
                self.decode_part(&chunk, &scale, dst);
            }
            Ok(())
        };
        for_each_run(self.threads, dst.len(), dst, pace, &|work| {
            let _fence = (stores == Stores::PastCaches).then(Fence::at_end);
            work(&mut |first, dst, pace| for_each_chunk(first, dst, pace, read));
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
        let stream = self.operand(src)?;
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
        let operands = self.headroom(stream.operands, 1)?;
        let scale = Scale::new(self.quantum.step(), divisor, self.lattice.weight);
        let fold = |index: usize, values: Values<'_, T>, dst: &mut [u8]| {
            let (kernel, op, chunk) = (&self.kernel, lattice_op, chunk_of(&stream, index)?);
            Ok(if is_stored {
                kernel.fold_store(op, &chunk, values, &self.lattice, dst, &scale).into()
            } else {
                kernel.fold(op, &chunk, values.local(), &self.lattice, dst).into()
            })
        };
        let (container, n_values) = (self.container(operands), stream.n_values);
        container.write_independent(self.threads, n_values, values, dst, pace, &fold)
    }

    fn homomorphic(&self) -> Option<&dyn Homomorphic<T>> {
        Some(self)
    }
}

impl<T: Float, const STATIC: bool> Homomorphic<T> for FzLight<T, STATIC> {
    fn combine_paced(
        &self,
        op: &Op<'_, T>,
        left_src: &[u8],
        right_src: &[u8],
        dst: &mut [u8],
        pace: &dyn Pace,
    ) -> Result<Written, CodecError> {
        let (a, b) = (self.operand(left_src)?, self.operand(right_src)?);
        b.expect_values(a.n_values)?;
        let Some(lattice_op) = op.on_lattice() else {
            return self.recombine(op, left_src, right_src, a.n_values, dst, pace);
        };
        let operands = self.headroom(a.operands, b.operands)?;
        let paths = if STATIC { Paths::Static } else { Paths::Dynamic };
        let container = self.container(operands);
        container.write_independent(self.threads, a.n_values, (), dst, pace, &|index, (), dst| {
            let (a, b) = (chunk_of(&a, index)?, chunk_of(&b, index)?);
            let encoded = self.kernel.combine(paths, lattice_op, &a, &b, &self.lattice, dst);
            let mut written = Written::from(encoded);
            written.blocks += block_paths(&a, &b);
            Ok(written)
        })
    }
}

/// Counts the pairs of blocks by the path that adding them takes.
fn block_paths<T: Float>(a: &ChunkView<'_, T>, b: &ChunkView<'_, T>) -> BlockStats {
    let mut paths = BlockStats::default();
    for (a, b) in a.occupied().into_iter().zip(b.occupied()) {
        paths.left += u64::from((a & !b).count_ones());
        paths.right += u64::from((!a & b).count_ones());
        paths.neither_constant += u64::from((a & b).count_ones());
    }
    let blocks = a.n_values().div_ceil(BLOCK) as u64;
    paths.both_constant = blocks - paths.left - paths.right - paths.neither_constant;
    paths
}

#[cfg(test)]
mod tests;
