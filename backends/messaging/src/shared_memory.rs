//! Frames between ranks of one node, in memory that they share.
//!
//! A message names the slot of its frame, so no bytes are copied. In exchange, the receiver sends
//! back the slot of the frame with which it posted the receive. So frames move between ranks, and
//! each rank keeps the same number of frames.
//!
//! ```text
//!   sender                 ring of the receiver             receiver
//!   frame in slot 3   ──▶  «slot 3, 1000 bytes, tag 0» ──▶  keeps slot 3, gives slot 8
//!   gets slot 8       ◀──  «returned: slot 8»          ◀──  by the ring of the sender
//! ```
//!
//! A send that is not `matched` completes at once, and returns a free frame in place of the sent
//! one. If there is no free frame, the send completes when the receiver's slot comes back. A
//! `matched` send completes when the receiver has posted the receive, as with `MPI_Issend`. So no
//! rank waits for another to poll, and credit works as over other layers.
//!
//! Abort notices travel by the message layer, and so do all messages between ranks that cannot
//! share memory.

use std::collections::VecDeque;
use std::fs::File;
use std::os::fd::AsRawFd;
use std::process;

use foldwire::transport::{MAX_CHANNELS, Rank, Tag};

use crate::Event;
pub(crate) use crate::ffi::shared::SharedFrame;
use crate::ffi::shared::{
    Region, RegionLayout, RegionToken, RingMessage, RingReceiver, RingSender, SlotId,
};
use crate::frame::{FrameMemory, MessageFrame};

/// Flag in a message's word, above the bits of the tag: the send completes only when a slot comes
/// back.
const NOTIFY: u32 = 1 << 16;
/// Flag: the frame was sent `matched`.
const MATCHED: u32 = 1 << 17;
/// Flag: the message returns a slot in exchange for a sent frame.
const RETURNED: u32 = 1 << 18;

/// Longest frame that is shared, in bytes.
const MAX_FRAME_BYTES: usize = 1 << 28;

/// Frames in shared memory that are reserved for copies of frames on the heap.
const N_COPY_FRAMES: usize = 4;

/// Limit on the messages taken from one rank in one poll.
const MESSAGES_PER_PASS: usize = 16;

/// Memory that this rank shares with the other ranks of its node.
pub(crate) struct SharedMemory {
    own: Rank,
    layout: RegionLayout,
    /// Region of each rank of the node, by rank.
    regions: Vec<Option<Region>>,
    peers: Vec<NodePeer>,
    /// Index in `peers` of each rank of the node.
    peer_indices: Vec<Option<usize>>,
    free: Vec<SharedFrame>,
}

/// Another rank of the node.
struct NodePeer {
    rank: Rank,
    sender: RingSender,
    receiver: RingReceiver,
    /// Posted receives, at most one for each tag.
    posted: Vec<(Tag, MessageFrame)>,
    /// Frames that arrived before their receive was posted.
    arrived: VecDeque<ArrivedFrame>,
    /// Messages to the peer that wait for space in the ring.
    unsent: VecDeque<RingMessage>,
    /// Words (flags and tag) of sent messages for which the peer has not returned a slot.
    unreturned: Vec<u32>,
    is_lost: bool,
}

struct ArrivedFrame {
    frame: SharedFrame,
    n_bytes: usize,
    tag: Tag,
    /// Flags of the message.
    flags: u32,
}

/// Version of the memory layout and of the messages.
const FORMAT: u64 = 1;

/// Location of a rank's memory, and parameters that must be equal on all ranks.
struct RegionDescriptor {
    format: u64,
    frame_bytes: u64,
    process: u32,
    fd: i32,
    token: RegionToken,
}

impl RegionDescriptor {
    fn to_bytes(&self) -> Vec<u8> {
        let numbers = [self.format.to_le_bytes(), self.frame_bytes.to_le_bytes()];
        let location = [self.process.to_le_bytes(), self.fd.to_le_bytes()];
        [numbers.as_flattened(), location.as_flattened(), &self.token].concat()
    }

    /// Returns `None` for invalid bytes, such as the empty message of a rank that cannot share
    /// memory.
    fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (format, rest) = bytes.split_first_chunk()?;
        let (frame_bytes, rest) = rest.split_first_chunk()?;
        let (format, frame_bytes) = (u64::from_le_bytes(*format), u64::from_le_bytes(*frame_bytes));
        let (process, rest) = rest.split_first_chunk()?;
        let (fd, token) = rest.split_first_chunk()?;
        let (process, fd) = (u32::from_le_bytes(*process), i32::from_le_bytes(*fd));
        Some(Self { format, frame_bytes, process, fd, token: token.try_into().ok()? })
    }
}

impl SharedMemory {
    /// Shares memory with the other ranks of this node. Returns `None` if any of them cannot, or if
    /// there are no others. All ranks call it together. `nodes` holds the node of each rank.
    ///
    /// # Errors
    /// The errors of `all_gather`, which returns the input of each rank.
    pub(crate) fn join<E>(
        own: Rank,
        nodes: &[i64],
        frame_bytes: usize,
        mut all_gather: impl FnMut(&[u8]) -> Result<Vec<Vec<u8>>, E>,
    ) -> Result<Option<Self>, E> {
        let layout = RegionLayout { size: nodes.len(), frame_bytes };
        let on_this_node = |rank: usize| nodes.get(rank) == nodes.get(own.index());
        let token = token(own);
        let n_on_node = (0..nodes.len()).filter(|&rank| on_this_node(rank)).count();
        let is_useful = n_on_node > 1 && frame_bytes <= MAX_FRAME_BYTES;
        let region = is_useful.then(|| Region::create(layout, own.0, token));
        let (region, file) = region.and_then(Result::ok).unzip();
        let descriptor = |fd| {
            let (format, frame_bytes) = (FORMAT, frame_bytes as u64);
            RegionDescriptor { format, frame_bytes, process: process::id(), fd, token }.to_bytes()
        };
        let descriptor = file.as_ref().map(|file: &File| descriptor(file.as_raw_fd()));
        let descriptors = all_gather(&descriptor.unwrap_or_default())?;
        let mut shared = region.and_then(|region| {
            let descriptors = descriptors.iter().map(|bytes| RegionDescriptor::from_bytes(bytes));
            let of_node = descriptors.enumerate().filter(|&(rank, _)| on_this_node(rank));
            Self::open_peers(own, layout, region, of_node)
        });
        let all = all_gather(&[u8::from(shared.is_some())])?;
        let mut of_node = all.iter().enumerate().filter(|&(rank, _)| on_this_node(rank));
        if !of_node.all(|(_, can_share)| *can_share == [1]) {
            shared = None;
        }
        // By now every rank that could open the file has done so.
        drop(file);
        Ok(shared)
    }

    /// Opens the memory of the other ranks of the node (`of_node` includes this rank). Returns
    /// `None` if the memory of one of them cannot be opened.
    fn open_peers(
        own: Rank,
        layout: RegionLayout,
        region: Region,
        of_node: impl Iterator<Item = (usize, Option<RegionDescriptor>)>,
    ) -> Option<Self> {
        let mut regions: Vec<Option<Region>> = (0..layout.size).map(|_| None).collect();
        let (mut peers, mut peer_indices) = (Vec::new(), vec![None; layout.size]);
        for (at, descriptor) in of_node.filter(|&(at, _)| at != own.index()) {
            let (rank, RegionDescriptor { format, frame_bytes, process, fd, token }) =
                (Rank::new(at), descriptor?);
            if (format, frame_bytes) != (FORMAT, layout.frame_bytes as u64) {
                return None;
            }
            let theirs = Region::open((process, fd), layout, rank.0, token).ok()?;
            peer_indices[at] = Some(peers.len());
            peers.push(NodePeer {
                rank,
                sender: theirs.sender(own.index())?,
                receiver: region.receiver(at)?,
                posted: Vec::new(),
                arrived: VecDeque::new(),
                unsent: VecDeque::new(),
                unreturned: Vec::new(),
                is_lost: false,
            });
            regions[at] = Some(theirs);
        }
        regions[own.index()] = Some(region);
        Some(Self { own, layout, regions, peers, peer_indices, free: Vec::new() })
    }

    /// Returns whether messages to and from `peer` use shared memory.
    pub(crate) fn contains(&self, peer: Rank) -> bool {
        matches!(self.peer_indices.get(peer.index()), Some(Some(_)))
    }

    /// Number of other ranks that share memory with this one.
    pub(crate) const fn n_peers(&self) -> usize {
        self.peers.len()
    }

    /// Allocates a frame that can be sent without a copy, if `n_bytes` is the shared frame size and
    /// a frame is left. The last [`N_COPY_FRAMES`] are reserved, so that frames on the heap can
    /// always be copied and sent.
    pub(crate) fn allocate(&mut self, n_bytes: usize) -> Option<SharedFrame> {
        if n_bytes != self.layout.frame_bytes {
            return None;
        }
        if self.free.len() > N_COPY_FRAMES {
            return self.free.pop();
        }
        let own = self.regions.get_mut(self.own.index())?.as_mut()?;
        if own.n_left() > N_COPY_FRAMES { own.allocate() } else { None }
    }

    fn allocate_for_copy(&mut self) -> Option<SharedFrame> {
        let own = self.regions.get_mut(self.own.index())?.as_mut()?;
        self.free.pop().or_else(|| own.allocate())
    }

    fn peer(&mut self, rank: Rank) -> Option<&mut NodePeer> {
        let index = *self.peer_indices.get(rank.index())?;
        self.peers.get_mut(index?)
    }

    /// Sends a frame. Returns an event if the send is complete already, or gives the frame back if
    /// the peer's ring is full or shared memory for a copy is missing.
    pub(crate) fn send(
        &mut self,
        to: Rank,
        tag: Tag,
        frame: MessageFrame,
        n_bytes: usize,
        matched: bool,
    ) -> Result<Option<Event<MessageFrame>>, MessageFrame> {
        let frame_bytes = self.layout.frame_bytes;
        if !self.peer(to).is_some_and(|peer| peer.unsent.is_empty() && peer.sender.has_room()) {
            return Err(frame);
        }
        let shared = |frame| MessageFrame(FrameMemory::Shared(frame));
        let (sent, spare) = match frame {
            MessageFrame(FrameMemory::Shared(frame)) if matched => (frame, None),
            MessageFrame(FrameMemory::Shared(frame)) => {
                (frame, self.allocate(frame_bytes).map(shared))
            }
            // The frame was allocated when no shared memory was left.
            MessageFrame(FrameMemory::Heap(_)) => {
                let Some(mut copy) = self.allocate_for_copy() else { return Err(frame) };
                copy.as_mut()[..n_bytes].copy_from_slice(&frame.as_ref()[..n_bytes]);
                (copy, (!matched).then_some(frame))
            }
        };
        // Without a spare frame, the send completes when the peer returns a slot.
        let notify = if spare.is_some() { 0 } else { NOTIFY };
        let word = u32::from(tag.0) | notify | if matched { MATCHED } else { 0 };
        let message = RingMessage { slot: sent.id, n_bytes: n_bytes as u64, word };
        if let Some(peer) = self.peer(to) {
            if !peer.sender.push(message) {
                return Err(shared(sent));
            }
            peer.unreturned.push(word);
        }
        Ok(spare.map(|buffer| Event::Released { to, tag, buffer, matched }))
    }

    /// Posts a receive. Returns an event if its message has arrived already.
    pub(crate) fn recv(
        &mut self,
        from: Rank,
        tag: Tag,
        buffer: MessageFrame,
    ) -> Option<Event<MessageFrame>> {
        let peer = self.peer(from)?;
        match peer.arrived.iter().position(|arrived| arrived.tag == tag) {
            Some(at) => peer.arrived.remove(at).map(|arrived| peer.receive(arrived, buffer)),
            None => {
                peer.posted.push((tag, buffer));
                None
            }
        }
    }

    /// Returns whether a message has arrived.
    #[inline]
    pub(crate) fn has_message(&self) -> bool {
        self.peers.iter().any(|peer| !peer.is_lost && peer.receiver.has_next())
    }

    /// Handles messages that have arrived.
    #[inline]
    pub(crate) fn poll(&mut self, events: &mut VecDeque<Event<MessageFrame>>) {
        let Self { layout, regions, peers, free, .. } = self;
        for peer in peers.iter_mut().filter(|peer| !peer.is_lost) {
            peer.send_unsent();
            for _ in 0..MESSAGES_PER_PASS {
                let Some(message) = peer.receiver.pop() else { break };
                let arrived = decode(regions, layout, message);
                let Some(arrived) = arrived.filter(|arrived| peer.accept(arrived)) else {
                    // The message is invalid. No correct rank sends such a message.
                    peer.is_lost = true;
                    events.push_back(Event::Lost { peer: peer.rank });
                    break;
                };
                let ArrivedFrame { tag, flags, .. } = arrived;
                if flags & RETURNED == 0 {
                    match peer.posted.iter().position(|&(posted, _)| posted == tag) {
                        Some(at) => {
                            let (_, buffer) = peer.posted.swap_remove(at);
                            events.push_back(peer.receive(arrived, buffer));
                        }
                        None => peer.arrived.push_back(arrived),
                    }
                } else if flags & NOTIFY == 0 {
                    free.push(arrived.frame);
                } else {
                    let (to, buffer) =
                        (peer.rank, MessageFrame(FrameMemory::Shared(arrived.frame)));
                    let matched = flags & MATCHED != 0;
                    events.push_back(Event::Released { to, tag, buffer, matched });
                }
            }
        }
    }

    /// Cancels the posted receives.
    pub(crate) fn cancel(&mut self, events: &mut VecDeque<Event<MessageFrame>>) {
        let posted = self.peers.iter_mut().flat_map(|peer| peer.posted.drain(..));
        events.extend(posted.map(|(_, buffer)| Event::Returned { buffer }));
    }

    /// Ignores further messages of `peer`.
    pub(crate) fn forget(&mut self, peer: Rank) {
        if let Some(peer) = self.peer(peer) {
            peer.is_lost = true;
        }
    }
}

impl NodePeer {
    /// Returns whether the peer may send this message. It may return one slot for each message
    /// that this rank has sent to it. Removes the sent message from `unreturned`.
    fn accept(&mut self, arrived: &ArrivedFrame) -> bool {
        if arrived.flags & RETURNED == 0 {
            return true;
        }
        let sent = u32::from(arrived.tag.0) | arrived.flags & !RETURNED;
        let at = self.unreturned.iter().position(|&word| word == sent);
        at.map(|at| self.unreturned.swap_remove(at)).is_some()
    }

    /// Completes a receive that was posted with `buffer`. The sender gets that buffer's slot in
    /// exchange. A buffer on the heap has no slot: the bytes are copied, and the sender gets the
    /// arrived slot back.
    fn receive(&mut self, arrived: ArrivedFrame, buffer: MessageFrame) -> Event<MessageFrame> {
        let ArrivedFrame { frame, n_bytes, tag, flags } = arrived;
        let (buffer, slot) = match buffer {
            MessageFrame(FrameMemory::Shared(mine)) => {
                (MessageFrame(FrameMemory::Shared(frame)), mine.id)
            }
            MessageFrame(FrameMemory::Heap(mut mine)) => {
                mine.as_mut()[..n_bytes].copy_from_slice(&frame.as_ref()[..n_bytes]);
                (MessageFrame(FrameMemory::Heap(mine)), frame.id)
            }
        };
        let word = u32::from(tag.0) | flags | RETURNED;
        self.unsent.push_back(RingMessage { slot, n_bytes: 0, word });
        self.send_unsent();
        Event::Received { from: self.rank, tag, buffer, n_bytes }
    }

    /// Sends the waiting messages that the ring has space for.
    #[inline]
    fn send_unsent(&mut self) {
        while let Some(&message) = self.unsent.front()
            && self.sender.push(message)
        {
            self.unsent.pop_front();
        }
    }
}

/// Decodes a message. Returns `None` if it is invalid.
fn decode(
    regions: &[Option<Region>],
    layout: &RegionLayout,
    message: RingMessage,
) -> Option<ArrivedFrame> {
    let RingMessage { slot: SlotId { owner, index }, n_bytes, word } = message;
    let tag = Tag(word as u16);
    let (n_bytes, flags) = (usize::try_from(n_bytes).ok()?, word & !0xffff);
    let is_valid = n_bytes <= layout.frame_bytes
        && tag.channel() < MAX_CHANNELS
        && flags & !(NOTIFY | MATCHED | RETURNED) == 0;
    let region = regions.get(owner as usize)?.as_ref()?;
    let frame = is_valid.then(|| region.frame(index)).flatten()?;
    Some(ArrivedFrame { frame, n_bytes, tag, flags })
}

/// Makes a random token. A rank that opens a peer's file compares its token with the one that the
/// peer announced. They differ if the peer is on another machine, and a process of this machine has
/// the same id and such a file.
fn token(own: Rank) -> RegionToken {
    use std::hash::{BuildHasher, RandomState};

    let random = || RandomState::new().hash_one((own, process::id())).to_le_bytes();
    let mut token = RegionToken::default();
    let (first, second) = token.split_at_mut(8);
    first.copy_from_slice(&random());
    second.copy_from_slice(&random());
    token
}

#[cfg(test)]
mod tests;
