//! Ends the calls of a communicator from another thread, as a watchdog does.
//!
//! Every call looks at the network through its communicator's port before it goes on, and finds
//! there that it was stopped. It fails then as by an error of the transport's, and its rank tells
//! the others that it has given up.

use super::SharedCommunicator;
#[cfg(doc)]
use crate::error::Error;
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

impl<'a, X: Transport + 'a> SharedCommunicator<'a, X> {
    /// A handle for another thread, to end this communicator's calls while this one waits in them:
    /// they fail with [`Error::Transport`] of
    /// [`TransportErrorKind::Stopped`](crate::transport::TransportErrorKind::Stopped), and the
    /// other ranks get [`Error::Aborted`]. Communicators that were split from it go on.
    pub fn stopper(&self) -> Stopper {
        self.seats.first().map_or_else(Stopper::default, |seat| seat.stopper())
    }
}
