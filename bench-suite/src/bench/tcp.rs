//! One rank of a job over TCP sockets, started by `foldwire launch`, mpirun or Slurm.

use anyhow::Context;
use foldwire::Float;
use foldwire_bootstrap::{Exchange, Place, Rendezvous};
use foldwire_tcp::{Endpoint, Settings as Sockets};

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
    let mut sockets = sockets(args.streams, args.encrypt, args.link.as_ref())?;
    if let Some(n_bytes) = args.frame {
        sockets.options.frame_bytes = n_bytes;
    }
    let mut party = Rendezvous::new(place).join().context("ranks cannot meet")?;
    // The others hear of it, since the ranks have met. How many share this memory is not known.
    settings.check_room::<T>(size, rank..rank + 1)?;
    let data = source.data::<T>(party.size());
    let endpoint = foldwire_tcp::join(&sockets, &mut party)?;
    let backend = name(&endpoint);
    let setting = Setting { args, settings: &settings, data: &data, backend: &backend };
    let results = P::play(setting, endpoint, Extras::default());
    let results = results.with_context(|| format!("rank {rank}"))?;
    if rank == 0 { show(args, &results) } else { Ok(()) }
}

/// How ranks are connected, by the environment and the command line.
pub(crate) fn sockets(
    streams: Option<usize>,
    encrypt: bool,
    link: Option<&LinkRate>,
) -> anyhow::Result<Sockets> {
    let mut sockets = Sockets::from_env()?;
    sockets.streams = streams.unwrap_or(sockets.streams);
    sockets.encrypt |= encrypt;
    sockets.options.link_rate = link.and_then(LinkRate::bytes_per_s);
    Ok(sockets)
}

/// What results say of the backend.
pub(crate) fn name(endpoint: &Endpoint) -> String {
    let n_streams = endpoint.net().n_streams();
    let streams = if n_streams == 1 { "1 stream".into() } else { format!("{n_streams} streams") };
    let how = if endpoint.net().encrypts() { ", encrypted" } else { "" };
    format!("tcp ({streams}{how})")
}
