//! Buffers of [`Messages`](crate::Messages).

use std::fmt;

use foldwire::HeapFrame;

use crate::shared_memory::SharedFrame;

/// A message buffer. Moving it leaves its bytes where they are.
pub struct MessageFrame(pub(crate) FrameMemory);

/// Where it is.
pub(crate) enum FrameMemory {
    Heap(HeapFrame),
    /// Others of the node map it as well; it is this rank's alone for now.
    Shared(SharedFrame),
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
