//! What each action of a step does with what the lane holds.
//!
//! A [`Doing`] lives for one step, once nothing is missing for it. It neither waits nor sends: it
//! has [`Work`] compute on the lane's frames, notes the time, and returns what to send. The frames
//! stay where they are.

use super::frames::{Frame, Frames, Place};
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

impl<F: Frame, X: Transport<Frame = F>, T: Element> Doing<'_, '_, '_, F, X, T> {
    /// Does the action; returns what to send for actions that send.
    pub(super) fn act(&mut self, step: &Step) -> Result<Option<Payload>, Error> {
        match step.action {
            Action::Send => return self.send(step.keep).map(Some),
            Action::SendStore => {
                let payload = self.encode_own()?;
                if self.program.is_exact() {
                    self.work.copy_own(self.segment);
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
                self.recycle(payload.at)?;
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

    fn incoming(&mut self) -> Result<Payload, Error> {
        self.lane.incoming.take().ok_or(misuse())
    }

    fn spare(&mut self) -> Result<Place, Error> {
        self.lane.spares.pop().ok_or(misuse())
    }

    fn take_holding(&mut self) -> Holding {
        core::mem::take(&mut self.lane.holding)
    }

    /// Keeps a frame as a spare, or gives it back.
    fn recycle(&mut self, place: Place) -> Result<(), Error> {
        if self.lane.spares.push(place).is_err() {
            self.transport.recycle(self.lane.frames.take(place)?);
        }
        Ok(())
    }

    fn timed<R>(
        &mut self,
        clock: fn(&mut Report) -> &mut core::time::Duration,
        body: impl FnOnce(&mut Work<'_, '_, T>, &mut Frames<F>, &mut Report) -> Result<R, Error>,
    ) -> Result<R, Error> {
        let start = self.transport.now();
        let result = body(self.work, &mut self.lane.frames, self.report);
        let took = self.transport.now().saturating_sub(start);
        let clock = clock(self.report);
        *clock = clock.saturating_add(took);
        result
    }

    fn encode_own(&mut self) -> Result<Payload, Error> {
        let (to, segment) = (self.spare()?, self.segment);
        self.timed(
            |r| &mut r.encode,
            |work, frames, report| work.encode_own(frames, segment, to, report),
        )
    }

    /// Whether ranks read their own values of every part.
    fn reduces(&self) -> bool {
        self.program.call.collective.reduces()
    }

    /// The part's values, decoded, into the output; `over_own`: own values of the part have been
    /// read.
    fn store(&mut self, payload: &Payload, over_own: bool) -> Result<(), Error> {
        let (segment, divisor) = (self.segment, self.program.divisor);
        self.timed(
            |r| &mut r.decode,
            |work, frames, _| work.store(frames, segment, payload, divisor, over_own),
        )
    }

    /// Decodes into the floats of a spare frame.
    fn decode_to_floats(&mut self, payload: &Payload) -> Result<Floats, Error> {
        let (to, n) = (self.spare()?, self.segment.len());
        self.timed(|r| &mut r.decode, |work, frames, _| work.decode(frames, payload, n, to))
    }

    fn encode_floats(&mut self, floats: &Floats) -> Result<Payload, Error> {
        let (to, n) = (self.spare()?, self.segment.len());
        self.timed(
            |r| &mut r.encode,
            |work, frames, report| work.encode(frames, floats, n, to, report),
        )
    }

    fn send(&mut self, keep: bool) -> Result<Payload, Error> {
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
                    self.recycle(floats.at)?;
                } else if reduces {
                    self.recycle(floats.at)?;
                    self.lane.holding = Holding::Floats(self.decode_to_floats(&payload)?);
                } else {
                    self.lane.holding = Holding::Floats(floats);
                }
                Ok(payload)
            }
        }
    }

    fn copy(&mut self, payload: &Payload) -> Result<Payload, Error> {
        let to = self.spare()?;
        payload.copy(&mut self.lane.frames, to)
    }

    fn hold(&mut self) -> Result<(), Error> {
        let payload = self.incoming()?;
        self.lane.holding = if self.program.recodes() {
            let floats = self.decode_to_floats(&payload)?;
            self.recycle(payload.at)?;
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
            Holding::Nothing => self.work.copy_own(self.segment),
            Holding::Encoded(payload) => {
                self.store(&payload, self.reduces())?;
                self.recycle(payload.at)?;
            }
            Holding::Floats(floats) => {
                self.work.copy_floats(&self.lane.frames, self.segment, &floats, divisor)?;
                self.recycle(floats.at)?;
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
                self.recycle(floats.at)?;
                payload
            }
        };
        self.store(&payload, true)?;
        self.recycle(payload.at)?;
        Ok(())
    }

    /// The incoming frame as it goes on.
    fn pass_on(&mut self) -> Result<Payload, Error> {
        let incoming = self.incoming()?;
        if !self.program.recodes() {
            return Ok(incoming);
        }
        let (to, n) = (self.spare()?, self.segment.len());
        let payload = self.timed(
            |r| &mut r.encode,
            |work, frames, report| work.recode(frames, &incoming, n, to, report),
        )?;
        self.recycle(incoming.at)?;
        Ok(payload)
    }

    /// Incoming ⊕ holding (or own values) → holding.
    fn reduce(&mut self) -> Result<(), Error> {
        let mut incoming = self.incoming()?;
        let segment = self.segment;
        self.lane.holding = match self.take_holding() {
            Holding::Nothing if self.program.keeps_frames() => {
                let in_place = self.timed(
                    |r| &mut r.fold,
                    |work, frames, _| work.fold_in_place(frames, segment, &mut incoming),
                )?;
                if in_place {
                    Holding::Encoded(incoming)
                } else {
                    Holding::Encoded(self.fold(incoming)?)
                }
            }
            Holding::Nothing => {
                let to = self.spare()?;
                let floats = self.timed(
                    |r| &mut r.fold,
                    |work, frames, _| {
                        let mut floats = work.own_to_floats(frames, segment, to)?;
                        work.reduce(frames, &incoming, segment.len(), &mut floats)?;
                        Ok(floats)
                    },
                )?;
                self.recycle(incoming.at)?;
                Holding::Floats(floats)
            }
            Holding::Encoded(held) => Holding::Encoded(self.combine(incoming, held)?),
            Holding::Floats(mut floats) => {
                self.timed(
                    |r| &mut r.fold,
                    |work, frames, _| work.reduce(frames, &incoming, segment.len(), &mut floats),
                )?;
                self.recycle(incoming.at)?;
                Holding::Floats(floats)
            }
        };
        Ok(())
    }

    /// Incoming ⊕ own values, by whichever way the pipeline goes.
    fn fold(&mut self, incoming: Payload) -> Result<Payload, Error> {
        if self.program.encodes_own() {
            let own = self.encode_own()?;
            return self.combine(incoming, own);
        }
        let (to, segment) = (self.spare()?, self.segment);
        let on_codes = self.program.keeps_frames();
        let folded = self.timed(
            |r| &mut r.fold,
            |work, frames, report| work.fold(frames, segment, &incoming, to, on_codes, report),
        )?;
        self.recycle(incoming.at)?;
        Ok(folded)
    }

    /// Whether the step takes own values, as they are, into an incoming frame.
    fn folds(&self) -> bool {
        matches!(self.lane.holding, Holding::Nothing)
            && self.program.keeps_frames()
            && !self.program.encodes_own()
    }

    /// As [`fold`](Self::fold) for a step that [`folds`](Self::folds), and the result into the
    /// output.
    fn fold_store(&mut self) -> Result<Payload, Error> {
        let mut incoming = self.incoming()?;
        let (segment, divisor) = (self.segment, self.program.divisor);
        let in_place = self.timed(
            |r| &mut r.fold,
            |work, frames, _| work.fold_in_place(frames, segment, &mut incoming),
        )?;
        if in_place {
            self.store(&incoming, true)?;
            return Ok(incoming);
        }
        let to = self.spare()?;
        let folded = self.timed(
            |r| &mut r.fold,
            |work, frames, report| work.fold_store(frames, segment, &incoming, to, divisor, report),
        )?;
        self.recycle(incoming.at)?;
        Ok(folded)
    }

    fn combine(&mut self, mut a: Payload, b: Payload) -> Result<Payload, Error> {
        let in_place = self
            .timed(|r| &mut r.fold, |work, frames, _| work.combine_in_place(frames, &mut a, &b))?;
        if in_place {
            self.recycle(b.at)?;
            return Ok(a);
        }
        let to = self.spare()?;
        let combined = self.timed(
            |r| &mut r.fold,
            |work, frames, report| work.combine(frames, &a, &b, to, report),
        )?;
        self.recycle(a.at)?;
        self.recycle(b.at)?;
        Ok(combined)
    }

    fn reduce_send(&mut self) -> Result<Payload, Error> {
        if matches!(self.lane.holding, Holding::Nothing) && !self.program.keeps_frames() {
            // Decompress, operate and compress in one pass over chunks.
            let incoming = self.incoming()?;
            return self.fold(incoming);
        }
        self.reduce()?;
        self.send(false)
    }

    fn reduce_store_send(&mut self) -> Result<Payload, Error> {
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
            self.recycle(payload.at)?;
            return Ok(());
        }
        if matches!(self.lane.holding, Holding::Nothing) && !self.program.keeps_frames() {
            let (incoming, segment, divisor) =
                (self.incoming()?, self.segment, self.program.divisor);
            self.timed(
                |r| &mut r.fold,
                |work, frames, _| work.reduce_store(frames, segment, &incoming, divisor),
            )?;
            self.recycle(incoming.at)?;
            return Ok(());
        }
        self.reduce()?;
        self.finish()
    }
}
