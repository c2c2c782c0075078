//! Bytes of one connection, as they are or sealed.

use std::io::{self, IoSlice, IoSliceMut, Read};
use std::net::Shutdown;
use std::time::Duration;

use mio::net::TcpStream;
use socket2::{SockRef, TcpKeepalive};

#[cfg(feature = "noise")]
use crate::noise::NoiseChannel;

/// A machine that has vanished without a word is found out after about this time plus three times
/// [`KEEPALIVE_INTERVAL`], where nothing is on its way to it: on the quiet connection at least.
const KEEPALIVE_AFTER: Duration = Duration::from_secs(10);
#[cfg(any(target_os = "linux", target_os = "macos", windows))]
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(5);

/// One connection. Nothing here waits.
pub(crate) struct ByteStream {
    pub(crate) socket: TcpStream,
    #[cfg(feature = "noise")]
    channel: Option<Box<NoiseChannel>>,
}

impl ByteStream {
    /// A connection that is open, without encryption.
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

    /// From now on encrypted.
    #[cfg(feature = "noise")]
    pub(crate) fn encrypted(mut self, channel: NoiseChannel) -> Self {
        self.channel = Some(Box::new(channel));
        self
    }

    /// Whether what is read and written is what travels, so that a short read means that no more is
    /// here.
    pub(crate) const fn is_plain(&self) -> bool {
        #[cfg(feature = "noise")]
        return self.channel.is_none();
        #[cfg(not(feature = "noise"))]
        return true;
    }

    /// Reads as a socket does.
    pub(crate) fn read(&mut self, slices: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        #[cfg(feature = "noise")]
        if let Some(channel) = &mut self.channel {
            return channel.read(&mut self.socket, slices);
        }
        self.socket.read_vectored(slices)
    }

    /// Writes as a socket does. What was taken may still be [under way](Self::is_flushed) here.
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

    /// Hands on what was written before, as far as the system takes it.
    pub(crate) fn flush(&mut self) -> io::Result<()> {
        #[cfg(feature = "noise")]
        if let Some(channel) = &mut self.channel {
            return channel.flush(&mut self.socket);
        }
        Ok(())
    }

    /// Whether the system has all that was written.
    pub(crate) fn is_flushed(&self) -> bool {
        #[cfg(feature = "noise")]
        return self.channel.as_ref().is_none_or(|channel| channel.is_flushed());
        #[cfg(not(feature = "noise"))]
        return true;
    }

    /// Says that no more will be written.
    pub(crate) fn finish(&mut self) {
        // Fails if the other side was first.
        let _ = self.socket.shutdown(Shutdown::Write);
    }
}

/// Writes to a socket whose other side may have ended: an error, and no SIGPIPE, which ends
/// programs that were not started by Rust's standard library.
#[cfg(any(target_os = "linux", target_os = "android"))]
fn send(socket: &mut TcpStream, slices: &[IoSlice<'_>]) -> io::Result<usize> {
    let flags = nix::sys::socket::MsgFlags::MSG_NOSIGNAL.bits();
    SockRef::from(&*socket).send_vectored_with_flags(slices, flags)
}

/// Where the standard library's sockets raise no signal, or nobody has tried.
#[cfg(not(any(target_os = "linux", target_os = "android")))]
fn send(socket: &mut TcpStream, slices: &[IoSlice<'_>]) -> io::Result<usize> {
    io::Write::write_vectored(socket, slices)
}
