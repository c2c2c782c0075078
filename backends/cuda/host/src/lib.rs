//! A device that the host's processor plays: it runs the CUDA kernels of `foldwire-cuda` without a
//! GPU, for tests. It is slow, and strict: it reports divergence at barriers and warp collectives,
//! accesses outside of the device's memory, and reads of shared memory that nothing has written or
//! that race.

mod device;
mod ffi;

pub use device::{Faults, HostCopies, SimulatedDevice};

use foldwire_cuda::{Cuda, Driver};
use std::collections::BTreeMap;
use std::io::{self, Write};
use std::sync::{Arc, LazyLock};

/// Opens the machine's GPU, once for a process. `None` if there is none, which this says.
pub fn gpu() -> Option<Arc<dyn Driver>> {
    static GPU: LazyLock<Option<Arc<dyn Driver>>> = LazyLock::new(|| {
        let (gpu, said) = match Cuda::open(0) {
            Ok(gpu) => {
                let said = format!("tests run on {} as well", gpu.description());
                (Some(gpu), said)
            }
            Err(error) => (None, format!("skipped: tests on a GPU: {error}")),
        };
        // Without `println!`, so that the line is seen although the test passes.
        let _ = writeln!(io::stdout(), "\n{said}");
        gpu
    });
    GPU.clone()
}

/// Returns a new simulated device, and the machine's GPU if there is one.
pub fn drivers() -> impl Iterator<Item = Arc<dyn Driver>> {
    [SimulatedDevice::new() as Arc<dyn Driver>].into_iter().chain(gpu())
}

/// Reason why a kernel did not run to its end.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("kernel {kernel}: {report}")]
pub struct LaunchError {
    /// Name of the kernel.
    pub kernel: String,
    /// Description of the fault.
    pub report: String,
}

/// Memory of the device, and its kernels.
#[derive(Debug, Default)]
pub struct Device {
    buffers: BTreeMap<u64, ffi::Buffer>,
}

impl Device {
    /// Makes a device without memory.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Allocates memory and returns its address, a multiple of 256. Its content is arbitrary.
    pub fn allocate(&mut self, n_bytes: usize) -> u64 {
        let buffer = ffi::Buffer::new(n_bytes);
        let address = buffer.address();
        self.buffers.insert(address, buffer);
        address
    }

    /// Frees the memory at an address that [`allocate`](Self::allocate) returned.
    ///
    /// # Panics
    /// If no memory was allocated at this address.
    pub fn free(&mut self, address: u64) {
        assert!(self.buffers.remove(&address).is_some(), "nothing was allocated at {address:#x}");
    }

    /// Number of allocations that have not been freed.
    #[must_use]
    pub fn n_buffers(&self) -> usize {
        self.buffers.len()
    }

    /// Returns whether all these bytes are the device's memory, in one allocation.
    #[must_use]
    pub fn holds(&self, address: u64, n_bytes: usize) -> bool {
        self.find(address, n_bytes).is_some()
    }

    /// Copies bytes from the host.
    ///
    /// # Panics
    /// If they do not fit one allocation.
    pub fn write(&mut self, address: u64, bytes: &[u8]) {
        let Some((buffer, offset)) = self.find(address, bytes.len()) else {
            panic!("{} bytes at {address:#x} are not the device's", bytes.len());
        };
        buffer.write(offset, bytes);
    }

    /// Copies bytes to the host.
    ///
    /// # Panics
    /// If they are not in one allocation.
    pub fn read(&self, address: u64, bytes: &mut [u8]) {
        let Some((buffer, offset)) = self.find(address, bytes.len()) else {
            panic!("{} bytes at {address:#x} are not the device's", bytes.len());
        };
        buffer.read(offset, bytes);
    }

    /// Runs a kernel. Each argument has 8 bytes.
    ///
    /// # Errors
    /// [`LaunchError`] if there is no such kernel, or it does what a kernel must not do.
    pub fn launch(
        &mut self,
        kernel: &str,
        n_blocks: u32,
        n_threads: u32,
        args: &[u64],
    ) -> Result<(), LaunchError> {
        let ranges: Vec<_> = self.buffers.values().map(ffi::Buffer::range).collect();
        ffi::launch(kernel, n_blocks, n_threads, args, &ranges)
            .map_err(|report| LaunchError { kernel: kernel.into(), report })
    }

    fn find(&self, address: u64, n_bytes: usize) -> Option<(&ffi::Buffer, usize)> {
        let (start, buffer) = self.buffers.range(..=address).next_back()?;
        let offset = usize::try_from(address - start).ok()?;
        (offset.checked_add(n_bytes)? <= buffer.len()).then_some((buffer, offset))
    }
}

/// Returns the names of all kernels.
#[must_use]
pub fn kernels() -> Vec<String> {
    (0..).map_while(ffi::kernel).collect()
}
