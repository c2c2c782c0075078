//! State machines of the protocol, without sockets, clock or threads.
//!
//! ```text
//!   bytes ──▶ ReceiveBuffer ──▶ Message ──▶
//!       Admission     rank 0, for a connecting process   ──▶ AdmissionVerdict
//!       MemberState   rank 0, for an admitted rank       ──▶ Departure
//!       JoinRequest   a connecting rank                  ──▶ ChallengeOutcome
//!       Membership    an admitted rank                   ──▶ inputs, losses, GroupFailure
//! ```
//!
//! `acceptor`, `rank_connections` and `member` move bytes between these types and the sockets.
//! Nothing here waits, so fuzzing can drive the whole protocol with arbitrary bytes.
//!
//! A peer cannot make these types grow without limit. A [`ReceiveBuffer`] holds one message of the
//! longest expected kind and [`CHUNK_BYTES`] more. A [`MemberState`] holds one input. A
//! [`Membership`] holds one input and one loss for each rank.

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
