//! Reasons why bytes are not a valid message.

/// Reason why bytes are not a valid message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FrameError {
    /// The message is shorter than a header.
    #[error("a message of {have} bytes, {need} expected")]
    Length {
        /// Number of bytes expected.
        need: usize,
        /// Number of bytes received.
        have: usize,
    },
    /// The bytes do not start like a Foldwire message.
    #[error("not a Foldwire message")]
    Magic,
    /// The message has a version that this library does not know.
    #[error("message version {version} is unknown to this version of Foldwire")]
    Version {
        /// The version found.
        version: u8,
    },
    /// A field holds a value that no rank writes.
    #[error("the message header is damaged")]
    Damaged,
    /// The checksum does not match.
    #[error("the message was damaged on the way")]
    Checksum,
    /// The message has no checksum, but this rank requires one.
    #[error("the message has no checksum; switch checksums on or off on all ranks alike")]
    NoChecksum,
}
