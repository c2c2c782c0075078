//! What the ranks of a world share: a port each, the frame pool, the clock.
//!
//! A link is made by its sender at first use; the sender keeps one end and posts the other to the
//! receiver's port. So nobody needs a table of all links, and a receiver knows exactly those that
//! exist. Posting takes a lock, once per link; looking for post costs one atomic load.
//!
//! A rank that ends closes its port, *after* everything it sent is visible and *before* it notifies
//! everybody. Whoever sees the port closed and then finds a link empty has received all there was.

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use foldwire::transport::{Distance, Rank, Tag};

use crate::frame::Frame;
use crate::pace::LinkPace;
use crate::parker::Parker;
use crate::pool::FramePool;
use crate::ring::{Consumer, Producer, ring};
use crate::sync::{AtomicBool, AtomicUsize, Mutex, Ordering, Padded, lock};
use crate::ticker::Ticker;

/// What travels on a link.
#[derive(Debug)]
pub(crate) struct SentFrame {
    pub(crate) frame: Frame,
    pub(crate) n_bytes: usize,
    /// When its first byte left; zero without a rate limit.
    pub(crate) start: Duration,
}

/// The receiving end of a new link.
pub(crate) struct NewLink {
    pub(crate) from: Rank,
    pub(crate) tag: Tag,
    pub(crate) consumer: Consumer<SentFrame>,
}

/// Where a rank can be reached.
#[derive(Default)]
struct RankPort {
    closed: Padded<AtomicBool>,
    /// Links ever posted; changes under the lock of `post`.
    n_posted: AtomicUsize,
    post: Mutex<Vec<NewLink>>,
}

pub(crate) struct ThreadFabric {
    created: Instant,
    ports: Box<[RankPort]>,
    parkers: Arc<[Parker]>,
    pool: Arc<FramePool>,
    link_depth: usize,
    pace: Option<LinkPace>,
    spare_cores: bool,
    ticker: Ticker,
    /// Frames that each rank can hold if all hold as many.
    frames_per_rank: usize,
    /// Ranks that share a node, if not all are a process.
    ranks_per_node: Option<NonZeroUsize>,
    /// The first rank that panicked, plus one.
    first_panic: AtomicUsize,
}

impl ThreadFabric {
    pub(crate) fn new(
        n_ranks: usize,
        frame_bytes: usize,
        n_held: usize,
        link_depth: usize,
        pace: Option<LinkPace>,
    ) -> Self {
        let parkers: Arc<[Parker]> = (0..n_ranks).map(|_| Parker::default()).collect();
        Self {
            created: Instant::now(),
            ports: (0..n_ranks).map(|_| RankPort::default()).collect(),
            pool: FramePool::new(frame_bytes, n_held, Arc::clone(&parkers)),
            parkers,
            link_depth,
            pace,
            ticker: Ticker::default(),
            frames_per_rank: n_held / n_ranks.max(1),
            ranks_per_node: None,
            spare_cores: thread::available_parallelism().is_ok_and(|n| n.get() >= n_ranks),
            first_panic: AtomicUsize::new(0),
        }
    }

    /// The same with so many ranks in each node.
    pub(crate) fn with_nodes(self, ranks_per_node: Option<NonZeroUsize>) -> Self {
        Self { ranks_per_node, ..self }
    }

    /// How near two ranks are.
    pub(crate) fn distance(&self, a: Rank, b: Rank) -> Distance {
        match self.ranks_per_node {
            None => Distance::Memory,
            Some(n) if a.index() / n == b.index() / n => Distance::Node,
            Some(_) => Distance::Network,
        }
    }

    /// Whether frames from one rank to another cross links, with a rate limit.
    pub(crate) fn crosses_links(&self, from: Rank, to: Rank) -> bool {
        from != to && self.distance(from, to) != Distance::Node
    }

    pub(crate) fn size(&self) -> usize {
        self.ports.len()
    }

    pub(crate) fn pool(&self) -> &Arc<FramePool> {
        &self.pool
    }

    pub(crate) fn frames_per_rank(&self) -> usize {
        self.frames_per_rank
    }

    pub(crate) fn pace(&self) -> Option<LinkPace> {
        self.pace
    }

    pub(crate) fn parker(&self, rank: Rank) -> &Parker {
        &self.parkers[rank.index()]
    }

    /// Whether registered wakers are woken every now and then. Not under loom, which has no time:
    /// wake-ups must come from notifications there.
    pub(crate) fn ticks(&self) -> bool {
        cfg!(loom) || self.ticker.start(&self.parkers)
    }

    /// Whether every rank can have a core of its own.
    pub(crate) fn has_spare_cores(&self) -> bool {
        self.spare_cores
    }

    /// Time since the world was made.
    pub(crate) fn now(&self) -> Duration {
        self.created.elapsed()
    }

    /// Makes a link and posts its receiving end to `to`.
    pub(crate) fn open_link(&self, from: Rank, to: Rank, tag: Tag) -> Producer<SentFrame> {
        let depth = tag.depth(self.link_depth);
        let (producer, consumer) = ring(depth);
        let port = &self.ports[to.index()];
        let mut post = lock(&port.post);
        post.push(NewLink { from, tag, consumer });
        // Release, here and on the receiver's acquire: a frame pushed later is found by a receiver
        // that looks for the link after having seen the push's notification.
        port.n_posted.fetch_add(1, Ordering::Release);
        drop(post);
        self.pool.raise_limit(depth);
        producer
    }

    /// Links ever posted to `rank`.
    pub(crate) fn n_posted(&self, rank: Rank) -> usize {
        self.ports[rank.index()].n_posted.load(Ordering::Acquire)
    }

    /// Takes the links posted to `rank` since the last call.
    pub(crate) fn collect(&self, rank: Rank) -> Vec<NewLink> {
        std::mem::take(&mut *lock(&self.ports[rank.index()].post))
    }

    /// Whether `rank` is gone. If so, everything it ever sent is visible to the caller.
    pub(crate) fn is_closed(&self, rank: Rank) -> bool {
        self.ports[rank.index()].closed.0.load(Ordering::Acquire)
    }

    /// Marks `rank` as gone and wakes everybody. Called by the rank itself, after its last send.
    pub(crate) fn close(&self, rank: Rank, panics: bool) {
        if panics {
            // Before the flag: a panic that follows from this one comes second.
            let _ = self.first_panic.compare_exchange(
                0,
                rank.index() + 1,
                Ordering::Relaxed,
                Ordering::Relaxed,
            );
        }
        self.ports[rank.index()].closed.0.store(true, Ordering::Release);
        for parker in &*self.parkers {
            parker.notify();
        }
        drop(self.collect(rank));
    }

    /// The rank that closed first while panicking.
    pub(crate) fn first_panic(&self) -> Option<Rank> {
        self.first_panic.load(Ordering::Relaxed).checked_sub(1).map(Rank::new)
    }
}
