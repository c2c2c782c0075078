//! Bootstrap of a group of ranks over TCP: each rank finds its rank and size, connects to rank 0,
//! and exchanges addresses with the other ranks.
//!
//! ```text
//!   environment ──▶ Place ──▶ Rendezvous ──join──▶ Session: Exchange ──▶ a backend
//!                  (rank,     (waits for           (all_gather of addresses,
//!                   size,      all ranks)           then reports lost ranks)
//!                   root)
//! ```
//!
//! Rank 0 listens, the other ranks connect to it, and the connections stay open. Both ends of each
//! connection prove that they know the group's token. Connections from other programs do not stop
//! the group. If they crowd a rank out, it connects again until its time limit. Everything runs in
//! the caller's thread.
//!
//! | module | contents |
//! |---|---|
//! | `exchange` | trait through which backends exchange addresses; implemented here over TCP |
//! | `host` | which ranks share a node |
//! | `place` | rank, size and root from the variables of launchers |
//! | `pmi` | the wire protocol of PMI-1, for launchers that tell more only through it |
//! | `job` | identity of a job, so that two concurrent jobs do not mix |
//! | `root`, `token` | rank 0's address; the shared secret and proofs of knowing it |
//! | `rendezvous`, `session` | settings of a join; a group that has joined |
//! | `acceptor` | rank 0 while ranks are missing: accepts connections and admits ranks |
//! | `coordinator`, `rank_connections` | rank 0 after that: all-gathers, loss notices; state of each rank |
//! | `member` | the other ranks |
//! | `store` | meeting in a key-value store instead of at rank 0's socket |
//! | [`message`] | message format and its parser |
//! | [`protocol`] | protocol state machines, without sockets |
//! | `connection`, `poller` | a nonblocking connection; waiting for many of them |
//!
//! # Examples
//! ```no_run
//! use foldwire_bootstrap::{Exchange, Rendezvous};
//!
//! let mut session = Rendezvous::from_env()?.join()?;
//! let addresses = session.all_gather(b"this rank's address")?;
//! assert_eq!(addresses.len(), session.size());
//! # Ok::<(), foldwire_bootstrap::Error>(())
//! ```

mod acceptor;
mod connection;
mod coordinator;
mod error;
mod exchange;
#[doc(hidden)]
pub mod fuzzing;
mod host;
mod job;
mod member;
pub mod message;
mod place;
mod pmi;
mod poller;
pub mod protocol;
mod rank_connections;
mod rendezvous;
mod root;
mod session;
mod store;
mod token;

pub use error::{Error, RankList};
pub use exchange::Exchange;
pub use host::{address_of, node};
pub use job::{JOB_BYTES, Job};
pub use place::{Launcher, MAX_RANKS, Place, PlaceError};
pub use pmi::PmiError;
pub use rendezvous::{DEFAULT_LIMIT, LONGEST_LIMIT, Rendezvous, deadline_after};
pub use root::{DEFAULT_PORT, Root, RootParseError};
pub use session::Session;
pub use store::{FileStore, MemoryStore, StoreExchange, StorePlace, TcpStore};
pub use token::{MIN_TOKEN_CHARS, NoRandomNumbers, Token, TokenTooShort};
