//! Number of bytes that a socket still holds for its peer.

use std::io;
use std::os::fd::{AsFd, AsRawFd};

/// Returns the number of bytes that were written to a TCP socket and that the peer's system has not
/// acknowledged. The end of the sending direction counts as one byte.
///
/// # Errors
/// If this is no socket.
pub fn n_unacknowledged(socket: &impl AsFd) -> io::Result<usize> {
    let mut n_bytes: libc::c_int = 0;
    let descriptor = socket.as_fd().as_raw_fd();
    // SAFETY: the descriptor is open as long as `socket` is borrowed. The call writes one number to
    // the pointer, which points to a number of this type.
    match unsafe { libc::ioctl(descriptor, libc::TIOCOUTQ, &raw mut n_bytes) } {
        0 => Ok(usize::try_from(n_bytes).unwrap_or(0)),
        _ => Err(io::Error::last_os_error()),
    }
}
