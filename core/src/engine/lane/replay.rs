//! Replay of compiled steps.

use super::{Lane, LaneTurn, Stopwatch, misuse};
use crate::engine::compiled::Compiled;
use crate::engine::slots::FrameBuffer;
use crate::engine::{Computing, ProgressHook, transport_error};
use crate::error::Error;
use crate::frame::HEADER_BYTES;
use crate::primitive::Slot;
use crate::report::Report;
use crate::transport::{Rank, Transport};
use core::task::Poll;

impl<F: FrameBuffer> Lane<F> {
    /// Returns the peer that the current step waits for.
    pub(in crate::engine) fn awaits(&self, compiled: &Compiled) -> Option<Rank> {
        let step = compiled.step(self.step)?;
        let received = step.received.as_ref().filter(|_| self.slots.content(Slot::In).is_none());
        let sent = step.sent.as_ref().filter(|_| !self.is_starved);
        received.map(|received| received.from).or(sent.map(|sent| sent.to))
    }

    /// Completes the current step as it was compiled, in the call of this number. `None` means that
    /// the step differs from the compiled one, and that [`turn`](Lane::turn) must continue it.
    pub(in crate::engine) fn replay<X: Transport<Frame = F>>(
        &mut self,
        (compiled, sequence, checksum): (&Compiled, u32, bool),
        (transport, values_per_poll): (&mut X, Option<usize>),
        compute: &mut Computing<'_>,
        report: &mut Report,
    ) -> Result<Option<LaneTurn>, Error> {
        let Some(step) = compiled.step(self.step) else { return Ok(Some(LaneTurn::Done)) };
        self.is_starved = false;
        if let Some(received) = &step.received
            && self.slots.content(Slot::In).is_none()
        {
            let polled = transport.poll_recv(received.from, self.tag).map_err(transport_error)?;
            let Poll::Ready((frame, n_bytes)) = polled else { return Ok(Some(LaneTurn::Waiting)) };
            self.put(Slot::In, frame, transport)?;
            let message = self.slots.bytes(Slot::In)?.get(..n_bytes).ok_or(misuse())?;
            let has_header = received.header.numbered(sequence).is_of(message, checksum);
            let n_values = |payload| compute.coding.n_values(received.content.codec, payload);
            if !has_header || n_values(&message[HEADER_BYTES..]) != Ok(step.segment.len) {
                self.unchecked = Some(n_bytes);
                return Ok(None);
            }
            self.slots.fill(Slot::In, received.content, n_bytes - HEADER_BYTES);
            if let Some(next) = received.next {
                transport.expect(next, self.tag);
            }
        }
        if let Some(sent) = &step.sent
            && transport.poll_ready(sent.to, self.tag).map_err(transport_error)?.is_pending()
        {
            return Ok(Some(LaneTurn::Waiting));
        }
        for &slot in &step.frames {
            if !self.has_frame(slot, transport)? {
                return Ok(Some(LaneTurn::Waiting));
            }
        }
        let progress_hook = ProgressHook::on(transport, values_per_poll);
        let mut watch = Stopwatch::of(step.segment.len);
        let n_done = self.slots.again(&step.to_do, |primitive, payloads| {
            watch.time(primitive, report, &progress_hook, |report| {
                payloads.compute(primitive, compute, &step.segment, report, &progress_hook)
            })
        })?;
        if let left @ [_, ..] = &step.to_do[n_done..] {
            self.to_do = Some(left.iter().rev().map(|(next, _)| *next).collect());
            // Let `turn` carry out the primitives that are left. If steps were merged, it does so
            // in the last one, which waits for no peer.
            self.step += step.n_steps - 1;
            return Ok(None);
        }
        if let Some(sent) = &step.sent {
            let (message, _) = self.slots.message()?;
            sent.header.numbered(sequence).write(message, checksum).ok_or(misuse())?;
            let (n_bytes, n_raw) =
                (message.len(), step.segment.len * compute.coding.bytes_per_value());
            self.send(sent.to, n_bytes, n_raw, transport, report)?;
        }
        self.slots.end_step(step.held, |frame| transport.recycle(frame));
        self.step += step.n_steps;
        if compiled.step(self.step).is_none() {
            self.release(transport);
        }
        Ok(Some(LaneTurn::Stepped))
    }
}
