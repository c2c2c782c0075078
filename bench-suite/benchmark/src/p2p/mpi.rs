//! One rank of an MPI job, and the MPI library's own calls as an implementation.

use anyhow::Context;
use foldwire::{Communicator, Report, Transport};
use foldwire_arguments::values::LinkRate;
use foldwire_arguments::{P2pArgs, P2pTest};
use foldwire_mpi_native as native;
use foldwire_workbench::data::FieldSource;
use foldwire_workbench::streams;
use mpi::point_to_point::{self, Destination, Source as _};
use mpi::topology::{Communicator as _, SimpleCommunicator};
use mpi::traits::CommunicatorCollectives;

use super::benchmark::MessageBenchmark;
use super::implementation::{MPI, MessageImplementation};
use super::output::{P2pHead, P2pResults};
use super::{check, plans, show};
use crate::bench::runner::Barrier;
use crate::bench::{config_from_env, progress};

/// Runs this process's rank.
pub(super) fn run(args: &P2pArgs, source: &FieldSource) -> anyhow::Result<()> {
    let universe = mpi::initialize().context("MPI does not start")?;
    let world = universe.world();
    // The number of ranks on this machine is unknown, so only this rank's memory is checked.
    match check(args, world.size() as usize, 1) {
        // All ranks detect the same error, and only rank 0 reports it.
        Err(_) if world.rank() > 0 => return Ok(()),
        checked => checked?,
    }
    match run_rank(args, source, &world) {
        Ok(results) if world.rank() == 0 => show(args, &results),
        Ok(_) => Ok(()),
        Err(error) => {
            // Other ranks may wait for this rank in an MPI call, which has no timeout.
            streams::remark(format_args!("error: rank {}: {error:#}", world.rank()));
            world.abort(1)
        }
    }
}

fn run_rank(
    args: &P2pArgs,
    source: &FieldSource,
    world: &SimpleCommunicator,
) -> anyhow::Result<P2pResults> {
    let data = source.data::<f32>(world.size() as usize);
    let mut options = foldwire_mpi::Options::default();
    options.link_rate = args.link.as_ref().and_then(LinkRate::bytes_per_s);
    let endpoint = foldwire_mpi::join_with(world, options)?;
    let comm = Communicator::with_config(endpoint, config_from_env()?)?;
    let head = P2pHead::new(args, &comm, &format!("MPI ({})", native::library()), &data);
    let mut implementations = plans(args);
    implementations.push(Box::new(LibraryMessages(world.duplicate())));
    let progress = progress(world.rank() as usize);
    let for_barrier = world.duplicate();
    let mut wait: Box<Barrier<'_, Communicator<foldwire_mpi::Endpoint>>> = Box::new(move |_| {
        for_barrier.barrier();
        Ok(())
    });
    let (barrier, data) = (wait.as_mut(), &data);
    let benchmark =
        MessageBenchmark { args, comm, barrier, implementations, data, progress: &progress };
    Ok(P2pResults { head, rows: benchmark.run()? })
}

/// The MPI library itself: `MPI_Send` and `MPI_Recv`, `MPI_Sendrecv`, `MPI_Barrier`.
struct LibraryMessages(SimpleCommunicator);

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
