//! Ranks over TCP: processes that a launcher gives their places, or threads of this process.

use super::session::{SharedSession, gather};
use crate::Backend;
use foldwire_bootstrap::{Exchange, MemoryStore, StoreExchange, StorePlace};
use foldwire_tcp::{Endpoint, Settings, join};
use std::ops::Range;
use std::thread;
use std::time::Duration;

/// Returns settings with this many bytes in a frame (`None`: the backend's default) and short
/// waits.
#[must_use]
pub fn settings(frame_bytes: Option<usize>) -> Settings {
    let mut settings = Settings::default();
    // After each failed call, a rank waits this long until its sent frames are delivered. Some
    // never are, because no rank receives them. Many calls of the suite fail.
    settings.options.grace = Duration::from_millis(100);
    if let Some(bytes) = frame_bytes {
        settings.options.frame_bytes = bytes;
    }
    settings
}

/// All ranks of a bootstrap session.
pub struct TcpGroup {
    /// The session. Endpoints use it one after the other.
    pub session: SharedSession,
    /// Settings of the connections.
    pub settings: Settings,
}

impl Backend for TcpGroup {
    type Transport = Endpoint;

    fn run_transports<R: Send>(&self, size: usize, body: impl Fn(Endpoint) -> R + Sync) -> Vec<R> {
        assert_eq!(size, self.session.size(), "a group consists of all processes");
        let endpoint = join(&self.settings, &mut self.session.clone());
        vec![body(endpoint.unwrap_or_else(|error| panic!("no endpoint: {error}")))]
    }

    fn ranks(&self, _: usize) -> Range<usize> {
        let rank = self.session.rank().index();
        rank..rank + 1
    }

    fn gather(&self, own: Vec<u64>) -> Vec<u64> {
        gather(&self.session, own)
    }
}

/// Ranks as threads of this process, connected by real sockets.
pub struct TcpThreads {
    /// Settings of the connections.
    pub settings: Settings,
}

impl Backend for TcpThreads {
    type Transport = Endpoint;

    fn run_transports<R: Send>(&self, size: usize, body: impl Fn(Endpoint) -> R + Sync) -> Vec<R> {
        let (settings, body) = (&self.settings, &body);
        let store = MemoryStore::default();
        let rank = |rank, store| {
            let place = StorePlace::new(rank, size, "tests");
            let mut exchange = StoreExchange::new(store, place).expect("a valid place");
            let endpoint = join(settings, &mut exchange);
            body(endpoint.unwrap_or_else(|error| panic!("no endpoint: {error}")))
        };
        thread::scope(|scope| {
            let start = |at| {
                let (rank, store) = (&rank, store.clone());
                scope.spawn(move || rank(at, store))
            };
            let threads: Vec<_> = (0..size).map(start).collect();
            let end = |thread: thread::ScopedJoinHandle<'_, R>| {
                thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            };
            threads.into_iter().map(end).collect()
        })
    }
}
