//! The MPI library's own calls as an implementation.

use foldwire::{Communicator, Report, Transport};
use foldwire_arguments::P2pTest;
use mpi::point_to_point::{self, Destination, Source as _};
use mpi::topology::{Communicator as _, SimpleCommunicator};
use mpi::traits::CommunicatorCollectives;

use super::implementation::{MPI, MessageImplementation};

/// The MPI library itself: `MPI_Send` and `MPI_Recv`, `MPI_Sendrecv`, `MPI_Barrier`.
pub(super) struct LibraryMessages(SimpleCommunicator);

impl LibraryMessages {
    pub(super) fn new(world: &SimpleCommunicator) -> Self {
        Self(world.duplicate())
    }
}

impl<X: Transport> MessageImplementation<X> for LibraryMessages {
    fn name(&self, _: P2pTest) -> Option<&str> {
        Some(MPI)
    }

    fn send(
        &mut self,
        _: &mut Communicator<X>,
        data: &[f32],
        to: usize,
    ) -> anyhow::Result<Option<Report>> {
        self.0.process_at_rank(to as i32).send(data);
        Ok(None)
    }

    fn recv(
        &mut self,
        _: &mut Communicator<X>,
        data: &mut [f32],
        from: usize,
    ) -> anyhow::Result<Option<Report>> {
        self.0.process_at_rank(from as i32).receive_into(data);
        Ok(None)
    }

    fn send_recv(
        &mut self,
        _: &mut Communicator<X>,
        (data, to): (&[f32], usize),
        (recv, from): (&mut [f32], usize),
    ) -> anyhow::Result<Option<Report>> {
        let [to, from] = [to, from].map(|rank| self.0.process_at_rank(rank as i32));
        point_to_point::send_receive_into(data, &to, recv, &from);
        Ok(None)
    }

    fn barrier(&mut self, _: &mut Communicator<X>) -> anyhow::Result<()> {
        self.0.barrier();
        Ok(())
    }
}
