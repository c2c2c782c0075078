//! Compressed message: one MPI message with a header and the compressed values of a message of the
//! program. Pure.
//!
//! ```text
//! header (32 bytes): mark (16), bytes of the message (8), bytes of the payload (4), codec, type,
//!                    1 if there is a fill value, 0
//! payload of the codec, fill value (8) if there is one, zeros
//! ```
//!
//! *Mark.* A compressed message has the communicator and the tag of the program's message, and a
//! receiver may not know which of both it gets. It looks for the mark: 128 bits that rank 0 draws
//! from the operating system at start. The program never sees the mark, so a message of the program
//! begins with it with probability 2⁻¹²⁸. [`MarkedBytes`] erases it when a compressed message is
//! dropped, so that memory which the program gets later does not have it either.
//!
//! *Size.* A compressed message is shorter than the program's. So it fits into every buffer that
//! the program's message fits into, and the MPI library reports a message as too long only if it
//! is.

use foldwire::bound::ValueRange;
use foldwire::codec::{CodecExt, CodecId, CodecParams, DecodeError};
use foldwire::{DType, Element, Fill, Float, Quantum, Spacing};

use crate::settings::TransferMode;

/// Bytes of the header.
pub const HEADER_BYTES: usize = 32;
/// The size of a compressed message is a multiple of this, so that no value of a receiver's
/// datatype is received in part.
pub const UNIT: usize = 16;
const MARK_BYTES: usize = 16;
const FILL_BYTES: usize = size_of::<f64>();

/// Mark of all compressed messages of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mark(pub [u8; MARK_BYTES]);

/// Bytes that may begin with the mark. It is erased when they are dropped.
#[derive(Debug, Default)]
pub struct MarkedBytes(Vec<u8>);

/// Message of the program, compressed.
#[derive(Debug)]
pub struct CompressedMessage {
    /// Bytes to send.
    pub bytes: MarkedBytes,
    /// Largest possible error of a value.
    pub error: f64,
}

/// Contents of a compressed message's header.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Header {
    /// Bytes of the message.
    pub n_bytes: usize,
    /// Bytes of the payload.
    pub payload: usize,
    /// Type of the values.
    pub dtype: DType,
    codec: CodecId,
    /// A NaN stands for this value in the payload.
    fill: Option<Fill>,
}

/// The bytes after a mark are no compressed message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Damaged;

impl From<DecodeError> for Damaged {
    fn from(_: DecodeError) -> Self {
        Self
    }
}

impl MarkedBytes {
    /// Wraps bytes that may begin with the mark.
    #[must_use]
    pub const fn new(bytes: Vec<u8>) -> Self {
        Self(bytes)
    }
}

impl AsRef<[u8]> for MarkedBytes {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl AsMut<[u8]> for MarkedBytes {
    fn as_mut(&mut self) -> &mut [u8] {
        &mut self.0
    }
}

impl Drop for MarkedBytes {
    fn drop(&mut self) {
        let n_bytes = self.0.len().min(MARK_BYTES);
        self.0[..n_bytes].fill(0);
        // Keeps the compiler from omitting the write, since nothing reads it.
        std::hint::black_box(&self.0);
    }
}

impl CompressedMessage {
    /// Compresses the values of a message, each within the bound of `mode`. A relative bound refers
    /// to the range of these values. The fill value does not count in it, and keeps its bits.
    /// `least_bytes` is the size of the smallest compressed message. Returns `None` if the
    /// compressed message would not be shorter than the message by a tenth.
    #[must_use]
    pub fn of<T: Float>(
        values: &[T],
        mode: TransferMode,
        (spacing, fill): (Spacing, Option<f64>),
        (mark, least_bytes): (Mark, usize),
    ) -> Option<Self> {
        let fill = match mode {
            TransferMode::Lossy(_) => fill.map(|value| Fill { value, is_number: false }),
            _ => None,
        };
        let marked = fill.and_then(|fill| fill.marked(values));
        let (fill, values) = match &marked {
            Some(marked) => (fill, &marked[..]),
            None => (None, values),
        };
        let quantum = match mode {
            TransferMode::Off | TransferMode::Raw => return None,
            TransferMode::Lossless => Quantum::LOSSLESS,
            TransferMode::Lossy(bound) => {
                let range = if bound.needs_value_range() { ValueRange::of(values) } else { None };
                let absolute = bound.absolute(range).ok()?;
                let quantum = Quantum::with_spacing::<T>(absolute, spacing).ok()?;
                range.map_or(quantum, |range| quantum.suited::<T>(range))
            }
        };
        let id = if quantum.is_lossless() { CodecId::Lossless } else { CodecId::FzLight };
        let codec = id.instance::<T>(&CodecParams::new(quantum));
        let most = codec.as_dyn().max_encoded_len(values.len())?;
        let mut bytes = MarkedBytes(vec![0; HEADER_BYTES + most + FILL_BYTES + UNIT]);
        let payload = codec.as_dyn().encode(values, &mut bytes.0[HEADER_BYTES..]).ok()?.n_bytes;
        let n_bytes = size_of_val(values);
        let end = HEADER_BYTES + payload;
        let fill_bytes = if fill.is_some() { FILL_BYTES } else { 0 };
        let sent = (end + fill_bytes).max(least_bytes).next_multiple_of(UNIT);
        if sent > n_bytes - n_bytes / 10 {
            return None;
        }
        bytes.0.resize(sent, 0);
        bytes.0[end..].fill(0);
        if let Some(Fill { value, .. }) = fill {
            bytes.0[end..end + FILL_BYTES].copy_from_slice(&value.to_le_bytes());
        }
        let header = &mut bytes.0[..HEADER_BYTES];
        header[..16].copy_from_slice(&mark.0);
        header[16..24].copy_from_slice(&(n_bytes as u64).to_le_bytes());
        header[24..28].copy_from_slice(&u32::try_from(payload).ok()?.to_le_bytes());
        header[28..].copy_from_slice(&[id as u8, T::DTYPE as u8, fill.is_some().into(), 0]);
        Some(Self { bytes, error: quantum.bound() })
    }
}

impl Header {
    /// Reads the header of a received message. Returns `None` if the message is no compressed
    /// message.
    ///
    /// # Errors
    /// The header contradicts itself or the message.
    pub fn read(message: &[u8], mark: Mark) -> Option<Result<Self, Damaged>> {
        message.starts_with(&mark.0).then(|| Self::after_mark(message).ok_or(Damaged))
    }

    fn after_mark(message: &[u8]) -> Option<Self> {
        let (header, rest) = message.split_first_chunk::<HEADER_BYTES>()?;
        let n_bytes = u64::from_le_bytes(*header[16..].first_chunk()?);
        let payload = u32::from_le_bytes(*header[24..].first_chunk()?) as usize;
        let codec = CodecId::from_code(header[28])?;
        let dtype = DType::from_code(header[29])?;
        let n_bytes = usize::try_from(n_bytes).ok()?;
        let fill = if header[30] == 0 {
            None
        } else {
            let value = f64::from_le_bytes(*rest.get(payload..)?.first_chunk()?);
            Some(Fill { value, is_number: false })
        };
        let is_sound = payload <= rest.len()
            && n_bytes >= message.len()
            && matches!(dtype, DType::F32 | DType::F64)
            && n_bytes.is_multiple_of(dtype.n_bytes())
            && matches!(codec, CodecId::Lossless | CodecId::FzLight);
        is_sound.then_some(Self { n_bytes, payload, dtype, codec, fill })
    }

    /// Number of values.
    #[must_use]
    pub const fn n_values(&self) -> usize {
        self.n_bytes / self.dtype.n_bytes()
    }

    /// Decompresses the payload to [`n_values`](Self::n_values) values of the message's type.
    ///
    /// # Errors
    /// The payload is damaged, or holds another number of values.
    pub fn decode<T: Element>(&self, payload: &[u8], values: &mut [T]) -> Result<(), Damaged> {
        let codec = self.codec.instance::<T>(&CodecParams::new(Quantum::LOSSLESS));
        codec.as_dyn().decode(payload, 1, values)?;
        if let Some(fill) = self.fill {
            fill.restore(values);
        }
        Ok(())
    }

    /// Checks that the payload holds as many values as the header says, before memory is allocated
    /// for them.
    ///
    /// # Errors
    /// It does not.
    pub fn check<T: Element>(&self, payload: &[u8]) -> Result<(), Damaged> {
        let codec = self.codec.instance::<T>(&CodecParams::new(Quantum::LOSSLESS));
        let n_values = codec.as_dyn().n_values(payload)?;
        if n_values == self.n_values() { Ok(()) } else { Err(Damaged) }
    }
}
