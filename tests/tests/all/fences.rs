//! A shrink ends even if the survivors agree but their fences never arrive. After three attempts,
//! it fails with the rank that is missing.

use foldwire::frame::{Header, MessageKind};
use foldwire::{Communicator, Config, Error, Rank};
use foldwire_sim::{Clock, End, Endpoint, NetSettings, World};
use foldwire_tests::wrapped::{Hooks, Wrapped};
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::rc::Rc;
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(1);

/// Discards all fences, and records their epochs.
#[derive(Default)]
struct FenceFilter {
    epochs: Rc<RefCell<BTreeSet<u16>>>,
}

impl Hooks for FenceFilter {
    fn received(&mut self, frame: &mut [u8], n_bytes: usize) -> usize {
        match Header::parse(&frame[..n_bytes], false) {
            Ok(Header { kind: MessageKind::Fence, call, .. }) => {
                self.epochs.borrow_mut().insert(call.epoch);
                0
            }
            _ => n_bytes,
        }
    }
}

/// Result of a rank's shrink: the group's ranks or an error; its duration; the number of attempts
/// that had fences.
type ShrinkResult = (Result<Vec<Rank>, Error>, Duration, usize);

async fn shrink(endpoint: Endpoint, clock: Clock) -> ShrinkResult {
    let hooks = FenceFilter::default();
    let epochs = Rc::clone(&hooks.epochs);
    let config = Config::default().with_lanes(2);
    let comm = Communicator::with_config(Wrapped::new(endpoint, hooks), config).expect("frames");
    let start = clock.now();
    let shrunk = comm.start_shrink(PATIENCE).expect("a small group").await;
    let members = shrunk.map(|comm| {
        let ranks = (0..comm.size()).map(Rank::new);
        ranks.filter_map(|rank| comm.transport_rank(rank)).collect()
    });
    (members, clock.now() - start, epochs.take().len())
}

#[test]
fn fences_that_never_come_are_an_error_after_three_attempts() {
    let jump = PATIENCE / 8;
    for size in [2, 3, 5] {
        for seed in 0..20 {
            let net = NetSettings { jump, ..NetSettings::default() };
            let run = World::new(size, seed).net(net).run(|endpoint| {
                let clock = endpoint.clock();
                shrink(endpoint, clock)
            });
            assert_eq!(run.n_leaked(), 0, "{size} ranks, seed {seed}");
            let ended: Vec<_> = run
                .ends
                .into_iter()
                .map(|end| match end {
                    End::Returned(ended) => ended,
                    other => panic!("{size} ranks, seed {seed}: {other:?}"),
                })
                .collect();
            let context = format!("{size} ranks, seed {seed}: {ended:?}");
            let stalled: Vec<usize> = (0..size)
                .filter(|&rank| {
                    matches!(
                        ended[rank].0,
                        Err(Error::Stalled { rank: other, .. }) if other.index() != rank
                    )
                })
                .collect();
            assert!(!stalled.is_empty(), "{context}");
            for &rank in &stalled {
                let (_, took, n_attempts) = &ended[rank];
                assert!((3 * PATIENCE..3 * PATIENCE + 4 * jump).contains(took), "{context}");
                assert_eq!(*n_attempts, 3, "{context}");
            }
            // A stalled rank has left. The other ranks continue without it, each alone, since no
            // fence has arrived to name its peers.
            for (rank, (outcome, ..)) in
                ended.iter().enumerate().filter(|(r, _)| !stalled.contains(r))
            {
                assert_eq!(*outcome, Ok(vec![Rank::new(rank)]), "{context}");
            }
        }
    }
}
