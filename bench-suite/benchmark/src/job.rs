//! Ranks and how they meet and end, whatever they measure: threads of this process, or processes of
//! a job, which `foldwire launch`, mpirun or Slurm has started.
//!
//! Processes tell each other whether their set-up succeeded. Usually all detect the same error of
//! use, and only rank 0 reports it. The ranks of a network backend connect through the bootstrap
//! before the backend joins them. Over MPI a rank that fails later ends the job, because others may
//! wait for it in an MPI call, which has no timeout.

#[cfg(feature = "libfabric")]
mod libfabric;
#[cfg(feature = "mpi")]
mod mpi;
#[cfg(feature = "tcp")]
mod tcp;

use foldwire::Transport;
use foldwire_arguments::{BackendArg, NetworkArgs};
#[cfg(any(feature = "mpi", feature = "libfabric", feature = "tcp", test))]
use foldwire_fields::usage::UsageError;
#[cfg(any(test, not(all(feature = "mpi", feature = "libfabric", feature = "tcp"))))]
use foldwire_fields::usage::usage;
use foldwire_threads::World;
use foldwire_workbench::ranks;

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

/// Ranks, as the user asks for them.
#[derive(Clone, Copy, Debug)]
#[cfg_attr(
    not(any(feature = "mpi", feature = "libfabric", feature = "tcp")),
    expect(unused, reason = "no backend is built")
)]
pub(crate) struct Job<'a> {
    pub(crate) network: &'a NetworkArgs,
    /// Number of ranks that are threads, if the user names none.
    pub(crate) default_ranks: usize,
    /// Bytes per second of a rank's link. `None`: the environment's, or the default.
    pub(crate) link_rate: Option<f64>,
    pub(crate) frame_bytes: Option<usize>,
}

/// Runs all ranks as threads, or this process's rank over another backend. `measurement` takes the
/// number of ranks, and how many of them are known to be on this machine. It returns the same error
/// on all ranks.
///
/// # Errors
/// Fails if the backend is not built, the ranks do not meet, or the measurement fails.
pub(crate) fn run<M: Measurement<Results: Send> + Sync>(
    job: Job<'_>,
    measurement: impl FnOnce(usize, usize) -> anyhow::Result<M>,
) -> anyhow::Result<()> {
    match job.network.backend {
        BackendArg::Threads => {
            let size = job.network.ranks.unwrap_or(job.default_ranks);
            let measurement = measurement(size, size)?;
            let results = on_threads(ranks::world(size, job.link_rate), &measurement)?;
            measurement.show("threads", &results)
        }
        #[cfg(feature = "mpi")]
        BackendArg::Mpi => mpi::run(job, |size| measurement(size, 1)),
        #[cfg(feature = "libfabric")]
        BackendArg::Libfabric => network::run(libfabric::joins(job)?, |size| measurement(size, 1)),
        #[cfg(feature = "tcp")]
        BackendArg::Tcp => network::run(tcp::joins(job)?, |size| measurement(size, 1)),
        #[cfg(not(all(feature = "mpi", feature = "libfabric", feature = "tcp")))]
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

/// Runs all ranks as threads of this world. Returns rank 0's results.
///
/// # Errors
/// The error of the rank that failed first.
pub(crate) fn on_threads<M: Measurement<Results: Send> + Sync>(
    world: World,
    measurement: &M,
) -> anyhow::Result<M::Results> {
    let ranks = world.run_endpoints(|endpoint| measurement.run_rank(endpoint, "threads", None));
    Ok(ranks::results(ranks)?.swap_remove(0))
}

/// Bytes of an error message that other ranks learn.
#[cfg(any(feature = "mpi", feature = "libfabric", feature = "tcp", test))]
const MAX_FAULT: usize = 1000;

/// Returns this rank's set-up if it succeeded on all ranks. `gather` collects a text of each rank,
/// of up to [`MAX_FAULT`] bytes. `None` if it failed in the same way on all ranks, and rank 0
/// reports that.
///
/// # Errors
/// The error of the first rank that has one, on all ranks.
#[cfg(any(feature = "mpi", feature = "libfabric", feature = "tcp", test))]
fn agree<M>(
    rank: usize,
    set_up: anyhow::Result<M>,
    gather: impl FnOnce(&[u8]) -> anyhow::Result<Vec<Vec<u8>>>,
) -> anyhow::Result<Option<M>> {
    const OF_USE: u8 = b'u';
    let mut fault = Vec::new();
    if let Err(error) = &set_up {
        fault.push(if error.is::<UsageError>() { OF_USE } else { b' ' });
        fault.extend(format!("{error:#}").bytes());
        fault.truncate(MAX_FAULT);
    }
    let faults = match gather(&fault) {
        Ok(faults) => faults,
        // A rank that knows why it fails says so.
        Err(lost) => return set_up.and(Err(lost)),
    };
    let Some(first) = faults.iter().position(|fault| !fault.is_empty()) else {
        return set_up.map(Some);
    };
    if rank > 0 && faults.iter().all(|fault| *fault == faults[0]) {
        return Ok(None);
    }
    match set_up {
        Err(error) if rank == first => Err(error),
        _ => {
            let text = format!("rank {first}: {}", String::from_utf8_lossy(&faults[first][1..]));
            let is_of_use = faults[first][0] == OF_USE;
            Err(if is_of_use { UsageError::new(text).into() } else { anyhow::anyhow!(text) })
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
    use foldwire_bootstrap::{Exchange, Place, Rendezvous, Session};

    use super::{Measurement, agree};

    /// Runs this process's rank. `join` makes an endpoint from the bootstrapped group, and returns
    /// it with its name for the results.
    pub(super) fn run<M: Measurement, X: Transport + 'static>(
        join: impl FnOnce(Session) -> anyhow::Result<(X, String)>,
        measurement: impl FnOnce(usize) -> anyhow::Result<M>,
    ) -> anyhow::Result<()> {
        let place = Place::from_env()?;
        let rank = place.rank.index();
        let set_up = measurement(place.size);
        let mut joined = None;
        let agreed = agree(rank, set_up, |fault| {
            let session = Rendezvous::new(place).join();
            let session = session.context("the ranks cannot connect to each other")?;
            Ok(joined.insert(session).all_gather(fault)?)
        })?;
        let (Some(measurement), Some(session)) = (agreed, joined) else { return Ok(()) };
        let (endpoint, backend) = join(session)?;
        let results = measurement.run_rank(endpoint, &backend, None);
        let results = results.with_context(|| format!("rank {rank}"))?;
        if rank == 0 { measurement.show(&backend, &results) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns each rank's agreement.
    fn agreed(set_ups: &[Result<u8, anyhow::Error>]) -> Vec<anyhow::Result<Option<u8>>> {
        let copy = |set_up: &Result<u8, anyhow::Error>| match set_up {
            Ok(value) => Ok(*value),
            Err(error) if error.is::<UsageError>() => Err(usage!("{error}").into()),
            Err(error) => Err(anyhow::anyhow!("{error:#}")),
        };
        let mut texts = Vec::new();
        for (rank, set_up) in set_ups.iter().enumerate() {
            let _ = agree(rank, copy(set_up), |text| {
                texts.push(text.to_vec());
                Ok(Vec::new())
            });
        }
        let ranks = set_ups.iter().enumerate();
        ranks.map(|(rank, set_up)| agree(rank, copy(set_up), |_| Ok(texts.clone()))).collect()
    }

    #[test]
    fn a_set_up_that_fails_on_one_rank_fails_on_all() {
        let wrong = || Err(usage!("--root 7 is no rank").into());
        let told = agreed(&[Ok(1), wrong(), Ok(3)]);
        for (rank, result) in told.iter().enumerate() {
            let error = result.as_ref().unwrap_err();
            let by = if rank == 1 { "" } else { "rank 1: " };
            assert_eq!(error.to_string(), format!("{by}--root 7 is no rank"));
            assert!(error.is::<UsageError>());
        }
        let long = agreed(&[Ok(1), Err(anyhow::anyhow!("é".repeat(MAX_FAULT)))]);
        let error = long[0].as_ref().unwrap_err();
        assert!(error.to_string().starts_with("rank 1: éé") && !error.is::<UsageError>());
    }

    #[test]
    fn what_fails_alike_on_all_ranks_is_reported_once() {
        let wrong = || Err(usage!("--root 7 is no rank").into());
        let told = agreed(&[wrong(), wrong()]);
        assert!(told[0].is_err() && matches!(told[1], Ok(None)));
        let fine = agreed(&[Ok(1), Ok(2)]);
        assert!(matches!(fine[..], [Ok(Some(1)), Ok(Some(2))]));
        let alone = agree(1, Err::<u8, _>(anyhow::anyhow!("mine")), |_| anyhow::bail!("lost"));
        assert_eq!(alone.unwrap_err().to_string(), "mine");
        assert_eq!(agree(1, Ok(1), |_| anyhow::bail!("lost")).unwrap_err().to_string(), "lost");
    }
}
