//! How a rank and a stream share the tag of a message: `rank << 8 | tag`.
//!
//! The sender's rank is in the tag because few providers tell a receiver who sent, and fewer match by it. So
//! receives need no `FI_DIRECTED_RECV`, and a receive for any sender ignores the bits of the rank. With at most
//! 40 bits it fits the providers with the fewest (Slingshot's has 48).

use foldwire::transport::{Rank, Tag};
use foldwire_messaging::Source;

/// Bits of the stream.
const STREAM_BITS: u32 = u8::BITS;

/// Bits of a tag that a group of `size` ranks needs.
pub(crate) fn n_bits(size: usize) -> u32 {
    STREAM_BITS + (usize::BITS - size.saturating_sub(1).leading_zeros())
}

/// The tag of a message.
pub(crate) fn pack(from: Rank, tag: Tag) -> u64 {
    u64::from(from.0) << STREAM_BITS | u64::from(tag.0)
}

/// The sender in the tag of a message, if such a rank can be.
pub(crate) fn sender(tag: u64) -> Option<Rank> {
    u32::try_from(tag >> STREAM_BITS).ok().map(Rank)
}

/// What a receive matches by: a tag, and the bits of it that do not matter.
pub(crate) fn pattern(from: Source, tag: Tag) -> (u64, u64) {
    match from {
        Source::Rank(rank) => (pack(rank, tag), 0),
        Source::Any => (pack(Rank(0), tag), pack(Rank(u32::MAX), Tag(0))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sender_is_found_again() {
        for rank in [0, 1, 255, 256, u32::MAX] {
            for tag in [0, 8, 255] {
                let packed = pack(Rank(rank), Tag(tag));
                assert_eq!(sender(packed), Some(Rank(rank)));
                assert_eq!(packed as u8, tag);
            }
        }
        assert_eq!(sender(u64::MAX), None);
    }

    #[test]
    fn tags_of_a_group_fit_the_bits_that_it_needs() {
        for size in [1, 2, 3, 256, 257, 1 << 24, (1 << 24) + 1, 1 << 32] {
            let n_bits = n_bits(size);
            assert!(n_bits <= 40);
            assert!(pack(Rank::new(size - 1), Tag(u8::MAX)) < 1 << n_bits, "{size}");
        }
    }

    #[test]
    fn receives_from_any_match_every_rank_and_their_tag_only() {
        let (wanted, ignored) = pattern(Source::Any, Tag::CONTROL);
        let matches = |tag: u64| (tag ^ wanted) & !ignored == 0;
        for rank in [0, 77, u32::MAX] {
            assert!(matches(pack(Rank(rank), Tag::CONTROL)));
            assert!(!matches(pack(Rank(rank), Tag(0))));
        }
    }
}
