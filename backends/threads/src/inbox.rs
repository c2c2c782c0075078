//! The receiving half of an endpoint: finds the next frame of a (peer, tag).
//!
//! Without a rate limit that is a pop from the link's ring. With one, frames stay in their rings
//! (they keep occupying the link's depth, as frames under way should) while their headers go
//! through [`Arrivals`], which says when each is due; a ring is looked through again only after
//! something has notified this rank.

use std::collections::VecDeque;
use std::time::Duration;

use foldwire::transport::{Rank, Tag};

use crate::fabric::{SentFrame, ThreadFabric};
use crate::links::LinkIndex;
use crate::pace::Arrivals;
use crate::parker::Epoch;
use crate::ring::Consumer;

/// What [`FrameInbox::take`] found.
pub(crate) enum NextFrame {
    /// The next frame, and whether its sender waits for room.
    Arrived(SentFrame, bool),
    /// A frame that will arrive, but has not yet.
    InFlight,
    /// Nothing.
    Missing,
}

#[derive(Debug)]
struct InboundLink {
    consumer: Consumer<SentFrame>,
    from: Rank,
    /// Frames in the ring that [`Arrivals`] knows of.
    n_seen: usize,
    /// Arrival times of the first of these.
    due: VecDeque<Duration>,
}

#[derive(Debug)]
pub(crate) struct FrameInbox {
    rank: Rank,
    links: LinkIndex<InboundLink>,
    n_collected: usize,
    arrivals: Option<Box<Arrivals>>,
    /// The epoch at which the rings were last looked through.
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

    /// The next frame from `from` with `tag`.
    pub(crate) fn take(&mut self, fabric: &ThreadFabric, from: Rank, tag: Tag) -> NextFrame {
        if self.arrivals.is_some() {
            return self.take_paced(fabric, from, tag);
        }
        if self.links.find(from, tag).is_none() {
            self.collect(fabric);
        }
        match self.links.find(from, tag).and_then(|link| link.consumer.pop()) {
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

    /// With a rate limit: learns of new frames, and forgets to wake for those that arrived by now.
    pub(crate) fn begin_pass(&mut self, fabric: &ThreadFabric) {
        if self.arrivals.is_some() {
            let now = fabric.now();
            self.scan(fabric, now);
            if let Some(arrivals) = &mut self.arrivals {
                arrivals.announce(now);
            }
        }
    }

    /// With a rate limit: when the next frame arrives by the model.
    pub(crate) fn next_arrival(&self) -> Option<Duration> {
        self.arrivals.as_ref()?.next_arrival()
    }

    /// Takes in links that peers have made.
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
