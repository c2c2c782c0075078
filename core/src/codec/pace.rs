//! What a codec tells while it works, so that a rank can look at its network meanwhile.
//!
//! After ZCCL's PIPE-fZ-light (2025), whose compressor polls between chunks of 5120 values.

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
