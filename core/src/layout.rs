//! How `count` values are divided among ranks.

use core::ops::Range;

/// The share of rank `index` when `count` values are divided among `size` ranks: contiguous, in rank
/// order, the first `count % size` shares one value longer than the rest.
#[must_use]
pub const fn share(count: usize, size: usize, index: usize) -> Range<usize> {
    let (base, extra) = (count / size, count % size);
    let longer = if index < extra { index } else { extra };
    let start = index * base + longer;
    start..start + base + (index < extra) as usize
}
