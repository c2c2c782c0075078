//! What goes wrong: where, and when.
//!
//! Places and times are counted in what ranks do, not in seconds, so that a fault can hit any step
//! of a program: `nth` counts the frames that a rank has sent, from 0; `after` those that it has
//! sent or received.
//!
//! What the header cannot tell apart, no receiver can: an exact copy of the frame that it expects
//! *is* the frame that it expects. Hence frames that nobody sent differ here in something, or are
//! on a link where they do not belong.

use std::fmt;
use std::time::Duration;

use foldwire::Rank;

/// One thing that goes wrong, once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// A frame takes longer, and so do those behind it on its link.
    Delay {
        /// The sender.
        rank: Rank,
        /// Which of its frames.
        nth: usize,
        /// By how much.
        by: Duration,
    },
    /// A rank does nothing for a while, or ever again.
    Stall {
        /// The rank.
        rank: Rank,
        /// How many frames it has moved before.
        after: usize,
        /// For how long; `None`: for ever.
        lasting: Option<Duration>,
    },
    /// A rank is gone from one moment to the next. What it sent before still arrives, then its
    /// peers notice.
    Death {
        /// The rank.
        rank: Rank,
        /// How many frames it has moved before.
        after: usize,
    },
    /// The link on which a frame would leave dies, that frame included, in both directions and for
    /// all tags.
    Cut {
        /// The sender.
        rank: Rank,
        /// Which of its frames.
        nth: usize,
        /// Neither end is told.
        silent: bool,
    },
    /// Something happens to a frame.
    Harm {
        /// The sender.
        rank: Rank,
        /// Which of its frames.
        nth: usize,
        /// What happens.
        harm: Harm,
    },
}

/// What happens to a frame on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Harm {
    /// One bit changes.
    Flip,
    /// It ends early.
    Truncate,
    /// It never arrives, though later ones do.
    Lose,
    /// The next one on its link arrives before it.
    Swap,
    /// It arrives once more, behind so many later frames of its link.
    Repeat {
        /// How many.
        behind: usize,
    },
    /// Another frame, which nobody sent, arrives in front of it.
    Foreign(Foreign),
}

/// Where a frame that nobody sent seems to come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Foreign {
    /// From a stranger: bytes without meaning.
    Stranger,
    /// From an earlier call: the frame with a lower sequence number.
    OldCall,
    /// From another collective: the frame with another code of it.
    OtherCollective,
    /// From another part of the array.
    OtherPart,
    /// The frame itself, but it is meant for another tag.
    OtherTag,
    /// The frame itself, but it comes from another rank.
    OtherSender,
    /// The frame itself, but it comes to another rank.
    OtherReceiver,
    /// A frame that the receiver got before, from any rank.
    Replay,
}

impl Harm {
    /// Every kind; repeats directly behind the frame.
    pub const ALL: [Self; 13] = [
        Self::Flip,
        Self::Truncate,
        Self::Lose,
        Self::Swap,
        Self::Repeat { behind: 0 },
        Self::Foreign(Foreign::Stranger),
        Self::Foreign(Foreign::OldCall),
        Self::Foreign(Foreign::OtherCollective),
        Self::Foreign(Foreign::OtherPart),
        Self::Foreign(Foreign::OtherTag),
        Self::Foreign(Foreign::OtherSender),
        Self::Foreign(Foreign::OtherReceiver),
        Self::Foreign(Foreign::Replay),
    ];
}

impl Fault {
    /// What kind of fault it is, in a few words.
    #[must_use]
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Delay { .. } => "delayed frame",
            Self::Stall { lasting: Some(_), .. } => "stalled rank",
            Self::Stall { lasting: None, .. } => "silent rank",
            Self::Death { .. } => "dead rank",
            Self::Cut { silent: false, .. } => "dead link",
            Self::Cut { silent: true, .. } => "dead link, silent",
            Self::Harm { harm, .. } => match harm {
                Harm::Flip => "flipped bit",
                Harm::Truncate => "truncated frame",
                Harm::Lose => "lost frame",
                Harm::Swap => "swapped frames",
                Harm::Repeat { .. } => "repeated frame",
                Harm::Foreign(Foreign::Stranger) => "stranger's frame",
                Harm::Foreign(Foreign::OldCall) => "old call's frame",
                Harm::Foreign(Foreign::OtherCollective) => "other collective's frame",
                Harm::Foreign(Foreign::OtherPart) => "other part's frame",
                Harm::Foreign(Foreign::OtherTag) => "other tag's frame",
                Harm::Foreign(Foreign::OtherSender) => "other sender's frame",
                Harm::Foreign(Foreign::OtherReceiver) => "other receiver's frame",
                Harm::Foreign(Foreign::Replay) => "replayed frame",
            },
        }
    }

    /// The rank that it hits, or whose frame.
    #[must_use]
    pub const fn rank(&self) -> Rank {
        match *self {
            Self::Delay { rank, .. }
            | Self::Stall { rank, .. }
            | Self::Death { rank, .. }
            | Self::Cut { rank, .. }
            | Self::Harm { rank, .. } => rank,
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (kind, rank) = (self.kind(), self.rank());
        match self {
            Self::Delay { nth, by, .. } => write!(f, "{kind}: number {nth} of rank {rank}, {by:?}"),
            Self::Stall { after, lasting: Some(time), .. } => {
                write!(f, "{kind}: {rank}, after {after} frames, for {time:?}")
            }
            Self::Stall { after, .. } | Self::Death { after, .. } => {
                write!(f, "{kind}: {rank}, after {after} frames")
            }
            Self::Cut { nth, .. } | Self::Harm { nth, .. } => {
                write!(f, "{kind}: at number {nth} of rank {rank}")?;
                match self {
                    Self::Harm { harm: Harm::Repeat { behind }, .. } => {
                        write!(f, ", behind {behind} more")
                    }
                    _ => Ok(()),
                }
            }
        }
    }
}
