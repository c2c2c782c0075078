//! Message buffers, cut from slabs of memory. A slab is registered once, if the provider requires
//! it.
//!
//! Each message ends with a *mark* of one byte, which says whether its sender requests an
//! acknowledgement (`acks.rs`).

use std::alloc::{self, Layout};
use std::cell::{Cell, RefCell};
use std::ffi::c_void;
use std::fmt;
use std::ptr::{self, NonNull};
use std::rc::Rc;
use std::slice;

use foldwire::device::PageLocks;
use foldwire::transport::FRAME_ALIGN;
use libfabric_sys as sys;

use super::domain::Domain;
use super::{Errno, FidHandle, NO_CONTEXT, checked};

/// Size of a slab in bytes, unless one buffer needs more.
const SLAB_BYTES: usize = 4 << 20;
const PAGE: usize = 4096;

/// Length of the mark at the end of each message. A buffer's slice does not include it.
const MARK_BYTES: usize = 1;

/// Buffer to send from and receive into, aligned to [`FRAME_ALIGN`] and fixed in memory. Space for
/// a mark follows its bytes.
pub struct MessageBuffer {
    first: NonNull<u8>,
    n_bytes: usize,
    slab: Rc<BufferSlab>,
}

impl MessageBuffer {
    pub(super) const fn address(&self) -> *mut c_void {
        self.first.as_ptr().cast()
    }

    /// Returns the capacity for a message and its mark in bytes.
    pub(super) const fn capacity(&self) -> usize {
        self.n_bytes + MARK_BYTES
    }

    /// Writes the mark of a message of `n_bytes`. Returns the length of both together, or `None` if
    /// the message exceeds the buffer.
    pub(super) fn write_mark(&mut self, n_bytes: usize, mark: u8) -> Option<usize> {
        if n_bytes > self.n_bytes {
            return None;
        }
        // SAFETY: n_bytes < capacity(), and all of these bytes are ours.
        unsafe { self.first.add(n_bytes).write(mark) };
        Some(n_bytes + MARK_BYTES)
    }

    /// Returns the length and the mark of a message that arrived with `n_arrived` bytes in total.
    /// Returns `None` if that length is impossible.
    pub(crate) fn contents(&self, n_arrived: usize) -> Option<(usize, u8)> {
        let n_bytes = n_arrived.checked_sub(MARK_BYTES)?;
        if n_bytes > self.n_bytes {
            return None;
        }
        // SAFETY: n_bytes < capacity(), and all of these bytes are ours and initialised.
        Some((n_bytes, unsafe { self.first.add(n_bytes).read() }))
    }

    /// Returns the registration's descriptor, which the provider requires in addition to the
    /// address. Null if the slab is not registered.
    pub(super) fn descriptor(&self) -> *mut c_void {
        self.slab.registration.borrow().as_ref().map_or(ptr::null_mut(), |made| made.descriptor)
    }

    #[cfg(test)]
    pub(super) fn is_registered(&self) -> bool {
        self.slab.registration.borrow().is_some()
    }

    /// Returns whether the buffer was allocated for this domain.
    pub(super) fn belongs_to(&self, domain: &Rc<Domain>) -> bool {
        Rc::ptr_eq(&self.slab.domain, domain)
    }
}

impl AsRef<[u8]> for MessageBuffer {
    fn as_ref(&self) -> &[u8] {
        // SAFETY: the slab lives as long as `self`, its bytes are initialised, and no other buffer
        // includes these bytes. While the network uses them, the buffer is inside an `RdmEndpoint`,
        // which does not access them.
        unsafe { slice::from_raw_parts(self.first.as_ptr(), self.n_bytes) }
    }
}

impl AsMut<[u8]> for MessageBuffer {
    fn as_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above; `self` is borrowed mutably.
        unsafe { slice::from_raw_parts_mut(self.first.as_ptr(), self.n_bytes) }
    }
}

impl fmt::Debug for MessageBuffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MessageBuffer").field("n_bytes", &self.n_bytes).finish_non_exhaustive()
    }
}

/// Memory for several buffers. A slab hands out each piece once and never takes it back, because
/// buffers are few and reused.
pub(super) struct BufferSlab {
    // Fields are dropped in this order: the registration first, the domain after the memory.
    registration: RefCell<Option<Registration>>,
    /// For a device, which copies from the buffers and to them.
    _locks: PageLocks,
    memory: SlabMemory,
    domain: Rc<Domain>,
    n_used: Cell<usize>,
}

impl BufferSlab {
    /// Allocates a slab with space for at least one buffer of `n_bytes`.
    pub(super) fn allocate(domain: &Rc<Domain>, n_bytes: usize) -> Result<Rc<Self>, Errno> {
        let capacity = n_bytes.checked_add(MARK_BYTES).ok_or(Errno::NO_MEMORY)?;
        // Only whole pages are locked.
        let unit = if PageLocks::are_wanted() { PAGE } else { 1 };
        let n_stored = capacity.max(SLAB_BYTES).checked_next_multiple_of(unit);
        let memory = SlabMemory::allocate(n_stored.ok_or(Errno::NO_MEMORY)?)?;
        let locks = if unit == PAGE { PageLocks::of(memory.bytes()) } else { PageLocks::default() };
        Ok(Rc::new(Self {
            registration: RefCell::new(None),
            _locks: locks,
            memory,
            domain: Rc::clone(domain),
            n_used: Cell::new(0),
        }))
    }

    /// Registers the whole slab, bound to `endpoint` if the provider requires that.
    pub(super) fn register(
        &self,
        key: u64,
        endpoint: &FidHandle<sys::fid_ep>,
    ) -> Result<(), Errno> {
        let mr = FidHandle::open(|mr| {
            // SAFETY: the domain is open. The memory belongs to the slab and outlives the
            // registration.
            unsafe {
                sys::fi_mr_reg(
                    self.domain.raw(),
                    self.memory.first.as_ptr().cast(),
                    self.memory.layout.size(),
                    sys::FI_SEND | sys::FI_RECV,
                    0,
                    key,
                    0,
                    mr,
                    NO_CONTEXT,
                )
            }
        })?;
        if self.domain.description().binds_memory() {
            // SAFETY: the registration and the endpoint are open.
            checked(unsafe { sys::fi_mr_bind(mr.raw(), endpoint.fid(), 0) })?;
            // SAFETY: the registration is bound, as it must be before it is enabled.
            checked(unsafe { sys::fi_mr_enable(mr.raw()) })?;
        }
        // SAFETY: the registration is open.
        let descriptor = unsafe { sys::fi_mr_desc(mr.raw()) };
        self.registration.replace(Some(Registration { _mr: mr, descriptor }));
        Ok(())
    }

    /// Closes the registration. No pending request may use a buffer of this slab.
    pub(super) fn unregister(&self) {
        self.registration.replace(None);
    }

    /// Takes an unused piece as a buffer, while there is space.
    pub(super) fn take(self: &Rc<Self>, n_bytes: usize) -> Option<MessageBuffer> {
        let start = self.n_used.get();
        let end = start.checked_add(n_bytes)?.checked_add(MARK_BYTES)?;
        if end > self.memory.layout.size() {
            return None;
        }
        self.n_used.set(end.next_multiple_of(FRAME_ALIGN));
        // SAFETY: start <= end <= the size of the slab's memory.
        let first = unsafe { self.memory.first.add(start) };
        Some(MessageBuffer { first, n_bytes, slab: Rc::clone(self) })
    }
}

struct Registration {
    _mr: FidHandle<sys::fid_mr>,
    descriptor: *mut c_void,
}

/// Memory of a slab from the allocator, freed on drop.
struct SlabMemory {
    first: NonNull<u8>,
    layout: Layout,
}

impl SlabMemory {
    /// Allocates at least `n_bytes`, which must be more than 0. Writes zeros: this touches every
    /// page now rather than in the first encoder.
    fn allocate(n_bytes: usize) -> Result<Self, Errno> {
        let layout = Layout::from_size_align(n_bytes, PAGE).map_err(|_| Errno::NO_MEMORY)?;
        // SAFETY: the layout has a nonzero size, since slabs are not empty.
        let first = NonNull::new(unsafe { alloc::alloc(layout) }).ok_or(Errno::NO_MEMORY)?;
        // SAFETY: `layout.size()` bytes are ours.
        unsafe { first.write_bytes(0, layout.size()) };
        Ok(Self { first, layout })
    }

    const fn bytes(&self) -> &[u8] {
        // SAFETY: `layout.size()` bytes are ours, and initialised. No buffer includes them yet.
        unsafe { slice::from_raw_parts(self.first.as_ptr(), self.layout.size()) }
    }
}

impl Drop for SlabMemory {
    fn drop(&mut self) {
        // SAFETY: the memory was allocated with this layout. No buffer is left, since each one
        // holds the slab.
        unsafe { alloc::dealloc(self.first.as_ptr(), self.layout) };
    }
}
