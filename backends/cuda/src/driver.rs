//! A device as the rest of this crate uses it: memory, streams, copies and launches.
//!
//! [`Cuda`](crate::Cuda) implements this with NVIDIA's driver. Tests implement it with the host's
//! processor. All functions may be called from any thread.

use crate::{DeviceError, DevicePtr, Launch, Launcher};
use foldwire::DType;
use foldwire::codec::CodecId;
use foldwire::device::{FrameLocking, PageLock, PageLocker, lock_frames};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError, RwLock, Weak};

/// Address of pinned memory: memory of the host which the device can copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PinnedPtr(pub u64);

impl PinnedPtr {
    pub(crate) const fn offset(self, n_bytes: usize) -> Self {
        Self(self.0 + n_bytes as u64)
    }
}

/// A queue of copies and kernels, which run in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct StreamId(pub u64);

/// A point in a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct EventId(pub u64);

/// A device.
///
/// Addresses that the functions take must lie in memory of the device. Sizes are in bytes.
pub trait Driver: Send + Sync + fmt::Debug {
    /// Describes the device and its software in a line.
    fn description(&self) -> String;

    /// Kernels that gave the host's bytes on this device.
    fn checked(&self) -> &CheckedKernels;

    /// Allocates memory of the device.
    ///
    /// # Errors
    /// [`DeviceError::OutOfMemory`].
    fn allocate(&self, n_bytes: usize) -> Result<DevicePtr, DeviceError>;

    /// Frees memory from [`allocate`](Self::allocate).
    fn free(&self, ptr: DevicePtr);

    /// Allocates memory of the host which the device can copy.
    ///
    /// # Errors
    /// [`DeviceError::OutOfMemory`].
    fn allocate_pinned(&self, n_bytes: usize) -> Result<PinnedPtr, DeviceError>;

    /// Frees memory from [`allocate_pinned`](Self::allocate_pinned).
    fn free_pinned(&self, ptr: PinnedPtr, n_bytes: usize);

    /// Writes to pinned memory, at once. No enqueued copy uses these bytes.
    fn write_pinned(&self, to: PinnedPtr, bytes: &[u8]);

    /// Reads pinned memory, at once. No enqueued copy writes these bytes.
    fn read_pinned(&self, from: PinnedPtr, bytes: &mut [u8]);

    /// Locks pages of the host, which become pinned memory until they are unlocked.
    ///
    /// # Errors
    /// [`DeviceError`] if they cannot be locked, or are.
    fn lock_pages(&self, pages: PinnedPtr, n_bytes: usize) -> Result<(), DeviceError>;

    /// Unlocks pages from [`lock_pages`](Self::lock_pages). No copy uses them.
    fn unlock_pages(&self, pages: PinnedPtr, n_bytes: usize);

    /// Returns whether these bytes lie in pages that are locked.
    fn is_locked(&self, from: PinnedPtr, n_bytes: usize) -> bool;

    /// Makes a stream.
    ///
    /// # Errors
    /// [`DeviceError`] if the device fails.
    fn new_stream(&self) -> Result<StreamId, DeviceError>;

    /// Ends a stream from [`new_stream`](Self::new_stream).
    fn end_stream(&self, stream: StreamId);

    /// Returns whether a graph is being made of what is enqueued on the stream. The device then
    /// does nothing of it, and no event there happens.
    ///
    /// # Errors
    /// [`DeviceError`] if the device fails, or a graph is being made of what other streams do, for
    /// which this one waits.
    fn is_captured(&self, stream: StreamId) -> Result<bool, DeviceError>;

    /// Makes an event.
    ///
    /// # Errors
    /// [`DeviceError`] if the device fails.
    fn new_event(&self) -> Result<EventId, DeviceError>;

    /// Ends an event.
    fn end_event(&self, event: EventId);

    /// Enqueues a copy from the host's pinned memory, which nothing writes until it is done.
    ///
    /// # Errors
    /// [`DeviceError`] if the device fails.
    fn copy_in(
        &self,
        stream: StreamId,
        from: PinnedPtr,
        to: DevicePtr,
        n_bytes: usize,
    ) -> Result<(), DeviceError>;

    /// Enqueues a copy to the host's pinned memory, which nothing else uses until it is done.
    ///
    /// # Errors
    /// [`DeviceError`] if the device fails.
    fn copy_out(
        &self,
        stream: StreamId,
        from: DevicePtr,
        to: PinnedPtr,
        n_bytes: usize,
    ) -> Result<(), DeviceError>;

    /// Enqueues a copy within the device. The ranges do not overlap.
    ///
    /// # Errors
    /// [`DeviceError`] if the device fails.
    fn copy_within(
        &self,
        stream: StreamId,
        from: DevicePtr,
        to: DevicePtr,
        n_bytes: usize,
    ) -> Result<(), DeviceError>;

    /// Enqueues setting bytes to 0.
    ///
    /// # Errors
    /// [`DeviceError`] if the device fails.
    fn clear(&self, stream: StreamId, ptr: DevicePtr, n_bytes: usize) -> Result<(), DeviceError>;

    /// Enqueues a kernel.
    ///
    /// # Errors
    /// [`DeviceError::Launch`] if it cannot be compiled or started.
    fn launch(&self, stream: StreamId, launch: &Launch<'_>) -> Result<(), DeviceError>;

    /// Lets `event` stand for all that the stream has to do so far.
    ///
    /// # Errors
    /// [`DeviceError`] if the device fails; [`DeviceError::Unanswered`] if it goes on.
    fn record(&self, stream: StreamId, event: EventId) -> Result<(), DeviceError>;

    /// Returns whether an event has happened.
    ///
    /// # Errors
    /// [`DeviceError`] if something before the event failed, and nothing enqueued goes on;
    /// [`DeviceError::Unanswered`] if the device may go on.
    fn has_happened(&self, event: EventId) -> Result<bool, DeviceError>;

    /// Lets a stream wait for an event.
    ///
    /// # Errors
    /// [`DeviceError`] if the device fails.
    fn wait_for(&self, stream: StreamId, event: EventId) -> Result<(), DeviceError>;
}

/// Locks large frames that transports of this process allocate from now on, so that the device
/// copies from them and to them by itself. [`Cuda::open`](crate::Cuda::open) does this.
pub fn lock_frames_for(driver: Weak<dyn Driver>) -> FrameLocking {
    lock_frames(Arc::new(DriverLocker(driver)))
}

/// Locks pages for a device, while it is open.
struct DriverLocker(Weak<dyn Driver>);

impl PageLocker for DriverLocker {
    fn lock(&self, pages: &[u8]) -> Option<PageLock> {
        let driver = self.0.upgrade()?;
        let (start, n_bytes) = (PinnedPtr(pages.as_ptr().expose_provenance() as u64), pages.len());
        driver.lock_pages(start, n_bytes).ok()?;
        Some(Box::new(LockedMemory { driver, start, n_bytes }))
    }
}

/// Locked pages. They keep the device open.
struct LockedMemory {
    driver: Arc<dyn Driver>,
    start: PinnedPtr,
    n_bytes: usize,
}

impl Drop for LockedMemory {
    fn drop(&mut self) {
        self.driver.unlock_pages(self.start, self.n_bytes);
    }
}

/// Kernels that a device was checked with, by codec and type. Each implementation of [`Driver`]
/// keeps a list.
#[derive(Debug, Default)]
pub struct CheckedKernels(Mutex<Vec<(CodecId, DType)>>);

impl CheckedKernels {
    /// Returns whether these were checked.
    #[must_use]
    pub fn contains(&self, codec: CodecId, dtype: DType) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).contains(&(codec, dtype))
    }

    /// Adds kernels.
    pub fn insert(&self, codec: CodecId, dtype: DType) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push((codec, dtype));
    }
}

/// Addresses and lengths of locked pages. Each implementation of [`Driver`] keeps one.
#[derive(Debug, Default)]
pub struct LockedPages(RwLock<BTreeMap<u64, usize>>);

impl LockedPages {
    /// Makes an empty list.
    #[must_use]
    pub const fn new() -> Self {
        Self(RwLock::new(BTreeMap::new()))
    }

    /// Number of pieces of memory.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.read().unwrap_or_else(PoisonError::into_inner).len()
    }

    /// Returns whether no pages are locked.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Adds pages.
    pub fn insert(&self, pages: PinnedPtr, n_bytes: usize) {
        self.0.write().unwrap_or_else(PoisonError::into_inner).insert(pages.0, n_bytes);
    }

    /// Removes pages. Returns whether they were there.
    pub fn remove(&self, pages: PinnedPtr) -> bool {
        self.0.write().unwrap_or_else(PoisonError::into_inner).remove(&pages.0).is_some()
    }

    /// Returns whether bytes lie in pages of the list.
    #[must_use]
    pub fn holds(&self, from: PinnedPtr, n_bytes: usize) -> bool {
        let all = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let found = all.range(..=from.0).next_back();
        found.is_some_and(|(start, len)| from.0 - start + n_bytes as u64 <= *len as u64)
    }
}

/// A stream, which ends when it is dropped.
#[derive(Debug)]
pub struct Stream {
    driver: Arc<dyn Driver>,
    id: StreamId,
    event: EventId,
    /// True once the end of what is enqueued is marked, for a call that ends.
    is_ending: bool,
}

impl Stream {
    /// Makes a stream.
    ///
    /// # Errors
    /// [`DeviceError`] if the device fails.
    pub fn new(driver: &Arc<dyn Driver>) -> Result<Self, DeviceError> {
        let id = driver.new_stream()?;
        let event = driver.new_event().inspect_err(|_| driver.end_stream(id))?;
        Ok(Self { driver: Arc::clone(driver), id, event, is_ending: false })
    }

    /// The device.
    #[must_use]
    pub fn driver(&self) -> &dyn Driver {
        &*self.driver
    }

    /// The stream's name.
    #[must_use]
    pub const fn id(&self) -> StreamId {
        self.id
    }

    /// Enqueues setting bytes to 0.
    ///
    /// # Errors
    /// [`DeviceError`] if the device fails.
    pub fn clear(&self, ptr: DevicePtr, n_bytes: usize) -> Result<(), DeviceError> {
        self.driver.clear(self.id, ptr, n_bytes)
    }

    /// Enqueues a copy within the device. The ranges do not overlap.
    ///
    /// # Errors
    /// [`DeviceError`] if the device fails.
    pub fn copy(&self, from: DevicePtr, to: DevicePtr, n_bytes: usize) -> Result<(), DeviceError> {
        if n_bytes == 0 {
            // An empty array may be anywhere.
            return Ok(());
        }
        self.driver.copy_within(self.id, from, to, n_bytes)
    }

    /// Enqueues a copy to pinned memory.
    pub(crate) fn copy_out(
        &self,
        from: DevicePtr,
        to: PinnedPtr,
        n_bytes: usize,
    ) -> Result<(), DeviceError> {
        self.driver.copy_out(self.id, from, to, n_bytes)
    }

    /// Marks what the stream has to do so far.
    ///
    /// # Errors
    /// [`DeviceError`] if the device fails.
    pub fn mark(&self) -> Result<(), DeviceError> {
        self.driver.record(self.id, self.event)
    }

    /// Returns whether everything before the latest mark is done.
    ///
    /// # Errors
    /// [`DeviceError`] if something before the mark failed.
    pub fn is_done(&self) -> Result<bool, DeviceError> {
        self.driver.has_happened(self.event)
    }

    /// The event of the latest mark.
    pub(crate) const fn event(&self) -> EventId {
        self.event
    }

    /// Lets the stream wait for an event.
    pub(crate) fn wait_for(&self, event: EventId) -> Result<(), DeviceError> {
        self.driver.wait_for(self.id, event)
    }

    /// Returns whether the stream has done everything that was enqueued when this was first asked.
    /// After [`DeviceError::Unanswered`] the device may go on.
    pub(crate) fn poll_end(&mut self) -> Result<bool, DeviceError> {
        if !self.is_ending {
            self.mark()?;
            self.is_ending = true;
        }
        self.is_done()
    }

    /// Lets the next [`poll_end`](Self::poll_end) be the first one.
    pub(crate) const fn forget_end(&mut self) {
        self.is_ending = false;
    }

    /// Waits until the stream has nothing left to do.
    ///
    /// # Errors
    /// [`DeviceError`] if something failed. Nothing goes on then.
    pub fn finish(&self) -> Result<(), DeviceError> {
        let (mut is_marked, mut n_asked) = (false, 0_u32);
        loop {
            let is_done = if is_marked { self.is_done() } else { self.mark().map(|()| false) };
            match is_done {
                Ok(true) => return Ok(()),
                Ok(false) => is_marked = true,
                // The device goes on, and may use memory of the caller.
                Err(DeviceError::Unanswered { .. }) => {}
                Err(error) => return Err(error),
            }
            // Short work ends before another thread would give the processor back.
            n_asked = n_asked.saturating_add(1);
            if n_asked > 100 {
                std::thread::yield_now();
            }
        }
    }
}

impl Launcher for Stream {
    fn launch(&mut self, launch: &Launch<'_>) -> Result<(), DeviceError> {
        self.driver.launch(self.id, launch)
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.driver.end_event(self.event);
        self.driver.end_stream(self.id);
    }
}

/// Memory of a device, which is freed when it is dropped.
#[derive(Debug)]
pub(crate) struct OwnedMemory {
    driver: Arc<dyn Driver>,
    pub(crate) ptr: DevicePtr,
    pub(crate) n_bytes: usize,
}

impl OwnedMemory {
    pub(crate) fn new(driver: &Arc<dyn Driver>, n_bytes: usize) -> Result<Self, DeviceError> {
        // A device may refuse to allocate nothing.
        let ptr = driver.allocate(n_bytes.max(1))?;
        Ok(Self { driver: Arc::clone(driver), ptr, n_bytes })
    }
}

impl Drop for OwnedMemory {
    fn drop(&mut self) {
        self.driver.free(self.ptr);
    }
}

/// Pinned memory of the host, through which bytes go to and from a device.
#[derive(Debug)]
pub(crate) struct Staging {
    driver: Arc<dyn Driver>,
    ptr: PinnedPtr,
    n_bytes: usize,
}

impl Staging {
    pub(crate) fn new(driver: &Arc<dyn Driver>, n_bytes: usize) -> Result<Self, DeviceError> {
        let n_bytes = n_bytes.max(1);
        let ptr = driver.allocate_pinned(n_bytes)?;
        Ok(Self { driver: Arc::clone(driver), ptr, n_bytes })
    }

    /// Enqueues a copy of these bytes to the device. The copy before has happened.
    pub(crate) fn send(
        &mut self,
        bytes: &[u8],
        stream: &Stream,
        to: DevicePtr,
    ) -> Result<(), DeviceError> {
        self.check(bytes.len())?;
        self.driver.write_pinned(self.ptr, bytes);
        self.driver.copy_in(stream.id, self.ptr, to, bytes.len())
    }

    /// Does the same, but copies from the bytes' own place if their pages are locked. The caller
    /// keeps them, unchanged, until the copy is done.
    pub(crate) fn send_kept(
        &mut self,
        bytes: &[u8],
        stream: &Stream,
        to: DevicePtr,
    ) -> Result<(), DeviceError> {
        // The memory at `to` has the same size.
        self.check(bytes.len())?;
        let from = PinnedPtr(bytes.as_ptr().expose_provenance() as u64);
        if self.driver.is_locked(from, bytes.len()) {
            return self.driver.copy_in(stream.id, from, to, bytes.len());
        }
        self.send(bytes, stream, to)
    }

    /// Enqueues a copy from the device to the bytes from number `start` on.
    pub(crate) fn receive(
        &mut self,
        stream: &Stream,
        from: DevicePtr,
        start: usize,
        n_bytes: usize,
    ) -> Result<(), DeviceError> {
        self.check(start + n_bytes)?;
        self.driver.copy_out(stream.id, from, self.ptr.offset(start), n_bytes)
    }

    /// Reads what was received, from byte number `start` on. The copies have happened.
    pub(crate) fn read(&self, start: usize, to: &mut [u8]) -> Result<(), DeviceError> {
        self.check(start + to.len())?;
        self.driver.read_pinned(self.ptr.offset(start), to);
        Ok(())
    }

    pub(crate) const fn n_bytes(&self) -> usize {
        self.n_bytes
    }

    const fn check(&self, need: usize) -> Result<(), DeviceError> {
        if need > self.n_bytes {
            return Err(DeviceError::Capacity { need, have: self.n_bytes });
        }
        Ok(())
    }
}

impl Drop for Staging {
    fn drop(&mut self) {
        self.driver.free_pinned(self.ptr, self.n_bytes);
    }
}
