//! Presets of published systems for GPUs give the same bits on a simulated device as on the host.

mod streams;

use foldwire::codec::CodecId;
use foldwire::error::DeviceErrorKind;
use foldwire::layout::{Shares, Window, share};
use foldwire::{
    Bound, Call, Collective, Communicator, DType, Element, Error, Float, Op, Plan, Preset, Rank,
    Report, bf16, f16,
};
use foldwire_cuda::{DeviceBuffer, Driver, Workspace, WorkspaceConfig};
use foldwire_cuda_host::SimulatedDevice;
use foldwire_threads::{Endpoint, World};
use std::sync::Arc;

const PRESETS: [Preset; 6] = [
    Preset::Gzccl,
    Preset::GzcclPlus,
    Preset::MpcOpt,
    Preset::ZfpOpt4,
    Preset::ZfpOpt8,
    Preset::ZfpOpt16,
];

fn collectives() -> impl Iterator<Item = Collective> {
    Collective::ALL.into_iter().filter(|collective| !collective.is_scan())
}

/// A rank's two buffers.
type Buffers<T> = [Vec<T>; 2];

/// A call with separate buffers, or of a broadcast in place.
#[derive(Clone, Copy, Debug)]
struct Case {
    preset: Preset,
    collective: Collective,
    count: usize,
    size: usize,
    /// From this many bytes on, gZCCL uses a ring.
    ring_from: usize,
}

impl Case {
    fn plan(&self, dtype: DType) -> Plan {
        let n_bytes = self.count * dtype.n_bytes() / self.size;
        let bound = Bound::Absolute(1e-3);
        self.preset.plan_switched(self.collective, bound, n_bytes, self.ring_from)
    }

    fn root(&self) -> Rank {
        Rank::new(self.size / 2)
    }

    fn window(&self) -> Window {
        match self.collective {
            Collective::Broadcast => Window::Whole,
            _ => Window::Own,
        }
    }

    /// A rank's input, and space for its result.
    fn buffers<T: Float>(&self, rank: Rank) -> Buffers<T> {
        use Collective::{AllGather, AllToAll, Broadcast, Gather, Reduce, ReduceScatter, Scatter};
        let (n, own) = (self.count, share(self.count, self.size, rank.index()).len());
        let at_root = |n| if rank == self.root() { n } else { 0 };
        let lengths = match self.collective {
            Broadcast => [0, n],
            ReduceScatter => [n, own],
            AllGather => [own, n],
            Gather => [own, at_root(n)],
            Scatter => [at_root(n), own],
            Reduce => [n, at_root(n)],
            AllToAll => [n, own * self.size],
            _ => [n, n],
        };
        let value = |i: usize| ((i + 37 * rank.index()) as f64 * 0.01).sin();
        lengths.map(|n| (0..n).map(|i| T::from_f64(value(i))).collect())
    }

    fn on_host<T: Float>(
        &self,
        comm: &mut Communicator<Endpoint>,
        [send, recv]: &mut Buffers<T>,
    ) -> Result<Report, Error> {
        let shares = Shares::Even(self.count);
        let call = Call::of(self.collective, shares, self.window(), &send[..], &mut recv[..]);
        comm.run(call.with_op(Op::Sum).with_root(self.root()), &self.plan(T::DTYPE))
    }

    fn on_device<T: Float>(
        &self,
        comm: &mut Communicator<Endpoint>,
        (device, workspace): (&Arc<dyn Driver>, &mut Workspace),
        [send, recv]: &mut Buffers<T>,
    ) -> Result<Report, Error> {
        let lend = |values: &[T]| DeviceBuffer::from_values(device, values).expect("a buffer");
        let (from, mut to) = (lend(send), lend(recv));
        let shares = Shares::Even(self.count);
        let call = Call::of(self.collective, shares, self.window(), from.input(), to.output());
        let call = call.with_op(Op::Sum).with_root(self.root());
        let report = comm.run_on(workspace, call, &self.plan(T::DTYPE))?;
        *recv = to.to_vec(device).expect("the device works");
        Ok(report)
    }
}

/// Bits of a rank's result.
type Outcome = Result<Vec<u8>, Error>;

/// Runs the calls in order, all on the same ranks. Some ranks have a device. Returns the results of
/// each rank.
fn results<T: Float>(cases: &[Case], on_device: fn(usize) -> bool) -> Vec<Vec<Outcome>> {
    // A message fits a frame, or takes several.
    World::new(cases[0].size).frame_bytes(24 << 10).run(|mut comm| {
        let rank = comm.rank();
        let device: Arc<dyn Driver> = SimulatedDevice::new();
        // The check of a device takes longer than the calls, and other tests have it.
        for codec in cases.iter().map(|case| case.plan(T::DTYPE).codec).chain([CodecId::Raw]) {
            device.checked().insert(codec, T::DTYPE);
        }
        let mut workspace = Workspace::new(&device, &comm).expect("there is memory");
        let run = |case: &Case| {
            let mut buffers = case.buffers::<T>(rank);
            match on_device(rank.index()) {
                true => case.on_device(&mut comm, (&device, &mut workspace), &mut buffers)?,
                false => case.on_host(&mut comm, &mut buffers)?,
            };
            Ok(bits(&buffers[1]))
        };
        cases.iter().map(run).collect()
    })
}

/// Compares calls on devices, and on devices at every second rank, with calls on slices.
fn check<T: Float>(cases: &[Case]) {
    let expected = results::<T>(cases, |_| false);
    for on_device in [|_| true, |rank| rank % 2 == 1] {
        for (rank, found) in results::<T>(cases, on_device).iter().enumerate() {
            for ((case, found), expected) in cases.iter().zip(found).zip(&expected[rank]) {
                let context = format!("{case:?}, rank {rank}, {}", T::DTYPE);
                assert!(expected.is_ok(), "{context}: {:?}", expected.as_ref().err());
                assert!(found == expected, "{context}: {:?}", found.as_ref().err());
            }
        }
    }
}

fn bits<T: Element>(values: &[T]) -> Vec<u8> {
    bytemuck::cast_slice(values).to_vec()
}

fn check_all<T: Float>(sizes: &[usize], counts: &[usize]) {
    for &size in sizes {
        let mut cases = Vec::new();
        for &count in counts {
            for preset in PRESETS {
                let ring_from = Preset::RING_FROM;
                let case = |collective| Case { preset, collective, count, size, ring_from };
                cases.extend(collectives().map(case));
            }
        }
        check::<T>(&cases);
    }
}

#[test]
fn presets_give_the_bits_of_the_host() {
    check_all::<f32>(&[1, 2, 3, 4, 5], &[0, 1, 3]);
    check_all::<f64>(&[1, 2, 3, 4, 5], &[0, 1, 3]);
    check_all::<f32>(&[3], &[5001]);
    check_all::<f64>(&[2], &[5001]);
}

/// gZCCL's all-reduces are rings from a length on.
#[test]
fn gzccl_gives_the_bits_of_the_host_on_both_sides_of_its_switch() {
    for (size, counts) in [(1, [5, 0]), (2, [0, 9001]), (4, [3, 5001]), (5, [4, 9001])] {
        let mut cases = Vec::new();
        for count in counts {
            for preset in [Preset::Gzccl, Preset::GzcclPlus] {
                let collective = Collective::AllReduce;
                let case = |ring_from| Case { preset, collective, count, size, ring_from };
                cases.extend([0, usize::MAX].map(case));
            }
        }
        check::<f32>(&cases);
        check::<f64>(&cases);
    }
}

mod long {
    use super::*;

    #[test]
    fn presets_give_the_bits_of_the_host_for_long_arrays() {
        check_all::<f32>(&[2, 5], &[20_011]);
        check_all::<f64>(&[2, 5], &[15_007]);
    }
}

#[test]
fn presets_give_the_bits_of_the_host_for_short_floats() {
    check_all::<f16>(&[2], &[100, 5001]);
    check_all::<bf16>(&[3], &[100, 5001]);
}

/// A preset whose messages do not fit the workspace's frames is refused with the device's reason.
#[test]
fn a_workspace_that_is_too_small_is_a_typed_error_on_every_rank() {
    for preset in PRESETS {
        let simulated = SimulatedDevice::new();
        let device: Arc<dyn Driver> = simulated.clone();
        let (collective, ring_from) = (Collective::AllReduce, Preset::RING_FROM);
        let case = Case { preset, collective, count: 9000, size: 3, ring_from };
        let results = World::new(3).frame_bytes(24 << 10).run(|mut comm| {
            let config = WorkspaceConfig::new(1, 4 << 10);
            let mut workspace = Workspace::with_config(&device, config).expect("there is memory");
            let [send, recv] = case.buffers::<f32>(comm.rank());
            let lend = |values: &[f32]| DeviceBuffer::from_values(&device, values);
            let (from, mut to) = (lend(&send).expect("memory"), lend(&recv).expect("memory"));
            let shares = Shares::Even(case.count);
            let call = Call::of(collective, shares, Window::Own, from.input(), to.output());
            comm.run_on(&mut workspace, call.with_op(Op::Sum), &case.plan(DType::F32)).map(drop)
        });
        assert_eq!(simulated.n_live(), 0, "nothing leaks");
        let has_reason = |result: &_| *result == Err(Error::Device { kind: DeviceErrorKind::Pool });
        let is_told = |result: &_| matches!(result, Err(Error::Aborted { .. }));
        assert!(results.iter().any(has_reason), "{preset:?}: {results:?}");
        let are_typed = results.iter().all(|result| has_reason(result) || is_told(result));
        assert!(are_typed, "{preset:?}: {results:?}");
    }
}
