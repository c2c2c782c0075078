//! What each side does with what it hears: no sockets, no clock, no thread.
//!
//! ```text
//!   bytes ──▶ Inbox ──▶ Message ──▶ Admission    rank 0, of one who knocks       ──▶ Verdict
//!                                   Guest        rank 0, of a rank that is in    ──▶ Departure
//!                                   Knock        a rank that wants in            ──▶ Answer
//!                                   Membership   a rank that is in               ──▶ its fields
//! ```
//!
//! `acceptor`, `seats` and `member` carry bytes between these and their connections. Since nothing here
//! waits, the whole protocol can be driven with arbitrary bytes, as fuzzing does. What a peer sends
//! makes nothing here grow beyond what is stated: an [`ReceiveBuffer`] holds one message of the longest
//! kind that is expected and [`CHUNK_BYTES`] more, a [`MemberState`] one part, a [`Membership`] one part
//! and one piece of news of each rank.

mod admission;
mod join_request;
mod member_state;
mod membership;
mod receive_buffer;

pub use admission::{Admission, AdmissionVerdict};
pub use join_request::{ChallengeOutcome, JoinRequest};
pub use member_state::{Departure, MemberState};
pub use membership::{GroupFailure, Membership};
pub use receive_buffer::{CHUNK_BYTES, ReceiveBuffer};
