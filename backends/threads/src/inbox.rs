//! The receiving half of an endpoint: finds the next frame for a (peer, tag).
//!
//! Without a rate limit, this is a pop from the link's ring. With a limit, frames stay in their
//! rings until they are due, and so occupy space on the link. [`Arrivals`] computes when each frame
//! is due, from its departure time and size. The inbox scans the rings again only after a
//! notification to this rank.

use std::collections::VecDeque;
use std::time::Duration;

use foldwire::transport::{Rank, Tag};

use crate::fabric::{SentFrame, ThreadFabric};
use crate::links::LinkIndex;
use crate::pace::Arrivals;
use crate::parker::Epoch;
use crate::ring::Consumer;

/// Result of [`FrameInbox::take`].
pub(crate) enum NextFrame {
    /// The next frame; the flag is true if its sender waits for space.
    Arrived(SentFrame, bool),
    /// A frame is on the link, but is not due yet.
    InFlight,
    /// The link holds no frame, or does not exist.
    Missing,
}

#[derive(Debug)]
struct InboundLink {
    consumer: Consumer<SentFrame>,
    from: Rank,
    /// With a rate limit: number of frames in the ring that a scan has found.
    n_seen: usize,
    /// Arrival times of the oldest frames of this link, as [`Arrivals`] has computed them. The rate
    /// limit does not apply between ranks of one node, so there every frame is due at time 0.
    due: VecDeque<Duration>,
}

#[derive(Debug)]
pub(crate) struct FrameInbox {
    rank: Rank,
    links: LinkIndex<InboundLink>,
    /// Number of links that were posted to this rank and are in `links`.
    n_collected: usize,
    /// `None` without a rate limit.
    arrivals: Option<Box<Arrivals>>,
    /// Number of notifications to this rank at the last scan of the rings; `None` before the first.
    scanned: Option<Epoch>,
}

impl FrameInbox {
    pub(crate) fn new(rank: Rank, fabric: &ThreadFabric) -> Self {
        Self {
            rank,
            links: LinkIndex::new(fabric.size()),
            n_collected: 0,
            arrivals: fabric.pace().map(|pace| Box::new(Arrivals::new(pace))),
            scanned: None,
        }
    }

    /// Takes the next frame from `from` with `tag`.
    #[inline]
    pub(crate) fn take(&mut self, fabric: &ThreadFabric, from: Rank, tag: Tag) -> NextFrame {
        if self.arrivals.is_some() {
            return self.take_paced(fabric, from, tag);
        }
        let position = self.links.position(from, tag).or_else(|| {
            self.collect(fabric);
            self.links.position(from, tag)
        });
        let link = position.and_then(|position| self.links.all().get_mut(position));
        match link.and_then(|link| link.consumer.pop()) {
            Some((sent, sender_waits)) => NextFrame::Arrived(sent, sender_waits),
            None => NextFrame::Missing,
        }
    }

    fn take_paced(&mut self, fabric: &ThreadFabric, from: Rank, tag: Tag) -> NextFrame {
        let now = fabric.now();
        self.scan(fabric, now);
        let Some(link) = self.links.find(from, tag) else { return NextFrame::Missing };
        match link.due.front() {
            Some(&due) if due <= now => match link.consumer.pop() {
                Some((sent, sender_waits)) => {
                    link.due.pop_front();
                    link.n_seen -= 1;
                    NextFrame::Arrived(sent, sender_waits)
                }
                None => NextFrame::Missing,
            },
            _ if link.n_seen > 0 => NextFrame::InFlight,
            _ => NextFrame::Missing,
        }
    }

    /// With a rate limit: finds new frames. The caller is about to poll all links, so arrivals up
    /// to now no longer count as reasons to wake.
    pub(crate) fn begin_pass(&mut self, fabric: &ThreadFabric) {
        if self.arrivals.is_some() {
            let now = fabric.now();
            self.scan(fabric, now);
            if let Some(arrivals) = &mut self.arrivals {
                arrivals.announce(now);
            }
        }
    }

    /// With a rate limit: returns when the next frame arrives by the model.
    pub(crate) fn next_arrival(&self) -> Option<Duration> {
        self.arrivals.as_ref()?.next_arrival()
    }

    /// Adds the links that peers have posted.
    fn collect(&mut self, fabric: &ThreadFabric) {
        if fabric.n_posted(self.rank) == self.n_collected {
            return;
        }
        for new_link in fabric.collect(self.rank) {
            self.n_collected += 1;
            let (consumer, from) = (new_link.consumer, new_link.from);
            let link = InboundLink { consumer, from, n_seen: 0, due: VecDeque::new() };
            self.links.insert(from, new_link.tag, link);
        }
    }

    /// Finds new frames in the rings if this rank was notified since the last scan. Then computes
    /// when frames are due, but only for frames whose first byte has arrived by the model. So a
    /// frame that its sender has queued for later does not delay other frames.
    fn scan(&mut self, fabric: &ThreadFabric, now: Duration) {
        let epoch = fabric.parker(self.rank).epoch();
        let has_news = self.scanned != Some(epoch);
        if has_news {
            self.collect(fabric);
            self.scanned = Some(epoch);
        }
        let Some(arrivals) = &mut self.arrivals else { return };
        let links = self.links.all();
        if has_news {
            for (position, link) in links.iter_mut().enumerate() {
                let header = |sent: &SentFrame| (sent.start, sent.n_bytes);
                while let Some((start, n_bytes)) = link.consumer.inspect(link.n_seen, header) {
                    link.n_seen += 1;
                    if !fabric.crosses_links(link.from, self.rank) {
                        link.due.push_back(Duration::ZERO);
                    } else {
                        arrivals.expect(position, start, n_bytes);
                    }
                }
            }
        }
        arrivals.admit(now, |position, due| links[position].due.push_back(due));
    }
}
