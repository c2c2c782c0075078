//! Foldwire over TCP sockets, without system libraries or unsafe code.
//!
//! [`join`] takes [`Settings`] and an [`Exchange`], through which the ranks exchange addresses. It
//! returns a transport for a `Communicator`.
//!
//! ```no_run
//! use foldwire::{Bound, Communicator, Op, Plan};
//! use foldwire_bootstrap::Rendezvous;
//!
//! let mut session = Rendezvous::from_env()?.join()?;
//! let settings = foldwire_tcp::Settings::from_env()?;
//! let mut comm = Communicator::new(foldwire_tcp::join(&settings, &mut session)?)?;
//! let mut data = vec![1.0f32; 1000];
//! comm.all_reduce(&mut data, Op::Sum, &Plan::foldwire(Bound::Relative(1e-4)))?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! *Transfer.* Each pair of ranks has 1 to 16 connections and distributes its frames over them.
//! Frames are sent without copies and received into frames. A receiver always reads, and senders
//! keep to the credit of their links. Messages progress when the caller polls. Between polls, the
//! system moves the bytes that its sockets hold. A thread that only watches the sockets wakes
//! futures (on Unix).
//!
//! *Authentication.* Both ends of each connection prove that they know the session's secret, which
//! is derived from the token. Sockets listen on loopback unless an address or interface is set, and
//! then a token is required. Without [`Settings::encrypt`], the data is neither encrypted nor
//! authenticated. An attacker that can read packets can read the data, and one that can change
//! packets can change results.
//!
//! *Lost ranks.* A connection ends when the peer's process ends. If a machine vanishes, keep-alive
//! detects it after 25 s; ranks on different machines have one more connection for that, which is
//! always idle. If a process neither ends nor continues, calls end by their time limit. A rank that
//! violates the protocol is disconnected. [`Tcp::loss`] returns the reason for a loss.
//!
//! | module | contents |
//! |---|---|
//! | `join`, `handshake` | joining: exchange of offers, connections and their handshakes |
//! | `grow` | groups that take in newcomers |
//! | `secret`, `noise` | the session's secret and proofs of knowing it; encryption (feature `noise`) |
//! | `net`, `incoming` | the message layer: choice of a connection, losses, shutdown; received messages |
//! | `link`, `header` | order and credit of a link; header of a message |
//! | `message_stream`, `reader`, `byte_stream` | one connection: send queue; parser; bytes, plain or encrypted |
//! | `rest`, `waker_thread` | waiting: yields, then sleep; waking of futures |
#![forbid(unsafe_code)]

mod byte_stream;
mod error;
#[doc(hidden)]
pub mod fuzzing;
mod grow;
mod handshake;
mod header;
mod incoming;
mod join;
mod link;
mod message_stream;
mod net;
#[cfg(feature = "noise")]
mod noise;
mod reader;
mod rest;
mod secret;
mod settings;
#[cfg(unix)]
mod waker_thread;

pub use error::{Error, JoinError, PeerLoss};
pub use foldwire_messaging::Options;
pub use grow::{GrownGroup, TcpConnector, admit, rejoin};
pub use header::ProtocolViolation;
pub use net::Tcp;
pub use settings::{Settings, SettingsError};

use foldwire_bootstrap::Exchange;

/// Most data connections of a pair of ranks.
pub const MAX_STREAMS: usize = 16;

/// The transport over TCP.
pub type Endpoint = foldwire_messaging::Endpoint<Tcp>;

foldwire::compile_calls!(Endpoint);

/// Error of an [`Endpoint`].
pub type EndpointError = foldwire_messaging::Error<Error>;

/// Connects the ranks of `exchange` and returns a transport between them. All ranks call it
/// together. The exchange is needed only during the call.
///
/// # Errors
/// If the exchange fails, settings or tokens differ, or ranks cannot reach each other.
pub fn join<X: Exchange>(settings: &Settings, exchange: &mut X) -> Result<Endpoint, JoinError> {
    Ok(Endpoint::new(Tcp::join(settings, exchange)?, settings.effective_options())?)
}

impl Tcp {
    /// Connects the ranks of `exchange` and returns the message layer alone. See
    /// [`join`](crate::join()) for a transport.
    ///
    /// The message layer manages no credit, so its user must. On a link, a sender may be ahead of
    /// the receiver by at most twice [`Options::link_depth`] messages, or twice
    /// [`Settings::streams`] if that is more.
    ///
    /// # Errors
    /// See [`join`](crate::join()).
    pub fn join<X: Exchange>(settings: &Settings, exchange: &mut X) -> Result<Self, JoinError> {
        join::join(settings, exchange)
    }
}
