//! fZ-light, improved: quantise to a lattice, 1-D Lorenzo difference, fixed-length blocks.
//!
//! A payload is a header, an index of chunk ends, the chunks (4096 values each, [`crate::kernel`])
//! and 64 zero bytes that vector loads may touch; docs/format.md is exact. After Huang et al.,
//! *ZCCL* (2025) and *hZCCL* (SC'24); what differs, and why, is in docs/algorithms.md.
//!
//! Cost: one pass over the values. The bound is checked for every value while encoding; a block
//! with a value that would break it, or that is not finite, is stored as it is.

#[cfg(feature = "rayon")]
mod parallel;

use super::{BlockStats, Codec, CodecError, CodecId, CodecParams, DecodeError, EncodeError, Fill};
use super::{Homomorphic, Values, Written, operate};
use crate::bound::Quantum;
use crate::element::{
    Element,
    sealed::{Float, Wide},
};
use crate::kernel::chunk::ChunkView;
use crate::kernel::stores::{Fence, Stores};
use crate::kernel::{
    BLOCK, CHUNK, Code, Encoded, Kernel, Lattice, Level, PAD, Scale, max_chunk_len,
};
use crate::op::{self, Op};

/// Version of the payload format.
pub const VERSION: u8 = 1;
/// Bytes before the index.
pub const HEADER_BYTES: usize = 24;
const INDEX_ENTRY: usize = 4;

/// The codec for one lattice and group size.
///
/// # Examples
/// ```
/// use foldwire::{Quantum, codec::{Codec, FzLight}};
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
#[derive(Clone, Copy, Debug)]
pub struct FzLight<T: Element> {
    quantum: Quantum,
    max_operands: u32,
    /// For own values.
    lattice: Lattice<T>,
    /// For partial results: the same, scaled by the weight of own values.
    partial: Lattice<T>,
    kernel: Kernel<T>,
}

impl<T: Element> FzLight<T> {
    /// The codec with the machine's best kernels, whose codes leave head-room for sums of
    /// `max_operands` (at least 1).
    #[must_use]
    pub fn new(quantum: Quantum, max_operands: u32) -> Self {
        Self::with_level(quantum, max_operands, Level::best())
    }

    /// The codec with the kernels of one level (or the next lower that the machine has).
    #[must_use]
    pub fn with_level(quantum: Quantum, max_operands: u32, level: Level) -> Self {
        Self::from_params(&CodecParams { quantum, max_operands, averages: false, level })
    }

    pub(crate) fn from_params(params: &CodecParams) -> Self {
        let max_operands = params.max_operands.max(1);
        // Twice the sum's range must fit the code, as residuals are differences of two sums.
        let head_room = libm::ldexp(1.0, <T as Float>::Code::BITS as i32 - 2);
        let weight = op::weight(if params.averages { max_operands } else { 1 });
        let quantum = params.quantum.of_type::<T>();
        // No point is beyond the type's largest value, so that averages of points are not.
        let last = T::MAX.to_f64() / quantum.step();
        let limit = libm::floor(T::MAX_CODE.min(head_room / f64::from(max_operands)).min(last));
        let one = T::Wide::ONE;
        let lattice = if quantum.is_lossless() {
            // No |code| is below a negative limit: every block is verbatim.
            let (limit, bound) = (T::Wide::nearest(-1.0), T::Wide::nearest(0.0));
            Lattice { step: one, inverse: one, limit, bound, weight }
        } else {
            let (step, limit) = (T::Wide::nearest(quantum.step()), T::Wide::nearest(limit));
            let bound = quantum.limit_of_errors::<T>();
            Lattice { step, inverse: one / step, limit, bound, weight }
        };
        let partial = lattice.of_partial_results();
        Self { quantum, max_operands, lattice, partial, kernel: Kernel::at(params.level) }
    }

    /// The lattice's quantum.
    #[must_use]
    pub const fn quantum(&self) -> Quantum {
        self.quantum
    }

    /// Number of operands summed up in an encoding.
    ///
    /// # Errors
    /// [`DecodeError`] if `src` is not a valid encoding.
    pub fn operands(&self, src: &[u8]) -> Result<u32, DecodeError> {
        Ok(Stream::<T>::parse(src)?.operands)
    }

    /// Spacing of an encoding's lattice; 0 if it has none.
    ///
    /// # Errors
    /// [`DecodeError`] if `src` is not a valid encoding.
    pub fn step(&self, src: &[u8]) -> Result<f64, DecodeError> {
        Ok(Stream::<T>::parse(src)?.step)
    }

    /// Parses an operand of a reduction and checks that it lies on our lattice.
    fn operand<'a>(&self, src: &'a [u8]) -> Result<Stream<'a, T>, CodecError> {
        let stream = Stream::parse(src)?;
        let ours = self.quantum.step();
        if stream.step.to_bits() != ours.to_bits() {
            return Err(CodecError::Quantum { ours, theirs: stream.step });
        }
        Ok(stream)
    }

    fn head_room(&self, a: u32, b: u32) -> Result<u32, CodecError> {
        let operands = u64::from(a) + u64::from(b);
        match u32::try_from(operands) {
            Ok(sum) if sum <= self.max_operands => Ok(sum),
            _ => Err(CodecError::HeadRoom { operands, limit: self.max_operands }),
        }
    }

    /// Writes header, index and pad around the chunks that `chunk(index, piece, dst)` writes from
    /// their pieces.
    fn write<P: Pieces>(
        &self,
        n_values: usize,
        operands: u32,
        pieces: P,
        dst: &mut [u8],
        chunk: impl FnMut(usize, P, &mut [u8]) -> Result<Written, CodecError>,
    ) -> Result<Written, CodecError> {
        self.write_with(n_values, operands, dst, |index, body| {
            write_run(0, pieces, index, body, chunk)
        })
    }

    /// As [`write`](Self::write) for chunks that do not depend on each other: with the `rayon`
    /// feature, and enough chunks, several threads write them.
    fn write_independent<P: Pieces + Send>(
        &self,
        n_values: usize,
        operands: u32,
        pieces: P,
        dst: &mut [u8],
        chunk: impl Fn(usize, P, &mut [u8]) -> Result<Written, CodecError> + Sync,
    ) -> Result<Written, CodecError> {
        #[cfg(feature = "rayon")]
        if parallel::is_worthwhile(n_values) {
            return self.write_with(n_values, operands, dst, |index, body| {
                parallel::write::<T, P>(pieces, index, body, &chunk)
            });
        }
        self.write(n_values, operands, pieces, dst, chunk)
    }

    /// Writes header and pad around what `fill(index, body)` writes.
    fn write_with(
        &self,
        n_values: usize,
        operands: u32,
        dst: &mut [u8],
        fill: impl FnOnce(&mut [u8], &mut [u8]) -> Result<Written, CodecError>,
    ) -> Result<Written, CodecError> {
        let need = self.max_encoded_len(n_values).ok_or(EncodeError::TooLong { n_values })?;
        if dst.len() < need {
            return Err(EncodeError::Capacity { need, have: dst.len() }.into());
        }
        dst[0] = VERSION;
        dst[1] = T::DTYPE as u8;
        dst[2..4].fill(0);
        dst[4..8].copy_from_slice(&operands.to_le_bytes());
        dst[8..16].copy_from_slice(&self.quantum.step().to_le_bytes());
        dst[16..20].copy_from_slice(&(n_values as u32).to_le_bytes());
        dst[20..24].fill(0);
        let body_at = HEADER_BYTES + INDEX_ENTRY * n_values.div_ceil(CHUNK);
        let (head, body) = dst.split_at_mut(body_at);
        let written = fill(&mut head[HEADER_BYTES..], body)?;
        body[written.n_bytes..written.n_bytes + PAD].fill(0);
        Ok(Written { n_bytes: body_at + written.n_bytes + PAD, ..written })
    }

    /// The first values of a chunk. Apart, so that nobody else has the buffer on the stack.
    #[cold]
    #[inline(never)]
    fn decode_part(&self, chunk: &ChunkView<'_, T>, scale: &Scale<T>, dst: &mut [T]) {
        let mut whole = [T::ZERO; CHUNK];
        self.kernel.decode(chunk, scale, &mut whole[..chunk.n_values()], Stores::Cached);
        dst.copy_from_slice(&whole[..dst.len()]);
    }

    /// Frame ⊕ frame in floats. Apart, so that combining on the lattice has no buffers on the
    /// stack.
    #[inline(never)]
    fn recombine(
        &self,
        op: &Op<'_, T>,
        left_src: &[u8],
        right_src: &[u8],
        n_values: usize,
        dst: &mut [u8],
    ) -> Result<Written, CodecError> {
        let mut right = [T::ZERO; CHUNK];
        let mut fill = |start: usize, left: &mut [T]| {
            let right = &mut right[..left.len()];
            self.decode_from(left_src, start, 1, left)?;
            self.decode_from(right_src, start, 1, right)?;
            operate(op, left, right);
            Ok(())
        };
        self.encode_with(n_values, &mut fill, dst)
    }
}

/// What the chunks of a segment are written from, dealt to them in order.
trait Pieces: Sized {
    /// The part of the first `n_values`, or of all if there are fewer, and the rest.
    fn deal(self, n_values: usize) -> (Self, Self);
}

/// Nothing: the writer knows by the chunk's index.
impl Pieces for () {
    fn deal(self, _: usize) -> ((), ()) {
        ((), ())
    }
}

impl<T> Pieces for &[T] {
    fn deal(self, n_values: usize) -> (Self, Self) {
        self.split_at(n_values.min(self.len()))
    }
}

impl<T> Pieces for Values<'_, T> {
    fn deal(self, n_values: usize) -> (Self, Self) {
        self.split(n_values)
    }
}

/// Calls `run(first, values)` for runs of whole chunks that make up `dst`, `first` being a run's
/// first chunk: with the `rayon` feature, and enough chunks, on several threads; else there is one
/// run.
fn for_each_run<T: Element>(
    dst: &mut [T],
    run: impl Fn(usize, &mut [T]) -> Result<(), DecodeError> + Sync,
) -> Result<(), DecodeError> {
    #[cfg(feature = "rayon")]
    if parallel::is_worthwhile(dst.len()) {
        return parallel::read(dst, run);
    }
    run(0, dst)
}

/// Writes a run of chunks, the first of which is chunk `first`, and where each ends, counted from
/// the run's start.
fn write_run<P: Pieces>(
    first: usize,
    mut pieces: P,
    index: &mut [u8],
    body: &mut [u8],
    mut chunk: impl FnMut(usize, P, &mut [u8]) -> Result<Written, CodecError>,
) -> Result<Written, CodecError> {
    let mut run = Written::default();
    for (i, entry) in index.chunks_exact_mut(INDEX_ENTRY).enumerate() {
        let (piece, rest) = pieces.deal(CHUNK);
        pieces = rest;
        let written = chunk(first + i, piece, &mut body[run.n_bytes..])?;
        run.n_bytes += written.n_bytes;
        run.blocks += written.blocks;
        entry.copy_from_slice(&(run.n_bytes as u32).to_le_bytes());
    }
    Ok(run)
}

impl From<Encoded> for Written {
    fn from(encoded: Encoded) -> Self {
        let blocks =
            BlockStats { verbatim: encoded.verbatim_blocks.into(), ..BlockStats::default() };
        Self { n_bytes: encoded.n_bytes, blocks }
    }
}

/// Values in chunk `index` of a segment of `n_values`.
fn chunk_len(n_values: usize, index: usize) -> usize {
    (n_values - index * CHUNK).min(CHUNK)
}

/// A payload whose header and index have been checked.
#[derive(Clone, Copy, Debug)]
struct Stream<'a, T> {
    operands: u32,
    step: f64,
    n_values: usize,
    /// Ends of the chunks in `body`, 4 bytes each.
    index: &'a [u8],
    body: &'a [u8],
    element: core::marker::PhantomData<T>,
}

impl<'a, T: Element> Stream<'a, T> {
    fn parse(src: &'a [u8]) -> Result<Self, DecodeError> {
        let truncated = |need| DecodeError::Truncated { need, have: src.len() };
        let header: &[u8; HEADER_BYTES] = src.first_chunk().ok_or(truncated(HEADER_BYTES))?;
        let word = |at: usize| {
            u32::from_le_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]])
        };
        if header[0] != VERSION {
            return Err(DecodeError::Version { version: header[0] });
        }
        if header[1] != T::DTYPE as u8 {
            return Err(DecodeError::Type { found: header[1], expected: T::DTYPE });
        }
        let operands = word(4);
        let step = f64::from_bits(u64::from(word(8)) | u64::from(word(12)) << 32);
        let n_values = word(16) as usize;
        let reserved_is_zero = header[2..4] == [0; 2] && header[20..24] == [0; 4];
        if operands == 0 || !reserved_is_zero || !(step >= 0.0 && step <= T::MAX.to_f64()) {
            return Err(DecodeError::Damaged);
        }
        let n_chunks = n_values.div_ceil(CHUNK);
        let body_at = HEADER_BYTES + INDEX_ENTRY * n_chunks;
        if src.len() < body_at + PAD {
            return Err(truncated(body_at + PAD));
        }
        let (index, body) = (&src[HEADER_BYTES..body_at], &src[body_at..]);
        let stream =
            Self { operands, step, n_values, index, body, element: core::marker::PhantomData };
        let used = if n_chunks == 0 { 0 } else { stream.end(n_chunks - 1) };
        match body.len() - PAD {
            have if have < used => Err(truncated(body_at.saturating_add(used).saturating_add(PAD))),
            have if have > used => Err(DecodeError::Damaged),
            _ => Ok(stream),
        }
    }

    fn expect_values(&self, expected: usize) -> Result<(), DecodeError> {
        if self.n_values == expected {
            Ok(())
        } else {
            Err(DecodeError::Count { found: self.n_values, expected })
        }
    }

    /// Where chunk `index` ends in `body`; not yet checked.
    fn end(&self, index: usize) -> usize {
        let entry = &self.index[INDEX_ENTRY * index..INDEX_ENTRY * (index + 1)];
        u32::from_le_bytes([entry[0], entry[1], entry[2], entry[3]]) as usize
    }

    /// Checks and returns chunk `index`.
    fn chunk(&self, index: usize) -> Result<ChunkView<'a, T>, DecodeError> {
        let start = if index == 0 { 0 } else { self.end(index - 1) };
        let len = self.end(index).checked_sub(start).ok_or(DecodeError::Damaged)?;
        let bytes = self.body.get(start..).ok_or(DecodeError::Damaged)?;
        ChunkView::parse(bytes, len, chunk_len(self.n_values, index))
    }
}

impl<T: Element> Codec<T> for FzLight<T> {
    fn id(&self) -> CodecId {
        CodecId::FzLight
    }

    fn max_encoded_len(&self, n_values: usize) -> Option<usize> {
        let (full, rest) = (n_values / CHUNK, n_values % CHUNK);
        let n_chunks = n_values.div_ceil(CHUNK);
        let tail = if rest == 0 { 0 } else { max_chunk_len::<T>(rest) };
        // One destination's store slack is enough for all chunks, but counting it in each is
        // simpler and costs 0.4 %.
        let chunks = full.checked_mul(max_chunk_len::<T>(CHUNK))?.checked_add(tail)?;
        let total = chunks.checked_add(HEADER_BYTES + INDEX_ENTRY * n_chunks + PAD)?;
        u32::try_from(total).is_ok().then_some(total)
    }

    fn n_values(&self, src: &[u8]) -> Result<usize, DecodeError> {
        Ok(Stream::<T>::parse(src)?.n_values)
    }

    fn encode(&self, src: &[T], dst: &mut [u8]) -> Result<Written, CodecError> {
        self.write_independent(src.len(), 1, src, dst, |_, src, dst| {
            Ok(self.kernel.encode(src, &self.lattice, dst).into())
        })
    }

    fn weight(&self) -> T {
        self.lattice.weight
    }

    fn encode_partial(&self, src: &[T], dst: &mut [u8]) -> Result<Written, CodecError> {
        self.write_independent(src.len(), 1, src, dst, |_, src, dst| {
            Ok(self.kernel.encode(src, &self.partial, dst).into())
        })
    }

    fn encode_with(
        &self,
        n_values: usize,
        fill: &mut Fill<'_, T>,
        dst: &mut [u8],
    ) -> Result<Written, CodecError> {
        let mut buffer = [T::ZERO; CHUNK];
        self.write(n_values, 1, (), dst, |index, (), dst| {
            let values = &mut buffer[..chunk_len(n_values, index)];
            fill(index * CHUNK, values)?;
            Ok(self.kernel.encode(values, &self.partial, dst).into())
        })
    }

    fn decode_from(
        &self,
        src: &[u8],
        start: usize,
        divisor: u32,
        dst: &mut [T],
    ) -> Result<(), DecodeError> {
        let stream = Stream::<T>::parse(src)?;
        let end = start + dst.len();
        if stream.n_values < end {
            return Err(DecodeError::Count { found: stream.n_values, expected: end });
        }
        let scale = Scale::new(stream.step, divisor, self.lattice.weight);
        for_each_run(dst, |first, dst| {
            for (i, dst) in dst.chunks_mut(CHUNK).enumerate() {
                let chunk = stream.chunk(start / CHUNK + first + i)?;
                if chunk.n_values() == dst.len() {
                    self.kernel.decode(&chunk, &scale, dst, Stores::Cached);
                } else {
                    self.decode_part(&chunk, &scale, dst);
                }
            }
            Ok(())
        })
    }

    fn store(
        &self,
        src: &[u8],
        divisor: u32,
        dst: &mut [T],
        stores: Stores,
    ) -> Result<(), DecodeError> {
        if stores == Stores::Cached {
            return self.decode(src, divisor, dst);
        }
        let stream = Stream::<T>::parse(src)?;
        stream.expect_values(dst.len())?;
        let scale = Scale::new(stream.step, divisor, self.lattice.weight);
        for_each_run(dst, |first, dst| {
            let _fence = Fence::at_end();
            for (i, dst) in dst.chunks_mut(CHUNK).enumerate() {
                self.kernel.decode(&stream.chunk(first + i)?, &scale, dst, stores);
            }
            Ok(())
        })
    }

    fn fold(
        &self,
        op: &Op<'_, T>,
        src: &[u8],
        local: &[T],
        dst: &mut [u8],
    ) -> Result<Written, CodecError> {
        let stream = self.operand(src)?;
        stream.expect_values(local.len())?;
        let Some(op) = op.on_lattice() else {
            return self.refold(op, src, local, dst);
        };
        let operands = self.head_room(stream.operands, 1)?;
        self.write_independent(local.len(), operands, local, dst, |index, local, dst| {
            let chunk = stream.chunk(index)?;
            Ok(self.kernel.fold(op, &chunk, local, &self.lattice, dst).into())
        })
    }

    fn fold_store(
        &self,
        op: &Op<'_, T>,
        src: &[u8],
        mut values: Values<'_, T>,
        divisor: u32,
        dst: &mut [u8],
    ) -> Result<Written, CodecError> {
        let stream = self.operand(src)?;
        stream.expect_values(values.local().len())?;
        stream.expect_values(values.output().len())?;
        let Some(op) = op.on_lattice() else {
            let written = self.refold(op, src, values.local(), dst)?;
            self.decode(&dst[..written.n_bytes], divisor, values.output())?;
            return Ok(written);
        };
        let operands = self.head_room(stream.operands, 1)?;
        let scale = Scale::new(self.quantum.step(), divisor, self.lattice.weight);
        self.write_independent(stream.n_values, operands, values, dst, |index, values, dst| {
            let chunk = stream.chunk(index)?;
            Ok(self.kernel.fold_store(op, &chunk, values, &self.lattice, dst, &scale).into())
        })
    }

    fn homomorphic(&self) -> Option<&dyn Homomorphic<T>> {
        Some(self)
    }
}

impl<T: Element> Homomorphic<T> for FzLight<T> {
    fn combine(
        &self,
        op: &Op<'_, T>,
        left_src: &[u8],
        right_src: &[u8],
        dst: &mut [u8],
    ) -> Result<Written, CodecError> {
        let (a, b) = (self.operand(left_src)?, self.operand(right_src)?);
        b.expect_values(a.n_values)?;
        let Some(lattice_op) = op.on_lattice() else {
            return self.recombine(op, left_src, right_src, a.n_values, dst);
        };
        let operands = self.head_room(a.operands, b.operands)?;
        self.write_independent(a.n_values, operands, (), dst, |index, (), dst| {
            let (a, b) = (a.chunk(index)?, b.chunk(index)?);
            let encoded = self.kernel.combine(lattice_op, &a, &b, &self.lattice, dst);
            let mut written = Written::from(encoded);
            written.blocks += block_paths(&a, &b);
            Ok(written)
        })
    }
}

fn block_paths<T: Element>(a: &ChunkView<'_, T>, b: &ChunkView<'_, T>) -> BlockStats {
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
