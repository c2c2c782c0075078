//! The transport of all communicators, chosen here and nowhere else: memory between threads of one
//! process, TCP where ranks are of several.
//!
//! | module | what it is |
//! |---|---|
//! | `token` | what a unique id holds, and the process's table of those it has made |
//! | `join` | ranks meet, by a unique id or by what a launcher says, and see which it is |
//! | `fault` | why they do not |
//! | `watch` | who may end a call that this thread waits in |

mod fault;
mod join;
mod token;
pub(crate) mod watch;

use std::task::{Poll, Waker};
use std::time::Duration;

use foldwire::transport::{
    Distance, Rank, Tag, Transport, TransportError, TransportErrorKind as Kind,
};
use foldwire_threads::World;

use crate::border::Fault;
pub(crate) use join::{check, join, join_env, together};
pub(crate) use token::{Token, listeners, token};

type Threads = foldwire_threads::Endpoint;
type Tcp = foldwire_tcp::Endpoint;

/// Most ranks of a process: each may have a link to every other one.
const MAX_RANKS: usize = 1024;

/// What communicators run over.
pub(crate) enum Wire {
    /// All ranks are threads of this process.
    Threads(Box<Threads>),
    /// They are of several.
    Tcp(Box<Tcp>),
}

/// A message buffer.
pub(crate) enum Frame {
    Threads(<Threads as Transport>::Frame),
    Tcp(<Tcp as Transport>::Frame),
}

/// The endpoints of so many ranks that are threads.
pub(crate) fn all(n_ranks: usize) -> Result<Vec<Wire>, Fault> {
    if (1..=MAX_RANKS).contains(&n_ranks) {
        let endpoints = World::new(n_ranks).endpoints().into_iter();
        Ok(endpoints.map(|endpoint| Wire::Threads(Box::new(endpoint))).collect())
    } else {
        Err(Fault::argument(format!("{n_ranks} ranks; a process has 1 to {MAX_RANKS}")))
    }
}

impl AsRef<[u8]> for Frame {
    fn as_ref(&self) -> &[u8] {
        match self {
            Self::Threads(frame) => frame.as_ref(),
            Self::Tcp(frame) => frame.as_ref(),
        }
    }
}

impl AsMut<[u8]> for Frame {
    fn as_mut(&mut self) -> &mut [u8] {
        match self {
            Self::Threads(frame) => frame.as_mut(),
            Self::Tcp(frame) => frame.as_mut(),
        }
    }
}

/// Of a transport's error, what core acts on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Failure {
    kind: Kind,
    peer: Option<Rank>,
}

impl Failure {
    const ENDED: Self = Self { kind: Kind::Other, peer: None };

    fn of<E: TransportError>(error: E) -> Self {
        Self { kind: error.kind(), peer: error.peer() }
    }
}

impl TransportError for Failure {
    fn kind(&self) -> Kind {
        self.kind
    }

    fn peer(&self) -> Option<Rank> {
        self.peer
    }
}

/// The same of either transport.
macro_rules! each {
    ($wire:expr, $each:ident => $body:expr) => {
        match $wire {
            Wire::Threads($each) => $body,
            Wire::Tcp($each) => $body,
        }
    };
}

impl Transport for Wire {
    type Frame = Frame;
    type Error = Failure;

    fn rank(&self) -> Rank {
        each!(self, wire => wire.rank())
    }

    fn size(&self) -> usize {
        each!(self, wire => wire.size())
    }

    fn frame_capacity(&self) -> usize {
        each!(self, wire => wire.frame_capacity())
    }

    fn n_channels(&self) -> usize {
        each!(self, wire => wire.n_channels())
    }

    fn poll_frame(&mut self) -> Poll<Result<Frame, Failure>> {
        match self {
            Self::Threads(wire) => wire.poll_frame().map_ok(Frame::Threads).map_err(Failure::of),
            Self::Tcp(wire) => wire.poll_frame().map_ok(Frame::Tcp).map_err(Failure::of),
        }
    }

    fn n_frames(&self) -> Option<usize> {
        each!(self, wire => wire.n_frames())
    }

    fn poll_ready(&mut self, to: Rank, tag: Tag) -> Poll<Result<(), Failure>> {
        each!(self, wire => wire.poll_ready(to, tag).map_err(Failure::of))
    }

    fn send(&mut self, to: Rank, tag: Tag, frame: Frame, n_bytes: usize) -> Result<(), Failure> {
        match (self, frame) {
            (Self::Threads(wire), Frame::Threads(frame)) => {
                wire.send(to, tag, frame, n_bytes).map_err(Failure::of)
            }
            (Self::Tcp(wire), Frame::Tcp(frame)) => {
                wire.send(to, tag, frame, n_bytes).map_err(Failure::of)
            }
            _ => Err(Failure { kind: Kind::Misuse, peer: Some(to) }),
        }
    }

    fn poll_recv(&mut self, from: Rank, tag: Tag) -> Poll<Result<(Frame, usize), Failure>> {
        match self {
            Self::Threads(wire) => {
                let came = wire.poll_recv(from, tag).map_err(Failure::of);
                came.map_ok(|(frame, n_bytes)| (Frame::Threads(frame), n_bytes))
            }
            Self::Tcp(wire) => {
                let came = wire.poll_recv(from, tag).map_err(Failure::of);
                came.map_ok(|(frame, n_bytes)| (Frame::Tcp(frame), n_bytes))
            }
        }
    }

    fn expect(&mut self, from: Rank, tag: Tag) {
        each!(self, wire => wire.expect(from, tag));
    }

    fn forget(&mut self, peer: Rank) {
        each!(self, wire => wire.forget(peer));
    }

    fn recycle(&mut self, frame: Frame) {
        match (self, frame) {
            (Self::Threads(wire), Frame::Threads(frame)) => wire.recycle(frame),
            (Self::Tcp(wire), Frame::Tcp(frame)) => wire.recycle(frame),
            // Of another communicator's.
            _ => {}
        }
    }

    fn undelivered(&self) -> Option<Rank> {
        each!(self, wire => wire.undelivered())
    }

    fn undelivered_of(&self, channel: usize) -> Option<Rank> {
        each!(self, wire => wire.undelivered_of(channel))
    }

    fn progress(&mut self) -> Result<(), Failure> {
        watch::ask()?;
        each!(self, wire => wire.progress().map_err(Failure::of))
    }

    fn nudge(&mut self) {
        each!(self, wire => wire.nudge());
    }

    fn now(&self) -> Duration {
        each!(self, wire => wire.now())
    }

    fn idle(&mut self, budget: Duration) {
        // Another thread may end the call meanwhile (fwCommAbort).
        each!(self, wire => wire.idle(budget.min(watch::REST)));
    }

    fn register(&mut self, waker: &Waker) -> bool {
        each!(self, wire => wire.register(waker))
    }

    fn link_rate(&self) -> Option<f64> {
        each!(self, wire => wire.link_rate())
    }

    fn distance(&self, peer: Rank) -> Distance {
        each!(self, wire => wire.distance(peer))
    }

    fn needs_checksum(&self) -> bool {
        each!(self, wire => wire.needs_checksum())
    }
}
