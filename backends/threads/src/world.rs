//! A group of ranks in one process: its settings, and ways to run a function on every rank.

use std::num::NonZeroUsize;
use std::panic;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use foldwire::select::Speeds;
use foldwire::transport::Transport as _;
use foldwire::transport::{FRAMES_PER_LANE, MAX_CHANNELS, MAX_SIZE, MIN_FRAME_BYTES, Rank, Tag};

use foldwire::{Communicator, Config};

use crate::Endpoint;
use crate::fabric::ThreadFabric;
use crate::pace::LinkPace;

/// A group of ranks that are threads of this process.
///
/// # Examples
/// Each of four ranks sends its number to the next:
/// ```
/// use std::{task::Poll, time::Duration};
/// use foldwire::transport::{Rank, Tag, Transport};
/// use foldwire_threads::{Error, World};
///
/// let sums = World::new(4).run_endpoints(|mut endpoint| -> Result<u32, Error> {
///     let Rank(me) = endpoint.rank();
///     let (next, previous, tag) = (Rank((me + 1) % 4), Rank((me + 3) % 4), Tag(0));
///     let Poll::Ready(frame) = endpoint.poll_frame() else { unreachable!("nobody holds frames") };
///     let mut frame = frame?;
///     frame.as_mut()[..4].copy_from_slice(&me.to_le_bytes());
///     endpoint.send(next, tag, frame, 4)?;
///     loop {
///         endpoint.progress()?;
///         match endpoint.poll_recv(previous, tag) {
///             Poll::Ready(received) => {
///                 let (frame, n_bytes) = received?;
///                 assert_eq!(n_bytes, 4);
///                 let theirs = u32::from(frame.as_ref()[0]);
///                 endpoint.recycle(frame);
///                 return Ok(me + theirs);
///             }
///             Poll::Pending => endpoint.idle(Duration::from_secs(1)),
///         }
///     }
/// });
/// assert_eq!(sums, [Ok(3), Ok(1), Ok(3), Ok(5)]);
/// ```
#[derive(Clone, Debug)]
#[must_use = "a world does nothing until it is run"]
pub struct World {
    n_ranks: NonZeroUsize,
    frame_bytes: usize,
    n_held: usize,
    link_depth: usize,
    bytes_per_second: Option<f64>,
    latency: Duration,
    ranks_per_node: Option<NonZeroUsize>,
}

/// # Panics
/// Never: a world's frames are large enough.
fn communicator(endpoint: Endpoint) -> Communicator<Endpoint> {
    let config = Config::default().with_speeds(speeds(endpoint.size()));
    Communicator::with_config(endpoint, config)
        .expect("the world has checked the size of its frames")
}

/// Usual speeds, as far as there are cores for so many ranks.
fn speeds(n_ranks: usize) -> Speeds {
    let n_cores = thread::available_parallelism().map_or(1, NonZeroUsize::get);
    Speeds::default().shared_by(n_ranks, n_cores)
}

impl World {
    /// A world of `n_ranks` ranks, with links as fast as memory.
    ///
    /// # Panics
    /// If `n_ranks` is 0 or above [`MAX_SIZE`].
    pub fn new(n_ranks: usize) -> Self {
        assert!(n_ranks <= MAX_SIZE, "a world has at most 2^31 - 1 ranks");
        Self {
            n_ranks: NonZeroUsize::new(n_ranks).expect("a world has at least one rank"),
            frame_bytes: 256 * 1024 + 4096,
            n_held: n_ranks * MAX_CHANNELS * Tag::COUNT * FRAMES_PER_LANE,
            link_depth: 4,
            bytes_per_second: None,
            latency: Duration::ZERO,
            ranks_per_node: None,
        }
    }

    /// Sets the bytes in every frame; 256 KiB + 4096 unless set.
    ///
    /// # Panics
    /// If `n_bytes` is below [`MIN_FRAME_BYTES`].
    pub fn frame_bytes(mut self, n_bytes: usize) -> Self {
        assert!(n_bytes >= MIN_FRAME_BYTES, "a frame has at least {MIN_FRAME_BYTES} bytes");
        self.frame_bytes = n_bytes;
        self
    }

    /// Sets how many frames the ranks may hold together, those under way on links not counted;
    /// [`FRAMES_PER_LANE`] for each rank and tag unless set. Frames are allocated as they are
    /// needed, so this bounds memory and costs none. Calls of communicators whose lanes need more
    /// than a rank's part of it are refused with
    /// [`Error::TooFewFrames`](foldwire::Error::TooFewFrames).
    ///
    /// # Panics
    /// If `n_frames` is below [`FRAMES_PER_LANE`] for each rank.
    pub fn frame_limit(mut self, n_frames: usize) -> Self {
        let least = self.n_ranks.get() * FRAMES_PER_LANE;
        assert!(n_frames >= least, "the ranks need at least {least} frames");
        self.n_held = n_frames;
        self
    }

    /// Limits every rank's link to the network, each way, to `bytes_per_second`. A frame is
    /// delivered when it would have crossed such links; frames that a rank sends to itself cross
    /// none. Unlimited unless set.
    ///
    /// # Panics
    /// Unless the rate is positive and finite.
    pub fn link_rate(mut self, bytes_per_second: f64) -> Self {
        assert!(
            bytes_per_second > 0.0 && bytes_per_second.is_finite(),
            "a link's rate is positive and finite"
        );
        self.bytes_per_second = Some(bytes_per_second);
        self
    }

    /// Sets the time from a frame's first byte leaving to its first byte arriving; zero unless set.
    pub fn link_latency(mut self, latency: Duration) -> Self {
        self.latency = latency;
        self
    }

    /// Says that each `n_ranks` ranks in a row are a node. Frames between ranks of a node cross no
    /// link, so their rate is not limited; each rank has a link of its own to the other nodes. All
    /// ranks are one process unless set.
    ///
    /// # Panics
    /// If `n_ranks` is 0.
    pub fn ranks_per_node(mut self, n_ranks: usize) -> Self {
        self.ranks_per_node = Some(NonZeroUsize::new(n_ranks).expect("a node has ranks"));
        self
    }

    /// Sets how many undelivered frames each (sender, receiver, tag) may have; 4 unless set.
    ///
    /// # Panics
    /// If `n_frames` is 0 or above 65536.
    pub fn link_depth(mut self, n_frames: usize) -> Self {
        assert!((1..=65536).contains(&n_frames), "a link holds between 1 and 65536 frames");
        self.link_depth = n_frames;
        self
    }

    /// How fast its ranks compute, as automatic plans of its communicators take it unless
    /// [`Config::speeds`] says otherwise: as usual, or less if there are fewer cores than ranks.
    #[must_use]
    pub fn speeds(&self) -> Speeds {
        speeds(self.n_ranks.get())
    }

    /// Calls `body` with every rank's communicator, each on a thread of its own, and returns what
    /// the calls returned, in rank order.
    ///
    /// # Panics
    /// As [`run_endpoints`](Self::run_endpoints).
    ///
    /// # Examples
    /// ```
    /// use foldwire::{Bound, Op, Plan};
    /// use foldwire_threads::World;
    ///
    /// let plan = Plan::foldwire(Bound::Absolute(1e-3));
    /// let sums = World::new(4).run(|mut comm| {
    ///     let mut data = vec![comm.rank().0 as f32 + 0.25; 1000];
    ///     comm.all_reduce(&mut data, Op::Sum, &plan).map(|_| data[999])
    /// });
    /// assert!(sums.iter().all(|sum| (sum.unwrap() - 7.0).abs() <= 4.0 * 1e-3));
    /// ```
    pub fn run<R: Send>(self, body: impl Fn(Communicator<Endpoint>) -> R + Sync) -> Vec<R> {
        self.run_endpoints(|endpoint| body(communicator(endpoint)))
    }

    /// Like [`run`](Self::run), each rank with an input of its own, in rank order.
    ///
    /// # Panics
    /// As [`run_endpoints`](Self::run_endpoints), and unless there is one input for each rank.
    ///
    /// # Examples
    /// ```
    /// use foldwire::{Op, Plan};
    /// use foldwire_threads::World;
    ///
    /// let parts = vec![vec![1.0f32; 100], vec![20.0; 100], vec![300.0; 100]];
    /// let sums = World::new(3).run_with(parts, |mut comm, mut part| {
    ///     comm.all_reduce(&mut part, Op::Sum, &Plan::raw()).map(|_| part)
    /// });
    /// assert!(sums.into_iter().all(|sum| sum == Ok(vec![321.0; 100])));
    /// ```
    pub fn run_with<I: Send, R: Send>(
        self,
        inputs: impl IntoIterator<Item = I>,
        body: impl Fn(Communicator<Endpoint>, I) -> R + Sync,
    ) -> Vec<R> {
        let given: Vec<I> = inputs.into_iter().collect();
        let n_ranks = self.n_ranks.get();
        assert!(given.len() == n_ranks, "{} inputs for {n_ranks} ranks", given.len());
        let inputs = RankSlots::new(n_ranks);
        for (rank, input) in given.into_iter().enumerate() {
            inputs.put(Rank::new(rank), input);
        }
        self.run(|comm| {
            let input = inputs.take(comm.rank());
            body(comm, input)
        })
    }

    /// Like [`run`](Self::run), but returns a rank's panic in its place.
    pub fn try_run<R: Send>(
        self,
        body: impl Fn(Communicator<Endpoint>) -> R + Sync,
    ) -> Vec<thread::Result<R>> {
        self.try_run_endpoints(|endpoint| body(communicator(endpoint)))
    }

    /// The communicators of all ranks, in order, to be driven by one thread with
    /// [`drive`](crate::drive).
    #[must_use]
    pub fn communicators(self) -> Vec<Communicator<Endpoint>> {
        self.endpoints().into_iter().map(communicator).collect()
    }

    /// The endpoints of all ranks, in order, to be driven by any threads: one each, or a single one
    /// that polls them all in turn (and calls [`idle`](foldwire::transport::Transport::idle) with a
    /// zero budget or not at all, since it would be waiting for itself).
    #[must_use]
    pub fn endpoints(self) -> Vec<Endpoint> {
        self.into_endpoints_and_fabric().0
    }

    fn into_endpoints_and_fabric(self) -> (Vec<Endpoint>, Arc<ThreadFabric>) {
        let is_paced = self.bytes_per_second.is_some() || !self.latency.is_zero();
        let pace = is_paced.then(|| LinkPace::new(self.bytes_per_second, self.latency));
        let (n, depth) = (self.n_ranks.get(), self.link_depth);
        let fabric = ThreadFabric::new(n, self.frame_bytes, self.n_held, depth, pace);
        let fabric = Arc::new(fabric.with_nodes(self.ranks_per_node));
        let endpoints =
            (0..n).map(|rank| Endpoint::new(Rank::new(rank), Arc::clone(&fabric))).collect();
        (endpoints, fabric)
    }

    /// Calls `body` with every rank's endpoint, each on a thread of its own, and returns what the
    /// calls returned, in rank order.
    ///
    /// # Panics
    /// If a rank panics: with the payload of the rank that panicked first, once every rank has
    /// ended. The others see [`Error::PeerLost`](crate::Error::PeerLost) if they wait for it.
    pub fn run_endpoints<R: Send>(self, body: impl Fn(Endpoint) -> R + Sync) -> Vec<R> {
        let results = RankSlots::new(self.n_ranks.get());
        self.on_threads(&|endpoint| results.put(endpoint.rank(), body(endpoint))).raise();
        results.all().collect()
    }

    /// Like [`run_endpoints`](Self::run_endpoints), but returns a rank's panic in its place, as
    /// [`std::thread::JoinHandle::join`] does.
    pub fn try_run_endpoints<R: Send>(
        self,
        body: impl Fn(Endpoint) -> R + Sync,
    ) -> Vec<thread::Result<R>> {
        let results = RankSlots::new(self.n_ranks.get());
        let threads = self.on_threads(&|endpoint| results.put(endpoint.rank(), body(endpoint)));
        let mut outcomes = Vec::with_capacity(threads.results.len());
        for (rank, joined) in threads.results.into_iter().enumerate() {
            outcomes.push(joined.map(|()| results.take(Rank::new(rank))));
        }
        outcomes
    }

    /// Calls `body` on every rank. It is not generic, as programs run many bodies and threads are
    /// much to compile.
    fn on_threads(self, body: &(dyn Fn(Endpoint) + Sync)) -> ThreadResults {
        let (endpoints, fabric) = self.into_endpoints_and_fabric();
        let results = thread::scope(|scope| {
            let spawn = |(rank, endpoint)| {
                thread::Builder::new()
                    .name(format!("rank {rank}"))
                    .spawn_scoped(scope, move || body(endpoint))
                    .expect("the system refused a thread; use fewer ranks")
            };
            let threads: Vec<_> = endpoints.into_iter().enumerate().map(spawn).collect();
            threads.into_iter().map(thread::ScopedJoinHandle::join).collect()
        });
        ThreadResults { results, first_panic: fabric.first_panic() }
    }
}

/// A value for each rank, put in and taken out by any thread.
struct RankSlots<V>(Vec<Mutex<Option<V>>>);

impl<V> RankSlots<V> {
    fn new(n_ranks: usize) -> Self {
        Self((0..n_ranks).map(|_| Mutex::new(None)).collect())
    }

    fn put(&self, rank: Rank, value: V) {
        *self.slot(rank) = Some(value);
    }

    /// # Panics
    /// If there is none.
    fn take(&self, rank: Rank) -> V {
        self.slot(rank).take().expect("a value was put in")
    }

    /// The values of all ranks, in order.
    fn all(&self) -> impl Iterator<Item = V> {
        (0..self.0.len()).map(|rank| self.take(Rank::new(rank)))
    }

    fn slot(&self, rank: Rank) -> MutexGuard<'_, Option<V>> {
        self.0[rank.index()].lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How each rank's thread ended.
struct ThreadResults {
    results: Vec<thread::Result<()>>,
    first_panic: Option<Rank>,
}

impl ThreadResults {
    /// Goes on with the panic of the rank that panicked first.
    fn raise(self) {
        let mut payload = None;
        for (rank, result) in self.results.into_iter().enumerate() {
            match result {
                Err(panic) if payload.is_none() || self.first_panic == Some(Rank::new(rank)) => {
                    payload = Some(panic);
                }
                _ => {}
            }
        }
        if let Some(payload) = payload {
            panic::resume_unwind(payload);
        }
    }
}
