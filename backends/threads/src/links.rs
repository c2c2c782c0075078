//! The links of one endpoint in one direction, found by (peer, tag).
//!
//! The table has an index of four bytes per peer for each tag in use, and a dense list of the
//! existing links. With a thousand ranks and one call at a time (9 tags), the indices of both
//! directions take 72 KB for each endpoint. A loop over the links visits only existing ones.

use foldwire::transport::{Rank, Tag};

#[derive(Debug)]
pub(crate) struct LinkIndex<T> {
    n_ranks: usize,
    /// For each tag in use and each rank: position in `list` plus one, or 0 if there is no link.
    index: Vec<Box<[u32]>>,
    list: Vec<T>,
}

impl<T> LinkIndex<T> {
    pub(crate) const fn new(n_ranks: usize) -> Self {
        Self { n_ranks, index: Vec::new(), list: Vec::new() }
    }

    pub(crate) fn find(&mut self, peer: Rank, tag: Tag) -> Option<&mut T> {
        let position = self.position(peer, tag)?;
        self.list.get_mut(position)
    }

    /// Returns the link's position in [`all`](Self::all).
    pub(crate) fn position(&self, peer: Rank, tag: Tag) -> Option<usize> {
        let of_tag = self.index.get(tag.index())?;
        Some(of_tag.get(peer.index())?.checked_sub(1)? as usize)
    }

    /// Adds a link, and returns its position.
    pub(crate) fn insert(&mut self, peer: Rank, tag: Tag, link: T) -> usize {
        let position = self.list.len();
        self.list.push(link);
        if self.index.len() <= tag.index() {
            self.index.resize(tag.index() + 1, Box::default());
        }
        let of_tag = &mut self.index[tag.index()];
        if of_tag.is_empty() {
            *of_tag = vec![0; self.n_ranks].into_boxed_slice();
        }
        of_tag[peer.index()] = self.list.len() as u32;
        position
    }

    pub(crate) fn all(&mut self) -> &mut [T] {
        &mut self.list
    }
}
