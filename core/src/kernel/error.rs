//! Why values could not be encoded, decoded or combined.

use crate::element::DType;

/// Why a segment could not be encoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EncodeError {
    /// The destination is smaller than the worst case.
    #[error("the destination has {have} bytes, the worst case needs {need}")]
    Capacity {
        /// Bytes needed.
        need: usize,
        /// Bytes there.
        have: usize,
    },
    /// More values than one frame's 32-bit offsets can address.
    #[error("{n_values} values are too many for one frame; divide them")]
    TooLong {
        /// Values given.
        n_values: usize,
    },
}

/// Why bytes are not a valid encoding of what was expected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DecodeError {
    /// The bytes end too early.
    #[error("{have} bytes, but at least {need} belong to this encoding")]
    Truncated {
        /// Bytes needed.
        need: usize,
        /// Bytes there.
        have: usize,
    },
    /// The bytes contradict themselves.
    #[error("the encoded bytes are damaged")]
    Damaged,
    /// A version of the format that this library does not know.
    #[error("format version {version} is unknown to this version of Foldwire")]
    Version {
        /// The version found.
        version: u8,
    },
    /// Another element type.
    #[error("the encoding has element type code {found}, expected {expected}")]
    Type {
        /// Code found.
        found: u8,
        /// Type expected.
        expected: DType,
    },
    /// Another number of values.
    #[error("the encoding has {found} values, expected {expected}")]
    Count {
        /// Values in the encoding.
        found: usize,
        /// Values expected.
        expected: usize,
    },
}

/// Why two operands could not be combined.
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
    #[error("quanta differ: {ours:e} here, {theirs:e} in the frame; ranks must agree on the bound")]
    Quantum {
        /// Our spacing.
        ours: f64,
        /// The frame's.
        theirs: f64,
    },
    /// More operands than the codes have head-room for.
    #[error("{operands} operands, but codes have head-room for {limit} only")]
    HeadRoom {
        /// Operands of the sum.
        operands: u64,
        /// What the codec was made for.
        limit: u32,
    },
}
