//! Threads that help a rank compute: whose they are, and how many.
//!
//! A codec call on many chunks is divided into runs of chunks, which are the same bytes whoever
//! writes them. What a run costs is about 20 µs, so arrays, or frames, of more than 8 chunks (32
//! 768 values) gain; of fz-light, which is done with one sooner than threads wake up, those of 48
//! or more. Core starts no threads: they are `rayon`'s, or the caller's ([`Workers`]).

use core::fmt;

/// Threads of the caller's, for a program that has a pool of its own.
///
/// # Examples
/// ```
/// use foldwire::Config;
/// use foldwire::threads::{Scoped, Threads, Workers};
///
/// // Two threads, started for each call that is long enough.
/// static WORKERS: Scoped = Scoped(2);
/// let config = Config::default().with_threads(Threads::of(&WORKERS));
/// assert_eq!(config.threads.n_threads(), 2);
/// ```
#[cfg(feature = "std")]
pub trait Workers: Sync {
    /// How many threads there are, the one that calls included.
    fn n_threads(&self) -> usize;

    /// Calls `task` once for each number below `n_tasks`, on any threads, and returns when all
    /// calls have.
    fn run(&self, n_tasks: usize, task: &(dyn Fn(usize) + Sync));
}

/// So many threads, the caller's included, started for each piece of work and ended with it. It
/// costs tens of microseconds each time; a pool costs less.
#[cfg(feature = "std")]
#[derive(Clone, Copy, Debug)]
pub struct Scoped(pub usize);

#[cfg(feature = "std")]
impl Workers for Scoped {
    fn n_threads(&self) -> usize {
        self.0.max(1)
    }

    fn run(&self, n_tasks: usize, task: &(dyn Fn(usize) + Sync)) {
        let next = NextTask::default();
        std::thread::scope(|scope| {
            for _ in 1..self.n_threads().min(n_tasks) {
                scope.spawn(|| next.work(n_tasks, task));
            }
            next.work(n_tasks, task);
        });
    }
}

/// The number of the next task.
#[cfg(feature = "std")]
#[derive(Default)]
struct NextTask(core::sync::atomic::AtomicUsize);

#[cfg(feature = "std")]
impl NextTask {
    /// Does tasks until there are none left.
    fn work(&self, n_tasks: usize, task: &(dyn Fn(usize) + Sync)) {
        loop {
            let i = self.0.fetch_add(1, core::sync::atomic::Ordering::Relaxed);
            if i >= n_tasks {
                return;
            }
            task(i);
        }
    }
}

/// Who computes for a rank.
///
/// The default is the thread that calls, alone; with the feature `rayon`, the threads of its pool.
#[derive(Clone, Copy)]
pub struct Threads {
    kind: ThreadsKind,
    /// No more than so many.
    max_threads: u16,
    /// What has fewer values is not shared.
    min_values: u32,
}

#[derive(Clone, Copy)]
enum ThreadsKind {
    One,
    #[cfg(feature = "std")]
    Of(&'static dyn Workers),
    #[cfg(feature = "rayon")]
    Rayon(usize),
}

/// Whether both are one. Workers without data may all have the same address, so that their tables
/// of functions count as well; of those one may have several, and so not be found to be itself.
#[cfg(feature = "std")]
fn is_same(a: &'static dyn Workers, b: &'static dyn Workers) -> bool {
    core::ptr::eq(a, b)
}

/// Equal are those of the same pool, to the same limits.
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
        same_kind && (self.max_threads, self.min_values) == (other.max_threads, other.min_values)
    }
}

impl Threads {
    /// The thread that calls, alone.
    pub const ONE: Self = Self::new(ThreadsKind::One);

    const fn new(kind: ThreadsKind) -> Self {
        Self { kind, max_threads: u16::MAX, min_values: 0 }
    }

    /// These.
    #[cfg(feature = "std")]
    #[must_use]
    pub const fn of(workers: &'static dyn Workers) -> Self {
        Self::new(ThreadsKind::Of(workers))
    }

    /// At most so many of the threads of rayon's pool that the caller is in, or of the global one;
    /// 0 for all of them.
    #[cfg(feature = "rayon")]
    #[must_use]
    pub const fn rayon(n_threads: usize) -> Self {
        Self::new(ThreadsKind::Rayon(n_threads))
    }

    /// At most so many of them, the one that calls included, and at least that one.
    #[must_use]
    pub fn at_most(self, n_threads: usize) -> Self {
        let n_threads = u16::try_from(n_threads.max(1)).unwrap_or(u16::MAX);
        Self { max_threads: self.max_threads.min(n_threads), ..self }
    }

    /// For so many values or more; what has fewer is the caller's thread's alone.
    pub(crate) const fn from(self, n_values: u32) -> Self {
        Self { min_values: n_values, ..self }
    }

    /// Whether it is the thread that calls, alone. (To count rayon's threads starts them.)
    pub(crate) const fn is_one(self) -> bool {
        matches!(self.kind, ThreadsKind::One)
    }

    /// How many there are, the one that calls included.
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

    /// How many share so many values.
    pub(crate) fn n_for(self, n_values: usize) -> usize {
        if n_values < self.min_values as usize { 1 } else { self.n_threads() }
    }

    /// Calls `task` once for each number below `n_tasks`.
    #[cfg(feature = "std")]
    pub(crate) fn run(self, n_tasks: usize, task: &(dyn Fn(usize) + Sync)) {
        let n_threads = self.n_threads().min(n_tasks);
        let next = NextTask::default();
        match self.kind {
            ThreadsKind::One => (0..n_tasks).for_each(task),
            ThreadsKind::Of(workers) => workers.run(n_threads, &|_| next.work(n_tasks, task)),
            #[cfg(feature = "rayon")]
            ThreadsKind::Rayon(_) => rayon::scope(|scope| {
                for _ in 1..n_threads {
                    scope.spawn(|_| next.work(n_tasks, task));
                }
                next.work(n_tasks, task);
            }),
        }
    }
}

/// Cores that this process may use; no limit where nobody can tell.
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
