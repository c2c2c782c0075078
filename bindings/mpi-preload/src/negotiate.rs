//! Steps of calls that are not waited for and of which no rank knows enough: the ranks tell each
//! other first ([`agree`](crate::agree)), and then carry the call out, or the MPI library does.
//!
//! Which it is shows only when the call has had its turn, and other calls of the program's may have
//! gone to the library meanwhile. So it carries the call out on our communicator, where calls have
//! the order of the line on all ranks.

use std::cell::Cell;
use std::time::Duration;

use foldwire::{Finished, Op, Pending, Plan};
use foldwire_messaging::{Completion, Patience};

use crate::call::{KeptTypes, MpiCall};
use crate::decide::PassReason;
use crate::execute::{FoldwireComm, NotExecuted, PreparedCall, RunningStep, StepOutcome};
use crate::ffi::abi::MpiHandle;
use crate::ffi::library::MpiApi;
use crate::transport::PreloadEndpoint;

/// The longest rest of who waits for the library.
const MAX_REST: Duration = Duration::from_millis(1);

/// What follows from what all ranks have told.
type AfterNegotiation = Box<dyn FnOnce(&[i64]) -> Result<PreparedCall, NotExecuted>>;

/// The largest of all ranks' numbers are on their way.
struct Negotiation {
    pending: Pending<'static, PreloadEndpoint, i64, Vec<i64>>,
    after: AfterNegotiation,
}

/// Has all ranks tell each other their numbers.
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

/// A call that the MPI library carries out.
struct ForwardedCall {
    mpi: &'static dyn MpiApi,
    request: MpiHandle,
    outcome: Cell<Option<Completion>>,
    reason: PassReason,
    _types: KeptTypes,
}

/// Has the library carry a call out, on this communicator in place of its own.
pub(crate) fn forward(
    mpi: &'static dyn MpiApi,
    (call, types): (MpiCall, KeptTypes),
    raw: MpiHandle,
    reason: PassReason,
) -> PreparedCall {
    Box::new(move |_: &FoldwireComm| {
        // The program leaves the call's buffers and counts alone until its own request is complete.
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
        let mut patience = Patience::default();
        while !self.is_done() {
            patience.rest(MAX_REST);
        }
        match self.outcome.get() {
            Some(Err(code)) => Err(code.into()),
            _ => Err(self.reason.into()),
        }
    }
}
