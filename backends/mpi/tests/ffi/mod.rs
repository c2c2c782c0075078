//! Forking, which the standard library does not offer.
#![allow(unsafe_code, reason = "calls the C library")]

/// Forks; the child's number in the parent, nothing in the child.
///
/// Other threads are not there in the child. It may use what its own thread left consistent, and
/// must not panic into the harness of the tests.
pub(crate) fn fork() -> Option<i32> {
    // SAFETY: the child goes on with its own thread alone. Locks that another thread held stay
    // held; those of the C library's allocator it releases itself, and the child takes no others
    // that a thread of this program's holds for long.
    match unsafe { libc::fork() } {
        0 => None,
        child => {
            assert!(child > 0, "no process can be forked");
            Some(child)
        }
    }
}

/// How a child has ended: its exit code, or 128 and more.
pub(crate) fn wait(child: i32) -> i32 {
    let mut status = 0;
    // SAFETY: the status is valid for the call.
    let waited = unsafe { libc::waitpid(child, &raw mut status, 0) };
    assert_eq!(waited, child, "the child can be waited for");
    if libc::WIFEXITED(status) { libc::WEXITSTATUS(status) } else { 128 + libc::WTERMSIG(status) }
}

/// Ends this process without its harness noticing.
pub(crate) fn exit_now(code: i32) -> ! {
    // SAFETY: it takes a number, and nothing runs after it.
    unsafe { libc::_exit(code) }
}
