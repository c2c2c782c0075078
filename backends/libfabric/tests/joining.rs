//! Tests of joining: the ranks join, or all of them learn why not.

mod common;

use std::convert::Infallible;

use common::threads::{InMemory, ranks};
use common::{Test, missing};
use foldwire::{Communicator, Op, Plan, Rank};
use foldwire_bootstrap::Exchange;
use foldwire_libfabric::{JoinError, Missing, Options, Settings, join, providers};

/// Joins three ranks, as threads, with these settings.
fn outcomes(settings: impl Fn(u32) -> Settings + Sync) -> Vec<Result<String, JoinError>> {
    ranks(3, |exchange: InMemory| {
        let rank = exchange.rank().0;
        join(&settings(rank), exchange).map(|endpoint| endpoint.net().provider().to_owned())
    })
}

/// Every listed provider is usable, or has a readable reason.
#[test]
fn every_provider_has_an_offer_or_a_reason() {
    let all = providers(&Settings::default());
    for name in ["cxi", "psm2", "opx", "verbs", "efa", "shm", "tcp", "sockets"] {
        assert_eq!(all.iter().filter(|provider| provider.name == name).count(), 1, "{name}");
    }
    for provider in &all {
        match &provider.offer {
            Ok(offer) => {
                assert!(offer.provider.to_lowercase().starts_with(&provider.name), "{provider:?}");
                assert!(provider.version.is_some() && !offer.domain.is_empty(), "{provider:?}");
            }
            Err(missing) => assert!(missing.to_string().len() > 20, "{missing}"),
        }
    }
    // Layers cannot be used alone.
    assert!(all.iter().all(|provider| !provider.name.starts_with("ofi_")));
}

#[test]
fn unknown_providers_and_interfaces_are_told_apart() {
    for outcome in outcomes(|_| Settings::default().provider("carrier-pigeon")) {
        let Err(JoinError::Unavailable { provider, missing: Missing::NotBuilt }) = outcome else {
            panic!("{outcome:?}");
        };
        assert_eq!(provider, "carrier-pigeon");
    }
    for outcome in outcomes(|_| Settings::default().provider("tcp").interface("nowhere0")) {
        let is_right =
            matches!(outcome, Err(JoinError::Unavailable { missing: Missing::NoInterface, .. }));
        assert!(is_right, "{outcome:?}");
    }
    for outcome in outcomes(|_| Settings::default().provider("net")) {
        let is_right =
            matches!(outcome, Err(JoinError::Unavailable { missing: Missing::LosesMessages, .. }));
        assert!(is_right, "{outcome:?}");
    }
}

#[test]
fn an_interface_can_be_named() {
    for outcome in outcomes(|_| Settings::default().provider("tcp").interface("lo")) {
        assert!(outcome.unwrap().starts_with("tcp"));
    }
    let all = providers(&Settings::default().interface("lo"));
    let tcp = all.iter().find(|provider| provider.name == "tcp").unwrap();
    assert_eq!(tcp.offer.as_ref().unwrap().domain, "lo");
}

/// An endpoint cannot listen on another host's address, such as one for documentation (RFC 5737).
#[test]
fn foreign_addresses_are_refused() {
    for outcome in
        outcomes(|_| Settings::default().provider("tcp").address([203, 0, 113, 7].into()))
    {
        assert!(outcome.is_err(), "{outcome:?}");
    }
}

/// A rank that cannot join does not leave the others waiting.
#[test]
fn a_failure_of_one_rank_is_told_to_all() {
    let name = |rank| if rank == 1 { "carrier-pigeon" } else { "tcp" };
    let all = outcomes(|rank| Settings::default().provider(name(rank)));
    for (outcome, rank) in all.into_iter().zip(0..) {
        let error = outcome.unwrap_err();
        match rank {
            1 => assert!(matches!(error, JoinError::Unavailable { .. }), "{error}"),
            _ => assert!(matches!(error, JoinError::PeerFailed { rank } if rank.0 == 1), "{error}"),
        }
    }
}

/// Exchange that passes rank 1 an invalid address of rank 2.
struct WithBadAddress {
    inner: InMemory,
    n_rounds: usize,
}

impl Exchange for WithBadAddress {
    type Error = Infallible;

    fn rank(&self) -> Rank {
        self.inner.rank()
    }

    fn size(&self) -> usize {
        self.inner.size()
    }

    fn all_gather(&mut self, mine: &[u8]) -> Result<Vec<Vec<u8>>, Infallible> {
        let mut all = self.inner.all_gather(mine)?;
        // The ranks exchange offers before addresses.
        if self.n_rounds == 1 && self.rank() == Rank(1) {
            all[2] = vec![1; 5000];
        }
        self.n_rounds += 1;
        Ok(all)
    }
}

#[test]
fn an_address_that_one_rank_cannot_take_is_told_to_all() {
    let settings = Settings::default().provider("tcp");
    let all = ranks(3, |inner| join(&settings, WithBadAddress { inner, n_rounds: 0 }).map(drop));
    for (outcome, rank) in all.into_iter().zip(0..) {
        let error = outcome.unwrap_err();
        match rank {
            1 => assert!(matches!(error, JoinError::Address { rank: Rank(2), .. }), "{error}"),
            _ => assert!(matches!(error, JoinError::PeerFailed { rank: Rank(1) }), "{error}"),
        }
    }
}

#[test]
fn frames_of_other_sizes_are_refused() {
    let options = |rank| {
        let mut options = Options::default();
        options.frame_bytes += rank as usize / 2;
        options
    };
    for outcome in outcomes(|rank| Settings::default().provider("tcp").options(options(rank))) {
        assert!(matches!(outcome, Err(JoinError::FramesDiffer { .. })), "{outcome:?}");
    }
}

/// libfabric's shared memory allows one rank in each process. If no provider is named, the ranks
/// find another one.
#[test]
fn threads_do_not_share_memory_by_libfabric() {
    if missing("shm").is_none() {
        for outcome in outcomes(|_| Settings::default().provider("shm")) {
            assert!(matches!(outcome, Err(JoinError::SameProcess { .. })), "{outcome:?}");
        }
    }
    for outcome in outcomes(|_| Settings::default()) {
        assert_ne!(outcome.unwrap(), "shm");
    }
}

/// All-reduces over the whole stack give exact sums.
fn sums_are_exact(test: Test) {
    const N_VALUES: usize = 300_000;
    test.run_transport(3, |endpoint| {
        let rank = foldwire::Transport::rank(&endpoint).0 as f64;
        let mut comm = Communicator::new(endpoint).unwrap();
        let mut data: Vec<f64> = (0..N_VALUES).map(|at| at as f64 * (rank + 1.0)).collect();
        comm.all_reduce(&mut data, Op::Sum, &Plan::raw()).unwrap();
        assert!(data.iter().enumerate().all(|(at, &sum)| sum == at as f64 * 6.0));
    });
}

#[test]
fn sums_are_exact_over_tcp() {
    sums_are_exact(Test { name: "sums_are_exact_over_tcp", provider: "tcp" });
}

#[test]
fn sums_are_exact_over_shared_memory() {
    sums_are_exact(Test { name: "sums_are_exact_over_shared_memory", provider: "shm" });
}
