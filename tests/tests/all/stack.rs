//! A call takes no more stack than the documentation of `foldwire` says.
//!
//! A stack overflow ends the process, so each check runs in a child process: this program again,
//! with the stack size of its ranks in the environment. The child runs every collective with every
//! schedule, pipeline, codec and operation. Ranks fail, and the survivors shrink. The codecs read
//! and write unaligned bytes. To find the smallest sufficient stack, run a child by hand:
//! `FOLDWIRE_STACK=f64:80000 cargo test -p foldwire-tests --test all stack::a_call`. With `empty`
//! as the element type, a child takes 64 KiB and nothing else, which shows the need of the thread
//! itself.

use foldwire::codec::{Codec, CodecExt, CodecId, CodecParams, FzLight, Raw};
use foldwire::{
    Bound, Communicator, Error, Float, Op, Operation, Plan, Quantum, Rank, Report, Shrink, bf16,
    f16,
};
use foldwire::{kernel::Level, pipeline, schedule};
use foldwire_threads::{Endpoint, World};
use std::hint::black_box;
use std::process::Command;
use std::time::Duration;
use std::{env, thread};

/// Gives a child its element type and the bytes of a rank's stack: `f32:65536`.
const VARIABLE: &str = "FOLDWIRE_STACK";
/// Stack that a thread uses before the ranks' code begins. Without full optimization, it also
/// covers the larger stack frames of unoptimized code.
const ALLOWANCE: usize = if cfg!(debug_assertions) { 24 * 1024 } else { 8 * 1024 };

const SIZE: usize = 3;
/// More than a chunk, and not a multiple of one.
const COUNT: usize = 5001;
const ROOT: Rank = Rank(1);

type Comm = Communicator<Endpoint>;
type CallFn<T> = fn(&mut Comm, &mut [T], &mut [T], Op<'_, T>, &Plan) -> Result<Report, Error>;

/// Returns every reduction of a communicator.
fn reductions<T: Float>() -> [CallFn<T>; 6] {
    [
        |comm, a, _, op, plan| comm.all_reduce(a, op, plan),
        |comm, a, b, op, plan| comm.all_reduce_into(a, b, op, plan),
        |comm, a, b, op, plan| {
            let n = comm.share(COUNT).len();
            comm.reduce_scatter(a, &mut b[..n], op, plan)
        },
        |comm, a, _, op, plan| comm.reduce_scatter_in_place(a, op, plan),
        |comm, a, b, op, plan| comm.reduce(a, b, op, ROOT, plan),
        |comm, a, _, op, plan| comm.reduce_in_place(a, op, ROOT, plan),
    ]
}

/// Returns every call that only moves values.
fn moves<T: Float>() -> [CallFn<T>; 5] {
    [
        |comm, a, b, _, plan| {
            let share = comm.share(COUNT);
            comm.all_gather(&a[share], b, plan)
        },
        |comm, a, _, _, plan| comm.all_gather_in_place(a, plan),
        |comm, a, _, _, plan| comm.broadcast(a, ROOT, plan),
        |comm, a, b, _, plan| {
            let n = comm.share(COUNT).len();
            comm.scatter(COUNT, a, &mut b[..n], ROOT, plan)
        },
        |comm, a, b, _, plan| {
            let share = comm.share(COUNT);
            comm.gather(COUNT, &a[share], b, ROOT, plan)
        },
    ]
}

fn larger<T: Float>(a: T, b: T) -> T {
    if a > b { a } else { b }
}

fn ops<T: Float>() -> [Op<'static, T>; 6] {
    [Op::Sum, Op::Avg, Op::Min, Op::Max, Op::Prod, Op::User(&larger)]
}

/// Returns plans with every schedule and pipeline and these codecs. The bound needs a scan, which
/// adds a call within the call.
fn plans(codecs: impl Fn(CodecId) -> bool) -> impl Iterator<Item = Plan> {
    let plan = |schedule, pipeline, codec| {
        let plan = Plan::foldwire(Bound::Relative(1e-3)).with_schedule(schedule);
        plan.with_pipeline(pipeline).with_codec(codec)
    };
    // A codec's stack does not depend on the pipeline, except that one pipeline encodes again.
    let of = |codec: CodecId| match codec {
        CodecId::Raw | CodecId::FzLight | CodecId::Dense | CodecId::FzNd => &pipeline::ALL[..],
        _ => &[pipeline::PER_HOP],
    };
    let codecs = CodecId::ALL.iter().filter(move |codec| codecs(**codec));
    let pairs = codecs.flat_map(move |&c| of(c).iter().map(move |&p| (p, c)));
    pairs.flat_map(move |(p, c)| schedule::ALL.iter().map(move |&s| plan(s, p, c)))
}

fn fill<T: Float>(values: &mut [T], rank: Rank) {
    for (i, x) in values.iter_mut().enumerate() {
        *x = T::from_f64(1.0 + ((i * 37 + rank.index()) % 101) as f64 / 500.0);
    }
}

/// Makes all calls of one rank. Buffers and communicator are on the heap: the caller of `foldwire`
/// places them, so they do not count as a call's stack.
fn all_calls<T: Float>(comm: &mut Comm, codecs: fn(CodecId) -> bool) {
    let (mut a, mut b) = (vec![T::ZERO; COUNT], vec![T::ZERO; COUNT]);
    for plan in plans(codecs) {
        let reductions = reductions().into_iter().flat_map(|call| ops().map(|op| (call, op)));
        let moves = moves().into_iter().map(|call| (call, Op::Sum));
        for (call, op) in reductions.chain(moves) {
            fill(&mut a, comm.rank());
            match call(comm, &mut a, &mut b, op, &plan) {
                Ok(_) | Err(Error::Unsupported { .. }) => {}
                Err(error) => panic!("{op:?}, {plan:?}: {error}"),
            }
        }
    }
}

/// The last rank leaves. The other ranks detect it and continue without it.
fn shrinks<T: Float>(mut comm: Box<Comm>) {
    if comm.rank().index() == SIZE - 1 {
        return;
    }
    let (mut values, plan) = (vec![T::ONE; COUNT], Plan::foldwire(Bound::Absolute(1e-3)));
    let failed = comm.all_reduce(&mut values, Op::Sum, &plan);
    assert!(failed.is_err(), "a rank is missing");
    let mut comm = comm.shrink(Duration::from_secs(100)).expect("two ranks are left");
    assert_eq!(comm.size(), SIZE - 1);
    comm.all_reduce(&mut values, Op::Prod, &plan).expect("both are there");
}

/// Calls every function of a codec, on unaligned bytes.
fn codes<T: Float>(codec: &dyn Codec<T>) {
    let mut values = vec![T::ZERO; COUNT];
    fill(&mut values, ROOT);
    let capacity = codec.max_encoded_len(COUNT).expect("short enough");
    let [mut left, mut right, mut out] = [(); 3].map(|()| vec![0u64; capacity / 8 + 2]);
    let [left, right, out] =
        [&mut left, &mut right, &mut out].map(|b| &mut bytemuck::cast_slice_mut::<_, u8>(b)[1..]);
    let n_bytes = codec.encode(&values, left).expect("there is room").n_bytes;
    right[..n_bytes].copy_from_slice(&left[..n_bytes]);
    let right = &right[..n_bytes];
    codec.decode(right, 1, &mut values).expect("valid");
    // A part of a chunk.
    codec.decode_from(right, 0, 1, &mut values[..100]).expect("valid");
    codec.recode(right, COUNT, out).expect("there is room");
    for op in ops() {
        codec.reduce(&op, right, &mut values).expect("valid");
        fill(&mut values, ROOT);
        codec.fold(&op, right, &values, out).expect("there is room");
        codec.refold(&op, right, &values, out).expect("there is room");
        let homomorphic = codec.homomorphic().expect("both codecs are homomorphic");
        homomorphic.combine(&op, &left[..n_bytes], right, out).expect("there is room");
        if let Some(outcome) = homomorphic.fold_in_place(&op, &mut left[..n_bytes], &values) {
            outcome.expect("valid");
            left[..n_bytes].copy_from_slice(right);
        }
    }
}

/// Codecs that keep codes of earlier chunks.
const PREDICTED: [CodecId; 2] = [CodecId::Dense, CodecId::FzNd];

fn rank<T: Float>(mut comm: Box<Comm>) {
    codes::<T>(&Raw::new());
    let quantum = Quantum::new::<T>(1e-3).expect("a step");
    for level in Level::available() {
        codes::<T>(&FzLight::with_level(quantum, SIZE as u32, level));
        comm.config_mut().level = level;
        all_calls::<T>(&mut comm, |codec| !PREDICTED.contains(&codec));
    }
    shrinks::<T>(comm);
}

fn rank_with_dense<T: Float>(mut comm: Box<Comm>) {
    let quantum = Quantum::new::<T>(1e-3).expect("a step");
    for level in Level::available() {
        let params = CodecParams::new(quantum).for_sums_of(SIZE as u32).at(level);
        for codec in PREDICTED {
            codes::<T>(codec.instance::<T>(&params).as_dyn());
        }
        comm.config_mut().level = level;
        // The other codec takes the same stack in calls.
        all_calls::<T>(&mut comm, |codec| codec == CodecId::Dense);
    }
}

/// Runs `body` for each rank on a stack of `n_bytes`.
fn on_stacks(n_bytes: usize, body: fn(Box<Comm>)) {
    let comms = World::new(SIZE).frame_bytes(50_000).communicators();
    let threads: Vec<_> = comms
        .into_iter()
        .map(Box::new)
        .map(|comm| thread::Builder::new().stack_size(n_bytes).spawn(move || body(comm)))
        .collect();
    for thread in threads {
        thread.expect("a thread").join().expect("no panic");
    }
}

/// Takes 64 KiB and nothing else.
fn empty(_: Box<Comm>) {
    black_box(&mut [1u8; 64 * 1024]);
}

fn child(task: &str) {
    let (element, n_bytes) = task.split_once(':').expect("element:bytes");
    let n_bytes = n_bytes.parse().expect("a number of bytes");
    match element {
        "f32" => on_stacks(n_bytes, rank::<f32>),
        "f64" => on_stacks(n_bytes, rank::<f64>),
        "f16" => on_stacks(n_bytes, rank::<f16>),
        "bf16" => on_stacks(n_bytes, rank::<bf16>),
        "dense-f32" => on_stacks(n_bytes, rank_with_dense::<f32>),
        "dense-f64" => on_stacks(n_bytes, rank_with_dense::<f64>),
        _ => on_stacks(n_bytes, empty),
    }
}

/// Slow tests. When one fails, a faster test usually fails too.
mod long {
    use super::*;

    #[test]
    fn a_call_takes_no_more_stack_than_is_said() {
        if let Ok(task) = env::var(VARIABLE) {
            return child(&task);
        }
        for (element, need) in [
            ("f32", 56),
            ("f64", 88),
            ("f16", 56),
            ("bf16", 56),
            ("dense-f32", 384),
            ("dense-f64", 720),
        ]
        .map(|(element, kib)| (element, kib * 1024))
        {
            let this = env::current_exe().expect("the path of this program");
            let child = Command::new(this)
                .args(["--exact", "stack::long::a_call_takes_no_more_stack_than_is_said"])
                .env(VARIABLE, format!("{element}:{}", need + ALLOWANCE))
                .output()
                .expect("this program runs again");
            let said = String::from_utf8_lossy(&child.stderr);
            assert!(child.status.success(), "{element} in {need} bytes: {}: {said}", child.status);
        }
    }
}

#[test]
fn communicators_operations_and_shrinks_are_no_larger_than_is_said() {
    let transport = size_of::<Endpoint>();
    assert!(size_of::<Comm>() - transport <= 4096, "{}", size_of::<Comm>());
    let operations =
        [size_of::<Operation<'_, Endpoint, f32>>(), size_of::<Operation<'_, Endpoint, f64>>()];
    assert!(operations.iter().all(|size| *size <= 512), "{operations:?}");
    assert!(size_of::<Shrink<Endpoint>>() - transport <= 8192, "{}", size_of::<Shrink<Endpoint>>());
}
