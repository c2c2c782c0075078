//! Arrays in the memory of a device.
//!
//! A communicator remembers where the arrays of its collectives are. A call on device memory
//! borrows a workspace of the process for as long as it runs (`foldwire_cuda::pool`). The CPU never
//! reads such an array. Without the feature `cuda`, no communicator can have device memory.

use std::ops::Range;

use foldwire::device::Device;

use super::call::CoreCommunicator;
use super::memory::read;
use super::types::*;
use crate::errors::{ApiError, catch_errors};
use crate::{group, handle_table};

/// Memory with the default of every member.
const HOST: fwMemory = fwMemory {
    size: size_of::<fwMemory>(),
    kind: FW_MEMORY_HOST,
    device: 0,
    stream: std::ptr::null_mut(),
};

/// Where the arrays of a call are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ArrayMemory {
    /// Memory that the CPU reads.
    #[default]
    Host,
    /// Memory of a device.
    Device(DeviceStream),
}

/// A device, and the stream on which the caller uses its memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceStream {
    /// Number of the device.
    pub device: usize,
    /// The driver's handle of the stream. `None`: the arrays are ready when a call starts.
    pub stream: Option<u64>,
}

impl ArrayMemory {
    /// Refuses messages between two ranks, whose arrays the CPU reads.
    ///
    /// # Errors
    /// If the memory is a device's.
    pub(crate) fn refuse_messages(self) -> Result<(), ApiError> {
        self.refuse("messages between two ranks")
    }

    /// Refuses calls that need arrays in the host's memory.
    pub(crate) fn refuse(self, what: &str) -> Result<(), ApiError> {
        match self {
            Self::Host => Ok(()),
            Self::Device(_) => {
                let message = format!(
                    "{what} need host memory; copy the array to the host and call fwCommSetMemory \
                     with NULL, or use a collective"
                );
                Err(ApiError::new(FW_UNSUPPORTED, message))
            }
        }
    }
}

/// Returns the device's words about an error of the call, if it has any.
pub(crate) type Explain = Box<dyn Fn() -> Option<String> + Send>;

/// A device that is lent to a call.
pub(crate) struct LentDevice {
    pub(crate) device: Box<dyn Device>,
    pub(crate) explain: Explain,
}

/// A copy within a device: the addresses of its bytes, and where they go. The two do not overlap.
pub(crate) type DeviceCopy = (Range<usize>, usize);

/// Sets where the arrays of this rank's later collectives on comm are; NULL: in host memory, as at
/// first. The other ranks need not use the same kind of memory, except in a group of all-reduces,
/// and with FW_AUTO, which compresses by fz-light on a device. Communicators that are made from
/// comm later take it over. Not allowed in a group.
///
/// With FW_MEMORY_DEVICE, all arrays of a collective are in the memory of that device. They are
/// compressed and reduced there, and only compressed bytes come to the host. A call waits for what
/// the stream had to do when the call was started, and the host waits for the call as always: when
/// it has finished, so has all that it did on the device. No call waits for the whole device.
/// Barriers work as before. Results are the bytes that a call on host memory gives.
///
/// FW_UNSUPPORTED is returned here if the library was built without devices, or if the driver or
/// the device is missing, and FW_DEVICE_ERROR if the device is there and cannot be opened. Calls
/// return FW_UNSUPPORTED for a codec or an operation that the device lacks, such as one of
/// fwRedOpCreate. Messages always return it. fwCompress and fwDecompress work on host memory.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fwCommSetMemory(comm: fwComm_t, memory: *const fwMemory) -> fwResult {
    catch_errors(|| {
        // SAFETY: guaranteed by the caller; NULL is the default.
        let given = unsafe { memory.as_ref().map_or(Ok(HOST), |one| read(one, HOST, "fwMemory")) }?;
        group::refuse("fwCommSetMemory")?;
        let memory = memory_of(&given)?;
        let (endpoint, ..) = handle_table::comm(comm.addr())?;
        endpoint.enter()?.entry(comm.addr())?.memory = memory;
        Ok(())
    })
}

/// Checks the caller's memory, and opens its device.
fn memory_of(given: &fwMemory) -> Result<ArrayMemory, ApiError> {
    match given.kind {
        FW_MEMORY_HOST => Ok(ArrayMemory::Host),
        FW_MEMORY_DEVICE => {
            let device = usize::try_from(given.device).map_err(|_| {
                ApiError::argument(format!("{} is not the number of a device", given.device))
            })?;
            built::open(device)?;
            let stream = Some(given.stream.addr() as u64);
            Ok(ArrayMemory::Device(DeviceStream { device, stream }))
        }
        other => Err(ApiError::argument(format!("{other} is not a valid fwMemory.kind"))),
    }
}

pub(crate) use built::lend;

#[cfg(not(feature = "cuda"))]
mod built {
    use super::*;

    fn missing() -> ApiError {
        let message = "this build of Foldwire has no support for devices; build it with the \
                       feature `cuda`, which needs nothing of CUDA: cargo build --features cuda";
        ApiError::new(FW_UNSUPPORTED, message)
    }

    pub(super) fn open(_: usize) -> Result<(), ApiError> {
        Err(missing())
    }

    pub(crate) fn lend(
        _: &CoreCommunicator,
        _: DeviceStream,
        _: Option<DeviceCopy>,
    ) -> Result<LentDevice, ApiError> {
        Err(missing())
    }
}

#[cfg(feature = "cuda")]
mod built {
    use foldwire_cuda::driver::StreamId;
    use foldwire_cuda::{DeviceError, DevicePtr, WorkspaceConfig, pool};

    use super::*;

    /// Opens a device, for the first call on it.
    pub(super) fn open(device: usize) -> Result<(), ApiError> {
        let refused = |error: DeviceError| {
            let is_missing = matches!(error, DeviceError::Missing { .. });
            let code = if is_missing { FW_UNSUPPORTED } else { FW_DEVICE_ERROR };
            ApiError::new(code, error.to_string())
        };
        pool::device(device).map(|_| ()).map_err(refused)
    }

    /// Lends a workspace to a call of this communicator, after a copy within the device. If the
    /// device fails here, so does the call, and the other ranks learn of it. A device that cannot
    /// be opened is an error of this rank alone.
    pub(crate) fn lend(
        comm: &CoreCommunicator,
        DeviceStream { device, stream }: DeviceStream,
        first: Option<DeviceCopy>,
    ) -> Result<LentDevice, ApiError> {
        open(device)?;
        let config = WorkspaceConfig::new(comm.n_lanes(), comm.frame_bytes());
        let mut workspace = pool::lend(device, config, stream.map(StreamId));
        if let Some((from, to)) = first {
            let [start, to] = [from.start, to].map(|address| DevicePtr(address as u64));
            workspace.copy(start, to, from.len());
        }
        let last_error = workspace.last_error();
        let explain = Box::new(move || last_error.take().map(|error| error.to_string()));
        Ok(LentDevice { device: Box::new(workspace), explain })
    }
}
