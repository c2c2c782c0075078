//! One nonblocking connection that carries messages in both directions.
//!
//! `mio` reports readiness once for each change. After a report, call [`Connection::read`] until it
//! returns [`ReadStatus::Blocked`].

use std::io::{self, Read, Write};
use std::net::{IpAddr, Shutdown, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use mio::event::Source;
use mio::{Interest, Registry, Token};
use socket2::{SockRef, TcpKeepalive};

use crate::message::{MAX_MESSAGE_BYTES, Malformed, Message};
use crate::protocol::ReceiveBuffer;

/// Idle time after which the system probes the connection. A machine that vanishes is detected
/// after about this time plus [`KEEPALIVE_PROBES`] × [`KEEPALIVE_INTERVAL`].
const KEEPALIVE_AFTER: Duration = Duration::from_secs(10);
#[cfg(any(target_os = "linux", target_os = "macos", windows))]
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(5);
#[cfg(any(target_os = "linux", target_os = "macos", windows))]
const KEEPALIVE_PROBES: u32 = 3;

/// A connection to another rank, or to a process that has not proven to be one.
#[derive(Debug)]
pub(crate) struct Connection {
    stream: mio::net::TcpStream,
    inbox: ReceiveBuffer,
    /// Messages to send; the system has taken the first `n_sent` bytes.
    outbox: Vec<u8>,
    n_sent: usize,
}

/// Result of [`Connection::read`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReadStatus {
    /// Bytes were read, and more may be available.
    Data,
    /// Nothing is available now.
    Blocked,
    /// The connection has ended: the peer or the system closed it.
    Closed,
}

impl Connection {
    /// Takes over a socket and makes it nonblocking.
    pub(crate) fn new(stream: TcpStream) -> io::Result<Self> {
        stream.set_nonblocking(true)?;
        Self::from_nonblocking(mio::net::TcpStream::from_std(stream))
    }

    /// Takes over a nonblocking socket.
    pub(crate) fn from_nonblocking(stream: mio::net::TcpStream) -> io::Result<Self> {
        stream.set_nodelay(true)?;
        let keepalive = TcpKeepalive::new().with_time(KEEPALIVE_AFTER);
        #[cfg(any(target_os = "linux", target_os = "macos", windows))]
        let keepalive = keepalive.with_interval(KEEPALIVE_INTERVAL).with_retries(KEEPALIVE_PROBES);
        SockRef::from(&stream).set_tcp_keepalive(&keepalive)?;
        Ok(Self { stream, inbox: ReceiveBuffer::default(), outbox: Vec::new(), n_sent: 0 })
    }

    /// This machine's address on the connection.
    pub(crate) fn local_address(&self) -> Option<IpAddr> {
        self.stream.local_addr().ok().map(|address| address.ip())
    }

    /// Registers the connection under `token`, in place of an earlier token.
    pub(crate) fn register(&mut self, registry: &Registry, token: Token) -> io::Result<()> {
        let interests = Interest::READABLE | Interest::WRITABLE;
        match self.stream.register(registry, token, interests) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                self.stream.reregister(registry, token, interests)
            }
            result => result,
        }
    }

    /// Reads some of the available bytes.
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

    /// Returns the next complete message.
    ///
    /// # Errors
    /// If the bytes are no message. The connection cannot be used after that.
    pub(crate) fn next(&mut self) -> Result<Option<Message<'_>>, Malformed> {
        self.next_within(MAX_MESSAGE_BYTES)
    }

    /// Like [`next`](Self::next), for messages of at most `longest` bytes.
    pub(crate) fn next_within(&mut self, longest: usize) -> Result<Option<Message<'_>>, Malformed> {
        self.inbox.next(longest)
    }

    /// Sends a message, now or in later [`flush`](Self::flush)es.
    pub(crate) fn send(&mut self, message: &Message<'_>) {
        message.emit(&mut self.outbox);
        self.flush();
    }

    /// Like [`send`](Self::send), for encoded messages, which may go to many connections. Copies
    /// only the bytes that the system does not take now.
    pub(crate) fn send_encoded(&mut self, messages: &[u8]) {
        let n_sent = if self.flush() { write(&mut self.stream, messages) } else { 0 };
        self.outbox.extend_from_slice(&messages[n_sent..]);
    }

    /// Sends as much as the system takes, and returns whether that was everything. A broken
    /// connection takes everything; [`read`](Self::read) reports the loss.
    pub(crate) fn flush(&mut self) -> bool {
        self.n_sent += write(&mut self.stream, &self.outbox[self.n_sent..]);
        if self.has_unsent() {
            return false;
        }
        self.outbox.clear();
        self.n_sent = 0;
        true
    }

    /// Returns whether the system has not yet taken all that was sent.
    pub(crate) fn has_unsent(&self) -> bool {
        self.n_sent < self.outbox.len()
    }

    /// Closes the connection once the messages are sent. Bytes that the system has not taken by the
    /// deadline are dropped.
    pub(crate) fn close(&mut self, deadline: Instant) {
        while !self.flush() && Instant::now() < deadline {
            thread::sleep(Duration::from_millis(1));
        }
        // Read all input first. Some systems reset a connection that is closed with unread input,
        // and then lose what was sent.
        while Instant::now() < deadline && self.read() == ReadStatus::Data {
            self.inbox.clear();
        }
        // Fails if the peer has already closed the connection.
        let _ = self.stream.shutdown(Shutdown::Write);
    }
}

/// Returns the number of bytes that the system takes; all of them if the connection is broken.
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
