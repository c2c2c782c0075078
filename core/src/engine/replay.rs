//! Replay of a call: one lane that runs a compiled program.
//!
//! A replay does what an [`Engine`] does while nothing goes wrong. It keeps no record of what its
//! lane's slots hold, because the compiled steps say it. An engine takes over at the lane's
//! position if a message differs from the compiled one, a rank is lost, or the call waits longer
//! than [`SHORT_WAIT`]. Only the engine asks other ranks, checks time limits and finds out what is
//! wrong.

use super::compiled::CompiledStep;
use super::lane::{Lane, StepProgress, Stopwatch, misuse};
use super::watchdog::{Watchdog, ask_after};
use super::{Compiled, Computing, Engine, FrameBuffer, Lanes, Notices, Program, ProgressHook};
use super::{SHORT_CALL_VALUES, is_short, transport_error};
use crate::error::Error;
use crate::frame::HEADER_BYTES;
use crate::handle::Progress;
use crate::kernel::prefetch;
use crate::primitive::{Primitive, Slot};
use crate::report::Report;
use crate::transport::{Rank, Transport};
use crate::wait::Limits;
use core::task::Poll;
use core::time::Duration;

/// Longest wait of a replay, after which an engine takes over.
const SHORT_WAIT: Duration = Duration::from_micros(100);

/// A replay of a running call.
#[derive(Clone, Copy)]
pub(crate) struct Replay {
    sequence: u32,
    stage: Stage,
    started: Duration,
    pub(crate) report: Report,
}

/// Progress of a replay.
#[derive(Clone, Copy)]
enum Stage {
    /// No poll yet.
    Start,
    /// The last poll stopped after a step on a long segment.
    Moving,
    /// The last poll ended because a message, credit or a frame was missing.
    Waiting,
    /// Polls have found nothing to do since this time, which the second one of them read.
    WaitingSince(Duration),
}

/// Result of an attempt to replay a step.
enum Attempt {
    Stepped,
    Waiting,
    /// The message or the computation differs from the compiled one, so [`turn`](Lane::turn) must
    /// continue the step.
    Differs,
}

impl Replay {
    /// Creates the replay of a call that has not begun. `report` has the fields that are known
    /// before the call runs.
    pub(crate) const fn new(report: Report) -> Self {
        Self { sequence: 0, stage: Stage::Start, started: Duration::ZERO, report }
    }

    /// Begins the call of this number.
    pub(crate) fn begin<F: FrameBuffer>(
        &mut self,
        sequence: u32,
        now: Duration,
        lanes: &mut Lanes<F>,
    ) {
        lanes.begin_one();
        self.report.restart();
        (self.sequence, self.stage, self.started) = (sequence, Stage::Start, now);
    }

    /// Makes all possible steps, or one step on a long segment. `None` if an engine must continue
    /// the call, because a message differs or the call waits too long.
    ///
    /// # Errors
    /// The errors of a step. The caller passes them to [`Watchdog::lose`].
    pub(crate) fn poll<X: Transport>(
        &mut self,
        (program, compiled): (&Program<'_>, &Compiled),
        transport: &mut X,
        lanes: &mut Lanes<X::Frame>,
        compute: &mut Computing<'_>,
        notices: &mut Notices,
    ) -> Result<Option<Progress>, Error> {
        transport.progress().map_err(transport_error)?;
        let ours = || program.header.numbered(self.sequence);
        if let Stage::Start = self.stage {
            self.stage = Stage::Moving;
            // A call that receives messages need not poll for notices until it waits.
            if notices.begin(transport, &ours(), program.checksum, !compiled.receives)? {
                transport.progress().map_err(transport_error)?;
            }
        }
        let lane = lanes.lanes.first_mut().ok_or(Error::Internal)?;
        let mut has_moved = false;
        let awaited = loop {
            let Some(step) = compiled.step(lane.step) else {
                lane.release(transport);
                match transport.undelivered() {
                    None => {
                        self.report.total = transport.now().saturating_sub(self.started);
                        return Ok(Some(Progress::Finished));
                    }
                    awaited => break awaited,
                }
            };
            match lane.replay(
                step,
                (program, self.sequence),
                transport,
                compute,
                &mut self.report,
            )? {
                Attempt::Differs => return Ok(None),
                Attempt::Waiting => break lane.awaits(step),
                Attempt::Stepped => has_moved = true,
            }
            if !is_short(&self.report) {
                self.stage = Stage::Moving;
                return Ok(Some(Progress::Moved));
            }
        };
        if has_moved || matches!(self.stage, Stage::Moving) {
            self.stage = Stage::Waiting;
            return Ok(Some(Progress::Waiting));
        }
        let now = transport.now();
        let since = if let Stage::WaitingSince(since) = self.stage { since } else { now };
        if now.saturating_sub(since) > SHORT_WAIT {
            return Ok(None);
        }
        self.stage = Stage::WaitingSince(since);
        let ours = ours();
        let heard = notices.listen(transport, &ours, awaited.as_slice())?
            || notices.listen_in_turn(transport, &ours)?;
        Ok(Some(if heard { Progress::Moved } else { Progress::Waiting }))
    }

    /// Returns the engine that continues the call on these lanes.
    pub(crate) fn into_engine<'p, F: FrameBuffer>(
        self,
        (program, compiled): (Program<'p>, &Compiled),
        lanes: &mut Lanes<F>,
    ) -> Engine<'p> {
        for lane in &mut lanes.lanes {
            lane.leave_replay(compiled.step(lane.step));
        }
        Engine {
            program: program.numbered(self.sequence),
            is_short: is_short(&self.report),
            has_begun: !matches!(self.stage, Stage::Start),
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

impl<F: FrameBuffer> Lane<F> {
    /// Returns the peer that this step waits for.
    fn awaits(&self, step: &CompiledStep) -> Option<Rank> {
        let received = step.received.as_ref().filter(|_| self.lacks_message());
        let sent = step.sent.as_ref().filter(|_| !self.is_starved);
        received.map(|received| received.from).or(sent.map(|sent| sent.to))
    }

    /// Records what the slots hold between two attempts at this step.
    fn leave_replay(&mut self, step: Option<&CompiledStep>) {
        if let Some(step) = step
            && !self.is_amid_step()
        {
            self.slots.hold(step.contents);
            if let StepProgress::Unchecked { .. } = self.progress {
                self.slots.forget(Slot::In);
            }
        }
    }

    /// Completes this step, the current one, in the call of this number.
    fn replay<X: Transport<Frame = F>>(
        &mut self,
        step: &CompiledStep,
        (program, sequence): (&Program<'_>, u32),
        transport: &mut X,
        compute: &mut Computing<'_>,
        report: &mut Report,
    ) -> Result<Attempt, Error> {
        self.is_starved = false;
        if let Some(received) = &step.received
            && self.lacks_message()
        {
            let polled = transport.poll_recv(received.from, self.tag).map_err(transport_error)?;
            let Poll::Ready((frame, n_bytes)) = polled else { return Ok(Attempt::Waiting) };
            self.put(Slot::In, frame, transport)?;
            let message = self.slots.bytes(Slot::In)?.get(..n_bytes).ok_or(misuse())?;
            prefetch::claim(message);
            let is_expected = received.header.numbered(sequence).is_of(message, program.checksum)
                && match received.n_bytes {
                    Some(expected) => n_bytes == expected,
                    None => {
                        let (codec, payload) = (received.codec, &message[HEADER_BYTES..]);
                        compute.coding.n_values(codec, payload) == Ok(step.segment.len)
                    }
                };
            if !is_expected {
                self.progress = StepProgress::Unchecked { n_bytes };
                return Ok(Attempt::Differs);
            }
            self.slots.set_n_bytes(Slot::In, n_bytes - HEADER_BYTES);
            self.progress = StepProgress::Received;
            if let Some(next) = received.next {
                transport.expect(next, self.tag);
            }
        }
        if let Some(sent) = &step.sent
            && transport.poll_ready(sent.to, self.tag).map_err(transport_error)?.is_pending()
        {
            return Ok(Attempt::Waiting);
        }
        for &slot in &step.frames {
            if !self.has_frame(slot, transport)? {
                return Ok(Attempt::Waiting);
            }
        }
        let mut left = &step.to_do[..];
        if step.segment.len <= SHORT_CALL_VALUES && compute.coding.is_raw() {
            left = self.slots.again_raw(left, compute, &step.segment);
        }
        if !left.is_empty() {
            let progress_hook = ProgressHook::on(transport, program.rules.values_per_poll());
            let mut watch = Stopwatch::of(step.segment.len);
            left = self.slots.again(left, |primitive, payloads| {
                watch.time(primitive, report, &progress_hook, |report| {
                    let how = (compute.coding, &progress_hook as _);
                    compute.work.compute(0, primitive, payloads, &step.segment, how, report)
                })
            })?;
        }
        if !left.is_empty() {
            self.interrupt(step, left.len())?;
            return Ok(Attempt::Differs);
        }
        if let Some(sent) = &step.sent {
            let message = self.slots.message_bytes()?;
            let header = sent.header.numbered(sequence);
            header.write(message, program.checksum).ok_or(misuse())?;
            let (n_bytes, n_raw) =
                (message.len(), step.segment.len * compute.coding.bytes_per_value());
            self.send(sent.to, n_bytes, n_raw, transport, report)?;
        }
        self.slots.reuse_frames(step.holds, |frame| transport.recycle(frame));
        self.progress = StepProgress::Receiving;
        self.step += step.n_steps;
        Ok(Attempt::Stepped)
    }

    /// Leaves the last `n_left` primitives of this step to [`turn`](Lane::turn). If steps were
    /// merged, it carries them out in the last one, which waits for no peer.
    #[cold]
    fn interrupt(&mut self, step: &CompiledStep, n_left: usize) -> Result<(), Error> {
        let (done, left) = step.to_do.split_at(step.to_do.len() - n_left);
        let after = |contents, primitive: &Primitive| primitive.after(contents, 1);
        let contents = done.iter().try_fold(step.contents, after).ok_or(Error::Internal)?;
        self.slots.hold(contents);
        let to_do = left.iter().rev().copied().collect();
        self.progress = StepProgress::Computing { to_do, n_done: 0 };
        self.step += step.n_steps - 1;
        Ok(())
    }
}
