//! Failures of a device.

use core::fmt;

/// A failure of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum DeviceErrorKind {
    /// The device has too little memory.
    OutOfMemory,
    /// A kernel could not be started, or failed while it ran.
    Launch,
    /// The device no longer responds.
    Lost,
    /// The memory is not the device's, is not aligned, or overlaps other memory of the call.
    Memory,
    /// Its kernels give other bytes than the host's codecs.
    Differs,
    /// The device's pool was made for fewer lanes or shorter frames than the call needs.
    Pool,
}

impl fmt::Display for DeviceErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::OutOfMemory => "it has too little memory",
            Self::Launch => "a kernel could not be started, or failed",
            Self::Lost => "it no longer responds",
            Self::Memory => {
                "a buffer is not in its memory, is not aligned, or overlaps another of the call"
            }
            Self::Differs => "its kernels give other bytes than the codecs of the host",
            Self::Pool => "its pool has too few lanes, or too short frames, for this communicator",
        })
    }
}
