//! Implementations: everything that can send values from rank to rank, and run a barrier.

use foldwire::{Communicator, Incoming, Outgoing, Plan, Rank, Report, Transport};
use foldwire_arguments::P2pTest;

/// Name of the implementation that sends values uncompressed.
pub(super) const RAW: &str = "raw";
/// Name of the implementation by the MPI library's own calls.
pub(super) const MPI: &str = "mpi";
/// Tag of all messages.
const TAG: u32 = 0;

/// An implementation of messages. Foldwire's implementations return a report of each call.
pub(super) trait MessageImplementation<X: Transport> {
    /// Returns the name for this operation, or `None` if the operation is not supported.
    fn name(&self, what: P2pTest) -> Option<&str>;

    /// Sends values to a rank.
    fn send(
        &mut self,
        comm: &mut Communicator<X>,
        data: &[f32],
        to: usize,
    ) -> anyhow::Result<Option<Report>>;

    /// Receives `data.len()` values from a rank.
    fn recv(
        &mut self,
        comm: &mut Communicator<X>,
        data: &mut [f32],
        from: usize,
    ) -> anyhow::Result<Option<Report>>;

    /// Sends to a rank and receives from another, concurrently.
    fn send_recv(
        &mut self,
        comm: &mut Communicator<X>,
        send: (&[f32], usize),
        recv: (&mut [f32], usize),
    ) -> anyhow::Result<Option<Report>>;

    /// Returns when all ranks have called it.
    fn barrier(&mut self, comm: &mut Communicator<X>) -> anyhow::Result<()>;
}

/// Foldwire's messages with a plan.
pub(super) struct PlanMessages {
    pub(super) name: String,
    pub(super) plan: Plan,
}

impl<X: Transport> MessageImplementation<X> for PlanMessages {
    fn name(&self, what: P2pTest) -> Option<&str> {
        match what {
            P2pTest::PingPong | P2pTest::SendRecv => Some(&self.name),
            // The barrier does not depend on the bound, so only one plan runs it.
            P2pTest::Barrier => (self.name == RAW).then_some("foldwire"),
        }
    }

    fn send(
        &mut self,
        comm: &mut Communicator<X>,
        data: &[f32],
        to: usize,
    ) -> anyhow::Result<Option<Report>> {
        Ok(Some(comm.send(data, Rank::new(to), TAG, &self.plan)?))
    }

    fn recv(
        &mut self,
        comm: &mut Communicator<X>,
        data: &mut [f32],
        from: usize,
    ) -> anyhow::Result<Option<Report>> {
        Ok(Some(comm.recv(data, Rank::new(from), TAG)?))
    }

    fn send_recv(
        &mut self,
        comm: &mut Communicator<X>,
        (data, to): (&[f32], usize),
        (received, from): (&mut [f32], usize),
    ) -> anyhow::Result<Option<Report>> {
        let send = Outgoing::new(Rank::new(to), TAG, data);
        let recv = Incoming::new(Rank::new(from), TAG, received);
        Ok(Some(comm.send_recv(send, recv, &self.plan)?))
    }

    fn barrier(&mut self, comm: &mut Communicator<X>) -> anyhow::Result<()> {
        comm.barrier()?;
        Ok(())
    }
}
