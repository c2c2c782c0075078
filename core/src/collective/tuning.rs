//! What all ranks must know alike before automatic plans can weigh it: how fast links and codecs
//! are.

use super::Communicator;
#[cfg(doc)]
use super::Config;
use crate::element::Element;
use crate::error::Error;
use crate::op::Op;
use crate::plan::Plan;
use crate::report::Report;
use crate::schedule::Ring;
use crate::transport::{Distance, Transport};
use core::time::Duration;

/// Calls that measure a link; the shortest counts.
const ROUNDS: usize = 3;

impl<X: Transport> Communicator<X> {
    /// Measures what links carry where nobody has told, and notes it as [`Config::link_rate`], the
    /// same on all ranks, which must all call it: the lowest of all ranks' rates in bytes per
    /// second, infinite where they share a process. First calls of automatic plans do so by
    /// themselves where there is an allocator. `scratch` is overwritten; it should have a MiB or
    /// more, and as many values on all ranks.
    ///
    /// # Errors
    /// [`Error`]; see [`Error::is_usage`] for those that leave the communicator usable.
    ///
    /// # Examples
    /// ```
    /// # use foldwire::{Communicator, Error, Transport};
    /// fn begin<X: Transport>(comm: &mut Communicator<X>) -> Result<(), Error> {
    ///     comm.measure_link(&mut vec![0.0; 1 << 18])?;
    ///     comm.share_speeds()?;
    ///     Ok(())
    /// }
    /// ```
    pub fn measure_link(&mut self, scratch: &mut [f32]) -> Result<f64, Error> {
        let rate = match self.network().link_rate {
            Some(declared) => declared,
            None if self.farthest() == Distance::Memory => return Ok(f64::INFINITY),
            None => {
                let n_sent = scratch.len() - self.share(scratch.len()).len();
                let plan = Plan::raw().with_schedule(&Ring);
                let mut shortest = Duration::MAX;
                for _ in 0..ROUNDS {
                    self.barrier()?;
                    let start = self.transport.now();
                    self.all_gather_in_place(scratch, &plan)?;
                    shortest = shortest.min(self.transport.now().saturating_sub(start));
                }
                (n_sent * f32::BYTES) as f64 / shortest.as_secs_f64().max(1e-9)
            }
        };
        let rate = self.all_reduce_scalar(rate, Op::Min)?;
        self.config_mut().link_rate = (rate > 0.0).then_some(rate);
        Ok(rate)
    }

    /// Gives all ranks the same [speeds](Config::speeds): of each rank's the lowest of each codec.
    /// All ranks must call it, where each has read or measured its own.
    ///
    /// # Errors
    /// [`Error`], after which the communicator is of no use.
    pub fn share_speeds(&mut self) -> Result<Report, Error> {
        let mut speeds = self.config.speeds;
        let report = self.all_reduce(speeds.values_mut(), Op::Min, &Plan::raw())?;
        self.config_mut().speeds = speeds;
        Ok(report)
    }
}
