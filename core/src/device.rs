//! Interface to devices: memory that the host cannot read, and what computes there.
//!
//! A call on device memory ([`Communicator::run_on`](crate::Communicator::run_on)) is the same call
//! as one on slices: same schedules, frames and bytes, so ranks with and without a device can take
//! part in one call. Only the computation differs. The engine asks a [`Device`] for one
//! [`DeviceOp`] at a time and lane, and goes on with other lanes while it is pending. Frames stay
//! in host memory, so only compressed bytes cross the bus: *compress before the bus*.
//!
//! The package `foldwire-cuda` implements [`Device`].

use crate::codec::{CodecId, CodecParams, Written};
use crate::element::DType;
use crate::error::Error;
use crate::op::OpCode;
use core::marker::PhantomData;
use core::task::Poll;

#[cfg(feature = "std")]
pub use crate::page_lock::{FrameLocking, lock_frames};
pub use crate::page_lock::{PageLock, PageLocker, PageLocks};

/// Values in a device's memory. This crate never reads the address.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Region {
    /// Address of the first value, in bytes.
    pub address: u64,
    /// Number of values.
    pub n_values: usize,
}

/// Values of one type in a device's memory, which a call reads or overwrites.
///
/// Use it in a [`Call`](crate::Call) where host calls use slices. The package that implements
/// [`Device`] has owners of memory that lend such values.
#[derive(Debug)]
pub struct DeviceSlice<'m, T> {
    region: Region,
    of: PhantomData<&'m mut [T]>,
}

impl<T> DeviceSlice<'_, T> {
    /// Names `n_values` values at `address`.
    #[must_use]
    pub const fn new(address: u64, n_values: usize) -> Self {
        Self { region: Region { address, n_values }, of: PhantomData }
    }
}

/// A call's buffer of `T` in a device's memory: a [`DeviceSlice`], an owner of memory, or the empty
/// buffer of a call that does not use it. A call keeps it until the device has ended the call.
pub trait OnDevice<T> {
    /// The values without their type. They stay where they are while the buffer lives.
    fn region(&self) -> Region;
}

impl<T> OnDevice<T> for DeviceSlice<'_, T> {
    fn region(&self) -> Region {
        self.region
    }
}

impl<T> OnDevice<T> for &[T; 0] {
    fn region(&self) -> Region {
        Region::default()
    }
}

impl<T> OnDevice<T> for &mut [T; 0] {
    fn region(&self) -> Region {
        Region::default()
    }
}

/// Facts about a call that hold for all of its operations.
#[derive(Clone, Copy, Debug)]
pub struct DeviceCall {
    /// Type of the values.
    pub dtype: DType,
    /// Operation of a reduction.
    pub op: OpCode,
    /// The call's codec and its parameters. Payloads of [`CodecId::Raw`] may occur beside it.
    pub params: CodecParams,
}

/// Values that are encoded or that reduce.
#[derive(Debug)]
pub enum DeviceSource<'p> {
    /// Local values, which are multiplied by the codec's weight.
    Own(Region),
    /// Partial results in device memory.
    Partial(Region),
    /// Partial results as floats in a frame.
    Floats(&'p [u8]),
}

/// Destination of decoded values.
#[derive(Debug)]
pub enum DeviceTarget<'p> {
    /// Device memory.
    Values(Region),
    /// Floats in a frame.
    Floats(&'p mut [u8]),
}

/// One computation on a segment: [`Primitive`](crate::primitive::Primitive)s with their operands.
/// Payloads are bytes in host memory; what is written goes to the front of `to`.
#[derive(Debug)]
pub enum DeviceOp<'p> {
    /// Values → payload.
    Encode {
        /// Values to encode.
        values: DeviceSource<'p>,
        /// Codec of the payload.
        codec: CodecId,
        /// Room for the payload.
        to: &'p mut [u8],
    },
    /// Payload → values, each divided by `divisor` ([`Codec::decode_paced`]).
    ///
    /// [`Codec::decode_paced`]: crate::codec::Codec::decode_paced
    Decode {
        /// The payload.
        payload: &'p [u8],
        /// Codec of the payload.
        codec: CodecId,
        /// Number of operands of an average, otherwise 1.
        divisor: u32,
        /// Where the values go.
        to: DeviceTarget<'p>,
    },
    /// Payload ⊕ local values → payload of the call's codec, which may also be stored
    /// ([`Codec::fold_paced`]).
    ///
    /// [`Codec::fold_paced`]: crate::codec::Codec::fold_paced
    Fold {
        /// The payload.
        payload: &'p [u8],
        /// Local values.
        own: Region,
        /// Place of the result, and the divisor, if it is stored.
        store: Option<(Region, u32)>,
        /// Room for the payload.
        to: &'p mut [u8],
    },
    /// Payload → values, perhaps ⊕ local values → payload of the call's codec
    /// ([`Codec::recode_paced`]).
    ///
    /// [`Codec::recode_paced`]: crate::codec::Codec::recode_paced
    Recode {
        /// The payload, of the call's codec.
        payload: &'p [u8],
        /// Local values.
        own: Option<Region>,
        /// Room for the payload.
        to: &'p mut [u8],
    },
    /// Payload ⊕ payload → payload of the call's codec ([`Homomorphic::combine_paced`]).
    ///
    /// [`Homomorphic::combine_paced`]: crate::codec::Homomorphic::combine_paced
    Combine {
        /// The payloads.
        payloads: [&'p [u8]; 2],
        /// Room for the sum.
        to: &'p mut [u8],
    },
    /// Floats in a frame ⊕ local values, in place.
    FoldFloats {
        /// The floats.
        floats: &'p mut [u8],
        /// Local values.
        own: Region,
    },
    /// Floats in a frame ⊕ the values of a payload, in place.
    Reduce {
        /// The payload.
        payload: &'p [u8],
        /// Codec of the payload.
        codec: CodecId,
        /// The floats.
        floats: &'p mut [u8],
    },
    /// Local values ⊕ the values of a payload → device memory, each divided by `divisor`.
    ReduceStore {
        /// The payload.
        payload: &'p [u8],
        /// Codec of the payload.
        codec: CodecId,
        /// Local values.
        own: Region,
        /// Number of operands of an average, otherwise 1.
        divisor: u32,
        /// Where the result goes. It may be the local values' place, but does not overlap it
        /// otherwise.
        to: Region,
    },
    /// Divides sums in device memory by the number of operands of an average.
    Divide {
        /// The sums.
        values: Region,
        /// Number of operands.
        divisor: u32,
    },
    /// Copies values within device memory. The ranges may overlap.
    Copy {
        /// Values to copy.
        from: Region,
        /// Their destination.
        to: Region,
    },
}

/// Computes on values in a device's memory, in the order of calls for each lane. Only encodes that
/// [begin ahead](Self::encode_ahead) may run at the same time.
pub trait Device {
    /// Returns whether the device can run a call with this codec, type and operation.
    ///
    /// # Errors
    /// [`Error::Device`] if it could, but gives other bytes than the host.
    fn supports(&mut self, codec: CodecId, dtype: DType, op: OpCode) -> Result<bool, Error>;

    /// Begins a call, after all that the caller's own stream has enqueued so far. First waits for
    /// what is still under way of a call that its caller forgot ([`core::mem::forget`]): then no
    /// copy uses that call's frames.
    ///
    /// # Errors
    /// [`Error::Device`].
    fn begin(&mut self) -> Result<(), Error>;

    /// Carries out an operation on `n_values` values for a lane.
    ///
    /// `Pending` means that it is not done yet. The same lane then asks again, with the same
    /// arguments. Until then the device may copy from and to the frames in `op`: nothing else uses
    /// them, nor are they recycled before [`poll_end`](Self::poll_end) is ready.
    fn compute(
        &mut self,
        lane: usize,
        op: DeviceOp<'_>,
        n_values: usize,
        call: &DeviceCall,
    ) -> Poll<Result<Written, Error>>;

    /// Begins an encode of local values ahead, for which the lane will ask
    /// [`compute`](Self::compute) after the operation that is pending, with the same values and
    /// codec. While an encode is pending, the lane names the next ones, in order, and names them
    /// again, also those that have begun. It may ask for other operations between them, and need
    /// not ask for all. Nothing writes the values before the lane has asked, or the call has ended.
    /// The result is the same as without this call.
    ///
    /// Returns whether the encode has begun. If not, the lane names no more for now.
    ///
    /// # Errors
    /// [`Error::Device`].
    fn encode_ahead(
        &mut self,
        lane: usize,
        values: Region,
        codec: CodecId,
        call: &DeviceCall,
    ) -> Result<bool, Error> {
        let _ = (lane, values, codec, call);
        Ok(false)
    }

    /// Copies values to the host, and returns when they are there.
    ///
    /// # Errors
    /// [`Error::Device`].
    fn read(&mut self, values: Region, dtype: DType, to: &mut [u8]) -> Result<(), Error>;

    /// Returns the smallest and the largest finite value, or [∞, −∞] if there is none.
    ///
    /// # Errors
    /// [`Error::Device`].
    fn value_range(&mut self, values: Region, dtype: DType) -> Result<[f64; 2], Error>;

    /// Ends a call, also one that failed. `Pending` while something that was enqueued goes on; the
    /// call then asks again. Once this is ready, no copy uses a frame.
    ///
    /// # Errors
    /// [`Error::Device`].
    fn poll_end(&mut self) -> Poll<Result<(), Error>>;
}
