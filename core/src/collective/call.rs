//! Collective calls as values: what a call is, its operation, and the buffers that it works on.
//!
//! Every communicator takes them: [`Communicator::run`](crate::Communicator::run), `start` and
//! `prepare`; [`SharedCommunicator::run`](crate::SharedCommunicator::run) and `start`. The methods
//! that are named as collectives are run one.

use super::request::Request;
use crate::element::Element;
use crate::engine::{Buffers, Work};
use crate::layout::{Shares, Window};
use crate::op::{Op, OpCode};
use crate::schedule::Collective;
use crate::transport::Rank;
use core::fmt;

/// A collective call: what it is, and its buffers, which it borrows or owns.
///
/// `S` is what is read and `R` is what is written, or both in place. For a call that is made at
/// once they are slices; for one that a [`SharedCommunicator`](crate::SharedCommunicator) is to
/// finish later whatever has the values, such as a `Vec`.
///
/// Lengths: a collective works on a logical array of `count` values; a rank's *share* of it is
/// [`layout::share`](crate::layout::share).
///
/// # Examples
/// ```
/// use foldwire::{Call, Communicator, Error, Op, Plan, Transport};
///
/// fn dot<X: Transport>(comm: &mut Communicator<X>, a: &[f64], b: &[f64]) -> Result<f64, Error> {
///     let mut sum = [a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>()];
///     comm.run(Call::all_reduce(&mut sum, Op::Sum), &Plan::raw())?;
///     Ok(sum[0])
/// }
/// ```
#[must_use = "a call does nothing until a communicator runs or starts it"]
pub struct Call<'s, T: Element, S, R> {
    pub(crate) request: Request<'s>,
    pub(crate) op: Op<'s, T>,
    send: S,
    recv: R,
    residues: Option<&'s mut [T::Residue]>,
}

/// A buffer of no values, in place of one that a call has no use for.
pub type NoValues<'s, T> = &'s [T; 0];

/// Calls in place.
impl<'s, T: Element, R: AsMut<[T]>> Call<'s, T, NoValues<'s, T>, R> {
    fn in_place(collective: Collective, mut recv: R) -> Self {
        let shares = Shares::Even(recv.as_mut().len());
        Self::of(collective, shares, Window::Whole, &[], recv)
    }

    /// `data` becomes the reduction of all ranks' `data`, the same bits on every rank.
    pub fn all_reduce(data: R, op: Op<'s, T>) -> Self {
        Self::in_place(Collective::AllReduce, data).by(op)
    }

    /// This rank's share of `data` becomes the reduction of all ranks' `data`; the rest is
    /// unchanged, or rounded where the plan rounds without bias.
    pub fn reduce_scatter_in_place(data: R, op: Op<'s, T>) -> Self {
        Self::in_place(Collective::ReduceScatter, data).by(op)
    }

    /// As [`reduce_scatter_in_place`](Self::reduce_scatter_in_place), with the result at the front
    /// of `data`, where MPI leaves it; the rest may be anything.
    pub fn reduce_scatter_to_front(data: R, op: Op<'s, T>) -> Self {
        Self::reduce_scatter_in_place(data, op).in_front()
    }

    /// As [`reduce_scatter_v`](Self::reduce_scatter_v), into this rank's share of `data`; the rest
    /// is unchanged, or rounded where the plan rounds without bias.
    pub fn reduce_scatter_v_in_place(data: R, counts: &'s [usize], op: Op<'s, T>) -> Self {
        Self::reduce_scatter_in_place(data, op).with(Shares::Given(counts))
    }

    /// As [`reduce_scatter_v_in_place`](Self::reduce_scatter_v_in_place), with the result at the
    /// front of `data`, where MPI leaves it; the rest may be anything.
    pub fn reduce_scatter_v_to_front(data: R, counts: &'s [usize], op: Op<'s, T>) -> Self {
        Self::reduce_scatter_v_in_place(data, counts, op).in_front()
    }

    /// As [`all_gather`](Self::all_gather), from this rank's share of `data`.
    pub fn all_gather_in_place(data: R) -> Self {
        Self::in_place(Collective::AllGather, data)
    }

    /// As [`all_gather_v`](Self::all_gather_v), from this rank's share of `data`.
    pub fn all_gather_v_in_place(data: R, counts: &'s [usize]) -> Self {
        Self::all_gather_in_place(data).with(Shares::Given(counts))
    }

    /// `data` becomes the root's `data`, the same bits on every rank, the root's included.
    pub fn broadcast(data: R, root: Rank) -> Self {
        Self::in_place(Collective::Broadcast, data).at(root)
    }

    /// The root's `data` becomes the reduction of all ranks' `data`; elsewhere it is unchanged.
    pub fn reduce_in_place(data: R, op: Op<'s, T>, root: Rank) -> Self {
        Self::in_place(Collective::Reduce, data).by(op).at(root)
    }

    /// `data` becomes the reduction of this rank's `data` and of those of all ranks before it.
    pub fn scan(data: R, op: Op<'s, T>) -> Self {
        Self::in_place(Collective::Scan, data).by(op)
    }

    /// `data` becomes the reduction of the `data` of all ranks before this one; that of rank 0 is
    /// unchanged.
    pub fn exclusive_scan(data: R, op: Op<'s, T>) -> Self {
        Self::in_place(Collective::ExclusiveScan, data).by(op)
    }

    /// As [`all_to_all`](Self::all_to_all), from `data` into `data`, whose length is a multiple of
    /// the size.
    pub fn all_to_all_in_place(data: R) -> Self {
        Self::in_place(Collective::AllToAll, data)
    }
}

/// Calls from one buffer into another.
impl<'s, T: Element, S: AsRef<[T]>, R: AsMut<[T]>> Call<'s, T, S, R> {
    fn out_of_place(collective: Collective, shares: Shares<'s>, send: S, recv: R) -> Self {
        Self::of(collective, shares, Window::Own, send, recv)
    }

    /// As [`all_reduce`](Self::all_reduce), from `send` into `recv` of the same length.
    pub fn all_reduce_into(send: S, recv: R, op: Op<'s, T>) -> Self {
        let shares = Shares::Even(send.as_ref().len());
        Self::out_of_place(Collective::AllReduce, shares, send, recv).by(op)
    }

    /// `recv` becomes this rank's share of the reduction of all ranks' `send`.
    pub fn reduce_scatter(send: S, recv: R, op: Op<'s, T>) -> Self {
        let shares = Shares::Even(send.as_ref().len());
        Self::out_of_place(Collective::ReduceScatter, shares, send, recv).by(op)
    }

    /// `recv` becomes this rank's share of the reduction of all ranks' `send`, where that of rank r
    /// has `counts[r]` values. All ranks give the same `counts`.
    pub fn reduce_scatter_v(send: S, recv: R, counts: &'s [usize], op: Op<'s, T>) -> Self {
        Self::out_of_place(Collective::ReduceScatter, Shares::Given(counts), send, recv).by(op)
    }

    /// `recv` becomes the concatenation of all ranks' `send`, which are shares of `recv.len()`
    /// values (equally long if that is a multiple of the size). The same bits on every rank.
    pub fn all_gather(send: S, mut recv: R) -> Self {
        let shares = Shares::Even(recv.as_mut().len());
        Self::out_of_place(Collective::AllGather, shares, send, recv)
    }

    /// `recv` becomes the concatenation of all ranks' `send`, of which that of rank r has
    /// `counts[r]` values. The same bits on every rank. All ranks give the same `counts`.
    pub fn all_gather_v(send: S, recv: R, counts: &'s [usize]) -> Self {
        Self::out_of_place(Collective::AllGather, Shares::Given(counts), send, recv)
    }

    /// `recv` becomes this rank's share of the root's `send` of `count` values; `send` is not
    /// looked at elsewhere and may be empty.
    pub fn scatter(count: usize, send: S, recv: R, root: Rank) -> Self {
        Self::out_of_place(Collective::Scatter, Shares::Even(count), send, recv).at(root)
    }

    /// The root's `recv` of `count` values becomes the concatenation of all ranks' `send`, which
    /// are shares; `recv` is not touched elsewhere and may be empty.
    pub fn gather(count: usize, send: S, recv: R, root: Rank) -> Self {
        Self::out_of_place(Collective::Gather, Shares::Even(count), send, recv).at(root)
    }

    /// As [`scatter`](Self::scatter), where the share of rank r has `counts[r]` values. All ranks
    /// give the same `counts`.
    pub fn scatter_v(counts: &'s [usize], send: S, recv: R, root: Rank) -> Self {
        Self::out_of_place(Collective::Scatter, Shares::Given(counts), send, recv).at(root)
    }

    /// As [`gather`](Self::gather), where the share of rank r has `counts[r]` values. All ranks
    /// give the same `counts`.
    pub fn gather_v(counts: &'s [usize], send: S, recv: R, root: Rank) -> Self {
        Self::out_of_place(Collective::Gather, Shares::Given(counts), send, recv).at(root)
    }

    /// The root's `recv` becomes the reduction of all ranks' `send`; `recv` is not touched
    /// elsewhere and may be empty.
    pub fn reduce(send: S, recv: R, op: Op<'s, T>, root: Rank) -> Self {
        let shares = Shares::Even(send.as_ref().len());
        Self::out_of_place(Collective::Reduce, shares, send, recv).by(op).at(root)
    }

    /// As [`scan`](Self::scan), from `send` into `recv` of the same length.
    pub fn scan_into(send: S, recv: R, op: Op<'s, T>) -> Self {
        let shares = Shares::Even(send.as_ref().len());
        Self::out_of_place(Collective::Scan, shares, send, recv).by(op)
    }

    /// As [`exclusive_scan`](Self::exclusive_scan), from `send` into `recv` of the same length;
    /// that of rank 0 is not touched and may be empty.
    pub fn exclusive_scan_into(send: S, recv: R, op: Op<'s, T>) -> Self {
        let shares = Shares::Even(send.as_ref().len());
        Self::out_of_place(Collective::ExclusiveScan, shares, send, recv).by(op)
    }

    /// Each rank sends its share r of `send` to rank r; `recv` becomes the concatenation of what
    /// all ranks have for this one, by their ranks. `send` is as long on every rank, and `recv` has
    /// room for as many shares as there are ranks. What a rank has for itself is copied as it is.
    pub fn all_to_all(send: S, recv: R) -> Self {
        let shares = Shares::Even(send.as_ref().len());
        Self::out_of_place(Collective::AllToAll, shares, send, recv)
    }

    /// As [`all_to_all`](Self::all_to_all): `send` has `send_counts[r]` values for rank r, and
    /// `recv` room for `recv_counts[r]` values from it, one after the other by rank. What one rank
    /// sends to another must be as many as that expects.
    pub fn all_to_all_v(
        send: S,
        send_counts: &'s [usize],
        recv: R,
        recv_counts: &'s [usize],
    ) -> Self {
        let shares = Shares::Exchanged { send: send_counts, recv: recv_counts };
        Self::out_of_place(Collective::AllToAll, shares, send, recv)
    }
}

/// Calls that leave no result here.
impl<'s, T: Element, S: AsRef<[T]>> Call<'s, T, S, &'s mut [T; 0]> {
    /// What the root may call in place of [`broadcast`](Self::broadcast), while the others call
    /// that with this rank as the root: `data` are only read. Unless the codec is exact, the root's
    /// values then differ from the others', by the bound at most.
    pub fn broadcast_from(data: S) -> Self {
        let shares = Shares::Even(data.as_ref().len());
        let mut call = Self::of(Collective::Broadcast, shares, Window::Input, data, &mut []);
        call.request.is_root_here = true;
        call
    }
}

impl<'s, T: Element, S, R> Call<'s, T, S, R> {
    /// Any call, for whoever learns only when running which it is: `window` says what the buffers
    /// hold. In place `send` is not looked at, and where nothing is written `recv` is not. What the
    /// constructors do not make is [`Error::NoSuchCall`](crate::Error::NoSuchCall). Values are
    /// added unless another operation is asked for.
    pub const fn of(
        collective: Collective,
        shares: Shares<'s>,
        window: Window,
        send: S,
        recv: R,
    ) -> Self {
        let mut request = Request::new(collective, shares, T::DTYPE, window);
        if collective.reduces() {
            request.op = OpCode::Sum;
        }
        Self { request, op: Op::Sum, send, recv, residues: None }
    }

    /// By this operation; nothing to collectives that reduce nothing.
    pub fn with_op(self, op: Op<'s, T>) -> Self {
        if self.request.collective.reduces() { self.by(op) } else { self }
    }

    /// With this root; nothing to collectives that have none.
    pub fn with_root(self, root: Rank) -> Self {
        if self.request.collective.has_root() { self.at(root) } else { self }
    }

    fn with(mut self, shares: Shares<'s>) -> Self {
        self.request.shares = shares;
        self
    }

    fn by(mut self, op: Op<'s, T>) -> Self {
        self.request.op = op.code();
        self.op = op;
        self
    }

    fn at(mut self, root: Rank) -> Self {
        self.request.root = root;
        self
    }

    fn in_front(mut self) -> Self {
        self.request.to_front = true;
        self
    }

    /// With error feedback, in all-reduces and reduce-scatters in place: `feedback` holds what
    /// earlier calls lost of each of this rank's values, zeros at first, and is added to them. What
    /// this call loses takes its place.
    ///
    /// Over many calls the sum of results then stays within one call's
    /// [`Report::worst_case`](crate::Report::worst_case) of the exact one, but for rounding in the
    /// type itself: Σx̂ = Σx + e₀ − e, however coarse the bound. Bound and worst case of a report
    /// are of values with the feedback added. A value that is not finite goes as it is, and what
    /// was lost before is kept for the next call. With a plan that loses nothing, what was lost
    /// before is sent, as far as the type holds it.
    ///
    /// For floats of 16 bits `feedback` is of `f32`. It is as long as there are own values. Source:
    /// F. Seide et al., "1-bit stochastic gradient descent" (Interspeech 2014); S. P. Karimireddy
    /// et al., "Error feedback fixes SignSGD" (ICML 2019).
    ///
    /// # Examples
    /// Gradients in `bf16` to a tenth of their range:
    /// ```
    /// use foldwire::{Bound, Call, Communicator, Error, Op, Plan, Transport, bf16};
    ///
    /// fn average<X: Transport>(
    ///     comm: &mut Communicator<X>,
    ///     gradient: &mut [bf16],
    ///     feedback: &mut [f32],
    /// ) -> Result<(), Error> {
    ///     let plan = Plan::foldwire(Bound::Relative(0.1));
    ///     comm.run(Call::all_reduce(gradient, Op::Avg).with_feedback(feedback), &plan)?;
    ///     Ok(())
    /// }
    /// ```
    pub fn with_feedback(mut self, feedback: &'s mut [T::Residue]) -> Self {
        self.request.n_residues = Some(feedback.len());
        self.residues = Some(feedback);
        self
    }
}

impl<'s, T: Element, S: AsRef<[T]>, R: AsMut<[T]>> Call<'s, T, S, R> {
    /// What the call is on a rank, and its work there.
    pub(crate) fn parts(&mut self, rank: Rank) -> (Request<'s>, Work<'_, 's, T>) {
        let request = self.request.on(rank);
        let work = self.work();
        (Request { lengths: work.buffers.lengths(), ..request }, work)
    }

    /// Its work.
    pub(crate) fn work(&mut self) -> Work<'_, 's, T> {
        let buffers = buffers(self.request.window, self.send.as_ref(), self.recv.as_mut());
        let residues = self.residues.as_deref_mut();
        Work { residues, ..Work::new(self.op, buffers) }
    }

    /// How long the buffers are.
    #[cfg(feature = "alloc")]
    pub(crate) fn lengths(&mut self) -> [usize; 2] {
        [self.send.as_ref().len(), self.recv.as_mut().len()]
    }
}

#[cfg(feature = "alloc")]
impl<T: Element, S, R> Call<'_, T, S, R> {
    /// The buffer that is written.
    pub(crate) fn into_result(self) -> R {
        self.recv
    }
}

impl<'a, T, S, R> Call<'a, T, &'a S, &'a mut R>
where
    T: Element,
    S: AsRef<[T]> + ?Sized,
    R: AsMut<[T]> + ?Sized,
{
    /// What the call is on a rank, and its work there.
    pub(crate) fn into_parts(self, rank: Rank) -> (Request<'a>, Work<'a, 'a, T>) {
        let buffers = buffers(self.request.window, self.send.as_ref(), self.recv.as_mut());
        let request = Request { lengths: buffers.lengths(), ..self.request.on(rank) };
        (request, Work { residues: self.residues, ..Work::new(self.op, buffers) })
    }
}

const fn buffers<'b, T>(window: Window, send: &'b [T], recv: &'b mut [T]) -> Buffers<'b, T> {
    match window {
        Window::Whole => Buffers::InPlace(recv),
        Window::Own => Buffers::Split { send, recv },
        Window::Input => Buffers::ReadOnly(send),
    }
}

impl<T: Element, S, R> fmt::Debug for Call<'_, T, S, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, count) = (self.request.collective.name(), self.request.shares.count());
        write!(f, "{name} of {count} values of {}", T::DTYPE)
    }
}
