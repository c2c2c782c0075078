//! Speed of memory, measured in the same run as the codecs, and repetition in turns.
//!
//! The speed of a fast codec is best compared with `memcpy` of the same array, and with a plain
//! read of it (as in McCalpin's STREAM, with the sum kept). Machines are shared and clock rates
//! drift, so contenders take turns. Every round runs each of them once, noise affects all alike,
//! and the median over rounds is a contender's time. Rates are in 1e9 bytes of the *source* per
//! second: a copy of n bytes counts n.

use std::hint::black_box;
use std::time::{Duration, Instant};

use bytemuck::Pod;

use crate::threads::Pool;

/// A contender: runs once and returns the time to count.
pub type Contender<'a> = &'a mut dyn FnMut() -> Duration;

/// Runs every contender once per round for `n_rounds` rounds, after one round that does not count.
/// Returns the times of each contender, in their order.
pub fn alternate(n_rounds: usize, contenders: &mut [Contender<'_>]) -> Vec<Vec<Duration>> {
    let mut times = vec![Vec::with_capacity(n_rounds); contenders.len()];
    for round in 0..=n_rounds {
        for (contender, times) in contenders.iter_mut().zip(&mut times) {
            let time = contender();
            if round > 0 {
                times.push(time);
            }
        }
    }
    times
}

/// Runs every contender `n_rounds` times, in turns, so that disturbances of the machine affect all
/// alike. Returns the runs of each contender, in their order.
///
/// # Errors
/// The first error of a run.
pub fn take_turns<C, R, E>(
    contenders: &[C],
    n_rounds: usize,
    mut run: impl FnMut(&C) -> Result<R, E>,
) -> Result<Vec<Vec<R>>, E> {
    let mut runs: Vec<Vec<R>> = contenders.iter().map(|_| Vec::new()).collect();
    for _ in 0..n_rounds {
        for (contender, runs) in contenders.iter().zip(&mut runs) {
            runs.push(run(contender)?);
        }
    }
    Ok(runs)
}

/// Time that `work` takes.
pub fn time(work: impl FnOnce()) -> Duration {
    let start = Instant::now();
    work();
    start.elapsed()
}

/// Median of the times. For an even number of times, the mean of the middle two.
///
/// # Panics
///
/// If there are no times.
pub fn median(times: &[Duration]) -> Duration {
    let mut times = times.to_vec();
    times.sort_unstable();
    let middle = times.len() / 2;
    if times.len() % 2 == 1 { times[middle] } else { (times[middle - 1] + times[middle]) / 2 }
}

/// Times of all runs in seconds, and the run whose time is closest to their median.
///
/// # Panics
///
/// If there are no runs.
pub fn median_run<R>(runs: &[R], time: impl Fn(&R) -> Duration) -> (Vec<f64>, &R) {
    let times: Vec<Duration> = runs.iter().map(&time).collect();
    let median = median(&times);
    let middle = runs.iter().min_by_key(|run| time(run).abs_diff(median));
    (times.iter().map(Duration::as_secs_f64).collect(), middle.expect("there is a run"))
}

/// Rate in 1e9 bytes per second.
pub fn gbps(n_bytes: usize, time: Duration) -> f64 {
    // A clock may measure 0 for very short work.
    n_bytes as f64 / time.as_secs_f64().max(1e-9) / 1e9
}

/// Copies of an array into a buffer whose pages are already mapped.
#[derive(Debug)]
pub struct Memcpy<'a, T> {
    source: &'a [T],
    copy: Vec<T>,
}

impl<'a, T: Pod> Memcpy<'a, T> {
    /// Allocates the buffer and touches every page of it.
    pub fn new(source: &'a [T]) -> Self {
        Self { source, copy: source.to_vec() }
    }

    /// Copies the array once.
    pub fn run(&mut self) -> Duration {
        let time = time(|| self.copy.copy_from_slice(black_box(self.source)));
        black_box(&self.copy);
        time
    }
}

/// STREAM's copy and triad (McCalpin) on arrays of `f64`. Unlike other rates of this module,
/// STREAM's count every byte that is read or written.
#[derive(Debug)]
pub struct Stream {
    arrays: [Vec<f64>; 3],
    pool: Pool,
}

impl Stream {
    /// Allocates three arrays of `n_bytes` each, for the threads of this pool.
    pub fn new(n_bytes: usize, pool: Pool) -> Self {
        let n_values = (n_bytes / size_of::<f64>()).max(1);
        Self { arrays: [1.0, 2.0, 0.5].map(|x| vec![x; n_values]), pool }
    }

    /// c = b
    pub fn copy(&mut self) -> Duration {
        self.each(|_, b, c| c.copy_from_slice(b))
    }

    /// a = b + 3·c
    pub fn triad(&mut self) -> Duration {
        self.each(|a, b, c| {
            a.iter_mut().zip(b.iter().zip(c)).for_each(|(a, (b, c))| *a = b + 3.0 * *c);
        })
    }

    /// The higher rate of both, in 1e9 bytes per second.
    pub fn gbps(&self, copy: Duration, triad: Duration) -> f64 {
        let n_bytes = size_of_val(&self.arrays[0][..]);
        gbps(2 * n_bytes, copy).max(gbps(3 * n_bytes, triad))
    }

    fn each(&mut self, work: impl Fn(&mut [f64], &[f64], &mut [f64]) + Sync) -> Duration {
        let [a, b, c] = &mut self.arrays;
        let n_each = a.len().div_ceil(self.pool.n_threads());
        let pieces = a.chunks_mut(n_each).zip(b.chunks(n_each)).zip(c.chunks_mut(n_each));
        let time = time(|| self.pool.on_each(pieces, |((a, b), c)| work(a, b, c)));
        black_box(&self.arrays);
        time
    }
}

/// Reads an array once, and sums its 64-bit words.
pub fn read<T: Pod>(source: &[T]) -> Duration {
    time(|| {
        black_box(sum_words(black_box(source)));
    })
}

/// Wrapping sum of the aligned 64-bit words.
///
/// Integers allow the compiler to reorder additions. There are enough accumulators that loads, not
/// additions, limit the speed.
fn sum_words<T: Pod>(source: &[T]) -> u64 {
    const N: usize = 32;
    let (_, words, _) = bytemuck::pod_align_to::<T, u64>(source);
    let (runs, rest) = words.as_chunks::<N>();
    let mut sums = [0_u64; N];
    for run in runs {
        for (sum, word) in sums.iter_mut().zip(run) {
            *sum = sum.wrapping_add(*word);
        }
    }
    sums.iter().chain(rest).fold(0, |sum, word| sum.wrapping_add(*word))
}

/// Time that this thread was ready to run while other threads had the processors. `None` if the
/// system does not report it (only Linux does).
///
/// Timings of a thread that waits much say little about the machine.
pub fn waited() -> Option<Duration> {
    let of_thread = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    // Fields: nanoseconds running, nanoseconds waiting, number of time slices.
    of_thread.split_whitespace().nth(1)?.parse().ok().map(Duration::from_nanos)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contenders_take_turns() {
        let order = std::cell::RefCell::new(String::new());
        let contender = |name: char, ms: u64| {
            let order = &order;
            move || {
                order.borrow_mut().push(name);
                Duration::from_millis(ms)
            }
        };
        let (mut a, mut b) = (contender('a', 1), contender('b', 2));
        let times = alternate(2, &mut [&mut a, &mut b]);
        assert_eq!(order.into_inner(), "ababab");
        assert_eq!(times, [[Duration::from_millis(1); 2], [Duration::from_millis(2); 2]]);
    }

    #[test]
    fn the_median_is_in_the_middle() {
        let median_ms = |ms: &[u64]| {
            median(&ms.iter().map(|&ms| Duration::from_millis(ms)).collect::<Vec<_>>())
        };
        assert_eq!(median_ms(&[9, 1, 4]), Duration::from_millis(4));
        assert_eq!(median_ms(&[1, 9, 4, 6]), Duration::from_millis(5));
        assert_eq!(median_ms(&[7]), Duration::from_millis(7));
    }

    #[test]
    fn rates_are_in_1e9_bytes_per_second() {
        assert_eq!(gbps(3_000_000_000, Duration::from_secs(2)), 1.5);
        assert!(gbps(1, Duration::ZERO).is_finite());
    }

    #[test]
    fn every_word_is_read() {
        let words: Vec<u64> = (0..1000).map(|at| at * at).collect();
        assert_eq!(sum_words(&words), words.iter().sum::<u64>());
        assert_eq!(sum_words::<f32>(&[]), 0);
    }

    #[test]
    fn memory_has_a_rate() {
        let source = vec![1.0_f32; 1 << 16];
        let mut memcpy = Memcpy::new(&source);
        assert!(memcpy.run() > Duration::ZERO && read(&source) > Duration::ZERO);
        assert_eq!(memcpy.copy, source);
    }

    #[test]
    fn stream_copies_and_adds_on_any_number_of_threads() {
        for n_threads in [1, 2, 3] {
            let mut stream = Stream::new(8 * 1001, Pool::new(n_threads).unwrap());
            let (copy, triad) = (stream.copy(), stream.triad());
            assert_eq!(stream.arrays, [8.0, 2.0, 2.0].map(|x| vec![x; 1001]));
            assert!(stream.gbps(copy, triad) > 0.0);
        }
    }
}
