//! NVIDIA's driver as a [`Driver`]. It is loaded when the first device is opened.

use super::Nvrtc;
use crate::driver::{
    CheckedKernels, Driver, EventId, LockedPages, PinnedPtr, StreamId, lock_frames_for,
};
use crate::kernel::Module;
use crate::{DeviceError, DevicePtr, Launch};
use cudarc::driver::result::{self, DriverError};
use cudarc::driver::sys::{self, CUdevice_attribute_enum as Attribute};
use foldwire::device::FrameLocking;
use std::collections::HashMap;
use std::ffi::{CString, c_void};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::{fmt, mem, slice};

const REMEDY: &str = "install NVIDIA's driver, and see `nvidia-smi`";

/// An NVIDIA device.
///
/// It uses the device's primary context, like CUDA's runtime, torch and CuPy, so addresses and
/// streams of these libraries are valid here. Kernels are compiled for the device when they are
/// first used, which takes about a second for each codec and type.
pub struct Cuda {
    device: sys::CUdevice,
    context: sys::CUcontext,
    name: String,
    /// Compute capability.
    capability: (i32, i32),
    modules: Mutex<HashMap<Module, LoadedModule>>,
    checked: CheckedKernels,
    /// New frames are locked while the device is open.
    _locking: FrameLocking,
}

/// Locked pages of this process: they are pinned memory of every device.
static LOCKED: LockedPages = LockedPages::new();

// SAFETY: The driver's handles may be used from all threads, by CUDA's rules; each function makes
// the context current for its thread first.
unsafe impl Send for Cuda {}
// SAFETY: As above. The only state that changes is behind a mutex.
unsafe impl Sync for Cuda {}

/// A module in the device's memory, and its kernels so far.
struct LoadedModule {
    module: sys::CUmodule,
    kernels: HashMap<String, sys::CUfunction>,
}

impl Cuda {
    /// Opens device number `ordinal`.
    ///
    /// # Errors
    /// [`DeviceError::Missing`] if the driver or the device is missing, with what to do about it;
    /// [`DeviceError::OutOfMemory`] and [`DeviceError::Failed`] if it is there.
    pub fn open(ordinal: usize) -> Result<Arc<dyn Driver>, DeviceError> {
        let n_devices = Self::n_devices()?;
        let number = i32::try_from(ordinal).ok().filter(|_| ordinal < n_devices);
        let Some(number) = number else {
            return Err(missing(format!("there is no device {ordinal}, of {n_devices}")));
        };
        let opened = (|| {
            let (device, name, capability) = found(number)?;
            // SAFETY: `found` returned the device. The context is released when `Cuda` is dropped.
            let context = unsafe { result::primary_ctx::retain(device) }?;
            Ok((device, context, name, capability))
        })();
        let (device, context, name, capability) =
            opened.map_err(|error| refusal("opening the device", error))?;
        Ok(Arc::new_cyclic(|cuda: &Weak<Self>| {
            let (modules, _locking) = (Mutex::default(), lock_frames_for(cuda.clone()));
            let checked = CheckedKernels::default();
            Self { device, context, name, capability, modules, checked, _locking }
        }))
    }

    /// Number of devices of this machine.
    ///
    /// # Errors
    /// [`DeviceError::Missing`] without a driver, and [`DeviceError::Failed`].
    pub fn n_devices() -> Result<usize, DeviceError> {
        // SAFETY: Loading the driver's library has no requirements.
        if !unsafe { sys::is_culib_present() } {
            return Err(missing("NVIDIA's driver (libcuda) was not found".into()));
        }
        let counted = result::init().and_then(|()| result::device::get_count());
        let n_devices = counted.map_err(|error| refusal("starting the driver", error))?;
        Ok(usize::try_from(n_devices).unwrap_or(0))
    }

    /// Version of CUDA that the driver offers: major and minor.
    ///
    /// # Errors
    /// [`DeviceError::Missing`] without a driver, and [`DeviceError::Failed`].
    pub fn driver_version() -> Result<(i32, i32), DeviceError> {
        Self::n_devices()?;
        let mut version = 0;
        // SAFETY: The driver is loaded, and the pointer is that of a number.
        let said = unsafe { sys::cuDriverGetVersion(&raw mut version) }.result();
        said.map_err(|error| refusal("asking for the version", error))?;
        Ok((version / 1000, version % 1000 / 10))
    }

    /// Version of NVRTC, which compiles the kernels: major and minor.
    ///
    /// # Errors
    /// [`DeviceError::Missing`] if it was not found.
    pub fn compiler_version() -> Result<(i32, i32), DeviceError> {
        Nvrtc::get()?.version()
    }

    /// Name and compute capability of a device. Does not open it.
    ///
    /// # Errors
    /// [`DeviceError::Missing`] if the driver or the device is missing, and
    /// [`DeviceError::Failed`].
    pub fn describe(ordinal: usize) -> Result<(String, (i32, i32)), DeviceError> {
        Self::n_devices()?;
        let number = i32::try_from(ordinal).unwrap_or(i32::MAX);
        let described = found(number);
        let (_, name, capability) =
            described.map_err(|error| refusal("describing the device", error))?;
        Ok((name, capability))
    }

    /// Makes the context current during a call, and turns the driver's error into ours.
    fn with<R>(
        &self,
        during: &'static str,
        call: impl FnOnce() -> Result<R, DriverError>,
    ) -> Result<R, DeviceError> {
        let called = Current::new(self.context).and_then(|_current| call());
        called.map_err(|error| {
            let reason = words(error);
            if leaves_running(error) {
                DeviceError::Unanswered { during, reason }
            } else {
                DeviceError::Failed { during, reason }
            }
        })
    }

    /// Allocates memory of this many bytes.
    fn allocating<R>(
        &self,
        n_bytes: usize,
        call: impl FnOnce() -> Result<R, DriverError>,
    ) -> Result<R, DeviceError> {
        let mut is_full = false;
        let allocated = self.with("allocating", || {
            call().inspect_err(|error| {
                is_full = error.0 == sys::cudaError_enum::CUDA_ERROR_OUT_OF_MEMORY;
            })
        });
        allocated
            .map_err(|error| if is_full { DeviceError::OutOfMemory { n_bytes } } else { error })
    }

    /// Does the same without a result, when something is freed.
    fn free_with(&self, call: impl FnOnce() -> Result<(), DriverError>) {
        // A device that is lost has freed everything.
        let _ = self.with("freeing", call);
    }

    /// Returns a kernel, and compiles its module if this is the first one of it.
    fn kernel(&self, launch: &Launch<'_>) -> Result<sys::CUfunction, DeviceError> {
        let mut modules = self.modules.lock().unwrap_or_else(PoisonError::into_inner);
        let loaded = match modules.entry(launch.module) {
            std::collections::hash_map::Entry::Occupied(entry) => entry.into_mut(),
            std::collections::hash_map::Entry::Vacant(entry) => {
                let source = launch.module.source();
                let code = Nvrtc::get()?.compile_for(&source, self.capability)?;
                // SAFETY: The compiler made the code, and the driver copies it.
                let load = || unsafe { result::module::load_data(code.as_ptr().cast()) };
                let module = self.with("loading kernels", load)?;
                entry.insert(LoadedModule { module, kernels: HashMap::new() })
            }
        };
        if let Some(kernel) = loaded.kernels.get(launch.kernel) {
            return Ok(*kernel);
        }
        let name = CString::new(launch.kernel).unwrap_or_default();
        // SAFETY: The module is loaded.
        let get = || unsafe { result::module::get_function(loaded.module, name) };
        let kernel = self.with("looking a kernel up", get)?;
        loaded.kernels.insert(launch.kernel.to_string(), kernel);
        Ok(kernel)
    }
}

impl Drop for Cuda {
    fn drop(&mut self) {
        let modules = mem::take(&mut self.modules).into_inner();
        for loaded in modules.unwrap_or_else(PoisonError::into_inner).into_values() {
            // SAFETY: No kernel of it runs: everything that enqueues kernels holds `Cuda`.
            self.free_with(|| unsafe { result::module::unload(loaded.module) });
        }
        // SAFETY: `open` retained the context.
        let _ = unsafe { result::primary_ctx::release(self.device) };
    }
}

impl fmt::Debug for Cuda {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cuda").field("name", &self.name).finish_non_exhaustive()
    }
}

/// Makes a context current for this thread, and lets the thread call functions that a capture of
/// another thread's stream would refuse. Both are undone when it is dropped: the context and the
/// mode are the program's.
struct Current(Option<sys::CUstreamCaptureMode>);

impl Current {
    fn new(context: sys::CUcontext) -> Result<Self, DriverError> {
        // SAFETY: `Cuda` keeps the context while it uses it.
        unsafe { sys::cuCtxPushCurrent_v2(context) }.result()?;
        let mut mode = sys::CUstreamCaptureMode_enum::CU_STREAM_CAPTURE_MODE_RELAXED;
        // SAFETY: The pointer is that of a mode.
        let exchanged = unsafe { sys::cuThreadExchangeStreamCaptureMode(&raw mut mode) }.result();
        // After an error the mode is as it was. An error of an earlier kernel meets the call, too.
        Ok(Self(exchanged.is_ok().then_some(mode)))
    }
}

impl Drop for Current {
    fn drop(&mut self) {
        let mut context = std::ptr::null_mut();
        if let Some(mode) = &mut self.0 {
            // SAFETY: As in `new`.
            let _ = unsafe { sys::cuThreadExchangeStreamCaptureMode(&raw mut *mode) };
        }
        // SAFETY: The pointer is that of a context. `new` pushed the one that this takes off.
        let _ = unsafe { sys::cuCtxPopCurrent_v2(&raw mut context) };
    }
}

/// Returns whether the device goes on after an error, which concerns only the request: memory is
/// missing, or a stream is being captured. All errors of kernels end everything on the device.
const fn leaves_running(error: DriverError) -> bool {
    use sys::cudaError_enum as Code;
    matches!(
        error.0,
        Code::CUDA_ERROR_OUT_OF_MEMORY
            | Code::CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED
            | Code::CUDA_ERROR_STREAM_CAPTURE_INVALIDATED
            | Code::CUDA_ERROR_STREAM_CAPTURE_MERGE
            | Code::CUDA_ERROR_STREAM_CAPTURE_UNMATCHED
            | Code::CUDA_ERROR_STREAM_CAPTURE_UNJOINED
            | Code::CUDA_ERROR_STREAM_CAPTURE_ISOLATION
            | Code::CUDA_ERROR_STREAM_CAPTURE_IMPLICIT
            | Code::CUDA_ERROR_CAPTURED_EVENT
            | Code::CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD
    )
}

fn missing(what: String) -> DeviceError {
    DeviceError::Missing { what, remedy: REMEDY }
}

/// Returns the error of a device that cannot be opened.
fn refusal(during: &'static str, error: DriverError) -> DeviceError {
    unopened(during, error, words(error))
}

/// Does the same with the driver's words.
fn unopened(during: &'static str, DriverError(code): DriverError, words: String) -> DeviceError {
    use sys::cudaError_enum as Code;
    match code {
        Code::CUDA_ERROR_OUT_OF_MEMORY => DeviceError::OutOfMemory { n_bytes: 0 },
        Code::CUDA_ERROR_NO_DEVICE
        | Code::CUDA_ERROR_INVALID_DEVICE
        | Code::CUDA_ERROR_STUB_LIBRARY
        | Code::CUDA_ERROR_NOT_FOUND
        | Code::CUDA_ERROR_FILE_NOT_FOUND
        | Code::CUDA_ERROR_SHARED_OBJECT_SYMBOL_NOT_FOUND => missing(words),
        _ => DeviceError::Failed { during, reason: words },
    }
}

/// Looks a device up. Returns its handle, name and compute capability.
fn found(number: i32) -> Result<(sys::CUdevice, String, (i32, i32)), DriverError> {
    let device = result::device::get(number)?;
    let name = result::device::get_name(device)?;
    // SAFETY: `get` returned the device.
    let attribute = |which| unsafe { result::device::get_attribute(device, which) };
    let capability = (
        attribute(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?,
        attribute(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?,
    );
    Ok((device, name, capability))
}

/// Returns an error in the driver's words.
fn words(error: DriverError) -> String {
    let text = |text: Result<&std::ffi::CStr, DriverError>| {
        text.map_or_else(|_| format!("{error:?}"), |text| text.to_string_lossy().into_owned())
    };
    text(error.error_string())
}

const fn stream_of(stream: StreamId) -> sys::CUstream {
    stream.0 as sys::CUstream
}

const fn event_of(event: EventId) -> sys::CUevent {
    event.0 as sys::CUevent
}

impl Driver for Cuda {
    fn description(&self) -> String {
        let (major, minor) = self.capability;
        format!("{} (compute capability {major}.{minor})", self.name)
    }

    fn checked(&self) -> &CheckedKernels {
        &self.checked
    }

    fn allocate(&self, n_bytes: usize) -> Result<DevicePtr, DeviceError> {
        // SAFETY: Memory without a type has no requirements.
        let memory = self.allocating(n_bytes, || unsafe { result::malloc_sync(n_bytes) });
        memory.map(DevicePtr)
    }

    fn free(&self, ptr: DevicePtr) {
        // SAFETY: `allocate` returned the address. Freeing waits for what uses the memory.
        self.free_with(|| unsafe { result::free_sync(ptr.0) });
    }

    fn allocate_pinned(&self, n_bytes: usize) -> Result<PinnedPtr, DeviceError> {
        // SAFETY: As in `allocate`. Flag 0 makes memory that the device's context can copy.
        let memory = self.allocating(n_bytes, || unsafe { result::malloc_host(n_bytes, 0) })?;
        // SAFETY: The memory has this many bytes. Zeros make all of it readable.
        unsafe { memory.cast::<u8>().write_bytes(0, n_bytes) };
        Ok(PinnedPtr(memory as u64))
    }

    fn free_pinned(&self, ptr: PinnedPtr, _: usize) {
        // SAFETY: `allocate_pinned` returned the address, and no copy is under way.
        self.free_with(|| unsafe { result::free_host(ptr.0 as *mut c_void) });
    }

    fn write_pinned(&self, to: PinnedPtr, bytes: &[u8]) {
        // SAFETY: The crate's `Staging` asks only for bytes of its own memory, from which no copy
        // is under way.
        let to = unsafe { slice::from_raw_parts_mut(to.0 as *mut u8, bytes.len()) };
        to.copy_from_slice(bytes);
    }

    fn read_pinned(&self, from: PinnedPtr, bytes: &mut [u8]) {
        // SAFETY: As in `write_pinned`.
        let from = unsafe { slice::from_raw_parts(from.0 as *const u8, bytes.len()) };
        bytes.copy_from_slice(from);
    }

    fn lock_pages(&self, pages: PinnedPtr, n_bytes: usize) -> Result<(), DeviceError> {
        let flags = sys::CU_MEMHOSTREGISTER_PORTABLE;
        // SAFETY: Memory of the process. Its owner unlocks it before it frees it.
        let lock = || unsafe { sys::cuMemHostRegister_v2(pages.0 as *mut c_void, n_bytes, flags) };
        self.with("locking pages", || lock().result())?;
        LOCKED.insert(pages, n_bytes);
        Ok(())
    }

    fn unlock_pages(&self, pages: PinnedPtr, _: usize) {
        LOCKED.remove(pages);
        // SAFETY: `lock_pages` locked it, and no copy is under way.
        self.free_with(|| unsafe { sys::cuMemHostUnregister(pages.0 as *mut c_void) }.result());
    }

    fn is_locked(&self, from: PinnedPtr, n_bytes: usize) -> bool {
        LOCKED.holds(from, n_bytes)
    }

    fn new_stream(&self) -> Result<StreamId, DeviceError> {
        let kind = result::stream::StreamKind::NonBlocking;
        let stream = self.with("making a stream", || result::stream::create(kind))?;
        Ok(StreamId(stream as u64))
    }

    fn end_stream(&self, stream: StreamId) {
        // SAFETY: `new_stream` returned it. The driver first completes what it has to do.
        self.free_with(|| unsafe { result::stream::destroy(stream_of(stream)) });
    }

    fn is_captured(&self, stream: StreamId) -> Result<bool, DeviceError> {
        let none = sys::CUstreamCaptureStatus_enum::CU_STREAM_CAPTURE_STATUS_NONE;
        let mut status = none;
        // SAFETY: The stream exists, by the trait's contract, and the pointer is that of a status.
        let mut ask = || unsafe { sys::cuStreamIsCapturing(stream_of(stream), &raw mut status) };
        self.with("asking for a capture", || ask().result())?;
        Ok(status != none)
    }

    fn new_event(&self) -> Result<EventId, DeviceError> {
        let flags = sys::CUevent_flags::CU_EVENT_DISABLE_TIMING;
        let event = self.with("making an event", || result::event::create(flags))?;
        Ok(EventId(event as u64))
    }

    fn end_event(&self, event: EventId) {
        // SAFETY: `new_event` returned it.
        self.free_with(|| unsafe { result::event::destroy(event_of(event)) });
    }

    fn copy_in(
        &self,
        stream: StreamId,
        from: PinnedPtr,
        to: DevicePtr,
        n_bytes: usize,
    ) -> Result<(), DeviceError> {
        // SAFETY: Pinned memory of `Staging`, or of a frame. The one or the lane that holds the
        // other keeps it, unchanged, until the copy is done.
        let from = unsafe { slice::from_raw_parts(from.0 as *const u8, n_bytes) };
        // SAFETY: The destination is memory of the device, by the trait's contract.
        let copy = || unsafe { result::memcpy_htod_async(to.0, from, stream_of(stream)) };
        self.with("copying to the device", copy)
    }

    fn copy_out(
        &self,
        stream: StreamId,
        from: DevicePtr,
        to: PinnedPtr,
        n_bytes: usize,
    ) -> Result<(), DeviceError> {
        // SAFETY: Pinned memory of `Staging`, or of a frame. The one or the lane that holds the
        // other uses it only when the copy is done.
        let to = unsafe { slice::from_raw_parts_mut(to.0 as *mut u8, n_bytes) };
        // SAFETY: The source is memory of the device, by the trait's contract.
        let copy = || unsafe { result::memcpy_dtoh_async(to, from.0, stream_of(stream)) };
        self.with("copying to the host", copy)
    }

    fn copy_within(
        &self,
        stream: StreamId,
        from: DevicePtr,
        to: DevicePtr,
        n_bytes: usize,
    ) -> Result<(), DeviceError> {
        // SAFETY: Both are memory of the device, by the trait's contract.
        let copy =
            || unsafe { result::memcpy_dtod_async(to.0, from.0, n_bytes, stream_of(stream)) };
        self.with("copying on the device", copy)
    }

    fn clear(&self, stream: StreamId, ptr: DevicePtr, n_bytes: usize) -> Result<(), DeviceError> {
        // SAFETY: Memory of the device, by the trait's contract.
        let clear = || unsafe { result::memset_d8_async(ptr.0, 0, n_bytes, stream_of(stream)) };
        self.with("clearing memory", clear)
    }

    fn launch(&self, stream: StreamId, launch: &Launch<'_>) -> Result<(), DeviceError> {
        let refused = |error: DeviceError| DeviceError::Launch {
            kernel: launch.kernel.to_string(),
            reason: error.to_string(),
        };
        let kernel = self.kernel(launch).map_err(refused)?;
        let mut args: Vec<u64> = launch.args.iter().map(|arg| arg.0).collect();
        let mut pointers: Vec<*mut c_void> =
            args.iter_mut().map(|arg| std::ptr::from_mut(arg).cast()).collect();
        let (grid, block) = ((launch.n_blocks, 1, 1), (launch.n_threads, 1, 1));
        // SAFETY: The kernel takes as many arguments, each of 8 bytes: tests run all launches on
        // the simulated device, which checks it. The driver copies the arguments.
        let run = || unsafe {
            result::launch_kernel(kernel, grid, block, 0, stream_of(stream), &mut pointers)
        };
        self.with("launching", run).map_err(refused)
    }

    fn record(&self, stream: StreamId, event: EventId) -> Result<(), DeviceError> {
        // SAFETY: Both exist, by the trait's contract.
        let record = || unsafe { result::event::record(event_of(event), stream_of(stream)) };
        self.with("recording an event", record)
    }

    fn has_happened(&self, event: EventId) -> Result<bool, DeviceError> {
        self.with("running kernels and copies", || {
            // SAFETY: The event exists, by the trait's contract.
            match unsafe { result::event::query(event_of(event)) } {
                Ok(()) => Ok(true),
                Err(DriverError(sys::cudaError_enum::CUDA_ERROR_NOT_READY)) => Ok(false),
                Err(error) => Err(error),
            }
        })
    }

    fn wait_for(&self, stream: StreamId, event: EventId) -> Result<(), DeviceError> {
        let flags = sys::CUevent_wait_flags::CU_EVENT_WAIT_DEFAULT;
        // SAFETY: Both exist, by the trait's contract.
        let wait =
            || unsafe { result::stream::wait_event(stream_of(stream), event_of(event), flags) };
        self.with("waiting for an event", wait)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use foldwire::error::DeviceErrorKind;
    use sys::cudaError_enum as Code;

    #[test]
    fn only_a_driver_or_device_that_is_not_there_is_missing() {
        let open = |code| unopened("opening the device", DriverError(code), "words".into());
        for code in [Code::CUDA_ERROR_NO_DEVICE, Code::CUDA_ERROR_STUB_LIBRARY] {
            assert!(matches!(open(code), DeviceError::Missing { .. }), "{code:?}");
        }
        for code in [
            Code::CUDA_ERROR_ECC_UNCORRECTABLE,
            Code::CUDA_ERROR_SYSTEM_NOT_READY,
            Code::CUDA_ERROR_DEVICE_UNAVAILABLE,
            Code::CUDA_ERROR_UNKNOWN,
        ] {
            let error = open(code);
            assert_eq!(error.kind(), DeviceErrorKind::Lost);
            assert_eq!(error.to_string(), "the device failed in opening the device: words");
        }
        let full = open(Code::CUDA_ERROR_OUT_OF_MEMORY);
        assert_eq!(full.kind(), DeviceErrorKind::OutOfMemory);
        assert_eq!(full.to_string(), "the device has too little memory left");
    }

    #[test]
    fn a_device_without_its_software_is_not_lost() {
        assert_eq!(missing("no compiler".into()).kind(), DeviceErrorKind::Launch);
    }
}
