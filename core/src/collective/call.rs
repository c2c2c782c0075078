//! A call as the caller gives it: what it is, and the values that it works on.

use super::request::Request;
use crate::element::Element;
#[cfg(feature = "alloc")]
use crate::engine::Coding;
use crate::engine::{Buffers, Work};
use crate::layout::Shares;
#[cfg(feature = "alloc")]
use crate::layout::Window;
use crate::op::Op;
use crate::schedule::Collective;
use crate::transport::Rank;

/// A call before its arguments are checked.
pub(crate) struct Call<'b, 's, T: Element> {
    pub(crate) request: Request<'s>,
    pub(crate) work: Work<'b, 's, T>,
}

impl<'b, 's, T: Element> Call<'b, 's, T> {
    pub(crate) fn new(collective: Collective, count: usize) -> Self {
        let request = Request::new(collective, Shares::Even(count), T::DTYPE);
        Self { request, work: Work::new(Op::Sum, Buffers::InPlace(&mut [])) }
    }

    pub(crate) fn shares(mut self, shares: Shares<'s>) -> Self {
        self.request.shares = shares;
        self
    }

    pub(crate) fn op(mut self, op: Op<'s, T>) -> Self {
        self.request.op = op.code();
        self.work.op = op;
        self
    }

    pub(crate) fn root(mut self, root: Rank) -> Self {
        self.request.root = root;
        self
    }

    pub(crate) fn in_place(self, data: &'b mut [T]) -> Self {
        self.on(Buffers::InPlace(data))
    }

    pub(crate) fn split(self, send: &'b [T], recv: &'b mut [T]) -> Self {
        self.on(Buffers::Split { send, recv })
    }

    pub(crate) fn read_only(self, send: &'b [T]) -> Self {
        self.on(Buffers::ReadOnly(send))
    }

    pub(crate) fn on(mut self, buffers: Buffers<'b, T>) -> Self {
        (self.request.window, self.request.lengths) = (buffers.window(), buffers.lengths());
        self.work.buffers = buffers;
        self
    }

    pub(crate) fn in_front(mut self) -> Self {
        self.request.to_front = true;
        self
    }

    pub(crate) fn with_feedback(mut self, residues: &'b mut [T::Residue]) -> Self {
        self.request.n_residues = Some(residues.len());
        self.work.residues = Some(residues);
        self
    }
}

/// A call whose buffers somebody else owns, and lends whenever it moves.
#[cfg(feature = "alloc")]
pub(crate) struct Owned<'a, T: Element> {
    pub(crate) request: Request<'a>,
    pub(crate) op: Op<'a, T>,
}

#[cfg(feature = "alloc")]
impl<'a, T: Element> Owned<'a, T> {
    /// The call that is made of these buffers.
    pub(crate) fn of(call: &Call<'_, 'a, T>) -> Self {
        Self { request: call.request, op: call.work.op }
    }

    /// Its work on the buffers.
    pub(crate) fn work<'b>(
        &self,
        send: &'b [T],
        recv: &'b mut [T],
        coding: Coding<T>,
    ) -> Work<'b, 'a, T> {
        let buffers = match self.request.window {
            Window::Own => Buffers::Split { send, recv },
            Window::Whole | Window::Input => Buffers::InPlace(recv),
        };
        Work { coding, ..Work::new(self.op, buffers) }
    }
}
