//! Waiting until connections are ready.

use std::io;
use std::time::Duration;

use mio::event::Event;
use mio::{Events, Poll, Registry};

use crate::error::Error;

/// Waits for many connections with one system call, and finds the ready ones.
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

    /// The registry to which connections are added.
    pub(crate) fn registry(&self) -> &Registry {
        self.poll.registry()
    }

    /// Waits at most `timeout` until a connection is ready, and returns the ready ones. A signal
    /// ends the wait early.
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
