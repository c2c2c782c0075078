//! The calls of a communicator that the program has begun and not waited for: they are carried out
//! one after the other, in the order in which it began them, which all ranks have alike.
//!
//! They move along whenever the program is in MPI for whatever it is (`ffi::progress`), and in
//! calls that are waited for on the same communicator, which let them all go before.

use std::collections::VecDeque;

use crate::call::MpiCall;
use crate::execute::{
    CallOutcome, FoldwireComm, PreparedCall, RunningStep, StepOutcome, execute, finish,
};
use crate::ffi::library::MpiApi;
use crate::ffi::program_request::ProgramRequest;

/// Calls, the first of which may be under way.
#[derive(Default)]
pub(crate) struct CallQueue {
    running: Option<(QueuedCall, Box<dyn RunningStep>)>,
    waiting: VecDeque<(QueuedCall, PreparedCall)>,
}

/// What is known of a call besides.
pub(crate) struct QueuedCall {
    pub(crate) call: MpiCall,
    pub(crate) program_request: ProgramRequest,
}

impl CallQueue {
    pub(crate) fn is_empty(&self) -> bool {
        self.n_calls() == 0
    }

    fn n_calls(&self) -> usize {
        usize::from(self.running.is_some()) + self.waiting.len()
    }

    /// One more call.
    pub(crate) fn push(&mut self, queued: QueuedCall, prepared: PreparedCall) {
        self.waiting.push_back((queued, prepared));
    }

    /// Does what can be done now, a bounded amount of work for each call. Whether something moved.
    pub(crate) fn advance(
        &mut self,
        comm: &FoldwireComm,
        mpi: &dyn MpiApi,
        mut on_end: impl FnMut(QueuedCall, CallOutcome),
    ) -> bool {
        let mut moved = false;
        loop {
            if self.running.is_none() {
                let Some((queued, prepared)) = self.waiting.pop_front() else { return moved };
                match prepared(comm) {
                    Ok(step) => self.running = Some((queued, step)),
                    Err(failure) => {
                        on_end(queued, Err(failure.into()));
                        moved = true;
                        continue;
                    }
                }
            }
            moved |= comm.progress();
            let done = self.running.take_if(|(_, step)| step.is_done());
            let Some((queued, step)) = done else { return moved };
            moved = true;
            match step.finish(mpi) {
                Ok(StepOutcome::Continue(prepared)) => self.waiting.push_front((queued, prepared)),
                Ok(StepOutcome::Done(executed)) => on_end(queued, Ok(executed)),
                Err(not_executed) => on_end(queued, Err(not_executed)),
            }
        }
    }

    /// Waits until all of them are done.
    pub(crate) fn drain(
        &mut self,
        comm: &FoldwireComm,
        mpi: &dyn MpiApi,
        mut on_end: impl FnMut(QueuedCall, CallOutcome),
    ) {
        if let Some((queued, step)) = self.running.take() {
            on_end(queued, finish(step, comm, mpi));
        }
        while let Some((queued, prepared)) = self.waiting.pop_front() {
            on_end(queued, execute(prepared, comm, mpi));
        }
    }

    /// Gives all of them up. Their number.
    pub(crate) fn clear(&mut self) -> usize {
        let n_calls = self.n_calls();
        *self = Self::default();
        n_calls
    }
}
