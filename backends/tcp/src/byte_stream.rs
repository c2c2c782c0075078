//! Bytes of one connection, plain or encrypted.

use std::io::{self, IoSlice, IoSliceMut, Read};
use std::net::Shutdown;
use std::time::Duration;

#[cfg(target_os = "linux")]
use foldwire_messaging::n_unacknowledged;
use mio::net::TcpStream;
use socket2::{SockRef, TcpKeepalive};

#[cfg(feature = "noise")]
use crate::noise::NoiseChannel;

/// Idle time after which the system probes a connection. A machine that vanishes is detected after
/// about this time plus three times [`KEEPALIVE_INTERVAL`], if no data is on its way to it. Between
/// nodes, a pair of ranks therefore has one more connection, which is always idle (`net`).
const KEEPALIVE_AFTER: Duration = Duration::from_secs(10);
#[cfg(any(target_os = "linux", target_os = "macos", windows))]
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(5);

/// One nonblocking connection.
pub(crate) struct ByteStream {
    pub(crate) socket: TcpStream,
    #[cfg(feature = "noise")]
    channel: Option<Box<NoiseChannel>>,
}

impl ByteStream {
    /// Takes over a connected socket, without encryption.
    pub(crate) fn new(socket: TcpStream) -> io::Result<Self> {
        socket.set_nodelay(true)?;
        let keepalive = TcpKeepalive::new().with_time(KEEPALIVE_AFTER);
        #[cfg(any(target_os = "linux", target_os = "macos", windows))]
        let keepalive = keepalive.with_interval(KEEPALIVE_INTERVAL).with_retries(3);
        SockRef::from(&socket).set_tcp_keepalive(&keepalive)?;
        Ok(Self {
            socket,
            #[cfg(feature = "noise")]
            channel: None,
        })
    }

    /// Encrypts the connection from now on.
    #[cfg(feature = "noise")]
    pub(crate) fn encrypted(mut self, channel: NoiseChannel) -> Self {
        self.channel = Some(Box::new(channel));
        self
    }

    /// Returns whether the connection is not encrypted. Then a short read means that no more bytes
    /// are available.
    pub(crate) const fn is_plain(&self) -> bool {
        #[cfg(feature = "noise")]
        return self.channel.is_none();
        #[cfg(not(feature = "noise"))]
        return true;
    }

    /// Reads like a socket.
    pub(crate) fn read(&mut self, slices: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        #[cfg(feature = "noise")]
        if let Some(channel) = &mut self.channel {
            return channel.read(&mut self.socket, slices);
        }
        self.socket.read_vectored(slices)
    }

    /// Writes like a socket. An encrypted connection may still [hold](Self::is_flushed) the bytes.
    pub(crate) fn write(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        #[cfg(feature = "noise")]
        if let Some(channel) = &mut self.channel {
            return channel.write(&mut self.socket, slices);
        }
        match send(&mut self.socket, slices)? {
            0 => Err(io::ErrorKind::WriteZero.into()),
            n_bytes => Ok(n_bytes),
        }
    }

    /// Passes held bytes to the system, as many as it takes.
    pub(crate) fn flush(&mut self) -> io::Result<()> {
        #[cfg(feature = "noise")]
        if let Some(channel) = &mut self.channel {
            return channel.flush(&mut self.socket);
        }
        Ok(())
    }

    /// Returns whether the system has taken all bytes that were written.
    pub(crate) fn is_flushed(&self) -> bool {
        #[cfg(feature = "noise")]
        return self.channel.as_ref().is_none_or(|channel| channel.is_flushed());
        #[cfg(not(feature = "noise"))]
        return true;
    }

    /// Returns whether the peer's system has acknowledged all bytes that this system has taken.
    pub(crate) fn is_delivered(&self) -> bool {
        // A broken connection delivers nothing more.
        #[cfg(target_os = "linux")]
        return n_unacknowledged(&self.socket).map_or(true, |n_bytes| n_bytes == 0);
        // Other systems do not say it in the same way, so wait until the peer closes its side.
        #[cfg(not(target_os = "linux"))]
        return false;
    }

    /// Closes the sending direction.
    pub(crate) fn finish(&mut self) {
        // Fails if the peer has already closed the connection.
        let _ = self.socket.shutdown(Shutdown::Write);
    }
}

/// Writes to a socket. If the peer has closed it, returns an error and raises no SIGPIPE, which
/// would end programs that Rust's standard library did not start.
#[cfg(any(target_os = "linux", target_os = "android"))]
fn send(socket: &mut TcpStream, slices: &[IoSlice<'_>]) -> io::Result<usize> {
    let flags = nix::sys::socket::MsgFlags::MSG_NOSIGNAL.bits();
    SockRef::from(&*socket).send_vectored_with_flags(slices, flags)
}

/// Writes to a socket on other systems. Apple's sockets are created with SO_NOSIGPIPE, and Windows
/// has no signals of this kind. On all others, such as the BSDs, this is untested.
#[cfg(not(any(target_os = "linux", target_os = "android")))]
fn send(socket: &mut TcpStream, slices: &[IoSlice<'_>]) -> io::Result<usize> {
    io::Write::write_vectored(socket, slices)
}
