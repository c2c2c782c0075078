//! Access to a descriptor that this process inherited.

#![allow(unsafe_code, reason = "a descriptor known by its number only")]

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd, RawFd};

/// Duplicates the descriptor `number`, so that closing it leaves the original open.
///
/// # Errors
/// If no such descriptor is open.
pub(super) fn duplicate(number: RawFd) -> io::Result<OwnedFd> {
    if number < 0 {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    // SAFETY: the number is not -1, the only value that a `BorrowedFd` must not hold. The launcher
    // opened the descriptor for this process, and it is borrowed for one `fcntl`, which fails if it
    // is not open. So no memory depends on it.
    unsafe { BorrowedFd::borrow_raw(number) }.try_clone_to_owned()
}
