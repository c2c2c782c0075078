//! The receiving half of an endpoint: finds the next frame of a (peer, tag).
//!
//! Without a rate limit that is a pop from the link's ring. With one, frames stay in their rings
//! (they keep occupying the link's depth, as frames under way should) while their headers go
//! through [`Arrivals`], which says when each is due; a ring is looked through again only after
//! something has notified this rank.

use std::collections::VecDeque;
use std::time::Duration;

use foldwire::transport::{Rank, Tag};

use crate::fabric::{Fabric, Parcel};
use crate::links::Links;
use crate::pace::Arrivals;
use crate::parker::Epoch;
use crate::ring::Consumer;

/// What [`Inbox::take`] found.
pub(crate) enum Found {
    /// The next frame, and whether its sender waits for room.
    Parcel(Parcel, bool),
    /// A frame that will arrive, but has not yet.
    Underway,
    /// Nothing.
    Nothing,
}

#[derive(Debug)]
struct Inbound {
    consumer: Consumer<Parcel>,
    from: Rank,
    /// Frames in the ring that [`Arrivals`] knows of.
    n_seen: usize,
    /// Arrival times of the first of these.
    due: VecDeque<Duration>,
}

#[derive(Debug)]
pub(crate) struct Inbox {
    rank: Rank,
    links: Links<Inbound>,
    n_collected: usize,
    arrivals: Option<Box<Arrivals>>,
    /// The epoch at which the rings were last looked through.
    scanned: Option<Epoch>,
}

impl Inbox {
    pub(crate) fn new(rank: Rank, fabric: &Fabric) -> Self {
        Self {
            rank,
            links: Links::new(fabric.size()),
            n_collected: 0,
            arrivals: fabric.pace().map(|pace| Box::new(Arrivals::new(pace))),
            scanned: None,
        }
    }

    /// The next frame from `from` with `tag`.
    pub(crate) fn take(&mut self, fabric: &Fabric, from: Rank, tag: Tag) -> Found {
        if self.arrivals.is_some() {
            return self.take_paced(fabric, from, tag);
        }
        if self.links.find(from, tag).is_none() {
            self.collect(fabric);
        }
        match self.links.find(from, tag).and_then(|link| link.consumer.pop()) {
            Some((parcel, sender_waits)) => Found::Parcel(parcel, sender_waits),
            None => Found::Nothing,
        }
    }

    fn take_paced(&mut self, fabric: &Fabric, from: Rank, tag: Tag) -> Found {
        let now = fabric.now();
        self.scan(fabric, now);
        let Some(link) = self.links.find(from, tag) else { return Found::Nothing };
        match link.due.front() {
            Some(&due) if due <= now => match link.consumer.pop() {
                Some((parcel, sender_waits)) => {
                    link.due.pop_front();
                    link.n_seen -= 1;
                    Found::Parcel(parcel, sender_waits)
                }
                None => Found::Nothing,
            },
            _ if link.n_seen > 0 => Found::Underway,
            _ => Found::Nothing,
        }
    }

    /// With a rate limit: learns of new frames, and forgets to wake for those that arrived by now.
    pub(crate) fn begin_pass(&mut self, fabric: &Fabric) {
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
    fn collect(&mut self, fabric: &Fabric) {
        if fabric.n_posted(self.rank) == self.n_collected {
            return;
        }
        for posted in fabric.collect(self.rank) {
            self.n_collected += 1;
            let (consumer, from) = (posted.consumer, posted.from);
            let link = Inbound { consumer, from, n_seen: 0, due: VecDeque::new() };
            self.links.insert(from, posted.tag, link);
        }
    }

    fn scan(&mut self, fabric: &Fabric, now: Duration) {
        let epoch = fabric.parker(self.rank).epoch();
        let anything_new = self.scanned != Some(epoch);
        if anything_new {
            self.collect(fabric);
            self.scanned = Some(epoch);
        }
        let Some(arrivals) = &mut self.arrivals else { return };
        let links = self.links.all();
        if anything_new {
            for (position, link) in links.iter_mut().enumerate() {
                let header = |parcel: &Parcel| (parcel.start, parcel.n_bytes);
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
