//! A simulated device: the whole [`Driver`] without a GPU.
//!
//! Kernels run on the host ([`Device`]). Operations wait in their stream until
//! someone asks whether an event has happened; each question runs one operation. So code that does
//! not wait for its events finds old bytes, as on a real device. Faults can be planted, and what
//! is not freed is counted.

use crate::{Device, ffi};
use foldwire_cuda::driver::{CheckedKernels, Driver, EventId, LockedPages, PinnedPtr, StreamId};
use foldwire_cuda::{DeviceError, DevicePtr, KernelArg, Launch};
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Planted faults. Each counts down, and strikes when it is 0.
#[derive(Clone, Copy, Debug, Default)]
pub struct Faults {
    /// Allocations until there is no memory left.
    pub allocations: Option<usize>,
    /// Most allocations, of device memory or pinned memory, at a time.
    pub live: Option<usize>,
    /// Launches until one is refused.
    pub launches: Option<usize>,
    /// Operations until the device no longer responds.
    pub operations: Option<usize>,
    /// Launches until kernels round differently.
    pub rounding: Option<usize>,
    /// Questions for events until the driver refuses one. The device goes on.
    pub queries: Option<usize>,
    /// Operations until one never ends. It ends after all when other faults are planted.
    pub hang: Option<usize>,
}

/// A device that the host simulates.
pub struct SimulatedDevice {
    state: Mutex<State>,
    /// Pages of the process that are pinned memory, too.
    locked: Arc<LockedPages>,
    checked: CheckedKernels,
}

/// Bytes that the host itself has copied, to pinned memory and from there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HostCopies {
    /// Bytes written to pinned memory.
    pub written: usize,
    /// Bytes read from pinned memory.
    pub read: usize,
}

#[derive(Default)]
struct State {
    memory: Device,
    /// Pinned memory, by invented address.
    pinned: BTreeMap<u64, Vec<u8>>,
    locked: Arc<LockedPages>,
    copies: HostCopies,
    streams: HashMap<StreamId, VecDeque<Operation>>,
    /// Streams that are captured, and how many operations would be in the graph of each.
    captured: HashMap<StreamId, usize>,
    /// True for each event that has happened.
    events: HashMap<EventId, bool>,
    next_id: u64,
    /// Most streams so far that had a kernel to run at the same time.
    most_at_once: usize,
    faults: Faults,
    /// Why the device failed, if it did.
    failure: Option<String>,
}

#[derive(Debug)]
enum Operation {
    Copy { from: u64, to: u64, n_bytes: usize },
    Clear { ptr: u64, n_bytes: usize },
    Launch { kernel: String, n_blocks: u32, n_threads: u32, args: Vec<KernelArg> },
    Record(EventId),
    WaitFor(EventId),
}

impl SimulatedDevice {
    /// Makes a device without faults.
    #[must_use]
    pub fn new() -> Arc<Self> {
        Self::with_faults(Faults::default())
    }

    /// Makes a device with planted faults.
    #[must_use]
    pub fn with_faults(faults: Faults) -> Arc<Self> {
        let locked = Arc::default();
        let state = State { faults, next_id: 1, locked: Arc::clone(&locked), ..State::default() };
        let checked = CheckedKernels::default();
        Arc::new(Self { state: Mutex::new(state), locked, checked })
    }

    /// Number of frames whose pages are locked.
    #[must_use]
    pub fn n_locked(&self) -> usize {
        self.locked.len()
    }

    /// Bytes that the host itself has copied so far.
    #[must_use]
    pub fn host_copies(&self) -> HostCopies {
        self.lock().copies
    }

    /// Returns whether a copy from these bytes of the host, or to them, is under way.
    #[must_use]
    pub fn uses(&self, bytes: &[u8]) -> bool {
        let start = bytes.as_ptr().addr() as u64;
        let end = start + bytes.len() as u64;
        let is_there = |address: u64, n_bytes: usize| {
            n_bytes > 0 && address < end && start < address + n_bytes as u64
        };
        self.lock().streams.values().flatten().any(|operation| match *operation {
            Operation::Copy { from, to, n_bytes } => {
                is_there(from, n_bytes) || is_there(to, n_bytes)
            }
            _ => false,
        })
    }

    /// Most streams that had a kernel to run at the same time, since this was asked last.
    pub fn take_most_at_once(&self) -> usize {
        std::mem::take(&mut self.lock().most_at_once)
    }

    /// Begins to capture a stream: what is enqueued on it becomes a graph and does not run.
    pub fn begin_capture(&self, stream: StreamId) {
        self.lock().captured.insert(stream, 0);
    }

    /// Ends it. Returns the number of operations in the graph.
    pub fn end_capture(&self, stream: StreamId) -> usize {
        self.lock().captured.remove(&stream).unwrap_or(0)
    }

    /// Plants faults in a device that is in use.
    pub fn plant(&self, faults: Faults) {
        self.lock().faults = faults;
    }

    /// Number of allocations, streams, events and locked frames that were not freed.
    #[must_use]
    pub fn n_live(&self) -> usize {
        let state = self.lock();
        let n_allocations = state.memory.n_buffers() + state.pinned.len();
        n_allocations + state.streams.len() + state.events.len() + self.n_locked()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn enqueue(&self, stream: StreamId, operation: Operation) -> Result<(), DeviceError> {
        let mut state = self.lock();
        state.check()?;
        if let Some(n_operations) = state.captured.get_mut(&stream) {
            *n_operations += 1;
            return Ok(());
        }
        let queue = state.streams.get_mut(&stream).ok_or_else(|| failed("no such stream"))?;
        queue.push_back(operation);
        Ok(())
    }

    /// Returns the state, unless an allocation of this many bytes fails.
    fn allocating(&self, n_bytes: usize) -> Result<MutexGuard<'_, State>, DeviceError> {
        let mut state = self.lock();
        let n_live = state.memory.n_buffers() + state.pinned.len();
        let is_full = state.faults.live.is_some_and(|most| n_live >= most);
        if is_full || strikes(&mut state.faults.allocations) {
            return Err(DeviceError::OutOfMemory { n_bytes });
        }
        Ok(state)
    }
}

/// Counts a fault down. Returns whether it strikes.
fn strikes(fault: &mut Option<usize>) -> bool {
    match fault {
        None => false,
        Some(0) => true,
        Some(n) => {
            *n -= 1;
            false
        }
    }
}

fn failed(reason: impl Into<String>) -> DeviceError {
    DeviceError::Failed { during: "the simulation", reason: reason.into() }
}

impl State {
    fn check(&self) -> Result<(), DeviceError> {
        self.failure.as_ref().map_or(Ok(()), |reason| Err(failed(reason)))
    }

    fn new_id(&mut self) -> u64 {
        self.next_id += 1;
        self.next_id
    }

    /// Number of streams whose next operation is a kernel.
    fn n_at_once(&self) -> usize {
        let is_over = |operation: &Operation| match operation {
            Operation::WaitFor(event) => self.events.get(event) == Some(&true),
            _ => false,
        };
        let next = |queue: &VecDeque<Operation>| {
            let next = queue.iter().find(|operation| !is_over(operation));
            matches!(next, Some(Operation::Launch { .. }))
        };
        self.streams.values().filter(|queue| next(queue)).count()
    }

    /// Returns bytes of pinned memory.
    fn pinned(&mut self, address: u64, n_bytes: usize) -> Result<&mut [u8], String> {
        let found = self.pinned.range_mut(..=address).next_back().and_then(|(start, bytes)| {
            let offset = (address - start) as usize;
            bytes.get_mut(offset..offset + n_bytes)
        });
        found.ok_or_else(|| format!("{n_bytes} bytes at {address:#x} are not pinned memory"))
    }

    /// Flips the lowest bit of a value in each buffer that a kernel was given.
    fn flip(&mut self, args: &[u64]) {
        for &address in args {
            let mut byte = [0];
            if self.memory.holds(address, 4096) {
                self.memory.read(address + 2048, &mut byte);
                self.memory.write(address + 2048, &[byte[0] ^ 1]);
            }
        }
    }

    fn read(&mut self, address: u64, n_bytes: usize) -> Result<Vec<u8>, String> {
        if self.locked.holds(PinnedPtr(address), n_bytes) {
            return Ok(ffi::read_locked(address, n_bytes));
        }
        if !self.memory.holds(address, n_bytes) {
            return Ok(self.pinned(address, n_bytes)?.to_vec());
        }
        let mut bytes = vec![0; n_bytes];
        self.memory.read(address, &mut bytes);
        Ok(bytes)
    }

    fn write(&mut self, address: u64, bytes: &[u8]) -> Result<(), String> {
        if self.locked.holds(PinnedPtr(address), bytes.len()) {
            ffi::write_locked(address, bytes);
        } else if self.memory.holds(address, bytes.len()) {
            self.memory.write(address, bytes);
        } else {
            self.pinned(address, bytes.len())?.copy_from_slice(bytes);
        }
        Ok(())
    }

    /// Runs the next operation of a stream. Returns false if it waits, or there is none.
    fn step(&mut self, stream: StreamId) -> Result<bool, String> {
        let Some(queue) = self.streams.get(&stream) else { return Err("no such stream".into()) };
        match queue.front() {
            None => return Ok(false),
            Some(Operation::WaitFor(event)) if self.events.get(event) == Some(&false) => {
                return Ok(false);
            }
            Some(_) => {}
        }
        if strikes(&mut self.faults.hang) {
            return Ok(false);
        }
        if strikes(&mut self.faults.operations) {
            return Err("the device is lost".into());
        }
        match self.streams.get_mut(&stream).and_then(VecDeque::pop_front) {
            Some(Operation::Copy { from, to, n_bytes }) => {
                let bytes = self.read(from, n_bytes)?;
                self.write(to, &bytes)?;
            }
            Some(Operation::Clear { ptr, n_bytes }) => self.write(ptr, &vec![0; n_bytes])?,
            Some(Operation::Launch { kernel, n_blocks, n_threads, args }) => {
                let args: Vec<u64> = args.iter().map(|arg| arg.0).collect();
                let launched = self.memory.launch(&kernel, n_blocks, n_threads, &args);
                launched.map_err(|error| error.to_string())?;
                if strikes(&mut self.faults.rounding) {
                    self.flip(&args);
                }
            }
            Some(Operation::Record(event)) => {
                self.events.insert(event, true);
            }
            Some(Operation::WaitFor(_)) | None => {}
        }
        Ok(true)
    }
}

impl Driver for SimulatedDevice {
    fn description(&self) -> String {
        "a device that the host simulates".into()
    }

    fn checked(&self) -> &CheckedKernels {
        &self.checked
    }

    fn allocate(&self, n_bytes: usize) -> Result<DevicePtr, DeviceError> {
        Ok(DevicePtr(self.allocating(n_bytes)?.memory.allocate(n_bytes)))
    }

    fn free(&self, ptr: DevicePtr) {
        self.lock().memory.free(ptr.0);
    }

    fn allocate_pinned(&self, n_bytes: usize) -> Result<PinnedPtr, DeviceError> {
        let mut state = self.allocating(n_bytes)?;
        // Far from all addresses of the process.
        let address = (1 << 62) + (state.new_id() << 40);
        // Bytes that nobody wrote are not zeros.
        state.pinned.insert(address, vec![0xa5; n_bytes]);
        Ok(PinnedPtr(address))
    }

    fn free_pinned(&self, ptr: PinnedPtr, _: usize) {
        self.lock().pinned.remove(&ptr.0);
    }

    fn write_pinned(&self, to: PinnedPtr, bytes: &[u8]) {
        let mut state = self.lock();
        state.copies.written += bytes.len();
        state.pinned(to.0, bytes.len()).expect("pinned memory").copy_from_slice(bytes);
    }

    fn read_pinned(&self, from: PinnedPtr, bytes: &mut [u8]) {
        let mut state = self.lock();
        state.copies.read += bytes.len();
        bytes.copy_from_slice(state.pinned(from.0, bytes.len()).expect("pinned memory"));
    }

    fn lock_pages(&self, pages: PinnedPtr, n_bytes: usize) -> Result<(), DeviceError> {
        if !pages.0.is_multiple_of(4096) || !n_bytes.is_multiple_of(4096) {
            return Err(failed("only whole pages are locked"));
        }
        if self.locked.holds(pages, 1) {
            return Err(failed("the pages are locked already"));
        }
        self.locked.insert(pages, n_bytes);
        Ok(())
    }

    fn unlock_pages(&self, pages: PinnedPtr, _: usize) {
        assert!(self.locked.remove(pages), "these pages are not locked");
    }

    fn is_locked(&self, from: PinnedPtr, n_bytes: usize) -> bool {
        self.locked.holds(from, n_bytes)
    }

    fn new_stream(&self) -> Result<StreamId, DeviceError> {
        let mut state = self.lock();
        let stream = StreamId(state.new_id());
        state.streams.insert(stream, VecDeque::new());
        Ok(stream)
    }

    fn end_stream(&self, stream: StreamId) {
        let mut state = self.lock();
        while state.failure.is_none() && state.step(stream) == Ok(true) {}
        state.streams.remove(&stream);
    }

    fn is_captured(&self, stream: StreamId) -> Result<bool, DeviceError> {
        Ok(self.lock().captured.contains_key(&stream))
    }

    fn new_event(&self) -> Result<EventId, DeviceError> {
        let mut state = self.lock();
        let event = EventId(state.new_id());
        state.events.insert(event, true);
        Ok(event)
    }

    fn end_event(&self, event: EventId) {
        self.lock().events.remove(&event);
    }

    fn copy_in(
        &self,
        stream: StreamId,
        from: PinnedPtr,
        to: DevicePtr,
        n_bytes: usize,
    ) -> Result<(), DeviceError> {
        self.enqueue(stream, Operation::Copy { from: from.0, to: to.0, n_bytes })
    }

    fn copy_out(
        &self,
        stream: StreamId,
        from: DevicePtr,
        to: PinnedPtr,
        n_bytes: usize,
    ) -> Result<(), DeviceError> {
        self.enqueue(stream, Operation::Copy { from: from.0, to: to.0, n_bytes })
    }

    fn copy_within(
        &self,
        stream: StreamId,
        from: DevicePtr,
        to: DevicePtr,
        n_bytes: usize,
    ) -> Result<(), DeviceError> {
        if from.0.abs_diff(to.0) < n_bytes as u64 {
            return Err(failed("the ranges of a copy overlap"));
        }
        self.enqueue(stream, Operation::Copy { from: from.0, to: to.0, n_bytes })
    }

    fn clear(&self, stream: StreamId, ptr: DevicePtr, n_bytes: usize) -> Result<(), DeviceError> {
        self.enqueue(stream, Operation::Clear { ptr: ptr.0, n_bytes })
    }

    fn launch(&self, stream: StreamId, launch: &Launch<'_>) -> Result<(), DeviceError> {
        let kernel = launch.kernel.to_string();
        if strikes(&mut self.lock().faults.launches) {
            return Err(DeviceError::Launch { kernel, reason: "the device refuses it".into() });
        }
        let (n_blocks, n_threads, args) = (launch.n_blocks, launch.n_threads, launch.args.into());
        self.enqueue(stream, Operation::Launch { kernel, n_blocks, n_threads, args })
    }

    fn record(&self, stream: StreamId, event: EventId) -> Result<(), DeviceError> {
        self.lock().events.insert(event, false);
        self.enqueue(stream, Operation::Record(event))
    }

    fn has_happened(&self, event: EventId) -> Result<bool, DeviceError> {
        let mut state = self.lock();
        state.check()?;
        if strikes(&mut state.faults.queries) {
            state.faults.queries = None;
            let (during, reason) = ("the simulation", "the driver refuses it".into());
            return Err(DeviceError::Unanswered { during, reason });
        }
        let has_happened = |state: &State| {
            state.events.get(&event).copied().ok_or_else(|| failed("no such event"))
        };
        if has_happened(&state)? {
            return Ok(true);
        }
        state.most_at_once = state.most_at_once.max(state.n_at_once());
        // The device does a little of everything.
        let streams: Vec<StreamId> = state.streams.keys().copied().collect();
        for stream in streams {
            if let Err(reason) = state.step(stream) {
                state.failure = Some(reason);
                state.check()?;
            }
        }
        has_happened(&state)
    }

    fn wait_for(&self, stream: StreamId, event: EventId) -> Result<(), DeviceError> {
        self.enqueue(stream, Operation::WaitFor(event))
    }
}

impl fmt::Debug for SimulatedDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SimulatedDevice").finish_non_exhaustive()
    }
}
