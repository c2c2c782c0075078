//! The host's side of a store over TCP: its sockets.
//!
//! The host may be busy for long between two passes. A pass reads the connections first, so that a
//! process that has sent its proof meanwhile is never taken for a silent one. Then it accepts some
//! of the waiting connections. If there is no room, they keep waiting, unless a silent connection
//! has had its time: it is reset to make room. A process whose connection is reset tries again. A
//! connection with a wrong proof ends in order, without a reset.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use foldwire::store::StoreError;
use socket2::SockRef;

use super::conversation::{Closed, Conversation, MAX_UNREAD_BYTES, StoredValues};
use crate::token::{self, Token};

/// Most connections that have proven themselves, and most that have not.
const MAX_CONNECTIONS: [usize; 2] = [1 << 16, 64];
/// Most connections to accept before the existing ones are served again.
const ACCEPTS_PER_PASS: usize = 32;
/// Time for which a connection that has not proven itself keeps its room while others wait.
const UNPROVEN_TURN: Duration = Duration::from_millis(100);
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
    accepted_at: Instant,
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
        let Self { token, values, connections, .. } = self;
        let now = Instant::now();
        connections.retain_mut(|Connection { socket, conversation, .. }| {
            let ended = read(socket, conversation);
            let served = conversation.serve(token.as_ref(), values, now);
            let goes_on = ended.is_ok_and(|ended| !ended) && served.is_ok();
            if !goes_on && conversation.is_silent() {
                reset_on_close(socket);
            }
            goes_on
        });
        self.accept();
        let Self { values, connections, .. } = self;
        // A value may have come after the connection that waits for it was served.
        connections.retain_mut(|Connection { socket, conversation, .. }| {
            conversation.answer_waits(values, now);
            flush(socket, &mut conversation.unsent).is_ok()
        });
    }

    /// Accepts some of the waiting connections.
    fn accept(&mut self) {
        let is_unproven = |connection: &Connection| !connection.conversation.is_proven();
        let mut n_unproven = self.connections.iter().filter(|each| is_unproven(each)).count();
        for _ in 0..ACCEPTS_PER_PASS {
            let is_full = self.connections.len() >= MAX_CONNECTIONS[0];
            let replaced = if is_full || n_unproven >= MAX_CONNECTIONS[1] {
                // Connections are in the order in which they were accepted.
                let oldest = self.connections.iter().position(is_unproven);
                let had_its_turn =
                    |&at: &usize| self.connections[at].accepted_at.elapsed() >= UNPROVEN_TURN;
                let Some(oldest) = oldest.filter(had_its_turn) else { return };
                Some(oldest)
            } else {
                None
            };
            let Ok((socket, _)) = self.listener.accept() else { return };
            if let Some(oldest) = replaced {
                reset_on_close(&self.connections.remove(oldest).socket);
                n_unproven -= 1;
            }
            let is_ready = socket.set_nonblocking(true).is_ok() && socket.set_nodelay(true).is_ok();
            let Ok(nonce) = token::nonce() else { return reset_on_close(&socket) };
            if is_ready {
                let accepted_at = Instant::now();
                let conversation = Conversation::new(nonce, accepted_at + PROOF_LIMIT);
                self.connections.push(Connection { socket, conversation, accepted_at });
                n_unproven += 1;
            }
        }
    }
}

/// Lets the end of a connection look like a reset to the other side, which then tries again.
fn reset_on_close(socket: &TcpStream) {
    // If the system refuses, the other side sees an orderly end.
    let _ = SockRef::from(socket).set_linger(Some(Duration::ZERO));
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pass_accepts_some_connections_and_keeps_those_it_has() {
        let mut server = Server::new(TcpListener::bind("127.0.0.1:0").unwrap(), None).unwrap();
        let connect = |_| TcpStream::connect(server.address).unwrap();
        let mut crowd: Vec<_> = (0..100).map(connect).collect();
        let start = Instant::now();
        for n_accepted in [32, 64, 64] {
            server.serve();
            assert!(server.connections.len() == n_accepted || start.elapsed() > UNPROVEN_TURN);
        }
        // Their time is over, so the others take their places.
        thread::sleep(UNPROVEN_TURN);
        (0..3).for_each(|_| server.serve());
        assert_eq!(server.connections.len(), MAX_CONNECTIONS[1]);
        let mut nonces = Vec::new();
        let ended = crowd[0].read_to_end(&mut nonces).map_err(|error| error.kind());
        assert!(matches!(ended, Err(ErrorKind::ConnectionReset)), "{ended:?}");
        let mut nonce = [0; crate::message::NONCE_BYTES];
        crowd[99].set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        crowd[99].read_exact(&mut nonce).unwrap();
    }
}
