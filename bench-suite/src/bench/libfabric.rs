//! One rank of a group over libfabric, started by `foldwire launch`, mpirun, Slurm, or by hand.

use anyhow::Context;
use foldwire::{Communicator, Element};
use foldwire_bootstrap::{Exchange, Rendezvous};
use foldwire_libfabric::Endpoint;

use super::stage::{Barrier, barrier};
use super::{Contest, Head, Settings, Source, config, presets, progress, show};
use crate::cli::BenchArgs;
use crate::values::LinkRate;

/// Plays this process's rank.
pub(super) fn run<T: Element + Into<f64>>(args: &BenchArgs, source: &Source) -> anyhow::Result<()> {
    let party = Rendezvous::from_env()
        .and_then(Rendezvous::join)
        .context("the ranks do not come together (foldwire launch -n 4 -- foldwire bench …)")?;
    let (size, rank) = (party.size(), party.rank().index());
    // All ranks find the same fault; one says so.
    let ours = match Settings::new::<T>(args, size) {
        Err(_) if rank > 0 => return Ok(()),
        settings => settings?,
    };
    let mut settings = foldwire_libfabric::Settings::from_env()?;
    settings.options.frame_bytes = args.frame.unwrap_or(settings.options.frame_bytes);
    settings.options.link_rate = args.link.as_ref().and_then(LinkRate::bytes_per_s);
    let endpoint = foldwire_libfabric::join(&settings, party)?;
    let backend = format!("libfabric ({})", endpoint.net().provider());
    let data = source.data::<T>(size);
    let comm = Communicator::with_config(endpoint, config(args))?;
    let head = Head::new(args, &comm, &backend, &data, &ours);
    let progress = progress(rank);
    let mut wait: Box<Barrier<Endpoint>> = Box::new(barrier);
    let contest = Contest {
        comm,
        barrier: wait.as_mut(),
        contestants: presets(args),
        settings: &ours,
        data: &data,
        progress: &progress,
    };
    let outcome = contest.play()?;
    if rank == 0 { show(args, &head, &outcome) } else { Ok(()) }
}
