//! Buffers of messages, on the heap or in memory that the ranks of a node share.

use std::fmt;

use foldwire::HeapFrame;

use crate::shared_memory::SharedFrame;

/// Place of a frame in the memory of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlotId {
    /// Rank in whose file the frame is.
    pub owner: u32,
    /// Number of the frame in the file.
    pub index: u32,
}

/// Message buffer on the heap or in shared memory. Its bytes stay in place when it moves.
pub struct MessageFrame(pub(crate) FrameMemory);

/// Location of a frame's bytes.
pub(crate) enum FrameMemory {
    Heap(HeapFrame),
    /// Memory that other ranks of the node map too. Only this rank may touch it, until the frame is
    /// sent.
    Shared(SharedFrame),
}

impl MessageFrame {
    /// Returns the frame's slot, if the frame is in shared memory.
    #[must_use]
    pub fn slot(&self) -> Option<SlotId> {
        match &self.0 {
            FrameMemory::Heap(_) => None,
            FrameMemory::Shared(frame) => Some(frame.slot()),
        }
    }
}

impl From<HeapFrame> for MessageFrame {
    fn from(frame: HeapFrame) -> Self {
        Self(FrameMemory::Heap(frame))
    }
}

impl AsRef<[u8]> for MessageFrame {
    #[inline]
    fn as_ref(&self) -> &[u8] {
        match &self.0 {
            FrameMemory::Heap(frame) => frame.as_ref(),
            FrameMemory::Shared(frame) => frame.as_ref(),
        }
    }
}

impl AsMut<[u8]> for MessageFrame {
    #[inline]
    fn as_mut(&mut self) -> &mut [u8] {
        match &mut self.0 {
            FrameMemory::Heap(frame) => frame.as_mut(),
            FrameMemory::Shared(frame) => frame.as_mut(),
        }
    }
}

impl fmt::Debug for MessageFrame {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MessageFrame")
            .field("n_bytes", &self.as_ref().len())
            .finish_non_exhaustive()
    }
}
