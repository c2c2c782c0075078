//! Number of cores, and number of forks that led to this process. A fork handler of the C library
//! counts forks. It does not run in processes that a program makes by the system call `clone`.
#![cfg_attr(unix, allow(unsafe_code, reason = "calls the C library"))]

pub(crate) mod requests;
#[cfg(target_os = "linux")]
pub(crate) mod ring;
#[cfg(target_os = "linux")]
pub(crate) mod shared;
#[cfg(target_os = "linux")]
pub(crate) mod socket;

/// Number of forks that led to this process, or `None` without a counter.
#[cfg(unix)]
pub(crate) fn n_forks() -> Option<u32> {
    use std::sync::OnceLock;
    use std::sync::atomic::{AtomicU32, Ordering};

    static N_FORKS: AtomicU32 = AtomicU32::new(0);
    static COUNTS: OnceLock<bool> = OnceLock::new();

    extern "C" fn count() {
        N_FORKS.fetch_add(1, Ordering::Relaxed);
    }

    let counts = COUNTS.get_or_init(|| {
        // SAFETY: the handler may run at any time in a process that was just forked, because it
        // only increments an atomic number. If this library is unloaded, the C library drops the
        // handler.
        unsafe { libc::pthread_atfork(None, None, Some(count)) == 0 }
    });
    counts.then(|| N_FORKS.load(Ordering::Relaxed))
}

/// This system has no fork handlers.
#[cfg(not(unix))]
pub(crate) const fn n_forks() -> Option<u32> {
    None
}

/// Number of cores of the machine, including cores that this process is not bound to. 1 if unknown.
#[cfg(unix)]
pub(crate) fn n_cores() -> usize {
    // SAFETY: reads a system constant; no pointer is passed.
    let n_cores = unsafe { libc::sysconf(libc::_SC_NPROCESSORS_ONLN) };
    usize::try_from(n_cores).unwrap_or(1)
}

/// The number of cores is unknown on this system.
#[cfg(not(unix))]
pub(crate) const fn n_cores() -> usize {
    1
}
