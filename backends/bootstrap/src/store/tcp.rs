//! A store in one process, which the others reach over TCP.
//!
//! The process that hosts the store serves the others whenever it is in a call of the store, and in
//! [`Store::progress`]. So it must not end, or compute for long, while others wait; a launcher or
//! rank 0 suits. If it is killed, the store and its values are gone.
//!
//! Any number of processes may connect at the same time, up to 65,536 in all. The host serves 64 at
//! a time that have not proven yet that they know the token; others wait. One that stays silent
//! while others wait loses its place after a tenth of a second, and may try again.
//!
//! Both ends of a connection prove that they know the token (`protocol`).

mod client;
pub(crate) mod conversation;
pub(crate) mod protocol;
mod server;

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::time::Duration;

use foldwire::store::{Store, StoreError, check_entry, check_key};

use crate::token::Token;
use client::{Client, GoesOn};
use server::Server;

/// A store over TCP: the host's side, or the side of a process that connects to it.
///
/// # Examples
/// ```
/// use foldwire::store::Store;
/// use foldwire_bootstrap::TcpStore;
/// use std::{net::TcpListener, time::Duration};
///
/// let mut host = TcpStore::host(TcpListener::bind("127.0.0.1:0")?, None)?;
/// let address = host.address();
/// let other = std::thread::spawn(move || {
///     let mut store = TcpStore::connect(address, None, Duration::from_secs(5));
///     store.set("key", b"value")
/// });
/// assert_eq!(host.wait("key", Duration::from_secs(5))?.as_deref(), Some(&b"value"[..]));
/// # // The other side waits for the answer.
/// # while !other.is_finished() { host.progress(); }
/// # other.join().unwrap()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct TcpStore(Side);

#[derive(Debug)]
enum Side {
    Host(Box<Server>),
    Other(Client),
}

impl TcpStore {
    /// Hosts a store at a listening socket.
    ///
    /// # Errors
    /// If other machines can reach the socket and there is no token, or the system fails.
    pub fn host(listener: TcpListener, token: Option<Token>) -> io::Result<Self> {
        if token.is_none() && !listener.local_addr()?.ip().to_canonical().is_loopback() {
            let message = "a store that other machines can reach needs a token (FOLDWIRE_TOKEN)";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
        }
        Ok(Self(Side::Host(Box::new(Server::new(listener, token)?))))
    }

    /// Reaches the store that another process hosts. The first call connects. Each call waits for
    /// an answer for at most `limit`, beyond its own limit; the host may start later than this
    /// process. More than a year counts as a year.
    #[must_use]
    pub fn connect(address: SocketAddr, token: Option<Token>, limit: Duration) -> Self {
        Self(Side::Other(Client::new(address, token, limit)))
    }

    /// Lets a function end this process's waits for the host, for example after Ctrl-C. It is asked
    /// about ten times a second, and once a second while nobody answers at the host's address. If
    /// it returns false, the call fails with [`StoreError::Failed`].
    #[must_use]
    pub fn with_stop_check(mut self, goes_on: impl FnMut() -> bool + Send + 'static) -> Self {
        if let Side::Other(client) = &mut self.0 {
            client.set_goes_on(GoesOn(Box::new(goes_on)));
        }
        self
    }

    /// Address of the process that hosts the store.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        match &self.0 {
            Side::Host(server) => server.address(),
            Side::Other(client) => client.address(),
        }
    }
}

impl Store for TcpStore {
    fn set(&mut self, key: &str, value: &[u8]) -> Result<(), StoreError> {
        check_entry(key, value)?;
        match &mut self.0 {
            Side::Host(server) => server.set(key, value),
            Side::Other(client) => client.set(key, value),
        }
    }

    fn get(&mut self, key: &str) -> Result<Option<Vec<u8>>, StoreError> {
        self.wait(key, Duration::ZERO)
    }

    fn wait(&mut self, key: &str, limit: Duration) -> Result<Option<Vec<u8>>, StoreError> {
        check_key(key)?;
        match &mut self.0 {
            Side::Host(server) => Ok(server.wait(key, limit)),
            Side::Other(client) => client.wait(key, limit),
        }
    }

    fn progress(&mut self) {
        if let Side::Host(server) = &mut self.0 {
            server.serve();
        }
    }

    fn is_hosted_here(&self) -> bool {
        matches!(self.0, Side::Host(_))
    }
}
