//! The host's side of a store over TCP.

use std::collections::BTreeMap;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use foldwire::store::{StoreError, check_entry, check_key};

use super::protocol::{
    ANSWER_BYTES, Answer, Request, Role, accepts, encode_answer, proof, take_message,
};
use crate::message::{NONCE_BYTES, Nonce};
use crate::token::{self, Token};

/// Most connections that have proven themselves, and most that have not.
const MAX_CONNECTIONS: [usize; 2] = [1 << 16, 64];
/// Time within which a connection must prove itself.
const PROOF_LIMIT: Duration = Duration::from_secs(5);
/// Most bytes of all keys and values.
const MAX_STORED_BYTES: usize = 256 << 20;
/// Most bytes that a process may leave unread before its connection is closed.
const MAX_UNREAD_BYTES: usize = 64 << 20;
/// Most bytes read from one connection before the others are served.
const READ_BYTES: usize = 64 << 10;
/// Pause between two looks at all connections.
const PAUSE: Duration = Duration::from_millis(1);

/// Values, and the connections of processes that use them.
#[derive(Debug)]
pub(super) struct Server {
    listener: TcpListener,
    address: SocketAddr,
    token: Option<Token>,
    values: BTreeMap<String, Vec<u8>>,
    n_stored_bytes: usize,
    connections: Vec<Connection>,
}

#[derive(Debug)]
struct Connection {
    socket: TcpStream,
    state: ProofState,
    received: Vec<u8>,
    unsent: Vec<u8>,
    /// Requests that wait for a key: number, key and deadline.
    waits: Vec<(u32, String, Instant)>,
}

#[derive(Debug)]
enum ProofState {
    /// The host's nonce, and the time until which the answer must come.
    Unproven(Nonce, Instant),
    Proven,
}

impl Server {
    pub(super) fn new(listener: TcpListener, token: Option<Token>) -> std::io::Result<Self> {
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let (values, connections) = (BTreeMap::new(), Vec::new());
        Ok(Self { listener, address, token, values, n_stored_bytes: 0, connections })
    }

    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(super) fn set(&mut self, key: &str, value: &[u8]) -> Result<(), StoreError> {
        self.store(key, value)?;
        self.serve();
        Ok(())
    }

    fn store(&mut self, key: &str, value: &[u8]) -> Result<(), StoreError> {
        check_entry(key, value)?;
        let n_old = self.values.get(key).map_or(0, |old| key.len() + old.len());
        let n_bytes = self.n_stored_bytes - n_old + key.len() + value.len();
        if n_bytes > MAX_STORED_BYTES {
            return Err(StoreError::Full);
        }
        self.n_stored_bytes = n_bytes;
        self.values.insert(key.to_owned(), value.to_vec());
        Ok(())
    }

    pub(super) fn wait(&mut self, key: &str, limit: Duration) -> Option<Vec<u8>> {
        let start = Instant::now();
        loop {
            self.serve();
            let left = limit.saturating_sub(start.elapsed());
            let value = self.values.get(key);
            if value.is_some() || left.is_zero() {
                return value.cloned();
            }
            thread::sleep(PAUSE.min(left));
        }
    }

    /// Accepts connections and answers requests, without waiting.
    pub(super) fn serve(&mut self) {
        self.accept();
        let mut connections = std::mem::take(&mut self.connections);
        connections.retain_mut(|connection| self.receive(connection).is_ok());
        // A value may have come after the connection that waits for it was served.
        connections.retain_mut(|connection| {
            self.answer_waits(connection);
            connection.flush().is_ok()
        });
        self.connections = connections;
    }

    fn accept(&mut self) {
        while let Ok((socket, _)) = self.listener.accept() {
            let unproven =
                |connection: &Connection| matches!(connection.state, ProofState::Unproven(..));
            let n_unproven = self.connections.iter().filter(|each| unproven(each)).count();
            if n_unproven >= MAX_CONNECTIONS[1]
                && let Some(oldest) = self.connections.iter().position(unproven)
            {
                self.connections.remove(oldest);
            }
            let is_ready = socket.set_nonblocking(true).is_ok() && socket.set_nodelay(true).is_ok();
            let Ok(nonce) = token::nonce() else { continue };
            if is_ready && self.connections.len() < MAX_CONNECTIONS[0] {
                self.connections.push(Connection {
                    socket,
                    state: ProofState::Unproven(nonce, Instant::now() + PROOF_LIMIT),
                    received: Vec::new(),
                    unsent: nonce.to_vec(),
                    waits: Vec::new(),
                });
            }
        }
    }

    /// Reads and serves what has arrived. `Err` if the connection has ended or must end.
    fn receive(&mut self, connection: &mut Connection) -> Result<(), Closed> {
        let ended = connection.read()?;
        if let ProofState::Unproven(nonce, until) = &connection.state {
            let Some(answer) = connection.received.first_chunk::<ANSWER_BYTES>() else {
                let is_late = ended || Instant::now() > *until;
                return if is_late { Err(Closed) } else { Ok(()) };
            };
            let (theirs, their_proof) = answer.split_first_chunk::<NONCE_BYTES>().ok_or(Closed)?;
            let nonces = [nonce, theirs];
            if !accepts(self.token.as_ref(), Role::Other, nonces, their_proof) {
                return Err(Closed);
            }
            connection.unsent.extend(proof(self.token.as_ref(), Role::Host, nonces));
            connection.received.drain(..ANSWER_BYTES);
            connection.state = ProofState::Proven;
        }
        while let Some(message) = take_message(&mut connection.received).map_err(|_| Closed)? {
            let (number, request) = Request::decode(&message).ok_or(Closed)?;
            match request {
                Request::Set { key, value } => {
                    let answer: Answer = self.store(key, value).map(|()| None);
                    connection.unsent.extend(encode_answer(number, &answer));
                }
                Request::Wait { key, milliseconds } => {
                    check_key(key).map_err(|_| Closed)?;
                    let until = Instant::now() + Duration::from_millis(milliseconds.into());
                    connection.waits.push((number, key.to_owned(), until));
                }
            }
        }
        if ended { Err(Closed) } else { Ok(()) }
    }

    /// Answers the waits of a connection whose keys are set, or whose time is over.
    fn answer_waits(&self, connection: &mut Connection) {
        if connection.waits.is_empty() {
            return;
        }
        let now = Instant::now();
        let unsent = &mut connection.unsent;
        connection.waits.retain(|(number, key, until)| {
            let value = self.values.get(key);
            let is_over = value.is_some() || now >= *until;
            if is_over {
                unsent.extend(encode_answer(*number, &Ok(value.cloned())));
            }
            !is_over
        });
    }
}

/// A connection that has ended, or whose peer broke the protocol.
struct Closed;

impl Connection {
    /// Reads what has arrived, up to a limit. Returns whether the peer has closed the connection.
    fn read(&mut self) -> Result<bool, Closed> {
        let (mut chunk, mut n_read) = ([0; 8 << 10], 0);
        while n_read < READ_BYTES {
            match self.socket.read(&mut chunk) {
                Ok(0) => return Ok(true),
                Ok(n_bytes) => {
                    self.received.extend_from_slice(&chunk[..n_bytes]);
                    n_read += n_bytes;
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(_) => return Err(Closed),
            }
        }
        Ok(false)
    }

    fn flush(&mut self) -> Result<(), Closed> {
        while !self.unsent.is_empty() {
            match self.socket.write(&self.unsent) {
                Ok(0) => return Err(Closed),
                Ok(n_bytes) => _ = self.unsent.drain(..n_bytes),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(_) => return Err(Closed),
            }
        }
        if self.unsent.len() > MAX_UNREAD_BYTES { Err(Closed) } else { Ok(()) }
    }
}
