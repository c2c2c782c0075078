//! The calls of a communicator that the program has begun and not waited for: they are carried out
//! one after the other, in the order in which it began them, which all ranks have alike.
//!
//! They move along whenever the program is in MPI for whatever it is (`ffi::progress`), and in
//! calls that are waited for on the same communicator, which let them all go before.

use std::collections::VecDeque;

use crate::call::Call;
use crate::ffi::library::Mpi;
use crate::ffi::promise::Promise;
use crate::taken::{Begun, Failure, Instead, Next, Ours, Outcome, Ready, carry_out};

/// Calls, the first of which may be under way.
#[derive(Default)]
pub(crate) struct Line(VecDeque<Waiting>);

struct Waiting {
    note: Note,
    stage: Stage,
}

enum Stage {
    Ready(Ready),
    UnderWay(Box<dyn Begun>),
    Failed(Failure),
    /// It is in between two of these.
    Nowhere,
}

/// What is known of a call besides.
pub(crate) struct Note {
    pub(crate) call: Call,
    pub(crate) promise: Promise,
}

impl Line {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// One more call.
    pub(crate) fn push(&mut self, note: Note, ready: Ready) {
        self.0.push_back(Waiting { note, stage: Stage::Ready(ready) });
    }

    /// Does what can be done now, a bounded amount of work for each call. Whether something moved.
    pub(crate) fn advance(
        &mut self,
        ours: &Ours,
        mpi: &dyn Mpi,
        mut each: impl FnMut(Note, Outcome),
    ) -> bool {
        let mut moved = false;
        while let Some(first) = self.0.front_mut() {
            first.begin(ours);
            moved |= ours.progress();
            if !first.is_done() {
                break;
            }
            moved = true;
            if let Some(Waiting { note, stage }) = self.0.pop_front() {
                match stage.finish(ours, mpi) {
                    Ok(Next::Step(ready)) => {
                        self.0.push_front(Waiting { note, stage: Stage::Ready(ready) });
                    }
                    Ok(Next::End(taken)) => each(note, Ok(taken)),
                    Err(instead) => each(note, Err(instead)),
                }
            }
        }
        moved
    }

    /// Waits until all of them are done.
    pub(crate) fn drain(
        &mut self,
        ours: &Ours,
        mpi: &dyn Mpi,
        mut each: impl FnMut(Note, Outcome),
    ) {
        while let Some(Waiting { note, stage }) = self.0.pop_front() {
            each(note, stage.carry_out(ours, mpi));
        }
    }

    /// Gives all of them up. Their number.
    pub(crate) fn clear(&mut self) -> usize {
        let n_calls = self.0.len();
        self.0.clear();
        n_calls
    }
}

impl Waiting {
    /// Now it is its turn.
    fn begin(&mut self, ours: &Ours) {
        self.stage = match std::mem::replace(&mut self.stage, Stage::Nowhere) {
            Stage::Ready(ready) => match ready(ours) {
                Ok(begun) => Stage::UnderWay(begun),
                Err(failure) => Stage::Failed(failure),
            },
            stage => stage,
        };
    }

    fn is_done(&self) -> bool {
        match &self.stage {
            Stage::UnderWay(begun) => begun.is_done(),
            _ => true,
        }
    }
}

impl Stage {
    /// Waits until it is done.
    fn finish(self, ours: &Ours, mpi: &dyn Mpi) -> Result<Next, Instead> {
        match self {
            Self::Ready(ready) => carry_out(ready, ours, mpi).map(Next::End),
            Self::UnderWay(begun) => begun.finish(mpi),
            Self::Failed(failure) => Err(failure.into()),
            Self::Nowhere => Err(foldwire::Error::Internal.into()),
        }
    }

    /// The same of all that follows.
    fn carry_out(self, ours: &Ours, mpi: &dyn Mpi) -> Outcome {
        match self.finish(ours, mpi)? {
            Next::Step(ready) => carry_out(ready, ours, mpi),
            Next::End(taken) => Ok(taken),
        }
    }
}
