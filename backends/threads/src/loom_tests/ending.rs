//! Ranks that end, normally or by a panic, while other ranks wait for them.

use std::sync::Arc;
use std::task::Poll;

use foldwire::transport::{MIN_FRAME_BYTES, Rank, Tag, Transport};
use loom::thread;

use super::{TAG, endpoints, explore, frame, receive, send, wait};
use crate::Error;
use crate::fabric::ThreadFabric;

/// The receiver gets a frame that was sent before the sender's end, and then `PeerLost`. The
/// receiver may sleep at any moment and is woken.
#[test]
fn frames_before_the_end_are_delivered() {
    explore("frames before the end", Some(4), || {
        let [mut first, mut second] = endpoints();
        let sender = thread::spawn(move || send(&mut first, Rank(1), TAG, 42));
        assert_eq!(receive(&mut second, Rank(0), TAG), 42);
        let end = wait(&mut second, |rank| rank.poll_recv(Rank(0), TAG));
        assert_eq!(end.unwrap_err(), Error::PeerLost { peer: Rank(0) });
        sender.join().unwrap();
    });
}

/// A rank that waits for space on a full link learns that the receiver has ended.
#[test]
fn the_end_wakes_a_blocked_sender() {
    explore("the end wakes a blocked sender", Some(5), || {
        let [mut first, second] = endpoints();
        let full = frame(&mut first, 1);
        first.send(Rank(1), TAG, full, 1).unwrap();
        let receiver = thread::spawn(move || drop(second));
        // The receiver may drop the frame, and so free space, just before its end becomes visible.
        let end = wait(&mut first, |rank| match rank.poll_ready(Rank(1), TAG) {
            Poll::Ready(Err(end)) => Poll::Ready(end),
            _ => Poll::Pending,
        });
        assert_eq!(end, Error::PeerLost { peer: Rank(1) });
        receiver.join().unwrap();
    });
}

/// A rank makes a link to a rank that is ending. The frame is accepted or refused, and the sender
/// sees the end in either case.
#[test]
fn a_link_to_a_rank_that_ends() {
    explore("a link to a rank that ends", Some(5), || {
        let [mut first, second] = endpoints();
        let receiver = thread::spawn(move || drop(second));
        let outgoing = frame(&mut first, 1);
        let sent = first.send(Rank(1), TAG, outgoing, 1);
        assert!(sent.is_ok() || sent == Err(Error::PeerLost { peer: Rank(1) }));
        let end = wait(&mut first, |rank| rank.poll_recv(Rank(1), TAG));
        assert_eq!(end.unwrap_err(), Error::PeerLost { peer: Rank(1) });
        receiver.join().unwrap();
        let outgoing = frame(&mut first, 2);
        assert_eq!(first.send(Rank(1), TAG, outgoing, 1), Err(Error::PeerLost { peer: Rank(1) }));
    });
}

/// Both ranks end at once, one right after it sends a frame to the other. The receiver polls once
/// before its end, and gets the frame or nothing.
#[test]
fn both_end_at_once() {
    explore("both end at once", Some(5), || {
        let [mut first, mut second] = endpoints();
        let other = thread::spawn(move || {
            let outgoing = frame(&mut second, 7);
            // The receiver may be gone already.
            let sent = second.send(Rank(0), Tag::CONTROL, outgoing, 1);
            assert!(sent.is_ok() || sent == Err(Error::PeerLost { peer: Rank(0) }));
        });
        match first.poll_recv(Rank(1), Tag::CONTROL) {
            Poll::Ready(Ok((frame, 1))) => assert_eq!(frame.as_ref()[0], 7),
            Poll::Ready(Ok(_)) => panic!("the length is not 1"),
            // The frame was sent before the end, so the end must not be seen first.
            Poll::Ready(Err(error)) => panic!("{error}"),
            Poll::Pending => {}
        }
        drop(first);
        other.join().unwrap();
    });
}

/// Two ranks that sleep in a receive from a third are both woken by its end.
#[test]
fn the_end_wakes_everybody() {
    explore("the end wakes everybody", Some(2), || {
        let [first, second, third] = endpoints();
        let waiters = [first, second].map(|mut waiter| {
            thread::spawn(move || {
                let end = wait(&mut waiter, |rank| rank.poll_recv(Rank(2), TAG));
                assert_eq!(end.unwrap_err(), Error::PeerLost { peer: Rank(2) });
            })
        });
        drop(third);
        for waiter in waiters {
            waiter.join().unwrap();
        }
    });
}

/// If one of two panics follows from the other, the cause counts as the first. The test closes
/// ranks by hand: loom runs all threads on one system thread, which has only one panic state.
#[test]
fn the_cause_of_panics_comes_first() {
    explore("panics in order", None, || {
        let fabric = Arc::new(ThreadFabric::new(3, MIN_FRAME_BYTES, 12, 1, None));
        let cause = {
            let fabric = Arc::clone(&fabric);
            thread::spawn(move || fabric.close(Rank(1), true))
        };
        let calm = {
            let fabric = Arc::clone(&fabric);
            thread::spawn(move || fabric.close(Rank(2), false))
        };
        if fabric.is_closed(Rank(1)) {
            fabric.close(Rank(0), true);
        }
        cause.join().unwrap();
        calm.join().unwrap();
        assert_eq!(fabric.first_panic(), Some(Rank(1)));
    });
}
