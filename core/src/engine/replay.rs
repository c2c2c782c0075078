//! A call that is replayed: one lane that runs a compiled program.
//!
//! It does what an [`Engine`] does while nothing is in its way. Where something is (a message
//! differs from the one before, a rank is lost, it waits for long) an engine takes over from where
//! the lane is, and it knows how to wait, whom to ask, and what is wrong.

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

/// Whoever waits for longer is attended to by an engine.
const SHORT_WAIT: Duration = Duration::from_micros(100);

/// A call under way.
#[derive(Clone, Copy, Default)]
pub(crate) struct Replay {
    sequence: u32,
    has_begun: bool,
    /// The last poll found nothing to do.
    has_waited: bool,
    /// When the one before it found nothing either.
    waits_since: Option<Duration>,
    started: Duration,
    pub(crate) report: Report,
}

/// What a poll found.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Replayed {
    Finished,
    /// Poll again at once.
    Moved,
    /// Rest, then poll again.
    Waiting,
    /// An engine must go on.
    Differs,
}

impl Replay {
    /// Begins the call of this number. `report`: what its report begins with.
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

    /// Makes all the steps that it can, of a long segment one.
    ///
    /// # Errors
    /// Those of a step, which an engine weighs ([`Engine::lose`]).
    pub(crate) fn poll<X: Transport>(
        &mut self,
        (program, compiled): (&Program<'_>, &Compiled),
        transport: &mut X,
        lanes: &mut Lanes<X::Frame>,
        compute: &mut Computing<'_>,
        notices: &mut Notices,
    ) -> Result<Replayed, Error> {
        transport.progress().map_err(transport_error)?;
        let ours = || program.header.numbered(self.sequence);
        if !mem::replace(&mut self.has_begun, true) {
            // Who receives hears of others once it waits.
            if notices.begin(transport, &ours(), program.checksum, !compiled.receives())? {
                transport.progress().map_err(transport_error)?;
            }
        }
        let lane = lanes.lanes.first_mut().ok_or(Error::Internal)?;
        let mut has_moved = false;
        let awaited = loop {
            let on = (compiled, self.sequence, program.checksum);
            match lane.replay(on, transport, compute, &mut self.report)? {
                None => return Ok(Replayed::Differs),
                Some(LaneTurn::Stepped) => has_moved = true,
                Some(LaneTurn::Waiting) => break lane.awaits(compiled),
                Some(LaneTurn::Done) => match transport.undelivered() {
                    None => {
                        self.report.total = transport.now().saturating_sub(self.started);
                        return Ok(Replayed::Finished);
                    }
                    awaited => break awaited,
                },
            }
            if !is_short(&self.report) {
                (self.has_waited, self.waits_since) = (false, None);
                return Ok(Replayed::Moved);
            }
        };
        let had_waited = mem::replace(&mut self.has_waited, true);
        if has_moved || !had_waited {
            self.waits_since = None;
            return Ok(Replayed::Waiting);
        }
        let now = transport.now();
        if now.saturating_sub(*self.waits_since.get_or_insert(now)) > SHORT_WAIT {
            return Ok(Replayed::Differs);
        }
        let ours = ours();
        let heard = notices.listen(transport, &ours, awaited.as_slice())?
            || notices.listen_in_turn(transport, &ours)?;
        Ok(if heard { Replayed::Moved } else { Replayed::Waiting })
    }

    /// The engine that goes on.
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

    /// How long to rest before the next poll.
    pub(crate) fn rest(limits: Limits) -> Duration {
        ask_after(limits.stall)
    }
}
