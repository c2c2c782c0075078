//! After a failure: a communicator of the survivors.
//!
//! [`Shrink`] does it in two phases, as often as it takes.
//!
//! 1. *Agreeing*: ranks exchange views on [`Tag::CONTROL`] until all members of one view have sent
//!    it (`agreement.rs`).
//! 2. *Fencing*: tag by tag, each sends a fence to each member and drops what comes before a
//!    member's. That the fences have come shows that all members decided the same; and after them
//!    no frame of a failed call is left between them (`fences.rs`).
//!
//! Cost: n² messages of 64 + n/8 bytes or twice that, and n² for each lane that was used; no more
//! time than a few round trips if the transport tells who is lost, and once `patience` if a lost
//! rank is silent.
//!
//! Source: `MPIX_Comm_shrink` of ULFM (Bland et al., 2013). The fences are a flush as in group
//! communication.

mod agreement;
mod ballot;
mod fences;

pub use crate::group::MAX_RANKS;

use crate::collective::Communicator;
use crate::engine::{NoticeMessage, Notices, transport_error};
use crate::error::{Error, Field, Value};
use crate::frame::{Header, MessageKind};
use crate::handle::{Advance, Handle, Progress};
use crate::transport::{Rank, Tag, Transport};
use crate::wait::{Wait, rest};
use agreement::{Agreement, Decision};
use ballot::Ballot;
use core::task::{Poll, Waker};
use core::time::Duration;
use fences::{Fences, SizeMismatch};

/// Messages taken from one link in one poll, so that it stays bounded.
const MESSAGES_PER_POLL: usize = 16;
/// Most epochs from the group that failed to the one that is formed: half of all that a message can
/// say, since the other half is earlier.
const MAX_EPOCHS: u16 = u16::MAX / 2;
/// How often fences may fail to come before it is an error.
const MAX_STALLS: u32 = 3;

/// A communicator of survivors being formed; see [`Communicator::shrink`]. Dropping it unfinished
/// leaves the group: the others go on without this rank.
pub type Shrink<X> = Handle<RunningShrink<X>>;

/// A communicator of survivors being formed.
pub struct RunningShrink<X: Transport> {
    /// The communicator that has failed; none once this has ended.
    comm: Option<Communicator<X>>,
    agreement: Agreement,
    /// Of the view decided.
    fences: Fences,
    patience: Duration,
    /// Since members were last given reason to answer, or a fence last moved.
    silence: Wait,
    /// Changes of the view when that was.
    n_changes: u32,
    /// How often fences did not come.
    n_stalls: u32,
}

impl<X: Transport> Communicator<X> {
    /// A communicator of the ranks that call this, after a failure or without one: the survivors.
    ///
    /// Ranks are numbered anew, `0..size`, in the old order;
    /// [`transport_rank`](Self::transport_rank) tells who is who. Ranks that have ended are left
    /// out, as are those that do not answer for `patience`. So `patience` should cover how much
    /// later the others may call this; it should be the same everywhere, and well above the
    /// network's round trip. If all answer it is never waited for. It begins with the first poll,
    /// and of the time between two polls a quarter of `patience` counts at most: who was busy
    /// otherwise hears what came meanwhile before it leaves anybody out. With
    /// [`Config::NEVER`](crate::Config::NEVER) only ranks that are known to be lost are left out.
    ///
    /// A communicator that was shrunk can be shrunk again.
    ///
    /// What holds: no two communicators that overlap have other members, or else they are told
    /// apart and a call between them is [`Error::Mismatch`], [`Error::Aborted`] or
    /// [`Error::Stalled`], never a wrong result. What does not: a network that falls in two may
    /// give two communicators, a whole one for each side. If only one may go on, look at
    /// [`size`](Self::size): only one can have more than half of the ranks. More: docs/failures.md.
    ///
    /// # Errors
    /// Ranks are numbered as in this communicator.
    ///
    /// - [`Error::Excluded`]: the others go on without this rank.
    /// - [`Error::Stalled`]: ranks answer, but fences do not come, `step` being the tag of one; or
    ///   [`Error::Transport`]. This rank has then left the others.
    /// - [`Error::Mismatch`] of [`Field::Members`]: a member has decided for another group, which
    ///   it does only if it breaks the protocol.
    /// - [`Error::TooManyRanks`] for transports of more than [`MAX_RANKS`] ranks.
    /// - [`Error::TooManyGroups`]: members gave up 2¹⁵ − 1 groups before one was formed, or a
    ///   member says so that breaks the protocol.
    ///
    /// The communicator is gone after any of them, and its transport with it.
    ///
    /// # Examples
    /// ```
    /// use foldwire::{Communicator, Error, Op, Plan, Transport};
    /// use std::time::Duration;
    ///
    /// /// The sum of those that are left. Each contribution counts once; lost ones do not.
    /// fn sum_of_survivors<X: Transport>(
    ///     mut comm: Communicator<X>,
    ///     own: &[f32],
    ///     sum: &mut [f32],
    ///     plan: &Plan,
    /// ) -> Result<Communicator<X>, Error> {
    ///     let half = comm.size() / 2;
    ///     loop {
    ///         match comm.all_reduce_into(own, sum, Op::Sum, plan) {
    ///             Ok(_) => return Ok(comm),
    ///             Err(error) if error.is_usage() => return Err(error),
    ///             Err(error) => {
    ///                 comm = comm.shrink(Duration::from_secs(5))?;
    ///                 if comm.size() <= half {
    ///                     return Err(error);
    ///                 }
    ///             }
    ///         }
    ///     }
    /// }
    /// ```
    pub fn shrink(self, patience: Duration) -> Result<Self, Error> {
        self.start_shrink(patience)?.wait()
    }

    /// Starts what [`shrink`](Self::shrink) does.
    ///
    /// # Errors
    /// [`Error::TooManyRanks`].
    pub fn start_shrink(mut self, patience: Duration) -> Result<Shrink<X>, Error> {
        let transport = self.transport.whole();
        let size = transport.size();
        if size > MAX_RANKS {
            return Err(Error::TooManyRanks { size, max: MAX_RANKS });
        }
        let members = self.transport.members();
        let agreement =
            Agreement::new(transport.rank(), members, (self.context, self.epoch), self.n_tags);
        self.notices = Notices::default();
        Ok(Handle(RunningShrink {
            comm: Some(self),
            agreement,
            fences: Fences::with(0),
            patience,
            silence: Wait::default(),
            n_changes: 0,
            n_stalls: 0,
        }))
    }
}

impl<X: Transport> RunningShrink<X> {
    fn try_advance(&mut self) -> Result<Progress, Error> {
        let comm = self.comm.as_mut().ok_or(Error::Finished)?;
        comm.transport.progress().map_err(transport_error)?;
        let n_changes = self.agreement.n_changes();
        let mut moved = self.receive_views() | self.send_views();
        if !self.agreement.is_decided() {
            moved |= self.decide()?;
        } else if self.fence(&mut moved)? {
            return Ok(Progress::Finished);
        }
        moved |= self.agreement.n_changes() != n_changes;
        self.check_time(moved)?;
        if self.agreement.is_too_late() {
            // Nobody would hear this rank: it would be a group of its own.
            return Err(Error::TooManyGroups { max: MAX_EPOCHS });
        }
        Ok(if moved { Progress::Moved } else { Progress::Waiting })
    }

    /// The communicator, once all fences are through.
    fn finish(&mut self) -> Result<Communicator<X>, Error> {
        let comm = self.comm.take().ok_or(Error::Finished)?;
        Ok(comm.of_survivors(self.agreement.view().members, self.agreement.epoch()))
    }

    /// Takes in views. Whether there was one.
    fn receive_views(&mut self) -> bool {
        let Some(comm) = &mut self.comm else { return false };
        let mut moved = false;
        for from in self.agreement.others().iter() {
            if self.fences.has_all_of(from, &self.agreement) {
                // What comes now may be for the communicator that is about to be.
                continue;
            }
            for _ in 0..MESSAGES_PER_POLL {
                let transport = comm.transport.whole_mut();
                match transport.poll_recv(from, Tag::CONTROL) {
                    Poll::Pending => break,
                    Poll::Ready(Ok((frame, n_bytes))) => {
                        let message = frame.as_ref().get(..n_bytes).unwrap_or_default();
                        // A damaged view is as good as none: it is sent again, or its sender is
                        // silent.
                        if let Ok(header) = Header::parse(message, false) {
                            if header.kind == MessageKind::View
                                && let Ok(ballot) =
                                    Ballot::read(&header, message, from, transport.size())
                            {
                                self.agreement.hear(from, &ballot);
                            } else if self.agreement.is_decided()
                                && header.call.context == comm.context
                                && header.call.epoch == self.agreement.epoch()
                                && let Some(message) = NoticeMessage::read(&header, message)
                            {
                                // It is done already, and has given up its first call, or asks
                                // about it.
                                comm.notices.keep(from, message);
                            }
                        }
                        transport.recycle(frame);
                        moved = true;
                    }
                    Poll::Ready(Err(_)) => {
                        // While fences are awaited, a rank that is done may end; those that it sent
                        // are here.
                        if !self.agreement.is_decided() {
                            self.agreement.remove(from);
                        }
                        break;
                    }
                }
            }
        }
        moved
    }

    /// Sends our view to whom it is owed, as far as there is room. Whether anything was sent.
    fn send_views(&mut self) -> bool {
        let Some(comm) = &mut self.comm else { return false };
        let checksum = comm.checksum();
        let mut moved = false;
        for to in self.agreement.owed().iter() {
            let ballot = self.agreement.ballot(to);
            let sent = ballot.send(
                comm.transport.whole_mut(),
                to,
                Tag::CONTROL,
                MessageKind::View,
                checksum,
            );
            if sent.is_ready() {
                self.agreement.settle(to);
                moved = true;
            }
        }
        moved
    }

    /// Goes on to fences if all members agree. Whether they do.
    fn decide(&mut self) -> Result<bool, Error> {
        match self.agreement.decide() {
            None => Ok(false),
            Some(Decision::Excluded(by)) => Err(Error::Excluded { rank: self.old_rank(by) }),
            Some(Decision::Group) => {
                self.fences = Fences::with(0);
                if let Some(comm) = &mut self.comm {
                    // What was heard of an earlier epoch's group.
                    comm.notices = Notices::default();
                }
                Ok(true)
            }
        }
    }

    /// Sends and takes fences. Whether all have been, on all tags.
    fn fence(&mut self, moved: &mut bool) -> Result<bool, Error> {
        let Some(comm) = &mut self.comm else { return Ok(false) };
        let checksum = comm.checksum();
        let transport = comm.transport.whole_mut();
        let fenced = self.fences.advance(transport, &mut self.agreement, checksum, moved);
        fenced.map_err(|SizeMismatch { from, ours, theirs }| {
            let rank = self.old_rank(from);
            let [ours, theirs] = [ours, theirs].map(Value::number);
            Error::Mismatch { rank, field: Field::Members, ours, theirs }
        })
    }

    /// Leaves out who is silent, begins anew where fences do not come, and ends it where that does
    /// not help.
    fn check_time(&mut self, moved: bool) -> Result<(), Error> {
        let Some(comm) = &self.comm else { return Ok(()) };
        let now = comm.transport.now();
        // Views of others may come and go; what counts is who has not answered ours.
        let answered = if self.agreement.is_decided() {
            moved
        } else {
            self.agreement.n_changes() != self.n_changes
        };
        if answered {
            self.silence.restart(now);
            self.n_changes = self.agreement.n_changes();
        } else if self.silence.look(now, self.patience) > self.patience {
            if self.agreement.is_decided() {
                self.n_stalls += 1;
                if self.n_stalls == MAX_STALLS {
                    return Err(self.stalled());
                }
                self.agreement.go_on();
            } else {
                self.agreement.remove_silent();
            }
        }
        Ok(())
    }

    /// The error that names a member whose fence is missing.
    fn stalled(&self) -> Error {
        let members = self.agreement.others().and(&self.agreement.view().members);
        let missing = members.minus(self.fences.received()).iter().next();
        let rank = missing.or(members.nth(0)).map_or(Rank(0), |rank| self.old_rank(rank));
        Error::Stalled { rank, step: self.fences.tag().index() }
    }

    /// A rank of the transport's as one of the communicator that failed.
    fn old_rank(&self, rank: Rank) -> Rank {
        self.comm.as_ref().and_then(|comm| comm.transport.member(rank)).unwrap_or(rank)
    }

    /// Tells the others not to wait for this rank; gives the transport up.
    fn leave(&mut self) {
        let Some(mut comm) = self.comm.take() else { return };
        let (checksum, farewell) = (comm.checksum(), self.agreement.farewell());
        let transport = comm.transport.whole_mut();
        for to in self.agreement.others().iter() {
            // Best effort: a rank that does not hear of it waits for its patience.
            let _ = farewell.send(transport, to, Tag::CONTROL, MessageKind::View, checksum);
        }
        let _ = transport.progress();
    }
}

impl<X: Transport> Advance for RunningShrink<X> {
    type Output = Communicator<X>;

    fn advance(&mut self) -> Result<Progress, Error> {
        let result = self.try_advance();
        if !matches!(result, Ok(_) | Err(Error::Finished)) {
            self.leave();
        }
        result
    }

    fn output(&mut self) -> Result<Communicator<X>, Error> {
        self.finish()
    }

    fn idle(&mut self) {
        if let Some(comm) = &mut self.comm {
            comm.transport.idle(rest(self.patience));
        }
    }

    fn register(&mut self, waker: &Waker) -> bool {
        self.comm.as_mut().is_some_and(|comm| comm.transport.register(waker))
    }
}

impl<X: Transport> Drop for RunningShrink<X> {
    fn drop(&mut self) {
        self.leave();
    }
}

impl<X: Transport> core::fmt::Debug for RunningShrink<X> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let phase = match (&self.comm, self.agreement.is_decided()) {
            (None, _) => "ended",
            (_, false) => "agreeing",
            (_, true) => "fencing",
        };
        let (epoch, n) = (self.agreement.epoch(), self.agreement.view().members.len());
        write!(f, "epoch {epoch}, {n} members, {phase}")
    }
}

#[cfg(test)]
mod tests;
