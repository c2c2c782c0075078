//! Tests of payloads that several threads write and read: the same bytes, values and errors as by
//! one thread, and an end in any case.

use super::*;
use crate::threads::{Scoped, Threads, Workers};
use std::panic::{AssertUnwindSafe, catch_unwind};

static TWO: Scoped = Scoped(2);
static THREE: Scoped = Scoped(3);
static EIGHT: Scoped = Scoped(8);

/// Pools of different kinds.
fn pools() -> Vec<(&'static str, Threads)> {
    /// Runs only some of its tasks, the last one first, on the calling thread.
    struct Odd;
    impl Workers for Odd {
        fn n_threads(&self) -> usize {
            4
        }

        fn run(&self, n_tasks: usize, task: &(dyn Fn(usize) + Sync)) {
            (1..n_tasks).rev().step_by(2).for_each(task);
        }
    }
    /// Runs nothing.
    struct Idle;
    impl Workers for Idle {
        fn n_threads(&self) -> usize {
            4
        }

        fn run(&self, _: usize, _: &(dyn Fn(usize) + Sync)) {}
    }
    std::vec![
        ("2", Threads::of(&TWO)),
        ("3", Threads::of(&THREE)),
        ("8", Threads::of(&EIGHT)),
        ("odd", Threads::of(&Odd)),
        ("idle", Threads::of(&Idle)),
    ]
}

/// Arrays with values off the lattice in places, long enough for several threads, of odd lengths.
fn long_arrays<T: Float>(phase: f64) -> Vec<(Vec<usize>, Vec<T>)> {
    let shapes: [&[usize]; 5] =
        [&[8 * CHUNK + 1], &[71_993], &[163, 401], &[7, 93, 101], &[3, 90, 131]];
    let field = |shape: &[usize]| -> Vec<T> {
        let row = *shape.last().unwrap();
        let n = shape.iter().product();
        let value = |i: usize| {
            let (x, y) = ((i % row) as f64, (i / row) as f64);
            let smooth = (x * 0.05 + phase).sin() + (y * 0.03 + phase).cos();
            match i / CHUNK {
                // The fourth chunk has exceptions alone, and the sixth has noise.
                3 => f64::NAN,
                5 => smooth * (i as f64 * 77.7).sin() * 1e3,
                8 if i.is_multiple_of(7) => f64::INFINITY,
                _ => smooth + 0.01 * (i as f64 * 0.9).cos(),
            }
        };
        (0..n).map(|i| T::from_f64(value(i))).collect()
    };
    shapes.iter().map(|shape| (shape.to_vec(), field(shape))).collect()
}

/// Runs every operation with two arrays. Returns all frames and all decoded bits.
fn all<T: Float>(
    codec: &dyn Codec<T>,
    [x, y]: [&[T]; 2],
) -> (Vec<Vec<u8>>, Vec<Vec<<T as OnLattice>::Bits>>) {
    let n = x.len();
    let larger = larger::<T>;
    let frame = |write: &dyn Fn(&mut [u8]) -> Result<Written, CodecError>| {
        written(codec, n, |_, dst| write(dst)).0
    };
    let mut frames = std::vec![frame(&|dst| codec.encode(x, dst)), encode(codec, y)];
    frames.push(frame(&|dst| codec.encode_partial(y, dst)));
    let (a, b) = (frames[0].clone(), frames[1].clone());
    let give = |start: usize, out: &mut [T]| {
        out.copy_from_slice(&y[start..start + out.len()]);
        Ok(())
    };
    frames.push(frame(&|dst| codec.encode_paced(Source::Shared(n, &give), dst, &())));
    frames.push(frame(&|dst| codec.recode(&a, n, dst)));
    let mut values = Vec::new();
    for op in [Op::Sum, Op::Min, Op::Prod, Op::User(&larger)] {
        frames.push(frame(&|dst| codec.fold(&op, &a, y, dst)));
        frames.push(frame(&|dst| codec.refold(&op, &a, y, dst)));
        let homomorphic = codec.homomorphic().unwrap();
        frames.push(frame(&|dst| homomorphic.combine(&op, &a, &b, dst)));
        let mut output = std::vec![T::ONE; n];
        frames.push(
            written(codec, n, |codec, dst| {
                let apart = Values::Apart { local: y, output: &mut output };
                codec.fold_store(&op, &a, apart, 2, dst)
            })
            .0,
        );
        values.push(bits(&output));
        let mut acc = y.to_vec();
        codec.reduce(&op, &a, &mut acc).unwrap();
        values.push(bits(&acc));
    }
    values.push(bits(&decode(codec, &a, n, 1)));
    for start in [CHUNK, 7 * CHUNK] {
        let mut part = std::vec![T::ONE; n - start - 5];
        codec.decode_from(&a, start, 1, &mut part).unwrap();
        values.push(bits(&part));
    }
    (frames, values)
}

/// Compares on every `nth` of the arrays.
fn threads_change_no_bit<T: Float>(nth: usize, bounds: &[f64]) {
    let arrays = long_arrays::<T>(0.0).into_iter().zip(long_arrays::<T>(1.0));
    for ((shape, x), (_, y)) in arrays.step_by(nth) {
        for (id, &bound) in OURS.iter().flat_map(|&id| bounds.iter().map(move |bound| (id, bound)))
        {
            let params = params::<T>(bound, &shape).for_sums_of(2);
            let on = |threads| {
                let codec = id.instance::<T>(&params.on(threads));
                all(codec.as_dyn(), [&x, &y])
            };
            let one = on(Threads::ONE);
            for (pool, threads) in pools() {
                assert!(on(threads) == one, "{} of {shape:?} within {bound} on {pool}", id.name());
            }
        }
    }
}

#[test]
fn threads_change_no_bit_of_any_result() {
    threads_change_no_bit::<f32>(2, &[1e-3]);
    threads_change_no_bit::<f64>(3, &[1e-3]);
}

mod long {
    use super::*;

    #[test]
    fn threads_change_no_bit_of_any_result() {
        threads_change_no_bit::<f32>(1, &[1e-2, 1e-4, 0.0]);
        threads_change_no_bit::<f64>(1, &[1e-2, 1e-4, 0.0]);
    }
}

#[test]
fn several_threads_share_every_operation() {
    use std::collections::HashSet;
    use std::sync::Mutex;
    use std::thread;
    let (_, x) = long_arrays::<f32>(0.0).swap_remove(1);
    for id in OURS {
        let codec = id.instance::<f32>(&params::<f32>(1e-3, &[]).on(Threads::of(&TWO)));
        let codec = codec.as_dyn();
        assert_eq!((codec.n_threads(8 * CHUNK), codec.n_threads(x.len())), (1, 2));
        let seen = Mutex::new(HashSet::new());
        let note = || {
            let mut seen = seen.lock().unwrap();
            seen.insert(thread::current().id());
            if seen.len() < 2 {
                drop(seen);
                // Leave the other thread the time to begin.
                thread::sleep(std::time::Duration::from_millis(2));
            }
        };
        let give = |start: usize, out: &mut [f32]| {
            note();
            out.copy_from_slice(&x[start..start + out.len()]);
            Ok(())
        };
        let (bytes, _) = written(codec, x.len(), |codec, dst| {
            codec.encode_paced(Source::Shared(x.len(), &give), dst, &())
        });
        assert_eq!(seen.lock().unwrap().len(), 2, "encode");
        seen.lock().unwrap().clear();
        let op = |a: f32, b: f32| {
            if a.to_bits().is_multiple_of(4096) {
                note();
            }
            larger(a, b)
        };
        codec.reduce(&Op::User(&op), &bytes, &mut x.clone()).unwrap();
        assert_eq!(seen.lock().unwrap().len(), 2, "reduce");
    }
}

#[test]
fn a_damaged_chunk_is_the_same_error_on_any_threads() {
    let (shape, x) = long_arrays::<f32>(0.0).swap_remove(3);
    let n = x.len();
    for id in OURS {
        let on =
            |threads| id.instance::<f32>(&params::<f32>(1e-3, &shape).for_sums_of(2).on(threads));
        let sound = encode(on(Threads::ONE).as_dyn(), &x);
        let n_chunks = n.div_ceil(CHUNK);
        for (chunk, way) in (0..n_chunks).flat_map(|chunk| [0, 1].map(|way| (chunk, way))) {
            let mut src = sound.clone();
            let at = HEADER_BYTES + INDEX_ENTRY * chunk;
            if way == 0 && chunk + 1 < n_chunks {
                // The chunk ends before it begins, or beyond the payload.
                let end = if chunk == 0 { [0xff; INDEX_ENTRY] } else { [0; INDEX_ENTRY] };
                src[at..at + INDEX_ENTRY].copy_from_slice(&end);
            } else {
                // A tag that no writer writes.
                let entry = src[at - INDEX_ENTRY..at].try_into().unwrap();
                let start = if chunk == 0 { 0 } else { u32::from_le_bytes(entry) as usize };
                src[HEADER_BYTES + INDEX_ENTRY * n_chunks + start] = 16 | 2;
            }
            let outcomes = |threads| {
                let codec = on(threads);
                let codec = codec.as_dyn();
                let mut dst = std::vec![0; codec.max_encoded_len(n).unwrap()];
                let combine = codec.homomorphic().unwrap();
                (
                    codec.decode(&src, 1, &mut std::vec![0.0; n]),
                    codec.fold(&Op::Sum, &src, &x, &mut dst).map(|written| written.n_bytes),
                    combine
                        .combine(&Op::Max, &sound, &src, &mut dst)
                        .map(|written| written.n_bytes),
                    codec.recode(&src, n, &mut dst).map(|written| written.n_bytes),
                )
            };
            let one = outcomes(Threads::ONE);
            assert!(one.0.is_err() && one.1.is_err(), "{} chunk {chunk}", id.name());
            for (pool, threads) in pools() {
                assert_eq!(outcomes(threads), one, "{} chunk {chunk} on {pool}", id.name());
            }
        }
    }
}

/// A pool that keeps panics to itself.
struct Silent;

impl Workers for Silent {
    fn n_threads(&self) -> usize {
        2
    }

    fn run(&self, n_tasks: usize, task: &(dyn Fn(usize) + Sync)) {
        let _ = catch_unwind(AssertUnwindSafe(|| Scoped(2).run(n_tasks, task)));
    }
}

#[test]
fn a_panic_in_a_chunk_reaches_the_caller() {
    let (_, x) = long_arrays::<f32>(0.0).swap_remove(1);
    let pools = [Threads::of(&TWO), Threads::of(&EIGHT), Threads::of(&Silent)];
    for (id, threads) in OURS.iter().flat_map(|&id| pools.map(|threads| (id, threads))) {
        let codec = id.instance::<f32>(&params::<f32>(1e-3, &[]).on(threads));
        let codec = codec.as_dyn();
        for chunk in [0, 2, 9] {
            let give = |start: usize, out: &mut [f32]| {
                assert!(start != chunk * CHUNK, "on purpose");
                out.copy_from_slice(&x[start..start + out.len()]);
                Ok(())
            };
            let mut dst = std::vec![0; codec.max_encoded_len(x.len()).unwrap()];
            let source = Source::Shared(x.len(), &give);
            let encode = AssertUnwindSafe(|| codec.encode_paced(source, &mut dst, &()).is_ok());
            assert!(catch_unwind(encode).is_err(), "{} chunk {chunk}", id.name());
        }
        // The thread is free for the next call.
        assert_eq!(decode(codec, &encode(codec, &x), x.len(), 1).len(), x.len());
    }
}

/// A thread of rayon's that waits within a task may begin another one.
#[cfg(feature = "rayon")]
#[test]
fn operations_may_use_the_pool_that_calls_them() {
    let (_, x) = long_arrays::<f32>(0.0).swap_remove(1);
    let pool = rayon::ThreadPoolBuilder::new().num_threads(2).build().unwrap();
    let params = params::<f32>(1e-3, &[]).for_sums_of(2);
    for id in OURS {
        let busy = |a: f32, b: f32| {
            if a.to_bits().is_multiple_of(64) {
                rayon::join(std::thread::yield_now, std::thread::yield_now);
            }
            larger(a, b)
        };
        let run = |threads| {
            let codec = id.instance::<f32>(&params.on(threads));
            let bytes = encode(codec.as_dyn(), &x);
            written(codec.as_dyn(), x.len(), |codec, dst| {
                codec.refold(&Op::User(&busy), &bytes, &x, dst)
            })
        };
        let many = pool.install(|| run(Threads::rayon(0)));
        assert!(many == run(Threads::ONE), "{}", id.name());
    }
}
