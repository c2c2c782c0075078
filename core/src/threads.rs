//! Threads that help a rank compute.
//!
//! A codec call on many chunks is divided into pieces of 8 chunks, which several threads process.
//! The bytes do not depend on the thread that writes them. A piece takes about 20 µs, so arrays or
//! frames of more than one piece (32 768 values) gain. The codec fz-light finishes a piece sooner
//! than threads wake up; it gains from 48 chunks on. The backends' default frames hold 16 chunks of
//! `f32`: with fz-light, give them longer frames. The chunks of `dense` and `fz-nd` depend on each
//! other, so threads take four chunks at a time and wait for each other's results.
//!
//! Threads divide the work of one codec call, or of the rounding pass before a call. They do not
//! run the lanes of a call side by side.
//!
//! This crate keeps no threads of its own: they belong to `rayon` or to the caller ([`Workers`]).
//! Without the feature `std` there are none.

use core::fmt;

/// Thread pool of the caller, for a program that has its own.
///
/// # Examples
/// ```
/// use foldwire::Config;
/// use foldwire::threads::{Scoped, Threads, Workers};
///
/// // Two threads, started anew for each call that is long enough.
/// static WORKERS: Scoped = Scoped(2);
/// let config = Config::default().with_threads(Threads::of(&WORKERS));
/// assert_eq!(config.threads.n_threads(), 2);
/// ```
#[cfg(feature = "std")]
pub trait Workers: Sync {
    /// Number of threads, including the calling thread.
    fn n_threads(&self) -> usize;

    /// Calls `task` once for each number below `n_tasks`, on any threads. Returns after all these
    /// calls have returned.
    fn run(&self, n_tasks: usize, task: &(dyn Fn(usize) + Sync));
}

/// Threads that are started for each piece of work and end with it. The number includes the calling
/// thread.
///
/// Starting threads costs tens of microseconds each time; a pool costs less.
#[cfg(feature = "std")]
#[derive(Clone, Copy, Debug)]
pub struct Scoped(pub usize);

#[cfg(feature = "std")]
impl Workers for Scoped {
    fn n_threads(&self) -> usize {
        self.0.max(1)
    }

    fn run(&self, n_tasks: usize, task: &(dyn Fn(usize) + Sync)) {
        let next = core::sync::atomic::AtomicUsize::new(0);
        let work = || {
            loop {
                match next.fetch_add(1, core::sync::atomic::Ordering::Relaxed) {
                    i if i < n_tasks => task(i),
                    _ => return,
                }
            }
        };
        std::thread::scope(|scope| {
            for _ in 1..self.n_threads().min(n_tasks) {
                scope.spawn(work);
            }
            work();
        });
    }
}

/// Threads that compute for a rank.
///
/// The default is only the calling thread; with the feature `rayon`, all threads of rayon's pool.
#[derive(Clone, Copy)]
pub struct Threads {
    kind: ThreadsKind,
    max_threads: u16,
    /// Arrays of fewer values are not divided among threads.
    min_values: u32,
    /// Number of values that a thread takes at a time.
    piece: u32,
}

/// Eight chunks. A thread is busy with them far longer than it takes to hand them out.
const PIECE: u32 = 1 << 15;

#[derive(Clone, Copy)]
enum ThreadsKind {
    One,
    #[cfg(feature = "std")]
    Of(&'static dyn Workers),
    #[cfg(feature = "rayon")]
    Rayon(usize),
}

/// Returns whether both are the same pool.
///
/// Zero-sized workers may share an address, so the comparison includes the vtables. The compiler
/// may duplicate a vtable, so a pool can compare as different from itself.
#[cfg(feature = "std")]
fn is_same(a: &'static dyn Workers, b: &'static dyn Workers) -> bool {
    core::ptr::eq(a, b)
}

/// Threads are equal if they have the same pool and the same limits.
impl PartialEq for Threads {
    fn eq(&self, other: &Self) -> bool {
        let same_kind = match (self.kind, other.kind) {
            (ThreadsKind::One, ThreadsKind::One) => true,
            #[cfg(feature = "std")]
            (ThreadsKind::Of(a), ThreadsKind::Of(b)) => is_same(a, b),
            #[cfg(feature = "rayon")]
            (ThreadsKind::Rayon(a), ThreadsKind::Rayon(b)) => a == b,
            #[cfg(feature = "std")]
            _ => false,
        };
        let limits = |threads: &Self| (threads.max_threads, threads.min_values, threads.piece);
        same_kind && limits(self) == limits(other)
    }
}

impl Threads {
    /// Only the calling thread.
    pub const ONE: Self = Self::new(ThreadsKind::One);

    const fn new(kind: ThreadsKind) -> Self {
        Self { kind, max_threads: u16::MAX, min_values: PIECE + 1, piece: PIECE }
    }

    /// Uses the threads of the caller's pool.
    #[cfg(feature = "std")]
    #[must_use]
    pub const fn of(workers: &'static dyn Workers) -> Self {
        Self::new(ThreadsKind::Of(workers))
    }

    /// Uses at most `n_threads` threads of the rayon pool that the caller runs in, or else of the
    /// global pool; 0 means all of them.
    #[cfg(feature = "rayon")]
    #[must_use]
    pub const fn rayon(n_threads: usize) -> Self {
        Self::new(ThreadsKind::Rayon(n_threads))
    }

    /// Limits the number of threads, including the calling thread. A limit of 0 counts as 1.
    #[must_use]
    pub fn at_most(self, n_threads: usize) -> Self {
        let n_threads = u16::try_from(n_threads.max(1)).unwrap_or(u16::MAX);
        Self { max_threads: self.max_threads.min(n_threads), ..self }
    }

    /// Uses these threads only for arrays of `n_values` or more. The calling thread processes
    /// shorter arrays alone.
    pub(crate) const fn from(self, n_values: u32) -> Self {
        Self { min_values: n_values, ..self }
    }

    /// Hands out arrays in pieces of this many values.
    pub(crate) const fn in_pieces_of(self, n_values: usize) -> Self {
        Self { piece: n_values as u32, ..self }
    }

    /// Number of values that a thread takes at a time.
    #[cfg(feature = "std")]
    pub(crate) const fn piece(self) -> usize {
        self.piece as usize
    }

    /// Returns whether only the calling thread computes. Unlike [`n_threads`](Self::n_threads), it
    /// does not start rayon's pool.
    pub(crate) const fn is_one(self) -> bool {
        matches!(self.kind, ThreadsKind::One)
    }

    /// Number of threads, including the calling thread.
    #[must_use]
    pub fn n_threads(self) -> usize {
        let n_threads = match self.kind {
            ThreadsKind::One => 1,
            #[cfg(feature = "std")]
            ThreadsKind::Of(workers) => workers.n_threads().max(1),
            #[cfg(feature = "rayon")]
            ThreadsKind::Rayon(0) => rayon::current_num_threads(),
            #[cfg(feature = "rayon")]
            ThreadsKind::Rayon(n_threads) => rayon::current_num_threads().min(n_threads),
        };
        n_threads.min(self.max_threads.into())
    }

    /// Number of threads that work on an array of `n_values`.
    pub(crate) fn n_for(self, n_values: usize) -> usize {
        if n_values < self.min_values as usize {
            return 1;
        }
        self.n_threads().min(n_values.div_ceil(self.piece as usize)).max(1)
    }

    /// Calls `work` on each of `n_threads` threads.
    #[cfg(feature = "std")]
    pub(crate) fn run(self, n_threads: usize, work: &(dyn Fn() + Sync)) {
        match self.kind {
            ThreadsKind::One => work(),
            ThreadsKind::Of(workers) => workers.run(n_threads, &|_| work()),
            #[cfg(feature = "rayon")]
            ThreadsKind::Rayon(_) => rayon::scope(|scope| {
                for _ in 1..n_threads {
                    scope.spawn(|_| work());
                }
                work();
            }),
        }
    }
}

/// Number of cores that this process may use; `usize::MAX` if unknown.
pub(crate) fn n_cores() -> usize {
    #[cfg(feature = "std")]
    {
        static N_CORES: std::sync::OnceLock<usize> = std::sync::OnceLock::new();
        *N_CORES.get_or_init(|| {
            std::thread::available_parallelism().map_or(usize::MAX, core::num::NonZero::get)
        })
    }
    #[cfg(not(feature = "std"))]
    usize::MAX
}

impl Default for Threads {
    fn default() -> Self {
        #[cfg(feature = "rayon")]
        return Self::rayon(0);
        #[cfg(not(feature = "rayon"))]
        Self::ONE
    }
}

impl fmt::Debug for Threads {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Threads({})", self.n_threads())
    }
}
