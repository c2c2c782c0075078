//! How ranks find each other before they have a network: who they are, and what the others'
//! addresses are.
//!
//! ```text
//!   environment ──▶ Place ──▶ Rendezvous ──join──▶ Party: Exchange ──▶ a backend
//!                  (rank,     (waits for           (all_gather of addresses,
//!                   size,      everyone)            then a watch over lost ranks)
//!                   root)
//! ```
//!
//! Rank 0 listens, the others connect to it, and the connections stay. Both sides of each show that
//! they know the group's token; what strangers send to the port does not stop the group: a rank
//! that is put off in a crowd of them knocks again until its time limit. All of it runs in the
//! caller's thread.
//!
//! | module | what it is |
//! |---|---|
//! | `exchange` | what backends ask for, whoever provides it: TCP here, or MPI |
//! | `host`, `in_process` | which ranks are near each other; ranks that are threads |
//! | `place` | rank, size and root from the environment of Foldwire, Open MPI, PMI, Slurm, PMIx |
//! | `job` | which job a group is of, so that two at once do not mix |
//! | `root`, `token` | rank 0's address; the secret, and proofs that one knows it |
//! | `rendezvous`, `session` | settings; the group that has come together |
//! | `acceptor` | rank 0 while ranks are missing: admission |
//! | `coordinator`, `seats` | rank 0 after that: all-gathers and news; what it knows of each rank |
//! | `member` | the other ranks |
//! | [`message`] | what they say to each other, and its parser |
//! | [`protocol`] | what each side does with what it hears, without sockets |
//! | `connection`, `poller` | connections that never wait; waiting for many of them |
//!
//! # Examples
//! ```no_run
//! use foldwire_bootstrap::{Exchange, Rendezvous};
//!
//! let mut party = Rendezvous::from_env()?.join()?;
//! let addresses = party.all_gather(b"this rank's address")?;
//! assert_eq!(addresses.len(), party.size());
//! # Ok::<(), foldwire_bootstrap::Error>(())
//! ```

mod acceptor;
mod connection;
mod coordinator;
mod error;
mod exchange;
mod host;
mod in_process;
mod job;
mod member;
pub mod message;
mod place;
mod poller;
pub mod protocol;
mod rank_connections;
mod rendezvous;
mod root;
mod session;
mod token;

pub use error::{Error, RankList};
pub use exchange::Exchange;
pub use host::node;
pub use in_process::InProcess;
pub use job::{JOB_BYTES, Job};
pub use place::{Launcher, MAX_RANKS, Place, PlaceError};
pub use rendezvous::{DEFAULT_LIMIT, Rendezvous};
pub use root::{DEFAULT_PORT, Root, RootParseError};
pub use session::Session;
pub use token::{MIN_TOKEN_CHARS, NoRandomNumbers, Token, TokenTooShort};
