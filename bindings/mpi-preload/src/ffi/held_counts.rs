//! Counts that a running call borrows.

/// Counts that a running call borrows. The call must be dropped before them.
pub(crate) struct HeldCounts {
    /// Length of each rank's share. In an all-to-all, number of values that this rank sends to each
    /// rank.
    pub(crate) shares: Option<Box<[usize]>>,
    /// In an all-to-all, number of values that this rank receives from each rank; else empty.
    pub(crate) received: Box<[usize]>,
}

impl HeldCounts {
    /// Borrows `shares` and `received` for a running call; `None` if all shares have equal lengths.
    pub(crate) fn borrowed(&self) -> Option<[&'static [usize]; 2]> {
        let extended = |counts: &[usize]| {
            // SAFETY: the numbers are on the heap and do not move when `HeldCounts` moves.
            // `HeldCounts` moves into a `TypedStep`, which drops the borrowing call first.
            unsafe { std::slice::from_raw_parts(counts.as_ptr(), counts.len()) }
        };
        self.shares.as_deref().map(|shares| [extended(shares), extended(&self.received)])
    }
}
