//! The point-to-point benchmark on one rank of a job of processes, which `foldwire launch`, mpirun
//! or Slurm has started. The ranks connect through the bootstrap before a network backend joins
//! them.

use anyhow::Context;
use foldwire::{Communicator, Transport};
use foldwire_arguments::P2pArgs;
use foldwire_bootstrap::{Exchange, Place, Rendezvous, Session};
use foldwire_workbench::data::FieldSource;

use super::benchmark::MessageBenchmark;
use super::output::{P2pHead, P2pResults};
use super::{check, plans, show};
use crate::bench::runner::{Barrier, barrier};
use crate::bench::{config_from_env, progress};

/// Runs this process's rank. `join` makes an endpoint from the bootstrapped group, and returns it
/// with its name for the results.
pub(super) fn run<X: Transport>(
    args: &P2pArgs,
    source: &FieldSource,
    join: impl FnOnce(Session) -> anyhow::Result<(X, String)>,
) -> anyhow::Result<()> {
    let place = Place::from_env()?;
    let (size, rank) = (place.size, place.rank.index());
    // The number of ranks on this machine is unknown, so only this rank's memory is checked.
    match check(args, size, 1) {
        // All ranks detect the same error, and only rank 0 reports it.
        Err(_) if rank > 0 => return Ok(()),
        checked => checked?,
    }
    let session =
        Rendezvous::new(place).join().context("the ranks cannot connect to each other")?;
    // The values of all ranks, so that a receiver can check what it received.
    let data = source.data::<f32>(session.size());
    let (endpoint, backend) = join(session)?;
    let comm = Communicator::with_config(endpoint, config_from_env()?)?;
    let head = P2pHead::new(args, &comm, &backend, &data);
    let progress = progress(rank);
    let mut wait: Box<Barrier<'_, Communicator<X>>> = Box::new(barrier);
    let (barrier, implementations, data) = (wait.as_mut(), plans(args), &data);
    let benchmark =
        MessageBenchmark { args, comm, barrier, implementations, data, progress: &progress };
    let rows = benchmark.run().with_context(|| format!("rank {rank}"))?;
    if rank == 0 { show(args, &P2pResults { head, rows }) } else { Ok(()) }
}
