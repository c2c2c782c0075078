//! State machine that runs any schedule through any pipeline with any codec over any transport.
//!
//! The array is processed in rounds ([`Layout`]). A [`Lane`] runs the whole program for its rounds,
//! one step at a time. Lanes run side by side, each with its own tag: while one lane's frame is on
//! the wire, another lane folds (ZCCL's PIPE-fZ-light). [`Engine::poll`] makes at most one step per
//! lane, or all possible steps of a short call. The engine polls the network between steps, and
//! also within them ([`ProgressHook`]).
//!
//! The engine cannot hang. A lane waits only for a frame from a known peer, for credit on a link,
//! for a free frame, or for this rank's device. While it waits, the engine also receives abort
//! notices ([`Notices`]), and a time limit covers a peer that is alive but silent. On any error the
//! engine notifies every other rank, so every waiting rank ends as well.

mod ahead;
#[cfg(feature = "alloc")]
mod compiled;
mod compute;
mod lane;
mod notices;
mod progress_hook;
#[cfg(feature = "alloc")]
mod replay;
mod slots;
mod watchdog;
mod work;

#[cfg(feature = "alloc")]
pub(crate) use compiled::Compiled;
pub(crate) use compute::{Compute, Computing};
#[cfg(test)]
pub(crate) use notices::MemoryTransport;
pub(crate) use notices::{NoticeBody, NoticeMessage, Notices, tell};
pub(crate) use progress_hook::ProgressHook;
#[cfg(feature = "alloc")]
pub(crate) use replay::Replay;
pub(crate) use slots::FrameBuffer;
#[cfg(any(test, feature = "alloc"))]
pub(crate) use slots::Payloads;
use watchdog::Question;
pub(crate) use watchdog::{MAX_AWAITED, Waiter, Watchdog};
pub use work::Buffers;
pub(crate) use work::{Coding, Work, floats_mut};

use crate::error::{Error, Field, Value};
use crate::frame::{CallHeader, Header, Template};
use crate::handle::Progress;
use crate::layout::Layout;
#[cfg(feature = "alloc")]
use crate::layout::Shares;
use crate::primitive::Rules;
use crate::report::Report;
use crate::schedule::{Part, ProgramSpec, Schedule, Step};
use crate::transport::{MAX_LANES, Rank, Tag, Transport, TransportError, TransportErrorKind};
use crate::wait::Limits;
use core::time::Duration;
use heapless::Vec;
pub(crate) use lane::misuse;
use lane::{Lane, LaneTurn};

/// Placeholder: without an allocator, nothing is compiled.
#[cfg(not(feature = "alloc"))]
pub(crate) type Compiled = core::convert::Infallible;

/// A call with a single lane, and with segments of at most this many values, makes all possible
/// steps in one poll.
const SHORT_CALL_VALUES: usize = 1024;

/// Rest between two polls of a device that a failed call waits for.
const STOP_REST: Duration = Duration::from_micros(50);

/// Everything about a call that does not change while it runs.
#[derive(Clone, Copy)]
pub(crate) struct Program<'a> {
    pub(crate) schedule: &'static dyn Schedule,
    pub(crate) call: ProgramSpec,
    /// Number of arrays. It is 1 except in a group call, where each message carries a segment of
    /// every array.
    pub(crate) n_arrays: u16,
    pub(crate) rules: Rules,
    /// Call header that peers receive, and must match. The program of a data scan or of a
    /// measurement describes the call that follows it.
    pub(crate) header: CallHeader,
    /// The header in the encoded form with which messages begin.
    pub(crate) template: Template,
    pub(crate) layout: Layout<'a>,
    pub(crate) checksum: bool,
    pub(crate) rank: Rank,
    /// Number of steps in this rank's program.
    pub(crate) n_steps: usize,
    /// Number of lanes on every rank. Lanes without work on this rank are not created.
    pub(crate) n_lanes: usize,
}

impl Program<'_> {
    /// Returns the number of ranks whose values are combined in a value of this rank's result.
    fn n_operands(&self) -> u32 {
        if self.call.collective.reduces() { self.call.n_operands(self.rank) as u32 } else { 1 }
    }

    /// Returns the largest number of ranks whose values are combined in any rank's result.
    const fn most_operands(&self) -> u32 {
        if self.call.collective.reduces() { self.call.size as u32 } else { 1 }
    }

    /// Returns the call header for messages of this part. If peers do not know the part's length,
    /// the header contains that length in place of the array's.
    fn header_of(&self, part: Part) -> CallHeader {
        let len = self.layout.received_len(part);
        CallHeader { count: len.map_or(self.header.count, |len| len as u64), ..self.header }
    }

    /// Returns the same program with these share lengths, which may have another lifetime.
    #[cfg(feature = "alloc")]
    pub(crate) fn of_shares<'s>(&self, shares: Shares<'s>) -> Program<'s> {
        Program { layout: self.layout.of_shares(shares), ..*self }
    }

    /// Returns a step of this rank's program. In a group call, the arrays form a run of parts.
    fn step(&self, index: usize) -> Step {
        let step = self.schedule.step(self.call, self.rank, index);
        if self.n_arrays > 1 { Step { n_parts: self.n_arrays, ..step } } else { step }
    }

    /// Returns a report with the fields that are known before the call runs.
    pub(crate) fn report(&self) -> Report {
        Report {
            schedule: self.schedule.name(),
            codec: self.rules.codec(),
            lanes: self.n_lanes.min(self.layout.n_rounds()) as u8,
            segment: self.layout.longest_segment() as u32,
            as_published: !self.rules.same_bits(),
            ..Report::default()
        }
    }

    /// Returns the same program with another call number.
    pub(crate) const fn numbered(mut self, sequence: u32) -> Self {
        self.header = self.header.numbered(sequence);
        self.template = self.template.numbered(sequence);
        self
    }

    /// Returns the header template for messages of this part.
    fn template_of(&self, part: Part) -> Template {
        let carries_len = self.layout.received_len(part).is_some();
        if carries_len { Template::new(&self.header_of(part)) } else { self.template }
    }
}

/// Fails for the first pair of values that differ.
pub(crate) fn check_fields(rank: Rank, fields: &[(Field, u64, u64)]) -> Result<(), Error> {
    match fields.iter().find(|(_, ours, theirs)| ours != theirs) {
        Some(&(field, ours, theirs)) => {
            let [ours, theirs] = [ours, theirs].map(Value::number);
            Err(Error::Mismatch { rank, field, ours, theirs })
        }
        None => Ok(()),
    }
}

/// Fails unless the message from `rank` names `rank` as its sender.
pub(crate) fn check_source(rank: Rank, header: &Header) -> Result<(), Error> {
    check_fields(rank, &[(Field::Source, u64::from(rank.0), u64::from(header.from.0))])
}

/// A running call.
pub(crate) struct Engine<'a> {
    pub(crate) program: Program<'a>,
    /// True if a poll makes all possible steps.
    is_short: bool,
    has_begun: bool,
    started: Duration,
    pub(crate) watchdog: Watchdog,
    pub(crate) report: Report,
}

/// Lanes of the running call; empty if there is none. They are large, so they are stored apart from
/// the [`Engine`], which moves.
pub(crate) struct Lanes<F> {
    lanes: Vec<Lane<F>, MAX_LANES>,
    /// Record of the running call's steps, if they are being compiled.
    pub(crate) record: Option<Compiled>,
}

impl<F> Default for Lanes<F> {
    fn default() -> Self {
        Self { lanes: Vec::new(), record: None }
    }
}

impl<F: FrameBuffer> Lanes<F> {
    /// Creates this many lanes, at the start of a program.
    fn begin(&mut self, n_lanes: usize) {
        self.record = None;
        self.lanes.clear();
        self.lanes.extend((0..n_lanes).map(|i| Lane::new(Tag(i as u16), i)));
    }

    /// Does the same as [`begin`](Self::begin) with one lane, and keeps the one of the last call.
    #[cfg(feature = "alloc")]
    fn begin_one(&mut self) {
        match &mut self.lanes[..] {
            [lane] => {
                lane.restart(0);
                self.record = None;
            }
            _ => self.begin(1),
        }
    }
}

impl<'a> Engine<'a> {
    /// Begins a call on these lanes, which no other call uses.
    pub(crate) fn new<F: FrameBuffer>(
        program: Program<'a>,
        report: Report,
        now: Duration,
        lanes: &mut Lanes<F>,
    ) -> Self {
        lanes.begin(program.n_lanes.min(program.layout.n_rounds()));
        Self {
            is_short: lanes.lanes.len() == 1 && is_short(&report),
            report,
            program,
            has_begun: false,
            started: now,
            watchdog: Watchdog::default(),
        }
    }

    /// Advances every lane by at most one step. The single lane of a short call makes all possible
    /// steps. Once a rank is lost, lanes only receive what it sent before: its messages or notices
    /// may give the reason.
    ///
    /// # Errors
    /// The errors of a step or of waiting. The caller passes them to [`Watchdog::lose`].
    pub(crate) fn poll<X: Transport>(
        &mut self,
        transport: &mut X,
        lanes: &mut Lanes<X::Frame>,
        compute: &mut Computing<'_>,
        limits: Limits,
        notices: &mut Notices,
    ) -> Result<Progress, Error> {
        let (ours, checksum) = (self.program.header, self.program.checksum);
        if let Some(lost) = self.watchdog.lost() {
            let watchdog = self.watchdog;
            return watchdog.explain((transport, notices), &ours, limits, |transport, notices| {
                self.take_last(transport, lanes, compute, notices, lost)
            });
        }
        transport.progress().map_err(transport_error)?;
        if !core::mem::replace(&mut self.has_begun, true) {
            // Only another poll finds what was sent before a notice that has just arrived.
            if notices.begin(transport, &ours, checksum, true)? {
                transport.progress().map_err(transport_error)?;
            }
        }
        let (mut moved, mut finished) = (false, true);
        // True if the previous lane made a step. Then nudge the transport before the next lane: a
        // progress hook counts values from 0 in each step, so a short step never nudges.
        let mut is_nudge_due = false;
        let (program, report) = (&self.program, &mut self.report);
        let Lanes { lanes: all, record } = &mut *lanes;
        for lane in all {
            if core::mem::take(&mut is_nudge_due) {
                transport.nudge();
            }
            loop {
                let record = record.as_mut();
                match lane.turn(program, transport, compute, notices, report, record)? {
                    LaneTurn::Stepped => (moved, is_nudge_due) = (true, true),
                    LaneTurn::Waiting => finished = false,
                    LaneTurn::Done => break,
                }
                if !(self.is_short && is_nudge_due && finished) {
                    finished = false;
                    break;
                }
            }
        }
        let undelivered = if finished { transport.undelivered() } else { None };
        if finished && undelivered.is_none() {
            self.report.total = transport.now().saturating_sub(self.started);
            return Ok(Progress::Finished);
        }
        let to_deliver = undelivered.map(|rank| (rank, self.program.n_steps));
        let waiter = LanesWaiting { lanes, program: &self.program, to_deliver };
        self.watchdog.settle(moved, &waiter, (transport, notices), &ours, limits)
    }

    /// Receives what the lost rank sent before. One lane's message may still be in transit when
    /// another lane finds the rank lost. Fails if a message says more than that the rank is gone.
    /// Returns whether everything has arrived.
    fn take_last<X: Transport>(
        &mut self,
        transport: &mut X,
        lanes: &mut Lanes<X::Frame>,
        compute: &mut Computing<'_>,
        notices: &mut Notices,
        lost: Rank,
    ) -> Result<bool, Error> {
        let (program, report) = (&self.program, &mut self.report);
        let mut has_all = true;
        for lane in &mut lanes.lanes {
            if lane.waits_for(program).is_none_or(|(rank, _)| rank != lost) {
                continue;
            }
            match lane.turn(program, transport, compute, notices, report, None) {
                Ok(LaneTurn::Done) => {}
                Ok(LaneTurn::Stepped | LaneTurn::Waiting) => has_all = false,
                Err(Error::Transport { kind: TransportErrorKind::PeerLost, .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(has_all)
    }

    /// Notifies all other ranks that this rank aborts the call, and recycles every frame. The
    /// notice gives `error` as the reason. Without an error, it says that the caller dropped the
    /// call.
    ///
    /// `stop` ends what still runs on frames of lanes, and may take long. It calls its argument
    /// while it waits, so notices leave before it ends.
    pub(crate) fn abort<X: Transport>(
        &mut self,
        transport: &mut X,
        lanes: &mut Lanes<X::Frame>,
        notices: &Notices,
        error: Option<&Error>,
        stop: &mut dyn FnMut(&mut dyn FnMut()),
    ) {
        let notice = notices.notice(self.program.header, error, self.program.rank);
        let (mut next, checksum) = (Rank(0), self.program.checksum);
        let free = lanes.lanes.iter_mut().filter(|lane| !lane.is_amid_step());
        free.for_each(|lane| lane.release(transport));
        stop(&mut || {
            next = notices::tell_while_frames_last(transport, &notice, next, checksum);
            transport.idle(STOP_REST);
        });
        lanes.lanes.iter_mut().for_each(|lane| lane.release(transport));
        notices::tell(transport, &notice, next, checksum);
    }
}

/// Lanes of a call in which no lane moves.
struct LanesWaiting<'l, F> {
    lanes: &'l Lanes<F>,
    program: &'l Program<'l>,
    /// Once all lanes are done: a rank to which a frame is still in transit, and the number of
    /// steps.
    to_deliver: Option<(Rank, usize)>,
}

impl<F: FrameBuffer> LanesWaiting<'_, F> {
    /// Returns the ranks that are waited for, each with the step.
    fn all(&self) -> impl Iterator<Item = (Rank, usize)> {
        let lanes = self.lanes.lanes.iter();
        lanes.filter_map(|lane| lane.waits_for(self.program)).chain(self.to_deliver)
    }
}

impl<F: FrameBuffer> Waiter for LanesWaiting<'_, F> {
    fn awaited(&self) -> Vec<Rank, MAX_AWAITED> {
        self.all().map(|(rank, _)| rank).collect()
    }

    /// Returns the rank to blame: this one if a lane waits for its device. A lane that lacks a free
    /// frame may get one when another lane's peer moves, so that peer is blamed.
    fn blamed(&self) -> (Rank, usize) {
        let own = self.program.rank;
        if let Some(lane) = self.lanes.lanes.iter().find(|lane| lane.is_computing()) {
            return (own, lane.step);
        }
        let mut all = self.all();
        let first = all.next().unwrap_or((own, 0));
        if first.0 == own { all.find(|(rank, _)| *rank != own).unwrap_or(first) } else { first }
    }

    fn question(&self) -> Option<&dyn Question> {
        Some(self)
    }
}

impl<F: FrameBuffer> Question for LanesWaiting<'_, F> {
    fn n_needed(&self) -> usize {
        self.lanes.lanes.iter().map(|lane| lane.n_needed(self.program)).sum()
    }

    fn checksum(&self) -> bool {
        self.program.checksum
    }
}

/// Returns whether a call makes all possible steps in one poll.
const fn is_short(report: &Report) -> bool {
    report.segment as usize <= SHORT_CALL_VALUES
}

/// Converts a transport's error.
pub(crate) fn transport_error<E: TransportError>(error: E) -> Error {
    Error::Transport { kind: error.kind(), peer: error.peer() }
}

#[cfg(test)]
mod tests;
