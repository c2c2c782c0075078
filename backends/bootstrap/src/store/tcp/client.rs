//! The side of a process that uses a store over TCP.

use std::fmt;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use foldwire::store::StoreError;

use super::protocol::{Answer, Request, Role, accepts, decode_answer, proof, take_message};
use crate::member;
use crate::message::{NONCE_BYTES, Nonce, PROOF_BYTES};
use crate::rendezvous::{SHORTEST_LIMIT, deadline_after};
use crate::token::{self, Token};

/// Pause between two attempts to connect.
const RETRY_AFTER: Duration = Duration::from_millis(20);

/// Refusals of a proof after which the host counts as one that has another token. A host that stops
/// may end a connection like one that refuses.
const MAX_REFUSALS: u32 = 3;

/// Longest wait between two questions whether the wait goes on.
const SLICE: Duration = Duration::from_millis(100);

/// Longest attempt to connect to an address that does not answer. The system would repeat its
/// question after as long.
const ATTEMPT: Duration = Duration::from_secs(1);

/// A connection to the store's host, made when it is first needed.
#[derive(Debug)]
pub(super) struct Client {
    address: SocketAddr,
    token: Option<Token>,
    limit: Duration,
    socket: Option<TcpStream>,
    received: Vec<u8>,
    n_requests: u32,
    goes_on: Option<GoesOn>,
}

/// A function that ends waits by returning false.
pub(super) struct GoesOn(pub(super) Box<dyn FnMut() -> bool + Send>);

impl fmt::Debug for GoesOn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("GoesOn")
    }
}

impl Client {
    pub(super) fn new(address: SocketAddr, token: Option<Token>, limit: Duration) -> Self {
        let (socket, received) = (None, Vec::new());
        Self { address, token, limit, socket, received, n_requests: 0, goes_on: None }
    }

    pub(super) fn set_goes_on(&mut self, goes_on: GoesOn) {
        self.goes_on = Some(goes_on);
    }

    pub(super) const fn address(&self) -> SocketAddr {
        self.address
    }

    pub(super) fn set(&mut self, key: &str, value: &[u8]) -> Result<(), StoreError> {
        self.ask(&Request::Set { key, value }, Duration::ZERO).map(|_| ())
    }

    pub(super) fn wait(&mut self, key: &str, limit: Duration) -> Answer {
        let milliseconds = u32::try_from(limit.as_millis()).unwrap_or(u32::MAX);
        self.ask(&Request::Wait { key, milliseconds }, limit)
    }

    /// Sends a request, and waits for its answer.
    fn ask(&mut self, request: &Request<'_>, limit: Duration) -> Answer {
        let deadline = deadline_after(self.limit.saturating_add(limit));
        let mut patience = Patience { deadline, goes_on: self.goes_on.take() };
        let answer = self.try_ask(request, &mut patience);
        // Requests may be repeated. So after a broken connection, try once more.
        let answer = match answer {
            Err(Fault::Io | Fault::Ended) => self.try_ask(request, &mut patience),
            answer => answer,
        };
        self.goes_on = patience.goes_on;
        answer.map_err(|fault| match fault {
            Fault::Io | Fault::Ended => StoreError::Unreachable,
            Fault::Stopped => StoreError::Failed,
            Fault::Untrusted => StoreError::Untrusted,
            Fault::Store(error) => error,
        })
    }

    fn try_ask(
        &mut self,
        request: &Request<'_>,
        patience: &mut Patience,
    ) -> Result<Option<Vec<u8>>, Fault> {
        let mut socket = match self.socket.take() {
            Some(socket) => socket,
            None => self.connect(patience)?,
        };
        self.n_requests = self.n_requests.wrapping_add(1);
        let number = self.n_requests;
        send(&mut socket, &request.encode(number), patience)?;
        loop {
            let message = take_message(&mut self.received).map_err(|_| Fault::Untrusted)?;
            match message.as_deref().map(decode_answer) {
                // The answer to an earlier request that this process gave up.
                Some(Some((theirs, _))) if theirs != number => {}
                Some(Some((_, answer))) => {
                    self.socket = Some(socket);
                    return answer.map_err(Fault::Store);
                }
                Some(None) => return Err(Fault::Store(StoreError::Damaged)),
                None => {
                    let mut chunk = [0; 8 << 10];
                    let n_bytes = read(&mut socket, &mut chunk, patience)?;
                    self.received.extend_from_slice(&chunk[..n_bytes]);
                }
            }
        }
    }

    /// Connects and exchanges proofs, and tries again until the deadline: the host may not listen
    /// yet, or may have reset the connection to make room for others.
    fn connect(&mut self, patience: &mut Patience) -> Result<TcpStream, Fault> {
        let mut n_refusals = 0;
        loop {
            match self.try_connect(patience) {
                Err(Fault::Io | Fault::Ended) => {}
                Err(Fault::Untrusted) if n_refusals + 1 < MAX_REFUSALS => n_refusals += 1,
                result => return result,
            }
            match patience.next() {
                Ok(left) => thread::sleep(RETRY_AFTER.min(left)),
                Err(Fault::Io) if n_refusals > 0 => return Err(Fault::Untrusted),
                Err(late) => return Err(late),
            }
        }
    }

    fn try_connect(&mut self, patience: &mut Patience) -> Result<TcpStream, Fault> {
        self.received.clear();
        patience.next()?;
        let attempt = patience.deadline.min(Instant::now() + ATTEMPT);
        let mut socket = member::connect(self.address, attempt)?;
        socket.set_nodelay(true)?;
        let mut theirs: Nonce = [0; NONCE_BYTES];
        read_exact(&mut socket, &mut theirs, patience)?;
        let own = token::nonce().map_err(|_| Fault::Store(StoreError::Failed))?;
        let nonces = [&theirs, &own];
        let answer = [&own[..], &proof(self.token.as_ref(), Role::Other, nonces)].concat();
        send(&mut socket, &answer, patience)?;
        let mut their_proof = [0; PROOF_BYTES];
        match read_exact(&mut socket, &mut their_proof, patience) {
            // The host ends the connection in order if it does not accept this side's proof.
            Err(Fault::Ended) => return Err(Fault::Untrusted),
            read => read?,
        }
        if accepts(self.token.as_ref(), Role::Host, nonces, &their_proof) {
            Ok(socket)
        } else {
            Err(Fault::Untrusted)
        }
    }
}

/// Failure of a request.
#[derive(Debug)]
enum Fault {
    /// The connection broke, or the time is over.
    Io,
    /// The other side has ended the connection in order.
    Ended,
    /// The caller has ended the wait.
    Stopped,
    /// The other side is not the store's host.
    Untrusted,
    Store(StoreError),
}

impl From<io::Error> for Fault {
    fn from(_: io::Error) -> Self {
        Self::Io
    }
}

/// The end of a request's wait.
struct Patience {
    deadline: Instant,
    goes_on: Option<GoesOn>,
}

impl Patience {
    /// Returns how long to wait before the next call of this: at most until the deadline.
    fn next(&mut self) -> Result<Duration, Fault> {
        if !self.goes_on.as_mut().is_none_or(|goes_on| goes_on.0()) {
            return Err(Fault::Stopped);
        }
        let left = self.deadline.saturating_duration_since(Instant::now());
        if left.is_zero() { Err(Fault::Io) } else { Ok(left.clamp(SHORTEST_LIMIT, SLICE)) }
    }
}

/// Returns whether a call of a socket may succeed later.
fn is_early(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::Interrupted | ErrorKind::WouldBlock | ErrorKind::TimedOut)
}

fn send(socket: &mut TcpStream, mut bytes: &[u8], patience: &mut Patience) -> Result<(), Fault> {
    while !bytes.is_empty() {
        socket.set_write_timeout(Some(patience.next()?))?;
        match socket.write(bytes) {
            Ok(n_bytes) => bytes = &bytes[n_bytes..],
            Err(error) if is_early(&error) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// Reads at least one byte.
fn read(socket: &mut TcpStream, bytes: &mut [u8], patience: &mut Patience) -> Result<usize, Fault> {
    loop {
        socket.set_read_timeout(Some(patience.next()?))?;
        match socket.read(bytes) {
            Ok(0) => return Err(Fault::Ended),
            Ok(n_bytes) => return Ok(n_bytes),
            Err(error) if is_early(&error) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

fn read_exact(
    socket: &mut TcpStream,
    bytes: &mut [u8],
    patience: &mut Patience,
) -> Result<(), Fault> {
    let mut n_read = 0;
    while n_read < bytes.len() {
        n_read += read(socket, &mut bytes[n_read..], patience)?;
    }
    Ok(())
}
