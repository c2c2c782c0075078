//! Drives messages in progress: moves them, and listens for notices of failures. An exchange and a
//! message with a channel of its own differ in what moves, and in how long the sender waits for the
//! network.

use super::Communicator;
use crate::element::Element;
use crate::engine::{Waiter, Watchdog, transport_error};
use crate::error::Error;
use crate::handle::Progress;
use crate::report::Report;
use crate::transport::{Rank, Transport};
use crate::wait::Limits;
use core::time::Duration;

/// Messages that progress together.
pub(crate) trait Messages<X: Transport> {
    type Value: Element;

    /// Moves each message by at most one segment. Returns whether anything moved.
    fn advance(&mut self, comm: &mut Communicator<X>, report: &mut Report) -> Result<bool, Error>;

    /// Returns whether this rank has sent, or received, all segments.
    fn is_done(&self) -> bool;

    /// Longest time that a rank that is done waits for the network to deliver its last frames.
    /// `None` if it waits for as long as the time limits permit.
    fn linger(&self) -> Option<Duration>;

    /// Returns what this rank waits for while nothing moves. `undelivered` is the rank to which
    /// frames are still in transit, if all messages are done.
    fn waiter(&self, own: Rank, undelivered: Option<Rank>) -> impl Waiter;

    /// Returns a better error than that of the time limit, if there is one.
    fn review(
        &self,
        comm: &Communicator<X>,
        settled: Result<Progress, Error>,
        waited: Duration,
        limits: Limits,
    ) -> Result<Progress, Error>;
}

/// State of messages in progress, except the messages themselves.
pub(crate) struct MessageDriver {
    pub(crate) report: Report,
    pub(crate) limits: Limits,
    started: Duration,
    watchdog: Watchdog,
    /// Time at which all messages were done.
    done_at: Option<Duration>,
}

impl MessageDriver {
    /// Starts the clock of messages.
    pub(crate) fn start<X: Transport>(comm: &Communicator<X>, report: Report) -> Self {
        let (started, limits) = (comm.transport.now(), comm.limits());
        Self { report, limits, started, watchdog: Watchdog::default(), done_at: None }
    }

    /// Returns how long to rest before the next poll.
    pub(crate) fn rest(&self) -> Duration {
        self.watchdog.rest(self.limits)
    }

    /// Moves the messages once.
    ///
    /// # Errors
    /// The reason why they failed.
    pub(crate) fn advance<X: Transport, M: Messages<X>>(
        &mut self,
        comm: &mut Communicator<X>,
        messages: &mut M,
    ) -> Result<Progress, Error> {
        let (ours, limits) = (comm.next_call_header::<M::Value>(), self.limits);
        if self.watchdog.lost().is_some() {
            let Communicator { transport, notices, .. } = comm;
            // Receive no more segments from the lost rank. Only its abort notice matters.
            let take_nothing = |_: &mut _, _: &mut _| Ok(true);
            return self.watchdog.explain((transport, notices), &ours, limits, take_nothing);
        }
        comm.transport.progress().map_err(transport_error)?;
        let moved = match messages.advance(comm, &mut self.report) {
            Ok(moved) => moved,
            Err(error) => {
                self.watchdog.lose(error, comm.transport.now())?;
                return Ok(Progress::Moved);
            }
        };
        let mut undelivered = None;
        if messages.is_done() {
            let (now, linger) = (comm.transport.now(), messages.linger());
            let since = now.saturating_sub(*self.done_at.get_or_insert(now));
            undelivered = comm.transport.undelivered();
            if undelivered.is_none() || linger.is_some_and(|longest| since >= longest) {
                self.report.total = now.saturating_sub(self.started);
                return Ok(Progress::Finished);
            }
            if linger.is_some() {
                return Ok(if moved { Progress::Moved } else { Progress::Waiting });
            }
        }
        let waiter = messages.waiter(comm.rank(), undelivered);
        let Communicator { transport, notices, .. } = &mut *comm;
        let settled = self.watchdog.settle(moved, &waiter, (transport, notices), &ours, limits);
        messages.review(comm, settled, self.watchdog.waited(), limits)
    }
}
