//! Calls on a device's memory: the parts that the suite of all backends leaves out
//! (`conformance.rs`).

use foldwire::codec::CodecId;
use foldwire::layout::{Shares, Window};
use foldwire::op::OpCode;
use foldwire::{Bound, Call, Collective, Element, Error, Float, Op, Plan, Rank};
use foldwire_cuda::{DeviceBuffer, DeviceError, DevicePtr, Driver, Workspace};
use foldwire_cuda_host::{Faults, SimulatedDevice};
use foldwire_threads::World;
use std::sync::Arc;

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

#[test]
fn a_bound_relative_to_the_values_is_found_on_the_device() {
    let n = 30_000;
    let value = |rank: usize, i: usize| ((i + rank) as f64 * 1e-3).sin();
    for bound in [Bound::Relative(1e-3), Bound::Psnr(60.0)] {
        for plan in [Plan::foldwire(bound), Plan::auto(bound)] {
            let errors = World::new(3).run(|mut comm| {
                let device: Arc<dyn Driver> = SimulatedDevice::new();
                let mut workspace = Workspace::new(&device, &comm).expect("there is memory");
                let own: Vec<f32> = (0..n).map(|i| value(comm.rank().index(), i) as f32).collect();
                let mut sums = DeviceBuffer::new(&device, n).expect("there is memory");
                let own = DeviceBuffer::from_values(&device, &own).expect("there is memory");
                let call = Call::all_reduce_into(own.input(), sums.output(), Op::Sum);
                comm.run_on(&mut workspace, call, &plan).expect("the call works");
                let sums = sums.to_vec(&device).expect("the device works");
                let exact = |i: usize| (0..3).map(|rank| value(rank, i)).sum::<f64>();
                let errors = (0..n).map(|i| (f64::from(sums[i]) - exact(i)).abs());
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
        let plan = Plan::auto(bound);
        let results = World::new(2).link_rate(1e8).run(|mut comm| {
            let mut own = values::<f32>(0, 300_000);
            if comm.rank() == Rank(0) {
                return comm.all_reduce(&mut own, Op::Sum, &plan).map(drop);
            }
            let mut workspace = Workspace::new(&device, &comm).expect("there is memory");
            let mut own = DeviceBuffer::from_values(&device, &own).expect("there is memory");
            comm.run_on(&mut workspace, Call::all_reduce(own.output(), Op::Sum), &plan).map(drop)
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
                let own = comm.share(9000).len();
                let at_root = |n| if rank == Rank(0) { n } else { 0 };
                let [n_send, n_recv] = match collective {
                    Collective::ReduceScatter => [9000, own],
                    Collective::AllGather => [own, 9000],
                    Collective::Gather => [own, at_root(9000)],
                    Collective::Scatter => [at_root(9000), own],
                    Collective::Reduce => [9000, at_root(9000)],
                    _ => [9000, 9000],
                };
                let (from, mut to) = (buffer(n_send), buffer(n_recv));
                simulated.plant(Faults { allocations: Some(0), ..Faults::default() });
                let (shares, window) = (Shares::Even(9000), Window::Own);
                let call = Call::of(collective, shares, window, from.input(), to.output());
                let call = call.with_op(Op::Sum).with_root(Rank(0));
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
