//! Ranks of a job of processes, which `foldwire launch`, mpirun or Slurm has started: how they meet
//! and end, whatever they measure.
//!
//! All ranks detect the same errors of use, and only rank 0 reports them. The ranks of a network
//! backend connect through the bootstrap before the backend joins them. Over MPI a rank that fails
//! ends the job, because others may wait for it in an MPI call, which has no timeout.

#[cfg(feature = "libfabric")]
mod libfabric;
#[cfg(feature = "mpi")]
mod mpi;
#[cfg(feature = "tcp")]
mod tcp;

use foldwire::Transport;
use foldwire_arguments::BackendArg;
use foldwire_fields::usage::{UsageError, usage};

use crate::bench::runner::{AnyCommunicator, Barrier, barrier};

/// A measurement that all ranks of a job make together.
pub(crate) trait Measurement {
    /// Results, the same on every rank.
    type Results;

    /// Runs this process's rank. `backend` is the backend's name for the results. Over MPI the
    /// library can take part.
    ///
    /// # Errors
    /// Fails if a call fails on any rank.
    fn run_rank<X: Transport + 'static>(
        &self,
        endpoint: X,
        backend: &str,
        library: Option<&Library>,
    ) -> anyhow::Result<Self::Results>;

    /// Prints results. Only rank 0 calls it.
    ///
    /// # Errors
    /// Fails if they cannot be printed, or are wrong.
    fn show(&self, backend: &str, results: &Self::Results) -> anyhow::Result<()>;
}

/// The MPI library: its communicator of all ranks.
#[cfg(feature = "mpi")]
pub(crate) type Library = ::mpi::topology::SimpleCommunicator;
/// There is no MPI library in this build.
#[cfg(not(feature = "mpi"))]
pub(crate) enum Library {}

/// The user's options of networks. `None`: the environment's, or the default.
#[derive(Clone, Copy, Debug, Default)]
#[cfg_attr(
    not(any(feature = "mpi", feature = "libfabric", feature = "tcp")),
    expect(unused, reason = "no backend is built")
)]
pub(crate) struct NetworkOptions<'a> {
    pub(crate) provider: Option<&'a str>,
    pub(crate) streams: Option<usize>,
    pub(crate) encrypt: bool,
    /// Bytes per second of a rank's link.
    pub(crate) link_rate: Option<f64>,
    pub(crate) frame_bytes: Option<usize>,
}

impl NetworkOptions<'_> {
    /// Refuses these options, and a number of ranks, over a backend that does not have them.
    /// `example` starts the command with mpirun.
    ///
    /// # Errors
    /// A [`UsageError`] for such an option.
    pub(crate) fn check(
        self,
        backend: BackendArg,
        ranks: Option<usize>,
        example: &str,
    ) -> Result<(), UsageError> {
        if backend != BackendArg::Libfabric && self.provider.is_some() {
            return Err(usage!("--provider is for --backend libfabric"));
        }
        if backend != BackendArg::Tcp && (self.streams.is_some() || self.encrypt) {
            return Err(usage!("--streams and --encrypt are for --backend tcp"));
        }
        if backend != BackendArg::Threads && ranks.is_some() {
            return Err(usage!(
                "--ranks is for --backend threads; here the launcher starts the ranks ({example})"
            ));
        }
        Ok(())
    }
}

/// Runs this process's rank over a backend other than threads. `measurement` takes the number of
/// ranks, and returns the same error on all of them.
///
/// # Errors
/// Fails if the backend is not built, the ranks do not meet, or the measurement fails.
#[cfg_attr(
    not(any(feature = "mpi", feature = "libfabric", feature = "tcp")),
    expect(unused, reason = "no backend is built")
)]
pub(crate) fn run<M: Measurement>(
    backend: BackendArg,
    options: NetworkOptions<'_>,
    measurement: impl FnOnce(usize) -> anyhow::Result<M>,
) -> anyhow::Result<()> {
    match backend {
        #[cfg(feature = "mpi")]
        BackendArg::Mpi => mpi::run(options, measurement),
        #[cfg(feature = "libfabric")]
        BackendArg::Libfabric => network::run(libfabric::joins(options)?, measurement),
        #[cfg(feature = "tcp")]
        BackendArg::Tcp => network::run(tcp::joins(options)?, measurement),
        other => {
            let (feature, needs) = match other {
                BackendArg::Mpi => ("mpi", "an MPI library and libclang"),
                BackendArg::Libfabric => ("libfabric", "libfabric and libclang"),
                BackendArg::Tcp | BackendArg::Threads => ("tcp", "nothing else"),
            };
            Err(usage!(
                "this foldwire was built without {feature}; build it with --features {feature} \
                 (which needs {needs})"
            )
            .into())
        }
    }
}

/// Returns the MPI library's barrier if the library takes part, else one over any transport.
pub(crate) fn barrier_of<'b, C: AnyCommunicator + 'b>(
    library: Option<&Library>,
) -> Box<Barrier<'b, C>> {
    match library {
        #[cfg(feature = "mpi")]
        Some(library) => mpi::barrier(library),
        _ => Box::new(barrier),
    }
}

#[cfg(any(feature = "libfabric", feature = "tcp"))]
mod network {
    use anyhow::Context;
    use foldwire::Transport;
    use foldwire_bootstrap::{Place, Rendezvous, Session};

    use super::Measurement;

    /// Runs this process's rank. `join` makes an endpoint from the bootstrapped group, and returns
    /// it with its name for the results.
    pub(super) fn run<M: Measurement, X: Transport + 'static>(
        join: impl FnOnce(Session) -> anyhow::Result<(X, String)>,
        measurement: impl FnOnce(usize) -> anyhow::Result<M>,
    ) -> anyhow::Result<()> {
        let place = Place::from_env()?;
        let rank = place.rank.index();
        let measurement = match measurement(place.size) {
            Err(_) if rank > 0 => return Ok(()),
            measurement => measurement?,
        };
        let session = Rendezvous::new(place).join();
        let session = session.context("the ranks cannot connect to each other")?;
        let (endpoint, backend) = join(session)?;
        let results = measurement.run_rank(endpoint, &backend, None);
        let results = results.with_context(|| format!("rank {rank}"))?;
        if rank == 0 { measurement.show(&backend, &results) } else { Ok(()) }
    }
}
