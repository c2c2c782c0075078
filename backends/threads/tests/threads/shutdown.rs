//! The end of a rank, normal or not, is noticed: no peer hangs, and no frame is lost.

use std::panic;
use std::task::Poll;
use std::time::Duration;

use crate::{forward, recv, send, wait};
use foldwire::transport::{MIN_FRAME_BYTES, Rank, Tag, Transport};
use foldwire_threads::{Endpoint, Error, World};

const TAG: Tag = Tag(0);
const LOST: Error = Error::PeerLost { peer: Rank(0) };

fn small(n_ranks: usize) -> World {
    World::new(n_ranks).frame_bytes(MIN_FRAME_BYTES)
}

/// Frames sent before the end arrive. After them, and in every other call, the peer gets
/// `PeerLost`.
#[test]
fn frames_sent_before_the_end_arrive() {
    for world in [small(2), small(2).link_rate(1e6)] {
        world.run_endpoints(|mut endpoint| {
            if endpoint.rank() == Rank(0) {
                for number in 0..4 {
                    send(&mut endpoint, Rank(1), TAG, &[number]).unwrap();
                }
                return;
            }
            std::thread::sleep(Duration::from_millis(2));
            for number in 0..4 {
                let (frame, n_bytes) = recv(&mut endpoint, Rank(0), TAG).unwrap();
                assert_eq!(frame.as_ref()[..n_bytes], [number]);
                endpoint.recycle(frame);
            }
            assert_eq!(recv(&mut endpoint, Rank(0), TAG).unwrap_err(), LOST);
            assert_eq!(recv(&mut endpoint, Rank(0), Tag(1)).unwrap_err(), LOST);
            assert_eq!(endpoint.poll_ready(Rank(0), TAG), Poll::Ready(Err(LOST)));
            let frame = wait(&mut endpoint, Endpoint::poll_frame).unwrap();
            assert_eq!(endpoint.send(Rank(0), TAG, frame, 0), Err(LOST));
        });
    }
}

/// Ranks that sleep in a receive or on a full link are woken by the end of their peer.
#[test]
fn the_end_wakes_sleepers() {
    let ends = small(3).run_endpoints(|mut endpoint| match endpoint.rank() {
        Rank(0) => {
            std::thread::sleep(Duration::from_millis(10));
            Ok(())
        }
        Rank(1) => recv(&mut endpoint, Rank(0), TAG).map(drop),
        _ => loop {
            if let Err(error) = send(&mut endpoint, Rank(0), TAG, &[]) {
                break Err(error);
            }
        },
    });
    assert_eq!(ends, [Ok(()), Err(LOST), Err(LOST)]);
}

/// A panic ends only its rank. The other ranks get an error, and the caller gets the payload.
#[test]
fn a_panic_is_seen_by_peers_and_by_the_caller() {
    let outcomes = small(4).try_run_endpoints(|mut endpoint| {
        let me = endpoint.rank().0;
        if me == 0 {
            panic::panic_any("rank 0 fell");
        }
        recv(&mut endpoint, Rank(me - 1), TAG).map(drop)
    });
    let mut outcomes = outcomes.into_iter();
    let payload = outcomes.next().unwrap().unwrap_err();
    assert_eq!(payload.downcast_ref(), Some(&"rank 0 fell"));
    let errors: Vec<_> = outcomes.map(|outcome| outcome.unwrap().unwrap_err()).collect();
    let expected = [0, 1, 2].map(|rank| Error::PeerLost { peer: Rank(rank) });
    assert_eq!(errors, expected);
}

/// If several ranks panic, the caller gets the first panic, not one that followed from it.
#[test]
fn the_first_panic_is_resumed() {
    let caught = panic::catch_unwind(|| {
        small(3).run_endpoints(|mut endpoint| {
            if endpoint.rank() == Rank(2) {
                panic::panic_any("the cause");
            }
            recv(&mut endpoint, Rank(2), TAG).map(drop).expect("a consequence");
        });
    });
    assert_eq!(caught.unwrap_err().downcast_ref(), Some(&"the cause"));
}

/// When a rank has ended, the other ranks can allocate the frames that it held or had not received.
#[test]
fn the_frames_of_a_lost_rank_come_back() {
    let [mut a, mut b] = small(2).frame_limit(8).endpoints().try_into().unwrap();
    let frame = wait(&mut a, Endpoint::poll_frame).unwrap();
    forward(&mut a, Rank(1), TAG, frame, 0).unwrap();
    let all = |endpoint: &mut Endpoint| {
        let mut frames = Vec::new();
        while let Poll::Ready(frame) = endpoint.poll_frame() {
            frames.push(frame.unwrap());
        }
        frames
    };
    let held = all(&mut b);
    assert!(a.poll_frame().is_pending());
    drop(b);
    // The frame in the link is free again.
    assert_eq!(all(&mut a).len(), 1);
    let n_held = held.len();
    drop(held);
    assert_eq!(all(&mut a).len(), n_held + 1);
}
