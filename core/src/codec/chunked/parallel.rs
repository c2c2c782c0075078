//! Chunks by several threads (feature `rayon`); the bytes are those of one thread.
//!
//! Where a chunk goes depends on the sizes of all before it, so runs of chunks are first written
//! side by side, each at the place it would have if all before it were as large as they can be.
//! Then the runs move together: a copy of compressed bytes, a small part of the work.

use super::{INDEX_ENTRY, Pieces, write_run};
use crate::codec::{CodecError, DecodeError, Written};
use crate::element::Float;
use crate::kernel::CHUNK;
use rayon::prelude::*;
use std::boxed::Box;
use std::vec;
use std::vec::Vec;

/// Chunks in a run: about 20 microseconds of work, well above what handing it over costs.
const RUN: usize = 8;

/// Whether there are enough chunks, and threads, to share them.
pub(super) fn is_worthwhile(n_values: usize) -> bool {
    n_values > RUN * CHUNK && rayon::current_num_threads() > 1
}

/// Writes all chunks, of `max_chunk_len` bytes at most, and their index; `body` is as large as the
/// worst case.
pub(super) fn write<P: Pieces + Send>(
    mut pieces: P,
    index: &mut [u8],
    body: &mut [u8],
    max_chunk_len: usize,
    chunk: &(impl Fn(usize, P, &mut [u8]) -> Result<Written, CodecError> + Sync),
) -> Result<Written, CodecError> {
    let room = RUN * max_chunk_len;
    let n_runs = index.len().div_ceil(RUN * INDEX_ENTRY);
    let mut runs = vec![Ok(Written::default()); n_runs];
    let mut tasks: Vec<Task<'_>> = Vec::with_capacity(n_runs);
    let places = index.chunks_mut(RUN * INDEX_ENTRY).zip(body.chunks_mut(room));
    for (run, (written, (index, body))) in runs.iter_mut().zip(places).enumerate() {
        let (piece, rest) = pieces.deal(RUN * CHUNK);
        pieces = rest;
        tasks.push(Box::new(move || *written = write_run(run * RUN, piece, index, body, chunk)));
    }
    share_out(tasks);
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

/// Calls `decode(first, values)` for each run of chunks of `dst`, `first` being the run's first
/// chunk.
pub(super) fn read<T: Float>(
    dst: &mut [T],
    decode: impl Fn(usize, &mut [T]) -> Result<(), DecodeError> + Sync,
) -> Result<(), DecodeError> {
    let mut runs = vec![Ok(()); dst.len().div_ceil(RUN * CHUNK)];
    let mut tasks: Vec<Task<'_>> = Vec::with_capacity(runs.len());
    let decode = &decode;
    for (run, (values, done)) in dst.chunks_mut(RUN * CHUNK).zip(&mut runs).enumerate() {
        tasks.push(Box::new(move || *done = decode(run * RUN, values)));
    }
    share_out(tasks);
    runs.into_iter().collect()
}

/// The work on one run.
type Task<'a> = Box<dyn FnOnce() + Send + 'a>;

/// Does all tasks, on all threads. It is not generic: rayon's iterators are much to compile.
fn share_out(tasks: Vec<Task<'_>>) {
    tasks.into_par_iter().for_each(|task| task());
}

#[cfg(test)]
mod tests {
    use crate::bound::Quantum;
    use crate::codec::{Codec, FzLight, Homomorphic, Values};
    use crate::op::Op;
    use std::vec;
    use std::vec::Vec;

    /// Encoding, fold, combination and decoding of two fields on `threads` threads: the frames, and
    /// the sums.
    fn all(threads: usize) -> (Vec<Vec<u8>>, [Vec<u32>; 3]) {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        pool.install(|| {
            let field = |phase: f32| -> Vec<f32> {
                (0..200_001).map(|i| (i as f32 * 1e-3 + phase).sin() + (i % 7) as f32).collect()
            };
            let (x, y) = (field(0.0), field(1.0));
            let codec = FzLight::<f32>::new(Quantum::new::<f32>(1e-3).unwrap(), 2);
            let room = || vec![0; codec.max_encoded_len(x.len()).unwrap()];
            let (mut a, mut b, mut folded, mut combined) = (room(), room(), room(), room());
            let n = codec.encode(&x, &mut a).unwrap().n_bytes;
            a.truncate(n);
            let n = codec.encode(&y, &mut b).unwrap().n_bytes;
            b.truncate(n);
            let n = codec.fold(&Op::Sum, &a, &y, &mut folded).unwrap().n_bytes;
            folded.truncate(n);
            let n = codec.combine(&Op::Max, &a, &b, &mut combined).unwrap().n_bytes;
            combined.truncate(n);
            let mut decoded = vec![0.0f32; x.len()];
            codec.decode(&folded, 1, &mut decoded).unwrap();
            let (mut stored, mut output, mut data) = (room(), decoded.clone(), y.clone());
            output.fill(0.0);
            let apart = Values::Apart { local: &y, output: &mut output };
            codec.fold_store(&Op::Sum, &a, apart, 1, &mut stored).unwrap();
            assert!(stored[..folded.len()] == folded, "apart, {threads} threads");
            let in_place = Values::InPlace(&mut data);
            codec.fold_store(&Op::Sum, &a, in_place, 1, &mut stored).unwrap();
            assert!(stored[..folded.len()] == folded, "in place, {threads} threads");
            let bits = |values: Vec<f32>| values.into_iter().map(f32::to_bits).collect();
            (vec![a, b, folded, combined], [decoded, output, data].map(bits))
        })
    }

    #[test]
    fn the_number_of_threads_does_not_change_a_bit() {
        let one = all(1);
        let [decoded, output, data] = &one.1;
        assert!(output == decoded && data == decoded);
        for threads in [2, 3, 8] {
            assert!(all(threads) == one, "{threads} threads");
        }
    }
}
