//! Simulated networks for Foldwire.
//!
//! The crate answers two questions:
//!
//! - *Is a collective correct whatever happens?* A [`World`] is a
//!   [`Transport`](foldwire::Transport) on virtual time. It runs the ranks' real state machines in
//!   one thread. A seed decides every delay of every link. A [`Fault`] makes a link lose, damage or
//!   repeat frames, or ends a rank. The same seed gives the same run, event by event ([`Trace`]).
//! - *How long will a collective take?* [`cost`] executes schedules with modelled times.
//!
//! [`World::run`] makes an [`Endpoint`] for each rank, and passes it to the caller's function,
//! which returns a future. An executor polls the futures in an order that the seed decides. When no
//! rank can move a frame, virtual time jumps to the next event. Nothing sleeps in real time, so
//! thousands of runs take a second.
//!
//! # Examples
//! Four ranks compute an average. Rank 2 dies after it has sent one frame:
//! ```
//! use foldwire::{Bound, Call, Communicator, Op, Plan, Rank};
//! use foldwire_sim::{End, Fault, NetSettings, World};
//!
//! let plan = Plan::foldwire(Bound::Absolute(1e-3));
//! let death = Fault::Death { rank: Rank(2), after: 1 };
//! let run = World::new(4, 7).net(NetSettings::default()).faults([death]).run(|endpoint| async {
//!     let mut comm = Communicator::new(endpoint)?;
//!     let mut data = vec![1.0f32; 100];
//!     comm.start(Call::all_reduce(&mut data, Op::Avg), &plan)?.await
//! });
//! assert!(matches!(run.ends[2], End::Died));
//! assert!(matches!(run.ends[0], End::Returned(Err(_))));
//! assert_eq!(run.n_leaked(), 0);
//! ```

pub mod cost;
mod endpoint;
mod error;
mod fabric;
mod fault;
mod link;
mod net;
mod pool;
mod random;
mod trace;
mod world;

pub use endpoint::{Clock, Endpoint};
pub use error::Error;
pub use fault::{Fault, Foreign, Harm};
pub use net::NetSettings;
pub use pool::Frame;
pub use random::Random;
pub use trace::{EventKind, Trace, TraceEvent};
pub use world::{End, FinishedRun, World};
