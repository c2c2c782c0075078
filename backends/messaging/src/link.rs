//! State that an endpoint keeps of each peer: credit and posted receives for each tag, and whether
//! the peer has ended.
//!
//! A frame is *released* when the network returns its buffer. The buffer of a *matched* frame
//! returns only after the receiver has posted the receive. With a credit of `depth`, every
//! `depth`-th frame is matched, and the next matched frame waits until the previous one is
//! released. So a sender is never more than 2·`depth` frames ahead (*Credit* in `endpoint.rs`).

use core::time::Duration;
use std::collections::VecDeque;

use foldwire::transport::{Rank, Tag};

/// State of one tag between this rank and a peer, in both directions.
pub(crate) struct LinkState<B> {
    /// Sent frames that are not released yet, including frames that wait in the outbox.
    pub(crate) in_flight: usize,
    /// A matched frame is in flight.
    pub(crate) awaits_match: bool,
    /// Frames sent since the last matched one.
    pub(crate) n_unmatched: usize,
    /// Posted receives.
    pub(crate) n_posted: usize,
    /// Received frames that the engine has not taken yet, with their lengths in bytes.
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

    /// Returns whether the next frame must be sent `matched`. Every `depth`-th frame must.
    pub(crate) const fn is_match_due(&self, depth: usize) -> bool {
        self.n_unmatched + 1 >= depth
    }

    /// Returns whether credit allows another frame: fewer than `depth` frames are in flight, and
    /// the next frame is not a second matched one.
    pub(crate) const fn has_room(&self, depth: usize) -> bool {
        self.in_flight < depth && !(self.awaits_match && self.is_match_due(depth))
    }

    /// Counts a frame as in flight.
    const fn sent(&mut self, matched: bool) {
        self.in_flight += 1;
        self.awaits_match |= matched;
        self.n_unmatched = if matched { 0 } else { self.n_unmatched + 1 };
    }

    /// Counts a frame as released.
    const fn released(&mut self, matched: bool) {
        self.in_flight -= 1;
        self.awaits_match &= !matched;
    }
}

struct PeerState<B> {
    /// Time at which this rank learned that the peer has ended.
    lost: Option<Duration>,
    /// The peer has ended without an orderly shutdown.
    is_disorder: bool,
    /// State of each tag up to the highest used.
    links: Vec<LinkState<B>>,
}

impl<B> PeerState<B> {
    const fn new() -> Self {
        Self { lost: None, is_disorder: false, links: Vec::new() }
    }
}

/// State of all ranks, including this one.
pub(crate) struct PeerStates<B> {
    peers: Vec<PeerState<B>>,
    /// Number of frames in flight to any rank.
    n_in_flight: usize,
}

impl<B> PeerStates<B> {
    pub(crate) fn new(size: usize) -> Self {
        Self { peers: (0..size).map(|_| PeerState::new()).collect(), n_in_flight: 0 }
    }

    /// Counts a frame as in flight. Returns its link.
    pub(crate) fn sent(&mut self, to: Rank, tag: Tag, matched: bool) -> &mut LinkState<B> {
        self.n_in_flight += 1;
        let link = self.link(to, tag);
        link.sent(matched);
        link
    }

    /// Counts a frame as released.
    pub(crate) fn released(&mut self, to: Rank, tag: Tag, matched: bool) {
        self.n_in_flight -= 1;
        self.link(to, tag).released(matched);
    }

    /// Records that the receiver has posted the receive of a matched frame, released before.
    pub(crate) fn matched(&mut self, to: Rank, tag: Tag) {
        self.link(to, tag).awaits_match = false;
    }

    /// Returns whether frames are in flight to any rank.
    pub(crate) const fn any_in_flight(&self) -> bool {
        self.n_in_flight > 0
    }

    /// Returns the state of a link.
    ///
    /// # Panics
    /// If the rank is out of range. The caller has checked rank and tag.
    pub(crate) fn link(&mut self, peer: Rank, tag: Tag) -> &mut LinkState<B> {
        let links = &mut self.peers[peer.index()].links;
        if links.len() <= tag.index() {
            links.resize_with(tag.index() + 1, LinkState::new);
        }
        &mut links[tag.index()]
    }

    /// Records that a rank has ended without an orderly shutdown. Keeps the time of the first
    /// report.
    pub(crate) fn lose(&mut self, peer: Rank, now: Duration) {
        self.leave(peer, now);
        if let Some(peer) = self.peers.get_mut(peer.index()) {
            peer.is_disorder = true;
        }
    }

    /// Records that a rank has ended by an orderly shutdown. Keeps the time of the first report.
    pub(crate) fn leave(&mut self, peer: Rank, now: Duration) {
        if let Some(peer) = self.peers.get_mut(peer.index()) {
            peer.lost.get_or_insert(now);
        }
    }

    /// Returns the time at which this rank learned that a rank has ended; `None` if it has not.
    pub(crate) fn lost(&self, peer: Rank) -> Option<Duration> {
        self.peers.get(peer.index()).and_then(|peer| peer.lost)
    }

    /// Counts the frames in flight to a rank on one channel, or on all channels if `channel` is
    /// `None`. Control messages count only if `with_control` is set.
    pub(crate) fn n_in_flight(
        &self,
        peer: Rank,
        channel: Option<usize>,
        with_control: bool,
    ) -> usize {
        let links = self.peers.get(peer.index()).map_or(&[][..], |peer| &peer.links);
        // The control tag is the last tag of each channel.
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

    /// Returns whether any rank has ended without an orderly shutdown.
    pub(crate) fn any_disorder(&self) -> bool {
        self.peers.iter().any(|peer| peer.is_disorder)
    }
}
