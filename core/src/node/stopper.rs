//! Ends the calls of a communicator from another thread, as a watchdog does.
//!
//! Every call looks at the network through its communicator's port before it goes on, and finds
//! there that it was stopped. It fails then as by an error of the transport's, and its rank tells
//! the others that it has given up.

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
    /// Ends the calls that are under way, and all later ones. A call ends when it next looks at the
    /// network: at once where it is polled, else after the rest that it takes
    /// ([`Transport::idle`]).
    pub fn stop(&self) {
        self.0.store(true, Ordering::Release);
    }

    /// True once they were ended.
    pub fn is_stopped(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}
