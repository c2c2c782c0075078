//! Calls on a device's memory: the parts that the suite of all backends leaves out
//! (`conformance.rs`).

use foldwire::codec::CodecId;
use foldwire::error::{AbortReason, DeviceErrorKind, FillError};
use foldwire::layout::{Shares, Window};
use foldwire::op::OpCode;
use foldwire::{
    Bound, Call, Collective, Element, Error, Float, Op, Plan, Rank, Rounding, SharedCommunicator,
    bf16, f16,
};
use foldwire_cuda::driver::StreamId;
use foldwire_cuda::{DeviceBuffer, DeviceError, DevicePtr, Driver, Workspace, WorkspaceConfig};
use foldwire_cuda_host::{Faults, SimulatedDevice, drivers};
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

#[test]
fn a_check_finds_what_a_device_cannot_do() {
    let device: Arc<dyn Driver> = SimulatedDevice::new();
    World::new(1).run_endpoints(|endpoint| {
        let world = SharedCommunicator::new(endpoint, 1).expect("there are channels");
        let near = Plan::foldwire(Bound::Absolute(1e-3));
        for (plan, is_refused) in [
            (Plan::raw(), false),
            (near, false),
            (near.with_codec(CodecId::Dense), true),
            (near.with_fill(-1.0), true),
            (near.with_rounding(Rounding::unbiased(1)), true),
        ] {
            let start = |is_checked: bool| {
                let run = |world: &SharedCommunicator<'static, _>| {
                    let config = WorkspaceConfig::new(world.n_lanes(), world.frame_bytes());
                    let workspace = Workspace::with_config(&device, config).expect("memory");
                    let x = DeviceBuffer::from_values(&device, &[1.0_f32; 100]).expect("memory");
                    let call = Call::all_reduce(x, Op::Sum);
                    world.start_on(Box::new(workspace), call, &plan)?.wait().into_result().map(drop)
                };
                if is_checked { world.check(run) } else { run(&world) }
            };
            let (checked, ended) = (start(true), start(false));
            assert_eq!((checked, ended.is_err()), (ended, is_refused), "{plan:?}");
        }
    });
}

/// A sample of the values shows none of these.
#[test]
fn a_fill_value_at_the_end_of_a_long_array_is_refused() {
    let device: Arc<dyn Driver> = SimulatedDevice::new();
    World::new(2).run(|mut comm| {
        let mut workspace = Workspace::new(&device, &comm).expect("there is memory");
        let mut own: Vec<f32> = (0..200_000).map(|i| (i as f32 * 0.01).sin()).collect();
        if comm.rank() == Rank(1) {
            own[199_000..].fill(-9999.0);
        }
        let mut x = DeviceBuffer::from_values(&device, &own).expect("there is memory");
        let plan = Plan::foldwire(Bound::Relative(1e-3));
        let refusing = plan.refusing_fill();
        let call = Call::all_reduce(x.output(), Op::Sum);
        let done = comm.run_on(&mut workspace, call, &refusing);
        assert_eq!(done, Err(Error::Fill(FillError::Suspected { value: -9999.0 })));
        let call = Call::all_reduce(x.output(), Op::Sum);
        comm.run_on(&mut workspace, call, &plan).expect("the communicator stays usable");
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
    let sum = |device: &Arc<dyn Driver>, names_stream: bool| {
        World::new(1).run(|mut comm| {
            let mut workspace = Workspace::new(device, &comm).expect("there is memory");
            let buffer = |value: f32| {
                DeviceBuffer::from_values(device, &[value; 1000]).expect("there is memory")
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
            let found = out.to_vec(device).expect("the device works");
            device.end_stream(stream);
            found
        })
    };
    for device in drivers() {
        assert_eq!(sum(&device, true), [[2.0; 1000]], "{device:?}");
    }
    let simulated: Arc<dyn Driver> = SimulatedDevice::new();
    assert_ne!(sum(&simulated, false), [[2.0; 1000]], "without a stream, nobody waits");
}

/// A graph is being made of what is enqueued on the caller's stream, so the device does nothing of
/// it. The call must not wait for that.
#[test]
fn a_call_on_a_captured_stream_is_a_typed_error_on_every_rank() {
    let simulated = SimulatedDevice::new();
    let device: Arc<dyn Driver> = simulated.clone();
    let stream = device.new_stream().expect("a stream");
    let plan = Plan::foldwire(Bound::Relative(1e-3));
    let results = World::new(3).run(|mut comm| {
        let mut own = values::<f32>(comm.rank().index(), 5000);
        if comm.rank() != Rank(1) {
            return comm.all_reduce(&mut own, Op::Sum, &plan).map(drop);
        }
        let mut workspace = Workspace::new(&device, &comm).expect("there is memory");
        workspace.set_stream(Some(stream));
        let mut x = DeviceBuffer::from_values(&device, &own).expect("there is memory");
        let y = DeviceBuffer::<f32>::new(&device, own.len()).expect("there is memory");
        simulated.begin_capture(stream);
        let copied = workspace.copy(x.ptr(), y.ptr(), 4 * own.len());
        assert!(matches!(copied, Err(DeviceError::Unsupported { .. })), "{copied:?}");
        let call = Call::all_reduce(x.output(), Op::Sum);
        let ended = comm.run_on(&mut workspace, call, &plan).map(drop);
        assert_eq!(simulated.end_capture(stream), 0, "nothing is enqueued there");
        let words = workspace.last_error().expect("a reason").to_string();
        assert!(words.contains("captured"), "{words}");
        let found = x.to_vec(&device).expect("the device works");
        assert!(bits(&found) == bits(&own), "the values are as they were");
        ended
    });
    let kind = DeviceErrorKind::Launch;
    assert_eq!(results[1], Err(Error::Device { kind }));
    for result in [results[0], results[2]] {
        let reason = AbortReason::Device;
        let is_told =
            matches!(result, Err(Error::Aborted { reason: found, .. }) if found == reason);
        assert!(is_told, "{result:?}");
    }
    device.end_stream(stream);
    assert_eq!(simulated.n_live(), 0, "nothing leaks");
}

/// Values of other libraries begin at a multiple of their size, and of nothing else. Empty arrays
/// may be anywhere.
#[test]
fn values_at_any_multiple_of_their_size_give_the_bits_of_the_host() {
    fn check<T: Float>(plan: &Plan, n: usize) {
        let device: Arc<dyn Driver> = SimulatedDevice::new();
        for codec in [plan.codec, CodecId::Raw] {
            device.checked().insert(codec, T::DTYPE);
        }
        World::new(2).frame_bytes(8 << 10).run(|mut comm| {
            let all = values::<T>(comm.rank().index(), n + 8);
            let mut workspace = Workspace::new(&device, &comm).expect("there is memory");
            let from = DeviceBuffer::from_values(&device, &all).expect("there is memory");
            let to = DeviceBuffer::from_values(&device, &all).expect("there is memory");
            for [skipped, skipped_of_sums] in [[1, 0], [0, 1], [3, 5], [7, 7]] {
                let own = &all[skipped..][..n];
                let mut expected = own.to_vec();
                comm.all_reduce(&mut expected, Op::Sum, plan).expect("the call works");
                let part = |of: &DeviceBuffer<T>, skipped: usize| {
                    let ptr = DevicePtr(of.ptr().0 + (skipped * size_of::<T>()) as u64);
                    DeviceBuffer::<T>::adopt(ptr, n).expect("aligned")
                };
                let (x, mut sums) = (part(&from, skipped), part(&to, skipped_of_sums));
                let call = Call::all_reduce_into(x.input(), sums.output(), Op::Sum);
                comm.run_on(&mut workspace, call, plan).expect("the call works");
                let found = to.to_vec(&device).expect("the device works");
                let found = &found[skipped_of_sums..][..n];
                assert!(bits(found) == bits(&expected), "{plan:?}, {}, {skipped}", T::DTYPE);
            }
            let nowhere = DevicePtr(3);
            workspace.copy(nowhere, DevicePtr(0), 0).expect("nothing to copy");
            workspace.set_stream(Some(StreamId(0)));
            workspace.copy(nowhere, DevicePtr(0), 0).expect("nothing to copy");
        });
    }
    let lossy = Plan::foldwire(Bound::Absolute(1e-3));
    for plan in [lossy, Plan::raw()] {
        check::<bf16>(&plan, 4501);
        check::<f16>(&plan, 4501);
        check::<f32>(&plan, 4501);
        check::<f64>(&plan, 3001);
    }
    for codec in [CodecId::CuSzp, CodecId::Mpc, CodecId::ZfpRate] {
        check::<f32>(&lossy.with_codec(codec), 4501);
        check::<f64>(&lossy.with_codec(codec), 3001);
    }
}
