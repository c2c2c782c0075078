//! A call before its arguments are checked: what the caller gave.

use crate::element::Element;
use crate::engine::Buffers;
use crate::error::{Buffer, Error};
use crate::kernel::Level;
use crate::layout::{Shares, Window};
use crate::op::{Op, OpCode};
use crate::plan::Plan;
use crate::rounding::{self, Pass};
use crate::schedule::{Call, Collective, Portion};
use crate::transport::Rank;

/// A call before its arguments are checked.
pub(crate) struct Request<'b, 's, T: Element> {
    pub(super) collective: Collective,
    pub(super) shares: Shares<'s>,
    pub(super) op: Option<Op<'s, T>>,
    pub(super) root: Rank,
    pub(super) buffers: Buffers<'b, T>,
    /// The result of a call in place is moved to the front of its buffer.
    pub(super) to_front: bool,
    /// What earlier calls lost of each own value, for error feedback.
    pub(super) residues: Option<&'b mut [T::Residue]>,
}

impl<'b, 's, T: Element> Request<'b, 's, T> {
    pub(crate) fn new(collective: Collective, count: usize) -> Self {
        let (shares, buffers) = (Shares::Even(count), Buffers::InPlace(&mut []));
        let (op, root, to_front, residues) = (None, Rank(0), false, None);
        Self { collective, shares, op, root, buffers, to_front, residues }
    }

    pub(crate) fn shares(self, shares: Shares<'s>) -> Self {
        Self { shares, ..self }
    }

    pub(crate) fn op(self, op: Op<'s, T>) -> Self {
        Self { op: Some(op), ..self }
    }

    pub(crate) fn root(self, root: Rank) -> Self {
        Self { root, ..self }
    }

    pub(crate) fn in_place(self, data: &'b mut [T]) -> Self {
        Self { buffers: Buffers::InPlace(data), ..self }
    }

    pub(crate) fn split(self, send: &'b [T], recv: &'b mut [T]) -> Self {
        Self { buffers: Buffers::Split { send, recv }, ..self }
    }

    pub(crate) fn read_only(self, send: &'b [T]) -> Self {
        Self { buffers: Buffers::ReadOnly(send), ..self }
    }

    pub(crate) fn in_front(self) -> Self {
        Self { to_front: true, ..self }
    }

    pub(crate) fn with_feedback(self, residues: &'b mut [T::Residue]) -> Self {
        Self { residues: Some(residues), ..self }
    }

    /// Whether the call begins with a pass over own values; what is wrong if it cannot.
    pub(super) fn begins_with_pass(
        &self,
        plan: &Plan,
        size: usize,
        rank: Rank,
    ) -> Result<bool, Error> {
        if let Some(residues) = &self.residues {
            let (need, have) = (self.own_values(size, rank).len(), residues.len());
            if need != have {
                return Err(Error::Length { buffer: Buffer::Feedback, need, have });
            }
        }
        let (window, keeps_feedback) = (self.buffers.window(), self.residues.is_some());
        rounding::begins_with_pass(plan, self.collective, window, keeps_feedback)
    }

    /// Rounds own values, where results will be.
    pub(super) fn round(&mut self, pass: &Pass, size: usize, rank: Rank, level: Level) {
        let own = self.shares.within_whole(self.call(size).input(rank), size, rank);
        let (from, data) = match &mut self.buffers {
            Buffers::InPlace(data) => (None, &mut **data),
            Buffers::Split { send, recv } => (Some(*send), &mut **recv),
            Buffers::ReadOnly(_) => return,
        };
        if let Some(values) = data.get_mut(own) {
            T::round(pass, from, values, self.residues.as_deref_mut(), level);
        }
    }

    /// Puts the result where the caller wants it, once it is complete.
    pub(super) fn place_result(&mut self, size: usize, rank: Rank) {
        let portion = self.call(size).output(rank);
        if let (true, Buffers::InPlace(data)) = (self.to_front, &mut self.buffers) {
            data.copy_within(self.shares.within_whole(portion, size, rank), 0);
        }
    }

    pub(super) fn call(&self, size: usize) -> Call {
        Call::new(self.collective, size, self.root)
    }

    /// The values that this rank contributes.
    pub(crate) fn own_values(&self, size: usize, rank: Rank) -> &[T] {
        let (portion, own) = (self.call(size).input(rank), self.buffers.all_own());
        let range = match self.buffers.window() {
            Window::Whole => self.shares.within_whole(portion, size, rank),
            Window::Own | Window::Input => 0..self.shares.len(portion, size, rank),
        };
        own.get(range).unwrap_or_default()
    }

    /// Checks root and lengths. Buffers that a rank does not use may have any.
    pub(super) fn check(&self, size: usize, rank: Rank) -> Result<(), Error> {
        if self.root.index() >= size {
            return Err(Error::Root { root: self.root, size });
        }
        let counts = match self.shares {
            Shares::Even(_) => [size; 2],
            Shares::Given(counts) => [counts.len(); 2],
            // Who makes such a call has checked its arrays.
            Shares::Arrays(_) => [size; 2],
            Shares::Exchanged { send, recv } => [send.len(), recv.len()],
        };
        if let Some(&have) = counts.iter().find(|&&have| have != size) {
            return Err(Error::Length { buffer: Buffer::Counts, need: size, have });
        }
        let call = self.call(size);
        let lengths = match &self.buffers {
            Buffers::InPlace(data) => {
                // What comes must fit where what went was.
                let portion = match call.output(rank) {
                    Portion::Column => Portion::Column,
                    _ => Portion::Whole,
                };
                [(Buffer::Recv, portion, data.len()); 2]
            }
            Buffers::ReadOnly(send) => [(Buffer::Send, call.input(rank), send.len()); 2],
            Buffers::Split { send, recv } => [
                (Buffer::Send, call.input(rank), send.len()),
                (Buffer::Recv, call.output(rank), recv.len()),
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

    pub(super) fn op_code(&self) -> OpCode {
        self.op.as_ref().map_or(OpCode::None, Op::code)
    }
}
