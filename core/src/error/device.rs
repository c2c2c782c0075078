//! Failures of a device.

/// A failure of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DeviceErrorKind {
    /// The device has too little memory.
    #[error("it has too little memory")]
    OutOfMemory,
    /// A kernel could not be started, or failed while it ran.
    #[error("a kernel could not be started, or failed")]
    Launch,
    /// The device no longer responds.
    #[error("it no longer responds")]
    Lost,
    /// The memory is not the device's, is not aligned, or overlaps other memory of the call.
    #[error("a buffer is not in its memory, is not aligned, or overlaps another of the call")]
    Memory,
    /// Its kernels give other bytes than the host's codecs.
    #[error("its kernels give other bytes than the codecs of the host")]
    Differs,
    /// The device's pool was made for fewer lanes or shorter frames than the call needs.
    #[error("its pool has too few lanes, or too short frames, for this communicator")]
    Pool,
}
