//! Ranks as processes over libfabric, which a launcher told their places.

use super::session::{SharedSession, gather};
use crate::Backend;
use foldwire_bootstrap::Exchange;
use foldwire_libfabric::{Endpoint, Settings};
use std::ops::Range;
use std::time::Duration;

/// All ranks of a party.
pub struct LibfabricGroup {
    /// The party, which endpoints share one after the other.
    pub session: SharedSession,
    /// libfabric's provider; `None`: the best.
    pub provider: Option<String>,
    /// Bytes of a frame; `None`: the backend's default.
    pub frame_bytes: Option<usize>,
}

impl Backend for LibfabricGroup {
    type Transport = Endpoint;

    fn run_transports<R: Send>(&self, size: usize, body: impl Fn(Endpoint) -> R + Sync) -> Vec<R> {
        assert_eq!(size, self.session.size(), "groups are of all processes");
        let mut settings = Settings::default();
        settings.provider.clone_from(&self.provider);
        // After each call that fails ranks wait so long for frames that nobody will take; many
        // calls of the suite do.
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
