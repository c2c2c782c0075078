//! Faults: what goes wrong, and when.
//!
//! A fault's position is counted in frames, not in seconds, so that a fault can strike at any step
//! of a program. `nth` counts the frames that a rank has sent, from 0. `after` counts the frames
//! that it has sent or received.
//!
//! A *link* carries the frames from one rank to another with one tag.
//!
//! A receiver cannot detect a forged frame that equals the expected one in every header field: such
//! a frame *is* the expected frame. Therefore a forged frame here either differs from the expected
//! one in some field, or arrives on a wrong link. There are two exceptions, which may give an exact
//! copy on the same link, as [`Harm::Repeat`] does: [`Foreign::Replay`], and with two ranks
//! [`Foreign::OtherSender`] and [`Foreign::OtherReceiver`].

use std::fmt;
use std::time::Duration;

use foldwire::Rank;

/// One fault, which strikes once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// A frame arrives late, and so do the frames behind it on its link.
    Delay {
        /// The sender.
        rank: Rank,
        /// Index of the frame among those that the rank sent.
        nth: usize,
        /// Additional time.
        by: Duration,
    },
    /// A rank does nothing for a while, or forever.
    Stall {
        /// The rank.
        rank: Rank,
        /// Frames that the rank sends or receives before the stall.
        after: usize,
        /// Duration of the stall; `None` means forever.
        lasting: Option<Duration>,
    },
    /// A rank ends suddenly. Frames that have left the rank still arrive. Then its peers learn of
    /// the loss.
    Death {
        /// The rank.
        rank: Rank,
        /// Frames that the rank sends or receives before it dies.
        after: usize,
    },
    /// All links between the sender and the receiver of a frame fail, in both directions. The frame
    /// is lost too.
    Cut {
        /// The sender.
        rank: Rank,
        /// Index of the frame among those that the rank sent.
        nth: usize,
        /// True if neither end learns of the failure.
        silent: bool,
    },
    /// A frame is damaged, lost, reordered, repeated or forged.
    Harm {
        /// The sender.
        rank: Rank,
        /// Index of the frame among those that the rank sent.
        nth: usize,
        /// Kind of harm.
        harm: Harm,
    },
}

/// Kind of harm to one frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Harm {
    /// One bit is flipped.
    Flip,
    /// The frame is truncated.
    Truncate,
    /// The frame never arrives, but later ones do.
    Lose,
    /// The next frame on the same link arrives first.
    Swap,
    /// The frame arrives once more, behind `behind` later frames of its link.
    Repeat {
        /// Number of later frames that arrive before the copy.
        behind: usize,
    },
    /// A forged frame arrives before this one.
    Foreign(Foreign),
}

/// Kind of forged frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Foreign {
    /// Random bytes, as from a stranger.
    Stranger,
    /// A frame of an earlier call: this frame with a lower sequence number.
    OldCall,
    /// A frame of another collective: this frame with another collective code.
    OtherCollective,
    /// A frame of another part of the array: this frame with another part number.
    OtherPart,
    /// An exact copy of this frame that arrives with another tag.
    OtherTag,
    /// An exact copy of this frame that arrives from another rank.
    OtherSender,
    /// An exact copy of this frame that arrives at another rank.
    OtherReceiver,
    /// A copy of an earlier frame to this receiver, from any rank. Usually its header differs from
    /// the expected one. Without an earlier frame, a copy of this frame.
    Replay,
}

impl Harm {
    /// All kinds of harm; the repeated frame follows the original directly.
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
    /// Returns the kind of fault in a few words.
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

    /// Returns the rank that the fault strikes, or the sender of the frame that it strikes.
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
