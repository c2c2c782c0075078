//! Receives for messages of any rank, as one receive for each rank.
//!
//! A receive that ignores the sender's bits would do, if all providers could match it (see
//! `tags.rs`). AnySourceReceive are rare and short, so their buffers are small: 1 KiB for each rank.

use std::collections::VecDeque;

use foldwire::transport::{Rank, Tag};

use crate::fabric::FabricRequest;
use crate::ffi::{MessageBuffer, RdmEndpoint};
use crate::{Errno, tags};

/// A notice for the user: its sender, its tag, the buffer, and the bytes in it.
pub(crate) type DeliveredNotice = (Rank, Tag, MessageBuffer, usize);

/// Receives for notices, once the user has asked for one.
#[derive(Default)]
pub(crate) struct AnySourceReceive {
    /// The stream, and the length of the buffer that the user first gave.
    first: Option<(Tag, usize)>,
    /// The user's buffer, while a notice is asked for.
    user_buffer: Option<MessageBuffer>,
    /// AnySourceReceive that nobody has asked for yet.
    arrived: VecDeque<(Rank, MessageBuffer, usize)>,
    /// Ranks without a receive, and the buffers for them where there is one.
    unposted: VecDeque<(Rank, Option<MessageBuffer>)>,
}

impl AnySourceReceive {
    /// Asks for a notice of any of `peers`, which are the same each time. Gives the buffer back if
    /// one is asked for already.
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

    /// Posts what receives are missing, as far as the network has room. On failure the rank
    /// concerned, whose receive is tried again after those of all others.
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

    /// Notes a notice that has come.
    pub(crate) fn note_arrived(&mut self, from: Rank, buffer: MessageBuffer, n_bytes: usize) {
        self.arrived.push_back((from, buffer, n_bytes));
    }

    /// A notice that the user has asked for and that is here, in the user's buffer.
    pub(crate) fn deliver(&mut self) -> Option<DeliveredNotice> {
        let (tag, _) = self.first?;
        if self.arrived.is_empty() {
            return None;
        }
        let mut user_buffer = self.user_buffer.take()?;
        let (from, buffer, n_bytes) = self.arrived.pop_front()?;
        // A shorter buffer than the first is the user's choice to see less.
        let n_bytes = n_bytes.min(user_buffer.as_ref().len());
        user_buffer.as_mut()[..n_bytes].copy_from_slice(&buffer.as_ref()[..n_bytes]);
        self.unposted.push_back((from, Some(buffer)));
        Some((from, tag, user_buffer, n_bytes))
    }

    /// Ends it; the user's buffer, if a notice was asked for.
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

    /// A rdm that knows no peers; `None` without the provider.
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
        // A buffer of another rdm is refused each time.
        notices.unposted[0].1 = Some(other.allocate(64).unwrap());
        for _ in 0..3 {
            assert_eq!(notices.post_missing(&mut rdm), Err((Rank(1), Errno::INVALID)));
        }
        notices.unposted[0].1 = None;
        assert_eq!(notices.post_missing(&mut rdm), Ok(()));
        assert!(notices.unposted.is_empty());
    }
}
