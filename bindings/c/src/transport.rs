//! The transport of all communicators: memory if all ranks are threads of one process, otherwise
//! TCP.
//!
//! | module | contents |
//! |---|---|
//! | `unique_id` | the format of unique ids, and the listening sockets of ids of this process |
//! | `join` | ranks find each other, by unique id or launcher, and choose the transport |
//! | `environment` | a warning about misspelled variables of the environment |
//! | `grow` | groups that take in newcomers |
//! | `join_error` | errors of joining, as errors of the API |
//! | `stop_check` | a check that can stop the calls of a thread |

mod environment;
mod grow;
mod join;
mod join_error;
pub(crate) mod stop_check;
mod unique_id;

use std::task::{Poll, Waker};
use std::time::Duration;

use foldwire::transport::{
    Distance, Rank, Tag, Transport, TransportError, TransportErrorKind as Kind,
};
use foldwire_threads::World;

use crate::errors::ApiError;
pub(crate) use environment::warn_of_unknown;
pub use grow::{GrownCommunicator, admit, rejoin};
pub(crate) use join::{check, local_ranks};
pub use join::{join, join_env, join_store};
pub use join_error::from_store;
pub use unique_id::new_unique_id;
pub(crate) use unique_id::{UniqueIdBytes, listeners};

type ThreadsEndpoint = foldwire_threads::Endpoint;
type TcpEndpoint = foldwire_tcp::Endpoint;

/// Largest number of ranks in one process. Each may have a link to every other one.
const MAX_LOCAL_RANKS: usize = 1024;

/// Transport of a communicator.
pub enum AnyTransport {
    /// All ranks are threads of this process.
    Threads(Box<ThreadsEndpoint>),
    /// Ranks are in several processes.
    Tcp(Box<TcpEndpoint>),
}

/// Message frame of either transport.
pub enum AnyFrame {
    Threads(<ThreadsEndpoint as Transport>::Frame),
    Tcp(<TcpEndpoint as Transport>::Frame),
}

/// Creates the endpoints of `n_ranks` ranks that are threads of this process. `rate` limits each
/// rank's link, in bytes per second in each direction. `None`: as fast as memory.
///
/// # Errors
/// If `n_ranks` is not from 1 to 1024, or `rate` is not positive and finite.
pub fn threads(n_ranks: usize, rate: Option<f64>) -> Result<Vec<AnyTransport>, ApiError> {
    if !(1..=MAX_LOCAL_RANKS).contains(&n_ranks) {
        return Err(ApiError::argument(format!(
            "{n_ranks} ranks; a process can have 1 to {MAX_LOCAL_RANKS}"
        )));
    }
    let world = World::new(n_ranks);
    let world = match rate {
        Some(rate) => world.link_rate(check_rate(rate)?),
        None => world,
    };
    let endpoints = world.endpoints().into_iter();
    Ok(endpoints.map(|endpoint| AnyTransport::Threads(Box::new(endpoint))).collect())
}

/// Checks a link's rate.
///
/// # Errors
/// If it is not positive and finite.
pub(crate) fn check_rate(rate: f64) -> Result<f64, ApiError> {
    let wrong = || format!("{rate} is not a valid link rate in bytes per second");
    let is_valid = rate > 0.0 && rate.is_finite();
    if is_valid { Ok(rate) } else { Err(ApiError::argument(wrong())) }
}

impl AsRef<[u8]> for AnyFrame {
    fn as_ref(&self) -> &[u8] {
        match self {
            Self::Threads(frame) => frame.as_ref(),
            Self::Tcp(frame) => frame.as_ref(),
        }
    }
}

impl AsMut<[u8]> for AnyFrame {
    fn as_mut(&mut self) -> &mut [u8] {
        match self {
            Self::Threads(frame) => frame.as_mut(),
            Self::Tcp(frame) => frame.as_mut(),
        }
    }
}

/// The parts of a transport's error that core uses.
#[derive(Clone, Copy, Debug)]
pub struct EndpointFailure {
    kind: Kind,
    peer: Option<Rank>,
}

impl EndpointFailure {
    /// The stop check ended the call.
    const STOPPED: Self = Self { kind: Kind::Other, peer: None };

    fn of<E: TransportError>(error: E) -> Self {
        Self { kind: error.kind(), peer: error.peer() }
    }
}

impl TransportError for EndpointFailure {
    fn kind(&self) -> Kind {
        self.kind
    }

    fn peer(&self) -> Option<Rank> {
        self.peer
    }
}

/// Evaluates an expression with the endpoint of either transport.
macro_rules! forward {
    ($transport:expr, $endpoint:ident => $body:expr) => {
        match $transport {
            AnyTransport::Threads($endpoint) => $body,
            AnyTransport::Tcp($endpoint) => $body,
        }
    };
}

impl Transport for AnyTransport {
    type Frame = AnyFrame;
    type Error = EndpointFailure;

    fn rank(&self) -> Rank {
        forward!(self, endpoint => endpoint.rank())
    }

    fn size(&self) -> usize {
        forward!(self, endpoint => endpoint.size())
    }

    fn frame_capacity(&self) -> usize {
        forward!(self, endpoint => endpoint.frame_capacity())
    }

    fn n_channels(&self) -> usize {
        forward!(self, endpoint => endpoint.n_channels())
    }

    fn poll_frame(&mut self) -> Poll<Result<AnyFrame, EndpointFailure>> {
        match self {
            Self::Threads(transport) => {
                transport.poll_frame().map_ok(AnyFrame::Threads).map_err(EndpointFailure::of)
            }
            Self::Tcp(transport) => {
                transport.poll_frame().map_ok(AnyFrame::Tcp).map_err(EndpointFailure::of)
            }
        }
    }

    fn n_frames(&self) -> Option<usize> {
        forward!(self, endpoint => endpoint.n_frames())
    }

    fn poll_ready(&mut self, to: Rank, tag: Tag) -> Poll<Result<(), EndpointFailure>> {
        forward!(self, endpoint => endpoint.poll_ready(to, tag).map_err(EndpointFailure::of))
    }

    fn send(
        &mut self,
        to: Rank,
        tag: Tag,
        frame: AnyFrame,
        n_bytes: usize,
    ) -> Result<(), EndpointFailure> {
        match (self, frame) {
            (Self::Threads(transport), AnyFrame::Threads(frame)) => {
                transport.send(to, tag, frame, n_bytes).map_err(EndpointFailure::of)
            }
            (Self::Tcp(transport), AnyFrame::Tcp(frame)) => {
                transport.send(to, tag, frame, n_bytes).map_err(EndpointFailure::of)
            }
            _ => Err(EndpointFailure { kind: Kind::Misuse, peer: Some(to) }),
        }
    }

    fn poll_recv(
        &mut self,
        from: Rank,
        tag: Tag,
    ) -> Poll<Result<(AnyFrame, usize), EndpointFailure>> {
        match self {
            Self::Threads(transport) => {
                let received = transport.poll_recv(from, tag).map_err(EndpointFailure::of);
                received.map_ok(|(frame, n_bytes)| (AnyFrame::Threads(frame), n_bytes))
            }
            Self::Tcp(transport) => {
                let received = transport.poll_recv(from, tag).map_err(EndpointFailure::of);
                received.map_ok(|(frame, n_bytes)| (AnyFrame::Tcp(frame), n_bytes))
            }
        }
    }

    fn expect(&mut self, from: Rank, tag: Tag) {
        forward!(self, endpoint => endpoint.expect(from, tag));
    }

    fn forget(&mut self, peer: Rank) {
        forward!(self, endpoint => endpoint.forget(peer));
    }

    fn recycle(&mut self, frame: AnyFrame) {
        match (self, frame) {
            (Self::Threads(transport), AnyFrame::Threads(frame)) => transport.recycle(frame),
            (Self::Tcp(transport), AnyFrame::Tcp(frame)) => transport.recycle(frame),
            // A frame of another communicator's transport is dropped.
            _ => {}
        }
    }

    fn undelivered(&self) -> Option<Rank> {
        forward!(self, endpoint => endpoint.undelivered())
    }

    fn undelivered_of(&self, channel: usize) -> Option<Rank> {
        forward!(self, endpoint => endpoint.undelivered_of(channel))
    }

    fn progress(&mut self) -> Result<(), EndpointFailure> {
        stop_check::check()?;
        forward!(self, endpoint => endpoint.progress().map_err(EndpointFailure::of))
    }

    fn nudge(&mut self) {
        forward!(self, endpoint => endpoint.nudge());
    }

    fn now(&self) -> Duration {
        forward!(self, endpoint => endpoint.now())
    }

    fn idle(&mut self, budget: Duration) {
        // Wake up regularly, because another thread may abort the call (fwCommAbort).
        forward!(self, endpoint => endpoint.idle(budget.min(stop_check::POLL_INTERVAL)));
    }

    fn register(&mut self, waker: &Waker) -> bool {
        forward!(self, endpoint => endpoint.register(waker))
    }

    fn link_rate(&self) -> Option<f64> {
        forward!(self, endpoint => endpoint.link_rate())
    }

    fn distance(&self, peer: Rank) -> Distance {
        forward!(self, endpoint => endpoint.distance(peer))
    }

    fn needs_checksum(&self) -> bool {
        forward!(self, endpoint => endpoint.needs_checksum())
    }
}
