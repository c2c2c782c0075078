//! Ends the calls of a communicator from another thread, as a watchdog does.
//!
//! Every call polls the network through its communicator's port before it goes on, and finds there
//! that it was stopped. It then fails as if the transport had failed, and its rank notifies the
//! others.

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
    /// once if it is being polled, otherwise after its current rest ([`Transport::idle`]).
    pub fn stop(&self) {
        self.0.store(true, Ordering::Release);
    }

    /// Returns whether [`stop`](Self::stop) was called.
    pub fn is_stopped(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}
