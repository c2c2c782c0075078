//! Drives the futures of several ranks on one thread. For many short calls, threads would spend
//! most of their time waking each other.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

/// Polls the futures in turn until all are done.
pub fn join_all<F: Future>(futures: impl IntoIterator<Item = F>) -> Vec<F::Output> {
    let mut context = Context::from_waker(Waker::noop());
    let mut futures: Vec<Pin<Box<F>>> = futures.into_iter().map(Box::pin).collect();
    let mut outputs: Vec<Option<F::Output>> = futures.iter().map(|_| None).collect();
    while outputs.iter().any(Option::is_none) {
        for (future, output) in futures.iter_mut().zip(&mut outputs) {
            if output.is_none()
                && let Poll::Ready(ready) = future.as_mut().poll(&mut context)
            {
                *output = Some(ready);
            }
        }
    }
    outputs.into_iter().flatten().collect()
}
