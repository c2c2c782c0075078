//! Wildcard receive for notices of any rank, built from one receive for each rank.
//!
//! A single receive that ignores the sender's bits would suffice, if all providers could match it
//! (see `tags.rs`). Notices are rare and short, so their buffers are small: 1 KiB for each rank.

use std::collections::VecDeque;

use foldwire::transport::{Rank, Tag};

use crate::fabric::FabricRequest;
use crate::ffi::{MessageBuffer, RdmEndpoint};
use crate::{Errno, tags};

/// Notice for the endpoint: sender, tag, buffer, and length in bytes.
pub(crate) type DeliveredNotice = (Rank, Tag, MessageBuffer, usize);

/// Receives for notices. They are posted once the endpoint has asked for a first notice.
#[derive(Default)]
pub(crate) struct AnySourceReceive {
    /// Tag and buffer length in bytes of the endpoint's first request.
    first: Option<(Tag, usize)>,
    /// The endpoint's buffer, while it waits for a notice.
    user_buffer: Option<MessageBuffer>,
    /// Notices that arrived and that the endpoint has not asked for yet.
    arrived: VecDeque<(Rank, MessageBuffer, usize)>,
    /// Ranks without a posted receive, and the buffers for them if allocated.
    unposted: VecDeque<(Rank, Option<MessageBuffer>)>,
}

impl AnySourceReceive {
    /// Requests a notice of any of `peers`, which are the same each time. Returns the buffer if a
    /// request is pending already, or if the first request had another tag.
    pub(crate) fn post(
        &mut self,
        tag: Tag,
        buffer: MessageBuffer,
        peers: impl Iterator<Item = Rank>,
    ) -> Result<(), MessageBuffer> {
        if self.user_buffer.is_some() || self.first.is_some_and(|(first_tag, _)| first_tag != tag) {
            return Err(buffer);
        }
        if self.first.is_none() {
            self.first = Some((tag, buffer.as_ref().len()));
            self.unposted.extend(peers.map(|peer| (peer, None)));
        }
        self.user_buffer = Some(buffer);
        Ok(())
    }

    /// Posts missing receives until the network accepts no more. On failure, returns the rank that
    /// the receive was for. That receive is tried again after all others.
    pub(crate) fn post_missing(
        &mut self,
        rdm: &mut RdmEndpoint<FabricRequest>,
    ) -> Result<(), (Rank, Errno)> {
        let Some((tag, n_bytes)) = self.first else { return Ok(()) };
        while let Some((from, buffer)) = self.unposted.pop_front() {
            let request = FabricRequest::Notice { from };
            let posted = buffer
                .map_or_else(|| rdm.allocate(n_bytes), Ok)
                .map_err(|errno| (None, errno))
                .and_then(|buffer| {
                    let posted = rdm.recv(tags::message(from, tag), buffer, request);
                    posted.map_err(|(buffer, errno)| (Some(buffer), errno))
                });
            if let Err((buffer, errno)) = posted {
                self.unposted.push_back((from, buffer));
                return if errno == Errno::AGAIN { Ok(()) } else { Err((from, errno)) };
            }
        }
        Ok(())
    }

    /// Records a notice that has arrived.
    pub(crate) fn note_arrived(&mut self, from: Rank, buffer: MessageBuffer, n_bytes: usize) {
        self.arrived.push_back((from, buffer, n_bytes));
    }

    /// Returns an arrived notice in the endpoint's buffer, if the endpoint has requested one.
    pub(crate) fn deliver(&mut self) -> Option<DeliveredNotice> {
        let (tag, _) = self.first?;
        if self.arrived.is_empty() {
            return None;
        }
        let mut user_buffer = self.user_buffer.take()?;
        let (from, buffer, n_bytes) = self.arrived.pop_front()?;
        // If the endpoint passes a shorter buffer than its first one, it sees less of the notice.
        let n_bytes = n_bytes.min(user_buffer.as_ref().len());
        user_buffer.as_mut()[..n_bytes].copy_from_slice(&buffer.as_ref()[..n_bytes]);
        self.unposted.push_back((from, Some(buffer)));
        Some((from, tag, user_buffer, n_bytes))
    }

    /// Stops receiving notices. Returns the endpoint's buffer, if a request is pending.
    pub(crate) fn stop(&mut self) -> Option<MessageBuffer> {
        self.first = None;
        self.unposted.clear();
        self.user_buffer.take()
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;
    use crate::ffi::Domain;
    use crate::{Settings, check};

    /// Opens an endpoint without peers. Returns `None` without the provider.
    fn rdm() -> Option<RdmEndpoint<FabricRequest>> {
        let description = check::find("tcp", &Settings::default(), 2).ok()?;
        Some(RdmEndpoint::open(Domain::open(description).unwrap()).unwrap())
    }

    #[test]
    fn a_receive_that_cannot_be_posted_is_tried_again_and_holds_up_no_other() {
        let (Some(mut rdm), Some(mut other)) = (rdm(), rdm()) else {
            let _ = writeln!(std::io::stdout(), "skipped: no provider tcp");
            return;
        };
        let mut notices = AnySourceReceive::default();
        let buffer = rdm.allocate(64).unwrap();
        notices.post(Tag::CONTROL, buffer, [1, 2].map(Rank).into_iter()).unwrap();
        // The endpoint refuses a buffer of another endpoint each time.
        notices.unposted[0].1 = Some(other.allocate(64).unwrap());
        for _ in 0..3 {
            assert_eq!(notices.post_missing(&mut rdm), Err((Rank(1), Errno::INVALID)));
        }
        notices.unposted[0].1 = None;
        assert_eq!(notices.post_missing(&mut rdm), Ok(()));
        assert!(notices.unposted.is_empty());
    }
}
