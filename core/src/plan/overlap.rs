//! Work that overlaps with messages in a plan.

/// Work that a rank does while its messages move.
///
/// # Examples
/// ```
/// use foldwire::{Bound, Overlap, Plan, pipeline};
///
/// // ZCCL's computation framework.
/// let plan = Plan::raw().compressed(pipeline::COMPRESS_ONCE, Bound::Relative(1e-4));
/// let plan = plan.with_overlap(Overlap::Polling);
/// # let _ = plan;
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Overlap {
    /// While a segment is on the wire, the rank works on other segments, and polls the network.
    #[default]
    Segments,
    /// Message by message ([`Nothing`](Self::Nothing)), but while a codec works, the rank polls the
    /// network at least once for every 5120 values. So a message moves that only moves if it is
    /// polled. This is ZCCL's PIPE-fZ-light, and C-Coll's PIPE-SZx.
    Polling,
    /// Message by message. One lane works, with messages as long as a frame can hold.
    /// Decompression, reduction and compression are passes of their own over a whole message. No
    /// poll interrupts them.
    ///
    /// So nothing overlaps if frames hold a whole part of the array. With shorter frames, a frame
    /// passes through all hops before the next one starts. Operations that a codec carries out on
    /// its own codes are one pass as ever.
    Nothing,
}

impl Overlap {
    /// Returns the most values that a codec processes on one thread between two polls of the
    /// network. `None` if it does not poll.
    #[must_use]
    pub const fn values_per_poll(self) -> Option<usize> {
        match self {
            Self::Segments => Some(8192),
            Self::Polling => Some(5120),
            Self::Nothing => None,
        }
    }
}
