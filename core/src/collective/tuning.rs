//! Facts that all ranks must agree on before automatic plans can use them: the speed of links and
//! codecs.

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

/// Number of timed calls. The shortest time counts.
const ROUNDS: usize = 3;

impl<X: Transport> Communicator<X> {
    /// Measures the rate of links, unless it is configured, declared by the transport, or already
    /// measured. Stores it as [`Config::link_rate`].
    ///
    /// All ranks must call this. All get the same rate: the lowest of all ranks' rates in bytes per
    /// second, or infinity if all ranks share a process. With the feature `alloc`, the first calls
    /// of automatic plans also measure the rate without this method.
    ///
    /// `scratch` is overwritten. It should have 1 MiB or more, and must have the same length on all
    /// ranks.
    ///
    /// # Errors
    /// Any [`Error`]. The communicator stays usable after a [usage error](Error::is_usage).
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

    /// Gives all ranks the same [speeds](Config::speeds): the lowest of all ranks' speeds for each
    /// codec. All ranks must call this after each has read or measured its own speeds.
    ///
    /// # Errors
    /// Any [`Error`], after which the communicator is unusable.
    pub fn share_speeds(&mut self) -> Result<Report, Error> {
        let mut speeds = self.config.speeds;
        let report = self.all_reduce(speeds.values_mut(), Op::Min, &Plan::raw())?;
        self.config_mut().speeds = speeds;
        Ok(report)
    }
}
