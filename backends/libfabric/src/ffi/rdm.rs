//! An endpoint with its address vector, its completion queue, and the requests that are under way.
//!
//! Buffers go in by [`RdmEndpoint::send`] and [`RdmEndpoint::recv`] and come out by [`RdmEndpoint::poll`]. In between
//! the provider may read or write them at any time, and the rdm does not look at them. A rdm that
//! is dropped closes the endpoint first, which ends all requests; if the provider refuses, buffers
//! and contexts are leaked rather than freed under its hands.

use std::collections::VecDeque;
use std::ffi::c_void;
use std::mem::{self, MaybeUninit};
use std::rc::{Rc, Weak};

use libfabric_sys as sys;

use super::contexts::Contexts;
use super::domain::Domain;
use super::memory::{BufferSlab, MessageBuffer};
use super::{Errno, FidHandle, NO_CONTEXT, checked, checked_count};

/// Completions read at once.
const PER_READ: usize = 16;
/// All bits of a tag matter.
const NOTHING_IGNORED: u64 = 0;
/// Longest address of a provider that we would believe.
const MAX_ADDRESS_BYTES: usize = 1024;

/// What has become of a request with note `R`.
pub(crate) struct CompletedRequest<R> {
    pub(crate) request: R,
    pub(crate) buffer: MessageBuffer,
    /// Bytes that have come with the mark (of meaning for receives only), or why the request
    /// failed.
    pub(crate) outcome: Result<usize, Errno>,
}

/// An open endpoint; `R` is what the user wants to remember of each request.
pub(crate) struct RdmEndpoint<R> {
    /// `None` only while the rdm is being dropped.
    endpoint: Option<FidHandle<sys::fid_ep>>,
    queue: FidHandle<sys::fid_cq>,
    vector: FidHandle<sys::fid_av>,
    domain: Rc<Domain>,
    /// Peers in the address vector.
    peers: Vec<sys::fi_addr_t>,
    /// At the index of its context, each request that is under way.
    requests: Vec<Option<(R, MessageBuffer)>>,
    /// Indices without a request.
    free: Vec<usize>,
    contexts: Contexts,
    completions: VecDeque<CompletedRequest<R>>,
    /// Where the next buffer is cut from.
    slab: Option<Rc<BufferSlab>>,
    /// Slabs that are bound to the endpoint.
    bound: Vec<Weak<BufferSlab>>,
    registers_memory: bool,
    n_slabs: u64,
}

impl<R> RdmEndpoint<R> {
    /// Opens an endpoint that listens, and knows no peers yet.
    pub(crate) fn open(domain: Domain) -> Result<Self, Errno> {
        let domain = Rc::new(domain);
        let mut vector_attr = sys::fi_av_attr { type_: sys::FI_AV_UNSPEC, ..Default::default() };
        let vector = FidHandle::open(|vector| {
            // SAFETY: the domain is open; the attributes are valid for the call.
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
            // SAFETY: the description is the one that the domain was opened from.
            unsafe {
                sys::fi_endpoint(domain.raw(), domain.description().raw(), endpoint, NO_CONTEXT)
            }
        })?;
        // SAFETY: all are open, and of the same domain.
        checked(unsafe { sys::fi_ep_bind(endpoint.raw(), vector.fid(), 0) })?;
        // SAFETY: as above.
        checked(unsafe {
            sys::fi_ep_bind(endpoint.raw(), queue.fid(), sys::FI_TRANSMIT | sys::FI_RECV)
        })?;
        // SAFETY: the endpoint has all it needs.
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

    /// Where others reach this endpoint, in the provider's format.
    pub(crate) fn address(&self) -> Result<Vec<u8>, Errno> {
        let mut bytes = vec![0u8; MAX_ADDRESS_BYTES];
        let mut n_bytes = bytes.len();
        let endpoint = self.endpoint()?;
        // SAFETY: the endpoint is open; libfabric writes at most `n_bytes` bytes, and how many it
        // needs.
        checked(unsafe {
            sys::fi_getname(endpoint.fid(), bytes.as_mut_ptr().cast(), &raw mut n_bytes)
        })?;
        bytes.truncate(n_bytes);
        Ok(bytes)
    }

    /// Adds a peer, whose index is the number of those before it.
    pub(crate) fn add_peer(&mut self, address: &[u8]) -> Result<(), Errno> {
        // A provider reads as many bytes as its format has, and believes lengths inside: end with
        // zeros.
        let mut bytes = vec![0u8; MAX_ADDRESS_BYTES];
        bytes.get_mut(..address.len()).ok_or(Errno::INVALID)?.copy_from_slice(address);
        let mut peer = sys::FI_ADDR_NOTAVAIL;
        // SAFETY: the address is one address in the provider's format, with room behind it; `peer`
        // is a place for one.
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

    /// A buffer of `n_bytes`, in registered memory if the provider asks for that.
    pub(crate) fn allocate(&mut self, n_bytes: usize) -> Result<MessageBuffer, Errno> {
        if let Some(buffer) = self.slab.as_ref().and_then(|slab| slab.take(n_bytes)) {
            return Ok(buffer);
        }
        let slab = BufferSlab::allocate(&self.domain, n_bytes)?;
        if self.registers_memory {
            let description = self.domain.description();
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

    /// A context that no request has.
    fn free_context(&mut self) -> (usize, *mut c_void) {
        let index = self.free.pop().unwrap_or_else(|| {
            self.requests.push(None);
            self.requests.len() - 1
        });
        (index, self.contexts.address(index))
    }

    /// Keeps a request that the provider has accepted, or gives back what it has not.
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
        // SAFETY: the endpoint is open; the bytes belong to `buffer`, which is kept untouched until
        // the completion if the call succeeds; the context stays where it is and no other request
        // has it.
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

    /// Posts a receive for a message with this tag.
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
        // SAFETY: as for sends; the provider writes at most the buffer's room.
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
        self.started(index, request, buffer, status)
    }

    /// Asks the provider to give up the requests that `which` picks. Those that it does give up
    /// complete with [`Errno::CANCELED`].
    pub(crate) fn cancel(&mut self, which: impl Fn(&R) -> bool) {
        let Ok(endpoint) = self.endpoint().map(FidHandle::fid) else { return };
        for index in 0..self.requests.len() {
            if self.requests[index].as_ref().is_some_and(|(request, _)| which(request)) {
                // SAFETY: the endpoint is open, and the context is that of a request under way. A
                // request that cannot be cancelled stays.
                let _ = unsafe { sys::fi_cancel(endpoint, self.contexts.address(index)) };
            }
        }
    }

    /// Moves the network along, and hands out one request that has ended.
    pub(crate) fn poll(&mut self) -> Result<Option<CompletedRequest<R>>, Errno> {
        if self.completions.is_empty() {
            self.read()?;
        }
        Ok(self.completions.pop_front())
    }

    fn read(&mut self) -> Result<(), Errno> {
        let mut entries = [const { MaybeUninit::<sys::fi_cq_tagged_entry>::uninit() }; PER_READ];
        // SAFETY: the queue is open, has the format of these entries, and there is room for that
        // many.
        let n_read = unsafe {
            sys::fi_cq_read(self.queue.raw(), entries.as_mut_ptr().cast(), entries.len())
        };
        match checked_count(n_read) {
            Ok(n_read) => {
                for entry in &entries[..n_read.min(PER_READ)] {
                    // SAFETY: libfabric has written as many as it says.
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
        // SAFETY: the queue is open; the entry has no buffer for details of the provider's.
        let n_read = unsafe { sys::fi_cq_readerr(self.queue.raw(), &raw mut entry, 0) };
        match checked_count(n_read) {
            Ok(0) | Err(Errno::AGAIN) => Ok(()),
            Ok(_) => {
                // Some providers (sockets) give a negative number.
                let errno = Errno(entry.err.saturating_abs());
                // What is not about a request concerns the endpoint as a whole.
                if self.finish(entry.op_context, Err(errno)) { Ok(()) } else { Err(errno) }
            }
            Err(errno) => Err(errno),
        }
    }

    /// Whether there was such a request.
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
            // A bound registration keeps the endpoint open; closing it ends access to its memory.
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
    use std::time::{Duration, Instant};

    use super::*;
    use crate::Settings;
    use crate::check;

    /// Two endpoints on this thread that know each other, with registered memory though the provider
    /// does not ask for it; `None` without the provider.
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

    /// Messages travel between slabs that are registered, once each; the slabs outlive the rdm if
    /// buffers do.
    #[test]
    fn registered_memory_carries_messages() {
        for provider in ["tcp", "sockets"] {
            let Some([mut here, mut there]) = pair(provider) else {
                let _ = writeln!(std::io::stdout(), "skipped: no provider {provider}");
                continue;
            };
            // More than a slab usually has.
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

    /// A rdm takes buffers of its own domain only, and gives others back.
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
