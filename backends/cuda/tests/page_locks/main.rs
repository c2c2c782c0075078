//! A device copies from locked frames and to them by itself, and no copy outlives the use of a
//! frame. Here are the tests of faults, too, because they count locked frames.

mod faults;

use foldwire::codec::CodecId;
use foldwire::error::{AbortReason, DeviceErrorKind};
use foldwire::transport::Transport;
use foldwire::{
    Bound, Call, Collective, Communicator, DType, Error, Op, Plan, Preset, Rank, pipeline,
};
use foldwire_conformance::wrapped::{Hooks, Wrapped};
use foldwire_cuda::driver::lock_frames_for;
use foldwire_cuda::{DeviceBuffer, Driver, Outcome, Workspace, WorkspaceConfig};
use foldwire_cuda_host::{Faults, HostCopies, SimulatedDevice, gpu};
use foldwire_threads::{Endpoint, World};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;

const N: usize = 9000;

/// Frames are locked, or not, for a whole process.
static TURNS: Mutex<()> = Mutex::new(());

fn turn() -> MutexGuard<'static, ()> {
    TURNS.lock().unwrap_or_else(PoisonError::into_inner)
}

fn values(rank: Rank) -> Vec<f32> {
    (0..N).map(|i| ((i + 37 * rank.index()) as f32 * 0.01).sin()).collect()
}

fn plans() -> [Plan; 4] {
    let bound = Bound::Absolute(1e-3);
    [
        Plan::foldwire(bound),
        Plan::raw(),
        Plan::raw().compressed(pipeline::HOMOMORPHIC, bound),
        Plan::raw().compressed(pipeline::PER_HOP, bound),
    ]
}

fn world() -> World {
    World::new(3).frame_bytes(24 << 10)
}

/// All-reduces with each plan, on devices. Returns the sums, and the bytes that the hosts copied.
fn on_devices(devices: &[Arc<SimulatedDevice>]) -> Vec<Vec<(Vec<f32>, HostCopies)>> {
    world().run(|mut comm| {
        let (rank, simulated) = (comm.rank(), &devices[comm.rank().index()]);
        let device: Arc<dyn Driver> = simulated.clone();
        let mut workspace = Workspace::new(&device, &comm).expect("there is memory");
        let mut sums = Vec::new();
        for plan in plans() {
            let sum = |workspace: &mut Workspace, comm: &mut Communicator<Endpoint>| {
                let mut x = DeviceBuffer::from_values(&device, &values(rank)).expect("memory");
                let before = simulated.host_copies();
                let call = Call::all_reduce(x.output(), Op::Sum);
                comm.run_on(workspace, call, &plan).expect("the call works");
                let HostCopies { written, read } = simulated.host_copies();
                let (written, read) = (written - before.written, read - before.read);
                (x.to_vec(&device).expect("the device works"), HostCopies { written, read })
            };
            // The first call also checks the device.
            sum(&mut workspace, &mut comm);
            sums.push(sum(&mut workspace, &mut comm));
        }
        sums
    })
}

#[test]
fn payloads_of_locked_frames_are_copied_by_the_device_alone() {
    let _turn = turn();
    let expected = world().run(|mut comm| {
        plans().map(|plan| {
            let mut x = values(comm.rank());
            comm.all_reduce(&mut x, Op::Sum, &plan).expect("the call works");
            x
        })
    });
    let devices: Vec<_> = (0..3).map(|_| SimulatedDevice::new()).collect();
    let weak = |device: &Arc<SimulatedDevice>| Arc::downgrade(&(device.clone() as Arc<dyn Driver>));
    let unlocked = on_devices(&devices);
    let locking: Vec<_> = devices.iter().map(|device| lock_frames_for(weak(device))).collect();
    let locked = on_devices(&devices);
    drop(locking);
    for rank in 0..3 {
        for (i, plan) in plans().iter().enumerate() {
            for (sums, is_locked) in [(&unlocked, false), (&locked, true)] {
                let (sum, copies) = &sums[rank][i];
                assert!(sum == &expected[rank][i], "{plan:?}");
                // The host reads the outcome of each operation.
                let outcomes_only = copies.read.is_multiple_of(size_of::<Outcome>());
                assert_eq!((copies.written == 0) && outcomes_only, is_locked, "{copies:?}");
                assert!(copies.read > 0);
            }
        }
    }
    assert!(devices.iter().all(|device| device.n_live() == 0), "nothing leaks");
}

/// The blocks of a scatter's root, which are encoded at once.
#[test]
fn blocks_of_a_scatter_are_copied_to_locked_frames_by_the_device_alone() {
    let _turn = turn();
    let simulated = SimulatedDevice::new();
    let device: Arc<dyn Driver> = simulated.clone();
    let locking = lock_frames_for(Arc::downgrade(&device));
    let plan = Preset::Gzccl.plan(Collective::Scatter, Bound::Absolute(1e-3));
    let blocks = World::new(4).frame_bytes(64 << 10).run(|mut comm| {
        let (all, mut own) = (values(Rank(0)), vec![0.0; N / 4]);
        if comm.rank() != Rank(0) {
            let call = Call::scatter(N, &all, &mut own[..], Rank(0));
            comm.run(call, &plan).expect("the call works");
            return own;
        }
        for codec in [CodecId::CuSzp, CodecId::Raw] {
            simulated.checked().insert(codec, DType::F32);
        }
        let mut workspace = Workspace::new(&device, &comm).expect("there is memory");
        let x = DeviceBuffer::from_values(&device, &all).expect("memory");
        let mut y = DeviceBuffer::from_values(&device, &own).expect("memory");
        let before = simulated.host_copies();
        let call = Call::scatter(N, x.input(), y.output(), Rank(0));
        comm.run_on(&mut workspace, call, &plan).expect("the call works");
        let HostCopies { written, read } = simulated.host_copies();
        assert_eq!(written, before.written);
        // An outcome of each block, and of what the root stores.
        let n_read = read - before.read;
        assert!(n_read.is_multiple_of(size_of::<Outcome>()), "{n_read}");
        assert!((3..=5).contains(&(n_read / size_of::<Outcome>())), "{n_read}");
        y.to_vec(&device).expect("the device works")
    });
    drop(locking);
    assert_eq!(simulated.take_most_at_once(), 3);
    let expected = values(Rank(0));
    for (block, expected) in blocks.iter().zip(expected.chunks(N / 4)) {
        assert!(block.iter().zip(expected).all(|(a, b)| (a - b).abs() <= 1e-3));
    }
}

/// Counts frames that a transport gets while a device copies from them or to them.
struct Watch {
    /// The device, unless it is a GPU, which cannot say it.
    device: Option<Arc<SimulatedDevice>>,
    n_in_use: Arc<AtomicUsize>,
}

impl Hooks for Watch {
    fn gets(&mut self, frame: &[u8]) {
        let is_in_use = self.device.as_ref().is_some_and(|device| device.uses(frame));
        self.n_in_use.fetch_add(is_in_use.into(), Ordering::Relaxed);
    }
}

fn watched(
    inner: Endpoint,
    device: Option<&Arc<SimulatedDevice>>,
    n_in_use: &Arc<AtomicUsize>,
) -> Wrapped<Endpoint> {
    Wrapped::new(inner, Watch { device: device.cloned(), n_in_use: Arc::clone(n_in_use) })
}

#[test]
fn a_call_that_ends_early_recycles_no_frame_that_a_device_uses() {
    let _turn = turn();
    let device = SimulatedDevice::new();
    let driver: Arc<dyn Driver> = device.clone();
    let locking = lock_frames_for(Arc::downgrade(&driver));
    calls_end_early(&driver, Some(&device));
    drop(locking);
    // It locks frames since it was opened.
    gpu().iter().for_each(|gpu| calls_end_early(gpu, None));
}

fn calls_end_early(driver: &Arc<dyn Driver>, device: Option<&Arc<SimulatedDevice>>) {
    let n_in_use = Arc::new(AtomicUsize::new(0));
    let (mut n_dropped, mut n_aborted) = (0, 0);
    for n_polls in (0..60).step_by(3) {
        let ended = world().run_endpoints(|inner| {
            let transport = watched(inner, device, &n_in_use);
            let mut comm = Communicator::new(transport).expect("a communicator");
            let rank = comm.rank();
            let mut workspace = Workspace::new(driver, &comm).expect("there is memory");
            let mut x = DeviceBuffer::from_values(driver, &values(rank)).expect("memory");
            let plan = Plan::foldwire(Bound::Absolute(1e-3));
            let call = Call::all_reduce(x.output(), Op::Sum);
            let mut operation = comm.start_on(&mut workspace, call, &plan).expect("it starts");
            if rank != Rank(1) {
                return operation.wait().map(drop).err();
            }
            for _ in 0..n_polls {
                if let Poll::Ready(result) = operation.poll() {
                    return result.err();
                }
            }
            drop(operation);
            Some(Error::Finished)
        });
        assert!(device.is_none_or(|device| device.n_live() == 0), "nothing leaks");
        n_dropped += usize::from(ended[1].is_some());
        for error in [ended[0], ended[2]].into_iter().flatten() {
            let reason = AbortReason::Dropped;
            let is_told = matches!(error, Error::Aborted { reason: found, .. } if found == reason);
            assert!(is_told, "{error}");
            n_aborted += 1;
        }
    }
    assert!(n_dropped > 5 && n_aborted > 5, "{n_dropped} {n_aborted}");
    assert_eq!(n_in_use.load(Ordering::Relaxed), 0);
}

/// A workspace for shorter frames than the transport's.
#[test]
fn a_payload_longer_than_the_workspaces_frames_is_refused() {
    let _turn = turn();
    let simulated = SimulatedDevice::new();
    let device: Arc<dyn Driver> = simulated.clone();
    for is_locked in [false, true] {
        let locking = is_locked.then(|| lock_frames_for(Arc::downgrade(&device)));
        let results = World::new(2).frame_bytes(24 << 10).run(|mut comm| {
            // They fill a frame of the workspace. None is on the lattice, so the payload is longer.
            let bits = |i: u32| 0x7f00_0000 | i.wrapping_mul(0x9e37_79b9) >> 9;
            let mut values: Vec<f32> = (0..1024).map(|i| f32::from_bits(bits(i))).collect();
            let plan = Plan::foldwire(Bound::Absolute(1e-3));
            if comm.rank() == Rank(0) {
                return comm.broadcast(&mut values, Rank(0), &plan).map(drop);
            }
            let config = WorkspaceConfig::new(comm.n_lanes(), 4096);
            let mut workspace = Workspace::with_config(&device, config).expect("memory");
            let mut x = DeviceBuffer::from_values(&device, &values).expect("memory");
            let call = Call::broadcast(x.output(), Rank(0));
            comm.run_on(&mut workspace, call, &plan).map(drop)
        });
        drop(locking);
        assert_eq!(simulated.n_live(), 0, "nothing leaks");
        let kind = DeviceErrorKind::Pool;
        assert_eq!(results[1], Err(Error::Device { kind }), "locked: {is_locked}");
    }
}

/// Copies of other lanes are under way when the driver refuses to answer for the first one.
#[test]
fn a_driver_that_refuses_a_question_leaves_no_frame_that_a_device_uses() {
    let _turn = turn();
    let devices: Vec<_> = (0..3).map(|_| SimulatedDevice::new()).collect();
    let drivers: Vec<Arc<dyn Driver>> = devices.iter().map(|device| device.clone() as _).collect();
    let _locking: Vec<_> =
        drivers.iter().map(|driver| lock_frames_for(Arc::downgrade(driver))).collect();
    let n_in_use = Arc::new(AtomicUsize::new(0));
    let mut n_dropped = 0;
    for n_polls in 0..40 {
        let ended = world().run_endpoints(|inner| {
            let rank = inner.rank();
            let (device, driver) = (&devices[rank.index()], &drivers[rank.index()]);
            let transport = watched(inner, Some(device), &n_in_use);
            let mut comm = Communicator::new(transport).expect("a communicator");
            let mut workspace = Workspace::new(driver, &comm).expect("there is memory");
            let mut x = DeviceBuffer::from_values(driver, &values(rank)).expect("memory");
            let plan = Plan::foldwire(Bound::Absolute(1e-3));
            let call = Call::all_reduce(x.output(), Op::Sum);
            let mut operation = comm.start_on(&mut workspace, call, &plan).expect("it starts");
            if rank != Rank(1) {
                return operation.wait().is_err();
            }
            for _ in 0..n_polls {
                if operation.poll().is_ready() {
                    return false;
                }
            }
            device.plant(Faults { queries: Some(0), ..Faults::default() });
            drop(operation);
            device.plant(Faults::default());
            true
        });
        n_dropped += usize::from(ended[1]);
    }
    assert!(n_dropped > 5, "{n_dropped}");
    assert_eq!(n_in_use.load(Ordering::Relaxed), 0);
    assert!(devices.iter().all(|device| device.n_live() == 0), "nothing leaks");
}

/// A device that adds a payload to the floats of a frame reads no more of the frame than them.
#[test]
fn copies_of_a_short_sum_are_short() {
    let _turn = turn();
    let written = World::new(4).frame_bytes(64 << 10).run(|mut comm| {
        let simulated = SimulatedDevice::new();
        let device: Arc<dyn Driver> = simulated.clone();
        let mut workspace = Workspace::new(&device, &comm).expect("there is memory");
        let n_received = if comm.rank() == Rank(0) { 100 } else { 0 };
        let x = DeviceBuffer::from_values(&device, &[1.0_f32; 100]).expect("memory");
        let mut sums = DeviceBuffer::new(&device, n_received).expect("memory");
        let plan = Plan::raw().compressed(pipeline::PER_HOP, Bound::Absolute(1e-3));
        let mut before = 0;
        // The first call also checks the device.
        for _ in 0..2 {
            before = simulated.host_copies().written;
            let call = Call::reduce(x.input(), sums.output(), Op::Sum, Rank(0));
            comm.run_on(&mut workspace, call, &plan).expect("the call works");
        }
        simulated.host_copies().written - before
    });
    // Two payloads and sums, of 400 bytes each and less.
    assert!(written[0] > 400 && written[0] < 4000, "{written:?}");
}
