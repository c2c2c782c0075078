//! Chunks written and read by several threads. The bytes equal those of one thread.
//!
//! The place of a chunk depends on the sizes of all chunks before it. Threads therefore first write
//! each run of chunks at the place that it would have if all earlier chunks had their maximum size.
//! Then one thread moves the runs together. It copies only compressed bytes, a small part of the
//! work.

use super::{INDEX_ENTRY, Pieces, RUN, RunReadFn, SharedChunkWriteFn, write_run};
use crate::codec::{CodecError, DecodeError, Written};
use crate::element::Element;
use crate::kernel::CHUNK;
use crate::threads::Threads;
use std::boxed::Box;
use std::sync::{Mutex, PoisonError};
use std::vec;
use std::vec::Vec;

/// Writes all chunks, of at most `max_chunk_len` bytes each, and their index. `body` has space for
/// the worst case.
pub(super) fn write<P: Pieces + Send>(
    threads: Threads,
    mut pieces: P,
    index: &mut [u8],
    body: &mut [u8],
    max_chunk_len: usize,
    chunk: &SharedChunkWriteFn<'_, P>,
) -> Result<Written, CodecError> {
    let room = RUN * max_chunk_len;
    let n_runs = index.len().div_ceil(RUN * INDEX_ENTRY);
    let mut runs = vec![Ok(Written::default()); n_runs];
    let mut tasks: Vec<RunTask<'_>> = Vec::with_capacity(n_runs);
    let places = index.chunks_mut(RUN * INDEX_ENTRY).zip(body.chunks_mut(room));
    for (run, (written, (index, body))) in runs.iter_mut().zip(places).enumerate() {
        let (piece, rest) = pieces.deal(RUN * CHUNK);
        pieces = rest;
        tasks.push(task(move || {
            let mut chunk = |index: usize, piece: P, dst: &mut [u8]| chunk(index, piece, dst);
            *written = write_run(run * RUN, piece, index, body, &mut chunk);
        }));
    }
    share_out(threads, &tasks);
    drop(tasks);
    let mut all = Written::default();
    for (run, (written, index)) in
        runs.into_iter().zip(index.chunks_mut(RUN * INDEX_ENTRY)).enumerate()
    {
        let written = written?;
        body.copy_within(run * room..run * room + written.n_bytes, all.n_bytes);
        for entry in index.chunks_exact_mut(INDEX_ENTRY) {
            let within = u32::from_le_bytes([entry[0], entry[1], entry[2], entry[3]]);
            entry.copy_from_slice(&(all.n_bytes as u32 + within).to_le_bytes());
        }
        all.n_bytes += written.n_bytes;
        all.blocks += written.blocks;
    }
    Ok(all)
}

/// Calls `decode` for each run of chunks of `dst`, on several threads.
pub(super) fn read<T: Element>(
    threads: Threads,
    dst: &mut [T],
    decode: &RunReadFn<'_, T>,
) -> Result<(), DecodeError> {
    let mut runs = vec![Ok(()); dst.len().div_ceil(RUN * CHUNK)];
    let mut tasks: Vec<RunTask<'_>> = Vec::with_capacity(runs.len());
    for (run, (values, done)) in dst.chunks_mut(RUN * CHUNK).zip(&mut runs).enumerate() {
        tasks.push(task(move || *done = decode(run * RUN, values, &())));
    }
    share_out(threads, &tasks);
    drop(tasks);
    runs.into_iter().collect()
}

/// Work on one run, until a thread takes it.
type RunTask<'a> = Mutex<Option<Box<dyn FnOnce() + Send + 'a>>>;

fn task<'a>(work: impl FnOnce() + Send + 'a) -> RunTask<'a> {
    Mutex::new(Some(Box::new(work)))
}

/// Runs each task once, on one of the threads.
fn share_out(threads: Threads, tasks: &[RunTask<'_>]) {
    let once = |i: usize| {
        let work =
            tasks.get(i).map(|task| task.lock().unwrap_or_else(PoisonError::into_inner).take());
        if let Some(Some(work)) = work {
            work();
        }
    };
    threads.run(tasks.len(), &once);
    // The caller's `Workers` may have skipped some tasks.
    (0..tasks.len()).for_each(once);
}

#[cfg(test)]
mod tests {
    use crate::bound::Quantum;
    use crate::codec::{CodecExt, CodecId, CodecParams, Values};
    use crate::op::Op;
    use crate::threads::{Scoped, Threads};
    use std::vec;
    use std::vec::Vec;

    /// Runs every operation of a codec with two fields on these threads. Returns the frames and the
    /// decoded values.
    fn all(id: CodecId, threads: Threads) -> (Vec<Vec<u8>>, Vec<Vec<u64>>) {
        let field = |phase: f64| -> Vec<f64> {
            (0..200_001).map(|i| (f64::from(i) * 1e-3 + phase).sin() + f64::from(i % 7)).collect()
        };
        let (x, y) = (field(0.0), field(1.0));
        let params = CodecParams::new(Quantum::new::<f64>(1e-3).unwrap()).for_sums_of(2);
        let codec = id.instance::<f64>(&params.on(threads));
        let codec = codec.as_dyn();
        let frame = |write: &dyn Fn(&mut [u8]) -> usize| -> Vec<u8> {
            let mut dst = vec![0; codec.max_encoded_len(x.len()).unwrap()];
            let n_bytes = write(&mut dst);
            dst.truncate(n_bytes);
            dst
        };
        let a = frame(&|dst| codec.encode(&x, dst).unwrap().n_bytes);
        let b = frame(&|dst| codec.encode_partial(&y, dst).unwrap().n_bytes);
        let folded = frame(&|dst| codec.fold(&Op::Sum, &a, &y, dst).unwrap().n_bytes);
        let refolded = frame(&|dst| codec.refold(&Op::Prod, &a, &y, dst).unwrap().n_bytes);
        let recoded = frame(&|dst| codec.recode(&a, x.len(), dst).unwrap().n_bytes);
        let mut decoded = vec![0.0; x.len()];
        codec.decode(&folded, 1, &mut decoded).unwrap();
        let mut reduced = y.clone();
        codec.reduce(&Op::Max, &a, &mut reduced).unwrap();
        let (mut output, mut data) = (vec![0.0; x.len()], y.clone());
        let stored = frame(&|dst| {
            let values = Values::Apart { local: &y, output: &mut vec![0.0; y.len()] };
            codec.fold_store(&Op::Sum, &a, values, 1, dst).unwrap().n_bytes
        });
        assert!(stored == folded, "{}", id.name());
        let mut dst = vec![0; codec.max_encoded_len(x.len()).unwrap()];
        let apart = Values::Apart { local: &y, output: &mut output };
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
        for &id in CodecId::ALL {
            let one = all(id, Threads::ONE);
            for threads in [&Scoped(2), &Scoped(3), &Scoped(8)] {
                assert!(all(id, Threads::of(threads)) == one, "{} {threads:?}", id.name());
            }
            #[cfg(feature = "rayon")]
            for n_threads in [0, 2, 3] {
                let pool = rayon::ThreadPoolBuilder::new().num_threads(4).build().unwrap();
                let many = pool.install(|| all(id, Threads::rayon(n_threads)));
                assert!(many == one, "{} {n_threads} of rayon's", id.name());
            }
        }
    }
}
