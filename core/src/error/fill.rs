//! Calls that cannot have a fill value.

use crate::bound::SuspectedFill;
use crate::codec::CodecId;
use crate::element::DType;

/// Reason why a call cannot have its plan's [fill value](crate::Plan::with_fill), or is refused for
/// lack of one.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum FillError {
    /// The fill value is NaN.
    #[error("NaN needs no fill value: it keeps its place already")]
    Nan,
    /// The values are integers.
    #[error("fill values are for floats, not {dtype}")]
    Type {
        /// Element type of the values.
        dtype: DType,
    },
    /// The codec's setting determines what is lost, and it does not keep NaN.
    #[error("codec {} does not keep fill values; choose one within a bound", codec.name())]
    Codec {
        /// The requested codec.
        codec: CodecId,
    },
    /// The reduction is by the caller's own operation, which may not keep NaN.
    #[error(
        "a user operation has no fill values; take the fill value as a number, or leave it out"
    )]
    Operation,
    /// Rounding without bias, and error feedback, would round the fill value.
    #[error("rounding without bias and error feedback have no fill values; leave one of them out")]
    Rounding,
    /// The values are in a device's memory.
    #[error("fill values need arrays in the host's memory")]
    Device,
    /// The receiver of a message knows no plan, so it cannot restore fill values.
    #[error("messages between two ranks have no fill values; send NaN in their place")]
    Message,
    /// A value of some rank seems to be a fill value, and the plan
    /// [refuses](crate::Plan::refusing_fill) such data.
    #[error("{}", SuspectedFill(*value))]
    Suspected {
        /// The value; the largest of all ranks'.
        value: f64,
    },
}
