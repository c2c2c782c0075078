//! Container of chunked payloads, common to all codecs but `raw`.
//!
//! A payload consists of a header (version, element type, operands, spacing, number of values), an
//! index of chunk ends, the chunks, and 64 zero bytes that vector loads may touch. A chunk holds
//! 4096 values as the codec writes them. docs/format.md gives the exact layout. Several
//! [threads](crate::threads) can write and read independent chunks. This module checks the lengths;
//! the codec checks the contents of chunks.
//!
//! Functions that write and read chunks are passed as `dyn Fn` and called once per 4096 values. As
//! type parameters, they would make a quarter of the code that the compiler processes for core. A
//! thread first prepares what it needs for all its chunks, such as a buffer. So the functions come
//! from another function, which calls its argument once with what it has prepared.

#[cfg(feature = "std")]
mod parallel;

use super::{CodecError, DecodeError, EncodeError, Pace, SharedReader, Values, Written};
use crate::element::{DType, Float};
use crate::kernel::{CHUNK, PAD};
use crate::threads::Threads;

/// Version of the payload format.
pub const VERSION: u8 = 2;
/// Bytes before the index.
pub const HEADER_BYTES: usize = 24;
/// Bytes of an index entry.
pub(super) const INDEX_ENTRY: usize = 4;

/// Description of a payload to be written.
#[derive(Clone, Copy, Debug)]
pub(super) struct Container {
    pub(super) dtype: DType,
    /// Number of operands summed up in the payload.
    pub(super) operands: u32,
    /// Spacing of the lattice; 0 if there is none.
    pub(super) step: f64,
    /// Returns the maximum bytes of a chunk with this number of values.
    pub(super) max_chunk_len: fn(usize) -> usize,
}

/// Returns the maximum bytes of a payload of `n_values` values. `max_chunk_len` returns the maximum
/// bytes of a chunk. `None` if a header cannot hold the length.
pub(super) fn max_len(n_values: usize, max_chunk_len: fn(usize) -> usize) -> Option<usize> {
    let (full, rest) = (n_values / CHUNK, n_values % CHUNK);
    let n_chunks = n_values.div_ceil(CHUNK);
    let tail = if rest == 0 { 0 } else { max_chunk_len(rest) };
    // A destination needs the slack for wide stores only once. Counting it in each chunk is simpler
    // and makes destinations 0.4 % longer.
    let chunks = full.checked_mul(max_chunk_len(CHUNK))?.checked_add(tail)?;
    let total = chunks.checked_add(HEADER_BYTES + INDEX_ENTRY * n_chunks + PAD)?;
    u32::try_from(total).is_ok().then_some(total)
}

impl Container {
    /// Writes a payload: header, index, chunks and pad. If there are enough chunks, the threads
    /// share them, and are reported to `pace` at the end. Otherwise each is reported.
    pub(super) fn write<P: Pieces + Send>(
        self,
        threads: Threads,
        n_values: usize,
        pieces: P,
        dst: &mut [u8],
        pace: &dyn Pace,
        prepare: &RunWriters<'_, P>,
    ) -> Result<Written, CodecError> {
        let body_at = self.open(n_values, dst)?;
        let (head, body) = dst.split_at_mut(body_at);
        let run = Run { first: 0, pieces, index: &mut head[HEADER_BYTES..], body: &mut *body };
        #[cfg(feature = "std")]
        if threads.n_for(n_values) > 1 {
            let max_chunk_len = (self.max_chunk_len)(CHUNK);
            let written = parallel::write(threads, n_values, run, max_chunk_len, prepare)?;
            pace.passed(n_values);
            return Ok(close(body_at, body, written));
        }
        let _ = threads;
        let (mut run, mut written) = (Some(run), Ok(Written::default()));
        prepare(&mut |write| {
            if let Some(run) = run.take() {
                written = write(run, pace);
            }
        });
        Ok(close(body_at, body, written?))
    }

    /// Same as [`write`](Self::write), for chunks that need no preparation. `chunk(index, piece,
    /// dst)` writes a chunk from its piece of the input.
    pub(super) fn write_independent<P: Pieces + Send>(
        self,
        threads: Threads,
        n_values: usize,
        pieces: P,
        dst: &mut [u8],
        pace: &dyn Pace,
        chunk: &SharedChunkWriteFn<'_, P>,
    ) -> Result<Written, CodecError> {
        self.write(threads, n_values, pieces, dst, pace, &|work| {
            work(&mut |run, pace| {
                run.write(n_values, pace, &mut |index, piece, dst| chunk(index, piece, dst))
            });
        })
    }

    /// Same as [`write`](Self::write): `give` provides the values of a chunk, and `encode` writes
    /// them. It is not inlined, so that other paths do not reserve its buffer on the stack.
    #[inline(never)]
    pub(super) fn write_given<T: Float>(
        self,
        threads: Threads,
        n_values: usize,
        give: &SharedReader<'_, T>,
        dst: &mut [u8],
        pace: &dyn Pace,
        encode: &(dyn Fn(&[T], &mut [u8]) -> Written + Sync),
    ) -> Result<Written, CodecError> {
        self.write(threads, n_values, (), dst, pace, &|work| {
            let mut buffer = [T::ZERO; CHUNK];
            work(&mut |run, pace| {
                run.write(n_values, pace, &mut |index, (), dst| {
                    let values = &mut buffer[..chunk_len(n_values, index)];
                    give(index * CHUNK, values)?;
                    Ok(encode(values, dst))
                })
            });
        })
    }

    /// Writes the header into `dst`, after checking that the whole payload fits. Returns where the
    /// chunks begin, after the header and the space for the index.
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

/// Writes the pad after the chunks in `body`, and returns the size of the whole payload.
fn close(body_at: usize, body: &mut [u8], written: Written) -> Written {
    body[written.n_bytes..written.n_bytes + PAD].fill(0);
    Written { n_bytes: body_at + written.n_bytes + PAD, ..written }
}

/// Writes the chunk with this index from its piece of the input.
pub(super) type ChunkWriteFn<'a, P> =
    dyn FnMut(usize, P, &mut [u8]) -> Result<Written, CodecError> + 'a;
/// Same as [`ChunkWriteFn`], for independent chunks.
pub(super) type SharedChunkWriteFn<'a, P> =
    dyn Fn(usize, P, &mut [u8]) -> Result<Written, CodecError> + Sync + 'a;
/// Writes a run of chunks and reports each.
pub(super) type RunWriteFn<'a, P> =
    dyn FnMut(Run<'_, P>, &dyn Pace) -> Result<Written, CodecError> + 'a;
/// Prepares what a thread needs, and passes the function that writes runs to its argument.
pub(super) type RunWriters<'a, P> = dyn Fn(&mut dyn FnMut(&mut RunWriteFn<'_, P>)) + Sync + 'a;
/// Processes a run: the index of its first chunk, and its piece. Reports each chunk.
pub(crate) type RunFn<'a, P, E> = dyn FnMut(usize, P, &dyn Pace) -> Result<(), E> + 'a;
/// Prepares what a thread needs, and passes the function that processes runs to its argument.
pub(crate) type RunWorkers<'a, P, E> = dyn Fn(&mut dyn FnMut(&mut RunFn<'_, P, E>)) + Sync + 'a;

/// Consecutive chunks to be written: their input, and where they go.
pub(super) struct Run<'a, P> {
    /// Index of the first chunk.
    pub(super) first: usize,
    pub(super) pieces: P,
    /// Space for the ends of the chunks, relative to the start of the run.
    pub(super) index: &'a mut [u8],
    pub(super) body: &'a mut [u8],
}

impl<P: Pieces> Run<'_, P> {
    /// Writes the chunks. `n_values` is the number of values of the payload.
    fn write(
        self,
        n_values: usize,
        pace: &dyn Pace,
        chunk: &mut ChunkWriteFn<'_, P>,
    ) -> Result<Written, CodecError> {
        let Self { first, mut pieces, index, body } = self;
        let mut run = Written::default();
        for (i, entry) in index.as_chunks_mut::<INDEX_ENTRY>().0.iter_mut().enumerate() {
            let (piece, rest) = pieces.deal(CHUNK);
            pieces = rest;
            let written = chunk(first + i, piece, &mut body[run.n_bytes..])?;
            run.n_bytes += written.n_bytes;
            run.blocks += written.blocks;
            *entry = (run.n_bytes as u32).to_le_bytes();
            pace.passed(chunk_len(n_values, first + i));
        }
        Ok(run)
    }
}

/// Values that are divided in order into one piece for each chunk.
pub(crate) trait Pieces: Sized {
    /// Splits off the piece with the first `n_values` values, or with all if there are fewer.
    /// Returns the piece and the rest.
    fn deal(self, n_values: usize) -> (Self, Self);
}

/// No input: the writer needs only the chunk's index.
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

impl<T> Pieces for &mut [T] {
    fn deal(self, n_values: usize) -> (Self, Self) {
        let n_values = n_values.min(self.len());
        self.split_at_mut(n_values)
    }
}

impl<T> Pieces for Values<'_, T> {
    fn deal(self, n_values: usize) -> (Self, Self) {
        self.split(n_values)
    }
}

/// Processes the chunks of `n_values` values in runs. If there are enough chunks, the threads share
/// them, and this function reports them at the end. Otherwise there is one run, which reports each.
pub(crate) fn for_each_run<P: Pieces + Send, E: Send>(
    threads: Threads,
    n_values: usize,
    pieces: P,
    pace: &dyn Pace,
    prepare: &RunWorkers<'_, P, E>,
) -> Result<(), E> {
    #[cfg(feature = "std")]
    if threads.n_for(n_values) > 1 {
        parallel::share(threads, n_values, pieces, prepare)?;
        pace.passed(n_values);
        return Ok(());
    }
    let _ = (threads, n_values);
    let (mut pieces, mut done) = (Some(pieces), Ok(()));
    prepare(&mut |process| {
        if let Some(pieces) = pieces.take() {
            done = process(0, pieces, pace);
        }
    });
    done
}

/// Calls `chunk` for each chunk of a run, and reports it. `first` is the first index.
pub(super) fn for_each_chunk<T, E>(
    first: usize,
    values: &mut [T],
    pace: &dyn Pace,
    mut chunk: impl FnMut(usize, &mut [T]) -> Result<(), E>,
) -> Result<(), E> {
    for (i, values) in values.chunks_mut(CHUNK).enumerate() {
        chunk(first + i, values)?;
        pace.passed(values.len());
    }
    Ok(())
}

/// Returns the number of values in chunk `index` of a segment of `n_values`.
pub(super) fn chunk_len(n_values: usize, index: usize) -> usize {
    (n_values - index * CHUNK).min(CHUNK)
}

/// Payload with a checked header and index.
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

    /// Same as [`parse`](Self::parse), but fails if there are fewer than `n_values` values.
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

    /// Returns the end of chunk `index` in `body`, unchecked.
    fn end(&self, index: usize) -> usize {
        let entry = &self.index[INDEX_ENTRY * index..INDEX_ENTRY * (index + 1)];
        u32::from_le_bytes([entry[0], entry[1], entry[2], entry[3]]) as usize
    }

    /// Returns all bytes from the start of chunk `index` on, and the chunk's length.
    pub(super) fn chunk(&self, index: usize) -> Result<(&'a [u8], usize), DecodeError> {
        let start = if index == 0 { 0 } else { self.end(index - 1) };
        let len = self.end(index).checked_sub(start).ok_or(DecodeError::Damaged)?;
        let bytes = self.body.get(start..).ok_or(DecodeError::Damaged)?;
        Ok((bytes, len))
    }
}
