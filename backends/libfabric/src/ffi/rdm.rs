//! Reliable datagram endpoint (`FI_EP_RDM`), with its address vector, its completion queue and its
//! pending requests.
//!
//! Buffers go in by [`RdmEndpoint::send`] and [`RdmEndpoint::recv`], and come out by
//! [`RdmEndpoint::poll`]. In between, the provider may read or write them at any time, and this
//! module does not access them. Dropping an `RdmEndpoint` closes libfabric's endpoint first, which
//! ends all requests. If the provider refuses to close it, buffers and contexts are leaked, because
//! the provider may still use them.
//!
//! Each message on the network ends with a *mark*: one byte for the layer above.

use std::collections::VecDeque;
use std::ffi::c_void;
use std::mem::{self, MaybeUninit};
use std::rc::{Rc, Weak};

use libfabric_sys as sys;

use super::contexts::Contexts;
use super::domain::Domain;
use super::memory::{BufferSlab, MessageBuffer};
use super::{Errno, FidHandle, NO_CONTEXT, checked, checked_count};

/// Completions read in one call.
const PER_READ: usize = 16;
/// Mask for receives: match all bits of a tag.
const NOTHING_IGNORED: u64 = 0;
/// Longest provider address that is accepted, in bytes.
const MAX_ADDRESS_BYTES: usize = 1024;

/// Completed request, with its description `R`.
pub(crate) struct CompletedRequest<R> {
    pub(crate) request: R,
    pub(crate) buffer: MessageBuffer,
    /// Bytes received including the mark (meaningful for receives only), or the request's error.
    pub(crate) outcome: Result<usize, Errno>,
}

/// Open endpoint. `R` describes a request.
pub(crate) struct RdmEndpoint<R> {
    /// `None` only during drop.
    endpoint: Option<FidHandle<sys::fid_ep>>,
    queue: FidHandle<sys::fid_cq>,
    vector: FidHandle<sys::fid_av>,
    domain: Rc<Domain>,
    /// Addresses of the peers in the address vector.
    peers: Vec<sys::fi_addr_t>,
    /// Pending requests, each at the index of its context.
    requests: Vec<Option<(R, MessageBuffer)>>,
    /// Context indices without a request.
    free: Vec<usize>,
    contexts: Contexts,
    completions: VecDeque<CompletedRequest<R>>,
    /// Slab that the next buffer is cut from.
    slab: Option<Rc<BufferSlab>>,
    /// Slabs whose registration is bound to the endpoint.
    bound: Vec<Weak<BufferSlab>>,
    registers_memory: bool,
    n_slabs: u64,
}

impl<R> RdmEndpoint<R> {
    /// Opens an endpoint that listens and has no peers yet.
    pub(crate) fn open(domain: Domain) -> Result<Self, Errno> {
        let domain = Rc::new(domain);
        let mut vector_attr = sys::fi_av_attr { type_: sys::FI_AV_UNSPEC, ..Default::default() };
        let vector = FidHandle::open(|vector| {
            // SAFETY: the domain is open; the attributes and the place for the result are valid for
            // the call.
            unsafe { sys::fi_av_open(domain.raw(), &raw mut vector_attr, vector, NO_CONTEXT) }
        })?;
        let mut queue_attr = sys::fi_cq_attr {
            format: sys::FI_CQ_FORMAT_TAGGED,
            wait_obj: sys::FI_WAIT_NONE,
            ..Default::default()
        };
        let queue = FidHandle::open(|queue| {
            // SAFETY: as above.
            unsafe { sys::fi_cq_open(domain.raw(), &raw mut queue_attr, queue, NO_CONTEXT) }
        })?;
        let endpoint = FidHandle::open(|endpoint| {
            // SAFETY: the description is the one that opened the domain; the place for the result
            // is valid.
            unsafe {
                sys::fi_endpoint(domain.raw(), domain.description().raw(), endpoint, NO_CONTEXT)
            }
        })?;
        // SAFETY: all objects are open, and belong to the same domain.
        checked(unsafe { sys::fi_ep_bind(endpoint.raw(), vector.fid(), 0) })?;
        // SAFETY: as above.
        checked(unsafe {
            sys::fi_ep_bind(endpoint.raw(), queue.fid(), sys::FI_TRANSMIT | sys::FI_RECV)
        })?;
        // SAFETY: the endpoint is bound to everything that it needs.
        checked(unsafe { sys::fi_enable(endpoint.raw()) })?;
        let registers_memory = domain.description().registers_memory();
        Ok(Self {
            endpoint: Some(endpoint),
            queue,
            vector,
            domain,
            peers: Vec::new(),
            requests: Vec::new(),
            free: Vec::new(),
            contexts: Contexts::new(),
            completions: VecDeque::new(),
            slab: None,
            bound: Vec::new(),
            registers_memory,
            n_slabs: 0,
        })
    }

    fn endpoint(&self) -> Result<&FidHandle<sys::fid_ep>, Errno> {
        self.endpoint.as_ref().ok_or(Errno::INVALID)
    }

    /// Returns this endpoint's address, in the provider's format.
    pub(crate) fn address(&self) -> Result<Vec<u8>, Errno> {
        let mut bytes = vec![0u8; MAX_ADDRESS_BYTES];
        let mut n_bytes = bytes.len();
        let endpoint = self.endpoint()?;
        // SAFETY: the endpoint is open. libfabric writes at most `n_bytes` bytes, and the length
        // that it needs into `n_bytes`.
        checked(unsafe {
            sys::fi_getname(endpoint.fid(), bytes.as_mut_ptr().cast(), &raw mut n_bytes)
        })?;
        bytes.truncate(n_bytes);
        Ok(bytes)
    }

    /// Adds a peer. Peers are numbered from 0 in the order added.
    pub(crate) fn add_peer(&mut self, address: &[u8]) -> Result<(), Errno> {
        // Pad the address with zeros, because a provider reads the full length of its format and
        // trusts lengths inside it.
        let mut bytes = vec![0u8; MAX_ADDRESS_BYTES];
        bytes.get_mut(..address.len()).ok_or(Errno::INVALID)?.copy_from_slice(address);
        let mut peer = sys::FI_ADDR_NOTAVAIL;
        // SAFETY: `bytes` begins with one address in the provider's format, followed by padding;
        // `peer` is a valid place for one result.
        let n_inserted = unsafe {
            sys::fi_av_insert(
                self.vector.raw(),
                bytes.as_mut_ptr().cast(),
                1,
                &raw mut peer,
                0,
                NO_CONTEXT,
            )
        };
        if n_inserted != 1 || peer == sys::FI_ADDR_NOTAVAIL {
            return Err(if n_inserted < 0 { Errno(-n_inserted) } else { Errno::INVALID });
        }
        self.peers.push(peer);
        Ok(())
    }

    /// Allocates a buffer of `n_bytes`, in registered memory if the provider requires it.
    pub(crate) fn allocate(&mut self, n_bytes: usize) -> Result<MessageBuffer, Errno> {
        if let Some(buffer) = self.slab.as_ref().and_then(|slab| slab.take(n_bytes)) {
            return Ok(buffer);
        }
        let slab = BufferSlab::allocate(&self.domain, n_bytes)?;
        if self.registers_memory {
            let description = self.domain.description();
            // Keys that the provider does not choose must differ.
            let key = if description.chooses_keys() { 0 } else { self.n_slabs };
            slab.register(key, self.endpoint()?)?;
            if description.binds_memory() {
                self.bound.push(Rc::downgrade(&slab));
            }
        }
        self.n_slabs += 1;
        let slab = self.slab.insert(slab);
        slab.take(n_bytes).ok_or(Errno::NO_MEMORY)
    }

    /// Returns whether a buffer was allocated for this endpoint's domain.
    pub(crate) fn accepts(&self, buffer: &MessageBuffer) -> bool {
        buffer.belongs_to(&self.domain)
    }

    /// Returns a free context and its index.
    fn free_context(&mut self) -> (usize, *mut c_void) {
        let index = self.free.pop().unwrap_or_else(|| {
            self.requests.push(None);
            self.requests.len() - 1
        });
        (index, self.contexts.address(index))
    }

    /// Keeps an accepted request, or returns the buffer of a rejected one.
    fn started(
        &mut self,
        index: usize,
        request: R,
        buffer: MessageBuffer,
        status: isize,
    ) -> Result<(), (MessageBuffer, Errno)> {
        match checked_count(status) {
            Ok(_) => {
                self.requests[index] = Some((request, buffer));
                Ok(())
            }
            Err(errno) => {
                self.free.push(index);
                Err((buffer, errno))
            }
        }
    }

    /// Starts to send the first `n_bytes` of `buffer`, and a mark, to peer number `to`.
    pub(crate) fn send(
        &mut self,
        to: usize,
        tag: u64,
        mut buffer: MessageBuffer,
        n_bytes: usize,
        mark: u8,
        request: R,
    ) -> Result<(), (MessageBuffer, Errno)> {
        let is_ours = buffer.belongs_to(&self.domain);
        let n_sent = buffer.write_mark(n_bytes, mark);
        let (Some(&peer), Some(n_sent), true) = (self.peers.get(to), n_sent, is_ours) else {
            return Err((buffer, Errno::INVALID));
        };
        let Ok(endpoint) = self.endpoint().map(FidHandle::raw) else {
            return Err((buffer, Errno::INVALID));
        };
        let (index, context) = self.free_context();
        // SAFETY: the endpoint is open. The bytes belong to `buffer`, which is kept untouched until
        // the completion if the call succeeds. The context stays in place, and no other request has
        // it.
        let status = unsafe {
            sys::fi_tsend(
                endpoint,
                buffer.address(),
                n_sent,
                buffer.descriptor(),
                peer,
                tag,
                context,
            )
        };
        self.started(index, request, buffer, status)
    }

    /// Posts a receive for a message with this tag. [`Errno::AGAIN`] if the provider's queue of
    /// receives is full.
    pub(crate) fn recv(
        &mut self,
        tag: u64,
        buffer: MessageBuffer,
        request: R,
    ) -> Result<(), (MessageBuffer, Errno)> {
        if !buffer.belongs_to(&self.domain) {
            return Err((buffer, Errno::INVALID));
        }
        let Ok(endpoint) = self.endpoint().map(FidHandle::raw) else {
            return Err((buffer, Errno::INVALID));
        };
        let (index, context) = self.free_context();
        // SAFETY: as for sends; the provider writes at most the buffer's capacity.
        let status = unsafe {
            sys::fi_trecv(
                endpoint,
                buffer.address(),
                buffer.capacity(),
                buffer.descriptor(),
                sys::FI_ADDR_UNSPEC,
                tag,
                NOTHING_IGNORED,
                context,
            )
        };
        let started = self.started(index, request, buffer, status);
        // `shm` reports a full queue as a lack of memory.
        started.map_err(|(buffer, errno)| match errno {
            Errno::NO_MEMORY => (buffer, Errno::AGAIN),
            _ => (buffer, errno),
        })
    }

    /// Asks the provider to cancel the requests that `which` selects. Cancelled requests complete
    /// with [`Errno::CANCELED`].
    pub(crate) fn cancel(&mut self, which: impl Fn(&R) -> bool) {
        let Ok(endpoint) = self.endpoint().map(FidHandle::fid) else { return };
        for index in 0..self.requests.len() {
            if self.requests[index].as_ref().is_some_and(|(request, _)| which(request)) {
                // SAFETY: the endpoint is open, and the context belongs to a pending request. A
                // request that cannot be cancelled stays pending.
                let _ = unsafe { sys::fi_cancel(endpoint, self.contexts.address(index)) };
            }
        }
    }

    /// Advances the network, and returns one completed request if there is any.
    pub(crate) fn poll(&mut self) -> Result<Option<CompletedRequest<R>>, Errno> {
        if self.completions.is_empty() {
            self.read()?;
        }
        Ok(self.completions.pop_front())
    }

    /// Makes the next poll return this.
    #[cfg(test)]
    pub(crate) fn complete(&mut self, completed: CompletedRequest<R>) {
        self.completions.push_back(completed);
    }

    fn read(&mut self) -> Result<(), Errno> {
        let mut entries = [const { MaybeUninit::<sys::fi_cq_tagged_entry>::uninit() }; PER_READ];
        // SAFETY: the queue is open and has the format of these entries, and the array has space
        // for `entries.len()` of them.
        let n_read = unsafe {
            sys::fi_cq_read(self.queue.raw(), entries.as_mut_ptr().cast(), entries.len())
        };
        match checked_count(n_read) {
            Ok(n_read) => {
                for entry in &entries[..n_read.min(PER_READ)] {
                    // SAFETY: libfabric has written the first `n_read` entries.
                    let entry = unsafe { entry.assume_init_ref() };
                    self.finish(entry.op_context, Ok(entry.len));
                }
                Ok(())
            }
            Err(Errno::AGAIN) => Ok(()),
            Err(Errno(sys::FI_EAVAIL)) => self.read_error(),
            Err(errno) => Err(errno),
        }
    }

    fn read_error(&mut self) -> Result<(), Errno> {
        let mut entry = sys::fi_cq_err_entry::default();
        // SAFETY: the queue is open; the entry has no buffer for the provider's details.
        let n_read = unsafe { sys::fi_cq_readerr(self.queue.raw(), &raw mut entry, 0) };
        match checked_count(n_read) {
            Ok(0) | Err(Errno::AGAIN) => Ok(()),
            Ok(_) => {
                // Some providers (`sockets`) return a negative number.
                let errno = Errno(entry.err.saturating_abs());
                // An error without a request concerns the whole endpoint.
                if self.finish(entry.op_context, Err(errno)) { Ok(()) } else { Err(errno) }
            }
            Err(errno) => Err(errno),
        }
    }

    /// Completes a request. Returns false if the context belongs to none.
    fn finish(&mut self, context: *mut c_void, outcome: Result<usize, Errno>) -> bool {
        let Some(index) = self.contexts.index(context) else { return false };
        let Some((request, buffer)) = self.requests.get_mut(index).and_then(Option::take) else {
            return false;
        };
        self.free.push(index);
        self.completions.push_back(CompletedRequest { request, buffer, outcome });
        true
    }
}

impl<R> Drop for RdmEndpoint<R> {
    fn drop(&mut self) {
        let Some(endpoint) = self.endpoint.take() else { return };
        for slab in self.bound.drain(..).filter_map(|slab| slab.upgrade()) {
            // A bound registration would keep the endpoint open. Closing the registration ends
            // access to its memory.
            slab.unregister();
        }
        if endpoint.close().is_err() {
            mem::forget(mem::take(&mut self.requests));
            self.contexts.abandon();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::ops::Range;
    use std::sync::{Arc, Mutex};
    use std::time::{Duration, Instant};

    use foldwire::device::{PageLock, PageLocker, lock_frames};

    use super::*;
    use crate::Settings;
    use crate::check;

    /// Opens two endpoints on this thread that know each other. They register memory although the
    /// provider does not require it. Returns `None` without the provider.
    fn pair(provider: &str) -> Option<[RdmEndpoint<()>; 2]> {
        let open = || {
            let description = check::find(provider, &Settings::default(), 2).ok()?;
            let mut rdm = RdmEndpoint::open(Domain::open(description).unwrap()).unwrap();
            rdm.registers_memory = true;
            Some(rdm)
        };
        let mut endpoints = [open()?, open()?];
        let addresses = endpoints.each_ref().map(|rdm| rdm.address().unwrap());
        for rdm in &mut endpoints {
            addresses.iter().for_each(|address| rdm.add_peer(address).unwrap());
        }
        Some(endpoints)
    }

    /// Messages pass between registered slabs, each registered once. A slab lives as long as its
    /// buffers, even after the endpoint is dropped.
    #[test]
    fn registered_memory_carries_messages() {
        for provider in ["tcp", "sockets"] {
            let Some([mut here, mut there]) = pair(provider) else {
                let _ = writeln!(std::io::stdout(), "skipped: no provider {provider}");
                continue;
            };
            // More bytes than a slab usually has.
            let n_bytes = 6 << 20;
            let mut outgoing = here.allocate(n_bytes).unwrap();
            outgoing.as_mut().fill(7);
            let small = here.allocate(100).unwrap();
            assert!(outgoing.is_registered() && small.is_registered());
            assert_eq!(here.n_slabs, 2);

            let incoming = there.allocate(n_bytes).unwrap();
            assert!(there.recv(5, incoming, ()).is_ok());
            let start = Instant::now();
            let mut waiting = Some(outgoing);
            let incoming = loop {
                assert!(start.elapsed() < Duration::from_secs(20), "nothing arrives");
                if let Some(buffer) = waiting.take() {
                    waiting = match here.send(1, 5, buffer, n_bytes, 1, ()) {
                        Ok(()) => None,
                        Err((buffer, errno)) if errno == Errno::AGAIN => Some(buffer),
                        Err((_, errno)) => panic!("{errno}"),
                    };
                }
                here.poll().unwrap();
                if let Some(CompletedRequest { buffer, outcome, .. }) = there.poll().unwrap() {
                    assert_eq!(buffer.contents(outcome.unwrap()), Some((n_bytes, 1)));
                    break buffer;
                }
            };
            drop((here, there));
            assert!(incoming.as_ref().iter().all(|&byte| byte == 7));
            drop((small, incoming));
        }
    }

    /// A queue has space for some thousand receives. A further one is refused for now, which is no
    /// error of the endpoint.
    #[test]
    fn a_full_queue_of_receives_is_busy() {
        for provider in ["shm", "tcp"] {
            let Ok(description) = check::find(provider, &Settings::default(), 2) else {
                let _ = writeln!(std::io::stdout(), "skipped: no provider {provider}");
                continue;
            };
            let mut rdm = RdmEndpoint::open(Domain::open(description).unwrap()).unwrap();
            let refused = (0..10_000).find_map(|tag| {
                let buffer = rdm.allocate(1).unwrap();
                rdm.recv(tag, buffer, ()).err().map(|(_, errno)| errno)
            });
            assert!(refused.is_none_or(|errno| errno == Errno::AGAIN), "{provider}: {refused:?}");
        }
    }

    /// Pages that are locked now.
    #[derive(Clone, Default)]
    struct Locker(Arc<Mutex<Vec<Range<usize>>>>);

    impl Locker {
        /// Returns how many locks cover these bytes.
        fn n_of(&self, bytes: Range<usize>) -> usize {
            let locked = self.0.lock().unwrap();
            locked.iter().filter(|it| it.start <= bytes.start && bytes.end <= it.end).count()
        }
    }

    impl PageLocker for Locker {
        fn lock(&self, pages: &[u8]) -> Option<PageLock> {
            let range = place(pages);
            assert!(range.start.is_multiple_of(4096) && range.end.is_multiple_of(4096));
            self.0.lock().unwrap().push(range.clone());
            Some(Box::new(Unlock(self.clone(), range)))
        }
    }

    struct Unlock(Locker, Range<usize>);

    impl Drop for Unlock {
        fn drop(&mut self) {
            self.0.0.lock().unwrap().retain(|it| *it != self.1);
        }
    }

    fn place(bytes: &[u8]) -> Range<usize> {
        let Range { start, end } = bytes.as_ptr_range();
        start.addr()..end.addr()
    }

    /// A slab that is allocated while a device is open is locked once, as long as a buffer of it
    /// lives.
    #[test]
    fn pages_of_a_slab_are_locked_for_a_device() {
        let Some([mut here, _]) = pair("tcp") else {
            let _ = writeln!(std::io::stdout(), "skipped: no provider tcp");
            return;
        };
        let locker = Locker::default();
        let before = here.allocate(100).unwrap();
        let locking = lock_frames(Arc::new(locker.clone()));
        // More bytes than a slab usually has, and no multiple of a page.
        let n_bytes = (6 << 20) + 5;
        let [first, second] = [(); 2].map(|()| here.allocate(n_bytes).unwrap());
        drop(locking);
        let late = here.allocate(n_bytes).unwrap();
        for (buffer, n_locks) in [(&before, 0), (&first, 1), (&second, 1), (&late, 0)] {
            assert_eq!(locker.n_of(place(buffer.as_ref())), n_locks);
        }
        let [of_first, of_second] = [&first, &second].map(|buffer| place(buffer.as_ref()));
        drop((here, first));
        assert_eq!(locker.n_of(of_first), 0, "freed pages are not locked");
        assert_eq!(locker.n_of(of_second.clone()), 1, "a buffer keeps its slab's lock");
        drop(second);
        assert_eq!(locker.n_of(of_second), 0);
    }

    /// An endpoint accepts only buffers of its own domain, and returns others.
    #[test]
    fn foreign_buffers_are_refused() {
        let Some([mut here, mut there]) = pair("tcp") else {
            let _ = writeln!(std::io::stdout(), "skipped: no provider tcp");
            return;
        };
        let foreign = there.allocate(10).unwrap();
        let Err((foreign, Errno::INVALID)) = here.send(1, 0, foreign, 10, 0, ()) else {
            panic!("accepted");
        };
        assert!(matches!(here.recv(0, foreign, ()), Err((_, Errno::INVALID))));
    }
}
