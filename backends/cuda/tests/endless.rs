//! A kernel that never ends holds the rank that waits for it, but not the notice that ends the call
//! on the other ranks.

use foldwire::error::AbortReason;
use foldwire::{Bound, Call, Error, Op, Plan, Rank, SharedCommunicator};
use foldwire_cuda::{DeviceBuffer, Driver, Workspace, WorkspaceConfig, pool};
use foldwire_cuda_host::{Faults, SimulatedDevice};
use foldwire_threads::World;
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant};

/// Time limit of the ranks whose devices work.
const LIMIT: Duration = Duration::from_secs(60);
const DEADLINE: Duration = Duration::from_millis(100);

/// How the call of the rank with the endless kernel ends.
#[derive(Clone, Copy, Debug, PartialEq)]
enum End {
    Deadline,
    Drop,
    /// The device refuses a launch while other operations never end.
    Launch,
}

fn plan() -> Plan {
    Plan::foldwire(Bound::Absolute(1e-3))
}

fn values() -> Vec<f32> {
    (0..20_000).map(|i| (i as f32 * 0.01).sin()).collect()
}

fn world(n_ranks: usize) -> World {
    World::new(n_ranks).frame_bytes(16 << 10)
}

fn devices(n_ranks: usize) -> Vec<Arc<SimulatedDevice>> {
    (0..n_ranks).map(|_| SimulatedDevice::new()).collect()
}

/// Plants the faults in rank 1's device. An operation that never ends is its `n`th.
fn plant(device: &SimulatedDevice, n: usize, end: End) {
    let launches = (end == End::Launch).then_some(1);
    device.plant(Faults { hang: Some(n), launches, ..Faults::default() });
}

/// Checks what another rank got, and then lets the endless kernel end.
fn check(found: Option<Error>, end: End, start: Instant, stuck: &SimulatedDevice, context: &str) {
    let took = start.elapsed();
    stuck.plant(Faults::default());
    let expected = match end {
        End::Deadline => AbortReason::Deadline,
        End::Drop => AbortReason::Dropped,
        End::Launch => AbortReason::Device,
    };
    let is_told = matches!(found, Some(Error::Aborted { reason, .. }) if reason == expected);
    assert!(is_told && took < LIMIT / 2, "{context}: {found:?} after {took:?}");
}

#[test]
fn a_call_that_fails_tells_the_others_before_its_kernels_end() {
    for end in [End::Deadline, End::Drop, End::Launch] {
        for (n_ranks, n) in [(2, 0), (3, 5), (3, 30), (5, 12)] {
            let devices = devices(n_ranks);
            let stuck = &devices[1];
            world(n_ranks).run(|mut comm| {
                let rank = comm.rank();
                let device: Arc<dyn Driver> = devices[rank.index()].clone();
                let mut workspace = Workspace::new(&device, &comm).expect("there is memory");
                let mut x = DeviceBuffer::from_values(&device, &values()).expect("memory");
                // The first call checks the device.
                let call = Call::all_reduce(x.output(), Op::Sum);
                comm.run_on(&mut workspace, call, &plan()).expect("no fault");
                let call = Call::all_reduce(x.output(), Op::Sum);
                if rank == Rank(1) {
                    plant(stuck, n, end);
                }
                let start = Instant::now();
                let mut call = comm.start_on(&mut workspace, call, &plan()).expect("it starts");
                if rank != Rank(1) {
                    let found = call.with_timeout(LIMIT).wait().err();
                    return check(found, end, start, stuck, &format!("{end:?}, {n}, {rank}"));
                }
                if end == End::Drop {
                    while start.elapsed() < DEADLINE {
                        assert_eq!(call.poll(), Poll::Pending, "the kernel does not end");
                    }
                    return;
                }
                assert!(call.with_deadline(DEADLINE).wait().is_err(), "the kernel does not end");
            });
            assert!(devices.iter().all(|device| device.n_live() == 0), "nothing leaks");
        }
    }
}

#[test]
fn a_call_on_a_shared_transport_tells_the_others_before_its_kernels_end() {
    for end in [End::Deadline, End::Drop, End::Launch] {
        let devices = devices(3);
        let stuck = &devices[1];
        world(3).run_endpoints(|endpoint| {
            let comm = SharedCommunicator::new(endpoint, 2).expect("a communicator");
            let rank = comm.rank();
            let device: Arc<dyn Driver> = devices[rank.index()].clone();
            pool::register(rank.index(), device.clone());
            let x = DeviceBuffer::from_values(&device, &values()).expect("memory");
            let (n_lanes, frame_bytes) = (comm.n_lanes(), comm.frame_bytes());
            let start = |x: DeviceBuffer<f32>| {
                let config = WorkspaceConfig::new(n_lanes, frame_bytes);
                let workspace = pool::lend(rank.index(), config, None);
                let call = Call::all_reduce(x, Op::Sum);
                comm.start_on(Box::new(workspace), call, &plan()).expect("it starts")
            };
            // The first call checks the device.
            let (x, _) = start(x).wait().into_result().expect("no fault");
            if rank == Rank(1) {
                plant(stuck, 5, end);
            }
            let (call, start) = (start(x), Instant::now());
            if rank != Rank(1) {
                let found = call.with_timeout(LIMIT).wait().into_result().err();
                return check(found, end, start, stuck, &format!("{end:?}, {rank}"));
            }
            if end != End::Drop {
                let found = call.with_deadline(DEADLINE).wait().into_result();
                assert!(found.is_err(), "the kernel does not end");
            }
        });
        // Then the process keeps no workspace of these devices.
        (0..3).for_each(|rank| pool::register(rank, SimulatedDevice::new()));
        assert!(devices.iter().all(|device| device.n_live() == 0), "nothing leaks");
    }
}
