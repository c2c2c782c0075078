//! What the system's C library says: how many cores there are, and how often this process, or one
//! that it comes of, has been forked off another. Processes made by system calls alone (`clone`) it
//! does not see.
#![cfg_attr(unix, allow(unsafe_code, reason = "asks the C library"))]

pub(crate) mod requests;
#[cfg(target_os = "linux")]
pub(crate) mod shared;

/// How many forks; `None` where nobody counts.
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
        // SAFETY: the function may be called at any time in a process that was just forked off: it
        // only adds to a number. If this library is unloaded, the C library forgets the function.
        unsafe { libc::pthread_atfork(None, None, Some(count)) == 0 }
    });
    counts.then(|| N_FORKS.load(Ordering::Relaxed))
}

/// Nobody counts.
#[cfg(not(unix))]
pub(crate) const fn n_forks() -> Option<u32> {
    None
}

/// How many cores the machine has, whichever of them this process is bound to; 1 where that is not
/// known.
#[cfg(unix)]
pub(crate) fn n_cores() -> usize {
    // SAFETY: a question without arguments in memory.
    let n_cores = unsafe { libc::sysconf(libc::_SC_NPROCESSORS_ONLN) };
    usize::try_from(n_cores).unwrap_or(1)
}

/// Nobody asks.
#[cfg(not(unix))]
pub(crate) const fn n_cores() -> usize {
    1
}
