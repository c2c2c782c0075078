//! The message layer: requests of MPI's, and the buffers that they work on.

use std::collections::VecDeque;
use std::marker::PhantomData;
use std::time::Duration;

use foldwire::HeapFrame;
use foldwire::transport::{Distance, Rank, Tag};
use foldwire_messaging::{Event, Net, Patience, Refused, Source, on_wire};
use mpi::topology::Communicator;

use crate::Error;
use crate::ffi::{Comm, Requests};

/// A duplicated communicator and what is under way on it.
pub struct Mpi {
    comm: Comm,
    /// What each request was, at the same index as the request.
    requests: Requests<Request>,
    events: VecDeque<Event<HeapFrame>>,
    /// What the last test found has been handed out: whoever asks on hears that there is no more,
    /// and MPI is not asked twice in a pass.
    has_handed_out: bool,
    patience: Patience,
    /// MPI may be called by the thread only that initialised it.
    one_thread: PhantomData<*const ()>,
}

/// What a request of MPI's is about.
#[derive(Clone, Copy, Debug)]
enum Request {
    Send { to: Rank, tag: Tag, matched: bool },
    Receive { from: Source, tag: Tag },
}

impl Mpi {
    /// A message layer of its own between the ranks of `communicator`. All ranks call it together.
    ///
    /// # Errors
    /// MPI's.
    pub fn duplicate(communicator: &impl Communicator) -> Result<Self, Error> {
        Ok(Self {
            comm: Comm::duplicate(communicator)?,
            requests: Requests::new(),
            events: VecDeque::new(),
            has_handed_out: false,
            patience: Patience::default(),
            one_thread: PhantomData,
        })
    }

    /// Collects what MPI has completed.
    fn test(&mut self) -> Result<(), Error> {
        let events = &mut self.events;
        self.requests.test(|request, memory, outcome| {
            let peer = match request {
                Request::Send { to, .. } => Some(to),
                Request::Receive { from: Source::Rank(from), .. } => Some(from),
                Request::Receive { from: Source::Any, .. } => None,
            };
            let error = outcome.as_ref().err().map(|&code| Error::new(code, peer));
            match (request, outcome) {
                (Request::Send { to, tag, matched }, _) => {
                    events.push_back(Event::Released { to, tag, buffer: memory, matched });
                }
                (Request::Receive { tag, .. }, Ok(Some((from, n_bytes)))) => {
                    events.push_back(Event::Received { from, tag, buffer: memory, n_bytes });
                }
                (Request::Receive { .. }, _) => {
                    events.push_back(Event::Returned { buffer: memory });
                }
            }
            error.map_or(Ok(()), Err)
        })
    }
}

impl Net for Mpi {
    type Buffer = HeapFrame;
    type Error = Error;

    fn rank(&self) -> Rank {
        self.comm.rank()
    }

    fn size(&self) -> usize {
        self.comm.size()
    }

    fn allocate(&mut self, n_bytes: usize) -> Result<HeapFrame, Error> {
        HeapFrame::try_new(n_bytes).ok_or(Error::new(crate::ffi::NO_MEMORY_ERROR, None))
    }

    fn send(
        &mut self,
        to: Rank,
        tag: Tag,
        buffer: HeapFrame,
        n_bytes: usize,
        matched: bool,
    ) -> Result<(), Refused<HeapFrame, Error>> {
        self.patience.renew();
        let request = Request::Send { to, tag, matched };
        self.requests
            .send(&self.comm, request, to, on_wire(tag), buffer, n_bytes, matched)
            .map_err(|(buffer, code)| Refused::Failed(buffer, Error::new(code, Some(to))))
    }

    fn recv(
        &mut self,
        from: Source,
        tag: Tag,
        buffer: HeapFrame,
    ) -> Result<(), Refused<HeapFrame, Error>> {
        let rank = match from {
            Source::Rank(rank) => Some(rank),
            Source::Any => None,
        };
        let request = Request::Receive { from, tag };
        self.requests
            .recv(&self.comm, request, rank, tag, buffer)
            .map_err(|(buffer, code)| Refused::Failed(buffer, Error::new(code, rank)))
    }

    fn poll(&mut self) -> Result<Option<Event<HeapFrame>>, Error> {
        if std::mem::take(&mut self.has_handed_out) {
            return Ok(None);
        }
        if self.events.is_empty() {
            self.test()?;
        }
        let event = self.events.pop_front();
        self.has_handed_out = event.is_some() && self.events.is_empty();
        if event.is_some() {
            self.patience.renew();
        }
        Ok(event)
    }

    fn cancel_receives(&mut self) {
        self.has_handed_out = false;
        self.requests.cancel(|request| matches!(request, Request::Receive { .. }));
    }

    fn abandon(&mut self) {
        self.comm.keep_forever();
    }

    fn distance(&self, peer: Rank) -> Distance {
        if self.comm.shares_memory_with(peer) { Distance::Node } else { Distance::Network }
    }

    fn needs_checksum(&self) -> bool {
        !self.comm.is_in_memory()
    }

    fn idle(&mut self, budget: Duration) {
        self.patience.rest(budget);
    }
}

impl std::fmt::Debug for Mpi {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Mpi")
            .field("rank", &self.comm.rank())
            .field("size", &self.comm.size())
            .finish_non_exhaustive()
    }
}
