//! Groups that take in newcomers: core's grow over TCP, for communicators of this API.

use std::task::Poll;
use std::time::{Duration, Instant};

use foldwire::grow::{self, Admission, Connector, GrowError, Grown, MAX_FACT_BYTES, Roster};
use foldwire::store::{Namespace, Store};
use foldwire::{Config, Rank};
use foldwire_tcp::{JoinError, TcpConnector};

use super::join::settings;
use super::{AnyTransport, join_error, stop_check};
use crate::endpoint::with_messages;
use crate::errors::ApiError;
use crate::ffi::call::CoreCommunicator;
use crate::ffi::types::{FW_ABORTED, FW_INVALID_ARGUMENT, FW_TIMEOUT};

/// A communicator of a new group.
#[derive(Debug)]
pub struct GrownCommunicator {
    /// The communicator.
    pub comm: CoreCommunicator,
    /// Number of times that the group has grown.
    pub generation: u64,
    /// The survivors' bytes for newcomers.
    pub facts: Vec<u8>,
    /// By rank, the rank in the group before; `None` for a newcomer.
    pub old_ranks: Vec<Option<u32>>,
}

/// Makes endpoints over TCP.
struct AnyConnector(TcpConnector);

impl Connector for AnyConnector {
    type Transport = AnyTransport;
    type Error = JoinError;

    fn now(&self) -> Duration {
        self.0.now()
    }

    fn idle(&mut self, budget: Duration) {
        self.0.idle(budget);
    }

    fn unique(&mut self) -> Result<u128, JoinError> {
        self.0.unique()
    }

    fn offer(&mut self, unique: u128) -> Result<Vec<u8>, JoinError> {
        self.0.offer(unique)
    }

    fn accepts(&self, unique: u128, offer: &[u8]) -> bool {
        self.0.accepts(unique, offer)
    }

    fn prove(&self, plan: &[u8]) -> Vec<u8> {
        self.0.prove(plan)
    }

    fn is_proven(&self, plan: &[u8], proof: &[u8]) -> bool {
        self.0.is_proven(plan, proof)
    }

    fn poll_connect(
        &mut self,
        rank: usize,
        offers: &[&[u8]],
        plan: &[u8],
        limit: Duration,
    ) -> Poll<Result<AnyTransport, JoinError>> {
        stop_check::check().map_err(|_| JoinError::Exchange("the call was stopped".into()))?;
        let connected = self.0.poll_connect(rank, offers, plan, limit);
        connected.map_ok(|endpoint| AnyTransport::Tcp(Box::new(endpoint)))
    }
}

/// Survivors' side of a grow: forms a group of the ranks that call this and of newcomers that wait
/// in the store, as `foldwire_tcp::admit` does. `take` gives up the communicator. It is called when
/// the other arguments are checked.
///
/// # Errors
/// The errors of `take` and of `foldwire_tcp::admit`.
pub fn admit(
    take: impl FnOnce() -> Result<CoreCommunicator, ApiError>,
    store: &mut dyn Store,
    job: &str,
    wanted: &Admission<'_>,
) -> Result<GrownCommunicator, ApiError> {
    let (mut store, mut connector) = prepare(store, job, wanted.patience)?;
    let n_bytes = wanted.facts.len();
    if n_bytes > MAX_FACT_BYTES {
        return Err(fault(GrowError::FactsTooLong { n_bytes }));
    }
    let comm = take()?;
    let (config, n_calls) = (comm.config(), comm.n_calls());
    let grown = comm.admit(&mut store, &mut connector, wanted).map_err(fault)?;
    finish(grown, &mut store, config, n_calls)
}

/// Newcomer's side of a grow: waits until a group admits this process.
///
/// # Errors
/// The errors of `foldwire_tcp::rejoin`.
pub fn rejoin(
    store: &mut dyn Store,
    job: &str,
    limit: Duration,
    config: Config,
    n_calls: usize,
) -> Result<GrownCommunicator, ApiError> {
    let (mut store, mut connector) = prepare(store, job, limit)?;
    let start = Instant::now();
    loop {
        let left = limit.saturating_sub(start.elapsed());
        let rejoined = grow::block_on(grow::rejoin(&mut store, &mut connector, left));
        let grown = rejoined.map_err(fault)?;
        let config = grown.roster.tuning.configure(config);
        match finish(grown, &mut store, config, n_calls) {
            // The group has formed without this process. Another one may need it.
            Err(fault) if is_of_group(&fault) && start.elapsed() < limit => {}
            finished => return finished,
        }
    }
}

/// Returns whether an error is of a vote, and not of this process's arguments.
fn is_of_group(fault: &ApiError) -> bool {
    let error = fault.error;
    error.is_some_and(|error| !error.is_usage()) && stop_check::check().is_ok()
}

fn prepare<'s>(
    store: &'s mut dyn Store,
    job: &str,
    limit: Duration,
) -> Result<(Namespace<&'s mut dyn Store>, AnyConnector), ApiError> {
    let store = Namespace::new(store, &format!("{job}/grow")).map_err(join_error::from_store)?;
    Ok((store, AnyConnector(TcpConnector::new(settings(limit)?))))
}

/// Lets the members vote, and serves the store meanwhile.
fn finish(
    grown: Grown<AnyTransport>,
    store: &mut dyn Store,
    config: Config,
    n_calls: usize,
) -> Result<GrownCommunicator, ApiError> {
    let Grown { group, roster } = grown;
    let comm = with_messages(group, config, n_calls)?.vote(&roster, store, n_calls)?;
    let Roster { generation, facts, members, .. } = roster;
    let old_rank = |rank| {
        let at = comm.transport_rank(Rank::new(rank))?;
        members.get(at.index())?.old_rank
    };
    let old_ranks = (0..comm.size()).map(old_rank).collect();
    Ok(GrownCommunicator { comm, generation, facts, old_ranks })
}

fn fault(error: GrowError<JoinError>) -> ApiError {
    let message = error.to_string();
    match error {
        GrowError::Group(error) => error.into(),
        GrowError::Store(error) => join_error::from_store(error),
        GrowError::Connect(error) => join_error::from_tcp(error),
        GrowError::NotAdmitted { .. } => ApiError::new(FW_TIMEOUT, message),
        GrowError::FactsTooLong { .. } => ApiError::new(FW_INVALID_ARGUMENT, message),
        _ => ApiError::new(FW_ABORTED, message),
    }
}
