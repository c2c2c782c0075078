//! Calls in a row on buffers that they own: for whoever cannot borrow a buffer as long as a call
//! lasts, such as an event loop, or MPI's progress.

use crate::Communicator;
use crate::collective::{Call, NoValues, Step, Underway};
use crate::element::Element;
use crate::engine::{Coding, Work};
use crate::error::Error;
use crate::plan::Plan;
use crate::report::Report;
use crate::transport::Transport;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::fmt;
use core::mem;
use core::task::Poll;

/// A communicator and the calls that it is to make, one after the other.
///
/// Each takes its array by value and gives it back with the result in it. Nothing moves unless the
/// queue is [polled](Self::poll); it has no lifetime but that of user operations, so it can be kept
/// anywhere. All ranks must submit the same calls in the same order, as they would make them.
///
/// Dropping it while a call is under way gives that up on all ranks, as dropping an
/// [`Operation`](crate::Operation) does.
///
/// # Examples
/// ```
/// use core::task::Poll;
/// use foldwire::{Bound, Call, Communicator, Error, Op, Plan, Queue, Transport};
///
/// /// Sums gradients while the caller computes the next ones.
/// fn train<X: Transport>(
///     comm: Communicator<X>,
///     mut backward: impl FnMut(usize) -> Vec<f32>,
/// ) -> Result<Vec<Vec<f32>>, Error> {
///     let plan = Plan::foldwire(Bound::Relative(1e-3));
///     let mut queue = Queue::new(comm);
///     let mut done = Vec::new();
///     for layer in 0..20 {
///         queue.submit(Call::all_reduce(backward(layer), Op::Avg), &plan);
///         // Without waiting: as much as can be done now.
///         while let Poll::Ready(Some(finished)) = queue.poll() {
///             done.push(finished.into_result()?.0);
///         }
///     }
///     while let Some(finished) = queue.wait() {
///         done.push(finished.into_result()?.0);
///     }
///     Ok(done)
/// }
/// ```
pub struct Queue<'f, X: Transport, T: Element> {
    /// Until it is given back.
    comm: Option<Communicator<X>>,
    calls: VecDeque<Submitted<'f, T>>,
    /// The first of them, once it has begun.
    first: Option<Underway<'f>>,
}

/// A call in place.
struct Submitted<'f, T: Element> {
    call: Call<'f, T, NoValues<'f, T>, Vec<T>>,
    coding: Coding<T>,
    plan: Plan,
}

/// What came of a call.
#[derive(Debug)]
#[must_use = "the array is here"]
pub struct Finished<B> {
    /// The array, with the result in it; with anything after an error that is not one of use.
    pub data: B,
    /// The report, or why the call failed.
    pub outcome: Result<Report, Error>,
}

impl<B> Finished<B> {
    /// Array and report, or why the call failed.
    ///
    /// # Errors
    /// That.
    pub fn into_result(self) -> Result<(B, Report), Error> {
        self.outcome.map(|report| (self.data, report))
    }
}

impl<'f, X: Transport, T: Element> Queue<'f, X, T> {
    /// No calls yet.
    pub const fn new(comm: Communicator<X>) -> Self {
        Self { comm: Some(comm), calls: VecDeque::new(), first: None }
    }

    /// Submits a call in place.
    pub fn submit(&mut self, call: Call<'f, T, NoValues<'f, T>, Vec<T>>, plan: &Plan) {
        self.calls.push_back(Submitted { call, coding: Coding::default(), plan: *plan });
    }

    /// Calls that are not finished.
    #[must_use]
    pub fn len(&self) -> usize {
        self.calls.len()
    }

    /// Whether all calls are finished.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.calls.is_empty()
    }

    /// The communicator, to ask it for rank and size.
    ///
    /// # Panics
    /// Never: it is there as long as the queue is.
    pub fn comm(&self) -> &Communicator<X> {
        self.comm.as_ref().expect("it is given back with the queue")
    }

    /// As [`comm`](Self::comm), to change its configuration for calls that have not begun, or to
    /// have its transport wake a task ([`Transport::register`]).
    ///
    /// # Panics
    /// Never.
    pub fn comm_mut(&mut self) -> &mut Communicator<X> {
        self.comm.as_mut().expect("it is given back with the queue")
    }

    /// Gives the communicator back, as to shrink it after a failure, and the arrays of the calls
    /// that are not finished. One that is under way is given up on all ranks.
    ///
    /// # Panics
    /// Never.
    pub fn into_parts(mut self) -> (Communicator<X>, Vec<Vec<T>>) {
        self.give_up();
        let data = self.calls.drain(..).map(|next| next.call.into_result()).collect();
        (self.comm.take().expect("it is given back with the queue"), data)
    }

    fn give_up(&mut self) {
        if let (Some(comm), Some(mut first)) = (&mut self.comm, self.first.take()) {
            first.give_up(comm, None);
        }
    }

    /// Advances the first call as far as it goes without waiting. `Ready(None)`: there is none.
    ///
    /// A call that fails says so when its turn comes. After an error that is not one of use all
    /// calls that follow fail with [`Error::Poisoned`], and give their arrays back.
    pub fn poll(&mut self) -> Poll<Option<Finished<Vec<T>>>> {
        loop {
            match self.advance() {
                None => return Poll::Ready(None),
                Some(Ok(Step::Moved)) => {}
                Some(Ok(Step::Waiting)) => return Poll::Pending,
                Some(Ok(Step::Finished(report))) => return Poll::Ready(self.finish(Ok(report))),
                Some(Err(error)) => return Poll::Ready(self.finish(Err(error))),
            }
        }
    }

    /// Drives the first call to its end; `None` if there is none.
    pub fn wait(&mut self) -> Option<Finished<Vec<T>>> {
        loop {
            if let Poll::Ready(finished) = self.poll() {
                return finished;
            }
            if let (Some(comm), Some(first)) = (&mut self.comm, &self.first) {
                first.idle(comm);
            }
        }
    }

    fn advance(&mut self) -> Option<Result<Step, Error>> {
        let (comm, next) = (self.comm.as_mut()?, self.calls.front_mut()?);
        let Submitted { call, coding, plan } = next;
        let (request, work) = call.parts(comm.rank());
        let mut work = Work { coding: mem::take(coding), ..work };
        let first = match &mut self.first {
            Some(first) => first,
            none => match Underway::start(comm, request, &mut work, plan) {
                Ok(first) => none.insert(first),
                Err(error) => return Some(Err(error)),
            },
        };
        let step = first.advance(comm, &mut work);
        *coding = work.coding;
        Some(step)
    }

    fn finish(&mut self, outcome: Result<Report, Error>) -> Option<Finished<Vec<T>>> {
        self.first = None;
        let data = self.calls.pop_front()?.call.into_result();
        Some(Finished { data, outcome })
    }
}

impl<X: Transport, T: Element> Drop for Queue<'_, X, T> {
    fn drop(&mut self) {
        self.give_up();
    }
}

impl<X: Transport, T: Element> fmt::Debug for Queue<'_, X, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} calls, {} under way", self.calls.len(), usize::from(self.first.is_some()))
    }
}
