//! Polls of the network while a rank computes.
//!
//! A codec reports its progress after each chunk ([`Pace`]). As often as the plan says
//! ([`Overlap`](crate::Overlap)), the transport moves the network along ([`Transport::nudge`]).
//! This is ZCCL's PIPE-fZ-light (2025), whose codec polls every 5120 values, but here the codec
//! does not know the network. For a transport that progresses by itself, this costs an empty
//! function call.
//!
//! Reports are function calls from within the codec: a primitive is never interrupted. A codec
//! whose chunks depend on earlier chunks keeps its state on the stack, and no lane is entered
//! twice. A nudge therefore moves only the transport, and no other calls.

use crate::codec::Pace;
use crate::kernel::CHUNK;
use crate::transport::Transport;
use core::cell::{Cell, RefCell};
use core::time::Duration;

/// Polls the transport while a kernel computes, so that messages keep moving.
pub(crate) struct ProgressHook<'x, X> {
    transport: RefCell<&'x mut X>,
    /// Number of values processed since the last nudge.
    n_passed: Cell<usize>,
    /// Number of values from which on a nudge is due.
    due_from: usize,
}

impl<'x, X: Transport> ProgressHook<'x, X> {
    /// Creates the hook, with the most values between two nudges, except in copies and in codecs
    /// that use several threads. With `None` there are no nudges. The transport must have been
    /// polled just now.
    pub(crate) const fn on(transport: &'x mut X, values_per_poll: Option<usize>) -> Self {
        // Another chunk must not exceed the limit.
        let due_from = match values_per_poll {
            Some(limit) => limit.saturating_sub(CHUNK).saturating_add(1),
            None => usize::MAX,
        };
        Self { transport: RefCell::new(transport), n_passed: Cell::new(0), due_from }
    }

    /// Returns the transport's time.
    pub(crate) fn now(&self) -> Duration {
        self.transport.borrow().now()
    }
}

impl<X: Transport> Pace for ProgressHook<'_, X> {
    fn passed(&self, n_values: usize) {
        let n_passed = self.n_passed.get().saturating_add(n_values);
        let is_due = n_passed >= self.due_from;
        if is_due {
            self.transport.borrow_mut().nudge();
        }
        self.n_passed.set(if is_due { 0 } else { n_passed });
    }
}

#[cfg(test)]
mod tests {
    use super::super::notices::MemoryTransport;
    use super::*;
    use crate::plan::Overlap;

    #[test]
    fn no_more_values_pass_between_polls_than_are_allowed() {
        for limit in [Overlap::Segments, Overlap::Polling].map(Overlap::values_per_poll) {
            for lens in [[CHUNK; 4], [100, CHUNK, CHUNK, 1], [CHUNK - 1, 2, CHUNK, CHUNK]] {
                let mut transport = MemoryTransport::new(2, 8);
                let (mut n_polls, mut since) = (0, 0);
                let progress_hook = ProgressHook::on(&mut transport, limit);
                for n_values in lens.into_iter().cycle().take(100) {
                    since += n_values;
                    assert!(Some(since) <= limit, "{since} values");
                    progress_hook.passed(n_values);
                    let n_nudges = progress_hook.transport.borrow().n_nudges;
                    if core::mem::replace(&mut n_polls, n_nudges) < n_nudges {
                        since = 0;
                    }
                }
                assert!(n_polls >= 25, "{n_polls} polls");
            }
        }
    }

    #[test]
    fn a_plan_polls_after_two_chunks_after_each_chunk_or_never() {
        let n_polls = |overlap: Overlap| {
            let mut transport = MemoryTransport::new(2, 8);
            let progress_hook = ProgressHook::on(&mut transport, overlap.values_per_poll());
            (0..16).for_each(|_| progress_hook.passed(CHUNK));
            transport.n_nudges
        };
        let all = [Overlap::Segments, Overlap::Polling, Overlap::Nothing];
        assert_eq!(all.map(n_polls), [8, 16, 0]);
    }
}
