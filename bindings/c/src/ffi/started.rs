//! A call in progress, with all that it borrows.

use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use foldwire::{Element, Error, Pending, Report};

use super::device::Explain;
use super::operations::CombineFn;
use super::types::FW_ABORTED;
use crate::errors::ApiError;
use crate::transport::AnyTransport;

/// A call of core that runs, and what it gives back.
pub(super) type RunningCall<R> = Pending<'static, AnyTransport, R>;

/// A call in progress, on values of any type.
pub trait DynCall: Future<Output = Result<Report, ApiError>> + Unpin {
    /// Returns whether the call has finished. Does not advance it.
    fn is_finished(&self) -> bool;

    /// Advances all calls over the transport until this one has finished.
    ///
    /// # Errors
    /// If the call fails.
    fn wait(self: Box<Self>) -> Result<Report, ApiError>;

    /// Replaces the time without progress after which the call fails.
    fn with_timeout(self: Box<Self>, timeout: Duration) -> Box<dyn DynCall>;
}

/// A call that was dropped by `fwCommAbort`.
pub(crate) struct AbortedCall;

impl DynCall for AbortedCall {
    fn is_finished(&self) -> bool {
        true
    }

    fn wait(self: Box<Self>) -> Result<Report, ApiError> {
        let message = "the communicator of this request was aborted with fwCommAbort";
        Err(ApiError::new(FW_ABORTED, message))
    }

    fn with_timeout(self: Box<Self>, _: Duration) -> Box<dyn DynCall> {
        self
    }
}

impl Future for AbortedCall {
    type Output = Result<Report, ApiError>;

    fn poll(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Self::Output> {
        Poll::Ready(Box::new(Self).wait())
    }
}

/// Boxes a call that borrows only its arrays.
pub(super) fn running<T: Element, R: 'static>(pending: RunningCall<R>) -> Box<dyn DynCall> {
    Box::new(StartedCall::<T, _> { pending, _counts: [None, None], _user: None, explain: None })
}

/// A call of core, with the values that it borrows.
pub(super) struct StartedCall<T: Element, R: 'static> {
    /// First, because fields are dropped in order: the call borrows from the fields below.
    pub(super) pending: RunningCall<R>,
    pub(super) _counts: LentCounts,
    pub(super) _user: Option<Rc<CombineFn<T>>>,
    /// For a call on a device's memory.
    pub(super) explain: Option<Explain>,
}

/// The counts that a call borrows.
pub(super) type LentCounts = [Option<Arc<[usize]>>; 2];

/// Adds the device's own words to the error of a call.
pub(super) fn explained<R>(
    outcome: Result<R, Error>,
    explain: Option<&Explain>,
) -> Result<R, ApiError> {
    outcome.map_err(|error| {
        let fault = ApiError::from(error);
        let words = explain.filter(|_| matches!(error, Error::Device { .. }));
        match words.and_then(|explain| explain()) {
            Some(words) => ApiError { message: format!("{}: {words}", fault.message), ..fault },
            None => fault,
        }
    })
}

impl<T: Element, R: 'static> DynCall for StartedCall<T, R> {
    fn is_finished(&self) -> bool {
        self.pending.is_finished()
    }

    fn wait(self: Box<Self>) -> Result<Report, ApiError> {
        let Self { pending, _counts, _user, explain } = *self;
        explained(pending.wait().outcome, explain.as_ref())
    }

    fn with_timeout(self: Box<Self>, timeout: Duration) -> Box<dyn DynCall> {
        let Self { pending, _counts, _user, explain } = *self;
        Box::new(Self { pending: pending.with_timeout(timeout), _counts, _user, explain })
    }
}

impl<T: Element, R: 'static> Future for StartedCall<T, R> {
    type Output = Result<Report, ApiError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let polled = Pin::new(&mut self.pending).poll(context);
        polled.map(|finished| explained(finished.outcome, self.explain.as_ref()))
    }
}
