//! Report of a finished call.

use crate::bound::SuspectedFill;
use crate::codec::{BlockStats, CodecId};
use crate::select::Choice;
use core::fmt;
use core::ops::AddAssign;
use core::time::Duration;

/// One rank's report of a call: how it was carried out, bytes, times and error bounds.
///
/// Fields may be added. To make a report, start from [`Report::default`].
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct Report {
    /// Name of the schedule; empty for messages between two ranks.
    pub schedule: &'static str,
    /// Codec that encoded the values. For several messages with different codecs, this is the first
    /// that is not raw. Exact calls of an [automatic plan](crate::Plan::auto) report the raw codec.
    pub codec: CodecId,
    /// Number of segments that are processed concurrently. It is at most the communicator's
    /// [`lanes`](crate::Config::lanes), and at most the number of segments. 0 for messages between
    /// two ranks, whose segments follow one another.
    pub lanes: u8,
    /// Number of threads that share the work on one segment: the communicator's
    /// [`threads`](crate::Config::threads), or fewer if the segment has too few pieces of work for
    /// them, and 1 if it is too short for its codec. With an automatic plan it is at most this
    /// rank's share of the node's cores.
    pub threads: u16,
    /// Largest number of values in a segment. It is the number that fits a frame in the worst case,
    /// or less, so that all lanes have equal work. 0 for messages between two ranks.
    pub segment: u32,
    /// Uncompressed size of the values that this rank sent, in bytes.
    pub raw_bytes: u64,
    /// Size of the messages that this rank sent, headers included, in bytes.
    pub wire_bytes: u64,
    /// Number of messages that this rank sent.
    pub n_messages: u64,
    /// Time spent encoding. For messages between two ranks it includes copying raw values into
    /// frames. In calls, `encode`, `fold` and `decode` omit steps on at most 1024 values, where
    /// reading the clock costs as much as the step.
    pub encode: Duration,
    /// Time spent combining frames with frames or values, and copying a call's raw values into
    /// frames. It includes storing results in the same pass.
    pub fold: Duration,
    /// Time spent decoding into values, as a separate step.
    pub decode: Duration,
    /// Time from the start of the call to its end.
    pub total: Duration,
    /// Absolute error bound on each operand: 0 for exact codecs, infinite for codecs without one.
    pub bound: f64,
    /// Largest error that a value of the result can have, not counting rounding in the element type
    /// (docs/guarantees.md). 0 for exact codecs. `None` if there is no bound (products and user
    /// operations with lossy codecs, and codecs by a setting).
    pub worst_case: Option<f64>,
    /// Value that sets the range of a bound relative to it, and costs this rank's other values most
    /// of their digits: perhaps a fill value for missing data, such as 1e20 or −9999
    /// ([`ValueRange::suspected_fill`](crate::bound::ValueRange::suspected_fill)).
    pub suspected_fill: Option<f64>,
    /// True if the plan did not require the same bits on all ranks
    /// ([`Plan::as_published`](crate::Plan::as_published)).
    pub as_published: bool,
    /// Reason why an [automatic plan](crate::Plan::auto) chose this codec; `None` for other plans.
    pub plan: Option<Choice>,
    /// Statistics of this rank's blocks in the codec: exceptions, and the paths taken by `combine`.
    pub blocks: BlockStats,
}

impl Default for Report {
    /// Returns the report of a call that did nothing, and therefore has no error.
    fn default() -> Self {
        Self {
            schedule: "",
            codec: CodecId::Raw,
            lanes: 0,
            threads: 1,
            segment: 0,
            raw_bytes: 0,
            wire_bytes: 0,
            n_messages: 0,
            encode: Duration::ZERO,
            fold: Duration::ZERO,
            decode: Duration::ZERO,
            total: Duration::ZERO,
            bound: 0.0,
            worst_case: Some(0.0),
            suspected_fill: None,
            as_published: false,
            plan: None,
            blocks: BlockStats::default(),
        }
    }
}

impl Report {
    /// Returns the ratio of raw bytes to wire bytes; 1 if nothing was sent.
    #[must_use]
    pub fn ratio(&self) -> f64 {
        if self.wire_bytes == 0 { 1.0 } else { self.raw_bytes as f64 / self.wire_bytes as f64 }
    }

    /// Returns the time in which this rank computed nothing.
    #[must_use]
    pub fn waiting(&self) -> Duration {
        [self.encode, self.fold, self.decode].into_iter().fold(self.total, Duration::saturating_sub)
    }
}

impl Report {
    /// Sets what a call counts and times back to zero. The rest is known before a call begins.
    #[cfg(feature = "alloc")]
    pub(crate) fn restart(&mut self) {
        (self.raw_bytes, self.wire_bytes, self.n_messages) = (0, 0, 0);
        (self.encode, self.fold, self.decode) = (Duration::ZERO, Duration::ZERO, Duration::ZERO);
        (self.total, self.blocks) = (Duration::ZERO, BlockStats::default());
    }

    /// Raises the bounds to that of a message; infinite if its codec keeps none.
    pub(crate) fn add_message(&mut self, bound: f64) {
        self.bound = self.bound.max(bound);
        self.worst_case = Some(self.bound).filter(|bound| bound.is_finite());
    }
}

impl AddAssign for Report {
    /// Adds bytes, messages, times and blocks, as for consecutive calls. Keeps the larger bounds,
    /// and the largest numbers of lanes, threads and values of a segment. Keeps the first schedule
    /// and codec, the first choice, and the first suspected fill value.
    fn add_assign(&mut self, other: Self) {
        if self.schedule.is_empty() {
            (self.schedule, self.codec) = (other.schedule, other.codec);
        }
        self.plan = self.plan.or(other.plan);
        self.lanes = self.lanes.max(other.lanes);
        self.threads = self.threads.max(other.threads);
        self.segment = self.segment.max(other.segment);
        self.raw_bytes += other.raw_bytes;
        self.wire_bytes += other.wire_bytes;
        self.n_messages += other.n_messages;
        // Saturate, because a transport's clock is not trusted.
        self.encode = self.encode.saturating_add(other.encode);
        self.fold = self.fold.saturating_add(other.fold);
        self.decode = self.decode.saturating_add(other.decode);
        self.total = self.total.saturating_add(other.total);
        self.bound = self.bound.max(other.bound);
        self.worst_case = match (self.worst_case, other.worst_case) {
            (Some(a), Some(b)) => Some(a.max(b)),
            _ => None,
        };
        self.suspected_fill = self.suspected_fill.or(other.suspected_fill);
        self.as_published |= other.as_published;
        self.blocks += other.blocks;
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:?} (encode {:?}, fold {:?}, decode {:?}, waiting {:?}); {} bytes sent as {}, ratio \
            {:.2}",
            self.total,
            self.encode,
            self.fold,
            self.decode,
            self.waiting(),
            self.raw_bytes,
            self.wire_bytes,
            self.ratio(),
        )?;
        match self.suspected_fill {
            Some(fill) => write!(f, "; {}", SuspectedFill(fill)),
            None => Ok(()),
        }
    }
}
