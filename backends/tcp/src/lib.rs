//! Foldwire over TCP sockets: no library of the system's, no unsafe code.
//!
//! [`join`] takes [`Settings`] and an [`Exchange`] by which the ranks tell each other their
//! addresses, and gives a transport for a `Communicator`.
//!
//! ```no_run
//! use foldwire::{Bound, Communicator, Op, Plan};
//! use foldwire_bootstrap::Rendezvous;
//!
//! let mut party = Rendezvous::from_env()?.join()?;
//! let settings = foldwire_tcp::Settings::from_env()?;
//! let mut comm = Communicator::new(foldwire_tcp::join(&settings, &mut party)?)?;
//! let mut data = vec![1.0f32; 1000];
//! comm.all_reduce(&mut data, Op::Sum, &Plan::foldwire(Bound::Relative(1e-4)))?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! *What it does.* Each two ranks have 1 to 16 connections, to which frames are dealt. Frames leave
//! as they are and are read into frames. A receiver always reads; senders keep to the credit of
//! their links. The network moves when it is polled, by one thread, and meanwhile in the system's
//! sockets; futures are woken (on Unix) by a thread that only watches.
//!
//! *Strangers.* Both ends of each connection show that they know the session's secret, which is
//! made of the token. Sockets listen on the loopback interface unless an address or interface is
//! named, and then a token must be there. Without [`Settings::encrypt`], nothing that follows is
//! hidden or protected: whoever can read the network's packets can read the data, and whoever can
//! change them can change results.
//!
//! *Who is lost* the connections tell: when its process ends; after 25 s if its machine has
//! vanished, for which those on different machines have one more connection that keeps quiet. Else
//! calls end by their time limit. A rank that sends what none would is cut off. [`Tcp::loss`] says
//! what it was.
//!
//! | module | what it is |
//! |---|---|
//! | `join`, `handshake` | ranks come together: offers, connections, who is a stranger |
//! | `secret`, `noise` | the session's secret and proofs of it; encryption (feature `noise`) |
//! | `net`, `incoming` | messages as events, dealt to connections; losses; the end; what has come |
//! | `link`, `header` | order and credit of a link; what stands before a message |
//! | `message_stream`, `reader`, `byte_stream` | one connection: queue; messages; bytes |
//! | `waker_thread` | wakes futures |
#![forbid(unsafe_code)]

mod byte_stream;
mod error;
#[doc(hidden)]
pub mod fuzzing;
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
mod secret;
mod settings;
#[cfg(unix)]
mod waker_thread;

pub use error::{Error, JoinError, PeerLoss};
pub use foldwire_messaging::Options;
pub use header::ProtocolViolation;
pub use net::Tcp;
pub use settings::{Settings, SettingsError};

use foldwire_bootstrap::Exchange;

/// Most connections of each pair of ranks for what travels.
pub const MAX_STREAMS: usize = 16;

/// The transport over TCP.
pub type Endpoint = foldwire_messaging::Endpoint<Tcp>;

foldwire::compile_calls!(Endpoint);

/// Why an [`Endpoint`] failed.
pub type EndpointError = foldwire_messaging::Error<Error>;

/// A transport between the ranks of `exchange`. All ranks call it together. The exchange is needed
/// only during the call.
///
/// # Errors
/// When the exchange fails, settings differ, or ranks do not reach or know each other.
pub fn join<X: Exchange>(settings: &Settings, exchange: &mut X) -> Result<Endpoint, JoinError> {
    Ok(Endpoint::new(Tcp::join(settings, exchange)?, settings.effective_options())?)
}

impl Tcp {
    /// The message layer alone, without frames and credit, which its users must keep to: no further
    /// ahead of a receiver than twice [`Options::link_depth`] messages of a link, or
    /// [`Settings::streams`] if that is more. See [`join`](crate::join()) for a transport.
    ///
    /// # Errors
    /// As [`join`](crate::join()).
    pub fn join<X: Exchange>(settings: &Settings, exchange: &mut X) -> Result<Self, JoinError> {
        join::join(settings, exchange)
    }
}
