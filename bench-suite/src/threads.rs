//! Threads for a rank's computations, from the command line.

use foldwire::threads::{Threads, Workers};

/// A pool of so many threads; it stays until the program ends. With one thread there is none.
///
/// # Errors
///
/// What the system says where it has no threads left.
pub(crate) fn of(n_threads: usize) -> anyhow::Result<Threads> {
    if n_threads <= 1 {
        return Ok(Threads::ONE);
    }
    let pool = rayon::ThreadPoolBuilder::new().num_threads(n_threads).build()?;
    Ok(Threads::of(Box::leak(Box::new(Pool(pool)))))
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
