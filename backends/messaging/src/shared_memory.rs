//! Frames between ranks of one node, in memory that they share.
//!
//! A message names the slot that its frame is in, so nothing is copied. Whoever takes it gives a
//! slot back, the one that was there to receive into: frames wander, and each rank keeps as many.
//!
//! ```text
//!   sender                 ring of the receiver             receiver
//!   frame in slot 3   ──▶  «slot 3, 1000 bytes, tag 0» ──▶  has slot 3, had slot 8 for it
//!   has slot 8        ◀──  «slot 8 for it»             ◀──  in the ring of the sender
//! ```
//!
//! A send that need not be matched is done at once: the sender goes on with a free frame until
//! another comes. One that must be is done when the receiver has asked for the message, as with
//! `MPI_Issend`. So a rank never waits for another to look, and credit counts as it does elsewhere.

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

/// What a message says beside its tag: the sender is to be told that it was taken,
const NOTIFY: u32 = 1 << 16;
/// as it was sent to be matched;
const MATCHED: u32 = 1 << 17;
/// and that this is what it is told, with a slot for the one that was sent.
const RETURNED: u32 = 1 << 18;

/// Longer frames are not shared.
const MAX_FRAME_BYTES: usize = 1 << 28;

/// Frames that are kept for what comes from the heap.
const N_COPY_FRAMES: usize = 4;

/// Messages taken from one rank in one pass.
const MESSAGES_PER_PASS: usize = 16;

/// A rank's frames in memory that others of its node share.
pub(crate) struct SharedMemory {
    own: Rank,
    layout: RegionLayout,
    /// Of each rank of the node, by rank.
    regions: Vec<Option<Region>>,
    peers: Vec<NodePeer>,
    /// Where in `peers` each rank is.
    peer_indices: Vec<Option<usize>>,
    free: Vec<SharedFrame>,
}

/// Another rank of the node.
struct NodePeer {
    rank: Rank,
    sender: RingSender,
    receiver: RingReceiver,
    /// Receives, one for each tag at most.
    posted: Vec<(Tag, MessageFrame)>,
    /// What has come that nobody has asked for.
    arrived: VecDeque<ArrivedFrame>,
    /// What it is to be told when its ring has room.
    unsent: VecDeque<RingMessage>,
    /// Words of messages for which it has not given a slot back.
    unreturned: Vec<u32>,
    is_lost: bool,
}

struct ArrivedFrame {
    frame: SharedFrame,
    n_bytes: usize,
    tag: Tag,
    /// What its sender wants to be told.
    flags: u32,
}

/// Changes with what lies where in the memory, and with what messages say.
const FORMAT: u64 = 1;

/// How others find a rank's memory, and what they must have in common with it.
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

    /// None of a rank that shares no memory.
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
    /// Shares memory with the other ranks of this node, if all of them can; `None` if not, or if
    /// there are none. All ranks call it together. `nodes`: of each rank, which node it is on.
    ///
    /// # Errors
    /// Those of `all_gather`, which gives what each rank has given.
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
        let mut others = all.iter().enumerate().filter(|&(rank, _)| on_this_node(rank));
        if !others.all(|(_, can)| *can == [1]) {
            shared = None;
        }
        // Only now does nobody open it any more.
        drop(file);
        Ok(shared)
    }

    /// With the memory of these ranks of the node, this one's among them, if all of it is there.
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

    /// Whether messages of this rank come here, and go from here.
    pub(crate) fn contains(&self, peer: Rank) -> bool {
        matches!(self.peer_indices.get(peer.index()), Some(Some(_)))
    }

    /// How many those ranks are.
    pub(crate) const fn n_peers(&self) -> usize {
        self.peers.len()
    }

    /// A frame that can be sent without a copy, if it is to be of so many bytes and there is one.
    /// The last ones are for copies of others: those can be sent then, too.
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

    /// Sends a frame, and says if that is done already; gives it back if there is no room.
    pub(crate) fn send(
        &mut self,
        to: Rank,
        tag: Tag,
        frame: MessageFrame,
        n_bytes: usize,
        matched: bool,
    ) -> Result<Option<Event<MessageFrame>>, MessageFrame> {
        let n_frame = self.layout.frame_bytes;
        if !self.peer(to).is_some_and(|peer| peer.unsent.is_empty() && peer.sender.has_room()) {
            return Err(frame);
        }
        let shared = |frame| MessageFrame(FrameMemory::Shared(frame));
        let (sent, spare) = match frame {
            MessageFrame(FrameMemory::Shared(frame)) if matched => (frame, None),
            MessageFrame(FrameMemory::Shared(frame)) => (frame, self.allocate(n_frame).map(shared)),
            // There was no memory to share when it was made.
            MessageFrame(FrameMemory::Heap(_)) => {
                let Some(mut copy) = self.allocate_for_copy() else { return Err(frame) };
                copy.as_mut()[..n_bytes].copy_from_slice(&frame.as_ref()[..n_bytes]);
                (copy, (!matched).then_some(frame))
            }
        };
        // Without a frame to go on with, the sender waits for the one that comes back.
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

    /// Posts a receive, which may be done already.
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

    /// Whether something has come.
    #[inline]
    pub(crate) fn has_message(&self) -> bool {
        self.peers.iter().any(|peer| !peer.is_lost && peer.receiver.has_next())
    }

    /// Takes what has come.
    #[inline]
    pub(crate) fn poll(&mut self, events: &mut VecDeque<Event<MessageFrame>>) {
        let Self { layout, regions, peers, free, .. } = self;
        for peer in peers.iter_mut().filter(|peer| !peer.is_lost) {
            peer.send_unsent();
            for _ in 0..MESSAGES_PER_PASS {
                let Some(message) = peer.receiver.pop() else { break };
                let arrived = decode(regions, layout, message);
                let Some(arrived) = arrived.filter(|arrived| peer.accept(arrived)) else {
                    // What a rank of this library would not send.
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

    /// Gives posted receives back.
    pub(crate) fn cancel(&mut self, events: &mut VecDeque<Event<MessageFrame>>) {
        let posted = self.peers.iter_mut().flat_map(|peer| peer.posted.drain(..));
        events.extend(posted.map(|(_, buffer)| Event::Returned { buffer }));
    }

    /// Nothing more comes of this rank.
    pub(crate) fn forget(&mut self, peer: Rank) {
        if let Some(peer) = self.peer(peer) {
            peer.is_lost = true;
        }
    }
}

impl NodePeer {
    /// Whether it may send this: a slot comes back for a message that was sent, once.
    fn accept(&mut self, arrived: &ArrivedFrame) -> bool {
        if arrived.flags & RETURNED == 0 {
            return true;
        }
        let sent = u32::from(arrived.tag.0) | arrived.flags & !RETURNED;
        let at = self.unreturned.iter().position(|&word| word == sent);
        at.map(|at| self.unreturned.swap_remove(at)).is_some()
    }

    /// What has come, for one who had this buffer for it: its sender has that in exchange.
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

    /// Sends what is unsent, as far as there is room.
    #[inline]
    fn send_unsent(&mut self) {
        while let Some(&message) = self.unsent.front()
            && self.sender.push(message)
        {
            self.unsent.pop_front();
        }
    }
}

/// A message that makes sense.
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

/// What no other rank's memory begins with: another process of this number, on a machine that only
/// seems to be this one, has another.
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
