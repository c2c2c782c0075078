//! The container of chunked payloads: what any codec has around its chunks.
//!
//! A payload is a header (version, element type, operands, spacing, number of values), an index of
//! chunk ends, the chunks (4096 values each, as the codec writes them) and 64 zero bytes that
//! vector loads may touch; docs/format.md is exact. Chunks that do not depend on each other are
//! written and read by several [threads](crate::threads). Lengths are checked here; what a chunk
//! says is the codec's to check.
//!
//! The functions that write and read chunks come as `dyn Fn`. They are called once for 4096 values.
//! As type parameters they made a quarter of all code that the compiler has to do with in core.

#[cfg(feature = "std")]
mod parallel;

use super::{
    CodecError, DecodeError, EncodeError, Pace, SequentialReader, SharedReader, Values, Written,
};
use crate::element::{DType, Element, Float};
use crate::kernel::{CHUNK, PAD};
use crate::threads::Threads;

/// Version of the payload format.
pub const VERSION: u8 = 2;
/// Bytes before the index.
pub const HEADER_BYTES: usize = 24;
/// Bytes of an entry of the index.
pub(super) const INDEX_ENTRY: usize = 4;

/// A payload that is to be written.
#[derive(Clone, Copy, Debug)]
pub(super) struct Container {
    pub(super) dtype: DType,
    /// Number of operands summed up in it.
    pub(super) operands: u32,
    /// Spacing of the lattice; 0 if there is none.
    pub(super) step: f64,
    /// Most bytes of a chunk of so many values.
    pub(super) max_chunk_len: fn(usize) -> usize,
}

/// Most bytes that a payload of `n_values` takes whose chunks take what `max_chunk_len` says;
/// `None` if that is too long.
pub(super) fn max_len(n_values: usize, max_chunk_len: fn(usize) -> usize) -> Option<usize> {
    let (full, rest) = (n_values / CHUNK, n_values % CHUNK);
    let n_chunks = n_values.div_ceil(CHUNK);
    let tail = if rest == 0 { 0 } else { max_chunk_len(rest) };
    // One destination's store slack is enough for all chunks, but counting it in each is simpler
    // and costs 0.4 %.
    let chunks = full.checked_mul(max_chunk_len(CHUNK))?.checked_add(tail)?;
    let total = chunks.checked_add(HEADER_BYTES + INDEX_ENTRY * n_chunks + PAD)?;
    u32::try_from(total).is_ok().then_some(total)
}

impl Container {
    /// Writes header, index and pad around the chunks that `chunk(index, piece, dst)` writes from
    /// their pieces, and tells of each.
    pub(super) fn write<P: Pieces>(
        self,
        n_values: usize,
        pieces: P,
        dst: &mut [u8],
        pace: &dyn Pace,
        chunk: &mut Write<'_, P>,
    ) -> Result<Written, CodecError> {
        let body_at = self.open(n_values, dst)?;
        let (head, body) = dst.split_at_mut(body_at);
        let index = &mut head[HEADER_BYTES..];
        let written = write_run(0, pieces, index, body, &mut |index, piece, dst| {
            let written = chunk(index, piece, dst)?;
            pace.passed(chunk_len(n_values, index));
            Ok(written)
        })?;
        Ok(close(body_at, body, written))
    }

    /// As [`write`](Self::write) for chunks that do not depend on each other: these threads write
    /// them if there are enough.
    pub(super) fn write_independent<P: Pieces + Send>(
        self,
        threads: Threads,
        n_values: usize,
        pieces: P,
        dst: &mut [u8],
        pace: &dyn Pace,
        chunk: &WriteShared<'_, P>,
    ) -> Result<Written, CodecError> {
        #[cfg(feature = "std")]
        if is_divided(n_values, threads) {
            let max_chunk_len = (self.max_chunk_len)(CHUNK);
            let body_at = self.open(n_values, dst)?;
            let (head, body) = dst.split_at_mut(body_at);
            let index = &mut head[HEADER_BYTES..];
            let written = parallel::write(threads, pieces, index, body, max_chunk_len, chunk)?;
            pace.passed(n_values);
            return Ok(close(body_at, body, written));
        }
        let _ = threads;
        self.write(n_values, pieces, dst, pace, &mut |index, piece, dst| chunk(index, piece, dst))
    }

    /// As [`write`](Self::write), of chunks that `encode` makes of values that `fill` gives. Apart,
    /// so that others have no buffer on the stack.
    #[inline(never)]
    pub(super) fn write_filled<T: Float>(
        self,
        n_values: usize,
        fill: &mut SequentialReader<'_, T>,
        dst: &mut [u8],
        pace: &dyn Pace,
        encode: &dyn Fn(&[T], &mut [u8]) -> Written,
    ) -> Result<Written, CodecError> {
        let mut buffer = [T::ZERO; CHUNK];
        self.write(n_values, (), dst, pace, &mut |index, (), dst| {
            let values = &mut buffer[..chunk_len(n_values, index)];
            fill(index * CHUNK, values)?;
            Ok(encode(values, dst))
        })
    }

    /// The same by these threads, of values that `give` gives.
    pub(super) fn write_given<T: Float>(
        self,
        threads: Threads,
        n_values: usize,
        give: &SharedReader<'_, T>,
        dst: &mut [u8],
        pace: &dyn Pace,
        encode: &(dyn Fn(&[T], &mut [u8]) -> Written + Sync),
    ) -> Result<Written, CodecError> {
        // A thread that is alone needs one buffer, and fills it with zeros once.
        if !is_divided(n_values, threads) {
            let fill = &mut |start: usize, out: &mut [T]| give(start, out);
            return self.write_filled(n_values, fill, dst, pace, encode);
        }
        self.write_independent(threads, n_values, (), dst, pace, &|index, (), dst| {
            let values = &mut [T::ZERO; CHUNK][..chunk_len(n_values, index)];
            give(index * CHUNK, values)?;
            Ok(encode(values, dst))
        })
    }

    /// Writes the header into `dst`, which is large enough for all, and says where the chunks
    /// begin; the index is between.
    fn open(self, n_values: usize, dst: &mut [u8]) -> Result<usize, CodecError> {
        let Self { dtype, operands, step, max_chunk_len } = self;
        let need = max_len(n_values, max_chunk_len).ok_or(EncodeError::TooLong { n_values })?;
        if dst.len() < need {
            return Err(EncodeError::Capacity { need, have: dst.len() }.into());
        }
        dst[0] = VERSION;
        dst[1] = dtype as u8;
        dst[2..4].fill(0);
        dst[4..8].copy_from_slice(&operands.to_le_bytes());
        dst[8..16].copy_from_slice(&step.to_le_bytes());
        dst[16..20].copy_from_slice(&(n_values as u32).to_le_bytes());
        dst[20..24].fill(0);
        Ok(HEADER_BYTES + INDEX_ENTRY * n_values.div_ceil(CHUNK))
    }
}

/// Writes the pad behind the chunks, which have been written to `body`; the whole payload.
fn close(body_at: usize, body: &mut [u8], written: Written) -> Written {
    body[written.n_bytes..written.n_bytes + PAD].fill(0);
    Written { n_bytes: body_at + written.n_bytes + PAD, ..written }
}

/// Writes chunk `index` from its piece.
pub(super) type Write<'a, P> = dyn FnMut(usize, P, &mut [u8]) -> Result<Written, CodecError> + 'a;
/// The same of chunks that do not depend on each other.
pub(super) type WriteShared<'a, P> =
    dyn Fn(usize, P, &mut [u8]) -> Result<Written, CodecError> + Sync + 'a;
/// Reads the chunks of a run, the first of which is `first`, and tells of each.
pub(super) type ReadRun<'a, T> =
    dyn Fn(usize, &mut [T], &dyn Pace) -> Result<(), DecodeError> + Sync + 'a;

/// What the chunks of a segment are written from, dealt to them in order.
pub(super) trait Pieces: Sized {
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

/// Chunks in a run: about 20 microseconds of work, well above what handing it over costs.
const RUN: usize = 8;

/// Whether so many values are worth dividing among these threads.
pub(super) fn is_divided(n_values: usize, threads: Threads) -> bool {
    n_values > RUN * CHUNK && threads.n_for(n_values) > 1
}

/// Calls `run(first, values, pace)` for runs of whole chunks that make up `dst`, `first` being a
/// run's first chunk: on these threads if there are enough chunks; else there is one run, which
/// tells of each chunk itself.
pub(super) fn for_each_run<T: Element>(
    threads: Threads,
    dst: &mut [T],
    pace: &dyn Pace,
    run: &ReadRun<'_, T>,
) -> Result<(), DecodeError> {
    #[cfg(feature = "std")]
    if is_divided(dst.len(), threads) {
        parallel::read(threads, dst, run)?;
        pace.passed(dst.len());
        return Ok(());
    }
    let _ = threads;
    run(0, dst, pace)
}

/// Writes a run of chunks, the first of which is chunk `first`, and where each ends, counted from
/// the run's start.
fn write_run<P: Pieces>(
    first: usize,
    mut pieces: P,
    index: &mut [u8],
    body: &mut [u8],
    chunk: &mut Write<'_, P>,
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

/// Values in chunk `index` of a segment of `n_values`.
pub(super) fn chunk_len(n_values: usize, index: usize) -> usize {
    (n_values - index * CHUNK).min(CHUNK)
}

/// A payload whose header and index have been checked.
#[derive(Clone, Copy, Debug)]
pub(super) struct CheckedPayload<'a, T> {
    pub(super) operands: u32,
    pub(super) step: f64,
    pub(super) n_values: usize,
    /// Ends of the chunks in `body`, 4 bytes each.
    index: &'a [u8],
    body: &'a [u8],
    element: core::marker::PhantomData<T>,
}

impl<'a, T: Float> CheckedPayload<'a, T> {
    pub(super) fn parse(src: &'a [u8]) -> Result<Self, DecodeError> {
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

    /// As [`parse`](Self::parse); an error if there are fewer values.
    pub(super) fn with_values(src: &'a [u8], n_values: usize) -> Result<Self, DecodeError> {
        let stream = Self::parse(src)?;
        if stream.n_values < n_values {
            return Err(DecodeError::Count { found: stream.n_values, expected: n_values });
        }
        Ok(stream)
    }

    pub(super) fn expect_values(&self, expected: usize) -> Result<(), DecodeError> {
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

    /// The bytes from chunk `index` on, and how many of them are its own.
    pub(super) fn chunk(&self, index: usize) -> Result<(&'a [u8], usize), DecodeError> {
        let start = if index == 0 { 0 } else { self.end(index - 1) };
        let len = self.end(index).checked_sub(start).ok_or(DecodeError::Damaged)?;
        let bytes = self.body.get(start..).ok_or(DecodeError::Damaged)?;
        Ok((bytes, len))
    }
}
