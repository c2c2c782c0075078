//! Errors of computing on a device.

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
        /// The number of which it must be a multiple.
        alignment: u64,
    },
    /// The device has no kernel for this.
    #[error("the device cannot do this: {what}")]
    Unsupported {
        /// The task, operation or codec.
        what: &'static str,
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
