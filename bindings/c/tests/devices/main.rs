//! Calls of the C interface on the memory of a simulated device give the bits of the same calls on
//! the host, and what a device cannot do is a typed error.

mod ffi;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::{Duration, Instant};

use ffi::{Args, Comm, call, in_group, last_error, ok, requested};
use foldwire_c::ffi::types::*;
use foldwire_cuda::{DeviceBuffer, Driver, pool};
use foldwire_cuda_host::{Faults, SimulatedDevice};

/// Values of each rank's block.
const COUNT: usize = 3000;
const SIZE: usize = 3;
const ROOT: usize = 1;

const COLLECTIVES: [&str; 10] = [
    "all_reduce",
    "reduce",
    "broadcast",
    "reduce_scatter",
    "all_gather",
    "gather",
    "scatter",
    "all_to_all",
    "scan",
    "exclusive_scan",
];

/// A simulated device under a number of its own, and a stream of it for each rank.
struct Simulated {
    ordinal: usize,
    device: Arc<SimulatedDevice>,
    streams: Vec<u64>,
}

impl Simulated {
    fn new() -> Self {
        static NEXT: AtomicUsize = AtomicUsize::new(100);
        let (ordinal, device) = (NEXT.fetch_add(1, Ordering::Relaxed), SimulatedDevice::new());
        pool::register(ordinal, device.clone());
        let streams = (0..SIZE).map(|_| device.new_stream().unwrap().0).collect();
        Self { ordinal, device, streams }
    }

    fn driver(&self) -> Arc<dyn Driver> {
        self.device.clone()
    }
}

/// Runs a program on each rank, with its communicator. Returns the results in order of ranks.
fn ranks<R: Send>(program: impl Fn(usize, Comm) -> R + Sync) -> Vec<R> {
    let (comms, end) = (Comm::all(SIZE), Barrier::new(SIZE));
    thread::scope(|scope| {
        let run = |(rank, comm): (usize, Comm)| {
            let result = program(rank, comm);
            end.wait();
            comm.destroy();
            result
        };
        let threads: Vec<_> =
            comms.into_iter().enumerate().map(|at| scope.spawn(move || run(at))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

/// A rank's values: smooth, but for a few.
fn values(rank: usize, n: usize) -> Vec<f32> {
    let mut values: Vec<f32> = (0..n).map(|i| ((i + 37 * rank) as f32 * 0.01).sin()).collect();
    values[n / 2] = 3e30;
    values
}

fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|value| value.to_bits()).collect()
}

/// A collective of this rank: arguments without addresses, the values of both arrays, and, in
/// place, where the shorter array begins in the longer one.
struct Case {
    args: Args,
    send: Vec<f32>,
    recv: Vec<f32>,
    offset: Option<usize>,
}

fn case(name: &str, plan: &str, is_in_place: bool, (rank, comm): (usize, Comm)) -> Case {
    let whole = SIZE * COUNT;
    let (n_send, n_recv, offset) = match name {
        "reduce_scatter" => (whole, COUNT, rank * COUNT),
        "all_gather" | "gather" => (COUNT, whole, rank * COUNT),
        "scatter" => (whole, COUNT, rank * COUNT),
        "all_to_all" => (whole, whole, 0),
        _ => (COUNT, COUNT, 0),
    };
    // On other ranks, one of the arrays is not used, so nothing is in place there.
    let is_rooted = matches!(name, "gather" | "scatter");
    let offset = (is_in_place && (!is_rooted || rank == ROOT)).then_some(offset);
    let args = Args {
        comm,
        send: 0,
        recv: 0,
        count: COUNT,
        dtype: FW_FLOAT32,
        op: FW_SUM,
        root: ROOT as i32,
        plan: plan.into(),
    };
    Case { args, send: values(rank, n_send), recv: values(rank + 50, n_recv), offset }
}

impl Case {
    /// Makes the call on arrays at these addresses.
    fn run(&mut self, name: &str, send: u64, recv: u64) {
        (self.args.send, self.args.recv) = (send, recv);
        ok(call(name, &self.args));
    }

    /// Returns the addresses of both arrays. The longer one is at `longer`.
    fn both(&self, longer: u64, offset: usize) -> [u64; 2] {
        let shorter = longer + 4 * offset as u64;
        if self.send.len() >= self.recv.len() { [longer, shorter] } else { [shorter, longer] }
    }

    /// Returns what the call wrote, on the host: both arrays, or the longer one.
    fn on_host(mut self, name: &str) -> Vec<u32> {
        let Some(offset) = self.offset else {
            let (mut send, mut recv) = (self.send.clone(), self.recv.clone());
            self.run(name, send.as_mut_ptr() as u64, recv.as_mut_ptr() as u64);
            return bits(&[send, recv].concat());
        };
        let is_sent = self.send.len() >= self.recv.len();
        let mut longer = if is_sent { self.send.clone() } else { self.recv.clone() };
        let [send, recv] = self.both(longer.as_mut_ptr() as u64, offset);
        self.run(name, send, recv);
        bits(&longer)
    }

    /// Does the same on a device.
    fn on_device(mut self, name: &str, driver: &Arc<dyn Driver>) -> Vec<u32> {
        let buffer = |values: &[f32]| DeviceBuffer::from_values(driver, values).unwrap();
        let Some(offset) = self.offset else {
            let (send, recv) = (buffer(&self.send), buffer(&self.recv));
            self.run(name, send.ptr().0, recv.ptr().0);
            return bits(&[send.to_vec(driver).unwrap(), recv.to_vec(driver).unwrap()].concat());
        };
        let is_sent = self.send.len() >= self.recv.len();
        let longer = buffer(if is_sent { &self.send } else { &self.recv });
        let [send, recv] = self.both(longer.ptr().0, offset);
        self.run(name, send, recv);
        bits(&longer.to_vec(driver).unwrap())
    }
}

#[test]
fn every_collective_gives_the_bits_of_the_host() {
    let simulated = Simulated::new();
    let driver = simulated.driver();
    for name in COLLECTIVES {
        for plan in ["exact", "abs:1e-3"] {
            for is_in_place in [false, true] {
                let expected =
                    ranks(|rank, comm| case(name, plan, is_in_place, (rank, comm)).on_host(name));
                // On all ranks, and on every second one.
                for each in [1, 2] {
                    let found = ranks(|rank, comm| {
                        let case = case(name, plan, is_in_place, (rank, comm));
                        if rank % each == 0 {
                            let stream = simulated.streams[rank];
                            ok(comm.set_memory(Some((simulated.ordinal, stream))));
                            case.on_device(name, &driver)
                        } else {
                            case.on_host(name)
                        }
                    });
                    for (rank, (found, expected)) in found.iter().zip(&expected).enumerate() {
                        let context = format!("{name} {plan} {is_in_place} {each}, rank {rank}");
                        assert!(found == expected, "{context}");
                    }
                }
            }
        }
    }
}

/// The other ranks do not wait for their time limit of five minutes: all ranks keep their
/// communicators until all calls have ended.
#[test]
fn a_device_without_memory_ends_the_call_on_every_rank() {
    let simulated: Vec<_> = (0..SIZE).map(|_| Simulated::new()).collect();
    for name in ["all_reduce", "broadcast"] {
        for plan in ["exact", "rel:1e-3"] {
            let began = Instant::now();
            let results = ranks(|rank, comm| {
                let Simulated { ordinal, device, streams } = &simulated[rank];
                ok(comm.set_memory(Some((*ordinal, streams[rank]))));
                let driver = simulated[rank].driver();
                let buffer = DeviceBuffer::from_values(&driver, &values(rank, COUNT)).unwrap();
                if rank == ROOT {
                    device.plant(Faults { allocations: Some(0), ..Faults::default() });
                }
                let args = Args { plan: plan.into(), ..sum_of(comm, &buffer) };
                let result = (call(name, &args), last_error());
                device.plant(Faults::default());
                result
            });
            let codes = [0, 1, 2].map(|rank: usize| results[rank].0);
            assert_eq!(codes, [FW_ABORTED, FW_DEVICE_ERROR, FW_ABORTED], "{results:?}");
            assert!(results[ROOT].1.contains("memory left"), "{results:?}");
            assert!(began.elapsed() < Duration::from_secs(60), "a rank waits");
        }
    }
}

/// Returns arguments of an all-reduce in place.
fn sum_of(comm: Comm, buffer: &DeviceBuffer<f32>) -> Args {
    let address = buffer.ptr().0;
    Args { send: address, recv: address, ..case("all_reduce", "exact", true, (0, comm)).args }
}

#[test]
fn requests_and_groups_work_on_devices() {
    let simulated = Simulated::new();
    let driver = simulated.driver();
    ranks(|rank, comm| {
        ok(comm.set_memory(Some((simulated.ordinal, simulated.streams[rank]))));
        let all: Vec<_> = (0..4)
            .map(|_| DeviceBuffer::from_values(&driver, &vec![1.0_f32; COUNT]).unwrap())
            .collect();
        ok(requested(&sum_of(comm, &all[0])));
        // The group would be one call on the host, which would read the arrays.
        ok(in_group(|| {
            all[1..].iter().for_each(|buffer| ok(call("all_reduce", &sum_of(comm, buffer))));
        }));
        for buffer in &all {
            assert_eq!(buffer.to_vec(&driver).unwrap(), vec![3.0; COUNT]);
        }
        // Back to the host.
        ok(comm.set_memory(None));
        let host = case("all_reduce", "exact", true, (rank, comm)).on_host("all_reduce");
        assert_eq!(host.len(), COUNT);
    });
}

#[test]
fn what_a_device_cannot_do_is_refused_and_the_communicator_stays_usable() {
    let simulated = Simulated::new();
    let driver = simulated.driver();
    ranks(|rank, comm| {
        ok(comm.set_memory(Some((simulated.ordinal, simulated.streams[rank]))));
        let buffer = DeviceBuffer::from_values(&driver, &vec![1.0_f32; COUNT]).unwrap();
        let args = sum_of(comm, &buffer);
        let refused = |name: &str, args: &Args, says: &str| {
            assert_eq!(call(name, args), FW_UNSUPPORTED);
            assert!(last_error().contains(says), "{}", last_error());
        };
        let dense = Args { plan: "abs:1e-3,codec:dense".into(), ..args.clone() };
        refused("all_reduce", &dense, "the device has no");
        refused("send", &args, "need host memory");
        ffi::with_operation(|op| {
            refused("all_reduce", &Args { op, ..args.clone() }, "not supported");
        });
        assert_eq!(in_group(|| ok(call("send", &args))), FW_UNSUPPORTED);
        ok(call("all_reduce", &args));
        let integers = DeviceBuffer::from_values(&driver, &vec![7_i32; COUNT]).unwrap();
        let address = integers.ptr().0;
        ok(call("all_reduce", &Args { send: address, recv: address, dtype: FW_INT32, ..args }));
        assert_eq!(integers.to_vec(&driver).unwrap(), vec![7 * SIZE as i32; COUNT]);
    });
}

#[test]
fn a_device_that_fails_is_an_error_with_its_own_words() {
    let simulated = Simulated::new();
    let (driver, ready) = (simulated.driver(), Barrier::new(SIZE));
    let results = ranks(|rank, comm| {
        ok(comm.set_memory(Some((simulated.ordinal, simulated.streams[rank]))));
        let buffer = DeviceBuffer::from_values(&driver, &vec![1.0_f32; COUNT]).unwrap();
        ok(call("all_reduce", &sum_of(comm, &buffer)));
        if ready.wait().is_leader() {
            simulated.device.plant(Faults { launches: Some(1), ..Faults::default() });
        }
        ready.wait();
        (call("all_reduce", &sum_of(comm, &buffer)), last_error())
    });
    assert!(
        results.iter().any(|(result, words)| {
            *result == FW_DEVICE_ERROR && words.contains("the device refuses it")
        }),
        "{results:?}"
    );
    assert!(results.iter().all(|(result, _)| *result != FW_SUCCESS), "{results:?}");
}
