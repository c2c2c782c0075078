//! Ranks join, or all of them learn why not. After that, sums are correct, also in futures.

use std::future::Future;
use std::net::{IpAddr, Ipv4Addr, UdpSocket};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Wake, Waker};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use crate::common::{
    MemoryExchange, PATIENCE, TamperedExchange, address_in, apart, endpoints, outcomes, ranks,
    settings, sums, token, variants,
};
use foldwire::transport::{Distance, Rank};
use foldwire::{Call, Communicator, Op, Plan, Transport};
use foldwire_bootstrap::{Exchange, MemoryStore, StoreExchange, StorePlace};
use foldwire_tcp::fuzzing::OpaqueOffer;
use foldwire_tcp::{JoinError, Options, Settings, join};

#[test]
fn sums_are_exact_however_frames_are_carried() {
    for settings in variants() {
        endpoints(3, &settings, |endpoint| {
            assert_eq!(endpoint.net().n_streams(), settings.streams);
            assert_eq!(endpoint.net().encrypts(), settings.encrypt);
            let is_shared = settings.share_memory && cfg!(target_os = "linux");
            let distance = if is_shared { Distance::Memory } else { Distance::Loopback };
            assert_eq!(endpoint.distance(Rank(0)), distance);
            assert_eq!(endpoint.needs_checksum(), !is_shared && !settings.encrypt);
            let rank = endpoint.rank().0 as f64;
            let mut comm = Communicator::new(endpoint).unwrap();
            for n_values in [1, 300_000, 0, 777] {
                let mut data: Vec<f64> = (0..n_values).map(|at| at as f64 * (rank + 1.0)).collect();
                comm.all_reduce(&mut data, Op::Sum, &Plan::raw()).unwrap();
                assert!(data.iter().enumerate().all(|(at, &sum)| sum == at as f64 * 6.0));
            }
        });
    }
}

#[test]
fn ranks_join_without_a_time_limit() {
    let mut unlimited = settings();
    unlimited.limit = Duration::MAX;
    for outcome in outcomes(2, |_| unlimited.clone()) {
        outcome.unwrap();
    }
}

#[cfg(target_os = "linux")]
#[test]
fn all_ranks_of_a_node_share_memory_or_none() {
    let can_share = |refuses: Option<Rank>, encrypts| {
        ranks(3, |mut exchange| {
            let shares = refuses != Some(exchange.rank());
            let settings = settings().share_memory(shares).encrypt(encrypts);
            let endpoint = join(&settings, &mut exchange).unwrap();
            [0, 1, 2].map(|peer| endpoint.net().shares_memory_with(Rank(peer)))
        })
    };
    assert_eq!(can_share(None, false), [[true; 3]; 3]);
    assert_eq!(can_share(Some(Rank(1)), false), [[false; 3]; 3]);
    if cfg!(feature = "noise") {
        assert_eq!(can_share(None, true), [[false; 3]; 3], "what is encrypted stays so");
    }
}

/// Ranks on different machines have one more connection, which stays idle.
#[cfg(target_os = "linux")]
#[test]
fn sums_are_exact_between_machines() {
    let Some(address) = own_address() else {
        return println!("skipped: ranks on several machines: no address but the loopback's");
    };
    let token = token("0123456789abcdef");
    for settings in variants() {
        let settings = settings.address(address).token(token.clone());
        let ends = ranks(3, |inner| {
            let rank = inner.rank();
            let exchange = &mut TamperedExchange { inner, tamper: Some(apart(rank, &token)) };
            let endpoint = join(&settings, exchange).unwrap();
            let distances = [0, 1, 2].map(|peer| endpoint.distance(Rank(peer)));
            let is_near = |&distance: &Distance| distance == Distance::Loopback;
            assert_eq!(distances.iter().filter(|distance| is_near(distance)).count(), 1);
            sums(&mut Communicator::new(endpoint).unwrap(), 5)
        });
        assert!(ends.iter().all(|(n_right, error, _)| (*n_right, *error) == (5, None)));
    }
}

/// An exchange that tells rank 1 another offer of rank 0, which a rank with the token made for
/// another session.
struct ForgingExchange(MemoryExchange, Vec<u8>);

impl Exchange for ForgingExchange {
    type Error = foldwire_bootstrap::Error;

    fn rank(&self) -> Rank {
        self.0.rank()
    }

    fn size(&self) -> usize {
        self.0.size()
    }

    fn all_gather(&mut self, mine: &[u8]) -> Result<Vec<Vec<u8>>, Self::Error> {
        let mut all = self.0.all_gather(mine)?;
        if self.rank() == Rank(1) && !self.1.is_empty() {
            let (other, here) = (std::mem::take(&mut self.1), address_in(&all[0]));
            let other = OpaqueOffer::decode(&other).unwrap();
            let node = other.node().to_owned();
            all[0] = other.moved(&node, here, Some(&token("0123456789abcdef"))).encode();
        }
        Ok(all)
    }
}

/// Rank 1 reaches rank 0, so that it could work with a session that only it knows.
#[test]
fn ranks_that_were_told_different_offers_do_not_connect() {
    for settings in variants() {
        let mut settings = settings.token(token("0123456789abcdef"));
        settings.limit = Duration::from_millis(500);
        let recorded = std::sync::Mutex::new(Vec::new());
        ranks(1, |inner| {
            let tamper = Some(|mine: &mut Vec<u8>| recorded.lock().unwrap().clone_from(mine));
            join(&settings, &mut TamperedExchange { inner, tamper }).map(drop)
        });
        let recorded = recorded.into_inner().unwrap();
        let outcomes = ranks(2, |inner| {
            join(&settings, &mut ForgingExchange(inner, recorded.clone())).map(drop)
        });
        for outcome in outcomes {
            let is_typed =
                matches!(outcome, Err(JoinError::Missing { .. } | JoinError::Unreachable { .. }));
            assert!(is_typed, "{outcome:?}");
        }
    }
}

/// Returns this machine's address that other machines would see.
fn own_address() -> Option<IpAddr> {
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).ok()?;
    // This sends nothing. The system chooses the address by its routes.
    socket.connect((Ipv4Addr::new(198, 51, 100, 1), 9)).ok()?;
    let address = socket.local_addr().ok()?.ip();
    (!address.is_loopback() && !address.is_unspecified()).then_some(address)
}

#[test]
fn a_rank_alone_needs_no_connection() {
    endpoints(1, &settings(), |endpoint| {
        let mut comm = Communicator::new(endpoint).unwrap();
        let mut data = [3.0f32; 100];
        comm.all_reduce(&mut data, Op::Sum, &Plan::raw()).unwrap();
        assert_eq!(data, [3.0; 100]);
    });
}

/// Sockets within a node are slower than memory, so an automatic plan must measure them.
#[test]
fn links_within_a_node_are_measured() {
    endpoints(2, &settings(), |endpoint| {
        let mut comm = Communicator::new(endpoint).unwrap();
        let rate = comm.measure_link(&mut [0.0; 30_000]).unwrap();
        assert!(rate > 0.0 && rate.is_finite(), "{rate}");
    });
}

/// Wakes a thread, and counts the wakes.
struct Alarm {
    thread: Thread,
    n_wakes: AtomicUsize,
}

impl Wake for Alarm {
    fn wake(self: Arc<Self>) {
        self.n_wakes.fetch_add(1, Ordering::Relaxed);
        self.thread.unpark();
    }
}

/// A rank that awaits a call sleeps. It wakes soon after messages arrive. Otherwise only regular
/// ticks wake it.
#[test]
fn a_future_sleeps_until_the_network_wakes_it() {
    const AWAY: Duration = Duration::from_millis(400);
    for settings in variants() {
        endpoints(2, &settings, |endpoint| {
            let is_late = endpoint.rank() == Rank(1);
            let mut comm = Communicator::new(endpoint).unwrap();
            let alarm = Arc::new(Alarm { thread: thread::current(), n_wakes: AtomicUsize::new(0) });
            let waker = Waker::from(Arc::clone(&alarm));
            if is_late {
                thread::sleep(AWAY);
            }
            let mut data = vec![1.5f32; 100_000];
            let start = Instant::now();
            {
                let mut call =
                    pin!(comm.start(Call::all_reduce(&mut data, Op::Sum), &Plan::raw()).unwrap());
                let mut n_polls = 0;
                while call.as_mut().poll(&mut Context::from_waker(&waker)).is_pending() {
                    n_polls += 1;
                    thread::park_timeout(PATIENCE);
                    assert!(n_polls < 2000 && start.elapsed() < PATIENCE, "{n_polls} polls");
                }
            }
            assert!(data.iter().all(|&x| x == 3.0));
            if !is_late {
                // Fifty ticks a second, and wakes when messages arrive.
                let n_wakes = alarm.n_wakes.load(Ordering::Relaxed);
                assert!((10..1000).contains(&n_wakes), "{n_wakes}");
            }
            // If only ticks woke the rank, it would need one for each message and miss this limit.
            assert!(start.elapsed() < AWAY + Duration::from_millis(600), "{:?}", start.elapsed());
        });
    }
}

#[test]
fn other_frames_streams_or_encryption_are_refused_by_all() {
    let options = |n_more| {
        let mut options = Options::default();
        options.frame_bytes += n_more;
        options
    };
    let others: [&(dyn Fn(Settings) -> Settings + Sync); 3] =
        [&|settings| settings.streams(2), &|settings| settings.options(options(1)), &|settings| {
            // Without the feature, differ by the number of streams instead.
            settings
                .encrypt(cfg!(feature = "noise"))
                .streams(1 + usize::from(!cfg!(feature = "noise")))
        }];
    for other in others {
        let usual = Settings::default().options(options(0));
        let all =
            outcomes(3, |rank| if rank == Rank(2) { other(usual.clone()) } else { usual.clone() });
        for outcome in all {
            assert!(matches!(outcome, Err(JoinError::SettingsDiffer { .. })), "{outcome:?}");
        }
    }
}

/// One rank that cannot join does not keep the other ranks waiting.
#[test]
fn a_failure_of_one_rank_is_told_to_all() {
    let start = Instant::now();
    let wrong = |rank| match rank {
        Rank(1) => settings().interface("nowhere0"),
        _ => settings(),
    };
    let all = outcomes(3, wrong);
    assert!(matches!(all[1], Err(JoinError::NoInterface { .. })), "{all:?}");
    for rank in [0, 2] {
        assert!(matches!(all[rank], Err(JoinError::PeerFailed { rank: Rank(1) })), "{all:?}");
    }
    assert!(start.elapsed() < Duration::from_secs(2));
}

#[test]
fn strangers_are_not_listened_to_without_a_token() {
    for outcome in outcomes(2, |_| settings().address([10, 0, 0, 1].into())) {
        assert!(matches!(outcome, Err(JoinError::NoToken { .. })), "{outcome:?}");
    }
    for outcome in outcomes(2, |_| settings().streams(17)) {
        assert!(matches!(outcome, Err(JoinError::Streams { have: 17 })), "{outcome:?}");
    }
}

/// Ranks meet in a store instead of at a root's socket; everything else is the same.
#[test]
fn ranks_meet_in_a_store() {
    for settings in variants() {
        let settings = settings.token(token("0123456789abcdef"));
        let store = MemoryStore::default();
        thread::scope(|scope| {
            for rank in 0..3 {
                let (store, settings) = (store.clone(), &settings);
                scope.spawn(move || {
                    let place = StorePlace::new(rank, 3, "job");
                    let mut exchange = StoreExchange::new(store, place).unwrap();
                    let endpoint = join(settings, &mut exchange).unwrap();
                    assert_eq!(sums(&mut Communicator::new(endpoint).unwrap(), 3).0, 3);
                });
            }
        });
    }
}

/// Whoever can write to the store, but does not know the token, joins no group.
#[test]
fn a_store_does_not_replace_the_token() {
    let store = MemoryStore::default();
    let outcomes: Vec<_> = thread::scope(|scope| {
        let ranks = ["0123456789abcdef", "0123456789abcdef", "another 16 chars"];
        let ranks = ranks.into_iter().enumerate().map(|(rank, word)| {
            let store = store.clone();
            scope.spawn(move || {
                let place = StorePlace::new(rank, 3, "job");
                let mut exchange = StoreExchange::new(store, place).unwrap();
                join(&settings().token(token(word)), &mut exchange).map(drop)
            })
        });
        let ranks: Vec<_> = ranks.collect();
        ranks.into_iter().map(|rank| rank.join().unwrap()).collect()
    });
    for outcome in outcomes {
        assert!(matches!(outcome, Err(JoinError::TokenDiffers { .. })), "{outcome:?}");
    }
}
