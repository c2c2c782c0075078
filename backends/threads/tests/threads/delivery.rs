//! Frames arrive once, in order and unchanged. Full links and an empty pool delay senders but never
//! block them forever.

use std::task::Poll;
use std::time::Duration;

use crate::{forward, recv, send, wait};
use foldwire::transport::{
    FRAMES_PER_LANE, MAX_CHANNELS, MIN_FRAME_BYTES, Rank, Tag, Transport, TransportError,
    TransportErrorKind,
};
use foldwire_threads::{Endpoint, Error, Frame, World};

const TAG: Tag = Tag(0);

fn small(n_ranks: usize) -> World {
    World::new(n_ranks).frame_bytes(MIN_FRAME_BYTES)
}

fn frame_of(endpoint: &mut Endpoint) -> Frame {
    match endpoint.poll_frame() {
        Poll::Ready(frame) => frame.unwrap(),
        Poll::Pending => panic!("the pool is empty"),
    }
}

/// Every rank sends a numbered stream to every rank, itself included, on several tags, with links
/// of depth 2. It polls all streams in turn. Each stream arrives whole and in order.
#[test]
fn order_holds_per_peer_and_tag() {
    const N: usize = 6;
    const N_TAGS: usize = 3;
    const N_FRAMES: u32 = 60;
    let streams = || (0..N).flat_map(|peer| (0..N_TAGS).map(move |tag| (peer, tag)));
    small(N).link_depth(2).run_endpoints(|mut endpoint| {
        let me = endpoint.rank().0;
        let mut sent = [[0u32; N_TAGS]; N];
        let mut received = [[0u32; N_TAGS]; N];
        let mut n_left = 2 * N_FRAMES as usize * N * N_TAGS;
        while n_left > 0 {
            endpoint.progress().unwrap();
            let n_before = n_left;
            for (peer, tag) in streams() {
                let (to, lane) = (Rank::new(peer), Tag(tag as u16));
                let number = &mut sent[peer][tag];
                if *number < N_FRAMES
                    && endpoint.poll_ready(to, lane).map(Result::unwrap).is_ready()
                    && let Poll::Ready(frame) = endpoint.poll_frame()
                {
                    let mut frame = frame.unwrap();
                    let payload = [me, tag as u32, *number].map(u32::to_le_bytes);
                    frame.as_mut()[..12].copy_from_slice(payload.as_flattened());
                    endpoint.send(to, lane, frame, 12).unwrap();
                    *number += 1;
                    n_left -= 1;
                }
                if received[peer][tag] < N_FRAMES
                    && let Poll::Ready(arrival) = endpoint.poll_recv(to, lane)
                {
                    let (frame, n_bytes) = arrival.unwrap();
                    let expected = [peer as u32, tag as u32, received[peer][tag]];
                    let payload = expected.map(u32::to_le_bytes);
                    assert_eq!(&frame.as_ref()[..n_bytes], payload.as_flattened());
                    received[peer][tag] += 1;
                    n_left -= 1;
                    endpoint.recycle(frame);
                }
            }
            if n_left == n_before {
                endpoint.idle(Duration::from_secs(60));
            }
        }
    });
}

/// Eight ranks pass a token around two thousand times. Each rank forwards the frame in which it
/// received the token, and sleeps until the token comes back.
#[test]
fn a_token_goes_round() {
    const N: u32 = 8;
    const ROUNDS: u32 = 2000;
    let ends = small(N as usize).run_endpoints(|mut endpoint| {
        let me = endpoint.rank().0;
        let (next, previous) = (Rank((me + 1) % N), Rank((me + N - 1) % N));
        if me == 0 {
            send(&mut endpoint, next, TAG, &0u32.to_le_bytes()).unwrap();
        }
        let mut last = 0;
        for round in 0..ROUNDS {
            let (mut frame, n_bytes) = recv(&mut endpoint, previous, TAG).unwrap();
            let hop = <[u8; 4]>::try_from(&frame.as_ref()[..n_bytes]).unwrap();
            last = u32::from_le_bytes(hop) + 1;
            frame.as_mut()[..4].copy_from_slice(&last.to_le_bytes());
            if me == 0 && round + 1 == ROUNDS {
                endpoint.recycle(frame);
            } else {
                forward(&mut endpoint, next, TAG, frame, 4).unwrap();
            }
        }
        last
    });
    assert_eq!(ends[0], N * ROUNDS);
}

/// A link accepts exactly `depth` frames, then reports that it is full. Each received frame frees
/// space for one more.
#[test]
fn a_full_link_is_pending() {
    for depth in [1, 3, 4] {
        let [mut a, mut b] = small(2).link_depth(depth).endpoints().try_into().unwrap();
        for _ in 0..depth {
            assert_eq!(a.poll_ready(Rank(1), TAG), Poll::Ready(Ok(())));
            let frame = frame_of(&mut a);
            a.send(Rank(1), TAG, frame, 0).unwrap();
        }
        assert_eq!(a.poll_ready(Rank(1), TAG), Poll::Pending);
        // Another tag and the opposite direction have their own credit.
        assert_eq!(a.poll_ready(Rank(1), Tag::CONTROL), Poll::Ready(Ok(())));
        assert_eq!(b.poll_ready(Rank(0), TAG), Poll::Ready(Ok(())));
        let frame = frame_of(&mut a);
        let refused = a.send(Rank(1), TAG, frame, 0);
        assert_eq!(refused, Err(Error::NotReady { to: Rank(1), tag: TAG }));
        assert!(b.poll_recv(Rank(0), TAG).is_ready());
        assert_eq!(a.poll_ready(Rank(1), TAG), Poll::Ready(Ok(())));
    }
}

/// A sender that sleeps because its link is full wakes when the receiver takes a frame.
#[test]
fn room_wakes_a_sleeping_sender() {
    small(2).link_depth(1).run_endpoints(|mut endpoint| {
        if endpoint.rank() == Rank(0) {
            for number in 0..20 {
                send(&mut endpoint, Rank(1), TAG, &[number]).unwrap();
            }
        } else {
            for number in 0..20 {
                std::thread::sleep(Duration::from_millis(1));
                let (frame, n_bytes) = recv(&mut endpoint, Rank(0), TAG).unwrap();
                assert_eq!(frame.as_ref()[..n_bytes], [number]);
                endpoint.recycle(frame);
            }
        }
    });
}

/// The pool refuses frames beyond its limit. A rank that sleeps until a frame is free wakes when
/// another rank recycles or drops a frame.
#[test]
fn a_freed_frame_wakes_a_sleeping_rank() {
    for recycles in [true, false] {
        let world = small(2).frame_limit(2 * FRAMES_PER_LANE);
        world.run_endpoints(|mut endpoint| {
            if endpoint.rank() == Rank(0) {
                let mut held = Vec::new();
                while let Poll::Ready(frame) = endpoint.poll_frame() {
                    held.push(frame.unwrap());
                }
                // The pool has a few more than the limit, for frames that ranks keep to themselves.
                assert!(held.len() >= 2 * FRAMES_PER_LANE);
                send_held(&mut endpoint, held.pop().unwrap());
                // Kept, so that the drop of this frame does not wake rank 1.
                let _reply = recv(&mut endpoint, Rank(1), TAG).unwrap();
                std::thread::sleep(Duration::from_millis(5));
                let frame = held.pop().unwrap();
                if recycles {
                    endpoint.recycle(frame);
                } else {
                    drop(frame);
                }
                recv(&mut endpoint, Rank(1), TAG).unwrap();
            } else {
                // A link opens when it is first used, and raises the limit by its depth. Here two
                // open: from rank 0, and from rank 1. Rank 1 takes the frames that they add. Rank 0
                // has taken all others, so rank 1 must wait until rank 0 frees one.
                let (frame, _) = recv(&mut endpoint, Rank(0), TAG).unwrap();
                send_held(&mut endpoint, frame);
                let mut taken = Vec::new();
                while let Poll::Ready(frame) = endpoint.poll_frame() {
                    taken.push(frame.unwrap());
                }
                endpoint.progress().unwrap();
                let frame = wait(&mut endpoint, Endpoint::poll_frame).unwrap();
                send_held(&mut endpoint, frame);
            }
        });
    }

    fn send_held(endpoint: &mut Endpoint, frame: Frame) {
        let peer = Rank(1 - endpoint.rank().0);
        forward(endpoint, peer, TAG, frame, 0).unwrap();
    }
}

/// With traffic in one direction only, frames return to the sender through the pool. Rank 0 sends
/// many more frames than the pool may allocate.
#[test]
fn one_way_traffic_does_not_drain_the_pool() {
    small(3).frame_limit(3 * FRAMES_PER_LANE).run_endpoints(|mut endpoint| {
        for number in 0..2000u32 {
            if endpoint.rank() == Rank(0) {
                for to in [Rank(1), Rank(2)] {
                    send(&mut endpoint, to, TAG, &number.to_le_bytes()).unwrap();
                }
            } else {
                let (frame, n_bytes) = recv(&mut endpoint, Rank(0), TAG).unwrap();
                assert_eq!(frame.as_ref()[..n_bytes], number.to_le_bytes());
                endpoint.recycle(frame);
            }
        }
    });
}

/// One thread can drive all ranks in turn, and a rank can send to itself.
#[test]
fn one_thread_drives_all_ranks() {
    let mut endpoints = small(3).endpoints();
    for endpoint in &mut endpoints {
        for to in 0..3 {
            send(endpoint, Rank(to), TAG, &[endpoint.rank().0 as u8, to as u8]).unwrap();
        }
    }
    for endpoint in &mut endpoints {
        for from in 0..3u8 {
            let (frame, n_bytes) = recv(endpoint, Rank(u32::from(from)), TAG).unwrap();
            assert_eq!(frame.as_ref()[..n_bytes], [from, endpoint.rank().0 as u8]);
            endpoint.recycle(frame);
        }
        // No more frames come, so `idle` returns after its budget.
        endpoint.progress().unwrap();
        endpoint.idle(Duration::from_millis(1));
        endpoint.idle(Duration::ZERO);
        assert!(endpoint.poll_recv(Rank(0), TAG).is_pending());
    }
}

/// Calls that break the contract are refused with the reason, and their frame returns to the pool.
#[test]
fn misuse_is_an_error() {
    let [mut a, _b] = small(2).endpoints().try_into().unwrap();
    let [mut other] = small(1).endpoints().try_into().unwrap();
    let (rank, tag) = (Rank(2), Tag((MAX_CHANNELS * Tag::COUNT) as u16));
    let no_rank = Error::NoSuchRank { rank, size: 2 };
    assert_eq!(a.poll_ready(rank, TAG), Poll::Ready(Err(no_rank)));
    assert_eq!(a.poll_recv(rank, TAG).map(Result::unwrap_err), Poll::Ready(no_rank));
    assert_eq!(a.poll_ready(Rank(1), tag), Poll::Ready(Err(Error::NoSuchTag { tag })));

    let have = a.frame_capacity();
    let frame = frame_of(&mut a);
    let address = frame.as_ref().as_ptr();
    let too_long = a.send(Rank(1), TAG, frame, have + 1).unwrap_err();
    assert_eq!(too_long, Error::TooLong { need: have + 1, have });
    assert_eq!(too_long.kind(), TransportErrorKind::Misuse);
    assert_eq!(frame_of(&mut a).as_ref().as_ptr(), address);

    let foreign = frame_of(&mut other);
    assert_eq!(a.send(Rank(1), TAG, foreign, 0), Err(Error::ForeignFrame));
}

/// Each of a thousand threads receives from its neighbour.
#[test]
fn a_thousand_ranks() {
    const N: u32 = 1000;
    let sums = small(N as usize).run_endpoints(|mut endpoint| {
        let me = endpoint.rank().0;
        send(&mut endpoint, Rank((me + 1) % N), TAG, &me.to_le_bytes()).unwrap();
        let (frame, n_bytes) = recv(&mut endpoint, Rank((me + N - 1) % N), TAG).unwrap();
        let theirs = <[u8; 4]>::try_from(&frame.as_ref()[..n_bytes]).unwrap();
        u32::from_le_bytes(theirs)
    });
    assert!((0..N).all(|me| sums[me as usize] == (me + N - 1) % N));
}
