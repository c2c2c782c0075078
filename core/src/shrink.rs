//! Shrink: forms a communicator of the survivors after a failure.
//!
//! [`Shrink`] has two phases, which are repeated as often as necessary.
//!
//! 1. *Agreement*: ranks exchange views on [`Tag::CONTROL`] until all members of one view have sent
//!    it (`agreement.rs`).
//! 2. *Fencing*: tag by tag, each member sends a fence to every other member, and drops what
//!    arrives from a member before its fence. Once all fences have arrived, all members have
//!    decided for the same group, and no frame of a failed call is left between them (`fences.rs`).
//!
//! Cost: n² or 2n² views of 64 + n/8 bytes, and n² fences of this size for each lane that was used.
//! This takes a few round trips if the transport reports lost ranks. If ranks are lost silently, it
//! takes one `patience` more.
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

/// Most messages taken from one link in one poll, so that a poll stays bounded.
const MESSAGES_PER_POLL: usize = 16;
/// Largest number of epochs from the group that failed to the group that is formed. Epochs in
/// messages have twice this range, and the other half of it counts as earlier.
const MAX_EPOCHS: u16 = u16::MAX / 2;
/// A shrink fails once this many waits for fences have exceeded `patience`.
const MAX_STALLS: u32 = 3;

/// A running shrink; see [`Communicator::shrink`]. Dropping it unfinished leaves the group: the
/// other ranks go on without this rank.
pub type Shrink<X> = Handle<RunningShrink<X>>;

/// State of a running shrink.
pub struct RunningShrink<X: Transport> {
    /// The communicator that failed, now of all ranks of the transport; `None` once the shrink has
    /// ended.
    comm: Option<Communicator<X>>,
    agreement: Agreement,
    /// Fences of the decided view.
    fences: Fences,
    patience: Duration,
    /// During agreement: time since this rank's view last changed, which all members must answer.
    /// During fencing: time since anything moved.
    silence: Wait,
    /// [`Agreement::n_changes`] when `silence` was last restarted.
    n_changes: u32,
    /// Number of times that fences did not arrive within `patience`.
    n_stalls: u32,
}

impl<X: Transport> Communicator<X> {
    /// Creates a communicator of the ranks that call this, after a failure or without one: the
    /// survivors.
    ///
    /// Ranks are numbered anew, `0..size`, in the old order.
    /// [`transport_rank`](Self::transport_rank) returns the rank in the transport. Ranks that have
    /// ended are left out, and so are ranks that do not answer for `patience`. A communicator that
    /// was shrunk can be shrunk again.
    ///
    /// `patience` should cover how much later the other ranks may call this. It should be the same
    /// everywhere, and well above the network's round trip. If all ranks answer, it costs no time.
    /// Its time starts with the first poll, and a gap between two polls counts as at most a quarter
    /// of it. So a rank that was busy first receives what arrived meanwhile, and only then leaves
    /// other ranks out.
    /// With [`Config::NEVER`](crate::Config::NEVER), only ranks that are known to be lost are left
    /// out.
    ///
    /// Guaranteed: two new communicators with a rank in common have either the same members or
    /// different [epochs](Self::epoch). A call between ranks of different epochs fails with
    /// [`Error::Mismatch`], [`Error::Aborted`] or [`Error::Stalled`], and never returns a wrong
    /// result.
    ///
    /// Not guaranteed: a network that splits in two may give two communicators, a whole one on each
    /// side. If only one may go on, check [`size`](Self::size): only one can have more than half of
    /// the ranks. More: docs/failures.md.
    ///
    /// # Errors
    /// Errors use the rank numbers of this communicator.
    ///
    /// - [`Error::Excluded`]: the other ranks go on without this rank.
    /// - [`Error::Stalled`]: ranks answer, but fences do not arrive; `step` is the tag of one. This
    ///   rank has then left the group.
    /// - [`Error::Transport`]: the transport failed. This rank has then left the group.
    /// - [`Error::Mismatch`] of [`Field::Members`]: a member has decided for another group, which
    ///   breaks the protocol.
    /// - [`Error::TooManyRanks`]: the transport has more than [`MAX_RANKS`] ranks.
    /// - [`Error::TooManyGroups`]: members gave up 2¹⁵ − 1 groups before one was formed, or a
    ///   member that breaks the protocol claims so.
    ///
    /// After any of these errors the communicator is gone, and its transport with it.
    ///
    /// # Examples
    /// ```
    /// use foldwire::{Communicator, Error, Op, Plan, Transport};
    /// use std::time::Duration;
    ///
    /// /// Returns the sum over the survivors. A lost rank does not contribute.
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

    /// Starts a [`shrink`](Self::shrink).
    ///
    /// # Errors
    /// [`Error::TooManyRanks`].
    pub fn start_shrink(mut self, patience: Duration) -> Result<Shrink<X>, Error> {
        let members = self.transport.members();
        self.transport.set_members(None);
        let size = self.transport.size();
        if size > MAX_RANKS {
            return Err(Error::TooManyRanks { size, max: MAX_RANKS });
        }
        let (rank, group) = (self.transport.rank(), (self.context, self.epoch));
        let agreement = Agreement::new(rank, members, group, self.n_tags);
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
            // No rank would accept this rank's views, so it would form a group of its own.
            return Err(Error::TooManyGroups { max: MAX_EPOCHS });
        }
        Ok(if moved { Progress::Moved } else { Progress::Waiting })
    }

    /// Receives views. Returns whether any message arrived.
    fn receive_views(&mut self) -> bool {
        let Some(comm) = &mut self.comm else { return false };
        let mut moved = false;
        for from in self.agreement.others().iter() {
            if self.fences.has_all_of(from, &self.agreement) {
                // Messages from now on may be for the communicator that is about to exist.
                continue;
            }
            for _ in 0..MESSAGES_PER_POLL {
                let transport = &mut comm.transport;
                match transport.poll_recv(from, Tag::CONTROL) {
                    Poll::Pending => break,
                    Poll::Ready(Ok((frame, n_bytes))) => {
                        let message = frame.as_ref().get(..n_bytes).unwrap_or_default();
                        // A damaged view counts as none: it is sent again, or its sender counts as
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
                                // The sender has already finished, and aborts its first call or
                                // asks about it.
                                comm.notices.keep(from, message);
                            }
                        }
                        transport.recycle(frame);
                        moved = true;
                    }
                    Poll::Ready(Err(_)) => {
                        // A rank that has finished may end while others wait for fences. The fences
                        // that it sent are already here.
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

    /// Sends this rank's view to the ranks that need it. If credit or a frame is missing for a
    /// rank, sends it the view in a later poll. Returns whether anything was sent.
    fn send_views(&mut self) -> bool {
        let Some(comm) = &mut self.comm else { return false };
        let checksum = comm.checksum();
        let mut moved = false;
        for to in self.agreement.owed().iter() {
            let ballot = self.agreement.ballot(to);
            let sent =
                ballot.send(&mut comm.transport, to, Tag::CONTROL, MessageKind::View, checksum);
            if sent.is_ready() {
                self.agreement.settle(to);
                moved = true;
            }
        }
        moved
    }

    /// Goes on to fencing if all members agree. Returns whether they do.
    fn decide(&mut self) -> Result<bool, Error> {
        match self.agreement.decide() {
            None => Ok(false),
            Some(Decision::Excluded(by)) => {
                Err(Error::Excluded { rank: self.agreement.former_rank(by) })
            }
            Some(Decision::Group) => {
                self.fences = Fences::with(0);
                if let Some(comm) = &mut self.comm {
                    // Forget notices of an earlier epoch's group.
                    comm.notices = Notices::default();
                }
                Ok(true)
            }
        }
    }

    /// Sends and receives fences. Returns whether all were sent and have arrived, on all tags.
    fn fence(&mut self, moved: &mut bool) -> Result<bool, Error> {
        let Some(comm) = &mut self.comm else { return Ok(false) };
        let checksum = comm.checksum();
        let transport = &mut comm.transport;
        let fenced = self.fences.advance(transport, &mut self.agreement, checksum, moved);
        fenced.map_err(|SizeMismatch { from, ours, theirs }| {
            let rank = self.agreement.former_rank(from);
            let [ours, theirs] = [ours, theirs].map(Value::number);
            Error::Mismatch { rank, field: Field::Members, ours, theirs }
        })
    }

    /// Leaves out ranks that have not answered within `patience`. If fences do not arrive in that
    /// time, starts a new epoch; fails if that has not helped.
    fn check_time(&mut self, moved: bool) -> Result<(), Error> {
        let Some(comm) = &self.comm else { return Ok(()) };
        let now = comm.transport.now();
        // During agreement, other ranks' messages do not restart the clock, because the members
        // must answer this rank's view within `patience`.
        let restarts = if self.agreement.is_decided() {
            moved
        } else {
            self.agreement.n_changes() != self.n_changes
        };
        if restarts {
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

    /// Returns the error that names a member whose fence is missing.
    fn stalled(&self) -> Error {
        let members = self.agreement.others().and(&self.agreement.view().members);
        let missing = members.minus(self.fences.received()).iter().next();
        let rank =
            missing.or(members.nth(0)).map_or(Rank(0), |rank| self.agreement.former_rank(rank));
        Error::Stalled { rank, step: self.fences.tag().index() }
    }

    /// Tells the other ranks not to wait for this one, and drops the transport.
    fn leave(&mut self) {
        let Some(mut comm) = self.comm.take() else { return };
        let (checksum, farewell) = (comm.checksum(), self.agreement.farewell());
        let transport = &mut comm.transport;
        for to in self.agreement.others().iter() {
            // Best effort: a rank that does not receive it waits until its own patience ends.
            let _ = farewell.send(transport, to, Tag::CONTROL, MessageKind::View, checksum);
        }
        let _ = transport.progress();
    }
}

impl<X: Transport> Advance for RunningShrink<X> {
    type Output = Result<Communicator<X>, Error>;

    fn advance(&mut self) -> Result<Progress, Error> {
        let result = self.try_advance();
        if !matches!(result, Ok(_) | Err(Error::Finished)) {
            self.leave();
        }
        result
    }

    /// Returns the communicator of the ranks that are left, once all fences have arrived.
    fn output(&mut self, ended: Result<(), Error>) -> Self::Output {
        ended?;
        let comm = self.comm.take().ok_or(Error::Finished)?;
        Ok(comm.of_survivors(self.agreement.view().members, self.agreement.epoch()))
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
