//! What a call hears of the other ranks' calls: who gave one up, and who makes another.
//!
//! *Notices.* Who fails tells *everybody* why, so nobody depends on a third rank to pass the news
//! on. Who waits listens to the ranks it waits for at every pass, and to [`N_OTHERS`] more in turn:
//! it may wait for a rank that is late and knows of nothing, while the one that failed is another.
//! A call also listens once before it begins, since one that only sends never waits.
//!
//! A notice ends the call under way unless the sender gave up in a *later* call: then it has sent
//! what this call needs of it. That notice is remembered, and ends that call when this rank comes
//! to it: a rank sends its notice once, and so of several the earliest counts. It ends this call
//! only if a lane that has looked for the sender's message *after* the notice still waits for it:
//! the two count calls differently. So it is with a rank that has gone on to form another group: it
//! has sent what this call needs of it, or else is waited for in vain.
//!
//! *Questions.* Ranks that make different calls may wait for each other's messages in a circle, so
//! that no message shows the difference. So who has waited for a moment tells those it waits for
//! what call it makes. A rank compares that with its own call of the same number, and answers with
//! it, now or when it comes to that call. In a circle of ranks that wait, all are in a call of the
//! same number, and neighbours have compared: if all make the same call, its schedule has no
//! circle. A link may be full of messages of an earlier call that nobody wanted, so a question says
//! what its sender made before, too.
//!
//! A rank asks another once in a call, and in a later call only if it has been answered. So a link
//! holds at most one question and one answer, and leaves room for a notice.
//!
//! Cost: a few looks at empty queues for each pass that finds nothing to do; one message to each
//! rank waited for, if it takes longer than [`ASK_AFTER`].

mod calls;
mod message;

pub(crate) use message::{NoticeBody, NoticeMessage};
#[cfg(test)]
pub(crate) use tests::Memory;

use crate::error::{AbortReason, Error};
use crate::frame::CallHeader;
use crate::group::RankSet;
use crate::transport::{FRAMES_PER_LANE, MAX_LANES, Rank, Tag, Transport};
use calls::CallHistory;
use core::task::Poll;
use core::time::Duration;
use heapless::Vec;
use message::{ReceivedNotice, empty_frame, hear, listen};

/// Ranks listened to in a pass beside those waited for.
const N_OTHERS: usize = 4;
/// After waiting this long a rank asks those it waits for what call they make.
pub(crate) const ASK_AFTER: Duration = Duration::from_millis(1);

/// What a communicator knows of other ranks' calls.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Notices {
    /// Whom to listen to next, out of turn.
    next: usize,
    /// This rank, once a call has begun.
    own: Option<Rank>,
    /// Of calls given up that this rank had not come to: the earliest one's notice, and whose.
    earliest: Option<(Rank, NoticeMessage)>,
    /// All that gave up such a call. Of ranks beyond [`MAX_RANKS`](crate::group::MAX_RANKS) it is
    /// not remembered.
    gave_up: RankSet,
    /// All that have gone on to form another group. They have sent what calls need of them that
    /// they have finished.
    left: RankSet,
    /// Own calls.
    calls: CallHistory,
    /// The own call that another rank was found to make differently.
    disputed: Option<CallHeader>,
    /// Who was asked, and has not answered.
    asked: RankSet,
    /// Who has answered in this call, and is not asked again.
    answered: RankSet,
    /// Who asked last about a call that this rank had not begun, and so waits for it there.
    waiting_ahead: Option<Rank>,
    /// Who has asked, and is to be answered when this rank has come to the call of this number.
    owed: Option<(RankSet, u32)>,
}

impl Notices {
    /// What is known, for another numbering of ranks.
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

    /// Keeps a message about a call that this rank has not come to.
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
            NoticeBody::Asks(_) => {
                let (ranks, until) = self.owed.get_or_insert((RankSet::EMPTY, sequence));
                if is_later(sequence, *until) {
                    *until = sequence;
                }
                ranks.insert(rank);
            }
            NoticeBody::Answers => {}
        }
    }

    /// When a call begins: fails if a rank is known to have given it up, or one before it. Whether
    /// something was heard: what its sender sent before may have come just now. A call that waits
    /// for somebody need not listen before it does.
    pub(crate) fn begin<X: Transport>(
        &mut self,
        transport: &mut X,
        ours: &CallHeader,
        checksum: bool,
        listens: bool,
    ) -> Result<bool, Error> {
        self.own = Some(transport.rank());
        self.calls.insert(*ours);
        (self.answered, self.waiting_ahead) = (RankSet::EMPTY, None);
        if let Some((rank, notice)) = self.earliest {
            self.apply(rank, &ReceivedNotice::Message(notice), ours)?;
        }
        let heard = listens && self.listen_in_turn(transport, ours)?;
        self.answer(transport, ours, checksum);
        Ok(heard)
    }

    /// While a call waits for the ranks `awaited`: fails if one of them has given up. Whether lanes
    /// should look again before they wait, since one gave up in a later call, and what it sent
    /// before may have come just now.
    pub(crate) fn listen<X: Transport>(
        &mut self,
        transport: &mut X,
        ours: &CallHeader,
        awaited: &[Rank],
    ) -> Result<bool, Error> {
        // All before any is heard: of ranks heard of in this very pass no lane has looked since,
        // and several lanes may wait for one rank.
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

    /// While a call waits: fails if one of the next few ranks in turn has given up this call or one
    /// before it, or makes another. Whether something was heard.
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

    /// What a rank that is lost has told before: an error that says more than that it is gone.
    /// `Pending` while something may still be on its way.
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

    /// Asks the ranks that this one waits for, each once, what call they make: as far as there is
    /// credit, and frames beyond the `n_needed` that lanes may still want.
    pub(crate) fn ask<X: Transport>(
        &mut self,
        transport: &mut X,
        ours: &CallHeader,
        awaited: &[Rank],
        n_needed: usize,
        checksum: bool,
    ) {
        let own = transport.rank();
        for &to in awaited.iter().filter(|&&rank| rank != own) {
            // Nothing is asked of ranks of which no set can say that they were asked.
            let may_ask =
                RankSet::can_hold(to) && !self.asked.contains(to) && !self.answered.contains(to);
            if !may_ask || !is_ready(transport, to) {
                continue;
            }
            let Some(frame) = surplus_frame(transport, n_needed) else { return };
            let question = NoticeMessage { call: *ours, content: NoticeBody::Asks(self.calls) };
            question.send(transport, to, frame, checksum);
            self.asked.insert(to);
        }
    }

    /// A rank that is known to wait for this one in a collective call that it has not begun.
    pub(crate) const fn asked_by(&self) -> Option<Rank> {
        self.waiting_ahead
    }

    /// Answers those that asked about this call or one before it, as far as there is room.
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
            let answer = NoticeMessage { call: *ours, content: NoticeBody::Answers };
            answer.send(transport, to, frame, checksum);
            ranks.remove(to);
        }
        self.owed = (ranks != RankSet::EMPTY).then_some((ranks, until));
    }

    /// What a message means for this call.
    fn apply(
        &mut self,
        rank: Rank,
        heard: &ReceivedNotice,
        ours: &CallHeader,
    ) -> Result<(), Error> {
        let message = match heard {
            // This call can be finished, if what it sent is here.
            ReceivedNotice::Left if RankSet::can_hold(rank) => {
                self.left.insert(rank);
                return Ok(());
            }
            ReceivedNotice::Left => return Err(left_error(rank)),
            ReceivedNotice::Message(message) => message,
        };
        let is_ahead = is_later(message.call.sequence, ours.sequence);
        match message.content {
            // A call that was given up ends those from it on; those before it can be finished.
            NoticeBody::GaveUp { .. } if is_ahead => self.keep(rank, *message),
            NoticeBody::GaveUp { .. } => return Err(self.notice_error(rank, message)),
            NoticeBody::Asks(_) | NoticeBody::Answers => {
                if let NoticeBody::Asks(past) = message.content {
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
                if message.content == NoticeBody::Answers {
                    self.asked.remove(rank);
                    self.answered.insert(rank);
                }
                self.keep(rank, *message);
            }
        }
        Ok(())
    }

    /// Fails if `rank` sends messages of another call. If this one has made the call of that number
    /// before, they differ in that.
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

    /// What the others are told of this rank, which gives `ours` up for this error. A call that was
    /// made differently is given up from there on.
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

    /// Why nothing more comes from a rank that is waited for, if it has said so before the last
    /// look for its messages.
    fn departure_error(&mut self, rank: Rank) -> Option<Error> {
        if self.gave_up.contains(rank) {
            Some(self.miscount_error(rank))
        } else {
            self.left.contains(rank).then(|| left_error(rank))
        }
    }

    /// The error of a call that waits for `rank`, which has given up a later one. Of several
    /// notices only the earliest call's is kept. If ranks disagreed there, that is why the others
    /// gave up.
    fn miscount_error(&mut self, rank: Rank) -> Error {
        match self.earliest {
            Some((first, notice)) if first == rank || notice.is_disagreement() => {
                self.notice_error(first, &notice)
            }
            _ => Error::Aborted { rank, culprit: rank, reason: AbortReason::Dropped },
        }
    }

    /// What a notice of `rank` means here. If ranks disagree, with whom this one does.
    fn notice_error(&mut self, rank: Rank, notice: &NoticeMessage) -> Error {
        let NoticeBody::GaveUp { reason, culprit, said } = notice.content else {
            return Error::Aborted { rank, culprit: rank, reason: AbortReason::Dropped };
        };
        if let AbortReason::Mismatch(field) = reason
            && let Some(call) = self.calls.of(notice.call.sequence)
        {
            // With the teller itself, or else with whom it disagrees; never with this rank itself,
            // whatever has come to others in its name.
            let with_teller = call.mismatch(rank, &notice.call);
            let is_culprits =
                self.own != Some(culprit) && call.number(field).is_some_and(|ours| ours != said);
            let with_culprit = || is_culprits.then(|| call.mismatch_in(field, culprit, said));
            if let Some(error) = with_teller.or_else(with_culprit) {
                self.disputed = Some(call);
                return error;
            }
        }
        Error::Aborted { rank, culprit, reason }
    }

    /// Another rank; there is one.
    fn next_in_rotation<X: Transport>(&mut self, transport: &X) -> Rank {
        let (own, size) = (transport.rank().index(), transport.size());
        let after = |rank: usize| if rank + 1 < size { rank + 1 } else { 0 };
        let next = if self.next < size { self.next } else { 0 };
        let rank = if next == own { after(next) } else { next };
        self.next = after(rank);
        Rank::new(rank)
    }
}

/// The error that a rank belongs to another group.
const fn left_error(rank: Rank) -> Error {
    Error::Aborted { rank, culprit: rank, reason: AbortReason::Left }
}

/// Whether call `a` comes after call `b`; numbers wrap.
const fn is_later(a: u32, b: u32) -> bool {
    a.wrapping_sub(b).cast_signed() > 0
}

fn is_ready<X: Transport>(transport: &mut X, to: Rank) -> bool {
    matches!(transport.poll_ready(to, Tag::CONTROL), Poll::Ready(Ok(())))
}

/// A frame, if the pool has `n_needed` more.
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

/// Sends a notice to all other ranks: all, because a rank that made another call waits on other
/// links than ours. Best effort: a rank for whose notice there is no credit or no frame ends by its
/// time limit.
pub(crate) fn tell<X: Transport>(transport: &mut X, notice: &NoticeMessage, checksum: bool) {
    let own = transport.rank();
    for peer in (0..transport.size()).map(Rank::new).filter(|&peer| peer != own) {
        if !is_ready(transport, peer) {
            continue;
        }
        if let Some(frame) = empty_frame(transport) {
            notice.send(transport, peer, frame, checksum);
        }
    }
    // Let the notices leave before the caller drops the transport.
    let _ = transport.progress();
}

#[cfg(test)]
mod tests;
