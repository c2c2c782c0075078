//! Compression of arrays to self-describing bytes, for files and for messages of other programs
//! (feature `alloc`).
//!
//! [`compress`] and [`decompress`] convert arrays to bytes and back; [`Info::read`] reads only the
//! header.
//!
//! ```text
//! header (40 bytes): magic, version, element type, count, step, bound, checksum
//! segments of 2²⁰ values: length (4 bytes), payload of fZ-light (docs/format.md, section 2)
//! ```
//!
//! Section 4 of docs/format.md specifies the layout. Collectives use another format, which omits
//! everything that both ends know.
//!
//! Cost: one pass of [`FzLight`], a copy of the compressed bytes, and a checksum over them.

use crate::bound::{Bound, BoundError, Quantum, ValueRange};
use crate::codec::{Codec, CodecExt, DecodeError, FzLight};
use crate::element::{DType, Float};
use alloc::vec::Vec;
use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

/// Version of the format.
pub const VERSION: u8 = 1;
/// Size of the header, in bytes. The first segment follows it.
pub const HEAD_BYTES: usize = 40;
const MAGIC: [u8; 4] = *b"FWZ1";
const CHECKSUM_AT: usize = 32;
const LENGTH_BYTES: usize = 4;
/// Number of values in each segment. The last segment may be shorter.
const SEGMENT: usize = 1 << 20;

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
    /// The checksum does not match the bytes.
    #[error("the checksum does not match: the bytes were damaged")]
    Checksum,
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

/// Contents of the header of compressed bytes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Info {
    /// Type of the values.
    pub dtype: DType,
    /// Number of values.
    pub n_values: u64,
    /// Spacing of the lattice; 0 if every bit is kept.
    pub step: f64,
    /// Largest error of a finite value; 0 if every bit is kept.
    pub bound: f64,
}

impl Info {
    /// Reads the header. It does not check the segments: [`decompress`] does.
    ///
    /// # Errors
    /// [`DecompressError`] if the bytes do not begin with a valid header, or if this library does
    /// not know its version or element type.
    pub fn read(bytes: &[u8]) -> Result<Self, DecompressError> {
        let have = bytes.len();
        if bytes[..have.min(MAGIC.len())] != MAGIC[..have.min(MAGIC.len())] {
            return Err(DecompressError::NotCompressed);
        }
        let head: &[u8; HEAD_BYTES] =
            bytes.first_chunk().ok_or(DecodeError::Truncated { need: HEAD_BYTES, have })?;
        if head[4] != VERSION {
            return Err(DecodeError::Version { version: head[4] }.into());
        }
        let dtype = DType::from_code(head[5])
            .filter(|dtype| dtype.is_float())
            .ok_or(DecompressError::UnknownType { code: head[5] })?;
        let (step, bound) = (f64::from_bits(u64_at(head, 16)), f64::from_bits(u64_at(head, 24)));
        let is_sound = step >= 0.0 && bound >= 0.0 && (step == 0.0) == (bound == 0.0);
        if head[6..8] != [0; 2] || !is_sound || !step.is_finite() || !bound.is_finite() {
            return Err(DecodeError::Damaged.into());
        }
        Ok(Self { dtype, n_values: u64_at(head, 8), step, bound })
    }

    fn emit<T: Float>(quantum: Quantum, n_values: usize) -> [u8; HEAD_BYTES] {
        let mut head = [0; HEAD_BYTES];
        head[..4].copy_from_slice(&MAGIC);
        head[4] = VERSION;
        head[5] = T::DTYPE as u8;
        head[8..16].copy_from_slice(&(n_values as u64).to_le_bytes());
        head[16..24].copy_from_slice(&quantum.step().to_le_bytes());
        head[24..32].copy_from_slice(&quantum.bound().to_le_bytes());
        head
    }
}

fn u64_at(head: &[u8; HEAD_BYTES], at: usize) -> u64 {
    let mut word = [0; 8];
    word.copy_from_slice(&head[at..at + 8]);
    u64::from_le_bytes(word)
}

/// Returns the checksum of the segments, seeded with the checksum of the header, so that it covers
/// both.
fn checksum(bytes: &[u8]) -> u64 {
    let (head, segments) = bytes.split_at(HEAD_BYTES);
    xxh3_64_with_seed(segments, xxh3_64(&head[..CHECKSUM_AT]))
}

/// Compresses values, each within the error bound.
///
/// Relative bounds and PSNR refer to the range of these values. Values that are not finite keep
/// their bits (docs/guarantees.md, section 1).
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
pub fn compress<T: Float>(values: &[T], bound: Bound) -> Result<Vec<u8>, BoundError> {
    bound.check_on_operands()?;
    let value_range = if bound.needs_value_range() { ValueRange::of(values) } else { None };
    Ok(compress_with(values, bound.quantum::<T>(value_range)?))
}

/// Compresses values on a given lattice.
///
/// For example, a lattice of whole numbers ([`Spacing::PowerOfTwo`](crate::Spacing::PowerOfTwo))
/// keeps counts exact, and [`Quantum::LOSSLESS`] keeps every bit.
///
/// # Panics
/// If memory runs out.
#[must_use]
pub fn compress_with<T: Float>(values: &[T], quantum: Quantum) -> Vec<u8> {
    let codec = FzLight::<T>::new(quantum, 1);
    let mut bytes = Vec::from(Info::emit::<T>(codec.quantum(), values.len()));
    let longest = codec.max_encoded_len(values.len().min(SEGMENT));
    let mut room = alloc::vec![0; longest.expect("a segment always fits a payload")];
    for segment in values.chunks(SEGMENT) {
        let written = codec.encode(segment, &mut room).expect("the buffer fits the worst case");
        bytes.extend_from_slice(&(written.n_bytes as u32).to_le_bytes());
        bytes.extend_from_slice(&room[..written.n_bytes]);
    }
    let checksum = checksum(&bytes);
    bytes[CHECKSUM_AT..HEAD_BYTES].copy_from_slice(&checksum.to_le_bytes());
    bytes
}

/// Returns the largest number of bytes that [`compress`] can return for `n_values` values of `T`;
/// `None` if it overflows `usize`.
///
/// # Examples
/// ```
/// use foldwire::{Bound, compress, compress::max_compressed_len};
///
/// let bytes = compress(&[f32::NAN; 1000], Bound::Absolute(1.0))?;
/// assert!(max_compressed_len::<f32>(1000).is_some_and(|most| bytes.len() <= most));
/// # Ok::<(), foldwire::bound::BoundError>(())
/// ```
#[must_use]
pub fn max_compressed_len<T: Float>(n_values: usize) -> Option<usize> {
    let codec = FzLight::<T>::new(Quantum::LOSSLESS, 1);
    let segment = |n_values| codec.max_encoded_len(n_values)?.checked_add(LENGTH_BYTES);
    let whole = segment(SEGMENT)?.checked_mul(n_values / SEGMENT)?;
    let rest = match n_values % SEGMENT {
        0 => 0,
        rest => segment(rest)?,
    };
    HEAD_BYTES.checked_add(whole)?.checked_add(rest)
}

/// Decompresses bytes that [`compress`] made. Each value is within the bound of its original.
///
/// The function verifies the sizes and the checksum before it allocates memory for the values.
/// Hostile bytes can describe at most 4096 values for each 4 bytes. If you read bytes from an
/// untrusted source, check [`Info::n_values`] first.
///
/// # Errors
/// [`DecompressError`] if the bytes are not a complete, undamaged array of `T`, or if the values do
/// not fit into memory.
pub fn decompress<T: Float>(bytes: &[u8]) -> Result<Vec<T>, DecompressError> {
    let info = Info::read(bytes)?;
    if info.dtype != T::DTYPE {
        let (found, expected) = (info.dtype as u8, T::DTYPE);
        return Err(DecodeError::Type { found, expected }.into());
    }
    for payload in PayloadIter::of(bytes, info.n_values) {
        payload?;
    }
    let head: &[u8; HEAD_BYTES] = bytes.first_chunk().ok_or(DecodeError::Damaged)?;
    if checksum(bytes) != u64_at(head, CHECKSUM_AT) {
        return Err(DecompressError::Checksum);
    }
    let codec = FzLight::<T>::new(Quantum::LOSSLESS, 1);
    for payload in PayloadIter::of(bytes, info.n_values) {
        let (payload, expected) = payload?;
        codec.expect_values(payload, expected)?;
        if codec.operands(payload)? != 1 || codec.step(payload)?.to_bits() != info.step.to_bits() {
            return Err(DecodeError::Damaged.into());
        }
    }
    let mut values = Vec::new();
    let no_memory = DecompressError::Memory { n_values: info.n_values };
    let n_values = usize::try_from(info.n_values).map_err(|_| no_memory)?;
    values.try_reserve_exact(n_values).map_err(|_| no_memory)?;
    for payload in PayloadIter::of(bytes, info.n_values) {
        let (payload, n_values) = payload?;
        let start = values.len();
        values.resize(start + n_values, T::ZERO);
        codec.decode(payload, 1, &mut values[start..])?;
    }
    Ok(values)
}

/// Iterator over the payloads after the header, each with its expected number of values.
///
/// It returns an error if bytes are missing, or left over at the end.
struct PayloadIter<'a> {
    rest: &'a [u8],
    n_values: u64,
    ended: bool,
}

impl<'a> PayloadIter<'a> {
    /// `bytes` must begin with a header.
    fn of(bytes: &'a [u8], n_values: u64) -> Self {
        Self { rest: &bytes[HEAD_BYTES..], n_values, ended: false }
    }

    fn take(&mut self, n_bytes: usize) -> Result<&'a [u8], DecodeError> {
        let truncated = DecodeError::Truncated { need: n_bytes, have: self.rest.len() };
        let (taken, rest) = self.rest.split_at_checked(n_bytes).ok_or(truncated)?;
        self.rest = rest;
        Ok(taken)
    }

    fn next_payload(&mut self) -> Result<(&'a [u8], usize), DecodeError> {
        let mut length = [0; LENGTH_BYTES];
        length.copy_from_slice(self.take(LENGTH_BYTES)?);
        let payload = self.take(u32::from_le_bytes(length) as usize)?;
        let n_values = self.n_values.min(SEGMENT as u64);
        self.n_values -= n_values;
        Ok((payload, n_values as usize))
    }
}

impl<'a> Iterator for PayloadIter<'a> {
    type Item = Result<(&'a [u8], usize), DecodeError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.ended {
            return None;
        }
        let item = match self.n_values {
            0 if self.rest.is_empty() => None,
            0 => Some(Err(DecodeError::Damaged)),
            _ => Some(self.next_payload()),
        };
        self.ended = !matches!(item, Some(Ok(_)));
        item
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_compressed_takes_no_more_than_the_most() {
        // Arbitrary bits, which do not compress.
        let bits = |i: usize| (i as u32).wrapping_mul(2_654_435_761);
        for n_values in [0, 1, 31, 4097, SEGMENT, SEGMENT + 1] {
            let most = max_compressed_len::<f32>(n_values).unwrap();
            let values: Vec<f32> = (0..n_values).map(|i| f32::from_bits(bits(i))).collect();
            let n_bytes = compress(&values, Bound::Absolute(1e-3)).unwrap().len();
            assert!(n_bytes <= most && most <= 2 * n_bytes + 4096, "{n_values}: {n_bytes}");
        }
        assert_eq!(max_compressed_len::<f64>(usize::MAX), None);
    }
}
