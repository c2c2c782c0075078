//! PMI-1's wire protocol, for ranks whose launcher knows what the environment does not say.
//!
//! A launcher with PMI keeps a store of texts for the ranks that it started. Hydra (MPICH, Intel
//! MPI), Slurm (`srun --mpi=pmi2`, which speaks version 1 as well) and Flux pass a socket in
//! `PMI_FD`, or an address in `PMI_PORT`. A rank sends a line `cmd=NAME KEY=VALUE …` and reads a
//! line of the same form.
//!
//! ```text
//!   rank                                          launcher
//!   cmd=initack pmiid=ID      (with PMI_PORT)     cmd=initack rc=0; then three lines cmd=set with
//!                                                 size=N, rank=R and debug=0
//!   cmd=init pmi_version=1 pmi_subversion=1       cmd=response_to_init rc=0 pmi_version=1 …
//!   cmd=get_maxes                                 cmd=maxes keylen_max=… vallen_max=… …
//!   cmd=get_my_kvsname                            cmd=my_kvsname kvsname=K
//!   cmd=put kvsname=K key=… value=…  (rank 0)     cmd=put_result rc=0
//!   cmd=barrier_in                                cmd=barrier_out, once all ranks have sent it
//!   cmd=get kvsname=K key=…                       cmd=get_result rc=0 value=…
//!   cmd=finalize                                  cmd=finalize_ack
//! ```
//!
//! No line is longer than [`MAX_LINE_BYTES`], whatever the server says, and every wait has a time
//! limit. [`meet`](crate::pmi::meet) uses it to publish where rank 0 listens.
//!
//! Source: the wire protocol of MPICH's `simple_pmi`, and RFC 13 of Flux.

mod error;
#[cfg(unix)]
mod ffi;
pub(crate) mod meet;

use std::io::{self, Read};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use socket2::Socket;

use crate::member;
use crate::rendezvous::{SHORTEST_LIMIT, deadline_after};
use crate::root::resolve_within;

pub use error::PmiError;

/// Longest line that is accepted or sent.
pub(crate) const MAX_LINE_BYTES: usize = 4096;

/// Where the launcher's server is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum PmiServer {
    /// `PMI_FD`: the number of a socket that this process inherited.
    Descriptor(i32),
    /// `PMI_PORT` and `PMI_ID`: an address, and this process's number there.
    Port { address: String, id: u64 },
}

/// A connection to the launcher's server.
pub(crate) struct PmiClient {
    socket: Socket,
    /// Bytes that were received and not yet read as lines.
    received: Vec<u8>,
    deadline: Instant,
    /// Time limit of the whole conversation.
    limit: Duration,
    /// Rank and size, if the server has told them.
    place: Option<(u64, u64)>,
}

impl PmiClient {
    /// Connects, and agrees on the version.
    pub(crate) fn connect(server: &PmiServer, limit: Duration) -> Result<Self, PmiError> {
        let deadline = deadline_after(limit);
        let (socket, id) = match server {
            PmiServer::Descriptor(number) => (inherited(*number)?, None),
            PmiServer::Port { address, id } => (dialled(address, deadline)?.into(), Some(*id)),
        };
        Self::greet(socket, id, deadline, limit)
    }

    /// Agrees on the version. A server at `PMI_PORT` is told this process's number there. The whole
    /// conversation, which may have begun earlier, ends at the deadline; `limit` is for messages.
    pub(crate) fn greet(
        socket: Socket,
        id: Option<u64>,
        deadline: Instant,
        limit: Duration,
    ) -> Result<Self, PmiError> {
        let mut client = Self { socket, received: Vec::new(), deadline, limit, place: None };
        if let Some(id) = id {
            let reply = client.ask("initack", &format!(" pmiid={id}"), "initack")?;
            reply.check("initack")?;
            let (size, rank) = (client.told("size")?, client.told("rank")?);
            client.told("debug")?;
            client.place = Some((rank, size));
        }
        let reply = client.ask("init", " pmi_version=1 pmi_subversion=1", "response_to_init")?;
        reply.check("init")?;
        match reply.text("pmi_version") {
            Some("1") => Ok(client),
            _ => Err(reply.unexpected("init")),
        }
    }

    /// Rank and size, if the server has told them.
    pub(crate) fn place(&self) -> Option<(u64, u64)> {
        self.place
    }

    /// This machine's address on the connection to the server, unless it is loopback or none.
    pub(crate) fn local_address(&self) -> Option<IpAddr> {
        let address = self.socket.local_addr().ok()?.as_socket()?.ip();
        (!address.to_canonical().is_loopback()).then_some(address)
    }

    /// Time until the deadline.
    pub(crate) fn left(&self) -> Duration {
        self.deadline.saturating_duration_since(Instant::now())
    }

    /// Returns the name of the store, whose keys and values may have `key` and `value` bytes.
    pub(crate) fn store(&mut self, key: usize, value: usize) -> Result<String, PmiError> {
        let maxes = self.ask("get_maxes", "", "maxes")?;
        for (name, need) in [("keylen_max", key), ("vallen_max", value)] {
            let have = maxes.number(name).ok_or_else(|| maxes.unexpected("get_maxes"))?;
            // A server counts a final zero byte or does not.
            if have <= need as u64 {
                return Err(PmiError::Room { name, need, have });
            }
        }
        let reply = self.ask("get_my_kvsname", "", "my_kvsname")?;
        reply.check("get_my_kvsname")?;
        match reply.text("kvsname") {
            Some(name) if !name.is_empty() => Ok(name.to_owned()),
            _ => Err(reply.unexpected("get_my_kvsname")),
        }
    }

    /// Stores a value, which the other ranks can read after a [`barrier`](Self::barrier).
    pub(crate) fn put(&mut self, store: &str, key: &str, value: &str) -> Result<(), PmiError> {
        let words = format!(" kvsname={store} key={key} value={value}");
        self.ask("put", &words, "put_result")?.check("put")
    }

    /// Waits until all ranks have called it.
    pub(crate) fn barrier(&mut self) -> Result<(), PmiError> {
        self.ask("barrier_in", "", "barrier_out")?.check("barrier_in")
    }

    /// Reads a value.
    pub(crate) fn get(&mut self, store: &str, key: &str) -> Result<String, PmiError> {
        let reply = self.ask("get", &format!(" kvsname={store} key={key}"), "get_result")?;
        reply.check("get")?;
        match reply.text("value") {
            Some(value) => Ok(value.to_owned()),
            None => Err(reply.unexpected("get")),
        }
    }

    /// Says goodbye. Without it, a launcher takes the end of this process for a failure.
    pub(crate) fn finalize(mut self) -> Result<(), PmiError> {
        self.ask("finalize", "", "finalize_ack").map(|_| ())
    }

    /// Reads a line `cmd=set NAME=NUMBER`.
    fn told(&mut self, name: &'static str) -> Result<u64, PmiError> {
        let reply = self.line("initack")?;
        match (reply.text("cmd"), reply.number(name)) {
            (Some("set"), Some(number)) => Ok(number),
            _ => Err(reply.unexpected("initack")),
        }
    }

    /// Sends a command and reads the answer.
    fn ask(
        &mut self,
        command: &'static str,
        words: &str,
        answer: &str,
    ) -> Result<PmiReply, PmiError> {
        let line = format!("cmd={command}{words}\n");
        if line.len() > MAX_LINE_BYTES {
            return Err(PmiError::TooLong);
        }
        self.wait_at_most(command)?;
        send_all(&self.socket, line.as_bytes()).map_err(|error| self.failed(command, &error))?;
        let reply = self.line(command)?;
        if reply.text("cmd") == Some(answer) { Ok(reply) } else { Err(reply.unexpected(command)) }
    }

    /// Reads one line.
    fn line(&mut self, command: &'static str) -> Result<PmiReply, PmiError> {
        loop {
            if let Some(end) = self.received.iter().position(|&byte| byte == b'\n') {
                let line: Vec<u8> = self.received.drain(..=end).collect();
                return PmiReply::read(&line[..end]).ok_or(PmiError::NotText { command });
            }
            if self.received.len() >= MAX_LINE_BYTES {
                return Err(PmiError::TooLong);
            }
            self.wait_at_most(command)?;
            let mut room = [0; 512];
            let n = match self.socket.read(&mut room) {
                Ok(0) => return Err(PmiError::Closed { command }),
                Ok(n) => n,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(self.failed(command, &error)),
            };
            self.received.extend_from_slice(&room[..n]);
        }
    }

    /// Sets the time limit of the next read or write.
    fn wait_at_most(&self, command: &'static str) -> Result<(), PmiError> {
        let left = self.left();
        if left.is_zero() {
            return Err(PmiError::Late { command, limit: self.limit });
        }
        limit_calls(&self.socket, left).map_err(|error| self.failed(command, &error))
    }

    fn failed(&self, command: &'static str, error: &io::Error) -> PmiError {
        match error.kind() {
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => {
                PmiError::Late { command, limit: self.limit }
            }
            io::ErrorKind::UnexpectedEof
            | io::ErrorKind::BrokenPipe
            | io::ErrorKind::ConnectionReset => PmiError::Closed { command },
            kind => PmiError::System { command, kind },
        }
    }
}

impl Drop for PmiClient {
    /// Removes the time limits: the launcher's socket may be open elsewhere in this process.
    fn drop(&mut self) {
        let _ = self.socket.set_read_timeout(None);
        let _ = self.socket.set_write_timeout(None);
    }
}

/// Sends all bytes. If the server has closed the connection, returns an error and raises no
/// SIGPIPE, which would end programs that Rust's standard library did not start.
fn send_all(socket: &Socket, mut bytes: &[u8]) -> io::Result<()> {
    #[cfg(any(target_os = "linux", target_os = "android"))]
    let flags = nix::sys::socket::MsgFlags::MSG_NOSIGNAL.bits();
    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    let flags = 0;
    while !bytes.is_empty() {
        match socket.send_with_flags(bytes, flags) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(n_bytes) => bytes = &bytes[n_bytes..],
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Sets the time limit of a socket's next calls.
fn limit_calls(socket: &Socket, left: Duration) -> io::Result<()> {
    // `Socket` cuts the time to microseconds, and zero would be no limit.
    let left = left.max(SHORTEST_LIMIT);
    socket.set_nonblocking(false)?;
    socket.set_read_timeout(Some(left))?;
    socket.set_write_timeout(Some(left))
}

/// Returns another descriptor of an inherited socket.
fn inherited(number: i32) -> Result<Socket, PmiError> {
    #[cfg(unix)]
    let socket = ffi::duplicate(number).map(Socket::from);
    #[cfg(not(unix))]
    let socket = Err(io::ErrorKind::Unsupported.into());
    // Only a socket has a type. A file of that number is another program's.
    let socket = socket.and_then(|socket: Socket| socket.r#type().map(|_| socket));
    socket.map_err(|error| PmiError::Descriptor { number, kind: error.kind() })
}

/// Connects to `HOST:PORT` before the deadline, at one of the host's addresses.
fn dialled(address: &str, deadline: Instant) -> Result<TcpStream, PmiError> {
    let failed = |error: io::Error| PmiError::Unreachable {
        address: address.to_owned(),
        kind: error.kind(),
    };
    let left = || deadline.saturating_duration_since(Instant::now());
    let found = match address.parse::<SocketAddr>() {
        Ok(one) => vec![one],
        Err(_) => resolve_within(address.to_owned(), left())
            .unwrap_or_else(|| Err(io::ErrorKind::TimedOut.into()))
            .map_err(failed)?,
    };
    let mut last = io::ErrorKind::NotFound.into();
    for (&at, n_left) in found.iter().zip((1..=found.len() as u32).rev()) {
        // An address that is silent leaves the later ones their part of the time.
        match member::connect(at, Instant::now() + left() / n_left) {
            Ok(stream) => return Ok(stream),
            Err(error) => last = error,
        }
    }
    Err(failed(last))
}

/// A line of the server.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct PmiReply(String);

impl PmiReply {
    /// Reads a line without its end. Returns `None` if it is not text.
    pub(crate) fn read(line: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(line).ok()?;
        (!text.chars().any(|char| char.is_control() && char != '\t')).then(|| Self(text.to_owned()))
    }

    /// Returns the value of a key; the first counts.
    pub(crate) fn text(&self, key: &str) -> Option<&str> {
        let words = self.0.split([' ', '\t']).filter_map(|word| word.split_once('='));
        words.into_iter().find(|(name, _)| *name == key).map(|(_, value)| value)
    }

    fn number(&self, key: &str) -> Option<u64> {
        self.text(key)?.parse().ok()
    }

    /// Fails if the server reports a failure.
    fn check(&self, command: &'static str) -> Result<(), PmiError> {
        match self.text("rc") {
            None | Some("0") => Ok(()),
            Some(_) => Err(PmiError::Refused { command, reply: self.short() }),
        }
    }

    fn unexpected(&self, command: &'static str) -> PmiError {
        PmiError::Unexpected { command, reply: self.short() }
    }

    /// The beginning of the line, for messages, without a value: that may be a secret.
    fn short(&self) -> String {
        let shown = self.0.split_once("value=").map_or(&*self.0, |(before, _)| before);
        shown.replace('\t', " ").chars().take(80).collect()
    }
}

#[cfg(all(test, unix))]
mod tests;
