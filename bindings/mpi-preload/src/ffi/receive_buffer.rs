//! The program's buffer of a receive, and how the values of a compressed message get there.
//!
//! The MPI library receives a compressed message into the program's buffer, as it would receive the
//! message. This costs a look at the first bytes of other messages, and no copy of them.

use std::ffi::c_void;
use std::slice;

use foldwire::DType;

use super::abi::MpiHandle;
use super::library::{MpiApi, MpiErrorCode};
use super::memory::{ArrayRegion, KeptType, Plain};
use crate::call::BufferArgs;
use crate::compressed_message::{Damaged, HEADER_BYTES, Header, Mark, MarkedBytes};
use crate::signature::Signature;

/// Buffer of a receive.
pub(crate) struct ReceiveBuffer {
    start: *mut c_void,
    capacity: usize,
    datatype: MpiHandle,
    signature: Signature,
    _kept: Option<KeptType>,
}

// SAFETY: MPI allows any thread to use the buffer until the receive is complete.
unsafe impl Send for ReceiveBuffer {}

/// Reason why a compressed message could not be opened.
#[derive(Clone, Copy, Debug)]
pub(crate) enum OpenError {
    /// The message is longer than the buffer, which holds its beginning.
    Truncated,
    Damaged,
    Mpi(MpiErrorCode),
}

impl From<Damaged> for OpenError {
    fn from(_: Damaged) -> Self {
        Self::Damaged
    }
}

impl From<MpiErrorCode> for OpenError {
    fn from(code: MpiErrorCode) -> Self {
        Self::Mpi(code)
    }
}

/// Bytes at the start of the program's buffer.
enum Received<'b> {
    Direct(&'b [u8]),
    Packed(MarkedBytes),
}

impl ReceiveBuffer {
    /// The buffer of a receive that the program has passed to the MPI library. The program does not
    /// use it until the receive is complete, and this value must be dropped before that.
    pub(crate) fn new(mpi: &dyn MpiApi, buffer: &BufferArgs) -> Result<Self, MpiErrorCode> {
        let BufferArgs { start, count, datatype, .. } = *buffer;
        let count = usize::try_from(count).unwrap_or(0);
        let mut signature = mpi.signature(datatype)?;
        if signature.is_own && mpi.extent(datatype)? == signature.n_bytes as isize {
            signature.is_dense = true;
        }
        // A null pointer is valid with a datatype that contains absolute addresses.
        signature.is_dense &= !start.is_null();
        let capacity = count.saturating_mul(signature.n_bytes);
        Ok(Self { start, capacity, datatype, signature, _kept: None })
    }

    pub(crate) const fn capacity(&self) -> usize {
        self.capacity
    }

    /// Keeps the datatype, which the program may free before the receive is complete.
    pub(crate) fn with_kept_type(mut self, mpi: &'static dyn MpiApi) -> Result<Self, MpiErrorCode> {
        if !self.signature.is_own {
            let kept = KeptType::of(mpi, self.datatype)?;
            self.datatype = kept.datatype;
            self._kept = Some(kept);
        }
        Ok(self)
    }

    /// Decompresses the received message in the buffer if it is a compressed message, and returns
    /// the bytes of its values. The message has `n_bytes` bytes.
    pub(crate) fn open(
        &mut self,
        mpi: &dyn MpiApi,
        mark: Mark,
        n_bytes: usize,
    ) -> Result<Option<usize>, OpenError> {
        let received = self.received(mpi, n_bytes.min(self.capacity))?;
        let Some(header) = Header::read(received.as_ref(), mark) else { return Ok(None) };
        let payload = header
            .map(|header| (header, received.as_ref()[HEADER_BYTES..][..header.payload].to_vec()));
        drop(received);
        let opened = match payload {
            Ok((header, payload)) => self.store_all(mpi, &header, &payload),
            Err(damaged) => Err(damaged.into()),
        };
        match opened {
            Ok(n_bytes) if n_bytes > self.capacity => Err(OpenError::Truncated),
            Ok(n_bytes) => Ok(Some(n_bytes)),
            Err(error) => {
                self.erase(mpi, mark)?;
                Err(error)
            }
        }
    }

    /// Erases the mark after a receive that has failed: the program may read the buffer, and must
    /// not send the mark to other ranks.
    pub(crate) fn erase(&mut self, mpi: &dyn MpiApi, mark: Mark) -> Result<(), MpiErrorCode> {
        let n_bytes = mark.0.len().min(self.capacity);
        if self.received(mpi, n_bytes)?.as_ref().starts_with(&mark.0) {
            self.overwrite(mpi, &[0; HEADER_BYTES])?;
        }
        Ok(())
    }

    fn received(&self, mpi: &dyn MpiApi, n_bytes: usize) -> Result<Received<'_>, MpiErrorCode> {
        if self.signature.is_dense {
            // SAFETY: the program guarantees the buffer. MPI has written these bytes.
            let bytes = unsafe { slice::from_raw_parts(self.start.cast::<u8>(), n_bytes) };
            return Ok(Received::Direct(bytes));
        }
        self.packed(mpi, n_bytes).map(Received::Packed)
    }

    /// Region of the values that have the first `n_bytes` bytes; the last one may have more.
    fn region(&self, n_bytes: usize) -> (ArrayRegion, usize) {
        let count = n_bytes.div_ceil(self.signature.n_bytes.max(1));
        // SAFETY: the program guarantees the buffer.
        let region = unsafe { ArrayRegion::new(self.start, count, self.datatype, self.signature) };
        (region, count * self.signature.n_bytes)
    }

    fn packed(&self, mpi: &dyn MpiApi, n_bytes: usize) -> Result<MarkedBytes, MpiErrorCode> {
        let (region, n_packed) = self.region(n_bytes);
        let mut packed = MarkedBytes::new(vec![0; n_packed]);
        region.pack_to(mpi, packed.as_mut())?;
        Ok(packed)
    }

    /// Replaces the first bytes of the buffer.
    fn overwrite(&mut self, mpi: &dyn MpiApi, bytes: &[u8]) -> Result<(), MpiErrorCode> {
        let bytes = &bytes[..bytes.len().min(self.capacity)];
        if self.signature.is_dense {
            // SAFETY: the program guarantees the buffer, which has `capacity` bytes.
            let buffer = unsafe { slice::from_raw_parts_mut(self.start.cast::<u8>(), bytes.len()) };
            buffer.copy_from_slice(bytes);
            return Ok(());
        }
        // The last value may have bytes that the message lacks, which stay.
        let mut packed = self.packed(mpi, bytes.len())?;
        packed.as_mut()[..bytes.len()].copy_from_slice(bytes);
        self.region(bytes.len()).0.unpack_from(mpi, packed.as_ref())
    }

    /// Stores the values that fit, and returns the bytes of all.
    fn store_all(
        &mut self,
        mpi: &dyn MpiApi,
        header: &Header,
        payload: &[u8],
    ) -> Result<usize, OpenError> {
        match header.dtype {
            DType::F32 => self.store::<f32>(mpi, header, payload)?,
            _ => self.store::<f64>(mpi, header, payload)?,
        }
        Ok(header.n_bytes)
    }

    fn store<T: Plain>(
        &mut self,
        mpi: &dyn MpiApi,
        header: &Header,
        payload: &[u8],
    ) -> Result<(), OpenError> {
        header.check::<T>(payload)?;
        let start = self.start.cast::<T>();
        if self.signature.is_dense && start.is_aligned() && header.n_bytes <= self.capacity {
            // SAFETY: the program guarantees the buffer, which has space for all values
            // and is aligned. Any bits are a valid value.
            let values = unsafe { slice::from_raw_parts_mut(start, header.n_values()) };
            return Ok(header.decode(payload, values)?);
        }
        let mut values = vec![T::default(); header.n_values()];
        header.decode(payload, &mut values)?;
        Ok(self.overwrite(mpi, bytemuck::cast_slice(&values))?)
    }
}

impl AsRef<[u8]> for Received<'_> {
    fn as_ref(&self) -> &[u8] {
        match self {
            Self::Direct(bytes) => bytes,
            Self::Packed(bytes) => bytes.as_ref(),
        }
    }
}
