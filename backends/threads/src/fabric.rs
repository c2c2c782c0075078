//! State that the ranks of a world share: one port per rank, the frame pool, the clock.
//!
//! The sender makes a link at first use. It keeps one end and posts the other end to the receiver's
//! port. So no rank needs a table of all links, and a receiver knows exactly the links that exist.
//! Posting takes a lock, once per link; checking for new links costs one atomic load.
//!
//! A rank that ends closes its port *after* everything that it sent is visible and *before* it
//! notifies all ranks. A peer that sees the port closed and then finds a link empty has therefore
//! received every frame.

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

/// A frame on a link.
#[derive(Debug)]
pub(crate) struct SentFrame {
    pub(crate) frame: Frame,
    pub(crate) n_bytes: usize,
    /// Departure of the first byte, or zero without a rate limit.
    pub(crate) start: Duration,
}

/// The receiving end of a new link.
pub(crate) struct NewLink {
    pub(crate) from: Rank,
    pub(crate) tag: Tag,
    pub(crate) consumer: Consumer<SentFrame>,
}

/// The state of a rank that its peers use: they post new links here, and see here that the rank has
/// closed.
#[derive(Default)]
struct RankPort {
    closed: Padded<AtomicBool>,
    /// Number of links that peers have posted since the start. Changes only under the lock of
    /// `post`.
    n_posted: AtomicUsize,
    /// Posted links that the rank has not collected.
    post: Mutex<Vec<NewLink>>,
}

pub(crate) struct ThreadFabric {
    created: Instant,
    ports: Box<[RankPort]>,
    parkers: Arc<[Parker]>,
    pool: Arc<FramePool>,
    link_depth: usize,
    pace: Option<LinkPace>,
    /// True if every rank can have a core of its own.
    spare_cores: bool,
    ticker: Ticker,
    /// Each rank's equal share of the frames that the ranks may hold.
    frames_per_rank: usize,
    /// Ranks per node; `None` if all ranks count as one process.
    ranks_per_node: Option<NonZeroUsize>,
    /// Number of the first rank that panicked, plus one. 0 if no rank has panicked.
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

    /// Sets the number of ranks per node.
    pub(crate) fn with_nodes(self, ranks_per_node: Option<NonZeroUsize>) -> Self {
        Self { ranks_per_node, ..self }
    }

    /// Returns the distance between two ranks.
    pub(crate) fn distance(&self, a: Rank, b: Rank) -> Distance {
        match self.ranks_per_node {
            None => Distance::Memory,
            Some(n) if a.index() / n == b.index() / n => Distance::Node,
            Some(_) => Distance::Network,
        }
    }

    /// Returns whether frames between two ranks cross links that a rate limit applies to.
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

    /// Returns whether a thread regularly wakes registered wakers, and starts it at the first call.
    /// Under loom no such thread runs, because loom has no time: there, wake-ups must come from
    /// notifications.
    pub(crate) fn ticks(&self) -> bool {
        cfg!(loom) || self.ticker.start(&self.parkers)
    }

    /// Returns whether every rank can have a core of its own.
    pub(crate) fn has_spare_cores(&self) -> bool {
        self.spare_cores
    }

    /// Returns the time since the world was made.
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
        // Release, paired with the receiver's acquire: a receiver that has seen the notification
        // for a later frame also finds the link.
        port.n_posted.fetch_add(1, Ordering::Release);
        drop(post);
        self.pool.raise_limit(depth);
        producer
    }

    /// Returns the number of links that peers have posted to `rank` since the start.
    pub(crate) fn n_posted(&self, rank: Rank) -> usize {
        self.ports[rank.index()].n_posted.load(Ordering::Acquire)
    }

    /// Takes the links posted to `rank` since the last call.
    pub(crate) fn collect(&self, rank: Rank) -> Vec<NewLink> {
        std::mem::take(&mut *lock(&self.ports[rank.index()].post))
    }

    /// Returns whether `rank` has closed. If so, everything that it sent is visible to the caller.
    pub(crate) fn is_closed(&self, rank: Rank) -> bool {
        self.ports[rank.index()].closed.0.load(Ordering::Acquire)
    }

    /// Marks `rank` as closed and wakes all ranks. The rank itself calls this, after its last send.
    pub(crate) fn close(&self, rank: Rank, panics: bool) {
        if panics {
            // Record the panic before `closed` is set. Otherwise another rank could see that this
            // one has closed, panic because of that, and be recorded first.
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

    /// Returns the rank that closed first while panicking.
    pub(crate) fn first_panic(&self) -> Option<Rank> {
        self.first_panic.load(Ordering::Relaxed).checked_sub(1).map(Rank::new)
    }
}
