//! One connection: bytes in both directions without ever waiting, and messages made of them.
//!
//! Readiness comes from `mio` and is told once for each change, so whoever hears of it calls
//! [`fill`](Link::fill) until it says [`ReadStatus::Blocked`].

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use mio::event::Source;
use mio::{Interest, Registry, Token};
use socket2::{SockRef, TcpKeepalive};

use crate::message::{MAX_MESSAGE_BYTES, Malformed, Message};
use crate::protocol::ReceiveBuffer;

/// A machine that has vanished without a word is found out after about this time plus
/// [`KEEPALIVE_PROBES`] × [`KEEPALIVE_INTERVAL`].
const KEEPALIVE_AFTER: Duration = Duration::from_secs(10);
#[cfg(any(target_os = "linux", target_os = "macos", windows))]
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(5);
#[cfg(any(target_os = "linux", target_os = "macos", windows))]
const KEEPALIVE_PROBES: u32 = 3;

/// A connection to another rank, or to a stranger.
#[derive(Debug)]
pub(crate) struct Connection {
    stream: mio::net::TcpStream,
    inbox: ReceiveBuffer,
    /// What has not yet gone from `n_sent` on.
    outbox: Vec<u8>,
    n_sent: usize,
}

/// What [`Connection::fill`] found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReadStatus {
    /// Bytes; there may be more.
    Data,
    /// Nothing for now.
    Blocked,
    /// The other side has closed the connection, or the system has.
    Closed,
}

impl Connection {
    /// Takes over a connection.
    pub(crate) fn new(stream: TcpStream) -> io::Result<Self> {
        stream.set_nonblocking(true)?;
        Self::from_nonblocking(mio::net::TcpStream::from_std(stream))
    }

    /// Takes over a connection that does not wait.
    pub(crate) fn from_nonblocking(stream: mio::net::TcpStream) -> io::Result<Self> {
        stream.set_nodelay(true)?;
        let keepalive = TcpKeepalive::new().with_time(KEEPALIVE_AFTER);
        #[cfg(any(target_os = "linux", target_os = "macos", windows))]
        let keepalive = keepalive.with_interval(KEEPALIVE_INTERVAL).with_retries(KEEPALIVE_PROBES);
        SockRef::from(&stream).set_tcp_keepalive(&keepalive)?;
        Ok(Self { stream, inbox: ReceiveBuffer::default(), outbox: Vec::new(), n_sent: 0 })
    }

    /// Asks to hear of it under `token`, instead of under any other.
    pub(crate) fn register(&mut self, registry: &Registry, token: Token) -> io::Result<()> {
        let interests = Interest::READABLE | Interest::WRITABLE;
        match self.stream.register(registry, token, interests) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                self.stream.reregister(registry, token, interests)
            }
            result => result,
        }
    }

    /// Reads some of what has come.
    pub(crate) fn read(&mut self) -> ReadStatus {
        let Self { stream, inbox, .. } = self;
        let result = inbox.fill(|room| {
            loop {
                match stream.read(room) {
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    result => break result,
                }
            }
        });
        match result {
            Ok(0) => ReadStatus::Closed,
            Ok(_) => ReadStatus::Data,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => ReadStatus::Blocked,
            Err(_) => ReadStatus::Closed,
        }
    }

    /// The next whole message.
    ///
    /// # Errors
    /// When what has come is none; the connection is of no more use.
    pub(crate) fn next(&mut self) -> Result<Option<Message<'_>>, Malformed> {
        self.next_within(MAX_MESSAGE_BYTES)
    }

    /// As [`next`](Self::next), of at most `longest` bytes.
    pub(crate) fn next_within(&mut self, longest: usize) -> Result<Option<Message<'_>>, Malformed> {
        self.inbox.next(longest)
    }

    /// Sends a message, now or in later [`flush`](Self::flush)es.
    pub(crate) fn send(&mut self, message: &Message<'_>) {
        message.emit(&mut self.outbox);
        self.flush();
    }

    /// As [`send`](Self::send), for messages that have been written already, which many links may
    /// be given: only what the system does not take now is copied.
    pub(crate) fn send_encoded(&mut self, messages: &[u8]) {
        let n_sent = if self.flush() { write(&mut self.stream, messages) } else { 0 };
        self.outbox.extend_from_slice(&messages[n_sent..]);
    }

    /// Sends as much as the system takes; whether that was all. A connection that has broken takes
    /// everything: the loss is told by [`fill`](Self::fill).
    pub(crate) fn flush(&mut self) -> bool {
        self.n_sent += write(&mut self.stream, &self.outbox[self.n_sent..]);
        if self.has_unsent() {
            return false;
        }
        self.outbox.clear();
        self.n_sent = 0;
        true
    }

    /// Whether some of what was sent has not yet gone.
    pub(crate) fn has_unsent(&self) -> bool {
        self.n_sent < self.outbox.len()
    }

    /// Ends the connection after what has been sent; what has not gone by the deadline never goes.
    pub(crate) fn close(&mut self, deadline: Instant) {
        while !self.flush() && Instant::now() < deadline {
            thread::sleep(Duration::from_millis(1));
        }
        // What has come and nobody has read makes some systems reset the connection, and lose what
        // was sent.
        while Instant::now() < deadline && self.read() == ReadStatus::Data {
            self.inbox.clear();
        }
        // Fails if the other side was first.
        let _ = self.stream.shutdown(Shutdown::Write);
    }
}

/// How many of these bytes the system takes; all of them where the connection has broken.
fn write(stream: &mut mio::net::TcpStream, bytes: &[u8]) -> usize {
    let mut n_sent = 0;
    while n_sent < bytes.len() {
        match stream.write(&bytes[n_sent..]) {
            Ok(n_bytes) => n_sent += n_bytes,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return n_sent,
            Err(_) => return bytes.len(),
        }
    }
    n_sent
}
