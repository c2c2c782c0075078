//! Description of a call before its arguments are checked.

use super::operands::Operands;
use crate::element::DType;
use crate::error::{Buffer, Error};
use crate::layout::{Shares, Window};
use crate::op::OpCode;
use crate::plan::Plan;
use crate::rounding;
use crate::schedule::{Collective, Portion, ProgramSpec};
use crate::transport::Rank;
use core::ops::Range;

/// Description of a call without its values.
#[derive(Clone, Copy, PartialEq)]
pub(crate) struct Request<'s> {
    pub(crate) collective: Collective,
    pub(crate) shares: Shares<'s>,
    pub(crate) dtype: DType,
    pub(crate) op: OpCode,
    pub(crate) root: Rank,
    pub(crate) window: Window,
    /// Lengths of the buffer to send and of the buffer for the result.
    pub(crate) lengths: [usize; 2],
    /// True if the result of a call in place moves to the front of its buffer.
    pub(crate) to_front: bool,
    /// True if this rank is the root, whatever `root` says.
    pub(crate) is_root_here: bool,
    /// Number of values in the error feedback, if there is any.
    pub(crate) n_residues: Option<usize>,
}

impl<'s> Request<'s> {
    /// Creates a description for buffers that are not known yet.
    pub(crate) const fn new(
        collective: Collective,
        shares: Shares<'s>,
        dtype: DType,
        window: Window,
    ) -> Self {
        Self {
            collective,
            shares,
            dtype,
            op: OpCode::None,
            root: Rank(0),
            window,
            lengths: [0; 2],
            to_front: false,
            is_root_here: false,
            n_residues: None,
        }
    }

    /// Returns the description as this rank runs it, with the root filled in.
    pub(crate) fn on(&self, rank: Rank) -> Self {
        Self { root: if self.is_root_here { rank } else { self.root }, ..*self }
    }

    /// Returns whether the call begins with a rounding pass over this rank's input, or an error if
    /// it needs one and cannot have it.
    pub(super) fn begins_with_pass(
        &self,
        plan: &Plan,
        size: usize,
        rank: Rank,
    ) -> Result<bool, Error> {
        if let Some(have) = self.n_residues {
            let need = self.own(size, rank).len();
            if need != have {
                return Err(Error::Length { buffer: Buffer::Feedback, need, have });
            }
        }
        rounding::begins_with_pass(plan, self.collective, self.window, self.n_residues.is_some())
    }

    pub(super) fn call(&self, size: usize) -> ProgramSpec {
        ProgramSpec::new(self.collective, size, self.root)
    }

    /// Returns the range of this rank's input among the values to send.
    pub(crate) fn own(&self, size: usize, rank: Rank) -> Range<usize> {
        let portion = self.call(size).input(rank);
        match self.window {
            Window::Whole => self.shares.within_whole(portion, size, rank),
            Window::Own | Window::Input => 0..self.shares.len(portion, size, rank),
        }
    }

    /// Size of the whole logical array in bytes.
    pub(super) fn n_bytes(&self) -> usize {
        self.shares.count().saturating_mul(self.dtype.n_bytes())
    }

    /// Moves the result of a finished call to the front of its buffer, if the request asks for it,
    /// and ends the use of the buffers.
    pub(super) fn end(
        &self,
        size: usize,
        rank: Rank,
        work: &mut dyn Operands,
    ) -> Result<(), Error> {
        if self.to_front {
            let result = self.call(size).output(rank);
            work.move_to_front(self.shares.within_whole(result, size, rank))?;
        }
        work.finish()
    }

    /// Returns whether the collective supports the request's shares. No request has arrays as
    /// shares: a group call adds them only to its specification.
    const fn allows_shares(&self) -> bool {
        use Collective::{AllGather, AllToAll, Gather, ReduceScatter, Scatter};
        match self.shares {
            Shares::Even(_) => true,
            Shares::Given(_) => {
                matches!(self.collective, ReduceScatter | AllGather | Gather | Scatter)
            }
            Shares::Exchanged { .. } => matches!(self.collective, AllToAll),
            Shares::Arrays(_) => false,
        }
    }

    /// Returns whether the collective supports the request's buffers on this rank.
    fn allows_buffers(&self, rank: Rank) -> bool {
        use Collective::{Broadcast, Gather, Scatter};
        match self.window {
            Window::Whole => match self.collective {
                Scatter => false,
                Gather => self.root == rank,
                _ => !self.shares.is_exchanged(),
            },
            Window::Own => self.collective != Broadcast,
            Window::Input => self.collective == Broadcast && self.root == rank,
        }
    }

    /// Checks the root, the counts and the lengths. Buffers that this rank does not use may have
    /// any length.
    pub(super) fn check(&self, size: usize, rank: Rank) -> Result<(), Error> {
        if self.root.index() >= size {
            return Err(Error::Root { root: self.root, size });
        }
        if !self.allows_shares() || !self.allows_buffers(rank) {
            return Err(Error::NoSuchCall { collective: self.collective });
        }
        let counts = match self.shares {
            Shares::Even(_) | Shares::Arrays(_) => [size; 2],
            Shares::Given(counts) => [counts.len(); 2],
            Shares::Exchanged { send, recv } => [send.len(), recv.len()],
        };
        if let Some(&have) = counts.iter().find(|&&have| have != size) {
            return Err(Error::Length { buffer: Buffer::Counts, need: size, have });
        }
        if let Shares::Exchanged { send, recv } = self.shares {
            let (sent, received) = (send[rank.index()], recv[rank.index()]);
            if sent != received {
                return Err(Error::OwnCount { sent, received });
            }
        }
        let call = self.call(size);
        let [n_sent, n_received] = self.lengths;
        let lengths = match self.window {
            Window::Whole => {
                // The result must fit where the input was.
                let portions = match call.output(rank) {
                    Portion::Column => [Portion::Row, Portion::Column],
                    _ => [Portion::Whole; 2],
                };
                portions.map(|portion| (Buffer::Recv, portion, n_received))
            }
            Window::Input => [(Buffer::Send, call.input(rank), n_sent); 2],
            Window::Own => [
                (Buffer::Send, call.input(rank), n_sent),
                (Buffer::Recv, call.output(rank), n_received),
            ],
        };
        for (buffer, portion, have) in lengths {
            let need = self.shares.len(portion, size, rank);
            if portion != Portion::Nothing && need != have {
                return Err(Error::Length { buffer, need, have });
            }
        }
        Ok(())
    }
}
