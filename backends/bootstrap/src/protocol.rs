//! State machines of the protocol by which ranks join a group and exchange addresses, without
//! sockets, clock or threads.
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
//! An *input* is the bytes that a rank gives to an all-gather, such as its address. A *loss* is
//! rank 0's report that a rank has ended without a goodbye.
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
