//! Thread pools for a rank's computations, as requested on the command line, and for computations
//! outside ranks.

use foldwire::Preset;
use foldwire::threads::{Threads, Workers};
use foldwire_fields::usage::{UsageError, usage};
use rayon::prelude::*;

/// Creates a pool of `n_threads` threads, which stays until the program ends. One thread needs no
/// pool.
///
/// # Errors
///
/// The system's error if it cannot start the threads.
pub fn of(n_threads: usize) -> Result<Threads, UsageError> {
    if n_threads <= 1 {
        return Ok(Threads::ONE);
    }
    let pool = rayon::ThreadPoolBuilder::new().num_threads(n_threads).build();
    let pool = pool.map_err(|error| usage!("{n_threads} threads: {error}"))?;
    Ok(Threads::of(Box::leak(Box::new(Pool(pool)))))
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
#[derive(Debug)]
pub struct Pools {
    /// The user's choice, for all rows.
    all: Option<Threads>,
    /// Threads of multi-threaded presets.
    of_threaded: Threads,
}

impl Pools {
    /// Pools with the requested number of threads for all presets. By default, multi-threaded
    /// presets use two threads and all others one.
    ///
    /// # Errors
    ///
    /// As [`of`].
    pub fn new(requested: Option<usize>) -> Result<Self, UsageError> {
        let all = requested.map(of).transpose()?;
        Ok(Self { all, of_threaded: all.map_or_else(|| of(2), Ok)? })
    }

    /// Threads of a preset. `None` means a row that is not a preset.
    pub fn of(&self, preset: Option<Preset>) -> Threads {
        let is_threaded = preset.is_some_and(Preset::is_threaded);
        if is_threaded { self.of_threaded } else { self.all.unwrap_or(Threads::ONE) }
    }
}

struct Pool(rayon::ThreadPool);

impl Workers for Pool {
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
