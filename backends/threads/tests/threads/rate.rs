//! With a rate limit no frame arrives before it would have crossed the links. Lower bounds only:
//! how much later a busy machine delivers is not ours to promise.

use std::time::Duration;

use crate::{forward, recv, send, wait};
use foldwire::transport::{MIN_FRAME_BYTES, Rank, Tag, Transport};
use foldwire_threads::{Endpoint, World};

const N: usize = MIN_FRAME_BYTES;
/// `N` bytes cross in one millisecond.
const RATE: f64 = N as f64 * 1e3;
const MS: Duration = Duration::from_millis(1);

/// Sends a full frame.
fn send_full(endpoint: &mut Endpoint, to: Rank, tag: Tag) {
    let frame = wait(endpoint, Endpoint::poll_frame).unwrap();
    forward(endpoint, to, tag, frame, N).unwrap();
}

/// Frames of one sender leave one after the other, and the latency comes on top once.
#[test]
fn a_stream_takes_its_bytes_over_the_rate() {
    let world = World::new(2).frame_bytes(N).link_rate(RATE).link_latency(3 * MS);
    world.run_endpoints(|mut endpoint| {
        if endpoint.rank() == Rank(0) {
            for _ in 0..10 {
                send_full(&mut endpoint, Rank(1), Tag(0));
            }
            return;
        }
        for n_received in 1..=10 {
            let (frame, n_bytes) = recv(&mut endpoint, Rank(0), Tag(0)).unwrap();
            assert_eq!(n_bytes, N);
            assert!(endpoint.now() >= 3 * MS + n_received * MS);
            endpoint.recycle(frame);
        }
    });
}

/// The receiver's link is shared by all senders and tags: what they send at once arrives in turn.
#[test]
fn senders_share_the_receivers_link() {
    const SENDERS: u32 = 4;
    World::new(SENDERS as usize + 1).frame_bytes(N).link_rate(RATE).run_endpoints(
        |mut endpoint| {
            if endpoint.rank() != Rank(0) {
                let tag = Tag(endpoint.rank().0 as u16);
                send_full(&mut endpoint, Rank(0), tag);
                return;
            }
            let mut arrivals = Vec::new();
            for from in (1..=SENDERS).rev() {
                let (frame, _) = recv(&mut endpoint, Rank(from), Tag(from as u16)).unwrap();
                endpoint.recycle(frame);
                arrivals.push(endpoint.now());
            }
            // Whatever the order: the last of them cannot have come before all had crossed.
            assert!(arrivals.last().unwrap() >= &(SENDERS * MS));
        },
    );
}

/// A rank's two directions do not share: a frame each way takes the time of one, at the least, and
/// a frame to oneself takes none.
#[test]
fn self_sends_cross_no_link() {
    // An hour per frame: a test that waited for the link would be noticed.
    let world = World::new(2).frame_bytes(N).link_rate(N as f64 / 3600.0);
    let [mut a, _b] = world.endpoints().try_into().unwrap();
    send_full(&mut a, Rank(1), Tag(0));
    send(&mut a, Rank(0), Tag(0), &[7]).unwrap();
    let (frame, n_bytes) = recv(&mut a, Rank(0), Tag(0)).unwrap();
    assert_eq!(frame.as_ref()[..n_bytes], [7]);
}

/// A frame under way is not there before its time, however often it is polled for, keeps its place
/// on the link, and needs no further event to be delivered.
#[test]
fn a_frame_under_way_is_pending_until_due() {
    let world = World::new(2).frame_bytes(N).link_depth(1).link_latency(20 * MS);
    let [mut a, mut b] = world.endpoints().try_into().unwrap();
    let sent = a.now();
    send(&mut a, Rank(1), Tag(0), &[1]).unwrap();
    assert!(a.poll_ready(Rank(1), Tag(0)).is_pending());
    let mut n_polls = 0u32;
    loop {
        b.progress().unwrap();
        if b.poll_recv(Rank(0), Tag(0)).map(Result::unwrap).is_ready() {
            break;
        }
        n_polls += 1;
        if n_polls > 3 {
            b.idle(Duration::from_secs(60));
        }
    }
    assert!(b.now() >= sent + 20 * MS);
    assert!(a.poll_ready(Rank(1), Tag(0)).is_ready());
}
