//! What a communicator's calls have in common.

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

/// What a communicator's calls have in common.
///
/// More fields may come. Start from [`Config::default`], and change it by methods or by fields.
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
    /// Lanes, 1…[`MAX_LANES`]: how many segments are under way side by
    /// side. Must be the same on all ranks.
    pub lanes: usize,
    /// After this long without any progress a call fails with [`Error::Stalled`]; what counts is
    /// time in which it is polled. [`Config::NEVER`]: it waits without limit for a rank that is
    /// silent. [`Operation::with_timeout`] sets it for one call, and says more.
    pub timeout: Duration,
    /// A call that is not finished so long after its start fails with [`Error::Deadline`]; `None`:
    /// it may take as long as it moves. [`Operation::with_deadline`] sets it for one call.
    pub deadline: Option<Duration>,
    /// Whether frames carry a checksum; `None`: if the transport asks for it. Must be the same on
    /// all ranks.
    pub checksum: Option<bool>,
    /// Instruction set of the codecs' kernels.
    pub level: Level,
    /// Who computes for this rank. Changes no result.
    pub threads: Threads,
    /// The schedules of calls whose plan names none; where no row is for a call, what
    /// [`select::schedule`] says. Must be the same on all ranks.
    pub select: &'static [SelectionRule],
    /// Bytes per second of a rank's link, each way, whatever the transport says; `None`: what it
    /// says. Must be the same on all ranks ([`Communicator::measure_link`]). Where neither says it,
    /// first calls of automatic plans [measure](Plan::auto) it.
    pub link_rate: Option<f64>,
    /// How fast ranks compute by each codec, which [automatic plans](Plan::auto) weigh. Must be the
    /// same on all ranks ([`Communicator::share_speeds`]).
    pub speeds: Speeds,
    /// Whether each `SharedCommunicator` has a channel of its own for messages that are under way
    /// (`SharedCommunicator::start_send`), beside those of its calls. Must be the same on all
    /// ranks.
    pub messages: bool,
}

#[cfg(feature = "alloc")]
impl Config {
    /// Whether calls come to the same by both.
    pub(super) fn is_alike(&self, other: &Self) -> bool {
        let Self {
            lanes,
            checksum,
            level,
            threads,
            select,
            link_rate,
            speeds,
            // Limits of time and channels change nothing in what calls come to.
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
    /// A limit of time that never ends anything.
    pub const NEVER: Duration = Duration::MAX;

    /// The same with so many [`lanes`](Self::lanes).
    #[must_use]
    pub const fn with_lanes(mut self, lanes: usize) -> Self {
        self.lanes = lanes;
        self
    }

    /// The same with another [`timeout`](Self::timeout).
    #[must_use]
    pub const fn with_timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// The same with a [`deadline`](Self::deadline) so long after a call's start.
    #[must_use]
    pub const fn with_deadline(mut self, deadline: Duration) -> Self {
        self.deadline = Some(deadline);
        self
    }

    /// The same with a [`checksum`](Self::checksum) in each frame or without, whatever the
    /// transport asks for.
    #[must_use]
    pub const fn with_checksum(mut self, checksum: bool) -> Self {
        self.checksum = Some(checksum);
        self
    }

    /// The same with rows that choose [schedules](Self::select).
    #[must_use]
    pub const fn with_select(mut self, rows: &'static [SelectionRule]) -> Self {
        self.select = rows;
        self
    }

    /// The same with links of this [rate](Self::link_rate), in bytes per second.
    #[must_use]
    pub const fn with_link_rate(mut self, bytes_per_s: f64) -> Self {
        self.link_rate = Some(bytes_per_s);
        self
    }

    /// The same with other [`speeds`](Self::speeds).
    #[must_use]
    pub const fn with_speeds(mut self, speeds: Speeds) -> Self {
        self.speeds = speeds;
        self
    }

    /// The same with [messages](Self::messages) under way.
    #[must_use]
    pub const fn with_messages(mut self) -> Self {
        self.messages = true;
        self
    }

    /// The default with the rows that the variable `FOLDWIRE_SELECT` of the environment holds
    /// ([`select::parse`] says how).
    ///
    /// # Errors
    /// [`ParseRulesError`](select::ParseRulesError).
    #[cfg(feature = "std")]
    pub fn from_env() -> Result<Self, select::ParseRulesError> {
        Ok(Self::default().with_select(select::from_env()?))
    }

    /// The same with other [`threads`](Self::threads).
    #[must_use]
    pub const fn with_threads(mut self, threads: Threads) -> Self {
        self.threads = threads;
        self
    }

    /// The same with kernels of another [`level`](Self::level).
    #[must_use]
    pub const fn with_level(mut self, level: Level) -> Self {
        self.level = level;
        self
    }
}

impl Default for Config {
    /// 4 lanes, 5 minutes without progress (ranks may come late from other work), no deadline,
    /// checksums as the transport wants, the machine's best kernels, no rows, usual speeds, no
    /// channel for messages; one thread, or those of rayon's pool with the feature `rayon`.
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
