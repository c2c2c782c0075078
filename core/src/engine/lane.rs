//! One lane: a cursor in the program, and the frames it holds.
//!
//! A turn first gets everything that a step can wait for (the incoming frame, credit to send, spare
//! frames), keeping what it has if something is missing; then the step is one computation and at most
//! one send, neither of which waits. So a turn either completes a step or changes nothing that
//! matters, and no state is needed between the two but what the lane holds.

use super::work::{Payload, Work};
use super::{Program, check_fields, transport_error};
use crate::Element;
use crate::error::{Error, Field};
use crate::frame::{HEADER_BYTES, Header, Kind};
use crate::report::Report;
use crate::schedule::{Action, Step};
use crate::transport::{FRAME_ALIGN, Rank, Tag, Transport, TransportErrorKind};
use core::ops::Range;
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
enum Holding<F> {
    /// Nothing; the rank's own values stand for themselves.
    #[default]
    Nothing,
    /// An encoded segment.
    Encoded(Payload<F>),
    /// A segment as floats, in a frame's payload.
    Floats(F),
}

pub(super) struct Lane<F> {
    tag: Tag,
    round: usize,
    step: usize,
    incoming: Option<Payload<F>>,
    holding: Holding<F>,
    spares: Vec<F, SPARES>,
}

impl<F: AsRef<[u8]> + AsMut<[u8]>> Lane<F> {
    pub(super) fn new(tag: Tag, round: usize) -> Self {
        Self { tag, round, step: 0, incoming: None, holding: Holding::Nothing, spares: Vec::new() }
    }

    fn current(&self, program: &Program) -> Option<Step> {
        (self.round < program.layout.n_rounds() && self.step < program.n_steps())
            .then(|| program.schedule.step(program.call, program.rank, self.step))
    }

    /// The peer that this lane waits for, or would wait for, and the step.
    pub(super) fn waits_for(&self, program: &Program) -> Option<(Rank, usize)> {
        let step = self.current(program)?;
        let from = if self.incoming.is_none() { step.from } else { None };
        from.or(step.to).map(|rank| (rank, self.step))
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
        if let Some(payload) = self.incoming.take() {
            transport.recycle(payload.frame);
        }
        match core::mem::take(&mut self.holding) {
            Holding::Nothing => {}
            Holding::Encoded(Payload { frame, .. }) | Holding::Floats(frame) => {
                transport.recycle(frame);
            }
        }
        while let Some(frame) = self.spares.pop() {
            transport.recycle(frame);
        }
    }

    /// Completes the current step if nothing is missing for it.
    pub(super) fn turn<X: Transport<Frame = F>, T: Element>(
        &mut self,
        program: &Program,
        n_lanes: usize,
        transport: &mut X,
        work: &mut Work<'_, '_, T>,
        report: &mut Report,
    ) -> Result<Turn, Error> {
        let Some(step) = self.current(program) else { return Ok(Turn::Done) };
        let segment = program.layout.segment(step.part.index(), self.round);
        if let (Some(from), None) = (step.from, &self.incoming) {
            match transport.poll_recv(from, self.tag).map_err(transport_error)? {
                Poll::Pending => return Ok(Turn::Waiting),
                Poll::Ready((frame, n_bytes)) => {
                    self.incoming =
                        Some(self.accept(program, from, &step, segment.len(), frame, n_bytes)?);
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
                Poll::Pending => return Ok(Turn::Waiting),
                Poll::Ready(frame) => {
                    let misaligned = frame.as_ref().as_ptr().align_offset(FRAME_ALIGN) != 0;
                    let too_short = frame.as_ref().len() < transport.frame_capacity();
                    let _ = self.spares.push(frame);
                    if misaligned || too_short {
                        return Err(misuse());
                    }
                }
            }
        }
        let outgoing =
            Doing { lane: self, program, transport, work, report, segment: &segment }.act(&step)?;
        if let (Some(to), Some(mut payload)) = (step.to, outgoing) {
            let n_bytes = HEADER_BYTES + payload.n_bytes;
            if !payload.has_header {
                let header = Header {
                    kind: Kind::Data,
                    call: program.header,
                    part: step.part.0,
                    round: self.round as u32,
                    n_values: segment.len() as u32,
                    n_bytes: payload.n_bytes as u32,
                };
                header.emit(payload.frame.as_mut(), program.checksum);
            }
            transport.send(to, self.tag, payload.frame, n_bytes).map_err(transport_error)?;
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

    /// Checks a received message against what this step expects.
    fn accept(
        &self,
        program: &Program,
        rank: Rank,
        step: &Step,
        n_values: usize,
        frame: F,
        n_bytes: usize,
    ) -> Result<Payload<F>, Error> {
        let message = frame.as_ref().get(..n_bytes).ok_or(misuse())?;
        let header = Header::parse(message, program.checksum)
            .map_err(|error| Error::Frame { rank, error })?;
        if header.kind == Kind::Abort {
            return Err(Error::Aborted { rank });
        }
        program.check(rank, &header.call)?;
        check_fields(
            rank,
            &[
                (Field::Part, u64::from(step.part.0), u64::from(header.part)),
                (Field::Round, self.round as u64, u64::from(header.round)),
                (Field::Segment, n_values as u64, u64::from(header.n_values)),
            ],
        )?;
        Ok(Payload { frame, n_bytes: header.n_bytes as usize, has_header: true })
    }
}

/// A transport that broke its contract.
fn misuse() -> Error {
    Error::Transport { kind: TransportErrorKind::Misuse, peer: None }
}

/// One step being done: the incoming frame is there, and two spares.
struct Doing<'d, 'w, 'b, F, X, T: Element> {
    lane: &'d mut Lane<F>,
    program: &'d Program,
    transport: &'d mut X,
    work: &'d mut Work<'w, 'b, T>,
    report: &'d mut Report,
    segment: &'d Range<usize>,
}

impl<F: AsRef<[u8]> + AsMut<[u8]>, X: Transport<Frame = F>, T: Element> Doing<'_, '_, '_, F, X, T> {
    /// Does the action; returns the frame to send for actions that send.
    fn act(&mut self, step: &Step) -> Result<Option<Payload<F>>, Error> {
        match step.action {
            Action::Send => return self.send(step.keep).map(Some),
            Action::SendStore => {
                let payload = self.encode_own()?;
                if self.program.is_exact() {
                    self.work.copy_own(self.segment, 1);
                } else {
                    self.store(&payload)?;
                }
                return Ok(Some(payload));
            }
            Action::Hold => self.hold()?,
            Action::Finish => self.finish()?,
            Action::FinishAsSent => self.finish_as_sent()?,
            Action::Store => {
                let payload = self.incoming()?;
                self.store(&payload)?;
                self.recycle(payload.frame);
            }
            Action::Forward => return self.pass_on().map(Some),
            Action::StoreForward => {
                let payload = self.pass_on()?;
                self.store(&payload)?;
                return Ok(Some(payload));
            }
            Action::Reduce => self.reduce()?,
            Action::ReduceSend => return self.reduce_send().map(Some),
            Action::ReduceStore => self.reduce_store()?,
            Action::ReduceStoreSend => {
                let payload = self.reduce_send()?;
                self.store(&payload)?;
                return Ok(Some(payload));
            }
        }
        Ok(None)
    }

    fn incoming(&mut self) -> Result<Payload<F>, Error> {
        self.lane.incoming.take().ok_or(misuse())
    }

    fn spare(&mut self) -> Result<F, Error> {
        self.lane.spares.pop().ok_or(misuse())
    }

    fn take_holding(&mut self) -> Holding<F> {
        core::mem::take(&mut self.lane.holding)
    }

    /// Keeps a frame as a spare, or gives it back.
    fn recycle(&mut self, frame: F) {
        if let Err(frame) = self.lane.spares.push(frame) {
            self.transport.recycle(frame);
        }
    }

    fn timed<R>(
        &mut self,
        clock: fn(&mut Report) -> &mut core::time::Duration,
        body: impl FnOnce(&mut Work<'_, '_, T>, &mut Report) -> Result<R, Error>,
    ) -> Result<R, Error> {
        let start = self.transport.now();
        let result = body(self.work, self.report);
        *clock(self.report) += self.transport.now().saturating_sub(start);
        result
    }

    fn encode_own(&mut self) -> Result<Payload<F>, Error> {
        let (frame, segment) = (self.spare()?, self.segment);
        self.timed(|r| &mut r.encode, |work, report| work.encode_own(segment, frame, report))
    }

    /// The part's values, decoded, into the output.
    fn store(&mut self, payload: &Payload<F>) -> Result<(), Error> {
        let (segment, divisor) = (self.segment, self.program.divisor);
        self.timed(|r| &mut r.decode, |work, _| work.store(segment, payload, divisor))
    }

    /// Decodes into the floats of a spare frame.
    fn decode_to_floats(&mut self, payload: &Payload<F>) -> Result<F, Error> {
        let (mut floats, n) = (self.spare()?, self.segment.len());
        self.timed(|r| &mut r.decode, |work, _| work.decode(payload, n, &mut floats))?;
        Ok(floats)
    }

    fn encode_floats(&mut self, floats: &F) -> Result<Payload<F>, Error> {
        let (frame, n) = (self.spare()?, self.segment.len());
        self.timed(|r| &mut r.encode, |work, report| work.encode(floats, n, frame, report))
    }

    fn send(&mut self, keep: bool) -> Result<Payload<F>, Error> {
        let reduces = self.program.call.collective.reduces();
        match self.take_holding() {
            Holding::Nothing => {
                let payload = self.encode_own()?;
                if keep && !self.program.is_exact() {
                    if reduces && !self.program.keeps_frames() {
                        // The receiver adds what it decodes; so must we, or results would differ.
                        self.lane.holding = Holding::Floats(self.decode_to_floats(&payload)?);
                    } else if self.program.encodes_own() && reduces
                        || !reduces && !self.program.recodes()
                    {
                        self.lane.holding = Holding::Encoded(self.copy(&payload)?);
                    }
                }
                Ok(payload)
            }
            Holding::Encoded(payload) if keep => {
                let copy = self.copy(&payload)?;
                self.lane.holding = Holding::Encoded(payload);
                Ok(copy)
            }
            Holding::Encoded(payload) => Ok(payload),
            Holding::Floats(floats) => {
                let payload = self.encode_floats(&floats)?;
                if !keep {
                    self.recycle(floats);
                } else if reduces {
                    self.recycle(floats);
                    self.lane.holding = Holding::Floats(self.decode_to_floats(&payload)?);
                } else {
                    self.lane.holding = Holding::Floats(floats);
                }
                Ok(payload)
            }
        }
    }

    fn copy(&mut self, payload: &Payload<F>) -> Result<Payload<F>, Error> {
        let frame = self.spare()?;
        Ok(payload.copy_into(frame))
    }

    fn hold(&mut self) -> Result<(), Error> {
        let payload = self.incoming()?;
        self.lane.holding = if self.program.recodes() {
            let floats = self.decode_to_floats(&payload)?;
            self.recycle(payload.frame);
            Holding::Floats(floats)
        } else {
            Holding::Encoded(payload)
        };
        Ok(())
    }

    fn finish(&mut self) -> Result<(), Error> {
        let divisor = self.program.divisor;
        match self.take_holding() {
            Holding::Nothing => self.work.copy_own(self.segment, divisor),
            Holding::Encoded(payload) => {
                self.store(&payload)?;
                self.recycle(payload.frame);
            }
            Holding::Floats(floats) => {
                self.work.copy_floats(self.segment, &floats, divisor)?;
                self.recycle(floats);
            }
        }
        Ok(())
    }

    fn finish_as_sent(&mut self) -> Result<(), Error> {
        if self.program.is_exact() {
            return self.finish();
        }
        let payload = match self.take_holding() {
            Holding::Nothing => self.encode_own()?,
            Holding::Encoded(payload) => payload,
            Holding::Floats(floats) => {
                let payload = self.encode_floats(&floats)?;
                self.recycle(floats);
                payload
            }
        };
        self.store(&payload)?;
        self.recycle(payload.frame);
        Ok(())
    }

    /// The incoming frame as it goes on.
    fn pass_on(&mut self) -> Result<Payload<F>, Error> {
        let incoming = self.incoming()?;
        if !self.program.recodes() {
            return Ok(incoming);
        }
        let (frame, n) = (self.spare()?, self.segment.len());
        let payload =
            self.timed(|r| &mut r.encode, |work, report| work.recode(&incoming, n, frame, report))?;
        self.recycle(incoming.frame);
        Ok(payload)
    }

    /// Incoming ⊕ holding (or own values) → holding.
    fn reduce(&mut self) -> Result<(), Error> {
        let mut incoming = self.incoming()?;
        let segment = self.segment;
        self.lane.holding = match self.take_holding() {
            Holding::Nothing if self.program.keeps_frames() => {
                let in_place = self
                    .timed(|r| &mut r.fold, |work, _| work.fold_in_place(segment, &mut incoming))?;
                if in_place {
                    Holding::Encoded(incoming)
                } else {
                    Holding::Encoded(self.fold(incoming)?)
                }
            }
            Holding::Nothing => {
                let mut floats = self.spare()?;
                self.timed(
                    |r| &mut r.fold,
                    |work, _| {
                        work.own_to_floats(segment, &mut floats)?;
                        work.reduce(&incoming, segment.len(), &mut floats)
                    },
                )?;
                self.recycle(incoming.frame);
                Holding::Floats(floats)
            }
            Holding::Encoded(held) => Holding::Encoded(self.combine(incoming, held)?),
            Holding::Floats(mut floats) => {
                self.timed(
                    |r| &mut r.fold,
                    |work, _| work.reduce(&incoming, segment.len(), &mut floats),
                )?;
                self.recycle(incoming.frame);
                Holding::Floats(floats)
            }
        };
        Ok(())
    }

    /// Incoming ⊕ own values, by whichever way the pipeline goes.
    fn fold(&mut self, incoming: Payload<F>) -> Result<Payload<F>, Error> {
        if self.program.encodes_own() {
            let own = self.encode_own()?;
            return self.combine(incoming, own);
        }
        let (frame, segment) = (self.spare()?, self.segment);
        let on_codes = self.program.keeps_frames();
        let folded = self.timed(
            |r| &mut r.fold,
            |work, report| work.fold(segment, &incoming, frame, on_codes, report),
        )?;
        self.recycle(incoming.frame);
        Ok(folded)
    }

    fn combine(&mut self, mut a: Payload<F>, b: Payload<F>) -> Result<Payload<F>, Error> {
        let in_place = self.timed(|r| &mut r.fold, |work, _| work.combine_in_place(&mut a, &b))?;
        if in_place {
            self.recycle(b.frame);
            return Ok(a);
        }
        let frame = self.spare()?;
        let combined =
            self.timed(|r| &mut r.fold, |work, report| work.combine(&a, &b, frame, report))?;
        self.recycle(a.frame);
        self.recycle(b.frame);
        Ok(combined)
    }

    fn reduce_send(&mut self) -> Result<Payload<F>, Error> {
        if matches!(self.lane.holding, Holding::Nothing) && !self.program.keeps_frames() {
            // Decompress, operate and compress in one pass over chunks.
            let incoming = self.incoming()?;
            return self.fold(incoming);
        }
        self.reduce()?;
        self.send(false)
    }

    fn reduce_store(&mut self) -> Result<(), Error> {
        if matches!(self.lane.holding, Holding::Nothing) && !self.program.keeps_frames() {
            let (incoming, segment, divisor) =
                (self.incoming()?, self.segment, self.program.divisor);
            self.timed(|r| &mut r.fold, |work, _| work.reduce_store(segment, &incoming, divisor))?;
            self.recycle(incoming.frame);
            return Ok(());
        }
        self.reduce()?;
        self.finish()
    }
}
