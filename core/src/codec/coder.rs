//! Codecs with independent chunks: a [`Coder`] writes and reads the values of one chunk, and
//! [`Coded`] makes a codec of it.
//!
//! The container is the same for all chunked payloads (`chunked`). A chunk is a byte that names its
//! form, and then the coder's output. A coder can decline a chunk because a value would break the
//! bound, or because the chunk would not get shorter. The chunk's values are then stored unchanged.
//! A chunk thus takes at most one byte more than its values, and values that a coder cannot
//! represent (NaN, infinities) decode exactly.
//!
//! Reductions are the default ones of [`Codec`]: decode, operate, encode, chunk by chunk.

use super::chunked::{self, CheckedPayload, Container, chunk_len, for_each_chunk, for_each_run};
use super::{Codec, CodecError, CodecId, CodecParams, DecodeError, Pace, Source, Stores, Written};
use crate::bound::Quantum;
use crate::element::Float;
use crate::element::sealed::Wide;
use crate::kernel::at_level::{Task, run};
use crate::kernel::{BLOCK, CHUNK, Level};
use crate::threads::Threads;

/// Form byte of a chunk whose values are stored unchanged.
const VERBATIM: u8 = 0;
/// Form byte of a chunk that its coder wrote.
const CODED: u8 = 1;

/// Parameters from which a coder is made. Bound and step apply to partial results, so they include
/// the weight of operands.
#[derive(Clone, Copy, Debug, Default)]
pub struct CoderParams {
    /// Largest error of a value; 0 if values are exact.
    pub bound: f64,
    /// Spacing of the lattice that keeps the bound; 0 if there is none.
    pub step: f64,
    /// The codec's own parameter, within its range; 0 if it has none.
    pub setting: u16,
}

impl CoderParams {
    /// Returns the exclusive limit for the rounded difference between a value and its decoded
    /// value. A difference below the limit proves that the value is within the bound
    /// (docs/guarantees.md, "The check"). The limit is 0 if there is no bound.
    pub(super) fn limit_of_errors<T: Float>(&self) -> T::Wide {
        let bound = T::Wide::nearest(self.bound);
        if bound.to_f64() > self.bound { bound.next_down() } else { bound }
    }
}

/// Writes and reads chunks of 1 to [`CHUNK`] values, each without access to the others.
pub trait Coder<T: Float>: Copy + core::fmt::Debug + Send + Sync {
    /// The codec that uses this coder.
    const ID: CodecId;

    /// Makes the coder with these parameters.
    fn new(params: &CoderParams) -> Self;

    /// Returns the number that a reader needs from the payload's header: the lattice's spacing or
    /// the codec's setting. 0 if a reader needs none.
    fn parameter(&self) -> f64 {
        0.0
    }

    /// Makes the coder for a payload with this number, which is neither negative nor NaN. `None` if
    /// no writer uses the number.
    fn of_parameter(parameter: f64) -> Option<Self> {
        (parameter == 0.0).then(|| Self::new(&CoderParams::default()))
    }

    /// Writes values to `dst` and returns the number of bytes. `None` if the coder cannot keep its
    /// guarantee for them, or if they do not fit. `dst` is as long as the values themselves. The
    /// caller discards output that is not shorter than the values.
    fn encode(&self, values: &[T], dst: &mut [u8]) -> Option<usize>;

    /// Reads values from all of `src`; `None` if no writer writes such bytes.
    fn decode(&self, src: &[u8], values: &mut [T]) -> Option<()>;
}

/// Returns an array of `N` values: at most `N` given ones, padded with the last of them.
#[inline(always)]
pub(super) fn padded<T: Copy, const N: usize>(values: &[T]) -> [T; N] {
    match values.try_into() {
        Ok(block) => block,
        Err(_) => core::array::from_fn(|i| values[i.min(values.len() - 1)]),
    }
}

/// Codec that consists of a [`Coder`].
#[derive(Clone, Copy, Debug)]
pub struct Coded<T, C> {
    coder: C,
    weight: T,
    level: Level,
    threads: Threads,
}

impl<T: Float, C: Coder<T>> Coded<T, C> {
    /// Makes the codec from parameters.
    #[must_use]
    pub fn from_params(params: &CodecParams) -> Self {
        let weight = T::weight(if params.averages { params.max_operands } else { 1 });
        let quantum = params.quantum.of_type::<T>();
        let scale = if quantum == Quantum::LOSSLESS { 0.0 } else { weight.to_f64() };
        let setting = C::ID.setting(T::DTYPE, params.setting).unwrap_or(0);
        let coder =
            CoderParams { bound: quantum.bound() * scale, step: quantum.step() * scale, setting };
        Self { coder: C::new(&coder), weight, level: params.level, threads: params.threads }
    }

    /// Returns the number that payloads name: the lattice's spacing or the codec's setting.
    #[must_use]
    pub fn parameter(&self) -> f64 {
        self.coder.parameter()
    }

    pub(super) const fn coder(&self) -> &C {
        &self.coder
    }

    fn container(&self) -> Container {
        Container {
            dtype: T::DTYPE,
            operands: 1,
            step: self.coder.parameter(),
            max_chunk_len: max_chunk_len::<T>,
        }
    }

    /// Writes one chunk.
    fn write_chunk(&self, values: &[T], dst: &mut [u8]) -> Written {
        let n_bytes = size_of_val(values);
        let (form, rest) = dst.split_at_mut(1);
        let body = &mut rest[..n_bytes];
        match run(self.level, ChunkEncoder { coder: &self.coder, values, dst: &mut *body }) {
            Some(n_coded) if n_coded < n_bytes => {
                form[0] = CODED;
                Written { n_bytes: 1 + n_coded, ..Written::default() }
            }
            _ => {
                form[0] = VERBATIM;
                body.copy_from_slice(bytemuck::cast_slice(values));
                let mut written = Written { n_bytes: 1 + n_bytes, ..Written::default() };
                written.blocks.verbatim = values.len().div_ceil(BLOCK) as u64;
                written
            }
        }
    }

    /// Reads one whole chunk.
    fn read_chunk(
        &self,
        coder: &C,
        stream: &CheckedPayload<'_, T>,
        index: usize,
        values: &mut [T],
    ) -> Result<(), DecodeError> {
        let (bytes, n_bytes) = stream.chunk(index)?;
        let chunk = bytes.get(..n_bytes).ok_or(DecodeError::Damaged)?;
        match chunk.split_first() {
            Some((&VERBATIM, stored)) if stored.len() == size_of_val(values) => {
                bytemuck::cast_slice_mut(values).copy_from_slice(stored);
                Ok(())
            }
            Some((&CODED, src)) => {
                run(self.level, ChunkDecoder { coder, src, values }).ok_or(DecodeError::Damaged)
            }
            _ => Err(DecodeError::Damaged),
        }
    }
}

fn max_chunk_len<T: Float>(n_values: usize) -> usize {
    1 + n_values * T::BYTES
}

struct ChunkEncoder<'a, T, C> {
    coder: &'a C,
    values: &'a [T],
    dst: &'a mut [u8],
}

impl<T: Float, C: Coder<T>> Task for ChunkEncoder<'_, T, C> {
    type Output = Option<usize>;

    #[inline(always)]
    fn run(self) -> Option<usize> {
        self.coder.encode(self.values, self.dst)
    }
}

struct ChunkDecoder<'a, T, C> {
    coder: &'a C,
    src: &'a [u8],
    values: &'a mut [T],
}

impl<T: Float, C: Coder<T>> Task for ChunkDecoder<'_, T, C> {
    type Output = Option<()>;

    #[inline(always)]
    fn run(self) -> Option<()> {
        self.coder.decode(self.src, self.values)
    }
}

impl<T: Float, C: Coder<T>> Codec<T> for Coded<T, C> {
    fn id(&self) -> CodecId {
        C::ID
    }

    fn max_encoded_len(&self, n_values: usize) -> Option<usize> {
        chunked::max_len(n_values, max_chunk_len::<T>)
    }

    fn weight(&self) -> T {
        self.weight
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
        let (container, threads) = (self.container(), self.threads);
        let encode = |values: &[T], dst: &mut [u8]| self.write_chunk(values, dst);
        match source {
            Source::Input(src) if self.weight != T::ONE => {
                let weighted =
                    |start: usize, out: &mut [T]| Source::Input(src).fill(start, out, self.weight);
                container.write_given(threads, src.len(), &weighted, dst, pace, &encode)
            }
            Source::Input(src) | Source::Partial(src) => container.write_independent(
                threads,
                src.len(),
                src,
                dst,
                pace,
                &|_, values, dst| Ok(encode(&values[..values.len().min(CHUNK)], dst)),
            ),
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
        _: Stores,
        pace: &dyn Pace,
    ) -> Result<(), DecodeError> {
        let stream = CheckedPayload::with_values(src, start + dst.len())?;
        self.read(&stream, start, divisor, dst, pace)
    }
}

impl<T: Float, C: Coder<T>> Coded<T, C> {
    /// Reads values from index `start` on, which is the start of a chunk.
    fn read(
        &self,
        stream: &CheckedPayload<'_, T>,
        start: usize,
        divisor: u32,
        dst: &mut [T],
        pace: &dyn Pace,
    ) -> Result<(), DecodeError> {
        let coder = C::of_parameter(stream.step).ok_or(DecodeError::Damaged)?;
        let read = |index: usize, dst: &mut [T]| {
            let index = start / CHUNK + index;
            let n_values = chunk_len(stream.n_values, index);
            if n_values == dst.len() {
                self.read_chunk(&coder, stream, index, dst)?;
            } else {
                self.read_part(&coder, stream, index, n_values, dst)?;
            }
            T::divide(dst, divisor, self.weight);
            Ok(())
        };
        for_each_run(self.threads, dst.len(), dst, pace, &|work| {
            work(&mut |first, dst, pace| for_each_chunk(first, dst, pace, read));
        })
    }

    /// Reads the first values of a chunk of `n_values`. It is not inlined, so that other paths do
    /// not reserve its buffer on the stack.
    #[cold]
    #[inline(never)]
    fn read_part(
        &self,
        coder: &C,
        stream: &CheckedPayload<'_, T>,
        index: usize,
        n_values: usize,
        dst: &mut [T],
    ) -> Result<(), DecodeError> {
        let mut buffer = [T::ZERO; CHUNK];
        self.read_chunk(coder, stream, index, &mut buffer[..n_values])?;
        dst.copy_from_slice(&buffer[..dst.len()]);
        Ok(())
    }
}
