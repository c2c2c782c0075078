//! Joining: each rank listens, all ranks exchange their addresses and settings, and each rank
//! connects to the lower ranks.
//!
//! Every rank takes part in both exchanges, even after a failure, so that no rank waits forever. A
//! rank that has failed sends an empty message.
//!
//! Other programs may connect too. The number of such connections is limited. A connection that
//! does not prove within seconds that a rank has opened it is closed. It delays no rank.

use std::collections::VecDeque;
use std::io::{self, ErrorKind};
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::thread;
use std::time::{Duration, Instant};

use foldwire::Rank;
use foldwire_bootstrap::{Exchange, Token, deadline_after};
use foldwire_messaging::{MemoryOffer, NodeMemory, Options};
use mio::net::TcpStream;

use crate::byte_stream::ByteStream;
use crate::handshake::{HandshakeError, Hello, PendingHandshake};
use crate::net::{Tcp, TcpSetup, n_slots};
use crate::secret::{Nonce, OFFER, SessionSecret, accepts_token_proof, nonce, token_proof};
use crate::settings::Settings;
use crate::{JoinError, MAX_STREAMS};

/// Word of a rank that is connected to all other ranks. A proof follows, for whoever carries the
/// message may change it.
const READY: &[u8] = b"ready";
/// The same if the rank also shares memory with all ranks of its node.
const READY_TO_SHARE: &[u8] = b"ready, with memory";
/// Time limit of a handshake, by which a connection proves that a rank opened it.
const HANDSHAKE_LIMIT: Duration = Duration::from_secs(5);
/// Most accepted connections with a pending handshake, beyond the number of connections that this
/// rank needs.
const MAX_UNPROVEN: usize = 64;
/// Most connections to accept before the pending ones are served again.
const ACCEPTS_PER_PASS: usize = 32;
/// Pause between two attempts to make the same connection.
const RETRY_AFTER: Duration = Duration::from_millis(20);
/// Pause between two passes over all connections, while nothing happens.
pub(crate) const PAUSE: Duration = Duration::from_micros(200);

/// Settings that must be equal on all ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SharedSettings {
    pub(crate) frame_bytes: usize,
    pub(crate) link_depth: usize,
    pub(crate) n_streams: usize,
    pub(crate) encrypts: bool,
}

impl SharedSettings {
    fn text(self) -> String {
        let Self { frame_bytes, link_depth, n_streams, encrypts } = self;
        let how = if encrypts { "encrypted" } else { "not encrypted" };
        format!("frames of {frame_bytes} bytes, {link_depth} a link, {n_streams} streams, {how}")
    }
}

/// A rank's address and settings, which it sends to all ranks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TcpOffer {
    /// Text that identifies the rank's node, or nothing ([`foldwire_bootstrap::node`]).
    pub(crate) node: String,
    pub(crate) address: SocketAddr,
    pub(crate) shared: SharedSettings,
    /// Offer of memory to the ranks of the node, or nothing.
    pub(crate) memory: Vec<u8>,
    /// Random number that makes the offer, and so the session's secret, unique.
    pub(crate) nonce: Nonce,
    /// Proof that a rank that knows the token has made this offer.
    pub(crate) proof: Nonce,
}

impl TcpOffer {
    /// Encodes the offer as text, one line for each field.
    pub(crate) fn encode(&self) -> Vec<u8> {
        format!("{}\n{}", self.about(), digits_of(&self.proof)).into_bytes()
    }

    /// Encodes all fields but the proof.
    fn about(&self) -> String {
        let Self { node, address, shared, nonce, memory, .. } = self;
        let SharedSettings { frame_bytes, link_depth, n_streams, encrypts } = shared;
        let (memory, nonce) = (digits_of(memory), digits_of(nonce));
        format!(
            "{node}\n{address}\n{frame_bytes}\n{link_depth}\n{n_streams}\n{encrypts}\n\
             {memory}\n{nonce}"
        )
    }

    /// Sets the proof.
    pub(crate) fn proven(self, token: Option<&Token>) -> Self {
        Self { proof: token_proof(token, OFFER, self.about().as_bytes()), ..self }
    }

    /// Returns whether a rank that knows the token has made this offer.
    pub(crate) fn is_proven(&self, token: Option<&Token>) -> bool {
        accepts_token_proof(token, OFFER, self.about().as_bytes(), &self.proof)
    }

    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let mut lines = std::str::from_utf8(bytes).ok()?.split('\n');
        let node = lines.next()?.to_owned();
        let address = lines.next()?.parse().ok()?;
        let frame_bytes = lines.next()?.parse().ok()?;
        let link_depth = lines.next()?.parse().ok()?;
        let n_streams = lines.next()?.parse().ok()?;
        let encrypts = lines.next()?.parse().ok()?;
        let memory = bytes_of(lines.next()?)?;
        let nonce = bytes_of(lines.next()?)?.try_into().ok()?;
        let proof = bytes_of(lines.next()?)?.try_into().ok()?;
        let shared = SharedSettings { frame_bytes, link_depth, n_streams, encrypts };
        let read = Self { node, address, shared, nonce, proof, memory };
        // Numbers have several spellings; accept only the one that `encode` writes.
        (read.encode() == bytes).then_some(read)
    }
}

/// Writes two hexadecimal digits for each byte.
fn digits_of(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Parses two hexadecimal digits for each byte.
fn bytes_of(digits: &str) -> Option<Vec<u8>> {
    let n_bytes = digits.len() / 2;
    (0..n_bytes).map(|i| u8::from_str_radix(digits.get(2 * i..2 * i + 2)?, 16).ok()).collect()
}

/// Joins all ranks of `exchange`.
pub(crate) fn join<X: Exchange>(settings: &Settings, exchange: &mut X) -> Result<Tcp, JoinError> {
    let (rank, size) = (exchange.rank(), exchange.size());
    let settings = &settings.clone().completed_by(exchange);
    let own_memory = offered_memory(settings, rank, size);
    let memory = own_memory.as_ref().map_or(Vec::new(), MemoryOffer::to_bytes);
    let listening = listen(settings, size, memory);
    let offer = listening.as_ref().map_or(Vec::new(), |(_, offer)| offer.encode());
    // A rank's own reason says more than the exchange's, so it comes first.
    let all = match gather(exchange, &offer) {
        Ok(all) => all,
        Err(error) => return Err(listening.err().unwrap_or(error)),
    };
    let connected = listening.and_then(|(listener, mine)| {
        let offers = agree(&mine, settings.token.as_ref(), &all)?;
        // Each offer has the same number of lines, so no other offers have the same text.
        let secret = SessionSecret::new(settings.token.as_ref(), &all.join(&b'\n'));
        let node = &offers[rank.index()].node;
        let is_near: Vec<bool> =
            offers.iter().map(|offer| !node.is_empty() && offer.node == *node).collect();
        let near = || offers.iter().zip((0..).map(Rank)).zip(&is_near).filter(|&(_, &near)| near);
        let memory = own_memory.filter(|_| near().count() > 1).and_then(|own| {
            own.open(near().map(|((offer, rank), _)| (rank, offer.memory.as_slice())))
        });
        let shared = mine.shared;
        let setup = ConnectionSetup { rank, offers, is_near, secret, shared, memory };
        let secret = setup.secret.clone();
        let mut connecting = Connecting::new(setup, listener, settings.limit);
        while !connecting.advance()? {
            thread::sleep(PAUSE);
        }
        Ok((connecting.into_tcp(settings)?, secret))
    });
    // No rank may send before all are connected.
    let ready = connected.as_ref().map_or(Vec::new(), |(tcp, secret)| {
        let word = if tcp.shares_memory_with(rank) { READY_TO_SHARE } else { READY };
        [word, &secret.word_proof(rank, word)].concat()
    });
    let ready = gather(exchange, &ready);
    let ((mut tcp, secret), ready) = (connected?, ready?);
    let mut shares = Vec::new();
    for (rank, said) in (0..).map(Rank).zip(&ready) {
        if said.is_empty() {
            return Err(JoinError::PeerFailed { rank });
        }
        let is_said = |word| {
            let proof = said.strip_prefix(word);
            proof.is_some_and(|proof| secret.accepts_word(proof, rank, word))
        };
        shares.push(is_said(READY_TO_SHARE));
        if !shares[rank.index()] && !is_said(READY) {
            return Err(JoinError::Unintelligible { rank });
        }
    }
    tcp.share_memory(|peer| shares[peer.index()]);
    Ok(tcp)
}

/// Creates the memory that this rank offers to the others of its node, if it shares any.
fn offered_memory(settings: &Settings, rank: Rank, size: usize) -> Option<MemoryOffer> {
    let is_wanted = settings.shares_memory() && size > 1;
    if is_wanted { MemoryOffer::new(rank, settings.effective_options().frame_bytes) } else { None }
}

fn gather<X: Exchange>(exchange: &mut X, mine: &[u8]) -> Result<Vec<Vec<u8>>, JoinError> {
    exchange.all_gather(mine).map_err(|error| JoinError::Exchange(Box::new(error)))
}

fn socket_error(settings: &Settings, source: io::Error) -> JoinError {
    let address = settings.listening().unwrap_or(IpAddr::from([0; 4]));
    JoinError::Socket { address, source }
}

/// Listens, and returns the listener and this rank's offer. `memory` is what it offers to the ranks
/// of its node.
pub(crate) fn listen(
    settings: &Settings,
    size: usize,
    memory: Vec<u8>,
) -> Result<(TcpListener, TcpOffer), JoinError> {
    let have = settings.streams;
    if !(1..=MAX_STREAMS).contains(&have) {
        return Err(JoinError::Streams { have });
    }
    if settings.encrypt && !cfg!(feature = "noise") {
        return Err(JoinError::NoEncryption);
    }
    let address = settings.listening().ok_or_else(|| JoinError::NoInterface {
        name: settings.interface.clone().unwrap_or_default(),
    })?;
    if address.to_canonical().is_unspecified() {
        return Err(JoinError::Unspecified { address });
    }
    if settings.token.is_none() && size > 1 && !address.to_canonical().is_loopback() {
        return Err(JoinError::NoToken { address });
    }
    let bound = TcpListener::bind((address, 0)).and_then(|listener| {
        listener.set_nonblocking(true)?;
        Ok((listener.local_addr()?, listener))
    });
    let (address, listener) = bound.map_err(|error| socket_error(settings, error))?;
    let Options { frame_bytes, link_depth, .. } = settings.effective_options();
    let shared = SharedSettings {
        frame_bytes,
        link_depth,
        n_streams: settings.streams,
        encrypts: settings.encrypt,
    };
    let nonce = nonce().map_err(JoinError::NoRandomNumbers)?;
    let (node, proof) = (foldwire_bootstrap::node(), Nonce::default());
    let offer = TcpOffer { node, address, shared, nonce, proof, memory };
    Ok((listener, offer.proven(settings.token.as_ref())))
}

/// Decodes the offers of all ranks and checks that they fit together.
///
/// It succeeds on all ranks or fails on all. If settings or tokens differ, the error names a rank
/// that differs from this one.
pub(crate) fn agree(
    mine: &TcpOffer,
    token: Option<&Token>,
    all: &[Vec<u8>],
) -> Result<Vec<TcpOffer>, JoinError> {
    if let Some(rank) = all.iter().position(Vec::is_empty) {
        return Err(JoinError::PeerFailed { rank: Rank::new(rank) });
    }
    let offers = all.iter().zip(0..).map(|(bytes, rank)| {
        TcpOffer::decode(bytes).ok_or(JoinError::Unintelligible { rank: Rank(rank) })
    });
    let offers = offers.collect::<Result<Vec<_>, _>>()?;
    let first = |differs: &dyn Fn(&TcpOffer) -> bool| offers.iter().position(differs);
    if let Some(rank) = first(&|offer| offer.shared != mine.shared) {
        let (there, here) = (offers[rank].shared.text(), mine.shared.text());
        return Err(JoinError::SettingsDiffer { rank: Rank::new(rank), there, here });
    }
    // Compare tokens here. A handshake would detect a difference on one side only, and the other
    // side would wait.
    if let Some(rank) = first(&|offer| !offer.is_proven(token)) {
        return Err(JoinError::TokenDiffers { rank: Rank::new(rank) });
    }
    let is_one_node = first(&|offer| offer.node != mine.node).is_none();
    match first(&|offer| offer.address.ip().to_canonical().is_loopback()) {
        Some(rank) if !is_one_node => Err(JoinError::OnlyLoopback { rank: Rank::new(rank) }),
        _ => Ok(offers),
    }
}

/// Accepts some of the waiting connections. Returns the number of connections refused, and the
/// error for which the system gives no connection, if it has one.
///
/// With `room` connections pending, another one replaces the oldest one without a valid hello. If
/// all have a valid hello, the new one is closed.
fn accept(
    listener: &TcpListener,
    incoming: &mut VecDeque<(Instant, PendingHandshake)>,
    room: usize,
) -> (usize, Option<io::Error>) {
    let mut n_refused = 0;
    for _ in 0..ACCEPTS_PER_PASS {
        let socket = match listener.accept() {
            Ok((socket, _)) => socket,
            Err(error) => match error.kind() {
                ErrorKind::Interrupted | ErrorKind::ConnectionAborted => continue,
                ErrorKind::WouldBlock => break,
                _ => return (n_refused, Some(error)),
            },
        };
        if incoming.len() >= room {
            n_refused += 1;
            match incoming.iter().position(|(_, handshake)| !handshake.has_valid_hello()) {
                Some(unknown) => _ = incoming.remove(unknown),
                None => continue,
            }
        }
        // Fails if the connection has already ended.
        if socket.set_nonblocking(true).is_ok() {
            let handshake = PendingHandshake::accept(TcpStream::from_std(socket));
            incoming.push_back((Instant::now() + HANDSHAKE_LIMIT, handshake));
        }
    }
    (n_refused, None)
}

/// A connection to a lower rank.
struct OutgoingConnection {
    address: SocketAddr,
    hello: Hello,
    /// `None` before the first attempt and between two attempts.
    handshake: Option<PendingHandshake>,
    /// Error of the last attempt.
    fault: Option<io::Error>,
    /// Earliest time of the next attempt.
    rests_until: Instant,
}

/// This rank's connections while they are made.
pub(crate) struct Connecting {
    setup: ConnectionSetup,
    listener: TcpListener,
    limit: Duration,
    deadline: Instant,
    /// Connections that are made, by slot.
    connections: Vec<Option<ByteStream>>,
    outgoing: Vec<OutgoingConnection>,
    /// Accepted connections, and the time until which they must prove themselves.
    incoming: VecDeque<(Instant, PendingHandshake)>,
    n_refused: usize,
    /// Error of the last attempt to accept connections.
    accept_fault: Option<io::Error>,
}

impl Connecting {
    /// Begins to make the connections. `limit` is the longest time that it may take.
    pub(crate) fn new(setup: ConnectionSetup, listener: TcpListener, limit: Duration) -> Self {
        let n_slots = n_slots(setup.offers.len(), setup.shared.n_streams);
        Self {
            connections: (0..n_slots).map(|_| None).collect(),
            outgoing: setup.outgoing().collect(),
            setup,
            listener,
            limit,
            deadline: deadline_after(limit),
            incoming: VecDeque::new(),
            n_refused: 0,
            accept_fault: None,
        }
    }

    /// Advances all handshakes without waiting. Returns whether all connections are made.
    ///
    /// # Errors
    /// If a peer is an impostor, or connections are missing at the deadline.
    pub(crate) fn advance(&mut self) -> Result<bool, JoinError> {
        let is_complete = self.step()?;
        if !is_complete && Instant::now() >= self.deadline {
            return Err(self.late());
        }
        Ok(is_complete)
    }

    /// Advances all handshakes without waiting, for any time. Returns whether all connections are
    /// made.
    pub(crate) fn step(&mut self) -> Result<bool, JoinError> {
        let Self { setup, listener, connections, outgoing, incoming, n_refused, .. } = self;
        let n_all: usize = setup.ranks().map(|peer| setup.n_connections(peer)).sum();
        let (n_more, accept_fault) = accept(listener, incoming, n_all + MAX_UNPROVEN);
        *n_refused += n_more;
        self.accept_fault = accept_fault;
        let mut impostor = None;
        outgoing.retain_mut(|outgoing| match setup.advance(outgoing) {
            Ok(None) => true,
            Ok(Some((hello, connection))) => {
                connections[setup.slot(hello.to, hello.stream)] = Some(connection);
                false
            }
            Err(HandshakeError::Untrusted) => {
                impostor = Some(outgoing.hello.to);
                false
            }
            // The peer may have closed the connection because it had too many, so try again.
            Err(HandshakeError::Io(source)) => {
                outgoing.fault = Some(source);
                outgoing.handshake = None;
                outgoing.rests_until = Instant::now() + RETRY_AFTER;
                true
            }
        });
        if let Some(rank) = impostor {
            return Err(JoinError::Impostor { rank });
        }
        let now = Instant::now();
        incoming.retain_mut(|(until, handshake)| {
            match handshake.advance(&setup.secret, setup.shared.encrypts) {
                Ok(None) if *until > now => return true,
                Ok(Some((hello, connection))) if setup.is_expected(hello, connections) => {
                    connections[setup.slot(hello.from, hello.stream)] = Some(connection);
                }
                _ => *n_refused += 1,
            }
            false
        });
        Ok(connections.iter().flatten().count() == n_all)
    }

    /// Returns the ranks to which connections are missing.
    pub(crate) fn missing(&self) -> impl Iterator<Item = Rank> {
        self.setup.ranks().filter(|&peer| {
            let first = self.setup.slot(peer, 0);
            let of_peer = &self.connections[first..first + self.setup.n_connections(peer)];
            of_peer.iter().any(Option::is_none)
        })
    }

    /// Returns whether the last attempt to connect to a lower rank was refused: nobody listens.
    pub(crate) fn is_refused(&self, peer: Rank) -> bool {
        let to_peer = self.outgoing.iter().filter(|outgoing| outgoing.hello.to == peer);
        let mut faults = to_peer.filter_map(|outgoing| outgoing.fault.as_ref());
        faults.any(|fault| fault.kind() == ErrorKind::ConnectionRefused)
    }

    /// Returns the address of a rank.
    pub(crate) fn address(&self, peer: Rank) -> SocketAddr {
        self.setup.offers[peer.index()].address
    }

    /// Returns the error of connections that are missing at the deadline. Without a free file, all
    /// attempts fail, so that comes first.
    fn late(&mut self) -> JoinError {
        if let Some(source) = self.accept_fault.take() {
            let address = self.setup.offers[self.setup.rank.index()].address.ip();
            return JoinError::Socket { address, source };
        }
        let failed = self
            .outgoing
            .iter_mut()
            .find_map(|outgoing| Some((outgoing.hello.to, outgoing.fault.take()?)));
        if let Some((rank, source)) = failed {
            return JoinError::Unreachable { rank, source };
        }
        let rank = self.missing().next().unwrap_or(Rank(0));
        JoinError::Missing { rank, limit: self.limit, n_refused: self.n_refused }
    }

    /// Makes the message layer of the connections that are there. Ranks to which some are missing
    /// count as lost.
    pub(crate) fn into_tcp(self, settings: &Settings) -> Result<Tcp, JoinError> {
        let missing: Vec<Rank> = self.missing().collect();
        let ConnectionSetup { rank, offers, is_near, shared, memory, .. } = self.setup;
        let SharedSettings { n_streams, encrypts, .. } = shared;
        let options = settings.effective_options();
        let size = offers.len();
        let setup = TcpSetup { rank, size, options, n_streams, encrypts, is_near, memory };
        let made = Tcp::new(setup, self.connections);
        let mut tcp = made.map_err(|error| socket_error(settings, error))?;
        missing.into_iter().for_each(|peer| tcp.mark_absent(peer));
        Ok(tcp)
    }
}

/// Data with which this rank makes its connections.
pub(crate) struct ConnectionSetup {
    pub(crate) rank: Rank,
    pub(crate) offers: Vec<TcpOffer>,
    /// By rank, whether it shares this rank's node.
    pub(crate) is_near: Vec<bool>,
    pub(crate) secret: SessionSecret,
    pub(crate) shared: SharedSettings,
    /// Memory of the ranks of the node.
    pub(crate) memory: Option<NodeMemory>,
}

impl ConnectionSetup {
    fn ranks(&self) -> impl Iterator<Item = Rank> + use<> {
        (0..self.offers.len()).map(Rank::new)
    }

    /// Lists the connections to lower ranks, which this rank makes.
    fn outgoing(&self) -> impl Iterator<Item = OutgoingConnection> {
        let encrypts = self.shared.encrypts;
        let lower = self.offers.iter().zip((0..).map(Rank)).take(self.rank.index());
        lower.flat_map(move |(offer, to)| {
            (0..self.n_connections(to) as u16).map(move |stream| OutgoingConnection {
                address: offer.address,
                hello: Hello { from: self.rank, to, stream, encrypts },
                handshake: None,
                fault: None,
                rests_until: Instant::now(),
            })
        })
    }

    /// Advances a connection's handshake, or starts the connection.
    fn advance(
        &self,
        outgoing: &mut OutgoingConnection,
    ) -> Result<Option<(Hello, ByteStream)>, HandshakeError> {
        let handshake = match &mut outgoing.handshake {
            Some(handshake) => handshake,
            None if Instant::now() < outgoing.rests_until => return Ok(None),
            none => {
                let socket = TcpStream::connect(outgoing.address).map_err(HandshakeError::Io)?;
                none.insert(PendingHandshake::connect(socket, outgoing.hello))
            }
        };
        handshake.advance(&self.secret, self.shared.encrypts)
    }

    /// Number of connections with a rank: its streams and, between nodes, the idle connection.
    fn n_connections(&self, peer: Rank) -> usize {
        match peer == self.rank {
            true => 0,
            false => self.shared.n_streams + usize::from(!self.is_near[peer.index()]),
        }
    }

    pub(crate) const fn slot(&self, rank: Rank, stream: u16) -> usize {
        n_slots(rank.index(), self.shared.n_streams) + stream as usize
    }

    /// Returns whether a connection from another rank is expected and not yet made.
    pub(crate) fn is_expected<W>(&self, hello: Hello, connections: &[Option<W>]) -> bool {
        let Hello { from, to, stream, .. } = hello;
        let is_higher = from > self.rank && from.index() < self.offers.len();
        to == self.rank
            && is_higher
            && usize::from(stream) < self.n_connections(from)
            && connections[self.slot(from, stream)].is_none()
    }
}

#[cfg(test)]
mod tests;
