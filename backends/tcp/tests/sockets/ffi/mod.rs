//! Forking, which the standard library does not provide.
#![allow(unsafe_code, reason = "calls the C library")]

/// Forks. Returns the child's process id in the parent, and `None` in the child.
///
/// Other threads do not exist in the child. It may use only data that the forking thread left
/// consistent, and must not panic into the test harness.
pub(crate) fn fork() -> Option<i32> {
    // SAFETY: the child runs only the thread that forked. Locks that another thread held stay held.
    // The C library releases the locks of its allocator in the child. The child takes no other
    // locks that a thread of this program holds for long.
    match unsafe { libc::fork() } {
        0 => None,
        child => {
            assert!(child > 0, "fork failed");
            Some(child)
        }
    }
}

/// Waits for a child and returns its exit code, or 128 plus the signal that ended it.
pub(crate) fn wait(child: i32) -> i32 {
    let mut status = 0;
    // SAFETY: `status` is valid for writes during the call.
    let waited = unsafe { libc::waitpid(child, &raw mut status, 0) };
    assert_eq!(waited, child, "the child can be waited for");
    if libc::WIFEXITED(status) { libc::WEXITSTATUS(status) } else { 128 + libc::WTERMSIG(status) }
}

/// Ends this process without running the test harness's exit code.
pub(crate) fn exit_now(code: i32) -> ! {
    // SAFETY: `_exit` takes a plain number, and no code of this process runs after it.
    unsafe { libc::_exit(code) }
}
