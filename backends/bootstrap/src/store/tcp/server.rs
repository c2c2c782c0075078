//! The host's side of a store over TCP: its sockets.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use foldwire::store::StoreError;

use super::conversation::{Closed, Conversation, MAX_UNREAD_BYTES, StoredValues};
use crate::token::{self, Token};

/// Most connections that have proven themselves, and most that have not.
const MAX_CONNECTIONS: [usize; 2] = [1 << 16, 64];
/// Time within which a connection must prove itself.
const PROOF_LIMIT: Duration = Duration::from_secs(5);
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
    values: StoredValues,
    connections: Vec<Connection>,
}

#[derive(Debug)]
struct Connection {
    socket: TcpStream,
    conversation: Conversation,
}

impl Server {
    pub(super) fn new(listener: TcpListener, token: Option<Token>) -> std::io::Result<Self> {
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let (values, connections) = (StoredValues::default(), Vec::new());
        Ok(Self { listener, address, token, values, connections })
    }

    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(super) fn set(&mut self, key: &str, value: &[u8]) -> Result<(), StoreError> {
        self.values.set(key, value)?;
        self.serve();
        Ok(())
    }

    pub(super) fn wait(&mut self, key: &str, limit: Duration) -> Option<Vec<u8>> {
        let start = Instant::now();
        loop {
            self.serve();
            let left = limit.saturating_sub(start.elapsed());
            let value = self.values.get(key);
            if value.is_some() || left.is_zero() {
                return value.map(<[u8]>::to_vec);
            }
            thread::sleep(PAUSE.min(left));
        }
    }

    /// Accepts connections and answers requests, without waiting.
    pub(super) fn serve(&mut self) {
        self.accept();
        let Self { token, values, connections, .. } = self;
        let now = Instant::now();
        connections.retain_mut(|Connection { socket, conversation }| {
            let ended = read(socket, conversation);
            let served = conversation.serve(token.as_ref(), values, now);
            ended.is_ok_and(|ended| !ended) && served.is_ok()
        });
        // A value may have come after the connection that waits for it was served.
        connections.retain_mut(|Connection { socket, conversation }| {
            conversation.answer_waits(values, now);
            flush(socket, &mut conversation.unsent).is_ok()
        });
    }

    fn accept(&mut self) {
        while let Ok((socket, _)) = self.listener.accept() {
            let unproven = |connection: &Connection| !connection.conversation.is_proven();
            let n_unproven = self.connections.iter().filter(|each| unproven(each)).count();
            if n_unproven >= MAX_CONNECTIONS[1]
                && let Some(oldest) = self.connections.iter().position(unproven)
            {
                self.connections.remove(oldest);
            }
            let is_ready = socket.set_nonblocking(true).is_ok() && socket.set_nodelay(true).is_ok();
            let Ok(nonce) = token::nonce() else { continue };
            if is_ready && self.connections.len() < MAX_CONNECTIONS[0] {
                let conversation = Conversation::new(nonce, Instant::now() + PROOF_LIMIT);
                self.connections.push(Connection { socket, conversation });
            }
        }
    }
}

/// Reads what has arrived, up to a limit. Returns whether the peer has closed the connection.
fn read(socket: &mut TcpStream, conversation: &mut Conversation) -> Result<bool, Closed> {
    let (mut chunk, mut n_read) = ([0; 8 << 10], 0);
    while n_read < READ_BYTES {
        match socket.read(&mut chunk) {
            Ok(0) => return Ok(true),
            Ok(n_bytes) => {
                conversation.received.extend_from_slice(&chunk[..n_bytes]);
                n_read += n_bytes;
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => break,
            Err(_) => return Err(Closed),
        }
    }
    Ok(false)
}

fn flush(socket: &mut TcpStream, unsent: &mut Vec<u8>) -> Result<(), Closed> {
    while !unsent.is_empty() {
        match socket.write(unsent) {
            Ok(0) => return Err(Closed),
            Ok(n_bytes) => _ = unsent.drain(..n_bytes),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => break,
            Err(_) => return Err(Closed),
        }
    }
    if unsent.len() > MAX_UNREAD_BYTES { Err(Closed) } else { Ok(()) }
}
