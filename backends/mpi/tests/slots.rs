//! Ranks of a node whose frames exceed the slots of their shared memory lose no message and stop no
//! link.
#![cfg(unix)]

mod ranks;

use std::task::Poll;
use std::time::{Duration, Instant};

use foldwire::transport::{Rank, Tag, Transport};
use foldwire_mpi::{Endpoint, Options};
use mpi::topology::Communicator;

/// A rank's file has 16 slots of this size.
const FRAME_BYTES: usize = 8 << 20;
/// Longer than a message that the ring holds.
const N_BYTES: usize = 5000;

/// Polls until there is a result. Panics after a time in which a rank that moves would have one.
fn wait<T>(endpoint: &mut Endpoint, mut poll: impl FnMut(&mut Endpoint) -> Poll<T>) -> T {
    let start = Instant::now();
    loop {
        if let Poll::Ready(result) = poll(endpoint) {
            return result;
        }
        assert!(start.elapsed() < Duration::from_secs(20), "a link stands still");
        endpoint.progress().expect("MPI works");
        endpoint.idle(Duration::from_micros(50));
    }
}

/// Body of each of the two ranks, which the test below starts from this program.
#[test]
fn as_a_rank() {
    if !ranks::is_here() {
        return;
    }
    let universe = mpi::initialize().expect("MPI starts");
    let world = universe.world();
    let print = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        print(info);
        mpi::topology::SimpleCommunicator::world().abort(101);
    }));
    let mut options = Options::default();
    options.frame_bytes = FRAME_BYTES;
    let mut endpoint = foldwire_mpi::join_with(&world, options).unwrap();
    let peer = Rank(1 - endpoint.rank().0);
    let links: Vec<_> = (0..15).map(Tag).filter(|tag| !tag.is_control()).collect();
    let n_on_link = options.link_depth as u8;
    for round in 0..5 {
        let content = |nth: u8, tag: Tag| 40 * round + 15 * nth + tag.0 as u8;
        // No rank receives before it has sent all that the credit of the links allows.
        for nth in 0..n_on_link {
            for &tag in &links {
                wait(&mut endpoint, |endpoint| endpoint.poll_ready(peer, tag)).unwrap();
                let mut frame = wait(&mut endpoint, Endpoint::poll_frame).unwrap();
                frame.as_mut()[..N_BYTES].fill(content(nth, tag));
                endpoint.send(peer, tag, frame, N_BYTES).unwrap();
            }
        }
        // The links that sent last receive first.
        for &tag in links.iter().rev() {
            for nth in 0..n_on_link {
                let found = wait(&mut endpoint, |endpoint| endpoint.poll_recv(peer, tag));
                let (frame, n_bytes) = found.unwrap();
                assert_eq!(n_bytes, N_BYTES);
                let has_arrived = |&byte: &u8| byte == content(nth, tag);
                assert!(frame.as_ref()[..n_bytes].iter().all(has_arrived));
                endpoint.recycle(frame);
            }
        }
    }
    drop(endpoint);
    println!("all arrived");
}

#[test]
fn frames_beyond_the_slots_arrive_in_order_on_every_link() {
    ranks::run_two("all arrived");
}
