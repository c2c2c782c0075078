//! A rank that ends is detected, and messages to it come back.

mod common;

use std::process;
use std::time::{Duration, Instant};

use common::{TIME_LIMIT, Test, pipes};
use foldwire::transport::{Rank, Tag, Transport, TransportError};
use foldwire::{Communicator, Op, Plan};
use foldwire_bootstrap::Exchange;
use foldwire_libfabric::Error;
use foldwire_messaging::{Net, Refused, Source};

/// Ends this process like a crash: nothing is dropped.
fn crash() -> ! {
    process::exit(3);
}

/// The exchange reports a crash to the layer. The layer reports it once, refuses sends, and
/// releases messages that waited for an acknowledgement.
fn crashes_are_told(test: Test) {
    test.run(3, |mut driver| {
        let me = driver.net.rank();
        if me == Rank(1) {
            assert_eq!(driver.receive(Rank(0), Tag(0), 64), b"hello");
            crash();
        }
        if me == Rank(2) {
            assert_eq!(driver.receive(Rank(0), Tag(0), 64), b"still there?");
            return;
        }
        driver.send(Rank(1), Tag(1), b"nobody will receive this", true);
        driver.send(Rank(1), Tag(0), b"hello", false);
        driver.post(Source::Rank(Rank(1)), Tag(0), 64);
        driver.until(|driver| driver.lost == [Rank(1)] && driver.n_released == 2);
        let buffer = driver.buffer(64);
        match driver.net.send(Rank(1), Tag(0), buffer, 64, false) {
            Err(Refused::Failed(_, error)) => assert_eq!(error, Error::PeerLost { peer: Rank(1) }),
            other => panic!("{other:?}"),
        }
        // The other ranks are not affected.
        driver.send(Rank(2), Tag(0), b"still there?", false);
        driver.until(|driver| driver.n_released == 3);
        driver.linger(Duration::from_millis(30));
        assert_eq!(driver.lost, [Rank(1)]);
    });
}

/// If a rank crashes during a series of all-reduces, they fail on all ranks. The exchange reports
/// the crash only to rank 0, and rank 1 learns of it from rank 0.
fn crashes_end_collectives(test: Test) {
    test.run_transport(3, |endpoint| {
        let rank = endpoint.rank();
        let mut comm = Communicator::new(endpoint).unwrap();
        let mut data = vec![1.0f32; 1_000_000];
        let start = Instant::now();
        for round in 0.. {
            if rank == Rank(2) && round == 5 {
                crash();
            }
            if comm.all_reduce(&mut data, Op::Max, &Plan::raw()).is_err() {
                break;
            }
            assert!(start.elapsed() < TIME_LIMIT, "no rank detects the loss");
        }
        assert!(start.elapsed() < TIME_LIMIT, "it took too long");
    });
}

/// Exchange that reports no lost ranks.
struct WithoutLosses(pipes::SharedPipes);

impl Exchange for WithoutLosses {
    type Error = std::io::Error;

    fn rank(&self) -> Rank {
        self.0.rank()
    }

    fn size(&self) -> usize {
        self.0.size()
    }

    fn all_gather(&mut self, mine: &[u8]) -> Result<Vec<Vec<u8>>, Self::Error> {
        self.0.all_gather(mine)
    }
}

/// `sockets` detects the loss itself, once a message is sent. (`tcp` stays busy for ever, unless
/// the send is made just when the connection breaks.)
fn broken_connections_are_found(test: Test) {
    test.run_with(2, WithoutLosses, |mut driver| {
        if driver.net.rank() == Rank(1) {
            driver.send(Rank(0), Tag(0), b"hello", false);
            driver.until(|driver| driver.n_released == 1);
            // A crash, except for the exit status.
            process::exit(0);
        }
        assert_eq!(driver.receive(Rank(1), Tag(0), 64), b"hello");
        let (start, mut error) = (Instant::now(), None);
        while driver.lost.is_empty() && error.is_none() {
            let buffer = driver.buffer(64);
            match driver.net.send(Rank(1), Tag(0), buffer, 64, false) {
                Ok(()) | Err(Refused::Busy(_)) => error = driver.poll().err(),
                Err(Refused::Failed(_, refusal)) => error = Some(refusal),
            }
            assert!(start.elapsed() < TIME_LIMIT, "no rank detects the loss");
        }
        // Some releases report only "I/O error".
        assert!(error.is_none_or(|error| error.peer() == Some(Rank(1))), "{error:?}");
        assert!(driver.lost.iter().all(|&peer| peer == Rank(1)));
    });
}

/// A rank that cannot be acknowledged does not delay acknowledgements to the others. Once
/// forgotten, it delays nothing.
fn the_unreachable_hold_up_nobody(test: Test) {
    test.run_with(3, WithoutLosses, |mut driver| match driver.net.rank() {
        Rank(0) => {
            // Wait until the connection of rank 1 has broken, before its message is received.
            driver.linger(Duration::from_millis(300));
            assert_eq!(driver.receive(Rank(1), Tag(0), 64), b"answer me");
            assert_eq!(driver.receive(Rank(2), Tag(0), 64), b"me too");
            assert_eq!(driver.receive(Rank(2), Tag(1), 64), b"answered");
            driver.net.forget(Rank(1));
            let start = Instant::now();
            drop(driver);
            assert!(start.elapsed() < Duration::from_millis(800), "it waits for a forgotten rank");
        }
        Rank(1) => {
            driver.send(Rank(0), Tag(0), b"answer me", true);
            driver.linger(Duration::from_millis(100));
            // A crash, except for the exit status.
            process::exit(0);
        }
        _ => {
            driver.send(Rank(0), Tag(0), b"me too", true);
            driver.until(|driver| driver.n_released == 1);
            driver.send(Rank(0), Tag(1), b"answered", false);
            driver.until(|driver| driver.n_released == 2);
        }
    });
}

macro_rules! tests {
    ($($module:ident: $provider:ident $test:ident;)*) => {$(
        mod $module {
            #[test]
            fn $provider() {
                super::$test(crate::common::Test {
                    name: concat!(stringify!($module), "::", stringify!($provider)),
                    provider: stringify!($provider),
                });
            }
        }
    )*};
}

tests! {
    tcp_told: tcp crashes_are_told;
    shm_told: shm crashes_are_told;
    sockets_told: sockets crashes_are_told;
    tcp_ended: tcp crashes_end_collectives;
    shm_ended: shm crashes_end_collectives;
    tcp_unreachable: tcp the_unreachable_hold_up_nobody;
    sockets_found: sockets broken_connections_are_found;
}
