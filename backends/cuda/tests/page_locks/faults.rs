//! Faults of a device are typed errors on every rank, and nothing leaks: no memory, stream, event
//! or lock of a frame.

use super::turn;
use foldwire::codec::CodecId;
use foldwire::device::{Device, FrameLocking};
use foldwire::error::{AbortReason, DeviceErrorKind};
use foldwire::op::OpCode;
use foldwire::{Bound, Call, DType, Error, Op, Plan, Rank};
use foldwire_cuda::driver::lock_frames_for;
use foldwire_cuda::{DeviceBuffer, Driver, Workspace, WorkspaceConfig};
use foldwire_cuda_host::{Faults, SimulatedDevice};
use foldwire_threads::World;
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

fn values(n: usize) -> Vec<f32> {
    (0..n).map(|i| (i as f32 * 0.01).sin()).collect()
}

/// A device for each rank. All of them lock the frames of this process, if `is_locking`.
struct Devices {
    simulated: [Arc<SimulatedDevice>; 3],
    _locking: Vec<FrameLocking>,
}

impl Devices {
    fn new(is_locking: bool) -> Self {
        let simulated = [(); 3].map(|()| SimulatedDevice::new());
        let lock = |device: &Arc<SimulatedDevice>| {
            let driver: Arc<dyn Driver> = device.clone();
            lock_frames_for(Arc::downgrade(&driver))
        };
        let locked = if is_locking { &simulated[..] } else { &[] };
        Self { _locking: locked.iter().map(lock).collect(), simulated }
    }

    fn of(&self, rank: Rank) -> Arc<dyn Driver> {
        self.simulated[rank.index()].clone()
    }

    fn plant(&self, faults: Faults) {
        self.simulated[1].plant(faults);
    }

    fn expect_no_leak(&self, context: &str) {
        let n_live: Vec<usize> = self.simulated.iter().map(|device| device.n_live()).collect();
        assert_eq!(n_live, [0; 3], "{context}");
    }
}

/// Plants faults in one rank's device. Returns each rank's result.
fn with_faults(faults: Faults, is_locking: bool) -> Vec<Result<(), Error>> {
    let devices = Devices::new(is_locking);
    let results = World::new(3).frame_bytes(16 << 10).run(|mut comm| {
        let rank = comm.rank();
        let device = devices.of(rank);
        let mut workspace = Workspace::new(&device, &comm).expect("there is memory");
        let values = values(20_000);
        let mut x = DeviceBuffer::from_values(&device, &values).expect("there is memory");
        let plan = Plan::foldwire(Bound::Absolute(1e-3));
        // The first call checks the device, which may refuse before anything is sent.
        comm.run_on(&mut workspace, Call::all_reduce(x.output(), Op::Sum), &plan)
            .expect("no fault");
        if rank == Rank(1) {
            devices.plant(faults);
        }
        comm.run_on(&mut workspace, Call::all_reduce(x.output(), Op::Sum), &plan).map(drop)
    });
    devices.expect_no_leak(&format!("{faults:?}"));
    results
}

#[test]
fn a_fault_of_a_device_is_a_typed_error_on_every_rank() {
    faults_are_typed_errors(29);
}

/// Plants a fault in every `step`th operation, and in every `step`th launch.
fn faults_are_typed_errors(step: usize) {
    let _turn = turn();
    let mut n_failed = 0;
    for n in (0..200).step_by(step) {
        let of_launches = Faults { launches: Some(n), ..Faults::default() };
        let of_operations = Faults { operations: Some(n), ..Faults::default() };
        for (faults, is_locking) in [(of_launches, false), (of_operations, true)] {
            let results = with_faults(faults, is_locking);
            if results.iter().all(Result::is_ok) {
                continue;
            }
            n_failed += 1;
            assert!(matches!(results[1], Err(Error::Device { .. })), "{faults:?}: {results:?}");
            for result in [&results[0], &results[2]] {
                let reason = AbortReason::Device;
                let is_told = match *result {
                    Ok(()) => true,
                    Err(Error::Aborted { culprit: Rank(1), reason: found, .. }) => found == reason,
                    Err(_) => false,
                };
                assert!(is_told, "{faults:?}: {results:?}");
            }
        }
    }
    assert!(n_failed > 2, "faults strike");
}

/// Plants faults in rank 1's device before its first call. The other ranks' devices work. All ranks
/// keep their communicators until all calls have ended, so only a notice can end them early.
/// Returns each rank's result, what its device says, and whether its communicator is poisoned.
fn with_early_faults(plan: &Plan, faults: Faults) -> Vec<(Result<(), Error>, String, bool)> {
    let devices = Devices::new(true);
    let have_ended = Barrier::new(3);
    let results = World::new(3).frame_bytes(16 << 10).run(|mut comm| {
        let rank = comm.rank();
        let device = devices.of(rank);
        let mut workspace = Workspace::new(&device, &comm).expect("there is memory");
        // A call then begins with an operation of the device.
        let stream = device.new_stream().expect("a stream");
        workspace.set_stream(Some(stream));
        let values = values(20_000);
        let mut x = DeviceBuffer::from_values(&device, &values).expect("there is memory");
        if rank == Rank(1) {
            devices.plant(faults);
        }
        let done = comm.run_on(&mut workspace, Call::all_reduce(x.output(), Op::Sum), plan);
        have_ended.wait();
        let words = workspace.last_error().map(ToString::to_string).unwrap_or_default();
        device.end_stream(stream);
        (done.map(drop), words, comm.is_poisoned())
    });
    devices.expect_no_leak(&format!("{faults:?}"));
    results
}

/// A fault before the call has an engine: as the call begins, in the check of kernels, or in the
/// scan of the values.
#[test]
fn a_fault_before_the_first_message_is_a_typed_error_on_every_rank() {
    let _turn = turn();
    let mut kinds = Vec::new();
    let plans = [Bound::Absolute(1e-3), Bound::Relative(1e-3)].map(Plan::foldwire);
    for (plan, n) in plans.iter().flat_map(|plan| [0, 1, 2, 5, 11, 40].map(|n| (plan, n))) {
        let of_allocations = Faults { allocations: Some(n), ..Faults::default() };
        let of_launches = Faults { launches: Some(n), ..Faults::default() };
        let of_operations = Faults { operations: Some(n), ..Faults::default() };
        // Later launches change what nobody compares.
        let of_rounding = Faults { rounding: (n == 0).then_some(0), ..Faults::default() };
        for faults in [of_allocations, of_launches, of_operations, of_rounding] {
            let began = Instant::now();
            let results = with_early_faults(plan, faults);
            // The time limit is five minutes.
            assert!(began.elapsed() < Duration::from_secs(60), "{faults:?}: a rank waits");
            match &results[1] {
                (Err(Error::Device { kind }), words, true) if !words.is_empty() => {
                    kinds.push(*kind);
                }
                // Fewer operations than this.
                (Ok(()), ..) => continue,
                _ => panic!("{faults:?}: {results:?}"),
            }
            for (result, _, is_poisoned) in [&results[0], &results[2]] {
                let reason = AbortReason::Device;
                let is_told = match *result {
                    Err(Error::Aborted { culprit: Rank(1), reason: found, .. }) => found == reason,
                    _ => false,
                };
                assert!(is_told && *is_poisoned, "{plan:?} {faults:?}: {results:?}");
            }
        }
    }
    for kind in [
        DeviceErrorKind::OutOfMemory,
        DeviceErrorKind::Launch,
        DeviceErrorKind::Lost,
        DeviceErrorKind::Differs,
    ] {
        assert!(kinds.contains(&kind), "{kind:?} strikes: {kinds:?}");
    }
}

#[test]
fn a_device_that_rounds_differently_is_refused() {
    let _turn = turn();
    for plan in [Plan::raw(), Plan::foldwire(Bound::Absolute(1e-3))] {
        let faults = Faults { rounding: Some(0), ..Faults::default() };
        let results = with_early_faults(&plan, faults);
        let (result, reason, _) = &results[1];
        assert_eq!(*result, Err(Error::Device { kind: DeviceErrorKind::Differs }));
        assert!(reason.contains("give other bytes on this device"), "{reason}");
    }
}

/// The check encodes, decodes and adds.
#[test]
fn a_device_that_computes_integers_differently_is_refused() {
    let _turn = turn();
    for dtype in [DType::I8, DType::U16, DType::I32, DType::U64] {
        for n in 0..4 {
            let faults = Faults { rounding: Some(n), ..Faults::default() };
            let device: Arc<dyn Driver> = SimulatedDevice::with_faults(faults);
            let config = WorkspaceConfig::new(1, 4096);
            let mut workspace = Workspace::with_config(&device, config).expect("there is memory");
            let found = workspace.supports(CodecId::Raw, dtype, OpCode::Sum);
            let differs = Err(Error::Device { kind: DeviceErrorKind::Differs });
            assert_eq!(found, if n < 3 { differs } else { Ok(true) }, "{dtype}, launch {n}");
        }
    }
}

#[test]
fn without_memory_there_is_no_workspace_and_nothing_leaks() {
    let _turn = turn();
    World::new(1).run(|comm| {
        for n in 0..20 {
            let faults = Faults { allocations: Some(n), ..Faults::default() };
            let driver = SimulatedDevice::with_faults(faults);
            let device: Arc<dyn Driver> = driver.clone();
            assert!(Workspace::new(&device, &comm).is_err());
            drop(device);
            assert_eq!(driver.n_live(), 0, "after {n} allocations");
        }
    });
}

#[test]
fn a_call_that_is_dropped_leaves_the_device_usable() {
    let _turn = turn();
    let driver = SimulatedDevice::new();
    let device: Arc<dyn Driver> = driver.clone();
    for n_polls in 0..6 {
        World::new(1).run(|mut comm| {
            let mut workspace = Workspace::new(&device, &comm).expect("there is memory");
            let values = values(5000);
            let mut x = DeviceBuffer::from_values(&device, &values).expect("there is memory");
            let plan = Plan::foldwire(Bound::Absolute(1e-3));
            let call = Call::broadcast(x.output(), Rank(0));
            let mut operation = comm.start_on(&mut workspace, call, &plan).expect("it starts");
            for _ in 0..n_polls {
                if operation.poll().is_ready() {
                    return;
                }
            }
            drop(operation);
        });
        assert_eq!(driver.n_live(), 0);
    }
}

mod long {
    use super::*;

    #[test]
    fn a_fault_at_any_operation_is_a_typed_error_on_every_rank() {
        faults_are_typed_errors(7);
    }
}
