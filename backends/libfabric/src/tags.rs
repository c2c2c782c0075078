//! Layout of a libfabric tag: `rank << 13 | is an acknowledgement << 12 | tag`.
//!
//! The tag includes the sender's rank, because few providers report the sender of a message, and
//! fewer can match receives by sender (`FI_DIRECTED_RECV`). A tag has at most 45 bits. That fits
//! all providers; Slingshot's has the fewest, 48.
//!
//! No receive ignores bits: `shm` of libfabric 1.17 does not match such a receive with a message
//! that arrived before it.

use foldwire::transport::{MAX_CHANNELS, Rank, Tag};

/// Number of bits of the Foldwire tag.
const TAG_BITS: u32 = 12;
const _: () = assert!(MAX_CHANNELS * Tag::COUNT <= 1 << TAG_BITS);
/// Number of bits below the rank.
const LOW_BITS: u32 = TAG_BITS + 1;

/// Returns the number of tag bits that a group of `size` ranks needs.
pub(crate) fn n_bits(size: usize) -> u32 {
    LOW_BITS + (usize::BITS - size.saturating_sub(1).leading_zeros())
}

/// Returns the libfabric tag of a message.
pub(crate) fn message(from: Rank, tag: Tag) -> u64 {
    u64::from(from.0) << LOW_BITS | u64::from(tag.0)
}

/// Returns the libfabric tag of an acknowledgement of a message with `tag`.
pub(crate) fn ack(from: Rank, tag: Tag) -> u64 {
    message(from, tag) | 1 << TAG_BITS
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn no_two_streams_share_a_tag() {
        let mut all = HashSet::new();
        for rank in [0, 1, 2, 255, 256, u32::MAX].map(Rank) {
            // 2303 is the largest tag.
            for tag in [0, 1, 8, 255, 2303].map(Tag) {
                assert!(all.insert(message(rank, tag)) && all.insert(ack(rank, tag)));
            }
        }
    }

    #[test]
    fn tags_of_a_group_fit_the_bits_that_it_needs() {
        for size in [1, 2, 3, 256, 257, 1 << 24, (1 << 24) + 1, 1 << 32] {
            let n_bits = n_bits(size);
            assert!(n_bits <= 45);
            assert!(ack(Rank::new(size - 1), Tag(2303)) < 1 << n_bits, "{size}");
        }
    }
}
