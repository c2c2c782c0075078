//! Encodes of one message, and of several, run at the same time on several streams of a device, and
//! give the bytes of encodes one after the other.

use super::{Case, bits};
use foldwire::codec::{CodecExt, CodecId, CodecParams};
use foldwire::device::{
    Device, DeviceCall, DeviceOp, DeviceSource, DeviceTarget, OnDevice, Region,
};
use foldwire::error::AbortReason;
use foldwire::layout::Shares;
use foldwire::op::OpCode;
use foldwire::{Call, Collective, DType, Error, Op, Preset, Quantum};
use foldwire_cuda::{DeviceBuffer, Driver, Workspace, WorkspaceConfig};
use foldwire_cuda_host::{Faults, SimulatedDevice, drivers, gpu};
use foldwire_threads::World;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

/// Frames that hold the parts of all ranks.
const FRAME: usize = 96 << 10;
/// Frames that hold a fraction of a part.
const SHORT_FRAME: usize = 4 << 10;

fn case(preset: Preset, collective: Collective, size: usize) -> Case {
    Case { preset, collective, count: 20_000, size, ring_from: Preset::RING_FROM }
}

fn config(n_streams: usize) -> WorkspaceConfig {
    config_of(FRAME, n_streams)
}

fn config_of(frame_bytes: usize, n_streams: usize) -> WorkspaceConfig {
    WorkspaceConfig { n_streams, partition_values: 4096, ..WorkspaceConfig::new(4, frame_bytes) }
}

/// A rank's result, the bytes that it sent, and the most streams with kernels at a time.
type Outcome = (Vec<u8>, u64, usize);

fn on_devices(case: &Case, config: WorkspaceConfig) -> Vec<Outcome> {
    World::new(case.size).frame_bytes(config.frame_bytes).run(|mut comm| {
        let simulated = SimulatedDevice::new();
        let device: Arc<dyn Driver> = simulated.clone();
        for codec in [case.plan(DType::F32).codec, CodecId::Raw] {
            device.checked().insert(codec, DType::F32);
        }
        let mut workspace = Workspace::with_config(&device, config).expect("memory");
        let mut buffers = case.buffers::<f32>(comm.rank());
        let with = (&device, &mut workspace);
        let report = case.on_device(&mut comm, with, &mut buffers).expect("the call works");
        drop(workspace);
        let n_at_once = simulated.take_most_at_once();
        drop(device);
        assert_eq!(simulated.n_live(), 0, "nothing leaks");
        (bits(&buffers[1]), report.wire_bytes, n_at_once)
    })
}

fn on_hosts(case: &Case, frame_bytes: usize) -> Vec<Outcome> {
    World::new(case.size).frame_bytes(frame_bytes).run(|mut comm| {
        let mut buffers = case.buffers::<f32>(comm.rank());
        let report = case.on_host(&mut comm, &mut buffers).expect("the call works");
        (bits(&buffers[1]), report.wire_bytes, 0)
    })
}

/// Compares results and bytes with those of hosts. Returns the most streams at a time of each rank.
fn check(case: &Case, config: WorkspaceConfig) -> Vec<usize> {
    let found = on_devices(case, config);
    let expected = on_hosts(case, config.frame_bytes);
    for (rank, (found, expected)) in found.iter().zip(expected).enumerate() {
        let context = format!("{case:?}, {config:?}, rank {rank}");
        assert!(found.0 == expected.0, "{context}");
        assert_eq!(found.1, expected.1, "{context}: bytes sent");
    }
    found.into_iter().map(|(_, _, n_at_once)| n_at_once).collect()
}

#[test]
fn the_root_of_a_scatter_encodes_all_blocks_at_once() {
    for (size, n_streams) in [(5, WorkspaceConfig::N_STREAMS), (9, 8), (5, 3), (3, 1), (2, 8)] {
        let case = case(Preset::Gzccl, Collective::Scatter, size);
        let n_at_once = check(&case, config(n_streams));
        for (rank, found) in n_at_once.into_iter().enumerate() {
            let is_root = rank == case.root().index();
            let expected = if is_root { (size - 1).min(n_streams) } else { 1 };
            assert_eq!(found, expected, "{size} ranks, {n_streams} streams, rank {rank}");
        }
    }
}

/// The next parts of each block, or the next parts of a message, are encoded meanwhile.
#[test]
fn streams_are_busy_whatever_the_frames_hold() {
    use Collective::{AllGather, Broadcast, Scatter};
    let cases = [
        (Preset::Gzccl, Scatter, 2),
        (Preset::Gzccl, Scatter, 5),
        (Preset::Gzccl, AllGather, 2),
        (Preset::MpcOpt, Broadcast, 2),
        (Preset::ZfpOpt8, Broadcast, 3),
    ];
    for (preset, collective, size) in cases {
        for n_streams in [8, 3, 1] {
            let case = case(preset, collective, size);
            let n_at_once = check(&case, config_of(SHORT_FRAME, n_streams));
            let root = case.root().index();
            assert_eq!(n_at_once[root], n_streams, "{case:?}: {n_at_once:?}");
        }
    }
    let case = case(Preset::Gzccl, Scatter, 5);
    let without = WorkspaceConfig { ahead_frames: 0, ..config_of(SHORT_FRAME, 8) };
    assert_eq!(check(&case, without)[case.root().index()], 1, "there is no memory for more");
}

/// Lanes that share the memory, and steps that encode between other operations.
#[test]
fn calls_that_encode_ahead_have_the_bytes_of_the_host() {
    use Collective::{AllReduce, AllToAll, Reduce, ReduceScatter, Scatter};
    for (preset, collective) in [
        (Preset::GzcclPlus, Scatter),
        (Preset::Gzccl, AllReduce),
        (Preset::Gzccl, ReduceScatter),
        (Preset::MpcOpt, AllToAll),
        (Preset::ZfpOpt16, Reduce),
        (Preset::Foldwire, AllReduce),
        (Preset::Hzccl, AllReduce),
        (Preset::Cprp2p, AllToAll),
    ] {
        let case = case(preset, collective, 4);
        check(&case, config_of(SHORT_FRAME, 8));
    }
}

/// 20,000 values are 5 chunks of 4096.
#[test]
fn a_long_message_is_encoded_in_partitions_at_once() {
    for preset in [Preset::MpcOpt, Preset::ZfpOpt8] {
        for (n_streams, expected) in [(8, 3), (2, 2), (1, 1)] {
            let case = case(preset, Collective::Broadcast, 2);
            let n_at_once = check(&case, config(n_streams));
            assert_eq!(n_at_once[case.root().index()], expected, "{preset:?} {n_streams}");
        }
    }
    let case = case(Preset::Gzccl, Collective::Broadcast, 2);
    assert_eq!(check(&case, config(8)), [1, 1], "cuszp has no partitions");
}

/// Scatters at whose root a device has a fault after the first call. Returns each rank's result.
fn with_faults(case: &Case, config: WorkspaceConfig, faults: Faults) -> Vec<Result<(), Error>> {
    let simulated = SimulatedDevice::new();
    let results = World::new(case.size).frame_bytes(config.frame_bytes).run(|mut comm| {
        let mut buffers = case.buffers::<f32>(comm.rank());
        if comm.rank() != case.root() {
            let ended = case.on_host(&mut comm, &mut buffers).map(drop);
            if faults.hang.is_some() {
                // Let the endless kernel end.
                simulated.plant(Faults::default());
            }
            return ended;
        }
        let device: Arc<dyn Driver> = simulated.clone();
        for codec in [case.plan(DType::F32).codec, CodecId::Raw] {
            device.checked().insert(codec, DType::F32);
        }
        let mut workspace = Workspace::with_config(&device, config).expect("memory");
        let from = DeviceBuffer::from_values(&device, &buffers[0]).expect("memory");
        let mut to = DeviceBuffer::from_values(&device, &buffers[1]).expect("memory");
        simulated.plant(faults);
        let shares = Shares::Even(case.count);
        let call = Call::of(case.collective, shares, case.window(), from.input(), to.output());
        let call = call.with_op(Op::Sum).with_root(case.root());
        let call = comm.start_on(&mut workspace, call, &case.plan(DType::F32))?;
        match faults.hang {
            Some(_) => call.with_deadline(Duration::from_millis(100)).wait().map(drop),
            None => call.wait().map(drop),
        }
    });
    assert_eq!(simulated.n_live(), 0, "nothing leaks: {faults:?}");
    results
}

/// Returns whether the fault struck.
fn is_typed(case: &Case, config: WorkspaceConfig, faults: Faults) -> bool {
    let results = with_faults(case, config, faults);
    let root = case.root();
    let expected = match results[root.index()] {
        Ok(()) => {
            assert!(results.iter().all(Result::is_ok), "{faults:?}: {results:?}");
            return false;
        }
        Err(Error::Device { .. }) => AbortReason::Device,
        Err(Error::Deadline { rank, .. }) if rank == root => AbortReason::Deadline,
        _ => panic!("{faults:?}: {results:?}"),
    };
    for (rank, result) in results.iter().enumerate().filter(|(rank, _)| *rank != root.index()) {
        let is_told = match *result {
            Ok(()) => true,
            Err(Error::Aborted { culprit, reason, .. }) => reason == expected && culprit == root,
            Err(_) => false,
        };
        assert!(is_told, "rank {rank}, {faults:?}: {results:?}");
    }
    true
}

/// Plants a fault in each `step`th operation, launch, question and endless kernel.
fn faults_are_typed(step: usize) {
    let scatter = case(Preset::Gzccl, Collective::Scatter, 5);
    let broadcast = case(Preset::MpcOpt, Collective::Broadcast, 3);
    let (whole, short) = (config(8), config_of(SHORT_FRAME, 4));
    for (case, config, n_launches) in
        [(scatter, whole, 12), (broadcast, whole, 5), (scatter, short, 12)]
    {
        let is_typed = |case: &Case, faults| is_typed(case, config, faults);
        let launches = |n| Faults { launches: Some(n), ..Faults::default() };
        for n in 0..n_launches {
            assert!(is_typed(&case, launches(n)), "{case:?}, launch {n}");
        }
        assert!(!is_typed(&case, launches(1000)));
        let mut n_struck = [0; 3];
        for n in (0..60).step_by(step) {
            let faults = [
                Faults { operations: Some(n), ..Faults::default() },
                Faults { queries: Some(n), ..Faults::default() },
                Faults { hang: Some(n), ..Faults::default() },
            ];
            for (faults, n_struck) in faults.into_iter().zip(&mut n_struck) {
                *n_struck += usize::from(is_typed(&case, faults));
            }
        }
        assert!(n_struck.iter().all(|n| *n > 0), "{case:?}: {n_struck:?}");
    }
}

#[test]
fn a_fault_in_any_of_several_encodes_is_a_typed_error_on_every_rank() {
    faults_are_typed(29);
}

mod long {
    #[test]
    fn a_fault_at_any_operation_is_a_typed_error_on_every_rank() {
        super::faults_are_typed(1);
    }
}

#[test]
fn a_scatter_that_is_dropped_leaves_nothing_under_way() {
    let simulated = SimulatedDevice::new();
    scatters_are_dropped(&(simulated.clone() as Arc<dyn Driver>));
    assert_eq!(simulated.n_live(), 0, "nothing leaks");
    gpu().iter().for_each(scatters_are_dropped);
}

fn scatters_are_dropped(device: &Arc<dyn Driver>) {
    let case = case(Preset::Gzccl, Collective::Scatter, 5);
    let polls = [1, 2, 3, 5, 8, 13, 21].into_iter().zip([FRAME, SHORT_FRAME].into_iter().cycle());
    for (n_polls, frame_bytes) in polls {
        World::new(case.size).frame_bytes(frame_bytes).run(|mut comm| {
            let mut buffers = case.buffers::<f32>(comm.rank());
            if comm.rank() != case.root() {
                let ended = case.on_host(&mut comm, &mut buffers);
                let is_told = match ended {
                    Ok(_) => true,
                    Err(Error::Aborted { reason, .. }) => reason == AbortReason::Dropped,
                    Err(_) => false,
                };
                assert!(is_told, "after {n_polls} polls: {ended:?}");
                return;
            }
            let config = config_of(frame_bytes, 8);
            let mut workspace = Workspace::with_config(device, config).expect("memory");
            let from = DeviceBuffer::from_values(device, &buffers[0]).expect("memory");
            let mut to = DeviceBuffer::from_values(device, &buffers[1]).expect("memory");
            let shares = Shares::Even(case.count);
            let call = Call::of(case.collective, shares, case.window(), from.input(), to.output());
            let call = call.with_root(case.root());
            let plan = case.plan(DType::F32);
            let mut call = comm.start_on(&mut workspace, call, &plan).expect("it starts");
            for _ in 0..n_polls {
                if call.poll().is_ready() {
                    break;
                }
            }
            drop(call);
            let memory = DeviceBuffer::<f32>::new(device, 1).expect("the device works");
            assert!(memory.to_vec(device).is_ok());
        });
    }
}

const N: usize = 20_000;

/// A workspace of one lane, and arrays that it encodes.
struct Bench {
    device: Arc<dyn Driver>,
    workspace: Workspace,
    arrays: Vec<(Vec<f32>, DeviceBuffer<f32>)>,
    call: DeviceCall,
}

impl Bench {
    fn on(device: Arc<dyn Driver>) -> Self {
        Self::with_config(device, WorkspaceConfig::new(1, FRAME))
    }

    fn with_config(device: Arc<dyn Driver>, config: WorkspaceConfig) -> Self {
        let workspace = Workspace::with_config(&device, config);
        let array = |nth: usize| {
            let values: Vec<f32> = (0..N).map(|i| ((i * (nth + 1)) as f32 * 0.01).sin()).collect();
            let on_device = DeviceBuffer::from_values(&device, &values).expect("memory");
            (values, on_device)
        };
        let arrays = (0..4).map(array).collect();
        let quantum = Quantum::new::<f32>(1e-3).expect("a bound");
        let params = CodecParams::new(quantum).for_sums_of(4);
        let call = DeviceCall { dtype: DType::F32, op: OpCode::Sum, params };
        Self { device, workspace: workspace.expect("memory"), arrays, call }
    }

    fn codec(&self) -> CodecId {
        self.call.params.codec()
    }

    fn region(&self, nth: usize) -> Region {
        OnDevice::<f32>::region(&self.arrays[nth].1.input())
    }

    /// Polls the encode of an array once.
    fn poll(&mut self, nth: usize, to: &mut [u8]) -> Poll<usize> {
        let (values, codec) = (DeviceSource::Own(self.region(nth)), self.codec());
        let op = DeviceOp::Encode { values, codec, to };
        let done = self.workspace.compute(0, op, N, &self.call);
        done.map(|written| written.expect("the device works").n_bytes)
    }

    fn ahead(&mut self, array: usize) -> bool {
        self.ahead_of(self.region(array))
    }

    fn ahead_of(&mut self, values: Region) -> bool {
        let begun = self.workspace.encode_ahead(0, values, self.codec(), &self.call);
        begun.expect("the device works")
    }

    /// Encodes an array, and compares the payload with the host's.
    fn check(&mut self, nth: usize) {
        let (mut found, mut expected) = (vec![0; FRAME], vec![0; FRAME]);
        let n_bytes = loop {
            if let Poll::Ready(n_bytes) = self.poll(nth, &mut found) {
                break n_bytes;
            }
        };
        let on_host = self.codec().instance::<f32>(&self.call.params);
        let written = on_host.as_dyn().encode(&self.arrays[nth].0, &mut expected);
        let written = written.expect("the values can be encoded");
        assert!(found[..n_bytes] == expected[..written.n_bytes], "array {nth}");
    }

    /// Carries out an operation that is no encode.
    fn store_nothing(&mut self) {
        loop {
            let to = DeviceTarget::Values(Region { n_values: 0, ..self.region(3) });
            let op = DeviceOp::Decode { payload: &[], codec: CodecId::Raw, divisor: 1, to };
            if let Poll::Ready(done) = self.workspace.compute(0, op, 0, &self.call) {
                return assert!(done.is_ok(), "{done:?}");
            }
        }
    }

    fn end(&mut self) {
        while self.workspace.poll_end().is_pending() {}
    }
}

#[test]
fn encodes_ahead_have_the_bytes_of_those_in_order() {
    drivers().map(Bench::on).for_each(|mut bench| {
        let mut frame = vec![0; FRAME];
        assert!(bench.poll(0, &mut frame).is_pending());
        for array in [1, 2] {
            assert!(bench.ahead(array));
            assert!(bench.ahead(array), "it has begun already");
        }
        (0..3).for_each(|array| bench.check(array));
        // Encodes, and other operations, that nobody announced.
        for other in [3, 2] {
            assert!(bench.poll(0, &mut frame).is_pending());
            assert!(bench.ahead(1) && bench.ahead(2));
            bench.check(0);
            bench.check(other);
            bench.check(1);
        }
        assert!(bench.poll(0, &mut frame).is_pending());
        assert!(bench.ahead(1) && bench.ahead(2));
        bench.check(0);
        bench.store_nothing();
        bench.check(1);
        bench.store_nothing();
        bench.check(2);
        bench.end();
    });
}

/// The lane never asks for them, and goes on with others.
#[test]
fn encodes_that_a_lane_passes_over_give_their_streams_back() {
    let mut bench =
        Bench::with_config(SimulatedDevice::new(), WorkspaceConfig { n_streams: 4, ..config(4) });
    let mut frame = vec![0; FRAME];
    for _ in 0..10 {
        assert!(bench.poll(0, &mut frame).is_pending());
        assert!([1, 2, 3].into_iter().all(|array| bench.ahead(array)));
        bench.check(0);
        bench.check(3);
    }
    bench.end();
}

/// The call has ended, or its caller forgot it ([`std::mem::forget`]).
#[test]
fn what_a_call_left_under_way_does_not_reach_the_next_call() {
    let ways = [true, false].into_iter();
    for (has_ended, device) in ways.flat_map(|way| drivers().map(move |device| (way, device))) {
        let mut bench = Bench::on(device);
        let mut frame = vec![0; FRAME];
        assert!(bench.poll(0, &mut frame).is_pending());
        assert!(bench.ahead(1));
        if has_ended {
            bench.end();
        }
        bench.workspace.begin().expect("the device works");
        bench.check(2);
        let values: Vec<f32> = (0..N).map(|i| i as f32).collect();
        let mut transfer = foldwire_cuda::Transfer::new(&bench.device, FRAME).expect("memory");
        let (on_host, on_device) = &mut bench.arrays[1];
        transfer.upload(&values, on_device).expect("the device works");
        *on_host = values;
        bench.check(1);
        bench.check(0);
        bench.end();
    }
}

/// No more begins than there are streams, and than fits the memory that was set aside.
#[test]
fn encodes_ahead_are_bounded() {
    let config = |n_streams, ahead_frames| WorkspaceConfig {
        n_streams,
        ahead_frames,
        ..WorkspaceConfig::new(1, FRAME)
    };
    for (config, expected) in [
        (config(8, 7), 7..8),
        (config(3, 7), 2..3),
        (config(1, 7), 0..1),
        (config(8, 0), 0..1),
        (config(16, 1), 1..15),
    ] {
        let mut bench = Bench::with_config(SimulatedDevice::new(), config);
        let mut frame = vec![0; FRAME];
        assert!(bench.poll(0, &mut frame).is_pending());
        // All but the first value, all but the first two, and so on.
        let all = bench.region(1);
        let rest = |skipped: usize| {
            let address = all.address + 4 * skipped as u64;
            Region { address, n_values: all.n_values - skipped }
        };
        let n_begun = (0..100).take_while(|skipped| bench.ahead_of(rest(*skipped))).count();
        assert!(expected.contains(&n_begun), "{config:?}: {n_begun}");
        (0..2).for_each(|array| bench.check(array));
        bench.end();
        assert!(bench.poll(2, &mut frame).is_pending());
        assert_eq!(bench.ahead(3), !expected.contains(&0), "memory and streams are free again");
        (2..4).for_each(|array| bench.check(array));
        bench.end();
    }
}
