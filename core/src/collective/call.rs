//! Collective calls as values: the collective, its operation, and the buffers that it works on.
//!
//! [`Communicator::run`](crate::Communicator::run), `start` and `prepare` take a call, and so do
//! [`SharedCommunicator::run`](crate::SharedCommunicator::run) and `start`. Both communicators also
//! have methods named after collectives, which run the call of that name.
//!
//! *Not implemented: strided arrays.* Codecs read slices, so the rows of a rank's array would have
//! to be gathered and scattered, as messages do (`exchange/rows.rs`).

use super::request::Request;
#[cfg(feature = "alloc")]
use crate::device::{DeviceSlice, OnDevice, Region};
use crate::element::Element;
use crate::engine::{Buffers, Work};
#[cfg(feature = "alloc")]
use crate::error::Error;
use crate::layout::{Shares, Window};
use crate::op::{Op, OpCode};
use crate::schedule::Collective;
use crate::transport::Rank;
use core::fmt;

/// A collective call together with its buffers, which it borrows or owns.
///
/// Create one with the constructor of its collective, such as [`all_reduce`](Self::all_reduce).
/// Nothing happens until a communicator runs, starts or prepares it.
///
/// `S` is the type of the input buffer and `R` the type of the result buffer. A call in place has
/// only the result buffer. Use slices for a call that runs at once. For a call that a
/// [`SharedCommunicator`](crate::SharedCommunicator) finishes later, pass an owner of the values,
/// such as a `Vec`.
///
/// *Lengths.* A collective works on a logical array of `count` values.
/// [`layout::share`](crate::layout::share) says which part of it is a rank's *share*. In a variant
/// ending in `_v`, the caller gives the length of each rank's share.
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

/// A buffer that a call reads: slices and their owners, or memory of a device.
pub trait Input<T> {
    /// Number of values.
    fn n_values(&self) -> usize;
}

impl<T, S: AsRef<[T]>> Input<T> for S {
    fn n_values(&self) -> usize {
        self.as_ref().len()
    }
}

/// A buffer that a call writes: slices and their owners, or memory of a device.
pub trait Buffer<T> {
    /// Number of values.
    fn n_values(&mut self) -> usize;
}

impl<T, R: AsMut<[T]>> Buffer<T> for R {
    fn n_values(&mut self) -> usize {
        self.as_mut().len()
    }
}

#[cfg(feature = "alloc")]
impl<T> Input<T> for DeviceSlice<'_, T> {
    fn n_values(&self) -> usize {
        OnDevice::region(self).n_values
    }
}

#[cfg(feature = "alloc")]
impl<T> Buffer<T> for DeviceSlice<'_, T> {
    fn n_values(&mut self) -> usize {
        OnDevice::region(self).n_values
    }
}

/// An empty buffer, for a call that does not use it.
pub type NoValues<'s, T> = &'s [T; 0];

/// Calls in place: one buffer holds the input and then the result.
impl<'s, T: Element, R: Buffer<T>> Call<'s, T, NoValues<'s, T>, R> {
    fn in_place(collective: Collective, mut recv: R) -> Self {
        let shares = Shares::Even(recv.n_values());
        Self::of(collective, shares, Window::Whole, &[], recv)
    }

    /// `data` becomes the reduction of all ranks' `data`, with the same bits on every rank.
    pub fn all_reduce(data: R, op: Op<'s, T>) -> Self {
        Self::in_place(Collective::AllReduce, data).by(op)
    }

    /// This rank's share of `data` becomes that share of the reduction of all ranks' `data`. The
    /// rest is unchanged, unless the plan rounds without bias: then it is rounded.
    pub fn reduce_scatter_in_place(data: R, op: Op<'s, T>) -> Self {
        Self::in_place(Collective::ReduceScatter, data).by(op)
    }

    /// Same as [`reduce_scatter_in_place`](Self::reduce_scatter_in_place), with the result at the
    /// front of `data`, where MPI puts it. The contents of the rest are unspecified.
    pub fn reduce_scatter_to_front(data: R, op: Op<'s, T>) -> Self {
        Self::reduce_scatter_in_place(data, op).in_front()
    }

    /// Same as [`reduce_scatter_v`](Self::reduce_scatter_v), into this rank's share of `data`. The
    /// rest is unchanged, unless the plan rounds without bias: then it is rounded.
    pub fn reduce_scatter_v_in_place(data: R, counts: &'s [usize], op: Op<'s, T>) -> Self {
        Self::reduce_scatter_in_place(data, op).with(Shares::Given(counts))
    }

    /// Same as [`reduce_scatter_v_in_place`](Self::reduce_scatter_v_in_place), with the result at
    /// the front of `data`, where MPI puts it. The contents of the rest are unspecified.
    pub fn reduce_scatter_v_to_front(data: R, counts: &'s [usize], op: Op<'s, T>) -> Self {
        Self::reduce_scatter_v_in_place(data, counts, op).in_front()
    }

    /// Same as [`all_gather`](Self::all_gather), into `data`. The input is this rank's share of
    /// `data`.
    pub fn all_gather_in_place(data: R) -> Self {
        Self::in_place(Collective::AllGather, data)
    }

    /// Same as [`all_gather_v`](Self::all_gather_v), into `data`. The input is this rank's share of
    /// `data`.
    pub fn all_gather_v_in_place(data: R, counts: &'s [usize]) -> Self {
        Self::all_gather_in_place(data).with(Shares::Given(counts))
    }

    /// Same as [`gather`](Self::gather) to this rank, into `data`. The input is this rank's share
    /// of `data`. The other ranks call `gather` with this rank as the root.
    pub fn gather_in_place(data: R) -> Self {
        Self::in_place(Collective::Gather, data).here()
    }

    /// Same as [`gather_v`](Self::gather_v) to this rank, into `data`. The input is this rank's
    /// share of `data`. The other ranks call `gather_v` with this rank as the root.
    pub fn gather_v_in_place(data: R, counts: &'s [usize]) -> Self {
        Self::gather_in_place(data).with(Shares::Given(counts))
    }

    /// `data` becomes the root's `data`, with the same bits on every rank, the root included.
    pub fn broadcast(data: R, root: Rank) -> Self {
        Self::in_place(Collective::Broadcast, data).at(root)
    }

    /// The root's `data` becomes the reduction of all ranks' `data`. On other ranks it is
    /// unchanged.
    pub fn reduce_in_place(data: R, op: Op<'s, T>, root: Rank) -> Self {
        Self::in_place(Collective::Reduce, data).by(op).at(root)
    }

    /// Inclusive prefix reduction: `data` becomes the reduction of the `data` of this rank and all
    /// ranks before it.
    pub fn scan(data: R, op: Op<'s, T>) -> Self {
        Self::in_place(Collective::Scan, data).by(op)
    }

    /// Exclusive prefix reduction: `data` becomes the reduction of the `data` of all ranks before
    /// this one. On rank 0 it is unchanged.
    pub fn exclusive_scan(data: R, op: Op<'s, T>) -> Self {
        Self::in_place(Collective::ExclusiveScan, data).by(op)
    }

    /// Same as [`all_to_all`](Self::all_to_all), from `data` into `data`. The length must be a
    /// multiple of the communicator's size.
    pub fn all_to_all_in_place(data: R) -> Self {
        Self::in_place(Collective::AllToAll, data)
    }
}

/// Calls from one buffer into another.
impl<'s, T: Element, S: Input<T>, R: Buffer<T>> Call<'s, T, S, R> {
    fn out_of_place(collective: Collective, shares: Shares<'s>, send: S, recv: R) -> Self {
        Self::of(collective, shares, Window::Own, send, recv)
    }

    /// Same as [`all_reduce`](Self::all_reduce), from `send` into `recv`, which has the same
    /// length.
    pub fn all_reduce_into(send: S, recv: R, op: Op<'s, T>) -> Self {
        let shares = Shares::Even(send.n_values());
        Self::out_of_place(Collective::AllReduce, shares, send, recv).by(op)
    }

    /// `recv` becomes this rank's share of the reduction of all ranks' `send`.
    pub fn reduce_scatter(send: S, recv: R, op: Op<'s, T>) -> Self {
        let shares = Shares::Even(send.n_values());
        Self::out_of_place(Collective::ReduceScatter, shares, send, recv).by(op)
    }

    /// `recv` becomes this rank's share of the reduction of all ranks' `send`. The share of rank r
    /// has `counts[r]` values. All ranks must pass the same `counts`.
    pub fn reduce_scatter_v(send: S, recv: R, counts: &'s [usize], op: Op<'s, T>) -> Self {
        Self::out_of_place(Collective::ReduceScatter, Shares::Given(counts), send, recv).by(op)
    }

    /// `recv` becomes the concatenation of all ranks' `send`, with the same bits on every rank.
    /// The `send` of a rank is its share of `recv.len()` values. The shares are equally long if
    /// `recv.len()` is a multiple of the communicator's size.
    pub fn all_gather(send: S, mut recv: R) -> Self {
        let shares = Shares::Even(recv.n_values());
        Self::out_of_place(Collective::AllGather, shares, send, recv)
    }

    /// `recv` becomes the concatenation of all ranks' `send`, with the same bits on every rank. The
    /// `send` of rank r has `counts[r]` values. All ranks must pass the same `counts`.
    pub fn all_gather_v(send: S, recv: R, counts: &'s [usize]) -> Self {
        Self::out_of_place(Collective::AllGather, Shares::Given(counts), send, recv)
    }

    /// `recv` becomes this rank's share of the root's `send`, which has `count` values. On other
    /// ranks `send` is ignored and may be empty.
    pub fn scatter(count: usize, send: S, recv: R, root: Rank) -> Self {
        Self::out_of_place(Collective::Scatter, Shares::Even(count), send, recv).at(root)
    }

    /// The root's `recv` of `count` values becomes the concatenation of all ranks' `send`. The
    /// `send` of a rank is its share. On other ranks `recv` is ignored and may be empty.
    pub fn gather(count: usize, send: S, recv: R, root: Rank) -> Self {
        Self::out_of_place(Collective::Gather, Shares::Even(count), send, recv).at(root)
    }

    /// Same as [`scatter`](Self::scatter), but the share of rank r has `counts[r]` values. All
    /// ranks must pass the same `counts`.
    pub fn scatter_v(counts: &'s [usize], send: S, recv: R, root: Rank) -> Self {
        Self::out_of_place(Collective::Scatter, Shares::Given(counts), send, recv).at(root)
    }

    /// Same as [`gather`](Self::gather), but the share of rank r has `counts[r]` values. All ranks
    /// must pass the same `counts`.
    pub fn gather_v(counts: &'s [usize], send: S, recv: R, root: Rank) -> Self {
        Self::out_of_place(Collective::Gather, Shares::Given(counts), send, recv).at(root)
    }

    /// The root's `recv` becomes the reduction of all ranks' `send`. On other ranks `recv` is
    /// ignored and may be empty.
    pub fn reduce(send: S, recv: R, op: Op<'s, T>, root: Rank) -> Self {
        let shares = Shares::Even(send.n_values());
        Self::out_of_place(Collective::Reduce, shares, send, recv).by(op).at(root)
    }

    /// Same as [`scan`](Self::scan), from `send` into `recv`, which has the same length.
    pub fn scan_into(send: S, recv: R, op: Op<'s, T>) -> Self {
        let shares = Shares::Even(send.n_values());
        Self::out_of_place(Collective::Scan, shares, send, recv).by(op)
    }

    /// Same as [`exclusive_scan`](Self::exclusive_scan), from `send` into `recv`, which has the
    /// same length. On rank 0 `recv` is ignored and may be empty.
    pub fn exclusive_scan_into(send: S, recv: R, op: Op<'s, T>) -> Self {
        let shares = Shares::Even(send.n_values());
        Self::out_of_place(Collective::ExclusiveScan, shares, send, recv).by(op)
    }

    /// Each rank sends its share r of `send` to rank r. `recv` becomes the concatenation of the
    /// shares that all ranks sent to this rank, in rank order. A rank's share for itself is copied
    /// exactly.
    ///
    /// `send` has the same length on every rank. `recv` has space for this rank's share from each
    /// rank.
    pub fn all_to_all(send: S, recv: R) -> Self {
        let shares = Shares::Even(send.n_values());
        Self::out_of_place(Collective::AllToAll, shares, send, recv)
    }

    /// Same as [`all_to_all`](Self::all_to_all), with given lengths. `send` holds `send_counts[r]`
    /// values for rank r, and `recv` has space for `recv_counts[r]` values from rank r, both in
    /// rank order. Each pair of ranks must agree on the number of values between them. So must the
    /// two counts of this rank for itself ([`Error::OwnCount`](crate::Error::OwnCount)).
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

/// Calls without a result on this rank.
impl<'s, T: Element, S: Input<T>> Call<'s, T, S, &'s mut [T; 0]> {
    /// Broadcast from this rank, which only reads `data`. The other ranks call
    /// [`broadcast`](Self::broadcast) with this rank as the root.
    ///
    /// Unlike with `broadcast`, the root keeps its exact values. The other ranks' values differ
    /// from them by at most the bound, unless the codec is lossless.
    pub fn broadcast_from(data: S) -> Self {
        let shares = Shares::Even(data.n_values());
        Self::of(Collective::Broadcast, shares, Window::Input, data, &mut []).here()
    }
}

impl<'s, T: Element, S, R> Call<'s, T, S, R> {
    /// Any call, for a caller that learns only at run time which collective to run. `window` says
    /// what the buffers hold. A call in place ignores `send`, and a call that writes nothing
    /// ignores `recv`.
    ///
    /// Reductions use [`Op::Sum`] until [`with_op`](Self::with_op) sets another operation. Running
    /// a combination that no constructor makes returns
    /// [`Error::NoSuchCall`](crate::Error::NoSuchCall).
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

    /// Sets the operation. Has no effect on a collective that reduces nothing.
    pub fn with_op(self, op: Op<'s, T>) -> Self {
        if self.request.collective.reduces() { self.by(op) } else { self }
    }

    /// Sets the root. Has no effect on a collective without a root.
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

    fn here(mut self) -> Self {
        self.request.is_root_here = true;
        self
    }

    fn in_front(mut self) -> Self {
        self.request.to_front = true;
        self
    }

    /// Adds error feedback to an all-reduce in place or a reduce-scatter in place.
    ///
    /// `feedback` holds the errors that earlier calls made in each value of this rank's input. Fill
    /// it with zeros before the first call. Each call adds it to the input, and then stores the new
    /// errors in it. `feedback` has as many values as this rank's input. Its type is `f32` for
    /// 16-bit floats.
    ///
    /// Over many calls the sum of the results stays within one call's
    /// [`Report::worst_case`](crate::Report::worst_case) of the exact sum, however coarse the
    /// bound. The values x̂ that a rank sends satisfy Σx̂ = Σx + e₀ − e, up to rounding in the
    /// element type; e₀ is the feedback before the first call, and e the feedback after the last.
    /// The bound and the worst case in a report refer to the values with the feedback added.
    ///
    /// A value that is not finite is sent unchanged, and its feedback is kept for the next call. A
    /// lossless plan also adds the feedback. The error of rounding that sum to the element type
    /// becomes the new feedback.
    ///
    /// Source: F. Seide et al., "1-bit stochastic gradient descent" (Interspeech 2014); S. P.
    /// Karimireddy et al., "Error feedback fixes SignSGD" (ICML 2019).
    ///
    /// # Examples
    /// Average gradients in `bf16`, with an error of up to a tenth of their range:
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

    /// Returns the same call on other buffers, which `change` makes of the call's own, such as
    /// copies in a device's memory. They have the same lengths.
    pub fn map_buffers<S2, R2>(self, change: impl FnOnce(S, R) -> (S2, R2)) -> Call<'s, T, S2, R2> {
        let Self { request, op, send, recv, residues } = self;
        let (send, recv) = change(send, recv);
        Call { request, op, send, recv, residues }
    }
}

impl<'s, T: Element, S: AsRef<[T]>, R: AsMut<[T]>> Call<'s, T, S, R> {
    /// Returns the request that this rank makes, and the operation, buffers and feedback.
    pub(crate) fn parts(&mut self, rank: Rank) -> (Request<'s>, Work<'_, 's, T>) {
        let request = self.request.on(rank);
        let work = self.work();
        (Request { lengths: work.buffers.lengths(), ..request }, work)
    }

    /// Returns the operation, the buffers and the feedback.
    pub(crate) fn work(&mut self) -> Work<'_, 's, T> {
        let buffers = buffers(self.request.window, self.send.as_ref(), self.recv.as_mut());
        let residues = self.residues.as_deref_mut();
        Work { residues, ..Work::new(self.op, buffers) }
    }

    /// Lengths of the two buffers.
    #[cfg(feature = "alloc")]
    pub(crate) fn lengths(&mut self) -> [usize; 2] {
        [self.send.as_ref().len(), self.recv.as_mut().len()]
    }
}

#[cfg(feature = "alloc")]
impl<T: Element, S, R> Call<'_, T, S, R> {
    /// Returns the result buffer.
    pub(crate) const fn result(&mut self) -> &mut R {
        &mut self.recv
    }

    /// Returns the result buffer.
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
    /// Returns the request that this rank makes, and the operation, buffers and feedback.
    pub(crate) fn into_parts(self, rank: Rank) -> (Request<'a>, Work<'a, 'a, T>) {
        let buffers = buffers(self.request.window, self.send.as_ref(), self.recv.as_mut());
        let request = Request { lengths: buffers.lengths(), ..self.request.on(rank) };
        (request, Work { residues: self.residues, ..Work::new(self.op, buffers) })
    }
}

/// The request of a call, the places of its buffers on a device, and the buffers.
#[cfg(feature = "alloc")]
pub(crate) type PartsOnDevice<'s, S, R> = (Request<'s>, [Region; 2], (S, R));

#[cfg(feature = "alloc")]
impl<'s, T: Element, S: OnDevice<T>, R: OnDevice<T>> Call<'s, T, S, R> {
    /// Returns the request that this rank makes, and its buffers in a device's memory. Fails if the
    /// call has feedback, or an operation that is not the device's.
    pub(crate) fn into_regions(self, rank: Rank) -> Result<PartsOnDevice<'s, S, R>, Error> {
        let request = self.request.on(rank);
        match self.residues {
            Some(_) => Err(Error::NoRoomToRound),
            None => {
                let regions = [self.send.region(), self.recv.region()];
                Ok((request, regions, (self.send, self.recv)))
            }
        }
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
