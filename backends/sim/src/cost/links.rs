//! Credit, and frames that wait to be taken, for each (sender, receiver, lane).
//!
//! The table holds a link only while frames are in flight on it, so its memory is bounded by the
//! number of those frames. Ring, trees and chain have a few in flight for each lane. In a pairwise
//! exchange, a rank sends all its parts before it receives any.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use foldwire::primitive::SlotContent;

/// Hashes the single word of a key, so that keys of neighbouring ranks get distant hashes.
#[derive(Default)]
pub(super) struct KeyHasher(u64);

impl Hasher for KeyHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|&byte| self.write_u64(byte.into()));
    }

    fn write_u64(&mut self, word: u64) {
        // Fibonacci hashing. The fold is needed because the hash map uses both high and low bits.
        let mixed = (self.0 ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 = mixed ^ (mixed >> 32);
    }
}

/// Index that means "no frame".
const NONE: u32 = u32::MAX;

#[derive(Clone, Copy, Debug)]
struct ModelLink {
    /// Number of frames with credit that the receiver has not taken.
    n_under_way: u32,
    /// The oldest frame that has arrived and was not taken: an index in [`LinkTable::arrived`].
    oldest: u32,
    /// The newest such frame.
    newest: u32,
    /// Number of frames that wait for the receiver's grant.
    n_requesting: u32,
    /// True if the sender waits for credit.
    sender_waits: bool,
}

/// A frame that has arrived and was not taken.
#[derive(Debug)]
struct ArrivedContent {
    content: SlotContent,
    /// Index of the next frame of the same link.
    next: u32,
}

#[derive(Debug, Default)]
pub(super) struct LinkTable {
    links: HashMap<u64, ModelLink, BuildHasherDefault<KeyHasher>>,
    /// The arrived frames of all links, as linked lists.
    arrived: Vec<ArrivedContent>,
    /// Indices of unused entries of `arrived`.
    free: Vec<u32>,
}

/// Identity of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LinkKey {
    pub(super) from: u32,
    pub(super) to: u32,
    pub(super) lane: u32,
}

impl LinkKey {
    /// Packs the key into one word. There are at most 8 lanes and fewer than 2³⁰ ranks.
    const fn word(self) -> u64 {
        (self.from as u64) << 33 | (self.to as u64) << 3 | self.lane as u64
    }
}

impl LinkTable {
    /// Takes credit for a frame if fewer than `depth` frames are in flight; otherwise notes that
    /// the sender waits. Returns whether the sender got credit.
    pub(super) fn reserve(&mut self, key: LinkKey, depth: u32) -> bool {
        let link = self.links.entry(key.word()).or_insert(ModelLink {
            n_under_way: 0,
            oldest: NONE,
            newest: NONE,
            n_requesting: 0,
            sender_waits: false,
        });
        let has_credit = link.n_under_way < depth;
        link.n_under_way += u32::from(has_credit);
        link.sender_waits = !has_credit;
        has_credit
    }

    /// Returns whether the sender must request a grant for a frame before the frame leaves, and
    /// counts the request. A request is needed if the frame `is_long`, or if an earlier frame still
    /// waits for its grant, because frames may not overtake each other.
    pub(super) fn needs_request(&mut self, key: LinkKey, is_long: bool) -> bool {
        let Some(link) = self.links.get_mut(&key.word()) else { return is_long };
        let requests = is_long || link.n_requesting > 0;
        link.n_requesting += u32::from(requests);
        requests
    }

    /// Counts one request as granted.
    pub(super) fn grant(&mut self, key: LinkKey) {
        if let Some(link) = self.links.get_mut(&key.word()) {
            link.n_requesting -= 1;
        }
    }

    /// Adds a frame that has arrived.
    pub(super) fn arrive(&mut self, key: LinkKey, content: SlotContent) {
        let arrived = ArrivedContent { content, next: NONE };
        let at = if let Some(at) = self.free.pop() {
            self.arrived[at as usize] = arrived;
            at
        } else {
            self.arrived.push(arrived);
            (self.arrived.len() - 1) as u32
        };
        let Some(link) = self.links.get_mut(&key.word()) else { return };
        if link.oldest == NONE {
            link.oldest = at;
        } else {
            self.arrived[link.newest as usize].next = at;
        }
        link.newest = at;
    }

    /// Takes the oldest frame that has arrived. Also returns whether the sender waits for the
    /// frame's credit.
    pub(super) fn take(&mut self, key: LinkKey) -> Option<(SlotContent, bool)> {
        let link = self.links.get_mut(&key.word())?;
        let at = link.oldest;
        let &ArrivedContent { content, next } = self.arrived.get(at as usize)?;
        link.oldest = next;
        link.n_under_way -= 1;
        let sender_waits = std::mem::take(&mut link.sender_waits);
        if link.n_under_way == 0 {
            self.links.remove(&key.word());
        }
        self.free.push(at);
        Some((content, sender_waits))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use foldwire::codec::CodecId;

    #[test]
    fn frames_come_in_order_and_credit_comes_back() {
        let mut links = LinkTable::default();
        let (key, other) =
            (LinkKey { from: 1, to: 2, lane: 0 }, LinkKey { from: 2, to: 1, lane: 0 });
        assert!(links.reserve(key, 2) && links.reserve(key, 2) && !links.reserve(key, 2));
        assert_eq!(links.take(key), None);
        let content = |operands| SlotContent::new(CodecId::Raw, operands, 1);
        links.arrive(key, content(5));
        links.arrive(key, content(6));
        assert_eq!(links.take(other), None);
        assert_eq!(links.take(key), Some((content(5), true)));
        assert!(links.reserve(key, 2));
        links.arrive(key, content(7));
        assert_eq!(
            (links.take(key), links.take(key)),
            (Some((content(6), false)), Some((content(7), false)))
        );
        assert_eq!((links.take(key), links.links.len(), links.free.len()), (None, 0, 2));
    }

    #[test]
    fn what_is_short_asks_behind_what_is_long() {
        let mut links = LinkTable::default();
        let key = LinkKey { from: 0, to: 1, lane: 2 };
        assert!((0..4).all(|_| links.reserve(key, 4)));
        assert_eq!(
            [false, true, false].map(|must| links.needs_request(key, must)),
            [false, true, true]
        );
        links.grant(key);
        links.grant(key);
        assert!(!links.needs_request(key, false));
    }
}
