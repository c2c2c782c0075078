//! Thread that watches the network and wakes the task that awaits a call.
//!
//! The thread polls the rank's own poller, which becomes readable when a socket is ready. So the
//! thread neither reads nor writes, and consumes no readiness. It starts with the first waker.

use std::io;
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Waker;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use mio::unix::SourceFd;
use mio::{Events, Interest, Poll, Token};

/// Longest time until a waker is woken without an event.
const TICK: Duration = Duration::from_millis(20);
const NETWORK: Token = Token(0);
const END: Token = Token(1);

#[derive(Default)]
struct WakerState {
    waker: Mutex<Option<Waker>>,
    /// The thread must end.
    ends: AtomicBool,
}

/// Handle of the thread. Dropping it ends the thread.
pub(crate) struct WakerThread {
    shared: Arc<WakerState>,
    end: mio::Waker,
    thread: Option<JoinHandle<()>>,
}

impl WakerThread {
    /// Starts the thread, which watches the sources of `network`.
    pub(crate) fn start(network: &Poll) -> io::Result<Self> {
        let poll = Poll::new()?;
        let source = network.as_raw_fd();
        poll.registry().register(&mut SourceFd(&source), NETWORK, Interest::READABLE)?;
        let end = mio::Waker::new(poll.registry(), END)?;
        let shared = Arc::new(WakerState::default());
        let for_thread = Arc::clone(&shared);
        let thread = thread::Builder::new().name("foldwire-tcp".to_owned());
        let thread = Some(thread.spawn(move || run(poll, &for_thread))?);
        Ok(Self { shared, end, thread })
    }

    /// Sets the waker to wake at the next event or tick, in place of an earlier one. Returns false
    /// if the thread has ended, since an earlier waker panicked.
    pub(crate) fn register(&self, waker: &Waker) -> bool {
        if self.thread.as_ref().is_none_or(JoinHandle::is_finished) {
            return false;
        }
        let mut slot = self.shared.waker.lock().unwrap_or_else(PoisonError::into_inner);
        match &mut *slot {
            Some(same) => same.clone_from(waker),
            none => *none = Some(waker.clone()),
        }
        true
    }
}

fn run(mut poll: Poll, shared: &WakerState) {
    let mut events = Events::with_capacity(2);
    while !shared.ends.load(Ordering::Acquire) {
        // A signal ends `poll` early and causes a needless wake. Other errors only delay the next
        // wake by a tick.
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
        // Without this wake, the thread ends with the next tick.
        let _ = self.end.wake();
        // A wake may drop the task that owns this handle. Then this is the thread itself.
        let thread = self.thread.take();
        if let Some(thread) = thread.filter(|it| it.thread().id() != thread::current().id()) {
            let _ = thread.join();
        }
    }
}
