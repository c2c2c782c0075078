//! The end of an endpoint.
//!
//! Dropping an endpoint first waits until its messages are delivered. While all is well it waits up
//! to `linger`, like `MPI_Finalize`. Once a peer is lost or a call was aborted, it waits for
//! `grace` only. Notices get ten times `grace`, since a rank that misses one waits for its time
//! limit. (libfabric's `shm` sends a first message, and accepts no other one until the peer has
//! answered. That takes long on a busy machine.)

use std::thread;
use std::time::{Duration, Instant};

use foldwire::transport::Transport;

use super::Endpoint;
#[cfg(doc)]
use super::Options;
use crate::Backoff;
use crate::net::Net;

/// Multiple of [`Options::grace`] that a dropped endpoint waits for delivery of its notices.
const NOTICE_GRACES: u32 = 10;
/// Polls before an endpoint ends, one millisecond apart.
const N_FINAL_POLLS: usize = 5;
/// Limit on further such polls while control messages have no receiver yet. The receivers may be
/// about to end, too, and a layer whose messages are all received need not be abandoned.
const N_CONTROL_POLLS: usize = 50;

impl<N: Net> Drop for Endpoint<N> {
    fn drop(&mut self) {
        if !self.creator.is_current() {
            return;
        }
        self.net.end(self.is_well());
        let start = Instant::now();
        let mut backoff = Backoff::default();
        while self.failed.is_none() && self.undelivered().is_some() {
            let limit = match self.is_well() {
                true => self.options.linger,
                false if self.has_undelivered_notices() => {
                    self.options.grace.saturating_mul(NOTICE_GRACES)
                }
                false => self.options.grace,
            };
            if start.elapsed() >= limit {
                break;
            }
            if self.take_events() {
                backoff.reset();
            } else {
                backoff.wait(Duration::from_millis(1));
            }
            self.flush_outbox();
        }
        // Some networks must confirm to a sender that its last frame was received, and do so only
        // while they are polled.
        for n_polled in 0..N_FINAL_POLLS + N_CONTROL_POLLS {
            let is_enough = n_polled >= N_FINAL_POLLS && !self.net.has_unmatched_control();
            if is_enough || self.net.size() == 1 || self.failed.is_some() {
                break;
            }
            if !self.take_events() {
                thread::sleep(Duration::from_millis(1));
            }
            self.flush_outbox();
        }
        self.net.cancel_receives();
        self.take_events();
        if self.has_aborted
            || self.failed.is_some()
            || self.net.has_unmatched_control()
            || self.peers.any_disorder()
        {
            self.net.abandon();
        }
    }
}
