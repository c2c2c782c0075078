//! Messages arrive whole, once, and in order, with every provider.

mod common;

use std::time::Duration;

use common::{Driver, Message, Test};
use foldwire::transport::{FRAME_ALIGN, Rank, Tag};
use foldwire_libfabric::Error;
use foldwire_messaging::{Net, Refused, Source};

/// Content of message number `n` of a link. The lengths lie below and above every limit that
/// providers have.
fn content(from: Rank, tag: Tag, n: usize) -> Vec<u8> {
    let length = [8, 64, 1000, 5000, 17_000, 70_000, 150_000][n % 7] + n;
    let mut bytes = vec![(from.0 as u8) ^ tag.0 as u8 ^ n as u8; length];
    bytes[..8].copy_from_slice(&(n as u64).to_le_bytes());
    bytes
}

/// Bytes of a receive buffer. No content is longer.
const ROOM: usize = 200_000;

/// Messages of one (sender, tag) arrive whole and in the order sent, apart from messages of other
/// links.
fn order_is_kept(test: Test) {
    const N: usize = 40;
    const TAGS: [Tag; 3] = [Tag(0), Tag(3), Tag(7)];
    test.run(3, |mut driver| {
        let me = driver.net.rank();
        let peers: Vec<_> = (0..3).map(Rank).filter(|&peer| peer != me).collect();
        for n in 0..N {
            for &peer in &peers {
                for tag in TAGS {
                    driver.send(peer, tag, &content(me, tag, n), false);
                }
            }
            // Receive in another order than sent, so that some messages are unexpected.
            for tag in TAGS.into_iter().rev() {
                for &peer in &peers {
                    assert_eq!(driver.receive(peer, tag, ROOM), content(peer, tag, n));
                }
            }
        }
        driver.until(|driver| driver.n_released == N * peers.len() * TAGS.len());
        assert!(driver.arrived.is_empty() && driver.lost.is_empty());
    });
}

/// Two ranks that both send more bytes than the network holds do not block each other.
///
/// Not run with `sockets`, which stalls between ranks of one host (`docs/fabrics.md`).
fn many_bytes_pass(test: Test) {
    full_networks_recover::<500, { 1 << 16 }>(test);
}

/// Two ranks that both send more messages than the provider has space for do not block each other.
///
/// Not run with `shm`, whose requests fail (`ENOMEM`) if a thousand messages wait for their
/// receives.
fn many_messages_pass(test: Test) {
    full_networks_recover::<4000, 32>(test);
}

fn full_networks_recover<const N: usize, const N_BYTES: usize>(test: Test) {
    test.run(2, |mut driver| {
        let me = driver.net.rank();
        let peer = Rank(1 - me.0);
        let mut n_posted = 0;
        for n in 0..N {
            driver.send(peer, Tag(1), &[n as u8; N_BYTES], n % 8 == 7);
            // Receives lag behind.
            if n % 4 == 3 {
                if driver.arrived.len() == n_posted {
                    driver.post(Source::Rank(peer), Tag(1), N_BYTES);
                    n_posted += 1;
                }
                driver.poll().unwrap();
            }
        }
        while driver.arrived.len() < N {
            if driver.arrived.len() == n_posted {
                driver.post(Source::Rank(peer), Tag(1), N_BYTES);
                n_posted += 1;
            }
            driver.until(|driver| driver.arrived.len() == n_posted);
        }
        driver.until(|driver| driver.n_released == N);
        for (n, message) in driver.arrived.iter().enumerate() {
            assert_eq!(message.bytes, [n as u8; N_BYTES]);
        }
    });
}

/// A message that does not fit its receive is an error that names the sender. The receive's buffer
/// comes back.
fn long_messages_are_refused(test: Test) {
    test.run(2, |mut driver| match driver.net.rank() {
        Rank(0) => {
            driver.post(Source::Rank(Rank(1)), Tag(2), 1000);
            let error = loop {
                match driver.poll() {
                    Ok(_) => {}
                    Err(error) => break error,
                }
            };
            assert_eq!(error, Error::Truncated { from: Rank(1) });
            driver.until(|driver| driver.n_returned == 1);
        }
        _ => {
            driver.send(Rank(0), Tag(2), &[4; 1001], false);
            // Some providers report the error to the sender too.
            while driver.n_released < 1 {
                if let Err(error) = driver.poll() {
                    assert!(matches!(error, Error::Message { peer: Rank(0), .. }), "{error}");
                }
            }
        }
    });
}

/// Unmatched receives come back when they are cancelled. Messages that arrived before are kept.
fn receives_can_be_cancelled(test: Test) {
    test.run(2, |mut driver| {
        let peer = Rank(1 - driver.net.rank().0);
        driver.send(peer, Tag(0), b"hello", false);
        assert_eq!(driver.receive(peer, Tag(0), 64), b"hello");
        for tag in 1..6 {
            driver.post(Source::Rank(peer), Tag(tag), 4096);
        }
        driver.post(Source::Any, Tag::CONTROL, 1024);
        driver.net.cancel_receives();
        driver.until(|driver| driver.n_returned == 6);
        driver.until(|driver| driver.n_released == 1);
        assert!(driver.arrived.is_empty());
    });
}

/// One receive takes notices of every rank, and reports their senders.
fn any_rank_can_be_heard(test: Test) {
    test.run(4, |mut driver| {
        let me = driver.net.rank();
        if me != Rank(2) {
            driver.send(Rank(2), Tag::CONTROL, &me.0.to_le_bytes(), false);
            driver.until(|driver| driver.n_released == 1);
            return;
        }
        // All notices arrive before a receive for them is posted.
        driver.linger(Duration::from_millis(50));
        for n in 1..=3 {
            driver.post(Source::Any, Tag::CONTROL, 1024);
            driver.until(|driver| driver.arrived.len() == n);
        }
        let mut senders: Vec<_> = driver.arrived.iter().map(|message| message.from).collect();
        senders.sort_unstable();
        assert_eq!(senders, [Rank(0), Rank(1), Rank(3)]);
        for Message { from, tag, bytes } in &driver.arrived {
            assert_eq!((*tag, &bytes[..]), (Tag::CONTROL, &from.0.to_le_bytes()[..]));
        }
    });
}

/// A matched send does not complete before its receive is posted.
fn matched_sends_wait(test: Test) {
    test.run(2, |mut driver| {
        let peer = Rank(1 - driver.net.rank().0);
        if peer == Rank(0) {
            driver.send(peer, Tag(1), b"matched", true);
            driver.linger(Duration::from_millis(50));
            assert_eq!(driver.n_released, 0, "completed without a receive");
            driver.send(peer, Tag(0), b"now", false);
            driver.until(|driver| driver.n_released == 2);
        } else {
            assert_eq!(driver.receive(peer, Tag(0), 64), b"now");
            assert_eq!(driver.receive(peer, Tag(1), 64), b"matched");
        }
    });
}

/// Messages that the network released before the endpoint is dropped still arrive, even if their
/// receive is posted later.
fn the_last_words_are_heard(test: Test) {
    test.run(2, |mut driver| {
        let peer = Rank(1 - driver.net.rank().0);
        if peer == Rank(0) {
            for n in 0..4 {
                driver.send(peer, Tag(0), &content(Rank(1), Tag(0), n), n == 3);
            }
            driver.until(|driver| driver.n_released == 4);
        } else {
            std::thread::sleep(Duration::from_millis(20));
            for n in 0..4 {
                assert_eq!(driver.receive(peer, Tag(0), ROOM), content(Rank(1), Tag(0), n));
            }
        }
    });
}

/// Dropping a layer with pending operations neither hangs nor crashes, and a new layer can be made.
fn layers_can_be_dropped_at_any_time(test: Test) {
    test.run(2, |mut driver| {
        let peer = Rank(1 - driver.net.rank().0);
        for tag in 0..4 {
            driver.post(Source::Rank(peer), Tag(tag), 1 << 18);
        }
        for tag in 0..4 {
            let buffer = driver.buffer(1 << 18);
            // The peer may have ended already.
            let _ = driver.net.send(peer, Tag(tag), buffer, 1 << 18, tag % 2 == 0);
            let _ = driver.net.poll();
        }
    });
}

/// Unknown ranks and too many bytes are refused, and the buffer comes back.
fn misuse_is_refused(test: Test) {
    test.run(1, |mut driver| {
        let misuse = |driver: &mut Driver, to: u32, n_bytes: usize| {
            let buffer = driver.buffer(100);
            assert_eq!(buffer.as_ref().as_ptr().addr() % FRAME_ALIGN, 0);
            match driver.net.send(Rank(to), Tag(0), buffer, n_bytes, false) {
                Err(Refused::Failed(buffer, Error::Misuse)) => {
                    assert_eq!(buffer.as_ref().len(), 100);
                }
                other => panic!("{other:?}"),
            }
        };
        misuse(&mut driver, 0, 101);
        misuse(&mut driver, 1, 100);
    });
}

macro_rules! for_providers {
    ($($provider:ident: $($more:ident)*;)*) => {$(
        mod $provider {
            for_providers! { @tests $provider
                order_is_kept long_messages_are_refused receives_can_be_cancelled
                any_rank_can_be_heard matched_sends_wait the_last_words_are_heard
                layers_can_be_dropped_at_any_time misuse_is_refused $($more)*
            }
        }
    )*};
    (@tests $provider:ident $($test:ident)*) => {$(
        #[test]
        fn $test() {
            super::$test(crate::common::Test {
                name: concat!(stringify!($provider), "::", stringify!($test)),
                provider: stringify!($provider),
            });
        }
    )*};
}

for_providers! {
    tcp: many_bytes_pass many_messages_pass;
    shm: many_bytes_pass;
    sockets: many_messages_pass;
}
