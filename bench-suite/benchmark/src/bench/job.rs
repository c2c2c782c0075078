//! The benchmark of collectives on one rank of a job of processes, which `foldwire launch`, mpirun
//! or Slurm has started. The ranks connect through the bootstrap before a network backend joins
//! them.

use anyhow::Context;
use foldwire::select::Speeds;
use foldwire::{Float, Transport};
use foldwire_arguments::{BenchArgs, ChooseArgs};
use foldwire_bootstrap::{Exchange, Place, Rendezvous, Session};

use super::call_mode::{BackendExtras, BenchInputs, CallMode};
use super::{FieldSource, Settings, choose, show};

/// Runs this process's rank. `join` makes an endpoint from the bootstrapped group, and returns it
/// with its name for the results.
pub(super) fn run<T: Float + Into<f64>, P: CallMode<T>, X: Transport>(
    args: &BenchArgs,
    source: &FieldSource,
    join: impl FnOnce(Session) -> anyhow::Result<(X, String)>,
) -> anyhow::Result<()> {
    let place = Place::from_env()?;
    let (size, rank) = (place.size, place.rank.index());
    // All ranks detect the same error, and only rank 0 reports it.
    let settings = match Settings::new::<T>(args, size) {
        Err(_) if rank > 0 => return Ok(()),
        settings => settings?,
    };
    let session =
        Rendezvous::new(place).join().context("the ranks cannot connect to each other")?;
    // The other ranks learn of this error, because the bootstrap has connected them. The number of
    // ranks on this machine is unknown, so only this rank's memory is checked.
    settings.check_room::<T>(size, rank..rank + 1)?;
    let data = source.data::<T>(session.size()).with_fill(args.fill);
    let (endpoint, backend) = join(session)?;
    let inputs = BenchInputs { args, settings: &settings, data: &data, backend: &backend };
    let results = P::run_rank(inputs, endpoint, BackendExtras::default());
    let results = results.with_context(|| format!("rank {rank}"))?;
    if rank == 0 { show(args, &results) } else { Ok(()) }
}

/// Runs this process's rank of `foldwire choose`.
pub(super) fn choose<X: Transport>(
    args: &ChooseArgs,
    join: impl FnOnce(Session) -> anyhow::Result<(X, String)>,
) -> anyhow::Result<()> {
    let place = Place::from_env()?;
    let rank = place.rank.index();
    let task = match choose::ChooseTask::new(args, place.size, 1, Speeds::default()) {
        Err(_) if rank > 0 => return Ok(()),
        task => task?,
    };
    let session =
        Rendezvous::new(place).join().context("the ranks cannot connect to each other")?;
    let (endpoint, backend) = join(session)?;
    let rows = task.run_rank(endpoint).with_context(|| format!("rank {rank}"))?;
    if rank == 0 { task.show(&backend, &rows) } else { Ok(()) }
}
