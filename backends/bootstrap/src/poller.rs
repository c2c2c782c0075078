//! Waiting for connections to have something to say.

use std::io;
use std::time::Duration;

use mio::event::Event;
use mio::{Events, Poll, Registry};

use crate::error::Error;

/// Tells which of many connections are ready, at the cost of one system call.
#[derive(Debug)]
pub(crate) struct Poller {
    poll: Poll,
    events: Events,
}

impl Poller {
    pub(crate) fn new() -> Result<Self, Error> {
        let poll = Poll::new().map_err(Error::System)?;
        Ok(Self { poll, events: Events::with_capacity(64) })
    }

    /// Where connections ask to be watched.
    pub(crate) fn registry(&self) -> &Registry {
        self.poll.registry()
    }

    /// Waits until something is ready, but not longer than `timeout`; then tells what is ready. A
    /// signal ends the wait early.
    pub(crate) fn wait(
        &mut self,
        timeout: Duration,
    ) -> Result<impl Iterator<Item = &Event>, Error> {
        match self.poll.poll(&mut self.events, Some(timeout)) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::Interrupted => self.events.clear(),
            Err(error) => return Err(Error::System(error)),
        }
        Ok(self.events.iter())
    }
}
