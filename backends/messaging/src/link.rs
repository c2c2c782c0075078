//! What an endpoint knows of each peer: credit and posted receives for each tag, and whether it is
//! gone.

use core::time::Duration;
use std::collections::VecDeque;

use foldwire::transport::{Rank, Tag};

impl<B> LinkState<B> {
    /// Whether the next frame is to be matched, where every `depth`-th is.
    pub(crate) const fn is_match_due(&self, depth: usize) -> bool {
        self.n_unmatched + 1 >= depth
    }

    /// Whether one more frame may be sent.
    pub(crate) const fn has_room(&self, depth: usize) -> bool {
        self.in_flight < depth && !(self.awaits_match && self.is_match_due(depth))
    }

    /// Counts a frame as sent.
    pub(crate) const fn sent(&mut self, matched: bool) {
        self.in_flight += 1;
        self.awaits_match |= matched;
        self.n_unmatched = if matched { 0 } else { self.n_unmatched + 1 };
    }

    /// Counts a frame as back.
    pub(crate) const fn released(&mut self, matched: bool) {
        self.in_flight -= 1;
        self.awaits_match &= !matched;
    }
}

/// One stream each way between this rank and another.
pub(crate) struct LinkState<B> {
    /// Frames sent that the network still has, those that wait for it included.
    pub(crate) in_flight: usize,
    /// A matched frame is among them.
    pub(crate) awaits_match: bool,
    /// Frames sent since the last matched one.
    pub(crate) n_unmatched: usize,
    /// Receives posted.
    pub(crate) n_posted: usize,
    /// Frames that have come, and their bytes.
    pub(crate) arrived: VecDeque<(B, usize)>,
}

impl<B> LinkState<B> {
    fn new() -> Self {
        Self {
            in_flight: 0,
            awaits_match: false,
            n_unmatched: 0,
            n_posted: 0,
            arrived: VecDeque::new(),
        }
    }
}

struct PeerState<B> {
    /// When it was found to be gone.
    lost: Option<Duration>,
    /// It is gone in disorder.
    is_disorder: bool,
    /// The links of the tags up to the highest that was used.
    links: Vec<LinkState<B>>,
}

impl<B> PeerState<B> {
    const fn new() -> Self {
        Self { lost: None, is_disorder: false, links: Vec::new() }
    }
}

/// All peers, this rank itself included.
pub(crate) struct PeerStates<B> {
    peers: Vec<PeerState<B>>,
}

impl<B> PeerStates<B> {
    pub(crate) fn new(size: usize) -> Self {
        Self { peers: (0..size).map(|_| PeerState::new()).collect() }
    }

    /// The link with a rank and tag that have been checked, at the latest when a message was
    /// accepted.
    pub(crate) fn link(&mut self, peer: Rank, tag: Tag) -> &mut LinkState<B> {
        let links = &mut self.peers[peer.index()].links;
        if links.len() <= tag.index() {
            links.resize_with(tag.index() + 1, LinkState::new);
        }
        &mut links[tag.index()]
    }

    /// Notes that a rank has ended; the first time counts.
    pub(crate) fn lose(&mut self, peer: Rank, now: Duration) {
        self.leave(peer, now);
        if let Some(peer) = self.peers.get_mut(peer.index()) {
            peer.is_disorder = true;
        }
    }

    /// Notes that a rank has ended in good order; the first time counts.
    pub(crate) fn leave(&mut self, peer: Rank, now: Duration) {
        if let Some(peer) = self.peers.get_mut(peer.index()) {
            peer.lost.get_or_insert(now);
        }
    }

    /// Since when a rank is gone.
    pub(crate) fn lost(&self, peer: Rank) -> Option<Duration> {
        self.peers.get(peer.index()).and_then(|peer| peer.lost)
    }

    /// Frames to a rank that the network still has, of one channel or of all; without those of the
    /// control tag, if so wanted.
    pub(crate) fn n_in_flight(
        &self,
        peer: Rank,
        channel: Option<usize>,
        with_control: bool,
    ) -> usize {
        let links = self.peers.get(peer.index()).map_or(&[][..], |peer| &peer.links);
        let n_tags = if with_control { Tag::COUNT } else { Tag::CONTROL.index() };
        let in_flight = |links: &[LinkState<B>]| {
            links.iter().take(n_tags).map(|link| link.in_flight).sum::<usize>()
        };
        let mut channels = links.chunks(Tag::COUNT);
        match channel {
            Some(channel) => channels.nth(channel).map_or(0, in_flight),
            None => channels.map(in_flight).sum(),
        }
    }

    /// Whether any rank is gone otherwise than in good order.
    pub(crate) fn any_disorder(&self) -> bool {
        self.peers.iter().any(|peer| peer.is_disorder)
    }
}
