//! Replacement for `node_memory` on systems without files in memory. Ranks share no memory there.

use foldwire::transport::Rank;

use crate::frame::{MessageFrame, SlotId};

/// Memory of a rank, which never exists here.
#[derive(Debug)]
pub enum MemoryOffer {}

impl MemoryOffer {
    /// Returns `None`.
    #[must_use]
    pub const fn new(_: Rank, _: usize) -> Option<Self> {
        None
    }

    /// Encodes where the memory is.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        match *self {}
    }

    /// Opens the memory of the other ranks.
    pub fn open<'a>(self, _: impl IntoIterator<Item = (Rank, &'a [u8])>) -> Option<NodeMemory> {
        match self {}
    }
}

/// Memory of a node, which never exists here.
#[derive(Debug)]
pub enum NodeMemory {}

impl NodeMemory {
    /// Keeps further processes from opening the memory.
    pub fn close(&mut self) {
        match *self {}
    }

    /// Returns whether this rank is on the node.
    #[must_use]
    pub fn contains(&self, _: Rank) -> bool {
        match *self {}
    }

    /// Takes a free frame.
    pub fn allocate(&mut self) -> Option<MessageFrame> {
        match *self {}
    }

    /// Returns the frame of a slot.
    #[must_use]
    pub fn frame(&self, _: SlotId) -> Option<MessageFrame> {
        match *self {}
    }

    /// Returns whether a frame is on the heap or in this memory.
    #[must_use]
    pub fn accepts(&self, _: &MessageFrame) -> bool {
        match *self {}
    }

    /// Makes a frame free.
    pub fn release(&mut self, _: MessageFrame) {
        match *self {}
    }
}
