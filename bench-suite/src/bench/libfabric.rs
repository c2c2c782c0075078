//! One rank of a job over libfabric, started by `foldwire launch`, mpirun or Slurm.

use anyhow::Context;
use foldwire::Float;
use foldwire_bootstrap::{Exchange, Place, Rendezvous};
use foldwire_libfabric::Settings as Fabric;

use super::play::{Extras, Play, Setting};
use super::{Settings, Source, show};
use crate::cli::BenchArgs;
use crate::values::LinkRate;

/// Plays this process's rank.
pub(super) fn run<T: Float + Into<f64>, P: Play<T>>(
    args: &BenchArgs,
    source: &Source,
) -> anyhow::Result<()> {
    let place = Place::from_env()?;
    let (size, rank) = (place.size, place.rank.index());
    // All ranks find the same fault; one says so.
    let settings = match Settings::new::<T>(args, size) {
        Err(_) if rank > 0 => return Ok(()),
        settings => settings?,
    };
    let mut fabric = Fabric::from_env()?;
    if let Some(name) = &args.provider {
        fabric = fabric.provider(name);
    }
    if let Some(n_bytes) = args.frame {
        fabric.options.frame_bytes = n_bytes;
    }
    fabric.options.link_rate = args.link.as_ref().and_then(LinkRate::bytes_per_s);
    let party = Rendezvous::new(place).join().context("ranks cannot meet")?;
    // The others hear of it, since the ranks have met. How many share this memory is not known.
    settings.check_room::<T>(size, rank..rank + 1)?;
    let data = source.data::<T>(party.size());
    let endpoint = foldwire_libfabric::join(&fabric, party)?;
    let backend = format!("libfabric ({})", endpoint.net().provider());
    let setting = Setting { args, settings: &settings, data: &data, backend: &backend };
    let results = P::play(setting, endpoint, Extras::default());
    let results = results.with_context(|| format!("rank {rank}"))?;
    if rank == 0 { show(args, &results) } else { Ok(()) }
}
