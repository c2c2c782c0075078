//! Ranks as processes over libfabric, which a launcher told their places.

use crate::Backend;
use foldwire::Rank;
use foldwire_bootstrap::{Error, Exchange, Party};
use foldwire_libfabric::{Endpoint, Settings};
use std::cell::RefCell;
use std::ops::Range;
use std::rc::Rc;
use std::time::Duration;

/// All ranks of a party.
pub struct Group {
    /// The party, which endpoints share one after the other.
    pub party: SharedParty,
    /// libfabric's provider; `None`: the best.
    pub provider: Option<String>,
    /// Bytes of a frame; `None`: the backend's default.
    pub frame_bytes: Option<usize>,
}

/// A party that lives longer than the endpoint that it sets up.
#[derive(Clone)]
pub struct SharedParty(Rc<RefCell<Party>>);

impl SharedParty {
    /// Shares a party.
    #[must_use]
    pub fn new(party: Party) -> Self {
        Self(Rc::new(RefCell::new(party)))
    }
}

impl Exchange for SharedParty {
    type Error = Error;

    fn rank(&self) -> Rank {
        self.0.borrow().rank()
    }

    fn size(&self) -> usize {
        self.0.borrow().size()
    }

    fn all_gather(&mut self, mine: &[u8]) -> Result<Vec<Vec<u8>>, Error> {
        self.0.borrow_mut().all_gather(mine)
    }

    fn poll_lost(&mut self) -> Option<Rank> {
        self.0.borrow_mut().poll_lost()
    }
}

impl Backend for Group {
    type Transport = Endpoint;

    fn run_transports<R: Send>(&self, size: usize, body: impl Fn(Endpoint) -> R + Sync) -> Vec<R> {
        assert_eq!(size, self.party.size(), "groups are of all processes");
        let mut settings = Settings::default();
        settings.provider.clone_from(&self.provider);
        // After each call that fails ranks wait so long for frames that nobody will take; many
        // calls of the suite do.
        settings.options.grace = Duration::from_millis(100);
        if let Some(bytes) = self.frame_bytes {
            settings.options.frame_bytes = bytes;
        }
        let endpoint = foldwire_libfabric::join(&settings, self.party.clone());
        vec![body(endpoint.unwrap_or_else(|error| panic!("no endpoint: {error}")))]
    }

    fn ranks(&self, _: usize) -> Range<usize> {
        let rank = self.party.rank().index();
        rank..rank + 1
    }

    fn gather(&self, own: Vec<u64>) -> Vec<u64> {
        let mine: Vec<u8> = own.iter().flat_map(|word| word.to_le_bytes()).collect();
        let all = self.party.clone().all_gather(&mine).expect("all ranks are here").concat();
        let words = all.chunks_exact(8).map(|bytes| bytes.try_into().expect("eight bytes"));
        words.map(u64::from_le_bytes).collect()
    }
}
