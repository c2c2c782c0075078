//! Fences: messages that members exchange when they have decided for a group, one with each tag.
//!
//! A fence is the last message on its link before messages of the group's communicator. A member
//! drops what arrives before another member's fence. Tags are fenced one after another, so that one
//! frame of credit per link is enough.

use super::MESSAGES_PER_POLL;
use super::agreement::Agreement;
use super::ballot::Ballot;
use crate::frame::{Header, MessageKind};
use crate::group::RankSet;
use crate::transport::{Rank, Tag, Transport};
use core::task::Poll;

/// Progress of the fences of a decided view.
#[derive(Clone, Copy)]
pub(super) struct Fences {
    /// The current tag.
    tag: u8,
    /// Members to which this rank has sent its fence with the current tag.
    sent: RankSet,
    /// Members whose fence has arrived with the current tag.
    received: RankSet,
}

/// A member that decided for another view, and the number of members in both views.
pub(super) struct SizeMismatch {
    /// The member, as a rank of the transport.
    pub(super) from: Rank,
    pub(super) ours: u64,
    pub(super) theirs: u64,
}

impl Fences {
    /// Creates the state before the first fence with this tag.
    pub(super) const fn with(tag: u8) -> Self {
        Self { tag, sent: RankSet::EMPTY, received: RankSet::EMPTY }
    }

    pub(super) const fn tag(&self) -> Tag {
        Tag(self.tag as u16)
    }

    pub(super) const fn received(&self) -> &RankSet {
        &self.received
    }

    /// Returns whether this rank should leave what arrives from `rank` to the communicator that is
    /// about to exist: nothing more about this view comes from there.
    ///
    /// If all fences have come, only this rank's own have not left. Then a member may have gone on
    /// to another epoch, and read fences of this one no longer. Only its views tell so.
    pub(super) fn has_all_of(&self, rank: Rank, agreement: &Agreement) -> bool {
        let is_last_tag = self.tag + 1 >= agreement.view().n_tags;
        let others = agreement.others().and(&agreement.view().members);
        let only_sends = self.received == others;
        agreement.is_decided() && is_last_tag && self.received.contains(rank) && !only_sends
    }

    /// Sends and receives fences of the decided view without waiting. Removes a lost member from
    /// the agreement. Returns whether all fences were sent, have left and have arrived, on all
    /// tags.
    pub(super) fn advance<X: Transport>(
        &mut self,
        transport: &mut X,
        agreement: &mut Agreement,
        checksum: bool,
        moved: &mut bool,
    ) -> Result<bool, SizeMismatch> {
        let fence = agreement.fence();
        let Ballot { context, epoch, view, .. } = fence;
        let others = agreement.others().and(&view.members);
        for to in others.minus(&self.sent).iter() {
            if fence.send(transport, to, self.tag(), MessageKind::Fence, checksum).is_ready() {
                self.sent.insert(to);
                *moved = true;
            }
        }
        for from in others.minus(&self.received).iter() {
            for _ in 0..MESSAGES_PER_POLL {
                match transport.poll_recv(from, self.tag()) {
                    Poll::Pending => break,
                    Poll::Ready(Ok((frame, n_bytes))) => {
                        let theirs = read(&frame, n_bytes, from, transport.size());
                        transport.recycle(frame);
                        *moved = true;
                        let Some(theirs) = theirs
                            .filter(|theirs| (theirs.context, theirs.epoch) == (context, epoch))
                        else {
                            continue;
                        };
                        if theirs.view != view {
                            let n_members = [view, theirs.view].map(|view| view.members.len());
                            let [ours, theirs] = n_members.map(|n| n as u64);
                            return Err(SizeMismatch { from, ours, theirs });
                        }
                        self.received.insert(from);
                        break;
                    }
                    Poll::Ready(Err(_)) => {
                        agreement.remove(from);
                        return Ok(false);
                    }
                }
            }
        }
        if self.sent != others || self.received != others {
            return Ok(false);
        }
        if self.tag + 1 < view.n_tags {
            *self = Self::with(self.tag + 1);
            *moved = true;
            return Ok(false);
        }
        for rank in agreement.others().minus(&view.members).iter() {
            transport.forget(rank);
        }
        // A receiver would wait forever for a fence that has not left.
        Ok(transport.undelivered().is_none())
    }
}

/// Returns the fence in a message; `None` if it is anything else.
fn read<F: AsRef<[u8]>>(frame: &F, n_bytes: usize, from: Rank, size: usize) -> Option<Ballot> {
    let message = frame.as_ref().get(..n_bytes)?;
    let header =
        Header::parse(message, false).ok().filter(|header| header.kind == MessageKind::Fence)?;
    Ballot::read(&header, message, from, size).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::MemoryTransport;
    use crate::shrink::ballot::View;
    use crate::transport::MIN_FRAME_BYTES;
    use std::vec;

    /// Returns the agreement of rank 0 of three, which has decided for all of them. The
    /// communicator is on channel 4 in epoch 6.
    fn decided() -> Agreement {
        let all = View { members: RankSet::first(3), n_tags: 1 };
        let mut agreement = Agreement::new(Rank(0), all.members, (4, 6), 1);
        for from in [Rank(1), Rank(2)] {
            agreement.hear(from, &Ballot { context: 4, epoch: 7, view: all, heard: true });
        }
        assert!(agreement.decide().is_some());
        agreement
    }

    /// Runs the fences with these ballots of ranks 1 and 2. A frame that is no ballot comes before
    /// each of them.
    fn advance(theirs: [&[Ballot]; 2]) -> (Result<bool, [u64; 3]>, RankSet) {
        let (mut transport, mut agreement) = (MemoryTransport::new(3, 9), decided());
        for (from, ballots) in theirs.into_iter().enumerate().map(|(at, it)| (at + 1, it)) {
            for ballot in ballots {
                let mut frame = vec![0; MIN_FRAME_BYTES];
                let n_bytes =
                    ballot.emit(MessageKind::Fence, Rank::new(from), 3, &mut frame, false);
                transport.puts(from, &[7; 80]);
                transport.puts(from, &frame[..n_bytes]);
            }
        }
        let mut fences = Fences::with(0);
        let done = fences.advance(&mut transport, &mut agreement, false, &mut false);
        let done =
            done.map_err(|SizeMismatch { from, ours, theirs }| [from.0.into(), ours, theirs]);
        (done, *fences.received())
    }

    #[test]
    fn fences_of_what_was_decided_end_it_and_others_before_them_are_dropped() {
        let ours = decided().fence();
        let others = [
            Ballot { epoch: 6, ..ours },
            Ballot { epoch: 8, ..ours },
            Ballot { context: 5, ..ours },
            Ballot { context: 5, view: View { n_tags: 2, ..ours.view }, ..ours },
            ours,
        ];
        assert_eq!(advance([&others, &[ours]]).0, Ok(true));
        let (done, received) = advance([&others[..4], &[ours]]);
        assert_eq!((done, received.contains(Rank(1)), received.len()), (Ok(false), false, 1));
    }

    #[test]
    fn nothing_more_comes_of_a_view_after_the_fence_of_its_last_tag() {
        for (tag, n_tags, is_last) in
            [(0, 0, true), (0, 1, true), (0, 2, false), (1, 2, true), (6, 8, false), (7, 8, true)]
        {
            let mut agreement = Agreement::new(Rank(0), RankSet::first(3), (4, 6), n_tags);
            let ballot = Ballot { heard: true, ..agreement.ballot(Rank(1)) };
            let mut fences = Fences::with(tag);
            fences.received.insert(Rank(1));
            agreement.hear(Rank(1), &ballot);
            assert!(!fences.has_all_of(Rank(1), &agreement), "nothing was decided");
            agreement.hear(Rank(2), &ballot);
            assert!(agreement.decide().is_some());
            assert_eq!(fences.has_all_of(Rank(1), &agreement), is_last, "{tag} of {n_tags}");
            assert!(!fences.has_all_of(Rank(2), &agreement), "its fence has not come");
        }
    }

    #[test]
    fn who_cannot_send_its_fences_still_hears_of_another_epoch() {
        let agreement = decided();
        let mut fences = Fences::with(0);
        fences.received.insert(Rank(1));
        assert!(fences.has_all_of(Rank(1), &agreement));
        fences.received.insert(Rank(2));
        assert!(!fences.has_all_of(Rank(1), &agreement) && !fences.has_all_of(Rank(2), &agreement));
    }

    /// Two members that decided for different groups in one epoch never both finish.
    #[test]
    fn a_fence_of_another_view_is_an_error_that_names_its_sender() {
        let ours = decided().fence();
        for (members, n_tags, n_members) in
            [(RankSet::first(3).without(Rank(1)), 1, 2), (ours.view.members, 2, 3)]
        {
            let differs = Ballot { view: View { members, n_tags }, ..ours };
            assert_eq!(advance([&[ours], &[differs]]).0, Err([2, 3, n_members]));
        }
    }
}
