//! Ranks over MPI as processes. An MPI launcher starts them.

use crate::Backend;
use foldwire::transport::{Distance, Rank, Transport};
use foldwire_mpi::{Endpoint, Options};
use mpi::topology::SimpleCommunicator;
use mpi::traits::{Communicator, CommunicatorCollectives};
use std::ops::Range;

/// All ranks of MPI's world.
pub struct MpiWorld<'w> {
    /// MPI's world.
    pub world: &'w SimpleCommunicator,
    /// Bytes of a frame; `None` selects the backend's default.
    pub frame_bytes: Option<usize>,
}

impl Backend for MpiWorld<'_> {
    type Transport = Endpoint;

    fn run_transports<R: Send>(&self, size: usize, body: impl Fn(Endpoint) -> R + Sync) -> Vec<R> {
        assert_eq!(size, self.world.size() as usize, "a group consists of all processes");
        let mut options = Options::default();
        if let Some(bytes) = self.frame_bytes {
            options.frame_bytes = bytes;
        }
        let endpoint = foldwire_mpi::join_with(self.world, options)
            .expect("the communicator can be duplicated");
        // If frames did not pass through shared memory, the suite would test MPI messages only.
        let mut others = (0..size).map(Rank::new).filter(|&rank| rank != endpoint.rank());
        let copies = others.any(|rank| endpoint.distance(rank) == Distance::Node);
        assert!(
            !copies || cfg!(not(target_os = "linux")),
            "ranks of a node must pass frames through shared memory"
        );
        vec![body(endpoint)]
    }

    fn ranks(&self, _: usize) -> Range<usize> {
        let rank = self.world.rank() as usize;
        rank..rank + 1
    }

    fn gather(&self, own: Vec<u64>) -> Vec<u64> {
        let mut all = vec![0; own.len() * self.world.size() as usize];
        self.world.all_gather_into(&own[..], &mut all[..]);
        all
    }
}
