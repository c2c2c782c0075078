//! The side of a process that uses a store over TCP.

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

/// A connection to the store's host, made when it is first needed.
#[derive(Debug)]
pub(super) struct Client {
    address: SocketAddr,
    token: Option<Token>,
    limit: Duration,
    socket: Option<TcpStream>,
    received: Vec<u8>,
    n_requests: u32,
}

impl Client {
    pub(super) fn new(address: SocketAddr, token: Option<Token>, limit: Duration) -> Self {
        Self { address, token, limit, socket: None, received: Vec::new(), n_requests: 0 }
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
        let answer = self.try_ask(request, deadline);
        // Requests may be repeated. So after a broken connection, try once more.
        let answer = match answer {
            Err(Fault::Io | Fault::Ended) => self.try_ask(request, deadline),
            answer => answer,
        };
        answer.map_err(|fault| match fault {
            Fault::Io | Fault::Ended => StoreError::Unreachable,
            Fault::Untrusted => StoreError::Untrusted,
            Fault::Store(error) => error,
        })
    }

    fn try_ask(
        &mut self,
        request: &Request<'_>,
        deadline: Instant,
    ) -> Result<Option<Vec<u8>>, Fault> {
        let mut socket = match self.socket.take() {
            Some(socket) => socket,
            None => self.connect(deadline)?,
        };
        self.n_requests = self.n_requests.wrapping_add(1);
        let number = self.n_requests;
        send(&mut socket, &request.encode(number), deadline)?;
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
                    let n_bytes = read(&mut socket, &mut chunk, deadline)?;
                    self.received.extend_from_slice(&chunk[..n_bytes]);
                }
            }
        }
    }

    /// Connects and exchanges proofs, and tries again until the deadline: the host may not listen
    /// yet, or may have reset the connection to make room for others.
    fn connect(&mut self, deadline: Instant) -> Result<TcpStream, Fault> {
        let mut n_refusals = 0;
        loop {
            match self.try_connect(deadline) {
                Err(Fault::Io | Fault::Ended) => {}
                Err(Fault::Untrusted) if n_refusals + 1 < MAX_REFUSALS => n_refusals += 1,
                result => return result,
            }
            match left(deadline) {
                Ok(left) => thread::sleep(RETRY_AFTER.min(left)),
                Err(_) if n_refusals > 0 => return Err(Fault::Untrusted),
                Err(late) => return Err(late),
            }
        }
    }

    fn try_connect(&mut self, deadline: Instant) -> Result<TcpStream, Fault> {
        self.received.clear();
        left(deadline)?;
        let mut socket = member::connect(self.address, deadline)?;
        socket.set_nodelay(true)?;
        let mut theirs: Nonce = [0; NONCE_BYTES];
        read_exact(&mut socket, &mut theirs, deadline)?;
        let own = token::nonce().map_err(|_| Fault::Store(StoreError::Failed))?;
        let nonces = [&theirs, &own];
        let answer = [&own[..], &proof(self.token.as_ref(), Role::Other, nonces)].concat();
        send(&mut socket, &answer, deadline)?;
        let mut their_proof = [0; PROOF_BYTES];
        match read_exact(&mut socket, &mut their_proof, deadline) {
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
    /// The other side is not the store's host.
    Untrusted,
    Store(StoreError),
}

impl From<io::Error> for Fault {
    fn from(_: io::Error) -> Self {
        Self::Io
    }
}

/// Returns the time until the deadline.
fn left(deadline: Instant) -> Result<Duration, Fault> {
    let left = deadline.saturating_duration_since(Instant::now());
    if left.is_zero() { Err(Fault::Io) } else { Ok(left.max(SHORTEST_LIMIT)) }
}

fn send(socket: &mut TcpStream, bytes: &[u8], deadline: Instant) -> Result<(), Fault> {
    socket.set_write_timeout(Some(left(deadline)?))?;
    Ok(socket.write_all(bytes)?)
}

/// Reads at least one byte.
fn read(socket: &mut TcpStream, bytes: &mut [u8], deadline: Instant) -> Result<usize, Fault> {
    loop {
        socket.set_read_timeout(Some(left(deadline)?))?;
        match socket.read(bytes) {
            Ok(0) => return Err(Fault::Ended),
            Ok(n_bytes) => return Ok(n_bytes),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(_) => return Err(Fault::Io),
        }
    }
}

fn read_exact(socket: &mut TcpStream, bytes: &mut [u8], deadline: Instant) -> Result<(), Fault> {
    let mut n_read = 0;
    while n_read < bytes.len() {
        n_read += read(socket, &mut bytes[n_read..], deadline)?;
    }
    Ok(())
}
