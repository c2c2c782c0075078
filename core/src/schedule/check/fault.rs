//! What can be wrong with a schedule.

use thiserror::Error;

use crate::schedule::{Collective, Part};
use crate::transport::Rank;

/// Why [`check`](super::check()) rejects a schedule. `step` is an index into the program of `rank`;
/// see [`program`](crate::schedule::program) for that program in words.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
#[allow(missing_docs)]
pub enum Fault {
    #[error("the schedule does not support {}", .collective.name())]
    Unsupported { collective: Collective },

    #[error("no such call: root {root} among {size} ranks")]
    BadCall { root: Rank, size: usize },

    #[error("{n_parts} parts among {size} ranks: this collective needs one for each rank")]
    PartCount { n_parts: usize, size: usize },

    #[error(
        "rank {rank}, step {step}: makes nothing of something: its flags do not suit its peers"
    )]
    Malformed { rank: Rank, step: usize },

    #[error("rank {rank}, step {step}: peer {peer} is itself or not in the group")]
    BadPeer { rank: Rank, step: usize, peer: Rank },

    #[error("rank {rank}, step {step}: part {part} of {n_parts}")]
    BadPart { rank: Rank, step: usize, part: Part, n_parts: usize },

    #[error("rank {rank}, step {step}: expects part {expected} from {from}, which sent {arrived}")]
    WrongPart { rank: Rank, step: usize, from: Rank, expected: Part, arrived: Part },

    #[error(
        "rank {rank}, step {step}: a run of {n_parts} parts, where messages carry {max} at most"
    )]
    LongRun { rank: Rank, step: usize, n_parts: usize, max: usize },

    #[error("rank {rank}, step {step}: expects {expected} parts from {from}, which sent {arrived}")]
    WrongRun { rank: Rank, step: usize, from: Rank, expected: usize, arrived: usize },

    #[error("rank {rank}, step {step}: waits for a frame from {from}, whose program has ended")]
    NeverSent { rank: Rank, step: usize, from: Rank },

    #[error("rank {rank}, step {step}: waits for credit from {to}, whose program has ended")]
    NeverReceived { rank: Rank, step: usize, to: Rank },

    #[error("deadlock of {n_stuck} ranks: rank {rank}, step {step}, waits for {peer}")]
    Deadlock { rank: Rank, step: usize, peer: Rank, n_stuck: usize },

    #[error("part {part} from {from} to {to} is never received")]
    Undelivered { from: Rank, to: Rank, part: Part },

    #[error("rank {rank}, step {step}: concerns part {part}, but part {held} is held")]
    OtherPartHeld { rank: Rank, step: usize, part: Part, held: Part },

    #[error(
        "rank {rank}, step {step}: of other numbers of ranks' values are the parts of a message, \
         or of what is held behind the first, here part {part}"
    )]
    Uneven { rank: Rank, step: usize, part: Part },

    #[error("rank {rank}, step {step}: would overwrite what is held of part {part}")]
    HoldingLost { rank: Rank, step: usize, part: Part },

    #[error("rank {rank}: part {part} is still held at the end")]
    HoldingLeft { rank: Rank, part: Part },

    #[error(
        "rank {rank}, step {step}: needs its local part {part}, which it never had, \
         has used without keeping it, or has overwritten with output"
    )]
    NoLocal { rank: Rank, step: usize, part: Part },

    #[error(
        "rank {rank}, step {step}: counts the contribution of {contributor} to part {part} twice"
    )]
    DoubleCount { rank: Rank, step: usize, part: Part, contributor: Rank },

    #[error(
        "rank {rank}, step {step}: stores part {part}, where the contribution of {contributor} \
         is missing or does not belong"
    )]
    WrongContributors { rank: Rank, step: usize, part: Part, contributor: Rank },

    #[error("rank {rank}, step {step}: part {part} is not part of its output")]
    NotOutput { rank: Rank, step: usize, part: Part },

    #[error("rank {rank}, step {step}: stores part {part} again")]
    StoredTwice { rank: Rank, step: usize, part: Part },

    #[error("rank {rank} never stores part {part}")]
    NeverStored { rank: Rank, part: Part },

    #[error("rank {rank}, step {step}: may store other bits of part {part} than rank {other} did")]
    DifferentBits { rank: Rank, step: usize, part: Part, other: Rank },
}
