//! Wakes whoever awaits a call: a thread that looks at the network while the rank sleeps.
//!
//! It watches the rank's own watcher of its sockets (which is itself something that becomes
//! readable), so it neither reads nor writes, and takes nothing away from the rank. It starts with
//! the first waker.

use std::io;
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Waker;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use mio::unix::SourceFd;
use mio::{Events, Interest, Poll, Token};

/// How often a waker is woken that nothing else wakes.
const TICK: Duration = Duration::from_millis(20);
const NETWORK: Token = Token(0);
const END: Token = Token(1);

#[derive(Default)]
struct Shared {
    waker: Mutex<Option<Waker>>,
    ends: AtomicBool,
}

/// The thread, until this is dropped.
pub(crate) struct WakerThread {
    shared: Arc<Shared>,
    end: mio::Waker,
    thread: Option<JoinHandle<()>>,
}

impl WakerThread {
    /// Watches what `network` watches.
    pub(crate) fn start(network: &Poll) -> io::Result<Self> {
        let poll = Poll::new()?;
        let source = network.as_raw_fd();
        poll.registry().register(&mut SourceFd(&source), NETWORK, Interest::READABLE)?;
        let end = mio::Waker::new(poll.registry(), END)?;
        let shared = Arc::new(Shared::default());
        let theirs = Arc::clone(&shared);
        let thread = thread::Builder::new().name("foldwire-tcp".to_owned());
        let thread = Some(thread.spawn(move || run(poll, &theirs))?);
        Ok(Self { shared, end, thread })
    }

    /// Has this waker woken by what happens from now on, in place of any other.
    pub(crate) fn register(&self, waker: &Waker) {
        let mut slot = self.shared.waker.lock().unwrap_or_else(PoisonError::into_inner);
        match &mut *slot {
            Some(same) => same.clone_from(waker),
            none => *none = Some(waker.clone()),
        }
    }
}

fn run(mut poll: Poll, shared: &Shared) {
    let mut events = Events::with_capacity(2);
    while !shared.ends.load(Ordering::Acquire) {
        // By a signal it ends early, which wakes for nothing; what else is wrong, time mends.
        if poll.poll(&mut events, Some(TICK)).is_err() {
            thread::sleep(TICK);
        }
        let waker = shared.waker.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

impl Drop for WakerThread {
    fn drop(&mut self) {
        self.shared.ends.store(true, Ordering::Release);
        // If it cannot be woken, it ends with the next tick.
        let _ = self.end.wake();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
