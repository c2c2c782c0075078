//! The links of one endpoint in one direction, found by (peer, tag).
//!
//! An index of four bytes per possible link (36 bytes per peer) and a dense list of those that
//! exist: a thousand ranks cost each endpoint 72 KB, and a walk over the links meets only real
//! ones.

use foldwire::transport::{Rank, Tag};

#[derive(Debug)]
pub(crate) struct Links<T> {
    /// Position in `list` plus one; 0: no such link yet.
    index: Box<[u32]>,
    list: Vec<T>,
}

impl<T> Links<T> {
    pub(crate) fn new(n_ranks: usize) -> Self {
        Self { index: vec![0; n_ranks * Tag::COUNT].into_boxed_slice(), list: Vec::new() }
    }

    pub(crate) fn find(&mut self, peer: Rank, tag: Tag) -> Option<&mut T> {
        let position = self.index[key(peer, tag)].checked_sub(1)?;
        Some(&mut self.list[position as usize])
    }

    pub(crate) fn insert(&mut self, peer: Rank, tag: Tag, link: T) {
        self.list.push(link);
        self.index[key(peer, tag)] = self.list.len() as u32;
    }

    pub(crate) fn all(&mut self) -> &mut [T] {
        &mut self.list
    }
}

const fn key(peer: Rank, tag: Tag) -> usize {
    peer.index() * Tag::COUNT + tag.index()
}
