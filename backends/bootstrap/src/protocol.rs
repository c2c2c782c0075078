//! What each side does with what it hears: no sockets, no clock, no thread.
//!
//! ```text
//!   bytes ──▶ Inbox ──▶ Message ──▶ Admission    rank 0, of one who knocks       ──▶ Verdict
//!                                   Guest        rank 0, of a rank that is in    ──▶ Departure
//!                                   Knock        a rank that wants in            ──▶ Answer
//!                                   Membership   a rank that is in               ──▶ its fields
//! ```
//!
//! `door`, `seats` and `member` carry bytes between these and their connections. Since nothing here
//! waits, the whole protocol can be driven with arbitrary bytes, as fuzzing does. What a peer sends
//! makes nothing here grow beyond what is stated: an [`Inbox`] holds one message of the longest
//! kind that is expected and [`CHUNK_BYTES`] more, a [`Guest`] one part, a [`Membership`] one part
//! and one piece of news of each rank.

mod admission;
mod guest;
mod inbox;
mod knock;
mod membership;

pub use admission::{Admission, Verdict};
pub use guest::{Departure, Guest};
pub use inbox::{CHUNK_BYTES, Inbox};
pub use knock::{Answer, Knock};
pub use membership::{Broken, Membership};
