//! What a finished call says about itself.

use crate::codec::{BlockStats, CodecId};
use crate::select::Choice;
use core::fmt;
use core::ops::AddAssign;
use core::time::Duration;

/// One rank's account of a call. More fields may come: start from [`Report::default`] to make one.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct Report {
    /// Who talked to whom: the name of the schedule; empty of messages between two ranks.
    pub schedule: &'static str,
    /// How values became bytes: of several messages by different codecs, of the first that was not
    /// raw. Exact calls of an [automatic plan](crate::Plan::auto) have the raw codec here.
    pub codec: CodecId,
    /// Segments that are under way side by side: as many as there are, and no more than the
    /// communicator's [`lanes`](crate::Config::lanes). 0 of messages between two ranks, whose
    /// segments follow one another.
    pub lanes: u8,
    /// Threads that share the work on one: the communicator's
    /// [`threads`](crate::Config::threads), if it is long enough for its codec, and of an automatic
    /// plan no more than this rank's share of the cores of its node.
    pub threads: u16,
    /// Most values of a segment: all that fit a frame for certain, or fewer, so that all lanes have
    /// as many. 0 of messages between two ranks.
    pub segment: u32,
    /// Bytes of the values that this rank sent, uncompressed.
    pub raw_bytes: u64,
    /// Bytes of the messages that this rank sent, headers included.
    pub wire_bytes: u64,
    /// Messages sent.
    pub n_messages: u64,
    /// Time in encoding (and copying raw values into frames). Of steps on fewer than 1024 values
    /// this and the next two are not taken: to look at the clock costs as much as they do.
    pub encode: Duration,
    /// Time in combining frames with frames or values, and in storing what is decoded on the way.
    pub fold: Duration,
    /// Time in decoding into values, as a step of its own.
    pub decode: Duration,
    /// From start to finish.
    pub total: Duration,
    /// The absolute bound on each operand; 0 for the raw codec.
    pub bound: f64,
    /// The largest error that a value of the result can have, rounding in the element type aside
    /// (docs/guarantees.md): 0 for exact codecs, `None` where no bound can be given (products and
    /// user operations by lossy codecs).
    pub worst_case: Option<f64>,
    /// The plan did not ask for the same bits on all ranks
    /// ([`Plan::as_published`](crate::Plan::as_published)).
    pub as_published: bool,
    /// Why an [automatic plan](crate::Plan::auto) has chosen this codec; `None` of other plans.
    pub plan: Option<Choice>,
    /// What the codec did to this rank's blocks: exceptions, and the paths of `combine`.
    pub blocks: BlockStats,
}

impl Default for Report {
    /// Of a call that did nothing, and so exactly.
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
            as_published: false,
            plan: None,
            blocks: BlockStats::default(),
        }
    }
}

impl Report {
    /// Raw bytes divided by wire bytes; 1 if nothing was sent.
    #[must_use]
    pub fn ratio(&self) -> f64 {
        if self.wire_bytes == 0 { 1.0 } else { self.raw_bytes as f64 / self.wire_bytes as f64 }
    }

    /// Time in which this rank computed nothing.
    #[must_use]
    pub fn waiting(&self) -> Duration {
        [self.encode, self.fold, self.decode].into_iter().fold(self.total, Duration::saturating_sub)
    }
}

impl AddAssign for Report {
    /// Adds bytes, messages, times and blocks, as for one call after another; keeps the larger
    /// bounds, most lanes, threads and values of a segment, and the schedule and codec of the
    /// first, and the first choice.
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
        // A transport's clock may say anything.
        self.encode = self.encode.saturating_add(other.encode);
        self.fold = self.fold.saturating_add(other.fold);
        self.decode = self.decode.saturating_add(other.decode);
        self.total = self.total.saturating_add(other.total);
        self.bound = self.bound.max(other.bound);
        self.worst_case = match (self.worst_case, other.worst_case) {
            (Some(a), Some(b)) => Some(a.max(b)),
            _ => None,
        };
        self.as_published |= other.as_published;
        self.blocks += other.blocks;
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:?} (encode {:?}, fold {:?}, decode {:?}, waiting {:?}); {} bytes sent as {}, ratio {:.2}",
            self.total,
            self.encode,
            self.fold,
            self.decode,
            self.waiting(),
            self.raw_bytes,
            self.wire_bytes,
            self.ratio(),
        )
    }
}
