//! Calls on a simulated device's memory give the bits of the same calls on slices.

use foldwire::codec::CodecId;
use foldwire::layout::{Shares, Window, share};
use foldwire::op::OpCode;
use foldwire::{
    Bound, Call, Collective, Communicator, DType, Element, Error, Float, Op, Plan, Rank,
};
use foldwire::{bf16, f16, pipeline};
use foldwire_cuda::{Cuda, DeviceBuffer, DeviceError, DevicePtr, Driver, Workspace};
use foldwire_cuda_host::{Faults, SimulatedDevice};
use foldwire_threads::{Endpoint, World};
use std::io::{self, Write};
use std::sync::{Arc, LazyLock};

/// A call, as all ranks make it.
#[derive(Clone, Copy, Debug)]
struct Case {
    collective: Collective,
    window: Window,
    op: OpCode,
    plan: Plan,
    count: usize,
    root: Rank,
}

impl Case {
    fn op<T: Element>(&self) -> Op<'static, T> {
        match self.op {
            OpCode::Avg => Op::Avg,
            OpCode::Min => Op::Min,
            OpCode::Max => Op::Max,
            OpCode::Prod => Op::Prod,
            _ => Op::Sum,
        }
    }

    /// Lengths of a rank's two buffers.
    fn lengths(&self, size: usize, rank: Rank) -> [usize; 2] {
        use Collective::{AllGather, Gather, Reduce, ReduceScatter, Scatter};
        let (n, own) = (self.count, share(self.count, size, rank.index()).len());
        let at_root = |n| if rank == self.root { n } else { 0 };
        match (self.window, self.collective) {
            (Window::Whole, _) => [0, n],
            (_, ReduceScatter) => [n, own],
            (_, AllGather) => [own, n],
            (_, Gather) => [own, at_root(n)],
            (_, Scatter) => [at_root(n), own],
            (_, Reduce) => [n, at_root(n)],
            _ => [n, n],
        }
    }

    fn on_host<T: Element>(
        &self,
        comm: &mut Communicator<Endpoint>,
        [send, recv]: &mut [Vec<T>; 2],
    ) -> Result<(), Error> {
        let shares = Shares::Even(self.count);
        let call = Call::of(self.collective, shares, self.window, &send[..], &mut recv[..]);
        comm.run(call.with_op(self.op()).with_root(self.root), &self.plan).map(drop)
    }

    fn on_device<T: Element>(
        &self,
        comm: &mut Communicator<Endpoint>,
        device: &Arc<dyn Driver>,
        [send, recv]: &mut [Vec<T>; 2],
    ) -> Result<(), Error> {
        let mut workspace = Workspace::new(device, comm).expect("there is memory");
        let lend = |values: &[T]| DeviceBuffer::from_values(device, values);
        let (from, mut to) = (lend(send).expect("a buffer"), lend(recv).expect("a buffer"));
        let shares = Shares::Even(self.count);
        let call = Call::of(self.collective, shares, self.window, from.input(), to.output());
        let call = call.with_op(self.op()).with_root(self.root);
        comm.run_on(&mut workspace, call, &self.plan)?;
        *recv = to.to_vec(device).expect("the device works");
        Ok(())
    }
}

/// Returns values. Some are no numbers, and some are off every lattice.
fn values<T: Float>(rank: usize, n: usize) -> Vec<T> {
    let mut values: Vec<T> =
        (0..n).map(|i| T::from_f64(((i + 37 * rank) as f64 * 0.01).sin())).collect();
    if rank == 1 && n > 40 {
        values[7] = T::from_f64(f64::NAN);
        values[n / 2] = T::from_f64(3e38);
        values[n - 1] = T::from_f64(f64::NEG_INFINITY);
    }
    values
}

fn bits<T: Element>(values: &[T]) -> &[u8] {
    bytemuck::cast_slice(values)
}

/// The machine's GPU, if it has one.
static GPU: LazyLock<Option<Arc<dyn Driver>>> = LazyLock::new(|| match Cuda::open(0) {
    Ok(gpu) => {
        let _ = writeln!(io::stdout(), "calls run on {} as well", gpu.description());
        Some(gpu)
    }
    Err(error) => {
        // Without `println!`, so that the line is seen although the test passes.
        let _ = writeln!(io::stdout(), "\nskipped: calls on a GPU: {error}");
        None
    }
});

/// Runs a case on slices, on devices, and on devices at every second rank.
fn check<T: Float>(case: Case, size: usize) {
    check_with::<T>(case, size, values);
}

/// Does the same with values of a rank that `values` makes.
fn check_with<T: Element>(case: Case, size: usize, values: fn(usize, usize) -> Vec<T>) {
    let simulated = SimulatedDevice::new();
    check_on::<T>(case, size, &(simulated.clone() as _), values);
    assert_eq!(simulated.n_live(), 0, "memory, streams and events are freed");
    if let Some(gpu) = &*GPU {
        check_on::<T>(case, size, gpu, values);
    }
}

fn check_on<T: Element>(
    case: Case,
    size: usize,
    device: &Arc<dyn Driver>,
    values: fn(usize, usize) -> Vec<T>,
) {
    // Short frames make several segments and lanes.
    let world = || World::new(size).frame_bytes(24 << 10);
    let run = |on_device: &(dyn Fn(usize) -> bool + Sync)| {
        world().run(|mut comm| {
            let rank = comm.rank();
            let [n_send, n_recv] = case.lengths(size, rank);
            let mut buffers = [n_send, n_recv].map(|n| values(rank.index(), n));
            let done = if on_device(rank.index()) {
                case.on_device(&mut comm, device, &mut buffers)
            } else {
                case.on_host(&mut comm, &mut buffers)
            };
            let [_, recv] = buffers;
            done.map(|()| recv)
        })
    };
    let expected = run(&|_| false);
    let all: [&(dyn Fn(usize) -> bool + Sync); 2] = [&|_| true, &|rank| rank % 2 == 1];
    for on_device in all {
        for (rank, (found, expected)) in run(on_device).iter().zip(&expected).enumerate() {
            let context = format!("{case:?}, rank {rank} of {size}, {}", T::DTYPE);
            match (found, expected) {
                (Ok(found), Ok(expected)) => {
                    assert!(bits(found) == bits(expected), "{context}");
                }
                _ => assert_eq!(found.as_ref().err(), expected.as_ref().err(), "{context}"),
            }
        }
    }
}

/// Plans that use all operations of a device. The first two use most.
fn plans() -> [Plan; 5] {
    let bound = Bound::Absolute(1e-3);
    [
        Plan::foldwire(bound),
        Plan::raw(),
        Plan::raw().compressed(pipeline::HOMOMORPHIC, bound),
        Plan::raw().compressed(pipeline::COMPRESS_ONCE, bound),
        Plan::raw().compressed(pipeline::PER_HOP, bound),
    ]
}

fn for_each_call(size: usize, count: usize, plans: &[Plan], mut check: impl FnMut(Case)) {
    for collective in Collective::ALL {
        for &plan in plans {
            for window in [Window::Whole, Window::Own] {
                let is_in_place = matches!(window, Window::Whole);
                let refused = match collective {
                    Collective::Broadcast => !is_in_place,
                    Collective::Scatter | Collective::Gather => is_in_place,
                    _ => false,
                };
                if refused {
                    continue;
                }
                // An all-to-all in place has equal shares.
                let count = if is_in_place { count / size * size } else { count };
                let (op, root) = (OpCode::Sum, Rank::new(size - 1));
                check(Case { collective, window, op, plan, count, root });
            }
        }
    }
}

#[test]
fn every_collective_gives_the_bits_of_the_host() {
    for (size, count) in [(2, 5), (3, 9000)] {
        for_each_call(size, count, &plans()[..2], |case| check::<f32>(case, size));
    }
}

/// Runs a case of one type on ranks of this number.
type Check = fn(Case, usize);

/// Integers of all sizes, made by wrapping.
macro_rules! integers {
    ($($T:ident),*) => {[$((
        |case, size| check_with::<$T>(case, size, |rank, n| {
            (0..n).map(|i| (i as $T).wrapping_mul(0x9e37_79b9_7f4a_7c15_u64 as $T) ^ rank as $T)
                .collect()
        }),
        $T::DTYPE,
    )),*]};
}

#[test]
fn integers_are_exact_on_a_device() {
    let checks: [(Check, DType); 8] = integers!(i8, u8, i16, u16, i32, u32, i64, u64);
    for (check, dtype) in checks {
        for op in [OpCode::Sum, OpCode::Min, OpCode::Max, OpCode::Prod] {
            let (collective, window, root) = (Collective::AllReduce, Window::Whole, Rank(0));
            check(Case { collective, window, op, plan: Plan::raw(), count: 5001, root }, 3);
        }
        if matches!(dtype, DType::U8 | DType::I64) {
            for_each_call(3, 3001, &[Plan::raw()], |case| check(case, 3));
        }
    }
}

mod long {
    use super::*;

    #[test]
    fn every_collective_gives_the_bits_of_the_host_with_any_plan() {
        for (size, count) in [(1, 100), (3, 20_000), (5, 3)] {
            for_each_call(size, count, &plans(), |case| check::<f32>(case, size));
        }
    }

    #[test]
    fn every_type_and_operation_gives_the_bits_of_the_host_with_any_plan() {
        every_type_and_operation(&plans());
    }
}

#[test]
fn every_type_and_operation_gives_the_bits_of_the_host() {
    every_type_and_operation(&plans()[..2]);
}

fn every_type_and_operation(plans: &[Plan]) {
    for op in [OpCode::Avg, OpCode::Min, OpCode::Max, OpCode::Prod] {
        for &plan in plans {
            let (collective, window, root) = (Collective::AllReduce, Window::Whole, Rank(0));
            let plan = if op == OpCode::Prod { Plan::raw() } else { plan };
            let case = Case { collective, window, op, plan, count: 5000, root };
            check::<f32>(case, 3);
            check::<f64>(case, 2);
            check::<f16>(case, 2);
            check::<bf16>(case, 3);
        }
    }
}

#[test]
fn a_bound_relative_to_the_values_is_found_on_the_device() {
    let n = 30_000;
    let value = |rank: usize, i: usize| ((i + rank) as f64 * 1e-3).sin();
    for bound in [Bound::Relative(1e-3), Bound::Psnr(60.0)] {
        for plan in [Plan::foldwire(bound), Plan::auto(bound)] {
            let (collective, window, root) = (Collective::AllReduce, Window::Own, Rank(0));
            let case = Case { collective, window, op: OpCode::Sum, plan, count: n, root };
            let errors = World::new(3).run(|mut comm| {
                let device: Arc<dyn Driver> = SimulatedDevice::new();
                let own = || (0..n).map(|i| value(comm.rank().index(), i) as f32).collect();
                let mut buffers = [own(), own()];
                case.on_device(&mut comm, &device, &mut buffers).expect("the call works");
                let exact = |i: usize| (0..3).map(|rank| value(rank, i)).sum::<f64>();
                let errors = (0..n).map(|i| (f64::from(buffers[1][i]) - exact(i)).abs());
                errors.fold(0.0, f64::max)
            });
            // Three operands, each within a thousandth of the range 2, or within 60 dB.
            let is_kept = errors.iter().all(|error| *error < 3.0 * 4e-3);
            assert!(is_kept && errors[0] > 1e-4, "{bound}: {errors:?}");
        }
    }
}

/// A device's rank follows an automatic plan in its own way, so other ranks' plans differ.
#[test]
fn ranks_with_and_without_a_device_disagree_on_an_automatic_plan() {
    let device: Arc<dyn Driver> = SimulatedDevice::new();
    for bound in [Bound::Relative(1e-3), Bound::Absolute(1e-3)] {
        let (collective, window, root) = (Collective::AllReduce, Window::Whole, Rank(0));
        let (op, plan, count) = (OpCode::Sum, Plan::auto(bound), 300_000);
        let case = Case { collective, window, op, plan, count, root };
        let results = World::new(2).link_rate(1e8).run(|mut comm| {
            let mut buffers = [Vec::new(), values::<f32>(0, count)];
            match comm.rank() {
                Rank(0) => case.on_host(&mut comm, &mut buffers),
                _ => case.on_device(&mut comm, &device, &mut buffers),
            }
        });
        let is_typed = |result: &Result<(), Error>| {
            matches!(result, Err(Error::Mismatch { .. } | Error::Aborted { .. }))
        };
        assert!(results.iter().all(is_typed), "{bound}: {results:?}");
    }
}

#[test]
fn what_a_device_cannot_do_is_refused_before_anything_is_sent() {
    let device: Arc<dyn Driver> = SimulatedDevice::new();
    World::new(1).run(|mut comm| {
        let mut workspace = Workspace::new(&device, &comm).expect("there is memory");
        let mut x = DeviceBuffer::from_values(&device, &[1.0_f32; 100]).expect("there is memory");
        let codec = CodecId::Dense;
        let dense = Plan::foldwire(Bound::Absolute(1e-3)).with_codec(codec);
        let done = comm.run_on(&mut workspace, Call::all_reduce(x.output(), Op::Sum), &dense);
        let (dtype, op) = (f32::DTYPE, OpCode::Sum);
        assert_eq!(done, Err(Error::NotOnDevice { codec, dtype, op }));
        let twice = |a, b| 2.0 * (a + b);
        let call = Call::all_reduce(x.output(), Op::User(&twice));
        let done = comm.run_on(&mut workspace, call, &Plan::raw());
        assert!(matches!(done, Err(Error::NotOnDevice { op: OpCode::User, .. })), "{done:?}");
        let call = Call::all_reduce(x.output(), Op::Sum);
        comm.run_on(&mut workspace, call, &Plan::raw()).expect("the communicator stays usable");
    });
}

/// A workspace that has made no call yet works without memory, because the device was checked.
#[test]
fn a_call_allocates_nothing_on_a_device_that_was_checked() {
    let devices = [(); 3].map(|()| SimulatedDevice::new());
    World::new(3).run(|mut comm| {
        let rank = comm.rank();
        let simulated = &devices[rank.index()];
        let device: Arc<dyn Driver> = simulated.clone();
        let plans = [Plan::raw(), Plan::foldwire(Bound::Relative(1e-3))];
        let [mut first, mut second] =
            [(); 2].map(|()| Workspace::new(&device, &comm).expect("there is memory"));
        let buffer = |n| DeviceBuffer::from_values(&device, &values::<f32>(0, n)).expect("memory");
        let mut x = buffer(9000);
        for plan in &plans {
            comm.run_on(&mut first, Call::all_reduce(x.output(), Op::Sum), plan)
                .expect("the call works");
        }
        // A broadcast has no buffer of its own for results.
        let others = Collective::ALL.iter().filter(|it| **it != Collective::Broadcast);
        for &collective in others {
            for plan in plans {
                let (window, op, root) = (Window::Own, OpCode::Sum, Rank(0));
                let case = Case { collective, window, op, plan, count: 9000, root };
                let [n_send, n_recv] = case.lengths(3, rank);
                let (from, mut to) = (buffer(n_send), buffer(n_recv));
                simulated.plant(Faults { allocations: Some(0), ..Faults::default() });
                let shares = Shares::Even(9000);
                let call = Call::of(collective, shares, window, from.input(), to.output());
                let call = call.with_op(Op::Sum).with_root(root);
                comm.run_on(&mut second, call, &plan).expect("the call needs no memory");
                simulated.plant(Faults::default());
            }
        }
    });
}

/// The move of the result to the front of the buffer is one copy, which may be longer than a frame.
/// A move by a few values overlaps itself.
#[test]
fn results_at_the_front_give_the_bits_of_the_host() {
    let device: Arc<dyn Driver> = SimulatedDevice::new();
    let plan = Plan::foldwire(Bound::Absolute(1e-3));
    for counts in [[20_000; 3], [40, 30_000, 29_960], [0, 7, 50_000]] {
        let n = counts.iter().sum();
        World::new(3).frame_bytes(24 << 10).run(|mut comm| {
            let mut host = values::<f32>(comm.rank().index(), n);
            let mut workspace = Workspace::new(&device, &comm).expect("there is memory");
            let mut x = DeviceBuffer::from_values(&device, &host).expect("there is memory");
            let counts = &counts[..];
            let call = Call::reduce_scatter_v_to_front(x.output(), counts, Op::Sum);
            comm.run_on(&mut workspace, call, &plan).expect("the call works");
            comm.reduce_scatter_v_to_front(&mut host, counts, Op::Sum, &plan).expect("it works");
            let n_own = counts[comm.rank().index()];
            let found = x.front(&device, n_own).expect("the device works");
            assert!(bits(&found) == bits(&host[..n_own]), "{counts:?}, rank {}", comm.rank());
        });
    }
}

/// The host receives what the blocks of the search found in one piece.
#[test]
fn a_relative_bound_is_found_with_short_frames() {
    let device: Arc<dyn Driver> = SimulatedDevice::new();
    let plan = Plan::foldwire(Bound::Relative(1e-3));
    World::new(2).frame_bytes(4096).run(|mut comm| {
        let values: Vec<f32> = (0..100_000).map(|i| (i as f32 * 1e-3).sin()).collect();
        let mut workspace = Workspace::new(&device, &comm).expect("there is memory");
        let mut x = DeviceBuffer::from_values(&device, &values).expect("there is memory");
        let call = Call::all_reduce(x.output(), Op::Sum);
        comm.run_on(&mut workspace, call, &plan).expect("the call works");
        let sums = x.to_vec(&device).expect("the device works");
        let errors = sums.iter().zip(&values).map(|(sum, value)| (sum - 2.0 * value).abs());
        assert!(errors.fold(0.0, f32::max) < 2.0 * 2.1e-3);
    });
}

/// Buffers of another library, which frees them itself.
#[test]
fn adopted_memory_takes_part_in_calls_and_is_not_freed() {
    let simulated = SimulatedDevice::new();
    let device: Arc<dyn Driver> = simulated.clone();
    let plan = Plan::foldwire(Bound::Absolute(1e-3));
    World::new(2).run(|mut comm| {
        let own = values::<f32>(comm.rank().index(), 5000);
        let mut expected = own.clone();
        comm.all_reduce(&mut expected, Op::Sum, &plan).expect("the call works");
        let mut workspace = Workspace::new(&device, &comm).expect("there is memory");
        let owner = DeviceBuffer::from_values(&device, &own).expect("there is memory");
        let mut adopted = DeviceBuffer::<f32>::adopt(owner.ptr(), own.len()).expect("aligned");
        comm.run_on(&mut workspace, Call::all_reduce(adopted.output(), Op::Sum), &plan)
            .expect("the call works");
        drop(adopted);
        let found = owner.to_vec(&device).expect("the memory is still there");
        assert!(bits(&found) == bits(&expected));
        let misaligned = DeviceBuffer::<f32>::adopt(DevicePtr(2), 1);
        assert!(matches!(misaligned, Err(DeviceError::Misaligned { .. })), "{misaligned:?}");
        // An empty array may be anywhere.
        let mut empty = DeviceBuffer::<f32>::adopt(DevicePtr(2), 0).expect("no values");
        for plan in [plan, Plan::raw()] {
            comm.run_on(&mut workspace, Call::all_reduce(empty.output(), Op::Sum), &plan)
                .expect("the call works");
        }
    });
    assert_eq!(simulated.n_live(), 0);
    let owner = DeviceBuffer::from_values(&device, &[1.0_f32; 10]).expect("there is memory");
    drop(DeviceBuffer::<f32>::adopt(owner.ptr(), 10).expect("aligned"));
    assert_eq!(simulated.n_live(), 1, "adopted memory is not freed");
    drop(owner);
    assert_eq!(simulated.n_live(), 0);
}

/// The caller's stream still has much to do when the call begins. In the end it copies the input.
#[test]
fn a_call_waits_for_the_callers_stream() {
    let sum = |names_stream: bool| {
        let device: Arc<dyn Driver> = SimulatedDevice::new();
        World::new(1).run(|mut comm| {
            let mut workspace = Workspace::new(&device, &comm).expect("there is memory");
            let buffer = |value: f32| {
                DeviceBuffer::from_values(&device, &[value; 1000]).expect("there is memory")
            };
            let (mut x, out, source, other) = (buffer(1.0), buffer(0.0), buffer(2.0), buffer(3.0));
            let mut call = |x: &mut DeviceBuffer<f32>, workspace: &mut Workspace| {
                let call = Call::all_reduce_into(x.input(), out.input(), Op::Sum);
                comm.run_on(workspace, call, &Plan::raw()).expect("the call works");
            };
            // The check of the device takes long.
            call(&mut x, &mut workspace);
            let stream = device.new_stream().expect("a stream");
            for _ in 0..500 {
                device.copy_within(stream, other.ptr(), x.ptr(), 4000).expect("it is enqueued");
            }
            device.copy_within(stream, source.ptr(), x.ptr(), 4000).expect("it is enqueued");
            workspace.set_stream(names_stream.then_some(stream));
            call(&mut x, &mut workspace);
            let found = out.to_vec(&device).expect("the device works");
            device.end_stream(stream);
            found
        })
    };
    assert_eq!(sum(true), [[2.0; 1000]]);
    assert_ne!(sum(false), [[2.0; 1000]], "without a stream, nobody waits");
}
