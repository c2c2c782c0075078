//! The ranks tell each other through the launcher's PMI server where rank 0 listens.
//!
//! Rank 0 listens, and publishes its address, a name for the job, and a secret. All ranks read them
//! after a barrier. A process does this once: later calls return the same [`Meeting`].

use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, UdpSocket};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use std::{fs, io};

use super::{PmiClient, PmiError, PmiServer};
use crate::place::MAX_RANKS;
use crate::root::{Root, resolve_within};
use crate::token::Token;

/// Key and first word of what rank 0 publishes.
const KEY: &str = "foldwire-root";
const VERSION: &str = "foldwire1";
/// Rank 0 publishes this if it cannot listen.
const FAILED: &str = "-";
/// Longest wait for the addresses of this machine's own name.
const OWN_NAME_LIMIT: Duration = Duration::from_secs(5);
const LOOPBACK: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
/// Longest value: an IPv6 address with a port, a name and a secret of 32 digits each.
const MAX_VALUE: usize = 160;

/// A rank's knowledge after the ranks have met.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Meeting {
    pub(crate) rank: u64,
    pub(crate) size: u64,
    pub(crate) root: Root,
    /// Name that no other job has.
    pub(crate) name: String,
    /// Secret of all ranks that have none from the user.
    pub(crate) secret: Token,
}

/// This process and its server, as the environment describes them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PmiRequest {
    pub(crate) server: PmiServer,
    /// Rank and size, if variables hold them.
    pub(crate) place: Option<(u64, u64)>,
    /// Number of ranks on this machine, if a variable holds it.
    pub(crate) local_ranks: Option<u64>,
    /// This machine's address, if the user chose one.
    pub(crate) address: Option<IpAddr>,
}

/// The meeting of this process, and rank 0's socket until a rendezvous takes it.
#[derive(Debug)]
struct Met {
    meeting: Option<Meeting>,
    listener: Option<TcpListener>,
}

static MET: Mutex<Met> = Mutex::new(Met { meeting: None, listener: None });

fn met() -> MutexGuard<'static, Met> {
    MET.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Takes the socket at which rank 0 listens, if this process opened it for `root`.
pub(crate) fn take_listener(root: &Root) -> Option<TcpListener> {
    let mut met = met();
    let is_this = met.meeting.as_ref().is_some_and(|meeting| meeting.root == *root);
    if is_this { met.listener.take() } else { None }
}

/// Meets the other ranks, or returns the meeting of an earlier call.
pub(crate) fn meet_once(request: &PmiRequest, limit: Duration) -> Result<Meeting, PmiError> {
    let mut met = met();
    if let Some(meeting) = &met.meeting {
        return Ok(meeting.clone());
    }
    let (meeting, listener) = meet(request, limit)?;
    *met = Met { meeting: Some(meeting.clone()), listener };
    Ok(meeting)
}

/// Meets the other ranks. Returns rank 0's socket on rank 0.
pub(crate) fn meet(
    request: &PmiRequest,
    limit: Duration,
) -> Result<(Meeting, Option<TcpListener>), PmiError> {
    meet_at(PmiClient::connect(&request.server, limit)?, request)
}

/// Meets the other ranks at a server that has greeted this one.
pub(crate) fn meet_at(
    mut client: PmiClient,
    request: &PmiRequest,
) -> Result<(Meeting, Option<TcpListener>), PmiError> {
    let told = client.place();
    let (rank, size) = request.place.or(told).unwrap_or_default();
    if rank >= size || size > MAX_RANKS as u64 || told.is_some_and(|told| told != (rank, size)) {
        let (rank, size) = told.unwrap_or((rank, size));
        return Err(PmiError::Rank { rank, size });
    }
    let store = client.store(KEY.len(), MAX_VALUE)?;
    let mut opened = None;
    if rank == 0 {
        let is_one_node = request.local_ranks == Some(size);
        let address = if is_one_node { Some(LOOPBACK) } else { request.address };
        let made = listen(address, &client);
        let value = made.as_ref().map_or(FAILED.to_owned(), |(value, _)| value.clone());
        client.put(&store, KEY, &value)?;
        opened = Some(made);
    }
    client.barrier()?;
    let value = client.get(&store, KEY)?;
    client.finalize()?;
    // Rank 0's own error says more than what it published.
    let listener = opened.transpose()?.map(|(_, listener)| listener);
    let (root, name, secret) = read(&value)?;
    Ok((Meeting { rank, size, root, name, secret }, listener))
}

/// Listens, and returns what to publish.
fn listen(address: Option<IpAddr>, client: &PmiClient) -> Result<(String, TcpListener), PmiError> {
    let address = address
        .or_else(|| client.local_address())
        .or_else(|| own_address(client.left()))
        .ok_or(PmiError::NoAddress)?;
    let failed = |error: io::Error| PmiError::System { command: "put", kind: error.kind() };
    let listener = TcpListener::bind((address, 0)).map_err(failed)?;
    let at: SocketAddr = listener.local_addr().map_err(failed)?;
    let random = || Token::random().map_err(|_| failed(io::ErrorKind::Unsupported.into()));
    let (name, secret) = (random()?, random()?);
    Ok((format!("{VERSION},{at},{},{}", name.reveal(), secret.reveal()), listener))
}

/// Reads what rank 0 published.
fn read(value: &str) -> Result<(Root, String, Token), PmiError> {
    if value == FAILED {
        return Err(PmiError::RootFailed);
    }
    let unknown = || PmiError::Value { value: value.chars().take(VERSION.len()).collect() };
    let words: Vec<&str> = value.split(',').collect();
    let [VERSION, root, name, secret] = words[..] else { return Err(unknown()) };
    let root: SocketAddr = root.parse().map_err(|_| unknown())?;
    let digits = |text: &str| text.len() == 32 && text.bytes().all(|it| it.is_ascii_hexdigit());
    if root.port() == 0 || !digits(name) || !digits(secret) {
        return Err(unknown());
    }
    let secret = Token::new(secret).map_err(|_| unknown())?;
    Ok((Root::new(root.ip().to_string(), root.port()), name.to_owned(), secret))
}

/// Returns an address of this machine that is not loopback: one of its name, or else that of the
/// route to other networks. The name may take half of the time that is left.
fn own_address(left: Duration) -> Option<IpAddr> {
    let name = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let named = resolve_within((name.trim().to_owned(), 0), (left / 2).min(OWN_NAME_LIMIT))
        .and_then(Result::ok)
        .and_then(|all| all.iter().map(SocketAddr::ip).find(|&at| is_for_others(at)));
    let routed = || {
        // Connecting a UDP socket sends nothing: it selects a local address. The target is an
        // address for documentation (RFC 5737).
        let socket = UdpSocket::bind("0.0.0.0:0").ok()?;
        socket.connect(("192.0.2.1", 9)).ok()?;
        Some(socket.local_addr().ok()?.ip()).filter(|&ip| is_for_others(ip))
    };
    named.or_else(routed)
}

/// Returns whether other machines may reach an address of this one.
pub(crate) fn is_for_others(address: IpAddr) -> bool {
    let is_local = match address.to_canonical() {
        IpAddr::V4(v4) => v4.is_link_local(),
        IpAddr::V6(v6) => v6.is_unicast_link_local(),
    };
    !is_local && !address.to_canonical().is_loopback() && !address.is_unspecified()
}
