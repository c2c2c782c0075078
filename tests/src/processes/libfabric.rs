//! Ranks over libfabric as processes. A launcher gives each rank its place.

use super::session::{SharedSession, gather};
use crate::Backend;
use foldwire_bootstrap::Exchange;
use foldwire_libfabric::{Endpoint, Settings};
use std::ops::Range;
use std::time::Duration;

/// All ranks of a bootstrap session.
pub struct LibfabricGroup {
    /// The session. Endpoints use it one after the other.
    pub session: SharedSession,
    /// Provider of libfabric; `None` selects the best.
    pub provider: Option<String>,
    /// Bytes of a frame; `None` selects the backend's default.
    pub frame_bytes: Option<usize>,
}

impl Backend for LibfabricGroup {
    type Transport = Endpoint;

    fn run_transports<R: Send>(&self, size: usize, body: impl Fn(Endpoint) -> R + Sync) -> Vec<R> {
        assert_eq!(size, self.session.size(), "a group consists of all processes");
        let mut settings = Settings::default();
        settings.provider.clone_from(&self.provider);
        // After each failed call, a rank waits this long until its sent frames are delivered. Some
        // never are, because no rank receives them. Many calls of the suite fail.
        settings.options.grace = Duration::from_millis(100);
        if let Some(bytes) = self.frame_bytes {
            settings.options.frame_bytes = bytes;
        }
        let endpoint = foldwire_libfabric::join(&settings, self.session.clone());
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
