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

use crate::call::{Call, KeptTypes};
use crate::decide::Why;
use crate::ffi::abi::Handle;
use crate::ffi::library::Mpi;
use crate::net::Wire;
use crate::taken::{Begun, Instead, Next, Ours, Ready};

/// The longest rest of who waits for the library.
const REST: Duration = Duration::from_millis(1);

/// What follows from what all ranks have told.
type Then = Box<dyn FnOnce(&[i64]) -> Result<Ready, Instead>>;

/// The largest of all ranks' numbers are on their way.
struct Asked {
    pending: Pending<'static, Wire, i64, Vec<i64>>,
    then: Then,
}

/// Has all ranks tell each other their numbers.
pub(crate) fn ask(numbers: Vec<i64>, then: Then) -> Ready {
    Box::new(move |ours: &Ours| {
        let pending = ours.start(foldwire::Call::all_reduce(numbers, Op::Max), &Plan::raw())?;
        Ok(Box::new(Asked { pending, then }))
    })
}

impl Begun for Asked {
    fn is_done(&self) -> bool {
        self.pending.is_finished()
    }

    fn finish(self: Box<Self>, _: &dyn Mpi) -> Result<Next, Instead> {
        let Self { pending, then } = *self;
        let Finished { data, outcome } = pending.wait();
        outcome?;
        then(&data).map(Next::Step)
    }
}

/// A call that the MPI library carries out.
struct PassedOn {
    mpi: &'static dyn Mpi,
    request: Handle,
    outcome: Cell<Option<Completion>>,
    why: Why,
    _types: KeptTypes,
}

/// Has the library carry a call out, on this communicator in place of its own.
pub(crate) fn pass(
    mpi: &'static dyn Mpi,
    (call, types): (Call, KeptTypes),
    raw: Handle,
    why: Why,
) -> Ready {
    Box::new(move |_: &Ours| {
        // The program leaves the call's buffers and counts alone until its own request is complete.
        let request = mpi.start_shares(&Call { comm: raw, ..call })?;
        Ok(Box::new(PassedOn { mpi, request, outcome: Cell::new(None), why, _types: types }))
    })
}

impl Begun for PassedOn {
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

    fn finish(self: Box<Self>, _: &dyn Mpi) -> Result<Next, Instead> {
        let mut patience = Patience::default();
        while !self.is_done() {
            patience.rest(REST);
        }
        match self.outcome.get() {
            Some(Err(code)) => Err(code.into()),
            _ => Err(self.why.into()),
        }
    }
}
