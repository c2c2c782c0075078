//! With a rate limit, no frame arrives before it would have crossed the links. The tests check only
//! lower bounds, because a busy machine may deliver a frame arbitrarily late.

use std::time::Duration;

use crate::{forward, recv, send, wait};
use foldwire::transport::{MIN_FRAME_BYTES, Rank, Tag, Transport};
use foldwire_threads::{Endpoint, World};

const N: usize = MIN_FRAME_BYTES;
/// Rate at which `N` bytes cross in one millisecond.
const RATE: f64 = N as f64 * 1e3;
const MS: Duration = Duration::from_millis(1);

/// Sends a full frame.
fn send_full(endpoint: &mut Endpoint, to: Rank, tag: Tag) {
    let frame = wait(endpoint, Endpoint::poll_frame).unwrap();
    forward(endpoint, to, tag, frame, N).unwrap();
}

/// Frames of one sender leave one after the other, and the latency adds to them only once.
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

/// All senders and tags share the receiver's link: frames sent at once arrive one after the other.
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
            // In any order, the last frame cannot arrive before all frames have crossed.
            assert!(arrivals.last().unwrap() >= &(SENDERS * MS));
        },
    );
}

/// A frame from a rank to itself crosses no link, so it arrives although the rank's link is busy.
#[test]
fn self_sends_cross_no_link() {
    // One frame takes an hour to cross the link, so the test would hang if it waited for the link.
    let world = World::new(2).frame_bytes(N).link_rate(N as f64 / 3600.0);
    let [mut a, _b] = world.endpoints().try_into().unwrap();
    send_full(&mut a, Rank(1), Tag(0));
    send(&mut a, Rank(0), Tag(0), &[7]).unwrap();
    let (frame, n_bytes) = recv(&mut a, Rank(0), Tag(0)).unwrap();
    assert_eq!(frame.as_ref()[..n_bytes], [7]);
}

/// A frame in flight does not arrive before its time, however often the receiver polls. It keeps
/// its space on the link, and needs no further event to be delivered.
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
