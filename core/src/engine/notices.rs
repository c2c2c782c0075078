//! Abort notices and call headers received from other ranks.
//!
//! *Notices.* A rank that fails tells *every* other rank why, so no rank depends on a third one to
//! forward the news. A waiting rank polls the ranks that it waits for in every pass, and
//! [`N_OTHERS`] more in rotation. The rotation is needed because the awaited rank may just be late
//! and know nothing, while another rank has failed. A call also polls once before it begins, since
//! a call that only sends never waits.
//!
//! A notice ends the running call, unless its sender aborted a *later* call: then the sender has
//! sent everything that this call needs. Such a notice is stored, and ends the later call when this
//! rank begins it. Each rank sends its notice once, so the notice of the earliest call counts.
//!
//! A stored notice ends the running call in one case: a lane still waits for a message of the
//! notice's sender, although it has polled for it *after* the notice arrived. Then the two ranks
//! count calls differently. The same rule applies to a rank that has gone on to form another group:
//! it sends no more messages for this call. The call ends if a lane still waits for one.
//!
//! *Questions.* Ranks that make different calls may wait for each other's messages in a cycle, so
//! that no message shows the difference. So a rank that has waited for a moment sends its call
//! header to the ranks that it waits for. The receiver compares it with its own call of the same
//! number. It answers with its own header, either now or when it begins that call.
//!
//! This detects every cycle of waiting ranks. All ranks of the cycle are in a call of the same
//! number, and each has compared its header with that of the rank that it waits for. The calls
//! cannot all be equal, because the steps of one schedule never wait in a cycle. A rank may also
//! wait because a link is full of messages of an earlier call. If the receiver made that call
//! differently, it never receives them. So a question also contains its sender's earlier calls.
//!
//! A rank asks another rank at most once per call, and again in a later call only after an answer.
//! So a link holds at most one question and one answer, and has space left for a notice.
//!
//! Cost: a few polls of empty queues in each pass that finds nothing to do. If the wait exceeds
//! [`ASK_AFTER`], also one message to each awaited rank.

mod calls;
mod message;

pub(crate) use message::{NoticeBody, NoticeMessage};
#[cfg(test)]
pub(crate) use tests::MemoryTransport;

use crate::error::{AbortReason, Error};
use crate::frame::CallHeader;
use crate::group::RankSet;
use crate::transport::{FRAMES_PER_LANE, MAX_LANES, Rank, Tag, Transport};
use calls::CallHistory;
use core::task::Poll;
use core::time::Duration;
use heapless::Vec;
use message::{ReceivedNotice, empty_frame, hear, listen};

/// Number of ranks polled in a pass besides the awaited ones.
const N_OTHERS: usize = 4;
/// Time after which a waiting rank asks the ranks that it waits for which call they make.
pub(crate) const ASK_AFTER: Duration = Duration::from_millis(1);

/// A communicator's knowledge of other ranks' calls.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Notices {
    /// Rank to poll next in the rotation.
    next: usize,
    /// This rank, once a call has begun.
    own: Option<Rank>,
    /// Notice of the earliest aborted call that this rank has not begun, and the sender.
    earliest: Option<(Rank, NoticeMessage)>,
    /// Ranks that aborted such a call. Ranks beyond [`MAX_RANKS`](crate::group::MAX_RANKS) are not
    /// stored.
    gave_up: RankSet,
    /// Ranks that have gone on to form another group. They have sent everything that their finished
    /// calls need.
    left: RankSet,
    /// Calls that this rank has made.
    calls: CallHistory,
    /// Call of this rank that another rank was found to make differently.
    disputed: Option<CallHeader>,
    /// Ranks that were asked and have not answered.
    asked: RankSet,
    /// Ranks that have answered in this call, and are not asked again.
    answered: Option<RankSet>,
    /// Rank that last asked about a call that this rank has not begun. It waits for this rank in
    /// that call.
    waiting_ahead: Option<Rank>,
    /// Ranks to answer, once this rank has begun the call of this number.
    owed: Option<(RankSet, u32)>,
}

impl Notices {
    /// Returns the notices and questions about calls that this rank has not begun, with ranks
    /// renumbered by `number`. Ranks without a new number are dropped.
    pub(crate) fn among(self, number: impl Fn(Rank) -> Option<Rank>) -> Self {
        let renumbered = |set: &RankSet| {
            let mut numbered = RankSet::EMPTY;
            set.iter().filter_map(&number).for_each(|rank| numbered.insert(rank));
            numbered
        };
        let earliest = self.earliest.and_then(|(rank, notice)| Some((number(rank)?, notice)));
        Self {
            earliest,
            gave_up: renumbered(&self.gave_up),
            owed: self.owed.map(|(ranks, until)| (renumbered(&ranks), until)),
            ..Self::default()
        }
    }

    /// Stores a message about a call that this rank has not begun.
    pub(crate) fn keep(&mut self, rank: Rank, message: NoticeMessage) {
        let sequence = message.call.sequence;
        match message.content {
            NoticeBody::GaveUp { .. } => {
                self.gave_up.insert(rank);
                let is_earliest =
                    |known: &(Rank, NoticeMessage)| is_later(known.1.call.sequence, sequence);
                if self.earliest.as_ref().is_none_or(is_earliest) {
                    self.earliest = Some((rank, message));
                }
            }
            NoticeBody::Query(_) => {
                let (ranks, until) = self.owed.get_or_insert((RankSet::EMPTY, sequence));
                if is_later(sequence, *until) {
                    *until = sequence;
                }
                ranks.insert(rank);
            }
            NoticeBody::Reply => {}
        }
    }

    /// Begins a call. Fails if a rank is known to have aborted it or an earlier one. With
    /// `listens`, also polls the next few ranks in the rotation. Returns whether a notice was
    /// received: messages that its sender sent before may have arrived just now. A call that will
    /// wait for a peer need not listen here.
    pub(crate) fn begin<X: Transport>(
        &mut self,
        transport: &mut X,
        ours: &CallHeader,
        checksum: bool,
        listens: bool,
    ) -> Result<bool, Error> {
        self.own = Some(transport.rank());
        self.calls.insert(*ours);
        (self.answered, self.waiting_ahead) = (None, None);
        if let Some((rank, notice)) = self.earliest {
            self.apply(rank, &ReceivedNotice::Message(notice), ours)?;
        }
        let heard = listens && self.listen_in_turn(transport, ours)?;
        self.answer(transport, ours, checksum);
        Ok(heard)
    }

    /// Polls the ranks `awaited` while a call waits. Fails if one of them has aborted the call.
    /// Returns whether lanes should poll again before they wait: a control message was received,
    /// and what its sender sent before may have arrived just now.
    pub(crate) fn listen<X: Transport>(
        &mut self,
        transport: &mut X,
        ours: &CallHeader,
        awaited: &[Rank],
    ) -> Result<bool, Error> {
        // Check all ranks before receiving anything. A notice that is received below must not count
        // against its sender yet, because no lane has polled since. And a rank may be listed twice,
        // if several lanes wait for it.
        if let Some(error) = awaited.iter().find_map(|&rank| self.departure_error(rank)) {
            return Err(error);
        }
        let mut look_again = false;
        for &rank in awaited {
            if let Some(heard) = hear(transport, rank, ours)? {
                self.apply(rank, &heard, ours)?;
                look_again = true;
            }
        }
        Ok(look_again)
    }

    /// Polls the next few ranks in the rotation while a call waits. Fails if one has aborted this
    /// call or an earlier one, or makes another. Returns whether a notice was received.
    pub(crate) fn listen_in_turn<X: Transport>(
        &mut self,
        transport: &mut X,
        ours: &CallHeader,
    ) -> Result<bool, Error> {
        let mut any = false;
        for _ in 0..N_OTHERS.min(transport.size() - 1) {
            let rank = self.next_in_rotation(transport);
            if let Some(heard) = hear(transport, rank, ours)? {
                self.apply(rank, &heard, ours)?;
                any = true;
            }
        }
        Ok(any)
    }

    /// Receives the last notices of a lost rank. Returns an error that says more than that the rank
    /// is gone, if there is one. `Pending` while more may arrive.
    pub(crate) fn last_words<X: Transport>(
        &mut self,
        transport: &mut X,
        ours: &CallHeader,
        lost: Rank,
    ) -> Poll<Option<Error>> {
        while let Poll::Ready(heard) = listen(transport, lost, ours) {
            let notice_error = match heard {
                Ok(Some(heard)) => self.apply(lost, &heard, ours).err(),
                Ok(None) => return Poll::Ready(self.departure_error(lost)),
                Err(error) => Some(error),
            };
            if notice_error.is_some() {
                return Poll::Ready(notice_error);
            }
        }
        Poll::Pending
    }

    /// Asks each awaited rank once which call it makes. Skips ranks while credit or frames are
    /// missing. Leaves `n_needed` free frames to the lanes.
    pub(crate) fn query<X: Transport>(
        &mut self,
        transport: &mut X,
        ours: &CallHeader,
        awaited: &[Rank],
        n_needed: usize,
        checksum: bool,
    ) {
        let own = transport.rank();
        for &to in awaited.iter().filter(|&&rank| rank != own) {
            // Skip ranks that a set cannot hold, because it could not record that they were asked.
            let is_answered = self.answered.is_some_and(|answered| answered.contains(to));
            let may_ask = RankSet::can_hold(to) && !self.asked.contains(to) && !is_answered;
            if !may_ask || !is_ready(transport, to) {
                continue;
            }
            let Some(frame) = surplus_frame(transport, n_needed) else { return };
            let question = NoticeMessage { call: *ours, content: NoticeBody::Query(self.calls) };
            question.send(transport, to, frame, checksum);
            self.asked.insert(to);
        }
    }

    /// Returns a rank that is known to wait for this rank, in a collective call that this rank has
    /// not begun.
    pub(crate) const fn queried_by(&self) -> Option<Rank> {
        self.waiting_ahead
    }

    /// Answers questions about this call or an earlier one. Ranks without credit, or for which
    /// there is no frame, are answered later.
    pub(crate) fn answer<X: Transport>(
        &mut self,
        transport: &mut X,
        ours: &CallHeader,
        checksum: bool,
    ) {
        let Some((mut ranks, until)) = self.owed else { return };
        if is_later(until, ours.sequence) {
            return;
        }
        for to in ranks.iter() {
            if !is_ready(transport, to) {
                continue;
            }
            let Some(frame) = empty_frame(transport) else { break };
            let answer = NoticeMessage { call: *ours, content: NoticeBody::Reply };
            answer.send(transport, to, frame, checksum);
            ranks.remove(to);
        }
        self.owed = (ranks != RankSet::EMPTY).then_some((ranks, until));
    }

    /// Applies a received message to this call.
    fn apply(
        &mut self,
        rank: Rank,
        heard: &ReceivedNotice,
        ours: &CallHeader,
    ) -> Result<(), Error> {
        let message = match heard {
            // This call can finish if all of the sender's messages for it have arrived.
            ReceivedNotice::Left if RankSet::can_hold(rank) => {
                self.left.insert(rank);
                return Ok(());
            }
            ReceivedNotice::Left => return Err(left_error(rank)),
            ReceivedNotice::Message(message) => message,
        };
        let is_ahead = is_later(message.call.sequence, ours.sequence);
        match message.content {
            // An aborted call ends itself and all later calls. Earlier ones can finish.
            NoticeBody::GaveUp { .. } if is_ahead => self.keep(rank, *message),
            NoticeBody::GaveUp { .. } => return Err(self.notice_error(rank, message)),
            NoticeBody::Query(_) | NoticeBody::Reply => {
                if let NoticeBody::Query(past) = message.content {
                    let sequence = message.call.sequence;
                    if !is_later(ours.sequence, sequence) && self.calls.of(sequence).is_none() {
                        self.waiting_ahead = Some(rank);
                    }
                    for theirs in past.before(message.call.sequence) {
                        if let Some(call) = self.calls.of(theirs.sequence) {
                            self.compare(rank, &call, &theirs)?;
                        }
                    }
                }
                if let Some(call) = self.calls.of(message.call.sequence) {
                    self.compare(rank, &call, &message.call)?;
                }
                if message.content == NoticeBody::Reply {
                    self.asked.remove(rank);
                    self.answered.get_or_insert(RankSet::EMPTY).insert(rank);
                }
                self.keep(rank, *message);
            }
        }
        Ok(())
    }

    /// Fails if `rank` sends messages of another call. If this rank has already made the call of
    /// that number, the error names their difference.
    pub(super) fn check(
        &mut self,
        rank: Rank,
        ours: &CallHeader,
        theirs: &CallHeader,
    ) -> Result<(), Error> {
        if let Some(call) = self.calls.of(theirs.sequence).filter(|call| call.epoch == theirs.epoch)
        {
            self.compare(rank, &call, theirs)?;
        }
        self.compare(rank, ours, theirs)
    }

    fn compare(&mut self, rank: Rank, ours: &CallHeader, theirs: &CallHeader) -> Result<(), Error> {
        let mismatch = ours.mismatch(rank, theirs);
        if mismatch.is_some() {
            self.disputed = Some(*ours);
        }
        mismatch.map_or(Ok(()), Err)
    }

    /// Returns the notice to send when this rank aborts `ours` with this error. If ranks disagreed
    /// on a call, the notice names that call.
    pub(super) fn notice(
        &self,
        ours: CallHeader,
        error: Option<&Error>,
        own: Rank,
    ) -> NoticeMessage {
        let is_mismatch = matches!(error, Some(Error::Mismatch { .. }));
        let call = self.disputed.filter(|_| is_mismatch).unwrap_or(ours);
        NoticeMessage::gives_up(call, error, own)
    }

    /// Returns why nothing more comes from an awaited rank, if its notice was received before lanes
    /// last polled for its messages.
    fn departure_error(&mut self, rank: Rank) -> Option<Error> {
        if self.gave_up.contains(rank) {
            Some(self.miscount_error(rank))
        } else {
            self.left.contains(rank).then(|| left_error(rank))
        }
    }

    /// Returns the error of a call that waits for `rank`, which has aborted a later call. Only the
    /// notice of the earliest aborted call is stored. If ranks disagreed in that call, it is the
    /// reason for the later aborts too.
    fn miscount_error(&mut self, rank: Rank) -> Error {
        match self.earliest {
            Some((first, notice)) if first == rank || notice.is_disagreement() => {
                self.notice_error(first, &notice)
            }
            _ => Error::Aborted { rank, culprit: rank, reason: AbortReason::Dropped },
        }
    }

    /// Returns the error that a notice of `rank` causes. If ranks disagree, it names the rank with
    /// which this one disagrees.
    fn notice_error(&mut self, rank: Rank, notice: &NoticeMessage) -> Error {
        let NoticeBody::GaveUp { reason, culprit, culprit_value } = notice.content else {
            return Error::Aborted { rank, culprit: rank, reason: AbortReason::Dropped };
        };
        if let AbortReason::Mismatch(field) = reason
            && let Some(call) = self.calls.of(notice.call.sequence)
        {
            // Look for a disagreement with the sender, then with the culprit, unless the culprit is
            // this rank itself.
            let with_sender = call.mismatch(rank, &notice.call);
            let culprit_differs = self.own != Some(culprit)
                && call.number(field).is_some_and(|ours| ours != culprit_value);
            let with_culprit =
                || culprit_differs.then(|| call.mismatch_in(field, culprit, culprit_value));
            if let Some(error) = with_sender.or_else(with_culprit) {
                self.disputed = Some(call);
                return error;
            }
        }
        Error::Aborted { rank, culprit, reason }
    }

    /// Returns the next rank in the rotation, which is never this rank. There must be another rank.
    fn next_in_rotation<X: Transport>(&mut self, transport: &X) -> Rank {
        let (own, size) = (transport.rank().index(), transport.size());
        let after = |rank: usize| if rank + 1 < size { rank + 1 } else { 0 };
        let next = if self.next < size { self.next } else { 0 };
        let rank = if next == own { after(next) } else { next };
        self.next = after(rank);
        Rank::new(rank)
    }
}

/// Returns the error for a rank that has gone on to another group.
const fn left_error(rank: Rank) -> Error {
    Error::Aborted { rank, culprit: rank, reason: AbortReason::Left }
}

/// Returns whether call `a` comes after call `b`. Numbers wrap.
const fn is_later(a: u32, b: u32) -> bool {
    a.wrapping_sub(b).cast_signed() > 0
}

fn is_ready<X: Transport>(transport: &mut X, to: Rank) -> bool {
    matches!(transport.poll_ready(to, Tag::CONTROL), Poll::Ready(Ok(())))
}

/// Takes a frame if `n_needed` others stay in the pool.
fn surplus_frame<X: Transport>(transport: &mut X, n_needed: usize) -> Option<X::Frame> {
    let mut frames = Vec::<X::Frame, { MAX_LANES * FRAMES_PER_LANE }>::new();
    let mut surplus = None;
    while let Poll::Ready(Ok(frame)) = transport.poll_frame() {
        if frames.len() == n_needed {
            surplus = Some(frame);
            break;
        }
        if let Err(frame) = frames.push(frame) {
            transport.recycle(frame);
            break;
        }
    }
    frames.into_iter().for_each(|frame| transport.recycle(frame));
    surplus
}

/// Sends a notice to all other ranks from `next` on, because a rank that made a different call may
/// wait for any of them. Best effort: if credit or frames are missing, a rank gets no notice, and
/// its call ends by its time limit.
pub(crate) fn tell<X: Transport>(
    transport: &mut X,
    notice: &NoticeMessage,
    next: Rank,
    checksum: bool,
) {
    let mut next = next;
    while next.index() < transport.size() {
        next = Rank(tell_while_frames_last(transport, notice, next, checksum).0 + 1);
    }
}

/// Does the same, and stops where there is no frame. Returns the first rank that was not reached,
/// or the number of ranks.
pub(crate) fn tell_while_frames_last<X: Transport>(
    transport: &mut X,
    notice: &NoticeMessage,
    next: Rank,
    checksum: bool,
) -> Rank {
    let (own, end) = (transport.rank(), Rank::new(transport.size()));
    let mut peers = (next.index()..end.index()).map(Rank::new).filter(|&peer| peer != own);
    let untold = peers.find(|&peer| {
        if !is_ready(transport, peer) {
            return false;
        }
        let frame = empty_frame(transport);
        let is_untold = frame.is_none();
        frame.into_iter().for_each(|frame| notice.send(transport, peer, frame, checksum));
        is_untold
    });
    // Let the notices leave before the caller drops the transport.
    let _ = transport.progress();
    untold.unwrap_or(end)
}

#[cfg(test)]
mod tests;
