//! Thread pools for a rank's computations, as requested on the command line, and for computations
//! outside ranks.

use foldwire::Preset;
use foldwire::threads::{Threads, Workers};
use foldwire_fields::usage::{UsageError, usage};
use rayon::prelude::*;

/// Threads that stay until the program ends. One thread is the caller's.
#[derive(Debug, Clone, Copy)]
pub struct Pool(Option<&'static RayonPool>);

impl Pool {
    /// Only the calling thread.
    pub const ONE: Self = Self(None);

    /// Starts `n_threads` threads, unless one is enough.
    ///
    /// # Errors
    ///
    /// The system's error if it cannot start the threads.
    pub fn new(n_threads: usize) -> Result<Self, UsageError> {
        if n_threads <= 1 {
            return Ok(Self::ONE);
        }
        let pool = rayon::ThreadPoolBuilder::new().num_threads(n_threads).build();
        let pool = pool.map_err(|error| usage!("{n_threads} threads: {error}"))?;
        Ok(Self(Some(Box::leak(Box::new(RayonPool(pool))))))
    }

    /// The same threads, for a codec.
    pub fn threads(self) -> Threads {
        self.0.map_or(Threads::ONE, |pool| Threads::of(pool))
    }

    /// Number of threads.
    pub fn n_threads(self) -> usize {
        self.threads().n_threads()
    }

    /// Works on all pieces, each on any of the threads.
    pub fn on_each<P: Send>(self, pieces: impl Iterator<Item = P> + Send, work: impl Fn(P) + Sync) {
        let Some(RayonPool(pool)) = self.0 else { return pieces.for_each(work) };
        let work = &work;
        pool.scope(|scope| pieces.for_each(|piece| scope.spawn(move |_| work(piece))));
    }
}

/// Creates a [`Pool`] for a codec.
///
/// # Errors
///
/// As [`Pool::new`].
pub fn of(n_threads: usize) -> Result<Threads, UsageError> {
    Ok(Pool::new(n_threads)?.threads())
}

/// Number of values that a thread fills at a time.
const PIECE: usize = 1 << 14;

/// Fills an array on all cores, piece by piece. `fill` receives the index of its piece's first
/// value.
pub fn fill(array: &mut [f64], fill: &(dyn Fn(usize, &mut [f64]) + Sync)) {
    let pieces = array.par_chunks_mut(PIECE).enumerate();
    pieces.for_each(|(nth, piece)| fill(nth * PIECE, piece));
}

/// The threads that a rank computes on in a comparison.
#[derive(Debug, Clone, Copy)]
pub struct Pools {
    /// Threads of multi-threaded presets.
    of_threaded: Threads,
    /// Threads of all other rows.
    of_others: Threads,
}

impl Pools {
    /// No pools: all presets use one thread.
    pub const NONE: Self = Self { of_threaded: Threads::ONE, of_others: Threads::ONE };

    /// Creates pools with the requested number of threads for all presets. By default,
    /// multi-threaded presets use two threads and all others one. The pools stay until the program
    /// ends, so each rank creates them once.
    ///
    /// # Errors
    ///
    /// As [`of`].
    pub fn new(requested: Option<usize>, presets: &[Preset]) -> Result<Self, UsageError> {
        if let Some(n_threads) = requested {
            let all = of(n_threads)?;
            return Ok(Self { of_threaded: all, of_others: all });
        }
        let has_threaded = presets.iter().any(|preset| preset.is_threaded());
        Ok(Self { of_threaded: of(if has_threaded { 2 } else { 1 })?, ..Self::NONE })
    }

    /// Threads of a preset. `None` means a row that is not a preset.
    pub fn of(&self, preset: Option<Preset>) -> Threads {
        let is_threaded = preset.is_some_and(Preset::is_threaded);
        if is_threaded { self.of_threaded } else { self.of_others }
    }
}

#[derive(Debug)]
struct RayonPool(rayon::ThreadPool);

impl Workers for RayonPool {
    fn n_threads(&self) -> usize {
        self.0.current_num_threads()
    }

    fn run(&self, n_tasks: usize, task: &(dyn Fn(usize) + Sync)) {
        self.0.scope(|scope| {
            for i in 0..n_tasks {
                scope.spawn(move |_| task(i));
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::sync::Mutex;
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    /// So a time of a pool's work has no start of threads in it.
    #[test]
    fn all_work_of_a_pool_is_on_its_threads() {
        for n_threads in [1, 2] {
            let pool = Pool::new(n_threads).unwrap();
            let (seen, sum) = (Mutex::new(HashSet::new()), AtomicU32::new(0));
            for _ in 0..5 {
                pool.on_each([1, 2, 4].into_iter(), |piece| {
                    seen.lock().unwrap().insert(std::thread::current().id());
                    sum.fetch_add(piece, Ordering::Relaxed);
                });
            }
            assert_eq!((pool.n_threads(), sum.into_inner()), (n_threads, 35));
            assert!(seen.into_inner().unwrap().len() <= n_threads);
        }
    }

    #[test]
    fn only_threaded_presets_and_users_who_ask_for_threads_get_a_pool() {
        let numbers = |requested, presets: &[Preset]| {
            let pools = Pools::new(requested, presets).unwrap();
            [Some(Preset::ZcclMt), Some(Preset::Zccl), None].map(|of| pools.of(of).n_threads())
        };
        assert_eq!(numbers(None, &[Preset::Raw, Preset::ZcclMt]), [2, 1, 1]);
        assert_eq!(numbers(None, &Preset::MAIN), [1, 1, 1], "two threads would wait in vain");
        assert_eq!(numbers(Some(3), &[Preset::Raw]), [3, 3, 3]);
    }
}
