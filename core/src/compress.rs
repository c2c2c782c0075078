//! Compression of arrays to self-describing bytes, for files and for messages of other programs
//! (feature `alloc`).
//!
//! [`compress`] and [`decompress`] convert arrays to bytes and back; [`Info::read`] reads only the
//! header. [`Encoder`] and [`Decoder`] do the same segment by segment, for arrays that do not fit
//! in memory. Neither of them does any I/O.
//!
//! ```text
//! head: magic, version, element type, bound, shape, order of the values in memory, checksum
//! segments of whole rows or planes, at most 2²⁰ values: lengths, codec, checksum, payload
//! end: a segment without values
//! ```
//!
//! Section 4 of docs/format.md specifies the layout. Collectives use another format, which omits
//! everything that both ends know.
//!
//! Cost of an automatic plan: each segment is encoded by `interp`, and by other candidates if a
//! sample says that they may be shorter. `interp` takes a few times as long as `dense`, and more if
//! the array is short. A plan with the codec `dense` is as much faster. Segments go on the threads
//! of rayon's pool (feature `rayon`); the bytes do not depend on their number. With the feature
//! `std` a thread keeps the memory of `interp` for its next segment: for a full one about 15 MB
//! (`f32`) or 25 MB (`f64`), until the thread ends.

mod decoder;
mod encoder;
mod fill;
mod head;
mod interp;
mod numbers;
mod segment;
mod threads;

use crate::bound::{Bound, SuspectedFill};
use crate::codec::{CodecId, DecodeError};
use crate::element::{DType, Element, Float};
use crate::plan::Plan;
use crate::threads::Threads;
use alloc::vec::Vec;

pub use crate::bound::BoundError;
pub use decoder::{Decoder, Payload};
pub use encoder::Encoder;
pub use head::{Info, Layout, MAX_DIMS, Order};

/// Version of the format.
pub const VERSION: u8 = 3;
/// Maximum number of values in a segment.
pub const SEGMENT: usize = 1 << 20;
/// Segments that threads decode together.
const BATCH: usize = 64;
/// Bytes before a segment's payload.
const SEGMENT_HEAD: usize = 24;

/// Reason why an array cannot be compressed as requested.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum CompressError {
    /// The bound is unusable.
    #[error(transparent)]
    Bound(#[from] BoundError),
    /// The codec does not support the element type.
    #[error("codec {} is not for {dtype}; choose another one, or let it be chosen", codec.name())]
    Type {
        /// The requested codec.
        codec: CodecId,
        /// Type of the values.
        dtype: DType,
    },
    /// The codec does not have this setting for the element type.
    #[error("codec {} has no setting {setting} for {dtype}; 0 is its default", codec.name())]
    Setting {
        /// The requested codec.
        codec: CodecId,
        /// The requested setting.
        setting: u16,
        /// Type of the values.
        dtype: DType,
    },
    /// The plan rounds without bias, or bounds a result.
    #[error("compressed arrays have a bound on each value, and are rounded to nearest")]
    Unsupported,
    /// The codec, whose loss is its setting, does not keep the marks of fill values.
    #[error("codec {} keeps no fill values; choose a codec within a bound", codec.name())]
    Fill {
        /// The requested codec.
        codec: CodecId,
    },
    /// A value seems to be a fill value, and the plan [refuses](Plan::refusing_fill) such data.
    #[error("{}", SuspectedFill(*value))]
    SuspectedFill {
        /// The value.
        value: f64,
    },
    /// The number of values is not that of the shape.
    #[error("there are {found} values, but the shape has {expected}")]
    Count {
        /// Number of values.
        found: u64,
        /// Product of the dimensions; 2⁶⁴ − 1 if it overflows.
        expected: u64,
    },
    /// The shape has more than [`MAX_DIMS`] dimensions.
    #[error("the shape has {n_dims} dimensions; at most 64 can be stored")]
    Dimensions {
        /// Number of dimensions.
        n_dims: usize,
    },
}

/// Reason why bytes could not be decompressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DecompressError {
    /// The bytes do not begin with the magic number that [`compress`] writes.
    #[error("these bytes were not made by `compress`")]
    NotCompressed,
    /// This version does not know the element type.
    #[error("element type code {code} is unknown to this version of Foldwire")]
    UnknownType {
        /// The code found.
        code: u8,
    },
    /// This version does not know the codec of a segment.
    #[error("codec code {code} is unknown to this version of Foldwire")]
    UnknownCodec {
        /// The code found.
        code: u8,
    },
    /// The checksum does not match the bytes.
    #[error("the checksum does not match: the bytes were damaged")]
    Checksum,
    /// Something follows the end of the array.
    #[error("{n_bytes} bytes follow the end of the compressed array")]
    Trailing {
        /// Number of bytes.
        n_bytes: u64,
    },
    /// The values do not fit into memory.
    #[error("no memory for {n_values} values")]
    Memory {
        /// Number of values in the array.
        n_values: u64,
    },
    /// The bytes end early, contradict themselves, or hold another element type.
    #[error(transparent)]
    Decode(#[from] DecodeError),
}

/// Compresses values, each within the error bound, as [`Plan::auto`] does for [`compress_with`].
///
/// Relative bounds and PSNR refer to the range of these values. Values that are not finite keep
/// their bits (docs/guarantees.md, section 1). A fill value such as 1e20 counts in the range unless
/// the layout names it; [`compress_bytes`] tells of one.
///
/// # Errors
/// - [`BoundError::NotPositive`] if the bound is zero, negative, NaN or infinite.
/// - [`BoundError::BeyondRange`] if a relative bound is above 1.
///
/// # Examples
/// ```
/// use foldwire::{Bound, compress, decompress};
///
/// let values: Vec<f64> = (0..10_000).map(|i| (f64::from(i) * 1e-3).sin()).collect();
/// let bytes = compress(&values, Bound::Absolute(1e-6))?;
/// assert!(bytes.len() < 8 * values.len() / 3);
/// let restored: Vec<f64> = decompress(&bytes)?;
/// assert!(values.iter().zip(&restored).all(|(x, y)| (x - y).abs() <= 1e-6));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn compress<T: Float>(values: &[T], bound: Bound) -> Result<Vec<u8>, CompressError> {
    compress_with(values, &Layout::line(values.len()), &Plan::auto(bound))
}

/// Compresses an array by a plan: its bound, codec, setting, spacing and prediction count.
///
/// [`Plan::auto`] takes the codec that makes a segment shortest, among those that keep a bound and
/// are worth it, and exact ones; [`Plan::lossless`] takes an exact one, any other plan its own.
/// Segments that the codec does not make shorter are stored unchanged. Integers are always exact.
/// The layout describes the array; it tells codecs which values are neighbours, unless it has one
/// dimension and the plan has a [shape](Plan::with_shape).
///
/// # Errors
/// [`CompressError`] if the plan's bound is unusable, if its codec does not support the type, if
/// the layout has another number of values, or if the plan refuses a suspected fill value.
///
/// # Examples
/// ```
/// use foldwire::compress::{Info, Layout, compress_with};
/// use foldwire::{Bound, Plan, codec::CodecId};
///
/// let values = vec![1.5_f32; 6000];
/// let plan = Plan::foldwire(Bound::Absolute(0.1)).with_codec(CodecId::FzNd);
/// let bytes = compress_with(&values, &Layout::new(&[60, 100]), &plan)?;
/// assert_eq!(Info::read(&bytes)?.layout.shape, [60, 100]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn compress_with<T: Element>(
    values: &[T],
    layout: &Layout,
    plan: &Plan,
) -> Result<Vec<u8>, CompressError> {
    Ok(compress_bytes(T::DTYPE, bytemuck::cast_slice(values), layout, plan)?.0)
}

/// Same as [`compress_with`], for the memory of values of any type. Also returns a value that seems
/// to be a fill value ([`Encoder::suspected_fill`]).
///
/// # Errors
/// As [`compress_with`].
///
/// # Panics
/// If the bytes are not aligned for the type, or not a whole number of values.
pub fn compress_bytes(
    dtype: DType,
    values: &[u8],
    layout: &Layout,
    plan: &Plan,
) -> Result<(Vec<u8>, Option<f64>), CompressError> {
    let mut bytes = Vec::new();
    let layout = &layout.filled_by(plan);
    let scan = || layout.value_range(dtype, values);
    let value_range = if plan.needs_value_range() { scan() } else { None };
    let mut encoder = Encoder::new(dtype, layout, plan, value_range, &mut bytes)?;
    encoder.search_fill(values);
    encoder.check_fill()?;
    encoder.encode_bytes(values, &mut bytes);
    let suspected_fill = encoder.suspected_fill();
    encoder.finish(&mut bytes)?;
    Ok((bytes, suspected_fill))
}

/// Returns the largest number of bytes that [`compress`] can return for `n_values` values of this
/// type; `None` if it overflows `usize`. Each dimension of a [`Layout`] but the first adds 8 bytes,
/// and so does a fill value.
///
/// # Examples
/// ```
/// use foldwire::{Bound, DType, compress, compress::max_compressed_len};
///
/// let bytes = compress(&[f32::NAN; 1000], Bound::Absolute(1.0))?;
/// assert!(max_compressed_len(1000, DType::F32).is_some_and(|most| bytes.len() <= most));
/// # Ok::<(), foldwire::compress::CompressError>(())
/// ```
#[must_use]
pub fn max_compressed_len(n_values: usize, dtype: DType) -> Option<usize> {
    // Segments of whole rows or planes are more than half as long as others.
    let heads = SEGMENT_HEAD * (n_values.div_ceil(SEGMENT / 2) + 1) + head::n_bytes(1, true);
    n_values.checked_mul(dtype.n_bytes())?.checked_add(heads)
}

/// Decompresses bytes that [`compress`] made. Each value is within the bound of its original.
///
/// The function verifies the sizes and the checksums before it allocates memory for the values. But
/// some 100 bytes can describe a segment of 2²⁰ equal values. If you read bytes from an untrusted
/// source, check [`Info::n_values`] first.
///
/// # Errors
/// [`DecompressError`] if the bytes are not a complete, undamaged array of `T`, or if the values do
/// not fit into memory.
pub fn decompress<T: Element>(bytes: &[u8]) -> Result<Vec<T>, DecompressError> {
    let mut decoder = Decoder::new();
    let (mut rest, mut payloads, mut n_values) = (bytes, Vec::new(), 0_u64);
    while !decoder.is_finished() {
        let payload = decoder.read(&mut rest)?;
        match decoder.info().map(|info| info.dtype) {
            Some(found) if found != T::DTYPE => {
                let (found, expected) = (found as u8, T::DTYPE);
                return Err(DecodeError::Type { found, expected }.into());
            }
            _ => {}
        }
        n_values += payload.as_ref().map_or(0, |payload: &Payload<'_>| payload.n_values() as u64);
        payloads.extend(payload);
    }
    if !rest.is_empty() {
        return Err(DecompressError::Trailing { n_bytes: rest.len() as u64 });
    }
    let mut values = Vec::new();
    let reserved = usize::try_from(n_values).map(|n_values| values.try_reserve_exact(n_values));
    if !matches!(reserved, Ok(Ok(()))) {
        return Err(DecompressError::Memory { n_values });
    }
    let threads = Threads::default();
    if !threads::are_for(threads, payloads.len()) {
        payloads.iter().try_for_each(|payload| payload.append_to(&mut values))?;
        return Ok(values);
    }
    // Until a payload proves to be damaged, memory is written for a batch only.
    payloads.chunks(BATCH).try_for_each(|batch| decode_batch(threads, batch, &mut values))?;
    Ok(values)
}

/// Decodes payloads on several threads, and appends their values.
fn decode_batch<T: Element>(
    threads: Threads,
    payloads: &[Payload<'_>],
    values: &mut Vec<T>,
) -> Result<(), DecodeError> {
    let (start, n_values) = (values.len(), payloads.iter().map(Payload::n_values).sum::<usize>());
    values.resize(start + n_values, T::ZERO);
    decode_payloads(threads, payloads, bytemuck::cast_slice_mut(&mut values[start..]))
}

/// Decodes consecutive payloads of one array, each on one of these threads, into the memory of
/// their values.
///
/// # Errors
/// [`DecodeError`] if a payload is damaged.
///
/// # Panics
/// As [`Payload::decode_bytes`].
pub fn decode_payloads(
    threads: Threads,
    payloads: &[Payload<'_>],
    values: &mut [u8],
) -> Result<(), DecodeError> {
    let n_bytes = payloads.iter().map(Payload::n_bytes).sum::<usize>();
    assert_eq!(values.len(), n_bytes, "memory for all values");
    let (mut rest, mut parts) = (values, Vec::with_capacity(payloads.len()));
    for payload in payloads {
        let (part, others) = rest.split_at_mut(payload.n_bytes());
        parts.push((payload, part));
        rest = others;
    }
    if !threads::are_for(threads, parts.len()) {
        return parts.into_iter().try_for_each(|(payload, part)| payload.decode_on(threads, part));
    }
    let decode = |(): &mut (), (payload, part): (&Payload<'_>, &mut [u8])| {
        payload.decode_on(Threads::ONE, part)
    };
    threads::map(threads, parts, &|| (), &decode).into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Neither a fill value of the plan, nor one beside a NaN with the bits of its mark, counts in
    /// the range.
    #[test]
    fn no_fill_value_counts_in_the_range() {
        let mut values: Vec<f32> = (0..5000).map(|i| (i as f32 * 0.01).sin()).collect();
        values[7..40].fill(1e20);
        let plan = Plan::auto(crate::Bound::Relative(1e-3));
        let line = Layout::line(values.len());
        for mark in [0.5, f32::from_bits(0x7fc0_003a)] {
            values[100] = mark;
            for (layout, plan) in
                [(line.clone().with_fill(1e20), plan), (line.clone(), plan.with_fill(1e20))]
            {
                let bytes = compress_with(&values, &layout, &plan).unwrap();
                let info = Info::read(&bytes).unwrap();
                assert!(info.bound <= 2e-3 && info.layout.fill_value == Some(1e20), "{info:?}");
                let restored: Vec<f32> = decompress(&bytes).unwrap();
                for (x, y) in values.iter().zip(restored) {
                    let is_same = x.to_bits() == y.to_bits();
                    assert!(is_same || (x - y).abs() <= 2e-3, "{x}: {y}");
                }
            }
        }
    }

    #[test]
    fn only_bytes_are_truth_values() {
        let layout = Layout { is_bool: true, ..Layout::line(3) };
        let bytes = compress_with(&[1.0_f32, 2.0, 3.0], &layout, &Plan::lossless()).unwrap();
        assert_eq!(decompress::<f32>(&bytes).unwrap(), [1.0, 2.0, 3.0]);
        let bytes = compress_with(&[1_u8, 0, 1], &layout, &Plan::lossless()).unwrap();
        assert!(Info::read(&bytes).unwrap().layout.is_bool);
    }

    /// An array shorter than a segment is encoded only when it ends.
    #[test]
    fn a_fill_value_is_suspected_in_short_and_in_long_arrays() {
        for n_values in [100, SEGMENT + 5, 3 * SEGMENT] {
            let mut values: Vec<f32> = (0..n_values).map(|i| (i as f32 * 0.01).sin()).collect();
            values[7..40].fill(-9999.0);
            let layout = Layout::line(n_values);
            let plan = Plan::auto(crate::Bound::Relative(1e-2));
            let bytes = bytemuck::cast_slice(&values);
            let compressed = compress_bytes(DType::F32, bytes, &layout, &plan);
            let fill = compressed.expect("these values can be compressed").1;
            assert_eq!(fill, Some(-9999.0), "{n_values} values");
            let refused = Err(CompressError::SuspectedFill { value: -9999.0 });
            assert_eq!(compress_bytes(DType::F32, bytes, &layout, &plan.refusing_fill()), refused);
            // Piece by piece, it is found only when the array ends.
            let (range, plan) = (layout.value_range(DType::F32, bytes), plan.refusing_fill());
            let (mut out, mut short) = (Vec::new(), Vec::new());
            let mut encoder = Encoder::new(DType::F32, &layout, &plan, range, &mut out).unwrap();
            values.chunks(50).for_each(|piece| encoder.encode(piece, &mut out));
            assert_eq!(encoder.finish(&mut out).err(), refused.clone().err());
            // A named one is not suspected.
            let named = layout.with_fill(-9999.0);
            short.extend(compress_bytes(DType::F32, bytes, &named, &plan).unwrap().0);
            assert!(Info::read(&short).unwrap().bound <= 0.02);
        }
    }

    /// A fill value may occur once in each piece.
    #[test]
    fn pieces_do_not_change_what_is_suspected() {
        let mut values: Vec<f32> = (0..4000).map(|i| (i as f32 * 0.01).sin() * 12.0).collect();
        (0..4000).step_by(1000).for_each(|i| values[i] = 1e6);
        let bytes: &[u8] = bytemuck::cast_slice(&values);
        let layout = Layout::line(values.len());
        let plan = Plan::auto(crate::Bound::Relative(1e-6)).refusing_fill();
        let range = layout.value_range(DType::F32, bytes);
        let refused = CompressError::SuspectedFill { value: 1e6 };
        for n in [4, 1000, 4000, 16_000] {
            let mut out = Vec::new();
            let mut encoder = Encoder::new(DType::F32, &layout, &plan, range, &mut out).unwrap();
            bytes.chunks(n).for_each(|piece| encoder.search_fill(piece));
            assert_eq!(encoder.check_fill(), Err(refused), "searched by {n} bytes");
            let mut encoder = Encoder::new(DType::F32, &layout, &plan, range, &mut out).unwrap();
            bytes.chunks(n).for_each(|piece| encoder.encode_bytes(piece, &mut out));
            assert_eq!(encoder.finish(&mut out).err(), Some(refused), "by {n} bytes");
        }
        // The encoder does not count again the values that were searched.
        (0..4000).for_each(|i| values[i] = (i as f32 * 0.01).sin() * 12.0);
        values[3000] = 1e6;
        compress_with(&values, &layout, &plan).expect("a single value may be a real one");
    }

    #[test]
    fn what_cannot_be_compressed_takes_no_more_than_the_most() {
        // Arbitrary bits, which do not compress: the finalizer of MurmurHash3.
        let bits = |i: usize| {
            let mixed = (i as u32 ^ i as u32 >> 16).wrapping_mul(0x85eb_ca6b);
            let mixed = (mixed ^ mixed >> 13).wrapping_mul(0xc2b2_ae35);
            mixed ^ mixed >> 16
        };
        for n_values in [0, 1, 31, 4097, SEGMENT, SEGMENT + 1] {
            let most = max_compressed_len(n_values, DType::F32).unwrap();
            let values: Vec<f32> = (0..n_values).map(|i| f32::from_bits(bits(i))).collect();
            let bytes = compress_with(&values, &Layout::line(n_values), &Plan::lossless());
            let n_bytes = bytes.unwrap().len();
            assert!(n_bytes <= most && most <= n_bytes + n_bytes / 4 + 8, "{n_values}: {n_bytes}");
        }
        assert_eq!(max_compressed_len(usize::MAX, DType::F64), None);
    }

    #[cfg(feature = "rayon")]
    #[test]
    fn the_number_of_threads_does_not_change_a_bit() {
        let values: Vec<f32> = (0..5 * SEGMENT / 2).map(|i| (i as f32 * 1e-3).sin()).collect();
        let layout = Layout::line(values.len());
        let bound = Bound::Absolute(1e-3);
        let dense = Plan::foldwire(bound).with_codec(CodecId::Dense);
        // The first segment has the mark of the fill value among its values, so it is stored raw.
        let mut marked = values.clone();
        (marked[3], marked[4]) = (1e20, f32::from_bits(0x7fc0_003a));
        let filled = Plan::auto(bound).with_fill(1e20);
        for (values, plan) in [
            (&values, Plan::auto(bound)),
            (&values, dense),
            (&values, Plan::lossless()),
            (&marked, filled),
        ] {
            let all = [1, 2, 4].map(|n_threads| {
                let pool = rayon::ThreadPoolBuilder::new().num_threads(n_threads).build().unwrap();
                pool.install(|| {
                    let bytes = compress_with(values, &layout, &plan).unwrap();
                    let restored: Vec<f32> = decompress(&bytes).unwrap();
                    (bytes, restored.into_iter().map(f32::to_bits).collect::<Vec<_>>())
                })
            });
            assert!(all.iter().all(|one| *one == all[0]));
        }
    }
}
