//! Errors of computing on a device.

use foldwire::error::DeviceErrorKind;

/// Reason why a device did not compute.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DeviceError {
    /// A buffer is smaller than the worst case.
    #[error("a buffer on the device has {have} bytes, the worst case needs {need}")]
    Capacity {
        /// Number of bytes needed.
        need: usize,
        /// Size of the buffer.
        have: usize,
    },
    /// The 32-bit offsets in one frame cannot address this many values.
    #[error("{n_values} values are too many for one frame; divide them")]
    TooLong {
        /// Number of values given.
        n_values: usize,
    },
    /// Buffers on the device begin at multiples of 16 bytes, and values at multiples of their size.
    #[error("address {address:#x} on the device is not a multiple of {alignment}")]
    Misaligned {
        /// The address.
        address: u64,
        /// Required alignment, in bytes.
        alignment: u64,
    },
    /// The device has no kernel for this.
    #[error("the device cannot do this: {what}")]
    Unsupported {
        /// The task, operation or codec.
        what: &'static str,
    },
    /// The device, or the host, has too little memory of this kind.
    #[error("the device has {} memory left", lacking(*n_bytes))]
    OutOfMemory {
        /// Number of bytes requested; 0 if the driver did not say.
        n_bytes: usize,
    },
    /// The device, or its driver, failed.
    #[error("the device failed in {during}: {reason}")]
    Failed {
        /// The request.
        during: &'static str,
        /// The driver's words.
        reason: String,
    },
    /// The driver refused a request. The device goes on with the work that is enqueued.
    #[error("the driver did not answer in {during}: {reason}")]
    Unanswered {
        /// The request.
        during: &'static str,
        /// The driver's words.
        reason: String,
    },
    /// The driver, the compiler or a device is missing.
    #[error("{what}; {remedy}")]
    Missing {
        /// The missing part.
        what: String,
        /// How to get it.
        remedy: &'static str,
    },
    /// A kernel gave other bytes than the host's codec in the check at start-up.
    #[error("kernels of {codec} for {dtype} give other bytes on this device than on the host")]
    Differs {
        /// The codec.
        codec: &'static str,
        /// Element type.
        dtype: foldwire::DType,
    },
    /// The device refused to run a kernel.
    #[error("the device does not run kernel {kernel}: {reason}")]
    Launch {
        /// Name of the kernel.
        kernel: String,
        /// The device's or the driver's words.
        reason: String,
    },
}

fn lacking(n_bytes: usize) -> String {
    if n_bytes == 0 { "too little".into() } else { format!("no {n_bytes} bytes of") }
}

impl DeviceError {
    /// Returns the kind of error that a call reports.
    #[must_use]
    pub const fn kind(&self) -> DeviceErrorKind {
        match self {
            Self::Capacity { .. } | Self::TooLong { .. } => DeviceErrorKind::Pool,
            Self::Misaligned { .. } => DeviceErrorKind::Memory,
            Self::OutOfMemory { .. } => DeviceErrorKind::OutOfMemory,
            Self::Failed { .. } | Self::Unanswered { .. } => DeviceErrorKind::Lost,
            Self::Differs { .. } => DeviceErrorKind::Differs,
            Self::Unsupported { .. } | Self::Launch { .. } | Self::Missing { .. } => {
                DeviceErrorKind::Launch
            }
        }
    }
}
