//! Ends the calls of a communicator from another thread, as a watchdog does.
//!
//! Every call polls the network through a port ([`Port`](super::Port)) before it goes on. The port
//! reports a failure once the communicator was stopped. The call then fails as if the transport had
//! failed, and its rank notifies the others.

#[cfg(doc)]
use crate::shared::SharedCommunicator;
#[cfg(doc)]
use crate::transport::Transport;
use alloc::sync::Arc;
use core::sync::atomic::{AtomicBool, Ordering};

/// Ends the calls of a communicator, from any thread; see [`SharedCommunicator::stopper`].
#[derive(Clone, Debug, Default)]
pub struct Stopper(Arc<AtomicBool>);

impl Stopper {
    /// Ends all running calls and all later ones. A call ends at its next poll of the network: at
    /// once if its rank is polling, otherwise after the current rest ([`Transport::idle`]).
    ///
    /// A [shrink](SharedCommunicator::shrink) or [grow](SharedCommunicator::admit) forgets the
    /// stops before it. A stop that comes later ends it.
    pub fn stop(&self) {
        self.0.store(true, Ordering::Release);
    }

    /// Forgets earlier stops.
    pub(crate) fn clear(&self) {
        self.0.store(false, Ordering::Release);
    }

    /// Returns whether [`stop`](Self::stop) was called.
    pub fn is_stopped(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}
