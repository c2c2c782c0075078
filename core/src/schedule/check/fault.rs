//! Faults of a schedule.

use thiserror::Error;

use crate::schedule::{Collective, Part};
use crate::transport::Rank;

/// Reason why [`check`](super::check()) rejects a schedule. `step` is an index into the program of
/// `rank`, which [`program`](crate::schedule::program) shows as text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
#[allow(missing_docs)]
pub enum Fault {
    #[error("the schedule does not support {}", .collective.name())]
    Unsupported { collective: Collective },

    #[error("no such call: root {root} among {size} ranks")]
    BadCall { root: Rank, size: usize },

    #[error(
        "{n_parts} parts among {size} ranks: this collective needs one for each rank, or in an \
         all-to-all one for each pair of ranks"
    )]
    PartCount { n_parts: usize, size: usize },

    #[error("rank {rank}, step {step}: the step's flags do not fit together")]
    Malformed { rank: Rank, step: usize },

    #[error("rank {rank}, step {step}: peer {peer} is itself or not in the group")]
    BadPeer { rank: Rank, step: usize, peer: Rank },

    #[error("rank {rank}, step {step}: no part {part}: there are {n_parts} parts")]
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

    #[error(
        "rank {rank}, step {step}: concerns part {part}, which does not fit what is held from part \
         {held} on"
    )]
    OtherPartHeld { rank: Rank, step: usize, part: Part, held: Part },

    #[error(
        "rank {rank}, step {step}: the parts of a message, or the held parts behind the first, \
         combine different numbers of ranks' values, here from part {part} on"
    )]
    Uneven { rank: Rank, step: usize, part: Part },

    #[error("rank {rank}, step {step}: would overwrite the held part {part}")]
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

    #[error(
        "rank {rank}, step {step}: may store part {part} with other bits than rank {other} did"
    )]
    DifferentBits { rank: Rank, step: usize, part: Part, other: Rank },
}
