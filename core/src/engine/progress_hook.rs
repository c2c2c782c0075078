//! Looks at the network while a rank computes.
//!
//! A codec tells after each chunk how far it has come ([`Pace`]); after two chunks the transport
//! moves the network along ([`Transport::nudge`]). That is ZCCL's PIPE-fZ-light (2025), whose codec
//! polls every 5120 values, without a codec that knows of networks. It costs transports that move
//! by themselves a call of nothing.

use crate::codec::Pace;
use crate::kernel::CHUNK;
use crate::transport::Transport;
use core::cell::{Cell, RefCell};
use core::time::Duration;

/// Most values between two looks, but of a codec that is told to use several threads, or copies.
pub(crate) const VALUES_PER_LOOK: usize = 2 * CHUNK;

/// Has a transport looked after while something is computed.
pub(crate) struct ProgressHook<'x, X> {
    transport: RefCell<&'x mut X>,
    /// Values since the last look.
    n_passed: Cell<usize>,
}

impl<'x, X: Transport> ProgressHook<'x, X> {
    /// From now on, a look having just been taken.
    pub(crate) const fn on(transport: &'x mut X) -> Self {
        Self { transport: RefCell::new(transport), n_passed: Cell::new(0) }
    }

    /// The transport's time.
    pub(crate) fn now(&self) -> Duration {
        self.transport.borrow().now()
    }
}

impl<X: Transport> Pace for ProgressHook<'_, X> {
    fn passed(&self, n_values: usize) {
        let n_passed = self.n_passed.get() + n_values;
        // Another chunk may be too much.
        let is_due = n_passed > VALUES_PER_LOOK - CHUNK;
        if is_due {
            self.transport.borrow_mut().nudge();
        }
        self.n_passed.set(if is_due { 0 } else { n_passed });
    }
}

#[cfg(test)]
mod tests {
    use super::super::notices::Memory;
    use super::*;

    #[test]
    fn no_more_values_pass_between_looks_than_are_said_to() {
        for lens in [[CHUNK; 4], [100, CHUNK, CHUNK, 1], [CHUNK - 1, 2, CHUNK, CHUNK]] {
            let mut transport = Memory::new(2, 8);
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
        let mut transport = Memory::new(2, 8);
        let progress_hook = ProgressHook::on(&mut transport);
        (0..16).for_each(|_| progress_hook.passed(CHUNK));
        assert_eq!(transport.n_nudges, 8);
    }
}
