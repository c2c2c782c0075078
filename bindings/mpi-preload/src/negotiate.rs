//! Steps of non-blocking calls whose counts no rank knows completely. In the first step the ranks
//! exchange what they know ([`agree`](crate::agree)). Then Foldwire or the MPI library executes the
//! call.
//!
//! The ranks decide when the queue reaches the call. By then, later calls may have been passed to
//! the MPI library on the program's communicator, where all ranks must call collectives in the same
//! order. So the MPI library executes the earlier call on Foldwire's communicator, where all ranks
//! follow the order of the queue.

use std::cell::Cell;
use std::time::Duration;

use foldwire::{Finished, Op, Pending, Plan};
use foldwire_messaging::{Backoff, Completion};

use crate::call::{KeptTypes, MpiCall};
use crate::decide::PassReason;
use crate::execute::{FoldwireComm, NotExecuted, PreparedCall, RunningStep, StepOutcome};
use crate::ffi::abi::MpiHandle;
use crate::ffi::library::MpiApi;
use crate::transport::PreloadEndpoint;

/// Longest pause between two tests of a request of the MPI library.
const MAX_REST: Duration = Duration::from_millis(1);

/// Continues the call with the maxima of all ranks' numbers.
type AfterNegotiation = Box<dyn FnOnce(&[i64]) -> Result<PreparedCall, NotExecuted>>;

/// A running all-reduce of the ranks' numbers.
struct Negotiation {
    pending: Pending<'static, PreloadEndpoint, Vec<i64>>,
    after: AfterNegotiation,
}

/// Prepares an all-reduce of `numbers`, and `after` as the next step.
pub(crate) fn negotiate(numbers: Vec<i64>, after: AfterNegotiation) -> PreparedCall {
    Box::new(move |comm: &FoldwireComm| {
        let pending = comm.start(foldwire::Call::all_reduce(numbers, Op::Max), &Plan::raw())?;
        Ok(Box::new(Negotiation { pending, after }))
    })
}

impl RunningStep for Negotiation {
    fn is_done(&self) -> bool {
        self.pending.is_finished()
    }

    fn finish(self: Box<Self>, _: &dyn MpiApi) -> Result<StepOutcome, NotExecuted> {
        let Self { pending, after } = *self;
        let Finished { data, outcome } = pending.wait();
        outcome?;
        after(&data).map(StepOutcome::Continue)
    }
}

/// A call that the MPI library executes.
struct ForwardedCall {
    mpi: &'static dyn MpiApi,
    request: MpiHandle,
    outcome: Cell<Option<Completion>>,
    reason: PassReason,
    _types: KeptTypes,
}

/// Prepares a call that the MPI library executes, on the communicator `raw` instead of the call's
/// own.
pub(crate) fn forward(
    mpi: &'static dyn MpiApi,
    (call, types): (MpiCall, KeptTypes),
    raw: MpiHandle,
    reason: PassReason,
) -> PreparedCall {
    Box::new(move |_: &FoldwireComm| {
        // The program must not touch the call's buffers and counts until its own request is
        // complete.
        let request = mpi.start_vector_collective(&MpiCall { comm: raw, ..call })?;
        Ok(Box::new(ForwardedCall {
            mpi,
            request,
            outcome: Cell::new(None),
            reason,
            _types: types,
        }))
    })
}

impl RunningStep for ForwardedCall {
    fn is_done(&self) -> bool {
        if self.outcome.get().is_none() {
            let mut done = Vec::new();
            match self.mpi.test_some(&[self.request], &mut done) {
                Ok(()) => self.outcome.set(done.pop().map(|(_, outcome)| outcome)),
                Err(code) => self.outcome.set(Some(Err(code))),
            }
        }
        self.outcome.get().is_some()
    }

    fn finish(self: Box<Self>, _: &dyn MpiApi) -> Result<StepOutcome, NotExecuted> {
        let mut backoff = Backoff::default();
        while !self.is_done() {
            backoff.wait(MAX_REST);
        }
        match self.outcome.get() {
            Some(Err(code)) => Err(code.into()),
            _ => Err(self.reason.into()),
        }
    }
}
