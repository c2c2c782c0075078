//! Memory that the ranks of a node share: its frames. Each frame belongs to one rank at a time.
//!
//! Each rank has a file in memory. It offers the file to the other ranks, and each maps the files
//! of all. A rank that gives a frame away names its slot to the new owner, by any message layer.

use std::fmt;
use std::fs::File;
use std::os::fd::AsRawFd;
use std::process;

use foldwire::transport::Rank;

pub(crate) use crate::ffi::shared::SharedFrame;
use crate::ffi::shared::{Region, RegionLayout, RegionToken};
use crate::frame::{FrameMemory, MessageFrame, SlotId};

/// Longest frame that is shared, in bytes.
const MAX_FRAME_BYTES: usize = 1 << 28;

/// Version of the memory layout and of the messages in it.
const FORMAT: u64 = 3;

/// This rank's memory, before the other ranks of its node have opened it.
pub struct MemoryOffer {
    own: Rank,
    layout: RegionLayout,
    region: Region,
    /// Others can open the memory as long as this file is open.
    file: File,
    token: RegionToken,
}

impl MemoryOffer {
    /// Creates memory for frames of `frame_bytes`, which must be the same on all ranks. Returns
    /// `None` if this system has no such memory.
    #[must_use]
    pub fn new(own: Rank, frame_bytes: usize) -> Option<Self> {
        Self::with_rings(own, frame_bytes, 0)
    }

    /// Creates memory that also has a ring for messages from each of `n_rings` ranks.
    pub(crate) fn with_rings(own: Rank, frame_bytes: usize, n_rings: usize) -> Option<Self> {
        if frame_bytes > MAX_FRAME_BYTES {
            return None;
        }
        let (layout, token) = (RegionLayout { n_rings, frame_bytes }, token(own));
        let (region, file) = Region::create(layout, own.0, token).ok()?;
        Some(Self { own, layout, region, file, token })
    }

    /// Encodes where the memory is.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let frame_bytes = self.layout.frame_bytes as u64;
        let (process, fd) = (process::id(), self.file.as_raw_fd());
        let place = Place { format: FORMAT, frame_bytes, process, fd, token: self.token };
        bytemuck::bytes_of(&place).to_vec()
    }

    /// Opens the memory of the other ranks of the node. `of_node` has their offers and this rank's
    /// own. Returns `None` if the memory of one of them cannot be opened.
    pub fn open<'a>(
        self,
        of_node: impl IntoIterator<Item = (Rank, &'a [u8])>,
    ) -> Option<NodeMemory> {
        let Self { own, layout, region, file, .. } = self;
        let mut regions = Vec::new();
        let mut insert = |rank: Rank, region| {
            regions.resize_with(regions.len().max(rank.index() + 1), || None);
            regions[rank.index()] = Some(region);
        };
        insert(own, region);
        for (rank, bytes) in of_node.into_iter().filter(|&(rank, _)| rank != own) {
            // A rank that cannot share memory offers no bytes.
            let place = bytemuck::try_pod_read_unaligned(bytes).ok()?;
            let Place { format, frame_bytes, process, fd, token } = place;
            if (format, frame_bytes) != (FORMAT, layout.frame_bytes as u64) {
                return None;
            }
            insert(rank, Region::open((process, fd), layout, rank.0, token).ok()?);
        }
        Some(NodeMemory { own, regions, free: Vec::new(), file: Some(file) })
    }
}

/// Frames in the memory of the ranks of a node.
pub struct NodeMemory {
    own: Rank,
    /// Memory of the ranks of the node, by rank.
    regions: Vec<Option<Region>>,
    pub(crate) free: Vec<SharedFrame>,
    file: Option<File>,
}

impl NodeMemory {
    /// Keeps further processes from opening this rank's memory. The rank calls this when all ranks
    /// of the node have opened it.
    pub fn close(&mut self) {
        self.file = None;
    }

    /// Returns the memory of a rank of the node.
    pub(crate) fn region(&self, rank: Rank) -> Option<&Region> {
        self.regions.get(rank.index())?.as_ref()
    }

    /// Returns whether this rank is on the node.
    #[must_use]
    pub fn contains(&self, rank: Rank) -> bool {
        self.region(rank).is_some()
    }

    /// Takes a free frame, if there is one. Its slot is lost if the frame is dropped.
    pub fn allocate(&mut self) -> Option<MessageFrame> {
        self.take().map(|frame| MessageFrame(FrameMemory::Shared(frame)))
    }

    pub(crate) fn take(&mut self) -> Option<SharedFrame> {
        let own = self.own.index();
        self.free.pop().or_else(|| self.regions.get_mut(own)?.as_mut()?.allocate())
    }

    /// Returns the frame of a slot that another rank has given to this one, if the slot exists.
    #[must_use]
    pub fn frame(&self, slot: SlotId) -> Option<MessageFrame> {
        self.shared_frame(slot).map(|frame| MessageFrame(FrameMemory::Shared(frame)))
    }

    pub(crate) fn shared_frame(&self, slot: SlotId) -> Option<SharedFrame> {
        self.region(Rank(slot.owner))?.frame(slot.index)
    }

    /// Returns whether a frame is on the heap or in this memory, and not in that of another group.
    #[must_use]
    pub fn accepts(&self, frame: &MessageFrame) -> bool {
        match &frame.0 {
            FrameMemory::Heap(_) => true,
            FrameMemory::Shared(frame) => self.owns(frame),
        }
    }

    pub(crate) fn owns(&self, frame: &SharedFrame) -> bool {
        self.region(Rank(frame.slot().owner)).is_some_and(|region| region.has(frame))
    }

    /// Makes a frame free.
    pub fn release(&mut self, frame: MessageFrame) {
        if let MessageFrame(FrameMemory::Shared(frame)) = frame {
            self.free.push(frame);
        }
    }
}

impl fmt::Debug for NodeMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NodeMemory").field("own", &self.own).finish_non_exhaustive()
    }
}

impl fmt::Debug for MemoryOffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryOffer").field("own", &self.own).finish_non_exhaustive()
    }
}

/// Place of a rank's memory, and parameters that must be equal on all ranks.
#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C)]
struct Place {
    format: u64,
    frame_bytes: u64,
    process: u32,
    fd: i32,
    token: RegionToken,
}

/// Makes a random token. A rank that opens a peer's file compares its token with the one that the
/// peer announced. They differ if the peer is on another machine, and a process of this machine has
/// the same id and such a file.
fn token(own: Rank) -> RegionToken {
    use std::hash::{BuildHasher, RandomState};

    let random = || RandomState::new().hash_one((own, process::id()));
    bytemuck::cast([random(), random()])
}
