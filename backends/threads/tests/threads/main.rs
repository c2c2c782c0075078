//! Tests of worlds and endpoints. The functions in this file poll and wait as an engine does.
#![cfg(not(loom))]

mod delivery;
mod groups;
mod inputs;
mod rate;
mod shutdown;
mod tasks;

use std::task::Poll;
use std::time::Duration;

use foldwire::transport::{Rank, Tag, Transport};
use foldwire_threads::{Endpoint, Error, Frame};

/// Longest single sleep. Nothing in these tests takes that long, so a sleep that uses its whole
/// budget means a lost wake-up.
const BUDGET: Duration = Duration::from_secs(30);

/// Polls until ready, and sleeps in between.
pub(crate) fn wait<R>(
    endpoint: &mut Endpoint,
    mut poll: impl FnMut(&mut Endpoint) -> Poll<Result<R, Error>>,
) -> Result<R, Error> {
    loop {
        endpoint.progress()?;
        match poll(endpoint) {
            Poll::Ready(result) => return result,
            Poll::Pending => {
                let start = endpoint.now();
                endpoint.idle(BUDGET);
                assert!(endpoint.now() - start < BUDGET, "nobody woke rank {}", endpoint.rank());
            }
        }
    }
}

/// Sends `payload` in a frame from the pool; waits for the frame and for space on the link.
pub(crate) fn send(
    endpoint: &mut Endpoint,
    to: Rank,
    tag: Tag,
    payload: &[u8],
) -> Result<(), Error> {
    let mut frame = wait(endpoint, Endpoint::poll_frame)?;
    frame.as_mut()[..payload.len()].copy_from_slice(payload);
    forward(endpoint, to, tag, frame, payload.len())
}

/// Sends a given frame; waits for space on the link.
pub(crate) fn forward(
    endpoint: &mut Endpoint,
    to: Rank,
    tag: Tag,
    frame: Frame,
    n_bytes: usize,
) -> Result<(), Error> {
    wait(endpoint, |endpoint| endpoint.poll_ready(to, tag))?;
    endpoint.send(to, tag, frame, n_bytes)
}

/// Waits for the next frame.
pub(crate) fn recv(endpoint: &mut Endpoint, from: Rank, tag: Tag) -> Result<(Frame, usize), Error> {
    wait(endpoint, |endpoint| endpoint.poll_recv(from, tag))
}
