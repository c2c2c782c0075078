//! Receives for messages of any rank, as one receive for each rank.
//!
//! A receive that ignores the sender's bits would do, if all providers could match it (see
//! `tags.rs`). Notices are rare and short, so their buffers are small: 1 KiB for each rank.

use std::collections::VecDeque;

use foldwire::transport::{Rank, Tag};

use crate::fabric::Request;
use crate::ffi::{Buffer, Port};
use crate::{Errno, tags};

/// A notice for the user: its sender, its tag, the buffer, and the bytes in it.
pub(crate) type Notice = (Rank, Tag, Buffer, usize);

/// Receives for notices, once the user has asked for one.
#[derive(Default)]
pub(crate) struct Notices {
    /// The stream, and the length of the buffer that the user first gave.
    asked: Option<(Tag, usize)>,
    /// The user's buffer, while a notice is asked for.
    wanted: Option<Buffer>,
    /// Notices that nobody has asked for yet.
    heard: VecDeque<(Rank, Buffer, usize)>,
    /// Ranks without a receive, and the buffers for them where there is one.
    unposted: VecDeque<(Rank, Option<Buffer>)>,
}

impl Notices {
    /// Asks for a notice of any of `peers`, which are the same each time. Gives the buffer back if
    /// one is asked for already.
    pub(crate) fn ask(
        &mut self,
        tag: Tag,
        buffer: Buffer,
        peers: impl Iterator<Item = Rank>,
    ) -> Result<(), Buffer> {
        if self.wanted.is_some() || self.asked.is_some_and(|(asked, _)| asked != tag) {
            return Err(buffer);
        }
        if self.asked.is_none() {
            self.asked = Some((tag, buffer.as_ref().len()));
            self.unposted.extend(peers.map(|peer| (peer, None)));
        }
        self.wanted = Some(buffer);
        Ok(())
    }

    /// Posts what receives are missing, as far as the network has room. On failure the rank
    /// concerned, whose receive is tried again after those of all others.
    pub(crate) fn listen(&mut self, port: &mut Port<Request>) -> Result<(), (Rank, Errno)> {
        let Some((tag, n_bytes)) = self.asked else { return Ok(()) };
        while let Some((from, buffer)) = self.unposted.pop_front() {
            let request = Request::Notice { from };
            let posted = buffer
                .map_or_else(|| port.allocate(n_bytes), Ok)
                .map_err(|errno| (None, errno))
                .and_then(|buffer| {
                    let posted = port.recv(tags::message(from, tag), buffer, request);
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
    pub(crate) fn hear(&mut self, from: Rank, buffer: Buffer, n_bytes: usize) {
        self.heard.push_back((from, buffer, n_bytes));
    }

    /// A notice that the user has asked for and that is here, in the user's buffer.
    pub(crate) fn deliver(&mut self) -> Option<Notice> {
        let (tag, _) = self.asked?;
        if self.heard.is_empty() {
            return None;
        }
        let mut wanted = self.wanted.take()?;
        let (from, buffer, n_bytes) = self.heard.pop_front()?;
        // A shorter buffer than the first is the user's choice to see less.
        let n_bytes = n_bytes.min(wanted.as_ref().len());
        wanted.as_mut()[..n_bytes].copy_from_slice(&buffer.as_ref()[..n_bytes]);
        self.unposted.push_back((from, Some(buffer)));
        Some((from, tag, wanted, n_bytes))
    }

    /// Ends it; the user's buffer, if a notice was asked for.
    pub(crate) fn stop(&mut self) -> Option<Buffer> {
        self.asked = None;
        self.unposted.clear();
        self.wanted.take()
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;
    use crate::ffi::Domain;
    use crate::{Settings, check};

    /// A port that knows no peers; `None` without the provider.
    fn port() -> Option<Port<Request>> {
        let description = check::find("tcp", &Settings::default(), 2).ok()?;
        Some(Port::open(Domain::open(description).unwrap()).unwrap())
    }

    #[test]
    fn a_receive_that_cannot_be_posted_is_tried_again_and_holds_up_no_other() {
        let (Some(mut port), Some(mut other)) = (port(), port()) else {
            let _ = writeln!(std::io::stdout(), "skipped: no provider tcp");
            return;
        };
        let mut notices = Notices::default();
        let buffer = port.allocate(64).unwrap();
        notices.ask(Tag::CONTROL, buffer, [1, 2].map(Rank).into_iter()).unwrap();
        // A buffer of another port is refused each time.
        notices.unposted[0].1 = Some(other.allocate(64).unwrap());
        for _ in 0..3 {
            assert_eq!(notices.listen(&mut port), Err((Rank(1), Errno::INVALID)));
        }
        notices.unposted[0].1 = None;
        assert_eq!(notices.listen(&mut port), Ok(()));
        assert!(notices.unposted.is_empty());
    }
}
