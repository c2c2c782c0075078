//! A group of ranks in one process: its settings, and functions that run code on every rank.

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
/// Each of four ranks sends its rank number to the next:
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
    /// Number of frames that all ranks together may hold.
    n_held: usize,
    link_depth: usize,
    bytes_per_second: Option<f64>,
    latency: Duration,
    /// `None` if all ranks count as one process.
    ranks_per_node: Option<NonZeroUsize>,
}

/// Creates a communicator with the speeds that suit a world of this size. This cannot fail, because
/// a world's frames are large enough.
fn communicator(endpoint: Endpoint) -> Communicator<Endpoint> {
    let config = Config::default().with_speeds(speeds(endpoint.size()));
    Communicator::with_config(endpoint, config)
        .expect("the world has checked the size of its frames")
}

/// Returns the default speeds, reduced if there are fewer cores than ranks.
fn speeds(n_ranks: usize) -> Speeds {
    let n_cores = thread::available_parallelism().map_or(1, NonZeroUsize::get);
    Speeds::default().shared_by(n_ranks, n_cores)
}

impl World {
    /// Default bytes in a frame.
    pub const FRAME_BYTES: usize = 256 * 1024 + 4096;

    /// Creates a world of `n_ranks` ranks, with links as fast as memory.
    ///
    /// # Panics
    /// If `n_ranks` is 0 or above [`MAX_SIZE`].
    pub fn new(n_ranks: usize) -> Self {
        assert!(n_ranks <= MAX_SIZE, "a world has at most {MAX_SIZE} ranks, not {n_ranks}");
        Self {
            n_ranks: NonZeroUsize::new(n_ranks).expect("a world has at least one rank"),
            frame_bytes: Self::FRAME_BYTES,
            n_held: n_ranks * MAX_CHANNELS * Tag::COUNT * FRAMES_PER_LANE,
            link_depth: 4,
            bytes_per_second: None,
            latency: Duration::ZERO,
            ranks_per_node: None,
        }
    }

    /// Sets the bytes in every frame. The default is [`FRAME_BYTES`](Self::FRAME_BYTES).
    ///
    /// # Panics
    /// If `n_bytes` is below [`MIN_FRAME_BYTES`].
    pub fn frame_bytes(mut self, n_bytes: usize) -> Self {
        assert!(
            n_bytes >= MIN_FRAME_BYTES,
            "a frame has at least {MIN_FRAME_BYTES} bytes, not {n_bytes}"
        );
        self.frame_bytes = n_bytes;
        self
    }

    /// Sets how many frames the ranks may hold together, not counting frames in flight. The default
    /// is [`FRAMES_PER_LANE`] for each rank and tag. Frames are allocated when needed, so the limit
    /// itself takes no memory. A communicator refuses calls whose lanes need more than the rank's
    /// share, with [`Error::TooFewFrames`](foldwire::Error::TooFewFrames).
    ///
    /// # Panics
    /// If `n_frames` is below [`FRAMES_PER_LANE`] for each rank.
    pub fn frame_limit(mut self, n_frames: usize) -> Self {
        let least = self.n_ranks.get() * FRAMES_PER_LANE;
        assert!(n_frames >= least, "the ranks need at least {least} frames, not {n_frames}");
        self.n_held = n_frames;
        self
    }

    /// Gives every rank a simulated link to the network, of `bytes_per_second` in each direction. A
    /// frame is delivered when it would have crossed the sender's and the receiver's links. Frames
    /// that a rank sends to itself cross no link. By default there is no limit.
    ///
    /// # Panics
    /// If the rate is not positive and finite.
    pub fn link_rate(mut self, bytes_per_second: f64) -> Self {
        assert!(
            bytes_per_second > 0.0 && bytes_per_second.is_finite(),
            "a link's rate is positive and finite, not {bytes_per_second}"
        );
        self.bytes_per_second = Some(bytes_per_second);
        self
    }

    /// Sets the time from the departure of a frame's first byte to its arrival. The default is
    /// zero.
    pub fn link_latency(mut self, latency: Duration) -> Self {
        self.latency = latency;
        self
    }

    /// Groups each `n_ranks` consecutive ranks into a node. Frames within a node cross no link, so
    /// the rate limit does not apply to them. Each rank has its own link to the other nodes. By
    /// default all ranks count as one process.
    ///
    /// # Panics
    /// If `n_ranks` is 0.
    pub fn ranks_per_node(mut self, n_ranks: usize) -> Self {
        self.ranks_per_node =
            Some(NonZeroUsize::new(n_ranks).expect("a node has at least one rank"));
        self
    }

    /// Sets how many undelivered frames each (sender, receiver, tag) may have. The default is 4.
    ///
    /// # Panics
    /// If `n_frames` is 0 or above 65536.
    pub fn link_depth(mut self, n_frames: usize) -> Self {
        assert!(
            (1..=65536).contains(&n_frames),
            "a link holds between 1 and 65536 frames, not {n_frames}"
        );
        self.link_depth = n_frames;
        self
    }

    /// Returns the compute speeds that automatic plans assume in this world's communicators, unless
    /// [`Config::speeds`] sets others. These are the default speeds, reduced if there are fewer
    /// cores than ranks.
    #[must_use]
    pub fn speeds(&self) -> Speeds {
        speeds(self.n_ranks.get())
    }

    /// Calls `body` with every rank's communicator, each on its own thread. Returns the results in
    /// rank order.
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

    /// Like [`run`](Self::run), but also passes each rank its own input. `inputs` is in rank order.
    ///
    /// # Panics
    /// As [`run_endpoints`](Self::run_endpoints), and if the number of inputs is not the number of
    /// ranks.
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
        assert!(
            given.len() == n_ranks,
            "{} inputs for {n_ranks} ranks; pass one for each rank",
            given.len()
        );
        let inputs = RankSlots::new(n_ranks);
        for (rank, input) in given.into_iter().enumerate() {
            inputs.put(Rank::new(rank), input);
        }
        self.run(|comm| {
            let input = inputs.take(comm.rank());
            body(comm, input)
        })
    }

    /// Like [`run`](Self::run), but returns a rank's panic as its result.
    pub fn try_run<R: Send>(
        self,
        body: impl Fn(Communicator<Endpoint>) -> R + Sync,
    ) -> Vec<thread::Result<R>> {
        self.try_run_endpoints(|endpoint| body(communicator(endpoint)))
    }

    /// Returns the communicators of all ranks, in rank order, for one thread that runs them with
    /// [`drive`](crate::drive).
    #[must_use]
    pub fn communicators(self) -> Vec<Communicator<Endpoint>> {
        self.endpoints().into_iter().map(communicator).collect()
    }

    /// Returns the endpoints of all ranks, in rank order. Each may run on its own thread, or one
    /// thread may poll them all in turn. Such a thread must pass a zero budget to
    /// [`idle`](foldwire::transport::Transport::idle), or not call it: otherwise it would wait for
    /// itself.
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

    /// Calls `body` with every rank's endpoint, each on its own thread. Returns the results in rank
    /// order.
    ///
    /// # Panics
    /// If a rank panics: with the payload of the rank that panicked first, once every rank has
    /// ended. The other ranks get [`Error::PeerLost`](crate::Error::PeerLost) if they wait for it.
    pub fn run_endpoints<R: Send>(self, body: impl Fn(Endpoint) -> R + Sync) -> Vec<R> {
        let results = RankSlots::new(self.n_ranks.get());
        self.on_threads(&|endpoint| results.put(endpoint.rank(), body(endpoint))).raise();
        results.all().collect()
    }

    /// Like [`run_endpoints`](Self::run_endpoints), but returns a rank's panic as its result, as
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

    /// Calls `body` on every rank's thread. `body` is a trait object, so that the code that spawns
    /// threads, which is slow to compile, is compiled once and not for each closure.
    fn on_threads(self, body: &(dyn Fn(Endpoint) + Sync)) -> ThreadResults {
        let (endpoints, fabric) = self.into_endpoints_and_fabric();
        let results = thread::scope(|scope| {
            let spawn = |(rank, endpoint)| {
                thread::Builder::new()
                    .name(format!("rank {rank}"))
                    .spawn_scoped(scope, move || body(endpoint))
                    .expect("the system refused to start a thread for a rank; use fewer ranks")
            };
            let threads: Vec<_> = endpoints.into_iter().enumerate().map(spawn).collect();
            threads.into_iter().map(thread::ScopedJoinHandle::join).collect()
        });
        ThreadResults { results, first_panic: fabric.first_panic() }
    }
}

/// One value per rank, which any thread may put in and take out.
struct RankSlots<V>(Vec<Mutex<Option<V>>>);

impl<V> RankSlots<V> {
    fn new(n_ranks: usize) -> Self {
        Self((0..n_ranks).map(|_| Mutex::new(None)).collect())
    }

    fn put(&self, rank: Rank, value: V) {
        *self.slot(rank) = Some(value);
    }

    /// # Panics
    /// If the rank has no value.
    fn take(&self, rank: Rank) -> V {
        self.slot(rank).take().expect("a value was put in and not taken out")
    }

    /// Takes the values of all ranks, in order.
    fn all(&self) -> impl Iterator<Item = V> {
        (0..self.0.len()).map(|rank| self.take(Rank::new(rank)))
    }

    fn slot(&self, rank: Rank) -> MutexGuard<'_, Option<V>> {
        self.0[rank.index()].lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Result of each rank's thread.
struct ThreadResults {
    results: Vec<thread::Result<()>>,
    first_panic: Option<Rank>,
}

impl ThreadResults {
    /// Resumes the panic of the rank that panicked first, if any rank panicked.
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
