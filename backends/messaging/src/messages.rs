//! A [`Net`] over a library that represents messages as requests, as MPI does.

use std::collections::VecDeque;
use std::fmt;
use std::hint;
use std::mem;
use std::time::Duration;

use foldwire::HeapFrame;
use foldwire::transport::{Distance, MIN_FRAME_BYTES, Rank, Tag};

use crate::ffi::n_cores;
use crate::ffi::requests::{PendingRequests, Requests};
use crate::frame::{FrameMemory, MessageFrame};
use crate::shared_memory::{AcceptedSend, AnnouncedReceive, SharedMemory};
use crate::{Backoff, Event, Net, Refused, Source, on_wire};

/// While only a notice can come from the library, one poll in this many tests the library. A test
/// costs more than a check of shared memory. Once the rank sleeps between polls, each poll tests:
/// the test also moves the program's own messages.
const POLLS_PER_TEST: u32 = 16;
/// Checks of shared memory in one [`Net::idle`] if each rank of the node has its own core. They
/// take about a microsecond.
const CHECKS_PER_WAIT: usize = 16;

/// Message layer over a library's [`Requests`].
pub struct Messages<R: Requests> {
    library: R,
    pending: PendingRequests<R, RequestInfo>,
    events: VecDeque<Event<MessageFrame>>,
    /// Errors of completed requests that no poll has returned yet.
    failures: VecDeque<R::Error>,
    /// The queue's last event was returned. The next poll returns `None` without a test, so that a
    /// caller that polls until `None` tests the library only once.
    must_report_none: bool,
    /// A `send` or `recv` has queued events. The next poll must check for arrivals although the
    /// queue is not empty.
    has_queued: bool,
    backoff: Backoff,
    /// Memory shared with other ranks of the node.
    shared_memory: Option<SharedMemory>,
    /// Number of copies of control messages that have not matched. No rank has to receive them, but
    /// until then the library's identifiers must not be reused ([`Net::abandon`]).
    n_unmatched: usize,
    /// Free buffers for such copies.
    control_pool: Vec<HeapFrame>,
    n_polls: u32,
    /// The endpoint is ending, so no test is skipped.
    is_ending: bool,
    /// Checks of shared memory in one [`Net::idle`].
    n_checks: usize,
}

/// Operation that a request carries out. A `matched` send completes only after its receive was
/// posted ([`Net::send`]).
#[derive(Clone, Copy)]
enum RequestInfo {
    Send {
        to: Rank,
        tag: Tag,
        matched: bool,
    },
    Receive {
        from: Option<Rank>,
        tag: Tag,
    },
    /// Sends a copy of a control message, which completes when it has matched.
    Control {
        to: Rank,
    },
}

impl<R: Requests> Messages<R> {
    /// Wraps a library.
    pub fn new(library: R) -> Self {
        Self {
            library,
            pending: PendingRequests::new(),
            events: VecDeque::new(),
            failures: VecDeque::new(),
            must_report_none: false,
            has_queued: false,
            backoff: Backoff::default(),
            shared_memory: None,
            n_unmatched: 0,
            control_pool: Vec::new(),
            n_polls: 0,
            is_ending: false,
            n_checks: 0,
        }
    }

    /// Makes frames of `frame_bytes` pass through shared memory between ranks of a node, if they
    /// can share memory. All ranks call it together, before they send anything. `all_gather`
    /// returns the input of each rank, by rank.
    ///
    /// # Errors
    /// The errors of `all_gather`.
    pub fn share_memory<E>(
        mut self,
        frame_bytes: usize,
        all_gather: impl FnMut(&[u8]) -> Result<Vec<Vec<u8>>, E>,
    ) -> Result<Self, E> {
        let (own, nodes) = (self.library.rank(), self.library.nodes());
        self.shared_memory = SharedMemory::join(own, nodes, frame_bytes, all_gather)?;
        let n_peers = self.shared_memory.as_ref().map_or(0, SharedMemory::n_peers);
        self.n_checks = if n_peers < n_cores() { CHECKS_PER_WAIT } else { 0 };
        Ok(self)
    }

    /// Returns whether frames between this rank and `peer` pass through shared memory.
    pub fn shares_memory_with(&self, peer: Rank) -> bool {
        self.shared_memory.as_ref().is_some_and(|shared| shared.contains(peer))
    }

    /// Returns the shared memory, if messages with this tag to and from `peer` use it.
    fn shared_with(&mut self, peer: Rank, tag: Tag) -> Option<&mut SharedMemory> {
        self.shared_memory.as_mut().filter(|shared| !tag.is_control() && shared.contains(peer))
    }

    /// Queues an event for the next poll.
    fn queue(&mut self, event: Option<Event<MessageFrame>>) {
        if let Some(event) = event {
            self.has_queued = true;
            self.events.push_back(event);
        }
    }

    /// Sends a control message. Its buffer is free at once, as if the library had copied it.
    fn send_control(
        &mut self,
        to: Rank,
        tag: Tag,
        buffer: MessageFrame,
        n_bytes: usize,
    ) -> Result<(), Refused<MessageFrame, R::Error>> {
        let spare = self.control_pool.pop().filter(|spare| spare.as_ref().len() >= n_bytes);
        let Some(mut copy) = spare.or_else(|| HeapFrame::try_new(n_bytes.max(MIN_FRAME_BYTES)))
        else {
            let error = self.library.error(self.library.no_memory(), None);
            return Err(Refused::Failed(buffer, error));
        };
        copy.as_mut()[..n_bytes].copy_from_slice(&buffer.as_ref()[..n_bytes]);
        let (info, how) = (RequestInfo::Control { to }, ((to, on_wire(tag)), true));
        match self.pending.send(&mut self.library, info, how, copy.into(), n_bytes) {
            Ok(()) => {
                self.n_unmatched += 1;
                self.queue(Some(Event::Released { to, tag, buffer, matched: false }));
                Ok(())
            }
            Err((_, code)) => Err(Refused::Failed(buffer, self.library.error(code, Some(to)))),
        }
    }

    /// Returns whether this poll must test the library. Most polls skip the test while the only
    /// pending request is the receive for notices, and the rank does not sleep.
    fn is_test_due(&mut self) -> bool {
        self.n_polls = self.n_polls.wrapping_add(1);
        let n_awaited = self.pending.n() - self.n_unmatched;
        let is_quiet = self.shared_memory.is_some() && n_awaited <= 1 && !self.is_ending;
        !is_quiet || self.backoff.has_slept() || self.n_polls.is_multiple_of(POLLS_PER_TEST)
    }

    /// Posts the receives of messages that other ranks of the node have announced.
    fn post_announced(&mut self) -> Result<(), R::Error> {
        let Self { library, pending, shared_memory: Some(shared), .. } = self else {
            return Ok(());
        };
        for AnnouncedReceive { from, tag, buffer } in shared.take_receives() {
            let (info, from) = (RequestInfo::Receive { from: Some(from), tag }, Some(from));
            let posted = pending.recv(library, info, (from, tag), buffer);
            posted.map_err(|(_, code)| library.error(code, from))?;
        }
        Ok(())
    }

    /// Queues the events and errors of all completed requests.
    fn test(&mut self) -> Result<(), R::Error> {
        let Self { library, pending, events, failures, n_unmatched, control_pool, .. } = self;
        let mut codes = Vec::new();
        let tested = pending.test(library, |info, buffer, completion| {
            let (event, peer) = match info {
                RequestInfo::Control { to } => {
                    *n_unmatched -= 1;
                    if let FrameMemory::Heap(frame) = buffer.0 {
                        control_pool.push(frame);
                    }
                    (None, Some(to))
                }
                RequestInfo::Send { to, tag, matched } => {
                    (Some(Event::Released { to, tag, buffer, matched }), Some(to))
                }
                RequestInfo::Receive { from, tag } => match completion {
                    Ok(Some((from, n_bytes))) => {
                        (Some(Event::Received { from, tag, buffer, n_bytes }), Some(from))
                    }
                    _ => (Some(Event::Returned { buffer }), from),
                },
            };
            events.extend(event);
            codes.extend(completion.err().map(|code| (code, peer)));
        });
        failures.extend(codes.into_iter().map(|(code, peer)| library.error(code, peer)));
        tested.map_err(|code| library.error(code, None))
    }
}

impl<R: Requests> Net for Messages<R> {
    type Buffer = MessageFrame;
    type Error = R::Error;

    fn rank(&self) -> Rank {
        self.library.rank()
    }

    fn size(&self) -> usize {
        self.library.size()
    }

    fn allocate(&mut self, n_bytes: usize) -> Result<MessageFrame, R::Error> {
        if let Some(frame) = self.shared_memory.as_mut().and_then(|shared| shared.allocate(n_bytes))
        {
            return Ok(MessageFrame(FrameMemory::Shared(frame)));
        }
        let (library, frame) = (&self.library, HeapFrame::try_new(n_bytes));
        let frame = frame.ok_or_else(|| library.error(library.no_memory(), None))?;
        Ok(MessageFrame(FrameMemory::Heap(frame)))
    }

    fn accepts(&self, buffer: &MessageFrame) -> bool {
        match &buffer.0 {
            FrameMemory::Heap(_) => true,
            FrameMemory::Shared(frame) => {
                self.shared_memory.as_ref().is_some_and(|shared| shared.owns(frame))
            }
        }
    }

    fn send(
        &mut self,
        to: Rank,
        tag: Tag,
        mut buffer: MessageFrame,
        n_bytes: usize,
        matched: bool,
    ) -> Result<(), Refused<MessageFrame, R::Error>> {
        self.backoff.reset();
        if let Some(shared) = self.shared_with(to, tag) {
            match shared.send(to, tag, buffer, n_bytes, matched).map_err(Refused::Busy)? {
                AcceptedSend::Shared(done) => {
                    self.queue(done);
                    return Ok(());
                }
                AcceptedSend::Announced(frame) => buffer = frame,
            }
        }
        if tag.is_control() {
            return self.send_control(to, tag, buffer, n_bytes);
        }
        let (info, how) = (RequestInfo::Send { to, tag, matched }, ((to, on_wire(tag)), matched));
        let sent = self.pending.send(&mut self.library, info, how, buffer, n_bytes);
        sent.map_err(|(buffer, code)| Refused::Failed(buffer, self.library.error(code, Some(to))))
    }

    fn recv(
        &mut self,
        from: Source,
        tag: Tag,
        buffer: MessageFrame,
    ) -> Result<(), Refused<MessageFrame, R::Error>> {
        if let Source::Rank(peer) = from
            && let Some(shared) = self.shared_with(peer, tag)
        {
            let received = shared.recv(peer, tag, buffer);
            self.queue(received);
            return Ok(());
        }
        let from = match from {
            Source::Rank(rank) => Some(rank),
            Source::Any => None,
        };
        let info = RequestInfo::Receive { from, tag };
        let posted = self.pending.recv(&mut self.library, info, (from, tag), buffer);
        posted.map_err(|(buffer, code)| Refused::Failed(buffer, self.library.error(code, from)))
    }

    fn poll(&mut self) -> Result<Option<Event<MessageFrame>>, R::Error> {
        // Each failure may concern another rank.
        if let Some(error) = self.failures.pop_front() {
            return Err(error);
        }
        if mem::take(&mut self.must_report_none) {
            return Ok(None);
        }
        if self.events.is_empty() || mem::take(&mut self.has_queued) {
            if let Some(shared) = &mut self.shared_memory {
                shared.poll(&mut self.events);
            }
            self.post_announced()?;
            if self.is_test_due() {
                self.test()?;
                if let Some(error) = self.failures.pop_front() {
                    return Err(error);
                }
            }
        }
        let event = self.events.pop_front();
        self.must_report_none = event.is_some() && self.events.is_empty();
        if event.is_some() {
            self.backoff.reset();
        }
        Ok(event)
    }

    fn end(&mut self, _: bool) {
        self.is_ending = true;
    }

    fn cancel_receives(&mut self) {
        self.must_report_none = false;
        let receives = |info| matches!(info, RequestInfo::Receive { .. });
        self.pending.cancel(&mut self.library, receives);
        if let Some(shared) = &mut self.shared_memory {
            shared.cancel(&mut self.events);
        }
    }

    fn forget(&mut self, peer: Rank) {
        if let Some(shared) = &mut self.shared_memory {
            shared.forget(peer);
        }
    }

    fn has_unmatched_control(&self) -> bool {
        self.n_unmatched > 0
    }

    fn abandon(&mut self) {
        self.library.abandon();
    }

    fn distance(&self, peer: Rank) -> Distance {
        let (nodes, own) = (self.library.nodes(), self.library.rank());
        let same_node = nodes.get(peer.index()) == nodes.get(own.index());
        match same_node {
            true if self.shares_memory_with(peer) => Distance::Memory,
            true => Distance::Node,
            false => Distance::Network,
        }
    }

    fn needs_checksum(&self) -> bool {
        // A node's number is its lowest rank. If all are 0, no frame leaves the node.
        self.library.nodes().iter().any(|&node| node != 0)
    }

    fn idle(&mut self, budget: Duration) {
        if let Some(shared) = &self.shared_memory
            && !budget.is_zero()
        {
            for _ in 0..self.n_checks {
                if shared.has_message() {
                    return;
                }
                hint::spin_loop();
            }
        }
        self.backoff.wait(budget);
    }
}

impl<R: Requests> fmt::Debug for Messages<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (rank, size) = (self.library.rank(), self.library.size());
        f.debug_struct("Messages").field("rank", &rank).field("size", &size).finish_non_exhaustive()
    }
}
