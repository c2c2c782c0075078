//! Settings that all calls of a communicator share.

#[cfg(doc)]
use super::{Communicator, Operation};
#[cfg(doc)]
use crate::error::Error;
use crate::kernel::Level;
#[cfg(doc)]
use crate::plan::Plan;
#[cfg(any(doc, feature = "std"))]
use crate::select;
use crate::select::{SelectionRule, Speeds};
use crate::threads::Threads;
#[cfg(doc)]
use crate::transport::MAX_LANES;
use core::time::Duration;

/// Settings that all calls of a communicator share.
///
/// Start from [`Config::default`], and change it through methods or fields. Later versions may add
/// fields.
///
/// # Examples
/// ```
/// use foldwire::Config;
/// use std::time::Duration;
///
/// let mut config = Config::default().with_lanes(2).with_timeout(Duration::from_secs(30));
/// config.checksum = Some(true);
/// # assert_eq!((config.lanes, config.timeout), (2, Duration::from_secs(30)));
/// ```
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Config {
    /// Largest number of lanes of a call, 1…[`MAX_LANES`]; a plan may [set
    /// fewer](Plan::with_lanes). Each lane has one segment in progress. Must be the same on all
    /// ranks.
    ///
    /// The pool must have [`FRAMES_PER_LANE`](crate::transport::FRAMES_PER_LANE) frames for each
    /// lane. More lanes than the default pay only on links of high latency: at 0.5 ms, 8 lanes are
    /// twice as fast as 4.
    pub lanes: usize,
    /// Time without any progress after which a call fails with [`Error::Stalled`]. Only time in
    /// which the call is polled counts. With [`Config::NEVER`] a call waits for a silent rank
    /// without limit. [`Operation::with_timeout`] sets the timeout of one call and describes it in
    /// detail.
    pub timeout: Duration,
    /// Time after its start at which an unfinished call fails with [`Error::Deadline`]. With `None`
    /// a call may take as long as it makes progress. [`Operation::with_deadline`] sets the deadline
    /// of one call.
    pub deadline: Option<Duration>,
    /// True if frames carry a checksum. `None` leaves the choice to the transport. Must be the same
    /// on all ranks.
    pub checksum: Option<bool>,
    /// Instruction set of the codecs' kernels.
    pub level: Level,
    /// Threads that compute for this rank. They do not affect results.
    pub threads: Threads,
    /// Rules that choose the schedule of calls whose plan names none. [`select::schedule`] chooses
    /// where no rule matches. Must be the same on all ranks.
    pub select: &'static [SelectionRule],
    /// Rate of a rank's link in each direction, in bytes per second. `None` takes the rate that the
    /// transport declares. If there is none either, the first calls of automatic plans
    /// [measure](Plan::auto) it. Must be the same on all ranks ([`Communicator::measure_link`]).
    pub link_rate: Option<f64>,
    /// Speed of each codec, which [automatic plans](Plan::auto) weigh. Must be the same on all
    /// ranks ([`Communicator::share_speeds`]).
    pub speeds: Speeds,
    /// True if each `SharedCommunicator` has an extra channel for messages
    /// (`SharedCommunicator::start_send`), besides those for its calls. Must be the same on all
    /// ranks.
    pub messages: bool,
}

#[cfg(feature = "alloc")]
impl Config {
    /// Returns whether calls resolve to the same program under both configurations.
    pub(super) fn is_alike(&self, other: &Self) -> bool {
        let Self {
            lanes,
            checksum,
            level,
            threads,
            select,
            link_rate,
            speeds,
            // Time limits and the message channel do not affect how a call runs.
            timeout: _,
            deadline: _,
            messages: _,
        } = *self;
        (lanes, checksum, level) == (other.lanes, other.checksum, other.level)
            && threads == other.threads
            && core::ptr::eq(select, other.select)
            && (link_rate, speeds) == (other.link_rate, other.speeds)
    }
}

impl Config {
    /// Time limit that never expires.
    pub const NEVER: Duration = Duration::MAX;

    /// Sets the number of [`lanes`](Self::lanes).
    #[must_use]
    pub const fn with_lanes(mut self, lanes: usize) -> Self {
        self.lanes = lanes;
        self
    }

    /// Sets the [`timeout`](Self::timeout).
    #[must_use]
    pub const fn with_timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// Sets the [`deadline`](Self::deadline), counted from each call's start.
    #[must_use]
    pub const fn with_deadline(mut self, deadline: Duration) -> Self {
        self.deadline = Some(deadline);
        self
    }

    /// Turns the [`checksum`](Self::checksum) of frames on or off, whatever the transport prefers.
    #[must_use]
    pub const fn with_checksum(mut self, checksum: bool) -> Self {
        self.checksum = Some(checksum);
        self
    }

    /// Sets the rules that choose [schedules](Self::select).
    #[must_use]
    pub const fn with_select(mut self, rules: &'static [SelectionRule]) -> Self {
        self.select = rules;
        self
    }

    /// Sets the [rate](Self::link_rate) of links, in bytes per second.
    #[must_use]
    pub const fn with_link_rate(mut self, bytes_per_s: f64) -> Self {
        self.link_rate = Some(bytes_per_s);
        self
    }

    /// Sets the [`speeds`](Self::speeds) of codecs.
    #[must_use]
    pub const fn with_speeds(mut self, speeds: Speeds) -> Self {
        self.speeds = speeds;
        self
    }

    /// Adds a channel for [`messages`](Self::messages).
    #[must_use]
    pub const fn with_messages(mut self) -> Self {
        self.messages = true;
        self
    }

    /// Returns the default configuration with the rules from the environment variable
    /// `FOLDWIRE_SELECT`. [`select::parse`] describes their syntax.
    ///
    /// # Errors
    /// [`ParseRulesError`](select::ParseRulesError) if the rules cannot be parsed.
    #[cfg(feature = "std")]
    pub fn from_env() -> Result<Self, select::ParseRulesError> {
        Ok(Self::default().with_select(select::from_env()?))
    }

    /// Sets the [`threads`](Self::threads) that compute.
    #[must_use]
    pub const fn with_threads(mut self, threads: Threads) -> Self {
        self.threads = threads;
        self
    }

    /// Sets the instruction set of kernels ([`level`](Self::level)).
    #[must_use]
    pub const fn with_level(mut self, level: Level) -> Self {
        self.level = level;
        self
    }
}

impl Default for Config {
    /// The default configuration: 4 lanes, a timeout of 5 minutes (ranks may arrive late from other
    /// work), and no deadline.
    ///
    /// Checksums and the link rate are as the transport says. Kernels are the best for this
    /// machine, and codec speeds the built-in ones. There are no selection rules and no channel for
    /// messages. One thread computes, or rayon's pool with the feature `rayon`.
    fn default() -> Self {
        let (timeout, level) = (Duration::from_secs(300), Level::best());
        let threads = Threads::default();
        let speeds = Speeds::default();
        let (deadline, checksum, link_rate) = (None, None, None);
        let (lanes, select, messages) = (4, &[][..], false);
        Self {
            lanes,
            timeout,
            deadline,
            checksum,
            level,
            threads,
            select,
            link_rate,
            speeds,
            messages,
        }
    }
}
