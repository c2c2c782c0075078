//! Abort notices: telling all other ranks that this one has given up, and hearing of those that
//! have.
//!
//! Who fails tells *everybody*, so nobody depends on a third rank to pass the news on. Who waits
//! listens to the ranks it waits for at every pass, and to [`N_OTHERS`] more in turn: it may wait
//! for a rank that is late and knows of nothing, while the one that failed is another. A call also
//! listens once before it begins, since one that only sends never waits.
//!
//! A notice ends the call under way unless the sender gave up in a *later* call: then it has sent
//! what this call needs of it. That notice is remembered, and ends that call when this rank comes
//! to it: a rank sends its notice once, and so of several the earliest counts. It ends this call
//! only if a lane that has looked for the sender's message *after* the notice still waits for it:
//! the two count calls differently.
//!
//! Cost: a few looks at empty queues for each pass that finds nothing to do.

use crate::error::Error;
use crate::frame::{CallHeader, HEADER_BYTES, Header, Kind};
use crate::group::RankSet;
use crate::transport::{Rank, Tag, Transport, TransportError, TransportErrorKind};
use core::cmp::Ordering;
use core::task::Poll;

/// Ranks listened to in a pass beside those waited for.
const N_OTHERS: usize = 4;
/// Messages of no interest that are passed over in one look at a rank.
const MESSAGES_PER_LOOK: usize = 16;

/// What a communicator knows of ranks that gave up.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Notices {
    /// Whom to listen to next, out of turn.
    next: usize,
    /// Of calls given up that this rank had not come to: the earliest one's number, and who gave it
    /// up.
    earliest: Option<(Rank, u32)>,
    /// All that gave up such a call. Of ranks beyond [`MAX_RANKS`](crate::group::MAX_RANKS) it is
    /// not remembered.
    gave_up: RankSet,
}

impl Notices {
    /// What is known, for another numbering of ranks.
    pub(crate) fn among(self, number: impl Fn(Rank) -> Option<Rank>) -> Self {
        let earliest = self.earliest.and_then(|(rank, call)| Some((number(rank)?, call)));
        let mut gave_up = RankSet::EMPTY;
        self.gave_up.iter().filter_map(number).for_each(|rank| gave_up.insert(rank));
        Self { next: 0, earliest, gave_up }
    }

    /// Keeps a notice of a call that this rank has not come to.
    pub(crate) fn keep(&mut self, rank: Rank, sequence: u32) {
        self.gave_up.insert(rank);
        if self.earliest.is_none_or(|(_, known)| is_later(known, sequence)) {
            self.earliest = Some((rank, sequence));
        }
    }

    /// When a call begins: fails if a rank is known to have given it up, or one before it.
    pub(crate) fn listen_before<X: Transport>(
        &mut self,
        transport: &mut X,
        ours: &CallHeader,
    ) -> Result<(), Error> {
        if let Some((rank, sequence)) = self.earliest {
            self.weigh(rank, Heard::GaveUp(sequence), ours)?;
        }
        self.listen_in_turn(transport, ours)
    }

    /// While a call waits for the ranks `awaited`: fails if one of them has given up. Whether lanes
    /// should look again before they wait, since one gave up in a later call, and what it sent
    /// before may have come just now.
    pub(crate) fn listen<X: Transport>(
        &mut self,
        transport: &mut X,
        ours: &CallHeader,
        awaited: impl Iterator<Item = Rank> + Clone,
    ) -> Result<bool, Error> {
        // All before any is heard: of ranks heard of in this very pass no lane has looked since,
        // and several lanes may wait for one rank.
        if let Some(rank) = awaited.clone().find(|&rank| self.gave_up.contains(rank)) {
            return Err(Error::Aborted { rank });
        }
        let mut look_again = false;
        for rank in awaited {
            if let Some(heard) = hear(transport, rank, ours.epoch)? {
                self.weigh(rank, heard, ours)?;
                look_again = true;
            }
        }
        Ok(look_again)
    }

    /// While a call waits: fails if one of the next few ranks in turn has given up this call or one
    /// before it.
    pub(crate) fn listen_in_turn<X: Transport>(
        &mut self,
        transport: &mut X,
        ours: &CallHeader,
    ) -> Result<(), Error> {
        for _ in 0..N_OTHERS.min(transport.size()) {
            let rank = self.next_in_turn(transport);
            if let Some(heard) = hear(transport, rank, ours.epoch)? {
                self.weigh(rank, heard, ours)?;
            }
        }
        Ok(())
    }

    /// A call that was given up ends those from it on; those before it can be finished.
    fn weigh(&mut self, rank: Rank, heard: Heard, ours: &CallHeader) -> Result<(), Error> {
        match heard {
            Heard::GaveUp(sequence) if is_later(sequence, ours.sequence) => {
                self.keep(rank, sequence);
                Ok(())
            }
            Heard::GaveUp(_) | Heard::Left => Err(Error::Aborted { rank }),
        }
    }

    /// Another rank, or this one, of which nothing is ever heard.
    fn next_in_turn<X: Transport>(&mut self, transport: &X) -> Rank {
        let rank = Rank::new(self.next % transport.size());
        self.next = rank.index() + 1;
        rank
    }
}

/// Whether call `a` comes after call `b`; numbers wrap.
const fn is_later(a: u32, b: u32) -> bool {
    a.wrapping_sub(b).cast_signed() > 0
}

/// What a rank has told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Heard {
    /// It gave up the call of this number.
    GaveUp(u32),
    /// It is forming another group, or belongs to a later one. Calls are counted anew there.
    Left,
}

/// What a rank has told, if it has. Views and notices of groups before this one are of no interest
/// any more, nor is the view that led to it.
fn hear<X: Transport>(transport: &mut X, from: Rank, epoch: u16) -> Result<Option<Heard>, Error> {
    for _ in 0..MESSAGES_PER_LOOK {
        let (frame, n_bytes) = match transport.poll_recv(from, Tag::CONTROL) {
            Poll::Ready(Ok(received)) => received,
            Poll::Ready(Err(error)) if error.kind() == TransportErrorKind::Misuse => {
                return Err(super::transport_error(error));
            }
            // A rank that has ended is no failure until something is needed of it.
            Poll::Pending | Poll::Ready(Err(_)) => return Ok(None),
        };
        let message = frame.as_ref().get(..n_bytes);
        let notice = message.map(|message| Header::parse(message, false));
        transport.recycle(frame);
        match notice {
            Some(Ok(Header { kind, call, .. })) => match call.epoch.cmp(&epoch) {
                Ordering::Less => {}
                Ordering::Equal if kind == Kind::View => {}
                Ordering::Equal => return Ok(Some(Heard::GaveUp(call.sequence))),
                Ordering::Greater => return Ok(Some(Heard::Left)),
            },
            Some(Err(error)) => return Err(Error::Frame { rank: from, error }),
            None => return Err(super::lane::misuse()),
        }
    }
    Ok(None)
}

/// Sends `notice` to all other ranks: all, because a rank that made another call waits on other
/// links than ours. Best effort: a rank for whose notice there is no credit or no frame ends by its
/// time limit.
pub(crate) fn tell<X: Transport>(transport: &mut X, notice: &Header, checksum: bool) {
    let own = transport.rank();
    for peer in (0..transport.size()).map(Rank::new).filter(|&peer| peer != own) {
        let Poll::Ready(Ok(())) = transport.poll_ready(peer, Tag::CONTROL) else { continue };
        let Some(mut frame) = empty_frame(transport) else { continue };
        let Some(bytes) = frame.as_mut().get_mut(..HEADER_BYTES) else {
            transport.recycle(frame);
            continue;
        };
        notice.emit(bytes, checksum);
        // A peer that is gone needs no notice.
        let _ = transport.send(peer, Tag::CONTROL, frame, HEADER_BYTES);
    }
    // Let the notices leave before the caller drops the transport.
    let _ = transport.progress();
}

/// An empty frame, if need be one that a notice before has come back from.
fn empty_frame<X: Transport>(transport: &mut X) -> Option<X::Frame> {
    if let Poll::Ready(frame) = transport.poll_frame() {
        return frame.ok();
    }
    transport.progress().ok()?;
    match transport.poll_frame() {
        Poll::Ready(frame) => frame.ok(),
        Poll::Pending => None,
    }
}

#[cfg(test)]
mod tests;
