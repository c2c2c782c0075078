//! A message layer in memory that is as awkward as the contract allows: it refuses sends and
//! receives at random, completes in any order across links, and loses ranks.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;
use std::time::{Duration, Instant};

use foldwire::transport::{MIN_FRAME_BYTES, TransportError, TransportErrorKind};
use foldwire::{HeapFrame, Rank, Tag};
use foldwire_messaging::{Event, Net, Refused, Source, on_wire};

/// Messages, receives and events of all ranks.
pub(super) struct FakeNetwork {
    pub(super) random: u64,
    /// Chance in 256 that a `send` or `recv` is refused as busy, or that a `poll` returns no event.
    pub(super) busy: u64,
    /// Time until which every `send`, `recv` and `poll` fails in this way.
    pub(super) opens: Option<Instant>,
    pub(super) ranks: Vec<RankState>,
}

#[derive(Default)]
pub(super) struct RankState {
    /// Messages that arrived and match no receive yet: sender, tag, bytes.
    pub(super) unexpected: VecDeque<(Rank, Tag, Vec<u8>)>,
    pub(super) posted: Vec<(Source, Tag, HeapFrame)>,
    pub(super) events: Vec<Event<HeapFrame>>,
    /// Matched sends that wait for their receive: receiver, tag, buffer.
    pub(super) unmatched: Vec<(Rank, Tag, HeapFrame)>,
    /// Allocated buffers of more than [`MIN_FRAME_BYTES`].
    pub(super) n_frames: usize,
    /// Ranks passed to `forget`.
    pub(super) forgotten: Vec<Rank>,
    pub(super) abandoned: bool,
    /// Number of control messages that the rank has sent.
    pub(super) n_control_sent: usize,
}

impl FakeNetwork {
    pub(super) fn shared(size: usize, busy: u64) -> Rc<RefCell<Self>> {
        let ranks = (0..size).map(|_| RankState::default()).collect();
        Rc::new(RefCell::new(Self { random: 42, busy, opens: None, ranks }))
    }

    pub(super) fn draw(&mut self) -> u64 {
        self.random = self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        self.random >> 33
    }

    pub(super) fn is_busy(&mut self) -> bool {
        let is_closed = self.opens.is_some_and(|opens| Instant::now() < opens);
        is_closed || self.draw() % 256 < self.busy
    }

    /// Matches messages with receives at `rank`.
    pub(super) fn match_at(&mut self, rank: Rank) {
        let state = &mut self.ranks[rank.index()];
        let mut matched = Vec::new();
        let mut i = 0;
        while i < state.posted.len() {
            let (source, tag, _) = state.posted[i];
            let fits = |&(from, t, _): &(Rank, Tag, Vec<u8>)| {
                t == tag && (source == Source::Any || source == Source::Rank(from))
            };
            let Some(at) = state.unexpected.iter().position(fits) else {
                i += 1;
                continue;
            };
            let (from, tag, bytes) = state.unexpected.remove(at).unwrap();
            let (_, _, mut buffer) = state.posted.remove(i);
            buffer.as_mut()[..bytes.len()].copy_from_slice(&bytes);
            state.events.push(Event::Received { from, tag, buffer, n_bytes: bytes.len() });
            matched.push((from, tag));
        }
        for (from, tag) in matched {
            let sender = &mut self.ranks[from.index()];
            let is_it = |&(to, t, _): &(Rank, Tag, HeapFrame)| to == rank && t == tag;
            // A link has at most one matched send in flight. Its receive is posted once no message
            // of the link is left among the unexpected ones.
            if let Some(at) = sender.unmatched.iter().position(is_it)
                && !self.ranks[rank.index()].unexpected.iter().any(|m| m.0 == from && m.1 == tag)
            {
                let sender = &mut self.ranks[from.index()];
                let (to, tag, buffer) = sender.unmatched.remove(at);
                sender.events.push(Event::Released { to, tag, buffer, matched: true });
            }
        }
    }

    /// Returns whether a control message of `rank` has no receive yet.
    pub(super) fn has_unread(&self, rank: Rank) -> bool {
        let is_it = |&(from, tag, _): &(Rank, Tag, Vec<u8>)| from == rank && tag.is_control();
        self.ranks.iter().any(|state| state.unexpected.iter().any(is_it))
    }
}

#[derive(Clone, Copy, Debug)]
pub(super) struct FakeError;

impl TransportError for FakeError {
    fn kind(&self) -> TransportErrorKind {
        TransportErrorKind::Other
    }
    fn peer(&self) -> Option<Rank> {
        None
    }
}

/// Last byte of a frame that a layer does not accept.
pub(super) const FOREIGN: u8 = 0xfe;

pub(super) struct FakeNet {
    pub(super) network: Rc<RefCell<FakeNetwork>>,
    pub(super) rank: Rank,
    pub(super) moves_by_itself: bool,
}

impl Net for FakeNet {
    type Buffer = HeapFrame;
    type Error = FakeError;

    fn rank(&self) -> Rank {
        self.rank
    }
    fn size(&self) -> usize {
        self.network.borrow().ranks.len()
    }
    fn allocate(&mut self, n_bytes: usize) -> Result<HeapFrame, FakeError> {
        let n_frames = &mut self.network.borrow_mut().ranks[self.rank.index()].n_frames;
        *n_frames += usize::from(n_bytes > MIN_FRAME_BYTES);
        HeapFrame::try_new(n_bytes).ok_or(FakeError)
    }
    fn accepts(&self, buffer: &HeapFrame) -> bool {
        buffer.as_ref().last() != Some(&FOREIGN)
    }
    fn send(
        &mut self,
        to: Rank,
        tag: Tag,
        buffer: HeapFrame,
        n_bytes: usize,
        matched: bool,
    ) -> Result<(), Refused<HeapFrame, FakeError>> {
        let mut network = self.network.borrow_mut();
        if network.is_busy() {
            return Err(Refused::Busy(buffer));
        }
        let state = &mut network.ranks[to.index()];
        state.unexpected.push_back((self.rank, on_wire(tag), buffer.as_ref()[..n_bytes].to_vec()));
        let me = &mut network.ranks[self.rank.index()];
        me.n_control_sent += usize::from(tag.is_control());
        if matched {
            me.unmatched.push((to, tag, buffer));
        } else {
            me.events.push(Event::Released { to, tag, buffer, matched });
        }
        network.match_at(to);
        Ok(())
    }
    fn recv(
        &mut self,
        from: Source,
        tag: Tag,
        buffer: HeapFrame,
    ) -> Result<(), Refused<HeapFrame, FakeError>> {
        let mut network = self.network.borrow_mut();
        if network.is_busy() {
            return Err(Refused::Busy(buffer));
        }
        network.ranks[self.rank.index()].posted.push((from, tag, buffer));
        network.match_at(self.rank);
        Ok(())
    }
    fn poll(&mut self) -> Result<Option<Event<HeapFrame>>, FakeError> {
        let mut network = self.network.borrow_mut();
        let (pause, pick) = (network.is_busy(), network.draw() as usize);
        let events = &mut network.ranks[self.rank.index()].events;
        if events.is_empty() || pause {
            return Ok(None);
        }
        // Events of different links come in random order. Each link has at most one posted receive,
        // so the messages of a link stay in order.
        let at = pick % events.len();
        Ok(Some(events.swap_remove(at)))
    }
    fn moves_by_itself(&self) -> bool {
        self.moves_by_itself
    }
    fn cancel_receives(&mut self) {
        let state = &mut self.network.borrow_mut().ranks[self.rank.index()];
        let returned = state.posted.drain(..).map(|(_, _, buffer)| Event::Returned { buffer });
        state.events.extend(returned);
    }
    fn forget(&mut self, peer: Rank) {
        self.network.borrow_mut().ranks[self.rank.index()].forgotten.push(peer);
    }
    fn has_unmatched_control(&self) -> bool {
        self.network.borrow().has_unread(self.rank)
    }
    fn abandon(&mut self) {
        self.network.borrow_mut().ranks[self.rank.index()].abandoned = true;
    }
    fn idle(&mut self, _: Duration) {}
}
