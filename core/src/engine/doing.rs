//! What each action of a step does with what the lane holds.
//!
//! A [`Doing`] lives for one step, once nothing is missing for it. It neither waits nor sends: it takes and
//! leaves frames in the lane, has [`Work`] compute, notes the time, and returns the frame to send.

use super::lane::{Holding, Lane, misuse};
use super::work::{Floats, Payload, Work};
use super::{Program, check_fields};
use crate::Element;
use crate::error::{Error, Field};
use crate::report::Report;
use crate::schedule::{Action, Step};
use crate::transport::Transport;
use core::ops::Range;

/// One step being done: the incoming frame is there, and two spares.
pub(super) struct Doing<'d, 'w, 'b, F, X, T: Element> {
    pub(super) lane: &'d mut Lane<F>,
    pub(super) program: &'d Program,
    pub(super) transport: &'d mut X,
    pub(super) work: &'d mut Work<'w, 'b, T>,
    pub(super) report: &'d mut Report,
    pub(super) segment: &'d Range<usize>,
}

impl<F: AsRef<[u8]> + AsMut<[u8]>, X: Transport<Frame = F>, T: Element> Doing<'_, '_, '_, F, X, T> {
    /// Does the action; returns the frame to send for actions that send.
    pub(super) fn act(&mut self, step: &Step) -> Result<Option<Payload<F>>, Error> {
        match step.action {
            Action::Send => return self.send(step.keep).map(Some),
            Action::SendStore => {
                let payload = self.encode_own()?;
                if self.program.is_exact() {
                    self.work.copy_own(self.segment, 1);
                } else {
                    self.store(&payload, true)?;
                }
                return Ok(Some(payload));
            }
            Action::Hold => self.hold()?,
            Action::Finish => self.finish()?,
            Action::FinishAsSent => self.finish_as_sent()?,
            Action::Store => {
                let payload = self.incoming()?;
                self.store(&payload, self.reduces())?;
                self.recycle(payload.frame);
            }
            Action::Forward => return self.pass_on().map(Some),
            Action::StoreForward => {
                let payload = self.pass_on()?;
                self.store(&payload, self.reduces())?;
                return Ok(Some(payload));
            }
            Action::Reduce => self.reduce()?,
            Action::ReduceSend => return self.reduce_send().map(Some),
            Action::ReduceStore => self.reduce_store()?,
            Action::ReduceStoreSend => return self.reduce_store_send().map(Some),
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

    /// Whether ranks read their own values of every part.
    fn reduces(&self) -> bool {
        self.program.call.collective.reduces()
    }

    /// The part's values, decoded, into the output; `over_own`: own values of the part have been read.
    fn store(&mut self, payload: &Payload<F>, over_own: bool) -> Result<(), Error> {
        let (segment, divisor) = (self.segment, self.program.divisor);
        self.timed(|r| &mut r.decode, |work, _| work.store(segment, payload, divisor, over_own))
    }

    /// Decodes into the floats of a spare frame.
    fn decode_to_floats(&mut self, payload: &Payload<F>) -> Result<Floats<F>, Error> {
        let (frame, n) = (self.spare()?, self.segment.len());
        self.timed(|r| &mut r.decode, |work, _| work.decode(payload, n, frame))
    }

    fn encode_floats(&mut self, floats: &Floats<F>) -> Result<Payload<F>, Error> {
        let (frame, n) = (self.spare()?, self.segment.len());
        self.timed(|r| &mut r.encode, |work, report| work.encode(floats, n, frame, report))
    }

    fn send(&mut self, keep: bool) -> Result<Payload<F>, Error> {
        let reduces = self.reduces();
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
                    self.recycle(floats.frame);
                } else if reduces {
                    self.recycle(floats.frame);
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

    /// An error unless a value of every rank went into what the lane holds.
    fn check_complete(&self) -> Result<(), Error> {
        let (ours, theirs) = (self.program.n_operands(), self.lane.holding.operands());
        let rank = self.lane.last_source(self.program);
        check_fields(rank, &[(Field::Operands, u64::from(ours), u64::from(theirs))])
    }

    fn finish(&mut self) -> Result<(), Error> {
        self.check_complete()?;
        let divisor = self.program.divisor;
        match self.take_holding() {
            Holding::Nothing => self.work.copy_own(self.segment, divisor),
            Holding::Encoded(payload) => {
                self.store(&payload, self.reduces())?;
                self.recycle(payload.frame);
            }
            Holding::Floats(floats) => {
                self.work.copy_floats(self.segment, &floats, divisor)?;
                self.recycle(floats.frame);
            }
        }
        Ok(())
    }

    fn finish_as_sent(&mut self) -> Result<(), Error> {
        if self.program.is_exact() {
            return self.finish();
        }
        self.check_complete()?;
        let payload = match self.take_holding() {
            Holding::Nothing => self.encode_own()?,
            Holding::Encoded(payload) => payload,
            Holding::Floats(floats) => {
                let payload = self.encode_floats(&floats)?;
                self.recycle(floats.frame);
                payload
            }
        };
        self.store(&payload, true)?;
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
                let frame = self.spare()?;
                let floats = self.timed(
                    |r| &mut r.fold,
                    |work, _| {
                        let mut floats = work.own_to_floats(segment, frame)?;
                        work.reduce(&incoming, segment.len(), &mut floats)?;
                        Ok(floats)
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

    /// Whether the step takes own values, as they are, into an incoming frame.
    fn folds(&self) -> bool {
        matches!(self.lane.holding, Holding::Nothing)
            && self.program.keeps_frames()
            && !self.program.encodes_own()
    }

    /// As [`fold`](Self::fold) for a step that [`folds`](Self::folds), and the result into the output.
    fn fold_store(&mut self) -> Result<Payload<F>, Error> {
        let mut incoming = self.incoming()?;
        let (segment, divisor) = (self.segment, self.program.divisor);
        if self.timed(|r| &mut r.fold, |work, _| work.fold_in_place(segment, &mut incoming))? {
            self.store(&incoming, true)?;
            return Ok(incoming);
        }
        let frame = self.spare()?;
        let folded = self.timed(
            |r| &mut r.fold,
            |work, report| work.fold_store(segment, &incoming, frame, divisor, report),
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

    fn reduce_store_send(&mut self) -> Result<Payload<F>, Error> {
        if self.folds() {
            return self.fold_store();
        }
        let payload = self.reduce_send()?;
        self.store(&payload, true)?;
        Ok(payload)
    }

    fn reduce_store(&mut self) -> Result<(), Error> {
        if self.folds() {
            let payload = self.fold_store()?;
            self.recycle(payload.frame);
            return Ok(());
        }
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
