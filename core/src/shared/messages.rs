//! Messages between two ranks of a communicator that has calls under way.

use super::SharedCommunicator;
use crate::collective::{Incoming, Outgoing};
use crate::element::Element;
use crate::error::Error;
use crate::plan::Plan;
use crate::report::Report;
use crate::transport::{Rank, Transport};

/// Calls that are under way go on while a rank waits here. A message has the channel of the next
/// call to itself, so it is made between the same two calls on both ranks, and while fewer than
/// [`n_calls`](Self::n_calls) are under way. A program whose messages keep no order with its calls
/// makes them on a [duplicate](Self::duplicate).
impl<'a, X: Transport + 'a> SharedCommunicator<'a, X> {
    /// As [`Communicator::send`](crate::Communicator::send).
    ///
    /// # Errors
    /// [`Error`]; see [`Error::is_usage`] for those that leave the communicator usable.
    pub fn send<T: Element>(
        &self,
        data: &[T],
        to: Rank,
        tag: u32,
        plan: &Plan,
    ) -> Result<Report, Error> {
        self.exchange(&mut [Outgoing::new(to, tag, data)], &mut [], plan)
    }

    /// As [`Communicator::recv`](crate::Communicator::recv).
    ///
    /// # Errors
    /// [`Error`]; see [`Error::is_usage`] for those that leave the communicator usable.
    pub fn recv<T: Element>(&self, data: &mut [T], from: Rank, tag: u32) -> Result<Report, Error> {
        self.exchange(&mut [], &mut [Incoming::new(from, tag, data)], &Plan::raw())
    }

    /// As [`Communicator::send_recv`](crate::Communicator::send_recv).
    ///
    /// # Errors
    /// [`Error`]; see [`Error::is_usage`] for those that leave the communicator usable.
    pub fn send_recv<'d, T: Element>(
        &self,
        send: Outgoing<'d, T>,
        recv: Incoming<'d, T>,
        plan: &Plan,
    ) -> Result<Report, Error> {
        self.exchange(&mut [send], &mut [recv], plan)
    }

    /// As [`Communicator::exchange`](crate::Communicator::exchange).
    ///
    /// # Errors
    /// [`Error`]; see [`Error::is_usage`] for those that leave the communicator usable.
    ///
    /// # Examples
    /// A dot product is summed up while neighbours exchange what the next step needs:
    /// ```
    /// use foldwire::{Error, Incoming, Op, Outgoing, Plan, Rank, SharedCommunicator, Transport};
    ///
    /// fn step<X: Transport>(
    ///     world: &SharedCommunicator<'_, X>,
    ///     dot: f64,
    ///     edge: &[f64],
    ///     halo: &mut [f64],
    ///     plan: &Plan,
    /// ) -> Result<f64, Error> {
    ///     let (rank, size) = (world.rank().index(), world.size());
    ///     let [before, after] = [rank + size - 1, rank + 1].map(|rank| Rank::new(rank % size));
    ///     let sum = world.start_all_reduce([dot], Op::Sum, &Plan::raw())?;
    ///     let (send, recv) = (Outgoing::new(after, 0, edge), Incoming::new(before, 0, halo));
    ///     world.send_recv(send, recv, plan)?;
    ///     let ([sum], _) = sum.wait().into_result()?;
    ///     Ok(sum)
    /// }
    /// ```
    pub fn exchange<'d, T: Element>(
        &self,
        sends: &mut [Outgoing<'d, T>],
        recvs: &mut [Incoming<'d, T>],
        plan: &Plan,
    ) -> Result<Report, Error> {
        // The seat stays the next one: only the ranks concerned know of a message.
        self.call(|comm, _| comm.exchange(sends, recvs, plan))
    }
}
