//! The suite of every transport, over threads, with values in a device's memory.

use foldwire::DType;
use foldwire::codec::CodecId;
use foldwire::device::Device;
use foldwire_conformance::{
    AnyBackend, DeviceBytes, DeviceMemory, OnDevices, Threads, integers, suite,
};
use foldwire_cuda::{DeviceBuffer, Driver, WorkspaceConfig, pool};
use foldwire_cuda_host::{SimulatedDevice, gpu};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

/// Memory of a device, which the process's pool knows by a number.
struct Memory {
    ordinal: usize,
    driver: Arc<dyn Driver>,
}

impl Memory {
    fn new(driver: Arc<dyn Driver>) -> Self {
        static N_DEVICES: AtomicUsize = AtomicUsize::new(0);
        let ordinal = N_DEVICES.fetch_add(1, Ordering::Relaxed);
        pool::register(ordinal, Arc::clone(&driver));
        Self { ordinal, driver }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // Then the pool keeps no workspace of the device.
        pool::register(self.ordinal, SimulatedDevice::new());
    }
}

/// Bytes in a device's memory, and the device.
struct Bytes(DeviceBuffer<u8>, Arc<dyn Driver>);

impl DeviceMemory for Memory {
    fn device(&self, n_lanes: usize, frame_bytes: usize) -> Box<dyn Device> {
        let config = WorkspaceConfig::new(n_lanes, frame_bytes);
        Box::new(pool::lend(self.ordinal, config, None))
    }

    fn copy_in(&self, bytes: &[u8]) -> Box<dyn DeviceBytes> {
        let buffer = DeviceBuffer::from_values(&self.driver, bytes).expect("there is memory");
        Box::new(Bytes(buffer, Arc::clone(&self.driver)))
    }

    /// The table in docs/devices.md.
    fn has(&self, codec: CodecId, dtype: DType) -> bool {
        match codec {
            CodecId::FzLight | CodecId::FzStatic | CodecId::Raw => true,
            CodecId::CuSzp | CodecId::Mpc | CodecId::ZfpRate => {
                matches!(dtype, DType::F32 | DType::F64)
            }
            _ => false,
        }
    }
}

impl DeviceBytes for Bytes {
    fn address(&self) -> u64 {
        self.0.ptr().0
    }

    fn copy_out(&self, to: &mut [u8]) {
        to.copy_from_slice(&self.0.to_vec(&self.1).expect("the device works"));
    }
}

/// Runs a check over threads, with values on a simulated device, and then on the machine's GPU, if
/// it has one. Only ranks for which `has_device` is true have the device. Nothing leaks.
fn on_each_device(has_device: fn(usize) -> bool, check: impl Fn(&suite::Make<'_>)) {
    let simulated = SimulatedDevice::new();
    let devices = [simulated.clone() as Arc<dyn Driver>].into_iter().chain(gpu());
    for memory in devices.map(Memory::new) {
        check(&|frame_bytes| {
            let backend = Threads { frame_bytes };
            AnyBackend::new(OnDevices { backend, memory: &memory, has_device })
        });
    }
    assert_eq!(simulated.n_live(), 0, "memory, streams and events are freed");
}

/// Runs all checks that make calls in a device's memory.
fn run(size: usize, has_device: fn(usize) -> bool) {
    on_each_device(has_device, |make| {
        for (name, check) in &suite::checks()[..suite::N_ON_DEVICES] {
            let start = Instant::now();
            check(make, size);
            println!("{name}, {size} ranks, {:.2} s", start.elapsed().as_secs_f64());
        }
    });
}

#[test]
fn one_rank_on_a_device() {
    run(1, |_| true);
}

#[test]
fn three_ranks_of_which_one_is_on_a_device() {
    run(3, |rank| rank == 1);
}

#[test]
fn integers_of_every_type_are_exact_on_a_device() {
    on_each_device(
        |_| true,
        |make| {
            integers::all_calls::<u8, _>(&make(None), 3);
            integers::all_calls::<i16, _>(&make(None), 3);
            integers::all_calls::<u16, _>(&make(None), 3);
            integers::all_calls::<i32, _>(&make(None), 3);
            integers::all_calls::<u32, _>(&make(None), 3);
            integers::all_calls::<i64, _>(&make(None), 3);
        },
    );
}

mod long {
    use super::*;

    #[test]
    fn two_ranks_on_a_device() {
        run(2, |_| true);
    }

    #[test]
    fn five_ranks_on_a_device() {
        run(5, |_| true);
    }
}
