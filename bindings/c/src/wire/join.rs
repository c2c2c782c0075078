//! Ranks meet, tell each other of which process they are, and take memory if it is the same one for
//! all of them, TCP else: so all of them come to the same answer.

use std::collections::BTreeMap;
use std::io;
use std::net::TcpStream;
use std::process;
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use foldwire::Rank;
use foldwire_bootstrap::{
    Exchange, Job, Launcher, MAX_RANKS, Place, Rendezvous, Root, Session, Token,
};
use foldwire_tcp::Settings;

use super::token::Meeting;
use super::{Wire, all, fault, token};
use crate::border::Fault;

/// The longest wait for the first answer of whoever listens.
const KNOCK_LIMIT: Duration = Duration::from_secs(5);
/// The longest wait for connections between ranks that have met.
const CONNECT_LIMIT: Duration = Duration::from_secs(10);
/// The longest wait for what was sent to arrive when a communicator ends.
const LINGER: Duration = Duration::from_secs(60);

/// What no other process has; of one that was forked off this one the number is another.
static PROCESS: LazyLock<String> =
    LazyLock::new(|| Token::random().map_or_else(|_| String::new(), |it| it.reveal().to_owned()));

/// By secret: endpoints of ranks that have met in this process, until each has taken its own.
static TOGETHER: Mutex<BTreeMap<String, Vec<Option<Wire>>>> = Mutex::new(BTreeMap::new());

/// Nothing in here panics half way.
pub(crate) fn together() -> MutexGuard<'static, BTreeMap<String, Vec<Option<Wire>>>> {
    TOGETHER.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Checks a rank that is to join, before it or another of its group has begun.
pub(crate) fn check(
    token: &token::Token,
    n_ranks: usize,
    rank: usize,
    limit: Duration,
) -> Result<(), Fault> {
    let meeting = Meeting::read(token)?;
    if !(1..=MAX_RANKS).contains(&n_ranks) {
        return Err(Fault::argument(format!("{n_ranks} ranks; there may be 1 to {MAX_RANKS}")));
    }
    if rank >= n_ranks {
        let message = format!("rank {rank} does not exist; there are {n_ranks} ranks");
        return Err(Fault::argument(message));
    }
    settings(limit)?;
    if rank == 0 && !meeting.has_listener() { Err(no_listener()) } else { Ok(()) }
}

fn no_listener() -> Fault {
    Fault::argument(
        "rank 0 comes once with a unique id, and is of the process that called fwGetUniqueId",
    )
}

/// The endpoint of a rank of those that come with this token, once all have come.
pub(crate) fn join(
    token: &token::Token,
    n_ranks: usize,
    rank: usize,
    limit: Duration,
) -> Result<Wire, Fault> {
    check(token, n_ranks, rank, limit)?;
    let meeting = Meeting::read(token)?;
    let settings = settings(limit)?.token(meeting.secret.clone());
    let Meeting { address, secret } = &meeting;
    let place = Place {
        rank: Rank::new(rank),
        size: n_ranks,
        root: Root::new(address.ip().to_string(), address.port()),
        token: Some(secret.clone()),
        // Another id's ranks may come to a port that was theirs.
        job: Job::named(&["unique id", secret.reveal()]),
        launcher: Launcher::Foldwire,
    };
    let mut rendezvous = Rendezvous::new(place).limit(limit);
    if rank == 0 {
        rendezvous = rendezvous.listener(meeting.take_listener().ok_or_else(no_listener)?);
    } else if is_refused(&meeting, limit) {
        return Err(fault::nobody(*address));
    }
    let mut party = rendezvous.join().map_err(|error| fault::of_id(error, *address))?;
    meet(&mut party, &settings, secret.reveal(), |error| fault::of_id(error, *address))
}

/// The endpoint of this process among those that were started with it, if any were.
pub(crate) fn join_env(limit: Duration) -> Result<Wire, Fault> {
    let settings = settings(limit)?;
    let mut party = Rendezvous::from_env()
        .and_then(|rendezvous| rendezvous.limit(limit).join())
        .map_err(fault::of)?;
    if party.size() == 1 {
        return only(all(1)?);
    }
    tcp(&settings, &mut party)
}

/// The settings of the environment, with this limit of time.
fn settings(limit: Duration) -> Result<Settings, Fault> {
    let mut settings = Settings::from_env().map_err(|error| Fault::argument(error.to_string()))?;
    settings.limit = limit.min(CONNECT_LIMIT);
    settings.options.linger = limit.min(LINGER);
    Ok(settings)
}

/// Whether nobody listens any more. Who made the token listened before it was there.
fn is_refused(meeting: &Meeting, limit: Duration) -> bool {
    let limit = limit.clamp(Duration::from_millis(1), KNOCK_LIMIT);
    let knock = TcpStream::connect_timeout(&meeting.address, limit);
    knock.is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused)
}

fn meet(
    party: &mut Session,
    settings: &Settings,
    secret: &str,
    fault_of: impl FnOnce(foldwire_bootstrap::Error) -> Fault,
) -> Result<Wire, Fault> {
    let own = format!("{} {}", *PROCESS, process::id());
    let all_processes = party.all_gather(own.as_bytes()).map_err(fault_of)?;
    let is_one = !PROCESS.is_empty() && all_processes.iter().all(|each| each == own.as_bytes());
    if !is_one || party.size() > super::MAX_RANKS {
        return tcp(settings, party);
    }
    let mut together = together();
    if !together.contains_key(secret) {
        let wires = all(party.size())?.into_iter().map(Some).collect();
        together.insert(secret.to_owned(), wires);
    }
    let wires = together.get_mut(secret).map_or(&mut [][..], |wires| wires);
    let own = wires.get_mut(party.rank().index()).and_then(Option::take);
    if wires.iter().all(Option::is_none) {
        together.remove(secret);
    }
    only(own)
}

fn tcp(settings: &Settings, party: &mut Session) -> Result<Wire, Fault> {
    let endpoint = foldwire_tcp::join(settings, party).map_err(fault::of_join)?;
    Ok(Wire::Tcp(Box::new(endpoint)))
}

fn only(wires: impl IntoIterator<Item = Wire>) -> Result<Wire, Fault> {
    wires.into_iter().next().ok_or_else(|| Fault::usage("there is no such rank"))
}
