//! One lane: a position in the program, and the frames that it holds.
//!
//! A [turn](Lane::turn) tries to complete the current step. It first obtains everything that the
//! step can wait for: the incoming frame, credit to send, and empty frames. If something is
//! missing, the lane keeps what it has obtained, and the next turn goes on from there. Otherwise
//! the lane carries out the step's short list of primitives, and sends at most one message, which
//! cannot block. A primitive may be pending. The lane then keeps the rest of the list for the next
//! turn.

use super::compute::Computing;
use super::progress_hook::ProgressHook;
use super::slots::{FrameBuffer, Slots};
use super::{Compiled, Notices, Program, SHORT_CALL_VALUES};
use super::{check_fields, check_source, transport_error};
use crate::bundle;
use crate::codec::{CodecId, DecodeError};
use crate::error::{AbortReason, Error, Field, Value};
use crate::frame::{
    self, CallHeader, FrameError, HEADER_BYTES, Header, MessageFields, MessageKind,
};
use crate::layout::Run;
use crate::primitive::{Primitive, Primitives, Slot, SlotContent, StepLinks};
use crate::report::Report;
use crate::schedule::Step;
use crate::transport::{FRAMES_PER_LANE, Rank, Tag, Transport, TransportErrorKind};
use core::ops::RangeInclusive;
use core::task::Poll;
use core::time::Duration;

const _: () = assert!(Slot::COUNT == FRAMES_PER_LANE);

/// Most frames that a lane takes in a turn. All but the last belong to earlier communicators.
const FRAMES_PER_TURN: usize = 16;

/// Result of a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LaneTurn {
    Stepped,
    Waiting,
    Done,
}

pub(crate) struct Lane<F> {
    pub(super) tag: Tag,
    pub(super) round: usize,
    pub(super) step: usize,
    pub(super) progress: StepProgress,
    /// True if the last turn found no free frame.
    pub(super) is_starved: bool,
    pub(super) slots: Slots<F>,
}

/// Progress of a lane in its current step.
pub(super) enum StepProgress {
    /// The lane waits for the message, if the step receives one.
    Receiving,
    /// A replay has put a message of this many bytes into `In`, and left it to be checked.
    #[cfg(feature = "alloc")]
    Unchecked { n_bytes: usize },
    /// The message in `In` has been checked.
    Received,
    /// The step has everything that it waits for, except perhaps frames.
    Computing {
        /// Primitives that are left, in reverse order.
        to_do: Primitives,
        /// Number of the run's parts on which the next primitive has already been carried out.
        n_done: u16,
    },
}

impl<F: FrameBuffer> Lane<F> {
    pub(super) fn new(tag: Tag, round: usize) -> Self {
        let (progress, slots) = (StepProgress::Receiving, Slots::new());
        Self { tag, round, step: 0, progress, is_starved: false, slots }
    }

    /// Returns to the start of the program. Frames of a call whose caller forgot it
    /// ([`core::mem::forget`]) are not of this call.
    #[cfg(feature = "alloc")]
    pub(super) fn restart(&mut self, round: usize) {
        if self.slots.has_frame(Slot::In) || self.slots.has_frame(Slot::Held) {
            self.slots = Slots::new();
        }
        (self.round, self.step) = (round, 0);
        (self.progress, self.is_starved) = (StepProgress::Receiving, false);
    }

    /// Returns whether no steps are left.
    const fn is_done(&self, program: &Program<'_>) -> bool {
        self.round >= program.layout.n_rounds() || self.step >= program.n_steps
    }

    fn current(&self, program: &Program<'_>) -> Option<Step> {
        (!self.is_done(program)).then(|| program.step(self.step))
    }

    /// Returns the peer whose frame or credit the current step needs next, and the step's index.
    /// The peer is this rank itself if the lane lacks a free frame, or if its step has begun: as
    /// credit stays, the lane then waits for a free frame or for this rank's device.
    pub(super) fn waits_for(&self, program: &Program<'_>) -> Option<(Rank, usize)> {
        let step = self.current(program)?;
        let from = step.from.filter(|_| self.lacks_message());
        let needs_own = self.is_starved || self.is_amid_step();
        let peer = if needs_own { None } else { from.or(step.to) };
        Some((peer.unwrap_or(program.rank), self.step))
    }

    /// Returns whether the lane waits for this rank's device.
    pub(super) const fn is_computing(&self) -> bool {
        self.is_amid_step() && !self.is_starved
    }

    /// Returns how many more frames the lane may need at the same time.
    pub(super) fn n_needed(&self, program: &Program<'_>) -> usize {
        if self.is_done(program) {
            0
        } else {
            FRAMES_PER_LANE.saturating_sub(self.slots.n_frames())
        }
    }

    /// Returns the rank from which the lane receives next, after the current step.
    fn next_source(&self, program: &Program<'_>) -> Option<Rank> {
        let source = |index, round| {
            let step = program.step(index);
            step.from.filter(|_| !program.layout.skips(step.part, round))
        };
        let (round, next) = (self.round, self.round + program.n_lanes);
        (self.step + 1..program.n_steps).find_map(|index| source(index, round)).or_else(|| {
            let goes_on = next < program.layout.n_rounds();
            if goes_on { (0..=self.step).find_map(|index| source(index, next)) } else { None }
        })
    }

    /// Returns whether the step's message is still to be received or checked.
    pub(super) const fn lacks_message(&self) -> bool {
        !matches!(self.progress, StepProgress::Received | StepProgress::Computing { .. })
    }

    /// Returns whether a step has begun that is not complete: a device may use the lane's frames.
    pub(super) const fn is_amid_step(&self) -> bool {
        matches!(self.progress, StepProgress::Computing { .. })
    }

    /// Recycles every frame.
    pub(super) fn release<X: Transport<Frame = F>>(&mut self, transport: &mut X) {
        self.progress = StepProgress::Receiving;
        self.slots.take_all().for_each(|frame| transport.recycle(frame));
    }

    /// Completes the current step if nothing is missing for it.
    pub(super) fn turn<X: Transport<Frame = F>>(
        &mut self,
        program: &Program<'_>,
        transport: &mut X,
        compute: &mut Computing<'_>,
        notices: &mut Notices,
        report: &mut Report,
        _record: Option<&mut Compiled>,
    ) -> Result<LaneTurn, Error> {
        let step = loop {
            let Some(step) = self.current(program) else { return Ok(LaneTurn::Done) };
            if !program.layout.skips(step.part, self.round) {
                break step;
            }
            // No round skips every part, so the loop ends within two rounds.
            self.next_step(program, transport);
        };
        let run = program.layout.run(&step, self.round);
        self.is_starved = false;
        if let Some(from) = step.from
            && self.lacks_message()
            && !self.receive(program, transport, compute, notices, (from, &step, &run))?
        {
            return Ok(LaneTurn::Waiting);
        }
        if let Some(to) = step.to
            && transport.poll_ready(to, self.tag).map_err(transport_error)?.is_pending()
        {
            return Ok(LaneTurn::Waiting);
        }
        if !self.is_amid_step() {
            if step.from.is_none() && step.store {
                self.check_complete(program, &step)?;
            }
            let to_do = self.primitives(program, &step);
            #[cfg(feature = "alloc")]
            if let Some(record) = _record {
                let next = self.next_source(program);
                let (contents, to_do) = (self.slots.contents(), to_do.iter().rev().copied());
                record.add(program, self.step, (&step, next), contents, to_do);
            }
            self.progress = StepProgress::Computing { to_do, n_done: 0 };
        }
        for slot in [Slot::Out, Slot::Spare] {
            if self.needs_frame(slot) && !self.has_frame(slot, transport)? {
                return Ok(LaneTurn::Waiting);
            }
        }
        compute.lane = self.tag.0.into();
        let progress_hook = ProgressHook::on(transport, program.rules.values_per_poll());
        let mut watch = Stopwatch::of(run.n_values());
        let (slots, progress) = (&mut self.slots, &mut self.progress);
        let StepProgress::Computing { to_do, n_done } = progress else {
            return Err(Error::Internal);
        };
        while let Some(&primitive) = to_do.last() {
            let done = watch.time(primitive, report, &progress_hook, |report| {
                slots.carry_out(primitive, compute, (&run, &step), n_done, report, &progress_hook)
            });
            if done?.is_pending() {
                self.begin_ahead(program, compute, (&step, &run))?;
                return Ok(LaneTurn::Waiting);
            }
            to_do.pop();
        }
        if let Some(to) = step.to {
            let n_values = run.n_values();
            let n_bytes = self.write_header(program, &step, n_values)?;
            self.send(to, n_bytes, n_values * compute.coding.bytes_per_value(), transport, report)?;
        }
        let held = self.slots.keep_held(&step)?;
        self.slots.end_step(held, |frame| transport.recycle(frame));
        self.progress = StepProgress::Receiving;
        self.next_step(program, transport);
        Ok(LaneTurn::Stepped)
    }

    /// Receives and checks the step's message. Returns whether it has arrived. Drops frames that
    /// earlier communicators left on the channel.
    fn receive<X: Transport<Frame = F>>(
        &mut self,
        program: &Program<'_>,
        transport: &mut X,
        compute: &Computing<'_>,
        notices: &mut Notices,
        (from, step, run): (Rank, &Step, &Run<'_>),
    ) -> Result<bool, Error> {
        for _ in 0..FRAMES_PER_TURN {
            let n_bytes = match self.progress {
                #[cfg(feature = "alloc")]
                StepProgress::Unchecked { n_bytes } => n_bytes,
                _ => match transport.poll_recv(from, self.tag).map_err(transport_error)? {
                    Poll::Pending => return Ok(false),
                    Poll::Ready((frame, n_bytes)) => {
                        self.put(Slot::In, frame, transport)?;
                        n_bytes
                    }
                },
            };
            let message = self.slots.bytes(Slot::In)?.get(..n_bytes).ok_or(misuse())?;
            let checked = self.check(program, notices, from, step, run, message)?;
            let Some((codec, operands)) = checked else {
                self.drop_leftover(from, transport);
                continue;
            };
            let payload = message.get(HEADER_BYTES..).ok_or(misuse())?;
            check_payload(from, run, codec, payload, compute)?;
            let content = SlotContent::new(codec, operands, step.n_parts);
            self.slots.fill(Slot::In, content.received(), n_bytes - HEADER_BYTES);
            self.progress = StepProgress::Received;
            if let Some(next) = self.next_source(program) {
                transport.expect(next, self.tag);
            }
            return Ok(true);
        }
        Ok(false)
    }

    /// Recycles a received frame of an earlier communicator. The lane then waits for the message
    /// behind it.
    #[cold]
    fn drop_leftover<X: Transport<Frame = F>>(&mut self, from: Rank, transport: &mut X) {
        self.progress = StepProgress::Receiving;
        self.slots.take(Slot::In).into_iter().for_each(|frame| transport.recycle(frame));
        transport.expect(from, self.tag);
    }

    /// Returns whether the primitives that are left write to a frame in this slot.
    fn needs_frame(&self, slot: Slot) -> bool {
        let StepProgress::Computing { to_do, .. } = &self.progress else { return false };
        to_do.iter().any(|next| next.needs_frame(slot))
    }

    /// Returns the step's primitives for the held and received contents, in reverse order.
    fn primitives(&self, program: &Program<'_>, step: &Step) -> Primitives {
        let [held, received] = [Slot::Held, Slot::In].map(|slot| self.slots.content(slot));
        let links = StepLinks::of(program.call, program.rank, step, received, held);
        let mut primitives = program.rules.primitives(step, held, links);
        primitives.reverse();
        primitives
    }

    fn next_step<X: Transport<Frame = F>>(&mut self, program: &Program<'_>, transport: &mut X) {
        self.step += 1;
        if self.step == program.n_steps {
            self.step = 0;
            self.round += program.n_lanes;
        }
        if self.is_done(program) {
            self.release(transport);
        }
    }

    /// Puts a frame from the transport into a slot.
    #[inline(always)]
    pub(super) fn put<X: Transport<Frame = F>>(
        &mut self,
        slot: Slot,
        frame: F,
        transport: &mut X,
    ) -> Result<(), Error> {
        self.slots.put(slot, frame).map_err(|frame| {
            transport.recycle(frame);
            Error::Internal
        })
    }

    /// Takes a frame from the pool if the slot has none. Returns false if the pool has no free
    /// frame.
    #[inline(always)]
    pub(super) fn has_frame<X: Transport<Frame = F>>(
        &mut self,
        slot: Slot,
        transport: &mut X,
    ) -> Result<bool, Error> {
        if self.slots.has_frame(slot) {
            return Ok(true);
        }
        let frame = transport.poll_frame().map_err(transport_error)?;
        self.is_starved = frame.is_pending();
        let Poll::Ready(frame) = frame else { return Ok(false) };
        self.put(slot, frame, transport).map(|()| true)
    }

    /// Sends the message in `Out`, whose values are `n_raw` bytes uncompressed.
    #[inline(always)]
    pub(super) fn send<X: Transport<Frame = F>>(
        &mut self,
        to: Rank,
        n_bytes: usize,
        n_raw: usize,
        transport: &mut X,
        report: &mut Report,
    ) -> Result<(), Error> {
        let frame = self.slots.take_message()?;
        transport.send(to, self.tag, frame, n_bytes).map_err(transport_error)?;
        report.raw_bytes += n_raw as u64;
        report.wire_bytes += n_bytes as u64;
        report.n_messages += 1;
        Ok(())
    }

    /// Writes the header of the message in `Out`. If the message is passed on as it was received,
    /// writes only its new sender. Returns the message's length in bytes.
    fn write_header(
        &mut self,
        program: &Program<'_>,
        step: &Step,
        n_values: usize,
    ) -> Result<usize, Error> {
        let (part, round) = (step.part.0, self.round as u32);
        let (message, content) = self.slots.message()?;
        // The header has a single number of operands for all parts.
        if content.first_operands != content.operands {
            return Err(Error::Internal);
        }
        if content.as_received {
            frame::readdress(message, program.rank);
        } else {
            let (n_values, as_floats) = (n_values as u32, content.codec != program.rules.codec());
            let fields = MessageFields { from: program.rank, part, round, n_values };
            let template = program.template_of(step.part);
            let header = template.filled(&fields, content.operands, as_floats);
            header.write(message, program.checksum).ok_or(misuse())?;
        }
        Ok(message.len())
    }

    /// Checks a received message against what this step expects. Returns its codec, and how many
    /// ranks' values it combines.
    fn check(
        &self,
        program: &Program<'_>,
        notices: &mut Notices,
        rank: Rank,
        step: &Step,
        run: &Run<'_>,
        message: &[u8],
    ) -> Result<Option<(CodecId, u32)>, Error> {
        let (part, round, n_values) = (step.part.0, self.round as u32, run.n_values() as u32);
        let fields = MessageFields { from: rank, part, round, n_values };
        let expected = self.operands(program, step);
        // Fast path: a peer that makes the same call usually writes exactly this header.
        if let Some(operands) = frame::operands_of(message).filter(|n| expected.contains(n))
            && let header = program.template_of(step.part).filled(&fields, operands, false)
            && header.is_of(message, program.checksum)
        {
            return Ok(Some((program.rules.codec(), operands)));
        }
        let header = Header::parse(message, program.checksum)
            .map_err(|error| Error::Frame { rank, error })?;
        if header.is_left_over(&program.header) {
            return Ok(None);
        }
        match header.kind {
            MessageKind::Data => {}
            MessageKind::Message => {
                return Err(program.header.mismatch_in(Field::Collective, rank, frame::MESSAGE));
            }
            MessageKind::View | MessageKind::Fence => {
                return Err(Error::Aborted { rank, culprit: rank, reason: AbortReason::Left });
            }
            // These come only on the control tag, on a channel of messages, or before a
            // communicator's first call.
            MessageKind::Abort | MessageKind::Call | MessageKind::Grant | MessageKind::Flush => {
                return Err(Error::Frame { rank, error: FrameError::Damaged });
            }
        }
        let received_len = program.layout.received_len(step.part);
        // Here the received count is the part's length, which is checked below.
        let is_part_len =
            received_len.is_some() && header.call.collective == program.header.collective;
        let count = if is_part_len { program.header.count } else { header.call.count };
        notices.check(rank, &program.header, &CallHeader { count, ..header.call })?;
        check_source(rank, &header)?;
        // If the call's codec is not raw, a payload of floats is a partial sum. It comes only from
        // a rank of the same node.
        let call = program.call;
        let may_be_floats = call.collective.reduces() && call.is_near(program.rank, rank);
        if header.as_floats && !may_be_floats {
            return Err(Error::Frame { rank, error: FrameError::Damaged });
        }
        if let Some(len) = received_len {
            check_fields(rank, &[(Field::Count, len as u64, header.call.count)])?;
        }
        check_fields(
            rank,
            &[
                (Field::Part, u64::from(step.part.0), u64::from(header.part)),
                (Field::Round, self.round as u64, u64::from(header.round)),
                (Field::Segment, run.n_values() as u64, u64::from(header.n_values)),
            ],
        )?;
        if !expected.contains(&header.operands) {
            let [ours, theirs] =
                [*expected.end(), header.operands].map(|n| Value::number(u64::from(n)));
            return Err(Error::Mismatch { rank, field: Field::Operands, ours, theirs });
        }
        let codec = if header.as_floats { CodecId::Raw } else { program.rules.codec() };
        Ok(Some((codec, header.operands)))
    }

    /// Returns how many ranks' values this rank's operand for a step combines: in the first part,
    /// and in each other part.
    fn used_operands(&self, step: &Step) -> [u32; 2] {
        let held = self.slots.content(Slot::Held).filter(|_| step.uses_held());
        let used = held.map(|held| held.last(step.n_parts).unwrap_or(held));
        used.map_or([1, 1], |used| [used.first_operands, used.operands])
    }

    /// Returns how many ranks' values a received message may combine in this step. If the step
    /// stores its value, the message must complete the result.
    fn operands(&self, program: &Program<'_>, step: &Step) -> RangeInclusive<u32> {
        let all = if step.store { program.n_operands() } else { program.most_operands() };
        let [first, others] = self.used_operands(step);
        let own = if step.own && !step.before { first.max(others) } else { 0 };
        let most = all.saturating_sub(own);
        if step.store { most..=most } else { 1..=most }
    }

    /// Fails unless this rank's operand is a complete result: it must combine the values of all
    /// ranks that contribute to this rank's result.
    fn check_complete(&self, program: &Program<'_>, step: &Step) -> Result<(), Error> {
        let (ours, rank) = (u64::from(program.n_operands()), self.last_source(program));
        let theirs = self.used_operands(step);
        check_fields(rank, &theirs.map(|theirs| (Field::Operands, ours, theirs.into())))
    }

    /// Returns the rank from which the lane last received in this round, or this rank if there is
    /// none.
    fn last_source(&self, program: &Program<'_>) -> Rank {
        (0..self.step).rev().find_map(|index| program.step(index).from).unwrap_or(program.rank)
    }
}

/// Checks that a payload from `rank` has a segment for each part of a run, each with the expected
/// number of values. It does not decode them.
fn check_payload(
    rank: Rank,
    run: &Run<'_>,
    codec: CodecId,
    payload: &[u8],
    compute: &Computing<'_>,
) -> Result<(), Error> {
    let n_parts = usize::from(run.n_parts());
    if n_parts == 1 {
        return check_segment(codec, payload, run.n_values(), compute);
    }
    let theirs = bundle::n_parts(payload).unwrap_or(0);
    check_fields(rank, &[(Field::Run, n_parts as u64, theirs as u64)])?;
    bundle::check(payload, n_parts)?;
    let (mut n_found, mut differs) = (0_usize, None);
    for (place, expected) in run.lens().enumerate() {
        let segment = bundle::segment(payload, n_parts, place).and_then(|at| payload.get(at));
        let found = compute.coding.n_values(codec, segment.ok_or(DecodeError::Damaged)?)?;
        n_found = n_found.saturating_add(found);
        differs = differs.or((found != expected).then_some((expected, found)));
    }
    match differs {
        None => Ok(()),
        // The total is correct, so the ranks divide the values differently.
        Some((ours, theirs)) if n_found == run.n_values() => {
            check_fields(rank, &[(Field::Segment, ours as u64, theirs as u64)])
        }
        Some((expected, found)) => Err(DecodeError::Count { found, expected }.into()),
    }
}

fn check_segment(
    codec: CodecId,
    segment: &[u8],
    expected: usize,
    compute: &Computing<'_>,
) -> Result<(), Error> {
    let found = compute.coding.n_values(codec, segment)?;
    if found == expected { Ok(()) } else { Err(DecodeError::Count { found, expected }.into()) }
}

/// Times the primitives of a step one after another, on the transport's clock.
pub(super) struct Stopwatch {
    is_on: bool,
    /// End of the last timed primitive, if no untimed one has run since.
    ended: Option<Duration>,
}

impl Stopwatch {
    /// Creates the stopwatch of a step on this many values. On few values, reading the clock costs
    /// as much as the step.
    pub(super) const fn of(n_values: usize) -> Self {
        Self { is_on: n_values > SHORT_CALL_VALUES, ended: None }
    }

    /// Carries out a primitive, and adds the time that it took to the report.
    #[inline]
    pub(super) fn time<X: Transport, R>(
        &mut self,
        primitive: Primitive,
        report: &mut Report,
        progress_hook: &ProgressHook<'_, X>,
        carry_out: impl FnOnce(&mut Report) -> R,
    ) -> R {
        let (ended, mut timed) = (self.ended.take(), None);
        if self.is_on
            && let Some(clock) = clock(primitive)
        {
            timed = Some((clock, ended.unwrap_or_else(|| progress_hook.now())));
        }
        let done = carry_out(report);
        if let Some((clock, start)) = timed {
            let (clock, now) = (clock(report), progress_hook.now());
            *clock = clock.saturating_add(now.saturating_sub(start));
            self.ended = Some(now);
        }
        done
    }
}

/// Returns the clock in the report to which a primitive's time is added.
const fn clock(primitive: Primitive) -> Option<fn(&mut Report) -> &mut Duration> {
    match primitive {
        Primitive::EncodeOwn { codec: CodecId::Raw, .. } => Some(|report| &mut report.fold),
        Primitive::Transcode { codecs: [_, CodecId::Raw], .. }
        | Primitive::Store { .. }
        | Primitive::StoreWhole { .. }
        | Primitive::Divide => Some(|report| &mut report.decode),
        Primitive::EncodeOwn { .. }
        | Primitive::EncodeStored { .. }
        | Primitive::Transcode { .. } => Some(|report| &mut report.encode),
        Primitive::Fold
        | Primitive::FoldInPlace
        | Primitive::FoldStore
        | Primitive::Refold
        | Primitive::Combine { .. }
        | Primitive::CombineInPlace { .. }
        | Primitive::Reduce { .. }
        | Primitive::ReduceStore { .. } => Some(|report| &mut report.fold),
        Primitive::Copy { .. }
        | Primitive::Move { .. }
        | Primitive::Join { .. }
        | Primitive::Replace { .. }
        | Primitive::StoreOwn => None,
    }
}

/// Returns the error of a transport that broke its contract.
pub(crate) fn misuse() -> Error {
    Error::Transport { kind: TransportErrorKind::Misuse, peer: None }
}
