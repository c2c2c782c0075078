//! Ranks find each other and exchange the identity of their process. They use memory if all are in
//! one process, otherwise TCP. All ranks decide alike, because all have the same information.

use std::collections::BTreeMap;
use std::io;
use std::net::TcpStream;
use std::process;
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use foldwire::Rank;
use foldwire::store::Store;
use foldwire_bootstrap::{
    Exchange, Job, Launcher, MAX_RANKS, Place, Rendezvous, Root, Session, StoreExchange,
    StorePlace, Token,
};
use foldwire_tcp::Settings;

use super::unique_id::UniqueId;
use super::{AnyTransport, UniqueIdBytes, join_error, threads};
use crate::errors::ApiError;
use crate::ffi::call::existing;

/// Longest wait for rank 0's listening socket to answer a probe.
const PROBE_LIMIT: Duration = Duration::from_secs(5);
/// Longest wait for the connections between ranks that have found each other.
const CONNECT_LIMIT: Duration = Duration::from_secs(10);
/// Longest wait for sent data to arrive when a communicator is destroyed.
const LINGER: Duration = Duration::from_secs(60);

/// Random text that distinguishes this process from all others. A fork inherits it, so ranks also
/// compare process ids.
static PROCESS_NONCE: LazyLock<String> =
    LazyLock::new(|| Token::random().map_or_else(|_| String::new(), |it| it.reveal().to_owned()));

/// Endpoints of ranks in this process, by secret, until each rank has taken its own.
static LOCAL_RANKS: Mutex<BTreeMap<String, Vec<Option<AnyTransport>>>> =
    Mutex::new(BTreeMap::new());

/// Locks [`LOCAL_RANKS`]. A poisoned lock is ignored: no panic can leave the map inconsistent.
pub(crate) fn local_ranks() -> MutexGuard<'static, BTreeMap<String, Vec<Option<AnyTransport>>>> {
    LOCAL_RANKS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Checks the arguments of a join. Between `fwGroupStart` and `fwGroupEnd`, all joins are checked
/// before the first one starts.
pub(crate) fn check(
    bytes: &UniqueIdBytes,
    n_ranks: usize,
    rank: usize,
    limit: Duration,
) -> Result<(), ApiError> {
    let id = UniqueId::read(bytes)?;
    if !(1..=MAX_RANKS).contains(&n_ranks) {
        return Err(ApiError::argument(format!("{n_ranks} ranks; there can be 1 to {MAX_RANKS}")));
    }
    existing(rank, "rank", n_ranks)?;
    settings(limit)?;
    if rank == 0 && !id.has_listener() { Err(no_listener()) } else { Ok(()) }
}

/// The error of a rank 0 that has no listening socket.
fn no_listener() -> ApiError {
    ApiError::argument(
        "rank 0 must join in the process that called fwGetUniqueId, and only once for each id",
    )
}

/// Joins the ranks of a unique id. Returns this rank's endpoint when all ranks have come.
pub fn join(
    bytes: &UniqueIdBytes,
    n_ranks: usize,
    rank: usize,
    limit: Duration,
) -> Result<AnyTransport, ApiError> {
    check(bytes, n_ranks, rank, limit)?;
    let id = UniqueId::read(bytes)?;
    let settings = settings(limit)?.token(id.secret.clone());
    let UniqueId { address, secret } = &id;
    let place = Place {
        rank: Rank::new(rank),
        size: n_ranks,
        root: Root::new(address.ip().to_string(), address.port()),
        token: Some(secret.clone()),
        // The port may have belonged to another id before, whose ranks may still come.
        job: Job::named(&["unique id", secret.reveal()]),
        launcher: Launcher::Foldwire,
    };
    let mut rendezvous = Rendezvous::new(place).limit(limit);
    if rank == 0 {
        rendezvous = rendezvous.listener(id.take_listener().ok_or_else(no_listener)?);
    } else if is_not_listening(&id, limit) {
        return Err(join_error::not_listening(*address));
    }
    let mut session =
        rendezvous.join().map_err(|error| join_error::from_unique_id(error, *address))?;
    connect(&mut session, &settings, secret.reveal(), |error| {
        join_error::from_unique_id(error, *address)
    })
}

/// Joins the processes that a launcher started together with this one. Without a launcher, this
/// process is the only rank.
///
/// # Errors
/// If the launcher's environment variables are invalid, or a rank is missing after `limit`.
pub fn join_env(limit: Duration) -> Result<AnyTransport, ApiError> {
    let settings = settings(limit)?;
    let mut session = Rendezvous::from_env_within(limit)
        .and_then(Rendezvous::join)
        .map_err(join_error::from_bootstrap)?;
    if session.size() == 1 {
        return only(threads(1, None)?);
    }
    tcp(&settings, &mut session)
}

/// Joins the processes that meet in a store.
///
/// # Errors
/// If the store fails, the place is invalid, or a rank is missing after its limit.
pub fn join_store(store: &mut dyn Store, place: StorePlace) -> Result<AnyTransport, ApiError> {
    let settings = settings(place.limit)?;
    let mut exchange = StoreExchange::new(store, place).map_err(join_error::from_bootstrap)?;
    if exchange.size() == 1 {
        return only(threads(1, None)?);
    }
    tcp(&settings, &mut exchange)
}

/// Reads the settings of TCP from the environment, and applies a time limit.
pub(super) fn settings(limit: Duration) -> Result<Settings, ApiError> {
    let mut settings =
        Settings::from_env().map_err(|error| ApiError::argument(error.to_string()))?;
    settings.limit = limit.min(CONNECT_LIMIT);
    settings.options.linger = limit.min(LINGER);
    Ok(settings)
}

/// Returns whether rank 0's socket is closed. It was open before the id existed, so a refused
/// connection means that it was closed.
fn is_not_listening(id: &UniqueId, limit: Duration) -> bool {
    let limit = limit.clamp(Duration::from_millis(1), PROBE_LIMIT);
    let probe = TcpStream::connect_timeout(&id.address, limit);
    probe.is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused)
}

/// Exchanges process identities, and creates this rank's endpoint over memory or TCP.
fn connect(
    session: &mut Session,
    settings: &Settings,
    secret: &str,
    fault_of: impl FnOnce(foldwire_bootstrap::Error) -> ApiError,
) -> Result<AnyTransport, ApiError> {
    let process = format!("{} {}", *PROCESS_NONCE, process::id());
    let all_processes = session.all_gather(process.as_bytes()).map_err(fault_of)?;
    let is_one =
        !PROCESS_NONCE.is_empty() && all_processes.iter().all(|each| each == process.as_bytes());
    if !is_one || session.size() > super::MAX_LOCAL_RANKS {
        return tcp(settings, session);
    }
    let mut local_ranks = local_ranks();
    if !local_ranks.contains_key(secret) {
        let endpoints = threads(session.size(), None)?.into_iter().map(Some).collect();
        local_ranks.insert(secret.to_owned(), endpoints);
    }
    let endpoints = local_ranks.get_mut(secret).map_or(&mut [][..], |endpoints| endpoints);
    let endpoint = endpoints.get_mut(session.rank().index()).and_then(Option::take);
    if endpoints.iter().all(Option::is_none) {
        local_ranks.remove(secret);
    }
    only(endpoint)
}

/// Connects all ranks over TCP.
fn tcp<X: Exchange>(settings: &Settings, exchange: &mut X) -> Result<AnyTransport, ApiError> {
    let endpoint = foldwire_tcp::join(settings, exchange).map_err(join_error::from_tcp)?;
    Ok(AnyTransport::Tcp(Box::new(endpoint)))
}

/// Returns the single endpoint. If there is none, this rank has taken it already.
fn only(endpoints: impl IntoIterator<Item = AnyTransport>) -> Result<AnyTransport, ApiError> {
    endpoints.into_iter().next().ok_or_else(|| ApiError::usage("this rank has already joined"))
}
