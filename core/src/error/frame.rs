//! Why bytes are no message.

/// Why a message is not one of ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FrameError {
    /// Shorter than a header.
    #[error("a message of {have} bytes, {need} expected")]
    Length {
        /// Bytes expected.
        need: usize,
        /// Bytes there.
        have: usize,
    },
    /// Not a Foldwire message.
    #[error("not a Foldwire message")]
    Magic,
    /// A version that this library does not know.
    #[error("message version {version} is unknown to this version of Foldwire")]
    Version {
        /// The version found.
        version: u8,
    },
    /// A field holds a code that does not exist.
    #[error("the message header is damaged")]
    Damaged,
    /// The checksum does not match.
    #[error("the message was damaged on the way")]
    Checksum,
    /// No checksum, but this rank wants one.
    #[error("the message has no checksum; switch checksums on or off on all ranks alike")]
    NoChecksum,
}
