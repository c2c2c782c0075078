//! What a codec tells while it works, so that a rank can look at its network meanwhile.
//!
//! After ZCCL's PIPE-fZ-light (2025), whose compressor polls between chunks of 5120 values.

use super::{Codec, CodecError, Fill, Give, Written, chunked};
use crate::element::Element;

/// Is told how many values a codec has read or written, chunk by chunk.
///
/// `()` is for those who need not know. Several [threads](crate::threads) tell of what they share
/// once all of it is done.
pub trait Pace {
    /// So many values more have been encoded, decoded or combined.
    fn passed(&self, n_values: usize);
}

impl Pace for () {
    fn passed(&self, _: usize) {}
}

/// Encodes what `fill` gives, and tells of each chunk once it has been written.
pub(super) fn encode_filled<T: Element, C: Codec<T> + ?Sized>(
    codec: &C,
    n_values: usize,
    fill: &mut Fill<'_, T>,
    dst: &mut [u8],
    pace: &dyn Pace,
) -> Result<Written, CodecError> {
    let mut n_told = 0;
    let mut paced = |start: usize, out: &mut [T]| {
        // Who asks for a chunk has written those before.
        pace.passed(start - n_told);
        n_told = start;
        fill(start, out)
    };
    let written = codec.encode_with(n_values, &mut paced, dst)?;
    pace.passed(n_values - n_told);
    Ok(written)
}

/// The same of what `give` gives, by the codec's threads if there are enough values.
pub(super) fn encode_given<T: Element, C: Codec<T> + ?Sized>(
    codec: &C,
    n_values: usize,
    give: &Give<'_, T>,
    dst: &mut [u8],
    pace: &dyn Pace,
) -> Result<Written, CodecError> {
    if !chunked::is_divided(n_values, codec.threads()) {
        return encode_filled(codec, n_values, &mut |start, out| give(start, out), dst, pace);
    }
    let written = codec.encode_from(n_values, give, dst)?;
    pace.passed(n_values);
    Ok(written)
}
