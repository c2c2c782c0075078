//! Streams of a lane: its own, on which operations run in order, and others beside it.
//!
//! Two things run beside: encodes of one message's parts that were begun ahead, each on one stream
//! (gZCCL's scatter), and the partitions of one encode (MPC-OPT). Partitions begin after what the
//! lane's own stream has enqueued, and the lane's own stream waits for all of them.

use super::WorkspaceConfig;
use crate::driver::{Driver, EventId, Stream};
use crate::{DeviceError, Launch, Launcher};
use std::sync::Arc;

#[derive(Debug)]
pub(super) struct Streams {
    own: Stream,
    beside: Vec<Stream>,
    /// Event at which partitions branch off. Only one operation at a time has partitions.
    branch: EventId,
    /// Fewest values of a partition.
    partition_values: usize,
}

impl Streams {
    pub(super) fn new(
        driver: &Arc<dyn Driver>,
        config: WorkspaceConfig,
    ) -> Result<Self, DeviceError> {
        let WorkspaceConfig { n_streams, partition_values, .. } = config;
        let own = Stream::new(driver)?;
        let beside = (1..n_streams).map(|_| Stream::new(driver)).collect::<Result<_, _>>()?;
        let branch = driver.new_event()?;
        Ok(Self { own, beside, branch, partition_values: partition_values.max(1) })
    }

    /// The lane's own stream.
    pub(super) const fn own(&self) -> &Stream {
        &self.own
    }

    /// Number of streams.
    pub(super) const fn len(&self) -> usize {
        1 + self.beside.len()
    }

    /// Returns stream number `place`; number 0 is the lane's own.
    pub(super) fn at(&mut self, place: usize) -> &mut Stream {
        match place.checked_sub(1) {
            None => &mut self.own,
            Some(beside) => &mut self.beside[beside],
        }
    }

    pub(super) fn all(&self) -> impl Iterator<Item = &Stream> {
        std::iter::once(&self.own).chain(&self.beside)
    }

    pub(super) fn all_mut(&mut self) -> impl Iterator<Item = &mut Stream> {
        std::iter::once(&mut self.own).chain(&mut self.beside)
    }
}

impl Launcher for Streams {
    fn launch(&mut self, launch: &Launch<'_>) -> Result<(), DeviceError> {
        self.own.launch(launch)
    }

    fn n_partitions(&self, n_values: usize) -> usize {
        (n_values / self.partition_values).clamp(1, self.len())
    }

    fn launch_together(&mut self, launches: &[Launch<'_>]) -> Result<(), DeviceError> {
        let [others @ .., last] = launches else { return Ok(()) };
        if others.len() > self.beside.len() {
            return launches.iter().try_for_each(|launch| self.launch(launch));
        }
        if !others.is_empty() {
            self.own.driver().record(self.own.id(), self.branch)?;
        }
        for (launch, stream) in others.iter().zip(&mut self.beside) {
            stream.wait_for(self.branch)?;
            stream.launch(launch)?;
            stream.mark()?;
        }
        self.own.launch(last)?;
        self.beside[..others.len()].iter().try_for_each(|stream| self.own.wait_for(stream.event()))
    }
}

impl Drop for Streams {
    fn drop(&mut self) {
        self.own.driver().end_event(self.branch);
    }
}
