//! What several ranks do at once, on one thread: of many short calls threads spend most of the time
//! waking each other.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

/// Polls them in turn until all are done.
pub fn together<F: Future>(futures: impl IntoIterator<Item = F>) -> Vec<F::Output> {
    let mut context = Context::from_waker(Waker::noop());
    let mut futures: Vec<(Pin<Box<F>>, Option<F::Output>)> =
        futures.into_iter().map(|future| (Box::pin(future), None)).collect();
    while futures.iter().any(|(_, output)| output.is_none()) {
        for (future, output) in futures.iter_mut().filter(|(_, output)| output.is_none()) {
            if let Poll::Ready(ready) = future.as_mut().poll(&mut context) {
                *output = Some(ready);
            }
        }
    }
    futures.into_iter().filter_map(|(_, output)| output).collect()
}
