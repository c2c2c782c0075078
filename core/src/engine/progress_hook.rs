//! Polls of the network while a rank computes.
//!
//! A codec reports its progress after each chunk ([`Pace`]). After two chunks the transport moves
//! the network along ([`Transport::nudge`]). This is ZCCL's PIPE-fZ-light (2025), whose codec polls
//! every 5120 values, but here the codec does not know the network. For a transport that progresses
//! by itself, this costs an empty function call.
//!
//! Reports are function calls from within the codec: a primitive is never interrupted. A codec
//! whose chunks depend on earlier chunks keeps its state on the stack, and no lane is entered
//! twice. A nudge therefore moves only the transport, and no other calls.

use crate::codec::Pace;
use crate::kernel::CHUNK;
use crate::transport::Transport;
use core::cell::{Cell, RefCell};
use core::time::Duration;

/// Most values between two nudges, except in copies and in codecs that use several threads.
pub(crate) const VALUES_PER_LOOK: usize = 2 * CHUNK;

/// Polls the transport while a kernel computes, so that messages keep moving.
pub(crate) struct ProgressHook<'x, X> {
    transport: RefCell<&'x mut X>,
    /// Number of values processed since the last nudge.
    n_passed: Cell<usize>,
}

impl<'x, X: Transport> ProgressHook<'x, X> {
    /// Creates the hook. The transport must have been polled just now.
    pub(crate) const fn on(transport: &'x mut X) -> Self {
        Self { transport: RefCell::new(transport), n_passed: Cell::new(0) }
    }

    /// Returns the transport's time.
    pub(crate) fn now(&self) -> Duration {
        self.transport.borrow().now()
    }
}

impl<X: Transport> Pace for ProgressHook<'_, X> {
    fn passed(&self, n_values: usize) {
        let n_passed = self.n_passed.get() + n_values;
        // Nudge now, because another chunk might exceed the limit.
        let is_due = n_passed > VALUES_PER_LOOK - CHUNK;
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

    #[test]
    fn no_more_values_pass_between_looks_than_are_said_to() {
        for lens in [[CHUNK; 4], [100, CHUNK, CHUNK, 1], [CHUNK - 1, 2, CHUNK, CHUNK]] {
            let mut transport = MemoryTransport::new(2, 8);
            let (mut n_looks, mut since) = (0, 0);
            let progress_hook = ProgressHook::on(&mut transport);
            for n_values in lens.into_iter().cycle().take(100) {
                since += n_values;
                assert!(since <= VALUES_PER_LOOK, "{since} values");
                progress_hook.passed(n_values);
                let n_nudges = progress_hook.transport.borrow().n_nudges;
                if core::mem::replace(&mut n_looks, n_nudges) < n_nudges {
                    since = 0;
                }
            }
            assert!(n_looks >= 25, "{n_looks} nudges");
        }
    }

    #[test]
    fn full_chunks_are_looked_after_by_two() {
        let mut transport = MemoryTransport::new(2, 8);
        let progress_hook = ProgressHook::on(&mut transport);
        (0..16).for_each(|_| progress_hook.passed(CHUNK));
        assert_eq!(transport.n_nudges, 8);
    }
}
