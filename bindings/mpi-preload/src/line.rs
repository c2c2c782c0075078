//! The calls of a communicator that the program has begun and not waited for: they are carried out
//! one after the other, in the order in which it began them, which all ranks have alike.
//!
//! They move along whenever the program is in MPI for whatever it is (`ffi::progress`), and in
//! calls that are waited for on the same communicator, which let them all go before.

use std::collections::VecDeque;

use crate::call::Call;
use crate::ffi::library::Mpi;
use crate::ffi::promise::Promise;
use crate::taken::{Begun, Next, Ours, Outcome, Ready, carry_out, finish};

/// Calls, the first of which may be under way.
#[derive(Default)]
pub(crate) struct Line {
    under_way: Option<(Note, Box<dyn Begun>)>,
    waiting: VecDeque<(Note, Ready)>,
}

/// What is known of a call besides.
pub(crate) struct Note {
    pub(crate) call: Call,
    pub(crate) promise: Promise,
}

impl Line {
    pub(crate) fn is_empty(&self) -> bool {
        self.n_calls() == 0
    }

    fn n_calls(&self) -> usize {
        usize::from(self.under_way.is_some()) + self.waiting.len()
    }

    /// One more call.
    pub(crate) fn push(&mut self, note: Note, ready: Ready) {
        self.waiting.push_back((note, ready));
    }

    /// Does what can be done now, a bounded amount of work for each call. Whether something moved.
    pub(crate) fn advance(
        &mut self,
        ours: &Ours,
        mpi: &dyn Mpi,
        mut each: impl FnMut(Note, Outcome),
    ) -> bool {
        let mut moved = false;
        loop {
            if self.under_way.is_none() {
                let Some((note, ready)) = self.waiting.pop_front() else { return moved };
                match ready(ours) {
                    Ok(begun) => self.under_way = Some((note, begun)),
                    Err(failure) => {
                        each(note, Err(failure.into()));
                        moved = true;
                        continue;
                    }
                }
            }
            moved |= ours.progress();
            let done = self.under_way.take_if(|(_, begun)| begun.is_done());
            let Some((note, begun)) = done else { return moved };
            moved = true;
            match begun.finish(mpi) {
                Ok(Next::Step(ready)) => self.waiting.push_front((note, ready)),
                Ok(Next::End(taken)) => each(note, Ok(taken)),
                Err(instead) => each(note, Err(instead)),
            }
        }
    }

    /// Waits until all of them are done.
    pub(crate) fn drain(
        &mut self,
        ours: &Ours,
        mpi: &dyn Mpi,
        mut each: impl FnMut(Note, Outcome),
    ) {
        if let Some((note, begun)) = self.under_way.take() {
            each(note, finish(begun, ours, mpi));
        }
        while let Some((note, ready)) = self.waiting.pop_front() {
            each(note, carry_out(ready, ours, mpi));
        }
    }

    /// Gives all of them up. Their number.
    pub(crate) fn clear(&mut self) -> usize {
        let n_calls = self.n_calls();
        *self = Self::default();
        n_calls
    }
}
