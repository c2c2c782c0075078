//! Errors of encoding, decoding and reducing.

use crate::element::DType;

/// Reason why a segment could not be encoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EncodeError {
    /// The destination is smaller than the worst case.
    #[error("the destination has {have} bytes, the worst case needs {need}")]
    Capacity {
        /// Number of bytes needed.
        need: usize,
        /// Size of the destination.
        have: usize,
    },
    /// The 32-bit offsets in one frame cannot address this many values.
    #[error("{n_values} values are too many for one frame; divide them")]
    TooLong {
        /// Number of values given.
        n_values: usize,
    },
}

/// Reason why bytes are not a valid encoding of the expected values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DecodeError {
    /// The bytes end too early.
    #[error("the encoding has {have} bytes but needs at least {need}")]
    Truncated {
        /// Number of bytes needed.
        need: usize,
        /// Number of bytes given.
        have: usize,
    },
    /// The bytes contradict themselves.
    #[error("the encoded bytes are damaged")]
    Damaged,
    /// This library does not know the version of the format.
    #[error("format version {version} is unknown to this version of Foldwire")]
    Version {
        /// The version found.
        version: u8,
    },
    /// The element type is not the expected one.
    #[error("the encoding has element type code {found}, expected {expected}")]
    Type {
        /// Type code found.
        found: u8,
        /// Type expected.
        expected: DType,
    },
    /// The number of values is not the expected one.
    #[error("the encoding has {found} values, expected {expected}")]
    Count {
        /// Number of values in the encoding.
        found: usize,
        /// Number of values expected.
        expected: usize,
    },
}

/// Reason why values could not be encoded, folded or combined.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum CodecError {
    /// The result could not be encoded.
    #[error(transparent)]
    Encode(#[from] EncodeError),
    /// An operand could not be decoded.
    #[error(transparent)]
    Decode(#[from] DecodeError),
    /// The operands lie on different lattices.
    #[error(
        "the lattice spacing is {ours:e} here but {theirs:e} in the frame; all ranks must use the \
         same bound"
    )]
    Quantum {
        /// Spacing of this rank's lattice.
        ours: f64,
        /// Spacing of the frame's lattice.
        theirs: f64,
    },
    /// The codes have no headroom to add this many operands.
    #[error("a sum of {operands} operands may overflow the codes: the codec was made for {limit}")]
    HeadRoom {
        /// Number of operands of the sum.
        operands: u64,
        /// Number of operands for which the codec was made.
        limit: u32,
    },
}
