//! A call that is replayed: one lane that runs a compiled program.
//!
//! It does what an [`Engine`] does while nothing is in its way. Where something is (a message
//! differs from the one before, a rank is lost, two polls in a row find nothing to do) an engine
//! takes over from where the lane is, and it knows how to wait, whom to ask, and what is wrong.

use super::{Compiled, Compute, Engine, Frame, Lanes, Limits, Notices, Program};
use super::{ask_after, is_short, transport_error};
use crate::engine::lane::Turn;
use crate::error::Error;
use crate::report::Report;
use crate::transport::Transport;
use crate::wait::Wait;
use core::mem;
use core::time::Duration;

/// A call under way.
#[derive(Clone, Copy, Default)]
pub(crate) struct Replay {
    sequence: u32,
    has_begun: bool,
    /// The last poll found nothing to do.
    has_waited: bool,
    started: Duration,
    report: Report,
}

/// What a poll found.
pub(crate) enum Replayed {
    Finished(Report),
    /// Poll again at once.
    Moved,
    /// Rest, then poll again.
    Waiting,
    /// An engine must go on.
    Differs,
}

impl Replay {
    /// Begins the call of this number. `report`: what its report begins with.
    pub(crate) fn begin<F: Frame>(
        &mut self,
        sequence: u32,
        report: &Report,
        now: Duration,
        on: &mut Lanes<F>,
    ) {
        on.begin(1);
        (self.sequence, self.started, self.report) = (sequence, now, *report);
        (self.has_begun, self.has_waited) = (false, false);
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
        compute: &mut dyn Compute,
        notices: &mut Notices,
    ) -> Result<Replayed, Error> {
        transport.progress().map_err(transport_error)?;
        if !mem::replace(&mut self.has_begun, true) {
            let ours = program.header.numbered(self.sequence);
            // Who receives hears of others once it waits.
            if notices.begin(transport, &ours, program.checksum, !compiled.receives())? {
                transport.progress().map_err(transport_error)?;
            }
        }
        let lane = lanes.lanes.first_mut().ok_or(Error::Internal)?;
        let mut has_moved = false;
        loop {
            let on = (compiled, self.sequence, program.checksum);
            let turn = lane.replay(on, transport, compute, &mut self.report)?;
            let Some(turn) = turn else { return Ok(Replayed::Differs) };
            match turn {
                Turn::Stepped if is_short(&self.report) => has_moved = true,
                Turn::Stepped => {
                    self.has_waited = false;
                    return Ok(Replayed::Moved);
                }
                Turn::Waiting => break,
                Turn::Done if transport.undelivered().is_some() => break,
                Turn::Done => {
                    self.report.total = transport.now().saturating_sub(self.started);
                    return Ok(Replayed::Finished(self.report));
                }
            }
        }
        let has_waited = mem::replace(&mut self.has_waited, !has_moved) && !has_moved;
        Ok(if has_waited { Replayed::Differs } else { Replayed::Waiting })
    }

    /// The engine that goes on.
    pub(crate) fn into_engine<'p>(self, program: Program<'p>, n_lanes: usize) -> Engine<'p> {
        Engine {
            program: program.numbered(self.sequence),
            n_lanes,
            is_short: is_short(&self.report),
            has_begun: self.has_begun,
            started: self.started,
            wait: Wait::default(),
            lost: None,
            report: self.report,
        }
    }

    /// How long to rest before the next poll.
    pub(crate) fn rest(limits: Limits) -> Duration {
        ask_after(limits.stall)
    }
}
