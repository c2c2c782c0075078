//! With any fault of connections, calls end in bounded time with the correct values or a typed
//! error. They never hang, panic, or return wrong values.
//!
//! Ranks join by an exchange of *offers*: each rank's node, address, nonce and a proof that it
//! knows the token. Then they connect to each other. [`TamperedExchange`] changes what a rank
//! offers, so that others connect to a proxy, for example.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::common::proxy::{self, ProxyFault};
use crate::common::{
    Sums, TamperedExchange, address_in, endpoints, outcomes, ranks, settings, token, variants,
};
use foldwire::transport::{Rank, TransportErrorKind as Kind};
use foldwire::{Communicator, Error, Op, Plan};
use foldwire_bootstrap::Exchange;
use foldwire_tcp::fuzzing::{OpaqueOffer, hello};
use foldwire_tcp::{Endpoint, JoinError, Settings, join};

const TIMEOUT: Duration = Duration::from_secs(1);

/// Makes all-reduces until one fails, at most `n_calls`. Returns the number of correct ones, and
/// the error and the duration of the next one.
fn sums(endpoint: Endpoint, n_calls: usize) -> Sums {
    let mut comm = Communicator::new(endpoint).unwrap();
    comm.config_mut().timeout = TIMEOUT;
    crate::common::sums(&mut comm, n_calls)
}

/// Runs [`sums`] on two ranks that are connected through a proxy. The fault occurs after `n_bytes`.
fn sums_through_proxy(
    settings: &Settings,
    fault: ProxyFault,
    n_bytes: usize,
    n_calls: usize,
) -> Vec<Sums> {
    // Only the header of a message in shared memory passes the proxy. The first bytes of a
    // connection are the handshake.
    let n_bytes = if settings.share_memory { PLACES[0].max(n_bytes / 30) } else { n_bytes };
    ranks(2, |inner| {
        let is_first = inner.rank() == Rank(0);
        let tamper = is_first.then_some(|mine: &mut Vec<u8>| {
            let offer = OpaqueOffer::decode(mine).unwrap();
            let (node, to) = (offer.node().to_owned(), offer.address());
            let proxy = proxy::start(to, fault, n_bytes);
            *mine = offer.moved(&node, proxy, settings.token.as_ref()).encode();
        });
        let endpoint = join(settings, &mut TamperedExchange { inner, tamper }).unwrap();
        sums(endpoint, n_calls)
    })
}

fn check_fault(settings: &Settings, fault: ProxyFault, n_bytes: usize) {
    let start = Instant::now();
    let ends = sums_through_proxy(settings, fault, n_bytes, usize::MAX);
    let context = format!("{fault:?} after {n_bytes}, {settings:?}: {ends:?}");
    for (_, error, took) in &ends {
        let is_typed = match error {
            Some(Error::Transport { kind, .. }) => *kind == Kind::PeerLost,
            Some(
                Error::Frame { .. }
                | Error::Aborted { .. }
                | Error::Stalled { .. }
                | Error::Codec(_),
            ) => true,
            _ => false,
        };
        assert!(is_typed, "{context}");
        assert!(*took < 2 * TIMEOUT, "{context}");
    }
    if [ProxyFault::Close, ProxyFault::CloseOneWay].contains(&fault) {
        let is_noticed = |(_, _, took): &(_, _, Duration)| *took < TIMEOUT;
        assert!(ends.iter().all(is_noticed), "not by the time limit: {context}");
    }
    assert!(start.elapsed() < 8 * TIMEOUT, "{context}");
}

/// Numbers of bytes after which a fault occurs: in a header, in the middle of a frame, and in a
/// later call.
const PLACES: [usize; 3] = [300, 9_000, 1_234_567];

#[test]
fn every_harm_to_a_connection_ends_in_a_typed_error() {
    thread::scope(|scope| {
        let variants = variants();
        let cases =
            ProxyFault::ALL.into_iter().flat_map(|fault| PLACES.map(|place| (fault, place)));
        for ((fault, n_bytes), settings) in cases.zip(variants.into_iter().cycle()) {
            // Ranks that share memory have no checksums: their bytes do not leave the machine.
            if fault != ProxyFault::Flip || !settings.share_memory {
                scope.spawn(move || check_fault(&settings, fault, n_bytes));
            }
        }
    });
}

#[test]
fn a_connection_that_pauses_and_goes_on_is_waited_for() {
    thread::scope(|scope| {
        for (settings, n_bytes) in variants().into_iter().zip(PLACES.into_iter().cycle()) {
            scope.spawn(move || {
                let start = Instant::now();
                let ends = sums_through_proxy(&settings, ProxyFault::Pause, n_bytes, 20);
                assert!(ends.iter().all(|(n_right, error, _)| (*n_right, *error) == (20, None)));
                assert!(start.elapsed() >= proxy::PAUSE, "it has paused");
            });
        }
    });
}

/// The other ranks fill the sockets, until they have no credit left, and wait.
#[test]
fn a_rank_that_is_late_gets_all_that_was_sent_meanwhile() {
    const N_CALLS: u8 = 12;
    for settings in variants() {
        endpoints(3, &settings, |endpoint| {
            let mut comm = Communicator::new(endpoint).unwrap();
            let (rank, late) = (comm.rank(), Rank(2));
            comm.config_mut().timeout = TIMEOUT;
            for call in 0..N_CALLS {
                if rank == late && call % 6 == 0 {
                    thread::sleep(TIMEOUT / 10);
                }
                let own = if rank == Rank(0) { f32::from(call) } else { -1.0 };
                let mut values = vec![own; 100_000];
                comm.broadcast(&mut values, Rank(0), &Plan::raw()).unwrap();
                assert!(values.iter().all(|&x| x == f32::from(call)));
            }
        });
    }
}

#[test]
fn a_rank_that_ends_without_a_goodbye_is_lost_at_once_and_what_it_sent_is_not() {
    let settings = settings();
    let ends = endpoints(3, &settings, |endpoint| {
        let is_last = foldwire::Transport::rank(&endpoint) == Rank(2);
        let mut comm = Communicator::new(endpoint).unwrap();
        comm.config_mut().timeout = Duration::from_secs(10);
        comm.barrier().unwrap();
        if is_last {
            return None;
        }
        let start = Instant::now();
        let error = comm.all_reduce(&mut [1.0f32; 1000], Op::Sum, &Plan::raw()).unwrap_err();
        Some((error, start.elapsed()))
    });
    for (error, took) in ends.into_iter().flatten() {
        let is_lost = matches!(error, Error::Transport { kind: Kind::PeerLost, .. });
        assert!(is_lost || matches!(error, Error::Aborted { .. }), "{error:?}");
        assert!(took < Duration::from_secs(2), "{took:?}");
    }
}

/// Strangers connect to rank 0 before other ranks do. Some send nothing, some send garbage, and
/// some close at once.
#[test]
fn strangers_at_the_door_stop_nobody() {
    for settings in variants() {
        let settings = settings.token(token("0123456789abcdef"));
        let sums = ranks(3, |inner| {
            let is_first = inner.rank() == Rank(0);
            let tamper = is_first.then_some(|mine: &mut Vec<u8>| {
                let address = address_in(mine);
                let mut crowd = Vec::new();
                let hello = hello(Rank(1), Rank(0), 0, false);
                for i in 0..100 {
                    let mut stranger = TcpStream::connect(address).unwrap();
                    let said = match i % 4 {
                        0 => &b""[..],
                        1 => b"GET / HTTP/1.1\r\nHost: somewhere\r\nAccept: all\r\n\r\n",
                        2 => &hello,
                        _ => &[0xff; 400],
                    };
                    let _ = stranger.write_all(said);
                    if i % 8 < 4 {
                        crowd.push(stranger);
                    }
                }
                // Keep these connections open until the test program ends.
                std::mem::forget(crowd);
            });
            let endpoint = join(&settings, &mut TamperedExchange { inner, tamper }).unwrap();
            sums(endpoint, 3)
        });
        assert!(sums.iter().all(|(n_right, error, _)| (*n_right, *error) == (3, None)));
    }
}

/// Strangers send nothing, garbage, half a hello, a hello with half a nonce, or a hello with a
/// wrong proof. Their connections are closed when the ranks have joined. After that, the listener
/// is gone.
#[test]
fn strangers_in_the_middle_of_a_run_are_gone_or_find_no_door() {
    for settings in variants() {
        let settings = settings.token(token("0123456789abcdef"));
        let hello = hello(Rank(2), Rank(0), 0, settings.encrypt);
        let whole = [&hello[..], &[0x5a; 64]].concat();
        let said = [&b""[..], &[0xff; 400], &whole[..10], &whole[..30], &whole];
        ranks(3, |inner| {
            let (mut crowd, mut listener) = (Vec::new(), None);
            let tamper = (inner.rank() == Rank(0)).then_some(|mine: &mut Vec<u8>| {
                let address = address_in(mine);
                listener = Some(address);
                for said in said {
                    let mut stranger = TcpStream::connect(address).unwrap();
                    stranger.write_all(said).unwrap();
                    crowd.push(stranger);
                }
            });
            let start = Instant::now();
            let endpoint = join(&settings, &mut TamperedExchange { inner, tamper }).unwrap();
            assert!(start.elapsed() < TIMEOUT, "strangers do not delay a rank");
            let is_over = AtomicBool::new(false);
            thread::scope(|scope| {
                if let Some(address) = listener {
                    let is_over = &is_over;
                    scope.spawn(move || {
                        while !is_over.load(Ordering::Relaxed) {
                            let attempt = TcpStream::connect(address).map_err(|error| error.kind());
                            assert_eq!(attempt.unwrap_err(), ErrorKind::ConnectionRefused);
                            thread::sleep(Duration::from_millis(1));
                        }
                    });
                }
                let (n_right, error, _) = sums(endpoint, 20);
                is_over.store(true, Ordering::Relaxed);
                assert_eq!((n_right, error), (20, None));
            });
            for mut stranger in crowd {
                stranger.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
                let end = stranger.read_to_end(&mut Vec::new());
                let is_there = end.is_err_and(|error| error.kind() == ErrorKind::WouldBlock);
                assert!(!is_there, "a stranger is still connected");
            }
        });
    }
}

/// All ranks detect the other token from the offers, long before the time limit of connections.
#[test]
fn who_has_another_token_does_not_get_in() {
    for settings in variants() {
        let start = Instant::now();
        let all = outcomes(3, |rank| {
            let token =
                token(if rank == Rank(1) { "another secret here" } else { "0123456789abcdef" });
            settings.clone().token(token)
        });
        assert!(start.elapsed() < Duration::from_secs(1));
        for (outcome, other) in all.iter().zip([1, 0, 1].map(Rank)) {
            let is_named =
                matches!(outcome, Err(JoinError::TokenDiffers { rank }) if *rank == other);
            assert!(is_named, "{outcome:?}");
        }
    }
}
