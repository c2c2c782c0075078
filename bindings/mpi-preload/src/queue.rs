//! Queue of a communicator's non-blocking calls. They run one after the other, in the order in
//! which the program made them. This order is equal on all ranks.
//!
//! They advance whenever the program is in MPI (`ffi::progress`). A blocking call on the same
//! communicator first completes all queued calls.

use std::collections::VecDeque;

use crate::call::MpiCall;
use crate::execute::{
    CallOutcome, FoldwireComm, PreparedCall, RunningStep, StepOutcome, execute, finish,
};
use crate::ffi::library::MpiApi;
use crate::ffi::program_request::ProgramRequest;

/// Calls in order. The first one may be running.
#[derive(Default)]
pub(crate) struct CallQueue {
    /// The first call, and its current step. A call has one or several steps, one after the other.
    running: Option<(QueuedCall, Box<dyn RunningStep>)>,
    waiting: VecDeque<(QueuedCall, PreparedCall)>,
}

/// A queued call, and the program's request for it.
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

    /// Appends a call.
    pub(crate) fn push(&mut self, queued: QueuedCall, prepared: PreparedCall) {
        self.waiting.push_back((queued, prepared));
    }

    /// Starts the first call if none is running, and advances it by a bounded amount of work. If it
    /// ends, starts the next one. Calls `on_end` for each call that ends. Returns whether any made
    /// progress.
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

    /// Waits for all calls, and calls `on_end` for each.
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

    /// Drops all calls, and returns their number. Their requests fail.
    pub(crate) fn clear(&mut self) -> usize {
        let n_calls = self.n_calls();
        *self = Self::default();
        n_calls
    }
}
