//! This machine's codec, primitive by primitive, as the engine calls it; and what sums of the field become.
//!
//! *Speeds.* Segments are as long as the engine's. Own values and output stream over a whole array; frames
//! come from a small pool, because a frame that a rank works on was just received. As many threads as will
//! compute at the same time do the same side by side, so that they share the memory as ranks would. Incoming frames are
//! sums of as many operands as ranks have when a sum is on its way. The time is the median of some passes.
//!
//! *Ratio.* Rank r begins at r/n of the field, as in `foldwire bench`. Segments of ranks 0, 1, … are folded one
//! after the other; sizes are noted at powers of two.

use std::hint::black_box;
use std::sync::Barrier;
use std::time::Instant;

use foldwire::bound::Extent;
use foldwire::codec::{Codec, CodecId, CodecParams, Values};
use foldwire::frame::HEADER_BYTES;
use foldwire::kernel::{CHUNK, Level, sample};
use foldwire::{Bound, Element, Op, Quantum};
use foldwire_sim::cost::{Costs, Speeds, Wire};
use xxhash_rust::xxh3::xxh3_64;

use crate::bench::data::Data;

/// Bytes of the arrays that are streamed over, each.
const ARRAY_BYTES: usize = 16 << 20;
/// Frames under way.
const POOL: usize = 16;
/// Passes over the array; the median counts.
const PASSES: usize = 7;
/// Most values that are folded to learn the ratio, all operands together.
const FOLDED: usize = 1 << 29;

/// What is to be measured.
#[derive(Debug, Clone, Copy)]
pub(super) struct Task {
    pub(super) codec: CodecId,
    pub(super) bound: Bound,
    /// Ranks whose values are added up.
    pub(super) size: usize,
    /// Whether they are added up, or only moved.
    pub(super) reduces: bool,
    /// Bytes of a frame.
    pub(super) frame_bytes: usize,
    /// Threads that compute at the same time.
    pub(super) busy: usize,
}

impl Task {
    /// Values of a full segment.
    fn n_values<T: Element>(&self, codec: &dyn Codec<T>) -> usize {
        let fits = |n: usize| {
            codec.max_encoded_len(n).is_some_and(|len| len + HEADER_BYTES <= self.frame_bytes)
        };
        let chunks = (1..).take_while(|chunks| fits(chunks * CHUNK)).count();
        CHUNK * chunks.max(1)
    }

    fn codec<T: Element>(&self, data: &Data<T>) -> foldwire::codec::AnyCodec<T> {
        let bound = self.bound.absolute(Extent::of(data.base())).unwrap_or(0.0);
        let params = CodecParams {
            quantum: Quantum::new::<T>(bound),
            max_operands: self.size as u32,
            level: Level::best(),
        };
        self.codec.instance(&params)
    }

    /// Sizes of sums of 1 to `size` operands.
    ///
    /// # Errors
    /// What the codec says.
    pub(super) fn wire<T: Element>(&self, data: &Data<T>) -> anyhow::Result<Wire> {
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
        Ok(Wire::measured(fixed, widths))
    }

    /// Speeds of one of the threads that compute at the same time.
    ///
    /// # Errors
    /// What the codec says.
    pub(super) fn costs<T: Element>(&self, data: &Data<T>) -> anyhow::Result<Costs> {
        let barrier = Barrier::new(self.busy);
        let threads: Vec<_> = std::thread::scope(|scope| {
            let run = |thread| {
                let barrier = &barrier;
                move || Bench::new(self, data, thread)?.run(barrier)
            };
            let threads: Vec<_> = (0..self.busy).map(|i| scope.spawn(run(i))).collect();
            threads
                .into_iter()
                .map(|thread| thread.join().expect("measuring does not panic"))
                .collect()
        });
        let threads = threads.into_iter().collect::<anyhow::Result<Vec<_>>>()?;
        // Each did the same work: the mean time, not the mean speed.
        let mean =
            |of: fn(&Times) -> f64| threads.iter().map(of).sum::<f64>() / threads.len() as f64;
        let speeds = Speeds {
            encode: mean(|t| t.encode).recip(),
            decode: mean(|t| t.decode).recip(),
            fold: mean(|t| t.fold).recip(),
            fold_store: mean(|t| t.fold_store).recip(),
            combine: mean(|t| t.combine).recip(),
            reduce: mean(|t| t.reduce).recip(),
            refold: mean(|t| t.refold).recip(),
            recode: mean(|t| t.recode).recip(),
            copy: mean(|t| t.copy).recip(),
            checksum: mean(|t| t.checksum).recip(),
        };
        let wire = self.wire(data)?;
        Ok(Costs {
            speeds,
            wire,
            look: mean(|t| t.look).recip(),
            sample: mean(|t| t.sample).recip(),
        })
    }
}

/// Seconds per byte of values (checksum: per byte on the wire).
#[derive(Debug, Clone, Copy, Default)]
struct Times {
    encode: f64,
    decode: f64,
    fold: f64,
    fold_store: f64,
    combine: f64,
    reduce: f64,
    refold: f64,
    recode: f64,
    copy: f64,
    checksum: f64,
    look: f64,
    sample: f64,
}

/// A frame's bytes and how many are used.
type Frame = (Vec<u8>, usize);

/// One thread's arrays and frames.
struct Bench<T: Element> {
    codec: foldwire::codec::AnyCodec<T>,
    n: usize,
    own: Vec<T>,
    output: Vec<T>,
    /// Own values, encoded.
    singles: Vec<Frame>,
    /// Partial sums.
    partials: Vec<Frame>,
    /// What is decoded at the end.
    finals: Vec<Frame>,
    spares: Vec<Vec<u8>>,
    floats: Vec<Vec<T>>,
}

impl<T: Element> Bench<T> {
    fn new(task: &Task, data: &Data<T>, thread: usize) -> anyhow::Result<Self> {
        let codec_of_call = task.codec(data);
        let codec = codec_of_call.as_dyn();
        let n = task.n_values(codec);
        let n_segments = (ARRAY_BYTES / (n * T::BYTES)).max(1);
        let zero = T::from_f64(0.0);
        let mut own = vec![zero; n * n_segments];
        data.fill(thread % task.size, 0, &mut own);
        let room = codec.max_encoded_len(n).unwrap_or(0);
        let mut values = vec![zero; n];
        let mut sum_of = |operands: usize, place: usize| -> anyhow::Result<Frame> {
            let first = place * n;
            let (mut sum, mut next) = (vec![1; room], vec![1; room]);
            data.fill(0, first, &mut values);
            let mut len = codec.encode(&values, &mut sum)?.n_bytes;
            for rank in 1..operands {
                data.fill(rank % task.size, first, &mut values);
                len = codec.fold(&Op::Sum, &sum[..len], &values, &mut next)?.n_bytes;
                std::mem::swap(&mut sum, &mut next);
            }
            Ok((sum, len))
        };
        // On its way a sum has 1 to size − 1 operands before it is folded; more than 32 hardly change its width.
        let most = task.size.min(32);
        let partial = |i: usize| 1 + i * most.saturating_sub(1) / POOL;
        let last = if task.reduces { most } else { 1 };
        let frames = |sums: &mut dyn FnMut(usize) -> anyhow::Result<Frame>| {
            (0..POOL).map(sums).collect::<anyhow::Result<Vec<_>>>()
        };
        let singles = frames(&mut |i| sum_of(1, i))?;
        let partials = frames(&mut |i| sum_of(partial(i), i))?;
        let finals = frames(&mut |i| sum_of(last, i))?;
        let output = own.clone();
        let spares = vec![vec![1; room]; POOL];
        let floats = vec![values.clone(); POOL];
        Ok(Self { codec: codec_of_call, n, own, output, singles, partials, finals, spares, floats })
    }

    fn run(mut self, barrier: &Barrier) -> anyhow::Result<Times> {
        const CHECKED: &str = "made of the same values";
        let Self { codec, n, own, output, singles, partials, finals, spares, floats } = &mut self;
        let (codec, n) = (codec.as_dyn(), *n);
        let n_bytes = size_of_val(&own[..]);
        let segments = n_bytes / (n * T::BYTES);
        let timed = |work: &mut dyn FnMut(usize)| {
            let pass = |work: &mut dyn FnMut(usize)| (0..segments).for_each(work);
            pass(work);
            let mut times: Vec<f64> = (0..PASSES)
                .map(|_| {
                    barrier.wait();
                    let start = Instant::now();
                    pass(work);
                    start.elapsed().as_secs_f64()
                })
                .collect();
            times.sort_unstable_by(f64::total_cmp);
            times[PASSES / 2] / n_bytes as f64
        };
        let at = |i: usize| i * n..(i + 1) * n;
        let mut times = Times::default();
        times.encode = timed(&mut |i| {
            black_box(codec.encode(&own[at(i)], &mut spares[i % POOL]).expect(CHECKED));
        });
        times.decode = timed(&mut |i| {
            let (frame, len) = &finals[i % POOL];
            codec.decode(&frame[..*len], 1, &mut output[at(i)]).expect(CHECKED);
        });
        times.reduce = timed(&mut |i| {
            let (frame, len) = &partials[i % POOL];
            codec.reduce(&Op::Sum, &frame[..*len], &mut floats[i % POOL]).expect(CHECKED);
        });
        times.refold = timed(&mut |i| {
            let (frame, len) = &partials[i % POOL];
            let done = codec.refold(&Op::Sum, &frame[..*len], &own[at(i)], &mut spares[i % POOL]);
            black_box(done.expect(CHECKED));
        });
        times.recode = timed(&mut |i| {
            let (frame, len) = &finals[i % POOL];
            black_box(codec.recode(&frame[..*len], n, &mut spares[i % POOL]).expect(CHECKED));
        });
        times.copy = timed(&mut |i| output[at(i)].copy_from_slice(black_box(&own[at(i)])));
        let frame_bytes: f64 = partials.iter().map(|&(_, len)| len as f64).sum();
        let per_byte = frame_bytes / (POOL * n * T::BYTES) as f64;
        times.checksum = timed(&mut |i| {
            let (frame, len) = &partials[i % POOL];
            black_box(xxh3_64(&frame[..*len]));
        }) / per_byte;
        times.look = timed(&mut |i| {
            black_box(Extent::of(black_box(&own[at(i)])));
        });
        times.sample = timed(&mut |i| {
            black_box(sample::extents(black_box(&own[at(i)])));
        });
        times.fold_store = timed(&mut |i| {
            let (frame, len) = &mut partials[i % POOL];
            let (own, out) = (&own[at(i)], &mut output[at(i)]);
            match codec.fold_in_place(&Op::Sum, &mut frame[..*len], own) {
                Some(done) => {
                    done.expect(CHECKED);
                    codec.decode(&frame[..*len], 1, out).expect(CHECKED);
                }
                None => {
                    let values = Values::Apart { local: own, output: out };
                    let dst = &mut spares[i % POOL];
                    let done = codec.fold_store(&Op::Sum, &frame[..*len], values, 1, dst);
                    black_box(done.expect(CHECKED));
                }
            }
        });
        times.fold = timed(&mut |i| {
            let (frame, len) = &mut partials[i % POOL];
            let own = &own[at(i)];
            match codec.fold_in_place(&Op::Sum, &mut frame[..*len], own) {
                Some(done) => done.expect(CHECKED),
                None => {
                    let dst = &mut spares[i % POOL];
                    black_box(codec.fold(&Op::Sum, &frame[..*len], own, dst).expect(CHECKED));
                }
            }
        });
        // A codec that cannot combine frames is never asked to.
        times.combine = codec.homomorphic().map_or(times.refold, |codec| {
            timed(&mut |i| {
                let (frame, len) = &mut partials[i % POOL];
                let (other, other_len) = &singles[(i + 1) % POOL];
                match codec.combine_in_place(&Op::Sum, &mut frame[..*len], &other[..*other_len]) {
                    Some(done) => done.expect(CHECKED),
                    None => {
                        let (a, b) = (&frame[..*len], &other[..*other_len]);
                        let dst = &mut spares[i % POOL];
                        black_box(codec.combine(&Op::Sum, a, b, dst).expect(CHECKED));
                    }
                }
            })
        });
        Ok(times)
    }
}
