//! Measures the speeds of codec primitives on this machine, as the engine calls them. Also measures
//! the compressed sizes of sums of the field.
//!
//! *Speeds.* The measurement imitates an engine:
//!
//! - Segments are as long as the engine's.
//! - Local input and output are as large as the arrays of all ranks that share the core.
//! - In a real call, another rank has just written the frames that a rank reads. So frames come
//!   from a small pool, and another thread rewrites them between batches. This leaves them in that
//!   thread's cache, or on the way to memory.
//! - The number of threads equals that of a real call on one machine, so that they compete for
//!   memory.
//! - Received frames are partial sums, with as many operands as in a real call.
//!
//! The time is the median of several passes.
//!
//! *Ratio.* The data of rank r of n begin at the fraction r/n of the field, as in `foldwire bench`.
//! Segments of ranks 0, 1, … are folded one after the other. The size of the sum is recorded when
//! its number of operands is a power of two, and at the end.

use std::hint::black_box;
use std::sync::{Barrier, Mutex, MutexGuard};
use std::thread::ScopedJoinHandle;
use std::time::Instant;

use foldwire::bound::ValueRange;
use foldwire::codec::{Codec, CodecExt, CodecId, CodecParams, Values};
use foldwire::frame::HEADER_BYTES;
use foldwire::kernel::{CHUNK, sample};
use foldwire::{Bound, Float, Op, Quantum};
use foldwire_sim::cost::{Costs, PerPrimitive, WireSizes};
use foldwire_workbench::data::Data;
use xxhash_rust::xxh3::xxh3_64;

use crate::bench::row::median;

/// Least and greatest size in bytes of each thread's input and output.
const ARRAY_BYTES: [usize; 2] = [4 << 20, 96 << 20];
/// Number of frames in a pool, and number of segments that are processed between two rewrites of
/// the frames (a batch).
const POOL: usize = 16;
/// Number of destination buffers. They are few, so they remain in the cache.
const SPARES: usize = 4;
/// Number of timed passes over the arrays. Their median counts.
const PASSES: usize = 5;
/// Limit on the number of values that are folded to measure the ratio, all operands together.
const FOLDED: usize = 1 << 29;

/// Parameters of a measurement.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct MeasurementTask {
    pub(crate) codec: CodecId,
    pub(crate) setting: u16,
    pub(crate) bound: Bound,
    /// Ranks whose values are added up.
    pub(crate) size: usize,
    /// True if values are added up, false if they only move.
    pub(crate) reduces: bool,
    /// Bytes of a frame.
    pub(crate) frame_bytes: usize,
    /// Number of threads that compute at the same time.
    pub(crate) busy: usize,
    /// Bytes of the arrays of all ranks that share a core.
    pub(crate) array_bytes: usize,
}

impl MeasurementTask {
    /// Returns the number of values in a full segment.
    fn n_values<T: Float>(&self, codec: &dyn Codec<T>) -> usize {
        let fits = |n: usize| {
            codec.max_encoded_len(n).is_some_and(|len| len + HEADER_BYTES <= self.frame_bytes)
        };
        let chunks = (1..).take_while(|chunks| fits(chunks * CHUNK)).count();
        CHUNK * chunks.max(1)
    }

    fn codec<T: Float>(&self, data: &Data<T>) -> foldwire::codec::AnyCodec<T> {
        let quantum = self.bound.quantum::<T>(ValueRange::of(data.base()));
        let quantum = quantum.unwrap_or(Quantum::LOSSLESS);
        let params = CodecParams::new(quantum).for_sums_of(self.size as u32);
        self.codec.instance(&params.with_setting(self.setting).with_shape(data.shape()))
    }

    /// Measures the sizes of sums of 1 to `size` operands.
    ///
    /// # Errors
    /// Errors of the codec.
    pub(crate) fn wire<T: Float>(&self, data: &Data<T>) -> anyhow::Result<WireSizes> {
        let data = &data.between(self.size);
        let codec = self.codec(data);
        let codec = codec.as_dyn();
        let n = self.n_values(codec);
        let n_segments = (FOLDED / (n * self.size)).clamp(2, POOL);
        let operands = if self.reduces { self.size } else { 1 };
        let mut values = vec![T::from_f64(0.0); n];
        let room = codec.max_encoded_len(n).unwrap_or(0);
        let (mut sum, mut next) = (vec![0; room], vec![0; room]);
        let fixed = codec.encode(&[], &mut next)?.n_bytes;
        let mut widths: Vec<(u32, f64)> = Vec::new();
        for segment in 0..n_segments {
            let first = segment * data.base().len() / n_segments;
            let mut len = 0;
            let mut at = 0;
            for rank in 0..operands {
                data.fill(rank, first, &mut values);
                len = if rank == 0 {
                    codec.encode(&values, &mut sum)?.n_bytes
                } else {
                    let len = codec.fold(&Op::Sum, &sum[..len], &values, &mut next)?.n_bytes;
                    std::mem::swap(&mut sum, &mut next);
                    len
                };
                let k = rank + 1;
                if k.is_power_of_two() || k == operands {
                    let width = (len - fixed) as f64 / (n * n_segments) as f64;
                    match widths.get_mut(at) {
                        Some(entry) => entry.1 += width,
                        None => widths.push((k as u32, width)),
                    }
                    at += 1;
                }
            }
        }
        Ok(WireSizes::measured(fixed, widths))
    }

    /// Measures the speeds of one thread while `busy` threads compute at the same time.
    ///
    /// # Errors
    /// Errors of the codec.
    pub(crate) fn costs<T: Float>(&self, data: &Data<T>) -> anyhow::Result<Costs> {
        let data = &data.between(self.size);
        // A single computing thread needs a second thread that rewrites its frames, as a peer or
        // the network would.
        let n_threads = self.busy.max(2);
        let barrier = Barrier::new(n_threads);
        let pools = (0..n_threads).map(|_| self.pools(data).map(Mutex::new));
        let pools = pools.collect::<anyhow::Result<Vec<_>>>()?;
        let threads: Vec<PrimitiveTimes> = std::thread::scope(|scope| {
            let run = |thread| {
                let (barrier, pools) = (&barrier, &pools[..]);
                let computes = thread < self.busy;
                move || {
                    ThreadArrays::new(self, data, thread, computes).run(&ThreadContext {
                        thread,
                        barrier,
                        pools,
                        computes,
                    })
                }
            };
            let threads: Vec<_> = (0..n_threads).map(|i| scope.spawn(run(i))).collect();
            let join = |thread: ScopedJoinHandle<'_, PrimitiveTimes>| {
                thread.join().expect("measuring does not panic")
            };
            threads.into_iter().map(join).take(self.busy).collect()
        });
        // All threads did the same work, so times are averaged, not speeds.
        let speed = |sum_of_times: f64| (sum_of_times / threads.len() as f64).recip();
        let none = PerPrimitive::uniform(0.0);
        let sums = threads.iter().fold(none, |sum, one| sum.zip(one.primitives, |a, b| a + b));
        Ok(Costs {
            speeds: sums.map(speed),
            wire: self.wire(data)?,
            look: speed(threads.iter().map(|one| one.look).sum()),
            sample: speed(threads.iter().map(|one| one.sample).sum()),
        })
    }
}

/// Seconds of each primitive per byte of values (`checksum`: per byte of the frame).
#[derive(Debug, Clone, Copy)]
struct PrimitiveTimes {
    primitives: PerPrimitive,
    /// Scan of all values for their value range.
    look: f64,
    /// The same scan of a sample.
    sample: f64,
}

/// Bytes of a frame, and the number of bytes in use.
type EncodedFrame = (Vec<u8>, usize);

/// Frames that one thread reads and another thread rewrites.
struct FramePools {
    /// Encoded local input.
    singles: Vec<EncodedFrame>,
    /// Partial sums.
    partials: Vec<EncodedFrame>,
    /// Frames of complete results.
    finals: Vec<EncodedFrame>,
}

impl FramePools {
    /// Writes one byte of every cache line, without changing it. This moves the line to the cache
    /// of the calling thread's core.
    fn rewrite(&mut self) {
        const LINE: usize = 64;
        let Self { singles, partials, finals } = self;
        for (bytes, n) in [singles, partials, finals].into_iter().flatten() {
            bytes[..*n].iter_mut().step_by(LINE).for_each(|byte| *byte = black_box(*byte));
        }
    }
}

impl MeasurementTask {
    /// Returns the frames for one thread.
    fn pools<T: Float>(&self, data: &Data<T>) -> anyhow::Result<FramePools> {
        let codec = self.codec(data);
        let codec = codec.as_dyn();
        let n = self.n_values(codec);
        let room = codec.max_encoded_len(n).unwrap_or(0);
        let mut values = vec![T::from_f64(0.0); n];
        let mut sum_of = |operands: usize, place: usize| -> anyhow::Result<EncodedFrame> {
            let (mut sum, mut next) = (vec![1; room], vec![1; room]);
            data.fill(0, place * n, &mut values);
            let mut len = codec.encode(&values, &mut sum)?.n_bytes;
            for rank in 1..operands {
                data.fill(rank, place * n, &mut values);
                len = codec.fold(&Op::Sum, &sum[..len], &values, &mut next)?.n_bytes;
                std::mem::swap(&mut sum, &mut next);
            }
            Ok((sum, len))
        };
        // A partial sum has 1 to size − 1 operands before it is folded. More than 32 operands
        // hardly change its size.
        let most = self.size.min(32);
        let partial = |i: usize| 1 + i * most.saturating_sub(1) / POOL;
        let last = if self.reduces { most } else { 1 };
        let mut frames = |operands: &dyn Fn(usize) -> usize| {
            (0..POOL).map(|i| sum_of(operands(i), i)).collect::<anyhow::Result<Vec<_>>>()
        };
        let (singles, partials) = (frames(&|_| 1)?, frames(&partial)?);
        Ok(FramePools { singles, partials, finals: frames(&|_| last)? })
    }
}

/// A thread's view of the threads that measure together.
struct ThreadContext<'a> {
    thread: usize,
    barrier: &'a Barrier,
    pools: &'a [Mutex<FramePools>],
    computes: bool,
}

impl ThreadContext<'_> {
    /// Returns the seconds of `n` calls of `work` in the median pass. `work` receives the number of
    /// the call (from 0) and this thread's frames. Before each batch, this thread rewrites the
    /// frames of the next thread.
    fn time(&self, n: usize, work: &mut dyn FnMut(usize, &mut FramePools)) -> f64 {
        let next = (self.thread + 1) % self.pools.len();
        let mut pass = || {
            let mut time = 0.0;
            for first in (0..n).step_by(POOL) {
                lock(&self.pools[next]).rewrite();
                self.barrier.wait();
                if self.computes {
                    let pools = &mut lock(&self.pools[self.thread]);
                    let start = Instant::now();
                    (first..n.min(first + POOL)).for_each(|i| work(i, pools));
                    time += start.elapsed().as_secs_f64();
                }
                self.barrier.wait();
            }
            time
        };
        pass();
        median(&(0..PASSES).map(|_| pass()).collect::<Vec<_>>())
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().expect("measuring does not panic")
}

/// One thread's arrays.
struct ThreadArrays<T: Float> {
    codec: foldwire::codec::AnyCodec<T>,
    /// Number of values in a segment.
    n: usize,
    n_segments: usize,
    local: Vec<T>,
    output: Vec<T>,
    /// Destinations of encodings.
    spares: Vec<Vec<u8>>,
    /// Destinations of uncompressed partial sums.
    floats: Vec<Vec<T>>,
}

impl<T: Float> ThreadArrays<T> {
    /// Allocates the arrays. A thread that does not compute has empty ones.
    fn new(task: &MeasurementTask, data: &Data<T>, thread: usize, computes: bool) -> Self {
        let codec = task.codec(data);
        let n = task.n_values(codec.as_dyn());
        let [least, most] = ARRAY_BYTES;
        let n_segments = task.array_bytes.clamp(least, most).div_ceil(n * T::BYTES);
        let mut local = vec![T::from_f64(0.0); if computes { n * n_segments } else { 0 }];
        data.fill(thread % task.size, 0, &mut local);
        let room = codec.as_dyn().max_encoded_len(n).unwrap_or(0);
        let (output, spares) = (local.clone(), vec![vec![1; room]; SPARES]);
        let floats = vec![vec![T::from_f64(1.0); n]; SPARES];
        Self { codec, n, n_segments, local, output, spares, floats }
    }

    fn run(mut self, context: &ThreadContext<'_>) -> PrimitiveTimes {
        const CHECKED: &str = "made of the same values";
        let Self { codec, n, n_segments, local, output, spares, floats } = &mut self;
        let (codec, n, n_segments) = (codec.as_dyn(), *n, *n_segments);
        let n_bytes = (n * n_segments * T::BYTES) as f64;
        let at = |i: usize| i * n..(i + 1) * n;
        let timed =
            |work: &mut dyn FnMut(usize, &mut FramePools)| context.time(n_segments, work) / n_bytes;

        let encode = timed(&mut |i, _| {
            black_box(codec.encode(&local[at(i)], &mut spares[i % SPARES]).expect(CHECKED));
        });
        let decode = timed(&mut |i, pools| {
            let (frame, len) = &pools.finals[i % POOL];
            codec.decode(&frame[..*len], 1, &mut output[at(i)]).expect(CHECKED);
        });
        let reduce = timed(&mut |i, pools| {
            let (frame, len) = &pools.partials[i % POOL];
            codec.reduce(&Op::Sum, &frame[..*len], &mut floats[i % SPARES]).expect(CHECKED);
        });
        let refold = timed(&mut |i, pools| {
            let ((frame, len), dst) = (&pools.partials[i % POOL], &mut spares[i % SPARES]);
            let written = codec.refold(&Op::Sum, &frame[..*len], &local[at(i)], dst);
            black_box(written.expect(CHECKED));
        });
        let recode = timed(&mut |i, pools| {
            let ((frame, len), dst) = (&pools.finals[i % POOL], &mut spares[i % SPARES]);
            black_box(codec.recode(&frame[..*len], n, dst).expect(CHECKED));
        });
        let copy = timed(&mut |i, _| output[at(i)].copy_from_slice(black_box(&local[at(i)])));
        let look = timed(&mut |i, _| {
            black_box(ValueRange::of(black_box(&local[at(i)])));
        });
        let sample = timed(&mut |i, _| {
            black_box(sample::value_ranges(black_box(&local[at(i)])));
        });
        let mut checked_bytes = 0;
        let checksum = timed(&mut |i, pools| {
            let (frame, len) = &pools.partials[i % POOL];
            checked_bytes += len;
            black_box(xxh3_64(&frame[..*len]));
        });
        // `checked_bytes` includes the untimed first pass.
        let checked_per_byte = checked_bytes as f64 / (PASSES + 1) as f64 / n_bytes;
        let in_place = |frame: &mut [u8], local: &[T]| {
            codec.homomorphic()?.fold_in_place(&Op::Sum, frame, local)
        };
        let fold_store = timed(&mut |i, pools| {
            let (frame, len) = &mut pools.partials[i % POOL];
            let (local, output) = (&local[at(i)], &mut output[at(i)]);
            if let Some(done) = in_place(&mut frame[..*len], local) {
                done.expect(CHECKED);
                codec.decode(&frame[..*len], 1, output).expect(CHECKED);
            } else {
                let (values, dst) = (Values::Apart { local, output }, &mut spares[i % SPARES]);
                let written = codec.fold_store(&Op::Sum, &frame[..*len], values, 1, dst);
                black_box(written.expect(CHECKED));
            }
        });
        let fold = timed(&mut |i, pools| {
            let (frame, len) = &mut pools.partials[i % POOL];
            if let Some(done) = in_place(&mut frame[..*len], &local[at(i)]) {
                done.expect(CHECKED);
            } else {
                let dst = &mut spares[i % SPARES];
                black_box(codec.fold(&Op::Sum, &frame[..*len], &local[at(i)], dst).expect(CHECKED));
            }
        });
        // The engine never combines frames of a codec that cannot combine. So any time will do for
        // such a codec.
        let combine = codec.homomorphic().map_or(refold, |codec| {
            timed(&mut |i, pools| {
                let (frame, len) = &mut pools.partials[i % POOL];
                let (other, other_len) = &pools.singles[(i + 1) % POOL];
                let (frame, other) = (&mut frame[..*len], &other[..*other_len]);
                if let Some(done) = codec.combine_in_place(&Op::Sum, frame, other) {
                    done.expect(CHECKED);
                } else {
                    let dst = &mut spares[i % SPARES];
                    black_box(codec.combine(&Op::Sum, frame, other, dst).expect(CHECKED));
                }
            })
        });
        let primitives = PerPrimitive {
            encode,
            decode,
            fold,
            fold_store,
            combine,
            reduce,
            refold,
            recode,
            copy,
            checksum: checksum / checked_per_byte,
        };
        PrimitiveTimes { primitives, look, sample }
    }
}
