//! Replay of a call: one lane that runs a compiled program.
//!
//! A replay does what an [`Engine`] does while nothing goes wrong. An engine takes over at the
//! lane's position if a message differs from the compiled one, a rank is lost, or the call waits
//! longer than [`SHORT_WAIT`]. Only the engine asks other ranks, checks time limits and finds out
//! what is wrong.

use super::watchdog::{Watchdog, ask_after};
use super::{Compiled, Computing, Engine, FrameBuffer, Lanes, Notices, Program};
use super::{is_short, transport_error};
use crate::engine::lane::LaneTurn;
use crate::error::Error;
use crate::report::Report;
use crate::transport::Transport;
use crate::wait::Limits;
use core::mem;
use core::time::Duration;

/// Longest wait of a replay, after which an engine takes over.
const SHORT_WAIT: Duration = Duration::from_micros(100);

/// A replay of a running call.
#[derive(Clone, Copy, Default)]
pub(crate) struct Replay {
    sequence: u32,
    has_begun: bool,
    /// True if the last poll found nothing to do.
    has_waited: bool,
    /// Time of the second poll in the current series of polls that found nothing to do. The first
    /// one does not read the clock.
    waits_since: Option<Duration>,
    started: Duration,
    pub(crate) report: Report,
}

/// Result of a poll.
#[derive(Clone, Copy, Debug)]
pub(crate) enum ReplayOutcome {
    Finished,
    /// Poll again at once.
    Moved,
    /// Rest, then poll again.
    Waiting,
    /// An engine must continue the call, because a message differs or the call waits too long.
    NeedsEngine,
}

impl Replay {
    /// Begins the call of this number. `report` has the fields that are known before the call runs.
    pub(crate) fn begin<F: FrameBuffer>(
        &mut self,
        sequence: u32,
        report: &Report,
        now: Duration,
        lanes: &mut Lanes<F>,
    ) {
        lanes.begin(1);
        (self.sequence, self.started, self.report) = (sequence, now, *report);
        (self.has_begun, self.has_waited, self.waits_since) = (false, false, None);
    }

    /// Makes all possible steps, or one step on a long segment.
    ///
    /// # Errors
    /// The errors of a step. The caller passes them to [`Engine::lose`].
    pub(crate) fn poll<X: Transport>(
        &mut self,
        (program, compiled): (&Program<'_>, &Compiled),
        transport: &mut X,
        lanes: &mut Lanes<X::Frame>,
        compute: &mut Computing<'_>,
        notices: &mut Notices,
    ) -> Result<ReplayOutcome, Error> {
        transport.progress().map_err(transport_error)?;
        let ours = || program.header.numbered(self.sequence);
        if !mem::replace(&mut self.has_begun, true) {
            // A call that receives messages need not poll for notices until it waits.
            if notices.begin(transport, &ours(), program.checksum, !compiled.receives())? {
                transport.progress().map_err(transport_error)?;
            }
        }
        let lane = lanes.lanes.first_mut().ok_or(Error::Internal)?;
        let mut has_moved = false;
        let awaited = loop {
            let on = (compiled, self.sequence, program.checksum);
            let polled = (&mut *transport, program.rules.values_per_poll());
            match lane.replay(on, polled, compute, &mut self.report)? {
                None => return Ok(ReplayOutcome::NeedsEngine),
                Some(LaneTurn::Stepped) => has_moved = true,
                Some(LaneTurn::Waiting) => break lane.awaits(compiled),
                Some(LaneTurn::Done) => match transport.undelivered() {
                    None => {
                        self.report.total = transport.now().saturating_sub(self.started);
                        return Ok(ReplayOutcome::Finished);
                    }
                    awaited => break awaited,
                },
            }
            if !is_short(&self.report) {
                (self.has_waited, self.waits_since) = (false, None);
                return Ok(ReplayOutcome::Moved);
            }
        };
        let had_waited = mem::replace(&mut self.has_waited, true);
        if has_moved || !had_waited {
            self.waits_since = None;
            return Ok(ReplayOutcome::Waiting);
        }
        let now = transport.now();
        if now.saturating_sub(*self.waits_since.get_or_insert(now)) > SHORT_WAIT {
            return Ok(ReplayOutcome::NeedsEngine);
        }
        let ours = ours();
        let heard = notices.listen(transport, &ours, awaited.as_slice())?
            || notices.listen_in_turn(transport, &ours)?;
        Ok(if heard { ReplayOutcome::Moved } else { ReplayOutcome::Waiting })
    }

    /// Returns the engine that continues the call.
    pub(crate) fn into_engine<'p>(self, program: Program<'p>, n_lanes: usize) -> Engine<'p> {
        Engine {
            program: program.numbered(self.sequence),
            n_lanes,
            is_short: is_short(&self.report),
            has_begun: self.has_begun,
            started: self.started,
            watchdog: Watchdog::default(),
            report: self.report,
        }
    }

    /// Returns how long to rest before the next poll.
    pub(crate) fn rest(limits: Limits) -> Duration {
        ask_after(limits.stall)
    }
}
