//! One lane: a cursor in the program, and the frames it holds.
//!
//! A turn first gets everything that a step can wait for (the incoming frame, credit to send, spare
//! frames), keeping what it has if something is missing; then the step is one computation and at
//! most one send, neither of which waits. So a turn either completes a step or changes nothing that
//! matters, and no state is needed between the two but what the lane holds.

use super::doing::Doing;
use super::frames::{Frame, Frames, Place};
use super::work::{Floats, Payload, Work};
use super::{Notices, Program, check_fields, check_source, transport_error};
use crate::Element;
use crate::error::{Error, Field, Reason, Value};
use crate::frame::{self, FrameError, HEADER_BYTES, Header, Kind};
use crate::report::Report;
use crate::schedule::{Action, Step};
use crate::transport::{FRAMES_PER_LANE, Rank, Tag, Transport, TransportErrorKind};
use core::ops::RangeInclusive;
use core::task::Poll;
use heapless::Vec;

/// Spare frames that one step can use: one to send, one for scratch.
const SPARES: usize = 2;

/// What a turn did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Turn {
    Stepped,
    Waiting,
    Done,
}

/// What the lane keeps of the current part between steps.
#[derive(Default)]
pub(super) enum Holding {
    /// Nothing; the rank's own values stand for themselves.
    #[default]
    Nothing,
    /// An encoded segment.
    Encoded(Payload),
    /// A segment as floats.
    Floats(Floats),
}

impl Holding {
    /// How many ranks' values are combined in it.
    pub(super) const fn operands(&self) -> u32 {
        match self {
            Self::Nothing => 1,
            Self::Encoded(payload) => payload.operands,
            Self::Floats(floats) => floats.operands,
        }
    }
}

pub(super) struct Lane<F> {
    tag: Tag,
    round: usize,
    step: usize,
    /// The last turn found no free frame.
    is_starved: bool,
    /// All frames that the lane has; what follows says what is in them.
    pub(super) frames: Frames<F>,
    pub(super) incoming: Option<Payload>,
    pub(super) holding: Holding,
    pub(super) spares: Vec<Place, SPARES>,
}

impl<F: Frame> Lane<F> {
    pub(super) fn new(tag: Tag, round: usize) -> Self {
        Self {
            tag,
            round,
            step: 0,
            is_starved: false,
            frames: Frames::new(),
            incoming: None,
            holding: Holding::Nothing,
            spares: Vec::new(),
        }
    }

    fn current(&self, program: &Program) -> Option<Step> {
        (self.round < program.layout.n_rounds() && self.step < program.n_steps())
            .then(|| program.schedule.step(program.call, program.rank, self.step))
    }

    /// The peer that this lane waits for, or would wait for, and the step; this rank if what lacks
    /// is a free frame.
    pub(super) fn waits_for(&self, program: &Program) -> Option<(Rank, usize)> {
        let step = self.current(program)?;
        let from = if self.incoming.is_none() { step.from } else { None };
        let peer = if self.is_starved { None } else { from.or(step.to) };
        Some((peer.unwrap_or(program.rank), self.step))
    }

    /// Frames that the lane may still want at the same time.
    pub(super) fn n_needed(&self, program: &Program) -> usize {
        let is_done = self.current(program).is_none();
        if is_done { 0 } else { FRAMES_PER_LANE.saturating_sub(self.frames.len()) }
    }

    /// Whom the lane receives from next, after the current step.
    fn next_source(&self, program: &Program, n_lanes: usize) -> Option<Rank> {
        let (call, rank, n_steps) = (program.call, program.rank, program.n_steps());
        let source = |index| program.schedule.step(call, rank, index).from;
        (self.step + 1..n_steps).find_map(source).or_else(|| {
            let goes_on = self.round + n_lanes < program.layout.n_rounds();
            if goes_on { (0..=self.step).find_map(source) } else { None }
        })
    }

    /// Gives every frame back.
    pub(super) fn release<X: Transport<Frame = F>>(&mut self, transport: &mut X) {
        (self.incoming, self.holding) = (None, Holding::Nothing);
        self.spares.clear();
        while let Some(frame) = self.frames.take_any() {
            transport.recycle(frame);
        }
    }

    /// Keeps a frame that the transport gave.
    fn keep<X: Transport<Frame = F>>(
        &mut self,
        frame: F,
        transport: &mut X,
    ) -> Result<Place, Error> {
        self.frames.put(frame).map_err(|frame| {
            transport.recycle(frame);
            misuse()
        })
    }

    /// Completes the current step if nothing is missing for it.
    pub(super) fn turn<X: Transport<Frame = F>, T: Element>(
        &mut self,
        program: &Program,
        n_lanes: usize,
        transport: &mut X,
        work: &mut Work<'_, '_, T>,
        notices: &mut Notices,
        report: &mut Report,
    ) -> Result<Turn, Error> {
        let Some(step) = self.current(program) else { return Ok(Turn::Done) };
        let segment = program.layout.segment(step.part.index(), self.round);
        self.is_starved = false;
        if let (Some(from), None) = (step.from, &self.incoming) {
            match transport.poll_recv(from, self.tag).map_err(transport_error)? {
                Poll::Pending => return Ok(Turn::Waiting),
                Poll::Ready((frame, n_bytes)) => {
                    let at = self.keep(frame, transport)?;
                    let message = self.frames.bytes(at)?.get(..n_bytes);
                    let Header { n_bytes, operands, .. } =
                        self.check(program, notices, from, &step, segment.len(), message)?;
                    let n_bytes = n_bytes as usize;
                    work.check_length(&self.frames, at, n_bytes, segment.len())?;
                    self.incoming = Some(Payload { at, n_bytes, operands, has_header: true });
                    if let Some(next) = self.next_source(program, n_lanes) {
                        transport.expect(next, self.tag);
                    }
                }
            }
        }
        if let Some(to) = step.to
            && transport.poll_ready(to, self.tag).map_err(transport_error)?.is_pending()
        {
            return Ok(Turn::Waiting);
        }
        while !self.spares.is_full() {
            match transport.poll_frame().map_err(transport_error)? {
                Poll::Pending => {
                    self.is_starved = true;
                    return Ok(Turn::Waiting);
                }
                Poll::Ready(frame) => {
                    let place = self.keep(frame, transport)?;
                    if self.spares.push(place).is_err() {
                        return Err(misuse());
                    }
                }
            }
        }
        let outgoing =
            Doing { lane: self, program, transport, work, report, segment: &segment }.act(&step)?;
        if let (Some(to), Some(payload)) = (step.to, outgoing) {
            let n_bytes = HEADER_BYTES + payload.n_bytes;
            let [bytes] = self.frames.bytes_mut([payload.at])?;
            let bytes = bytes.get_mut(..n_bytes).ok_or(misuse())?;
            if payload.has_header {
                frame::readdress(bytes, program.rank);
            } else {
                let header = Header {
                    kind: Kind::Data,
                    call: program.header,
                    from: program.rank,
                    part: step.part.0,
                    round: self.round as u32,
                    n_values: segment.len() as u32,
                    n_bytes: payload.n_bytes as u32,
                    operands: payload.operands,
                };
                header.emit(bytes, program.checksum);
            }
            let frame = self.frames.take(payload.at)?;
            transport.send(to, self.tag, frame, n_bytes).map_err(transport_error)?;
            report.raw_bytes += (segment.len() * T::BYTES) as u64;
            report.wire_bytes += n_bytes as u64;
            report.n_messages += 1;
        }
        self.step += 1;
        if self.step == program.n_steps() {
            self.step = 0;
            self.round += n_lanes;
        }
        if self.current(program).is_none() {
            self.release(transport);
        }
        Ok(Turn::Stepped)
    }

    /// Checks a received message against what this step expects; its header.
    fn check(
        &self,
        program: &Program,
        notices: &mut Notices,
        rank: Rank,
        step: &Step,
        n_values: usize,
        message: Option<&[u8]>,
    ) -> Result<Header, Error> {
        let message = message.ok_or(misuse())?;
        let header = Header::parse(message, program.checksum)
            .map_err(|error| Error::Frame { rank, error })?;
        match header.kind {
            Kind::Data => {}
            Kind::View | Kind::Fence => {
                return Err(Error::Aborted { rank, culprit: rank, reason: Reason::Left });
            }
            // These have a tag of their own.
            Kind::Abort | Kind::Call => {
                return Err(Error::Frame { rank, error: FrameError::Damaged });
            }
        }
        notices.check(rank, &program.header, &header.call)?;
        check_source(rank, &header)?;
        check_fields(
            rank,
            &[
                (Field::Part, u64::from(step.part.0), u64::from(header.part)),
                (Field::Round, self.round as u64, u64::from(header.round)),
                (Field::Segment, n_values as u64, u64::from(header.n_values)),
            ],
        )?;
        let need = self.operands(program, step.action);
        if !need.contains(&header.operands) {
            let [ours, theirs] =
                [*need.end(), header.operands].map(|n| Value::number(u64::from(n)));
            return Err(Error::Mismatch { rank, field: Field::Operands, ours, theirs });
        }
        Ok(header)
    }

    /// How many ranks' values a message for this action can combine. What is stored must lack
    /// nobody's.
    fn operands(&self, program: &Program, action: Action) -> RangeInclusive<u32> {
        let all = program.n_operands();
        let others = all.saturating_sub(self.holding.operands());
        match action {
            Action::Store | Action::StoreForward => all..=all,
            Action::ReduceStore | Action::ReduceStoreSend => others..=others,
            Action::Reduce | Action::ReduceSend => 1..=others,
            _ => 1..=all,
        }
    }

    /// Whom the lane last received from in this round; this rank if from nobody.
    pub(super) fn last_source(&self, program: &Program) -> Rank {
        let source = |index| program.schedule.step(program.call, program.rank, index).from;
        (0..self.step).rev().find_map(source).unwrap_or(program.rank)
    }
}

/// A transport that broke its contract.
pub(super) fn misuse() -> Error {
    Error::Transport { kind: TransportErrorKind::Misuse, peer: None }
}
