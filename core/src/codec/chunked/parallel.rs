//! Chunks processed by several threads. The bytes equal those of one thread.
//!
//! Threads take runs of chunks in order. So a thread may wait for a result of an earlier run, which
//! another thread has taken: the thread with the earliest run never waits.
//!
//! The place of a chunk depends on the sizes of all chunks before it. Threads therefore first write
//! each run at the place that it would have if all earlier chunks had their maximum size. Then one
//! thread moves the runs together. It copies only compressed bytes, a small part of the work.

use super::{INDEX_ENTRY, Pieces, Run, RunWorkers, RunWriters};
use crate::codec::{BlockStats, CodecError, Written};
use crate::kernel::CHUNK;
use crate::threads::Threads;
use core::cell::Cell;
use core::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Input of a writer, and the places of its chunks: in the index, and, as far apart as their
/// maximum size, in the body.
struct Places<'a, P> {
    pieces: P,
    index: &'a mut [u8],
    body: &'a mut [u8],
    max_chunk_len: usize,
}

impl<P: Pieces> Pieces for Places<'_, P> {
    fn deal(self, n_values: usize) -> (Self, Self) {
        let Self { pieces, index, body, max_chunk_len } = self;
        let n_chunks = n_values.div_ceil(CHUNK);
        let (pieces, rest) = pieces.deal(n_values);
        let (index, later) = index.deal(n_chunks * INDEX_ENTRY);
        let (body, room) = body.deal(n_chunks * max_chunk_len);
        let rest = Self { pieces: rest, index: later, body: room, max_chunk_len };
        (Self { pieces, index, body, max_chunk_len }, rest)
    }
}

/// Writes all chunks, of at most `max_chunk_len` bytes each, and their index. The body has space
/// for the worst case.
pub(super) fn write<P: Pieces + Send>(
    threads: Threads,
    n_values: usize,
    Run { pieces, index, body, .. }: Run<'_, P>,
    max_chunk_len: usize,
    prepare: &RunWriters<'_, P>,
) -> Result<Written, CodecError> {
    let places = Places { pieces, index: &mut *index, body: &mut *body, max_chunk_len };
    let blocks = Mutex::new(BlockStats::default());
    share::<_, CodecError>(threads, n_values, places, &|work| {
        prepare(&mut |write| {
            work(&mut |first, Places { pieces, index, body, .. }, pace| {
                let written = write(Run { first, pieces, index, body }, pace)?;
                *lock(&blocks) += written.blocks;
                Ok(())
            });
        });
    })?;
    let mut written = Written { n_bytes: 0, blocks: *lock(&blocks) };
    let n_chunks = threads.piece() / CHUNK;
    for (run, index) in index.chunks_mut(n_chunks * INDEX_ENTRY).enumerate() {
        let (start, mut n_bytes) = (written.n_bytes, 0);
        for entry in index.as_chunks_mut::<INDEX_ENTRY>().0 {
            n_bytes = u32::from_le_bytes(*entry) as usize;
            *entry = ((start + n_bytes) as u32).to_le_bytes();
        }
        let from = run * n_chunks * max_chunk_len;
        body.copy_within(from..from + n_bytes, start);
        written.n_bytes += n_bytes;
    }
    Ok(written)
}

/// Hands out all runs, in order. Returns the error of the earliest run with an error.
pub(super) fn share<P: Pieces + Send, E: Send>(
    threads: Threads,
    n_values: usize,
    pieces: P,
    prepare: &RunWorkers<'_, P, E>,
) -> Result<(), E> {
    let rest = Mutex::new(Some((0, pieces)));
    let n_unfinished = AtomicUsize::new(0);
    let take = || {
        let mut rest = lock(&rest);
        let (start, pieces) = rest.take()?;
        let (piece, others) = pieces.deal(threads.piece());
        let next = start + threads.piece();
        *rest = (next < n_values).then_some((next, others));
        n_unfinished.fetch_add(1, Ordering::Relaxed);
        Some((start / CHUNK, piece))
    };
    let error = Mutex::new(None);
    let work = || {
        prepare(&mut |process| {
            while let Some((first, piece)) = take() {
                if let Err(new) = process(first, piece, &()) {
                    *lock(&rest) = None;
                    let mut error = lock(&error);
                    if error.as_ref().is_none_or(|&(earliest, _)| first < earliest) {
                        *error = Some((first, new));
                    }
                }
                n_unfinished.fetch_sub(1, Ordering::Relaxed);
            }
        });
    };
    threads.run(threads.n_for(n_values), &|| AtWork::begin(work));
    // The caller's `Workers` may have skipped calls, and a busy thread has skipped its own.
    if lock(&rest).is_some() {
        work();
    }
    // A pool may catch panics.
    assert_eq!(n_unfinished.into_inner(), 0, "a thread has panicked");
    let error = error.into_inner().unwrap_or_else(PoisonError::into_inner);
    error.map_or(Ok(()), |(_, error)| Err(error))
}

std::thread_local! {
    /// True while this thread processes runs.
    static IS_AT_WORK: Cell<bool> = const { Cell::new(false) };
}

/// Mark on a thread that processes runs.
///
/// A pool may let a thread begin one task within another, where a user's operation waits for the
/// pool. There the thread must not take a run: it could wait for its own unfinished one.
struct AtWork;

impl AtWork {
    /// Calls `work`, unless this thread is already at work.
    fn begin(work: impl FnOnce()) {
        if !IS_AT_WORK.replace(true) {
            let _mark = Self;
            work();
        }
    }
}

impl Drop for AtWork {
    fn drop(&mut self) {
        IS_AT_WORK.set(false);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use crate::bound::Quantum;
    use crate::codec::{CodecExt, CodecId, CodecParams, Values};
    use crate::op::Op;
    use crate::threads::{Scoped, Threads};
    use std::vec;
    use std::vec::Vec;

    fn field(phase: f64) -> Vec<f64> {
        (0..200_001).map(|i| (f64::from(i) * 1e-3 + phase).sin() + f64::from(i % 7)).collect()
    }

    /// Runs every operation of a codec with two fields on these threads. Returns the frames and the
    /// decoded values.
    fn all(id: CodecId, [x, y]: [&[f64]; 2], threads: Threads) -> (Vec<Vec<u8>>, Vec<Vec<u64>>) {
        let params = CodecParams::new(Quantum::new::<f64>(1e-3).unwrap()).for_sums_of(2);
        let codec = id.instance::<f64>(&params.on(threads));
        let codec = codec.as_dyn();
        let frame = |write: &dyn Fn(&mut [u8]) -> usize| -> Vec<u8> {
            let mut dst = vec![0; codec.max_encoded_len(x.len()).unwrap()];
            let n_bytes = write(&mut dst);
            dst.truncate(n_bytes);
            dst
        };
        let a = frame(&|dst| codec.encode(x, dst).unwrap().n_bytes);
        let b = frame(&|dst| codec.encode_partial(y, dst).unwrap().n_bytes);
        let folded = frame(&|dst| codec.fold(&Op::Sum, &a, y, dst).unwrap().n_bytes);
        let refolded = frame(&|dst| codec.refold(&Op::Prod, &a, y, dst).unwrap().n_bytes);
        let recoded = frame(&|dst| codec.recode(&a, x.len(), dst).unwrap().n_bytes);
        let mut decoded = vec![0.0; x.len()];
        codec.decode(&folded, 1, &mut decoded).unwrap();
        let mut reduced = y.to_vec();
        codec.reduce(&Op::Max, &a, &mut reduced).unwrap();
        let (mut output, mut data) = (vec![0.0; x.len()], y.to_vec());
        let stored = frame(&|dst| {
            let values = Values::Apart { local: y, output: &mut vec![0.0; y.len()] };
            codec.fold_store(&Op::Sum, &a, values, 1, dst).unwrap().n_bytes
        });
        assert!(stored == folded, "{}", id.name());
        let mut dst = vec![0; codec.max_encoded_len(x.len()).unwrap()];
        let apart = Values::Apart { local: y, output: &mut output };
        codec.fold_store(&Op::Sum, &a, apart, 1, &mut dst).unwrap();
        codec.fold_store(&Op::Sum, &a, Values::InPlace(&mut data), 1, &mut dst).unwrap();
        assert!(output == decoded && data == decoded, "{}", id.name());
        let mut frames = vec![a, b, folded, refolded, recoded];
        if let Some(homomorphic) = codec.homomorphic() {
            let (a, b) = (&frames[0], &frames[1]);
            let combine =
                |dst: &mut [u8]| homomorphic.combine(&Op::Max, a, b, dst).unwrap().n_bytes;
            let combined = frame(&combine);
            frames.push(combined);
        }
        let bits = |values: Vec<f64>| values.into_iter().map(f64::to_bits).collect();
        (frames, [decoded, reduced].map(bits).into())
    }

    #[test]
    fn the_number_of_threads_does_not_change_a_bit() {
        let [x, y] = [field(0.0), field(1.0)];
        let fields = [&x[..], &y[..]];
        for &id in CodecId::ALL {
            let one = all(id, fields, Threads::ONE);
            for threads in [&Scoped(2), &Scoped(3), &Scoped(8)] {
                assert!(all(id, fields, Threads::of(threads)) == one, "{} {threads:?}", id.name());
            }
            #[cfg(feature = "rayon")]
            for n_threads in [0, 2, 3] {
                let pool = rayon::ThreadPoolBuilder::new().num_threads(4).build().unwrap();
                let many = pool.install(|| all(id, fields, Threads::rayon(n_threads)));
                assert!(many == one, "{} {n_threads} of rayon's", id.name());
            }
        }
    }
}
