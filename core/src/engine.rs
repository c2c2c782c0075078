//! The one state machine that runs any schedule through any pipeline with any codec over any
//! transport.
//!
//! The array is processed in rounds ([`Layout`]); a [`Lane`] runs the whole program for its rounds,
//! one step at a time. Lanes run side by side, a tag each: while one lane's frame is on the wire,
//! another's is being folded (ZCCL's PIPE-fZ-light). [`Engine::poll`] does at most one step a lane,
//! or of a short call all that it can, and looks at the network within steps and between them
//! ([`ProgressHook`]).
//!
//! Why it cannot hang: a lane waits only for a frame of a known peer, for credit on a link, or for
//! a free frame. While it waits, the engine also listens for abort notices ([`Notices`]), and a
//! time limit covers a peer that is alive but silent. On any error the engine tells every other
//! rank, and each that waits ends as well.

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
pub(crate) use notices::Memory;
pub(crate) use notices::{NoticeBody, NoticeMessage, Notices, tell};
pub(crate) use progress_hook::ProgressHook;
#[cfg(feature = "alloc")]
pub(crate) use replay::{Replay, Replayed};
pub(crate) use slots::FrameBuffer;
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

/// Without an allocator nothing is compiled.
#[cfg(not(feature = "alloc"))]
pub(crate) type Compiled = core::convert::Infallible;

/// Calls of one segment of at most so many values make all the steps in a poll that they can.
const SHORT_CALL_VALUES: usize = 1024;

/// Everything about a call that does not change while it runs.
#[derive(Clone, Copy)]
pub(crate) struct Program<'a> {
    pub(crate) schedule: &'static dyn Schedule,
    pub(crate) call: ProgramSpec,
    /// Arrays that every message carries a segment of each of; 1 in other calls than a group's.
    pub(crate) n_arrays: u16,
    pub(crate) rules: Rules,
    /// What peers are told of the call, and must say as well. A look at the extent of the data has
    /// that of the call it belongs to.
    pub(crate) header: CallHeader,
    /// The same as its messages begin with it.
    pub(crate) template: Template,
    pub(crate) layout: Layout<'a>,
    pub(crate) checksum: bool,
    pub(crate) rank: Rank,
    /// Steps of this rank's.
    pub(crate) n_steps: usize,
}

impl Program<'_> {
    /// How many ranks' values a value of this rank's result combines.
    fn n_operands(&self) -> u32 {
        if self.call.collective.reduces() { self.call.n_operands(self.rank) as u32 } else { 1 }
    }

    /// How many ranks' values any rank's result combines, at most.
    const fn most_operands(&self) -> u32 {
        if self.call.collective.reduces() { self.call.size as u32 } else { 1 }
    }

    /// What peers are told of the call in a message of this part: where they do not know how long
    /// the part is, that in place of the length of the array.
    fn header_of(&self, part: Part) -> CallHeader {
        let len = self.layout.told_len(part);
        CallHeader { count: len.map_or(self.header.count, |len| len as u64), ..self.header }
    }

    /// The same where lengths of shares live longer.
    #[cfg(feature = "alloc")]
    pub(crate) fn of_shares<'s>(&self, shares: Shares<'s>) -> Program<'s> {
        Program { layout: self.layout.of_shares(shares), ..*self }
    }

    /// Whether it is the same but for the call's number.
    #[cfg(feature = "alloc")]
    pub(crate) fn is_alike(&self, other: &Program<'_>) -> bool {
        let header = |program: &Program<'_>| program.header.numbered(0);
        header(self) == header(other)
            && self.layout == other.layout
            && self.rules == other.rules
            && self.n_arrays == other.n_arrays
    }

    /// A step of this rank's program. Several arrays that are moved as a whole are a run of parts.
    fn step(&self, index: usize) -> Step {
        let step = self.schedule.step(self.call, self.rank, index);
        if self.n_arrays > 1 { Step { n_parts: self.n_arrays, ..step } } else { step }
    }

    /// What a report of the call begins with.
    pub(crate) fn report(&self, n_lanes: usize) -> Report {
        Report {
            schedule: self.schedule.name(),
            codec: self.rules.codec(),
            lanes: n_lanes.min(self.layout.n_rounds()) as u8,
            segment: self.layout.longest_segment() as u32,
            as_published: !self.rules.same_bits(),
            ..Report::default()
        }
    }

    /// As the call of this number.
    pub(crate) const fn numbered(mut self, sequence: u32) -> Self {
        self.header = self.header.numbered(sequence);
        self.template = self.template.numbered(sequence);
        self
    }

    /// What messages of a part begin with.
    fn template_of(&self, part: Part) -> Template {
        let is_told = self.layout.told_len(part).is_some();
        if is_told { Template::new(&self.header_of(part)) } else { self.template }
    }
}

/// The first pair that differs, as an error.
pub(crate) fn check_fields(rank: Rank, fields: &[(Field, u64, u64)]) -> Result<(), Error> {
    match fields.iter().find(|(_, ours, theirs)| ours != theirs) {
        Some(&(field, ours, theirs)) => {
            let [ours, theirs] = [ours, theirs].map(Value::number);
            Err(Error::Mismatch { rank, field, ours, theirs })
        }
        None => Ok(()),
    }
}

/// An error unless `rank` itself sent the message that came from it.
pub(crate) fn check_source(rank: Rank, header: &Header) -> Result<(), Error> {
    check_fields(rank, &[(Field::Source, u64::from(rank.0), u64::from(header.from.0))])
}

/// A running call.
pub(crate) struct Engine<'a> {
    program: Program<'a>,
    /// Lanes of every rank; one that has nothing to do is not here.
    n_lanes: usize,
    /// A poll makes all steps that it can.
    is_short: bool,
    has_begun: bool,
    started: Duration,
    watchdog: Watchdog,
    pub(crate) report: Report,
}

/// The lanes of the call under way; none if there is none. They are large, and stay where they are
/// while calls move.
pub(crate) struct Lanes<F> {
    lanes: Vec<Lane<F>, MAX_LANES>,
    /// Where the steps of the call under way are compiled, if they are.
    pub(crate) record: Option<Compiled>,
}

impl<F> Default for Lanes<F> {
    fn default() -> Self {
        Self { lanes: Vec::new(), record: None }
    }
}

impl<F: FrameBuffer> Lanes<F> {
    /// So many lanes, at the beginning of a program.
    fn begin(&mut self, n_lanes: usize) {
        self.record = None;
        self.lanes.clear();
        self.lanes.extend((0..n_lanes).map(|i| Lane::new(Tag(i as u16), i)));
    }
}

impl<'a> Engine<'a> {
    /// Begins a call on these lanes, of which no other call has anything.
    pub(crate) fn new<F: FrameBuffer>(
        program: Program<'a>,
        n_lanes: usize,
        report: Report,
        now: Duration,
        lanes: &mut Lanes<F>,
    ) -> Self {
        lanes.begin(n_lanes.min(program.layout.n_rounds()));
        Self {
            n_lanes,
            is_short: lanes.lanes.len() == 1 && is_short(&report),
            report,
            program,
            has_begun: false,
            started: now,
            watchdog: Watchdog::default(),
        }
    }

    /// The program, on how many lanes it runs, and the report, of a call that has not begun.
    pub(crate) fn into_program(self) -> (Program<'a>, usize, Report) {
        (self.program, self.n_lanes, self.report)
    }

    /// Advances every lane by at most one step; of a short call the one lane as far as it goes.
    /// Once a rank is found lost, lanes only take what it sent before: that, or what it told, may
    /// say why.
    pub(crate) fn poll<X: Transport>(
        &mut self,
        transport: &mut X,
        lanes: &mut Lanes<X::Frame>,
        compute: &mut Computing<'_>,
        limits: Limits,
        notices: &mut Notices,
    ) -> Result<Progress, Error> {
        if self.watchdog.lost().is_none() {
            match self.advance(transport, lanes, compute, limits, notices) {
                Err(error) => self.lose(error, transport.now())?,
                result => return result,
            }
        }
        let (watchdog, header) = (self.watchdog, self.program.header);
        watchdog.explain((transport, notices), &header, limits, |transport, notices| {
            self.take_last(transport, lanes, compute, notices, watchdog.lost())
        })
    }

    /// A step has failed: an error, unless a rank is lost, of which more may be known in a moment.
    pub(crate) const fn lose(&mut self, error: Error, now: Duration) -> Result<(), Error> {
        self.watchdog.lose(error, now)
    }

    /// Takes what a lost rank sent before, of which a lane may be without while another's is on its
    /// way: an error if that says more than that the rank is gone. Whether all of it has come.
    fn take_last<X: Transport>(
        &mut self,
        transport: &mut X,
        lanes: &mut Lanes<X::Frame>,
        compute: &mut Computing<'_>,
        notices: &mut Notices,
        lost: Option<Rank>,
    ) -> Result<bool, Error> {
        let (program, n_lanes, report) = (&self.program, self.n_lanes, &mut self.report);
        let mut has_all = true;
        for lane in &mut lanes.lanes {
            if lane.waits_for(program).map(|(rank, _)| rank) != lost {
                continue;
            }
            let on = (program, n_lanes);
            match lane.turn(on, transport, compute, notices, report, None) {
                Ok(LaneTurn::Done) => {}
                Ok(LaneTurn::Stepped | LaneTurn::Waiting) => has_all = false,
                Err(Error::Transport { kind: TransportErrorKind::PeerLost, .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(has_all)
    }

    /// As [`poll`](Self::poll) while nobody is lost.
    fn advance<X: Transport>(
        &mut self,
        transport: &mut X,
        lanes: &mut Lanes<X::Frame>,
        compute: &mut Computing<'_>,
        limits: Limits,
        notices: &mut Notices,
    ) -> Result<Progress, Error> {
        transport.progress().map_err(transport_error)?;
        let (ours, checksum) = (self.program.header, self.program.checksum);
        if !core::mem::replace(&mut self.has_begun, true) {
            // What was sent before a notice that has just come is found only by another look.
            if notices.begin(transport, &ours, checksum, true)? {
                transport.progress().map_err(transport_error)?;
            }
        }
        let n_lanes = self.n_lanes;
        let (mut moved, mut finished) = (false, true);
        // What the lane before passed since the last look is not counted in this one's.
        let mut is_nudge_due = false;
        let (program, report) = (&self.program, &mut self.report);
        let Lanes { lanes: all, record } = &mut *lanes;
        for lane in all {
            if core::mem::take(&mut is_nudge_due) {
                transport.nudge();
            }
            loop {
                let (on, record) = ((program, n_lanes), record.as_mut());
                match lane.turn(on, transport, compute, notices, report, record)? {
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

    /// How long to rest before the next poll, if nothing comes before.
    pub(crate) fn rest(&self, limits: Limits) -> Duration {
        self.watchdog.rest(limits)
    }

    /// Gives every frame back, and tells all other ranks that this one has given up: for this
    /// error, or because its caller wanted it.
    pub(crate) fn abort<X: Transport>(
        &mut self,
        transport: &mut X,
        lanes: &mut Lanes<X::Frame>,
        notices: &Notices,
        error: Option<&Error>,
    ) {
        for lane in &mut lanes.lanes {
            lane.release(transport);
        }
        let notice = notices.notice(self.program.header, error, self.program.rank);
        notices::tell(transport, &notice, self.program.checksum);
    }
}

/// The lanes of a call, while none moves.
struct LanesWaiting<'l, F> {
    lanes: &'l Lanes<F>,
    program: &'l Program<'l>,
    /// Who still has to take what was sent, once all lanes are done.
    to_deliver: Option<(Rank, usize)>,
}

impl<F: FrameBuffer> LanesWaiting<'_, F> {
    /// The ranks that are waited for, and the steps.
    fn all(&self) -> impl Iterator<Item = (Rank, usize)> {
        let lanes = self.lanes.lanes.iter();
        lanes.filter_map(|lane| lane.waits_for(self.program)).chain(self.to_deliver)
    }
}

impl<F: FrameBuffer> Waiter for LanesWaiting<'_, F> {
    fn awaited(&self) -> Vec<Rank, MAX_AWAITED> {
        self.all().map(|(rank, _)| rank).collect()
    }

    /// A lane that lacks a free frame may get it when another lane's peer moves: that peer is to
    /// blame.
    fn blamed(&self) -> (Rank, usize) {
        let own = self.program.rank;
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

/// Whether a call makes all the steps in a poll that it can.
const fn is_short(report: &Report) -> bool {
    report.segment as usize <= SHORT_CALL_VALUES
}

/// A transport's error as ours.
pub(crate) fn transport_error<E: TransportError>(error: E) -> Error {
    Error::Transport { kind: error.kind(), peer: error.peer() }
}

#[cfg(test)]
mod tests;
