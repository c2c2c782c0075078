//! The message layer of calls that are taken: messages of the MPI library's own, on a communicator
//! that the program does not see.

use std::collections::VecDeque;
use std::fmt;
use std::time::Duration;

use foldwire::HeapFrame;
use foldwire::transport::{Distance, Rank, Tag, TransportError, TransportErrorKind as Kind};
use foldwire_messaging::{Event, Net, Patience, Refused, Source, on_wire};

use crate::ffi::requests::{Comm, Requests};

/// A communicator of ours and what is under way on it.
pub(crate) struct Wire {
    comm: Comm,
    /// Of each rank, the lowest that shares memory with it.
    nodes: Vec<i64>,
    requests: Requests<Request>,
    events: VecDeque<Event<HeapFrame>>,
    patience: Patience,
}

/// What a request of MPI's is about.
#[derive(Clone, Copy, Debug)]
enum Request {
    Send { to: Rank, tag: Tag, matched: bool },
    Receive { from: Source, tag: Tag },
}

impl Wire {
    /// On this communicator.
    pub(crate) fn new(comm: Comm, nodes: Vec<i64>) -> Self {
        Self {
            comm,
            nodes,
            requests: Requests::new(),
            events: VecDeque::new(),
            patience: Patience::default(),
        }
    }

    fn error(&self, code: i32, peer: Option<Rank>) -> Error {
        let [is_truncated, is_no_memory] = self.comm.mpi.class(code);
        Error { code, peer, is_truncated, is_no_memory }
    }

    /// Collects what MPI has completed.
    fn test(&mut self) -> Result<(), Error> {
        let Self { comm, requests, events, .. } = self;
        let error = |code, peer| {
            let [is_truncated, is_no_memory] = comm.mpi.class(code);
            Error { code, peer, is_truncated, is_no_memory }
        };
        requests.test(
            comm,
            |code| error(code, None),
            |request, memory, outcome| {
                let peer = match request {
                    Request::Send { to, .. } => Some(to),
                    Request::Receive { from: Source::Rank(from), .. } => Some(from),
                    Request::Receive { from: Source::Any, .. } => None,
                };
                let failed = outcome.err().map(|code| error(code, peer));
                events.push_back(match (request, outcome) {
                    (Request::Send { to, tag, matched }, _) => {
                        Event::Released { to, tag, buffer: memory, matched }
                    }
                    (Request::Receive { tag, .. }, Ok(Some((from, n_bytes)))) => {
                        Event::Received { from: Rank::new(from), tag, buffer: memory, n_bytes }
                    }
                    (Request::Receive { .. }, _) => Event::Returned { buffer: memory },
                });
                failed.map_or(Ok(()), Err)
            },
        )
    }
}

impl Net for Wire {
    type Buffer = HeapFrame;
    type Error = Error;

    fn rank(&self) -> Rank {
        self.comm.rank
    }

    fn size(&self) -> usize {
        self.comm.size
    }

    fn allocate(&mut self, n_bytes: usize) -> Result<HeapFrame, Error> {
        HeapFrame::try_new(n_bytes).ok_or_else(|| self.error(self.comm.mpi.no_memory(), None))
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
            .send(&self.comm, request, (to, on_wire(tag)), buffer, n_bytes, matched)
            .map_err(|(buffer, code)| Refused::Failed(buffer, self.error(code, Some(to))))
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
        self.requests
            .recv(&self.comm, Request::Receive { from, tag }, (rank, tag), buffer)
            .map_err(|(buffer, code)| Refused::Failed(buffer, self.error(code, rank)))
    }

    fn poll(&mut self) -> Result<Option<Event<HeapFrame>>, Error> {
        if self.events.is_empty() {
            self.test()?;
        }
        let event = self.events.pop_front();
        if event.is_some() {
            self.patience.renew();
        }
        Ok(event)
    }

    fn cancel_receives(&mut self) {
        self.requests.cancel(&self.comm, |request| matches!(request, Request::Receive { .. }));
    }

    fn abandon(&mut self) {
        self.comm.keep_forever();
    }

    fn distance(&self, peer: Rank) -> Distance {
        let is_near = self.nodes.get(peer.index()) == self.nodes.get(self.comm.rank.index());
        if is_near { Distance::Node } else { Distance::Network }
    }

    fn needs_checksum(&self) -> bool {
        self.nodes.iter().any(|&node| node != 0)
    }

    fn idle(&mut self, budget: Duration) {
        self.patience.rest(budget);
    }
}

/// An error that MPI returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Error {
    code: i32,
    peer: Option<Rank>,
    is_truncated: bool,
    is_no_memory: bool,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MPI's error {}", self.code)?;
        self.peer.map_or(Ok(()), |peer| write!(f, " (rank {peer})"))
    }
}

impl std::error::Error for Error {}

impl TransportError for Error {
    fn kind(&self) -> Kind {
        match self {
            Self { is_truncated: true, .. } => Kind::Truncated,
            Self { is_no_memory: true, .. } => Kind::OutOfFrames,
            // MPI has no class for a lost process before version 5.
            Self { peer: Some(_), .. } => Kind::PeerLost,
            _ => Kind::Other,
        }
    }

    fn peer(&self) -> Option<Rank> {
        self.peer
    }
}
