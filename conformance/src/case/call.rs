//! One rank's part in a [`Case`]: its buffers, its call, and the buffer that has the result.
//!
//! The call is only started here. The caller decides how to drive it: wait, poll, or drop it.
//!
//! `Case::is_in_place` equals the field `in_place`, except that an all-to-all with unequal shares
//! is never in place.

use super::{Case, Counts, Deal};
use crate::data;
use crate::places::Places;
use foldwire::layout::{Shares, Window};
use foldwire::{
    Call, Collective, Communicator, Error, Float, Operation, Pending, Rank, Report, Rounding,
    SharedCommunicator, Transport,
};
use std::ops::Range;

/// One rank's values before and after the call.
#[derive(Clone, Debug)]
pub struct Buffers<T> {
    /// Values that the rank contributes. A call in place replaces them by its result.
    data: Vec<T>,
    /// Buffer for the result of a call out of place.
    recv: Vec<T>,
    counts: Counts,
}

impl<T> Buffers<T> {
    /// Buffer of a call in place.
    pub fn in_place(&mut self) -> &mut [T] {
        &mut self.data
    }
}

impl Case {
    /// Buffers that `rank` starts with. Values that it does not contribute are garbage.
    #[must_use]
    pub fn buffers<T: Float>(&self, rank: usize) -> Buffers<T> {
        let mut data = self.dealt(&self.input::<T>(rank), rank).into_owned();
        let garbage = T::from_f64(-77.0);
        let mut recv = vec![garbage; self.result_range(rank).len()];
        match self.collective {
            Collective::AllGather | Collective::Gather if self.in_place => {
                let share = self.share(rank);
                data[..share.start].fill(garbage);
                data[share.end..].fill(garbage);
            }
            Collective::Broadcast => {
                if rank != self.root {
                    data.fill(garbage);
                }
                // A broadcast has one buffer: `data` if it is in place, otherwise `recv`.
                recv.copy_from_slice(&data);
            }
            _ => {}
        }
        Buffers { data, recv, counts: self.counts(rank) }
    }

    /// Starts one rank's call.
    ///
    /// # Errors
    /// The errors of the call.
    pub fn start<'a, T: Float, X: Transport>(
        &self,
        comm: &'a mut Communicator<X>,
        buffers: &'a mut Buffers<T>,
    ) -> Result<Operation<'a, X, T>, Error> {
        let call = self.call_on(comm.rank().index(), buffers);
        comm.start(call, &self.plan())
    }

    /// The call of `rank`, on its buffers.
    fn call_on<'a, T: Float>(
        &self,
        rank: usize,
        buffers: &'a mut Buffers<T>,
    ) -> Call<'a, T, &'a [T], &'a mut [T]> {
        let Buffers { data, recv, counts } = buffers;
        let n_own = data.len();
        let (send, recv): (&[T], &mut [T]) = match self.window(rank) {
            Window::Own => (&data[self.sent(rank, n_own)], recv),
            _ if self.is_in_place() => (&[], data),
            _ => (&[], recv),
        };
        self.call(rank, counts, n_own, send, recv)
    }

    /// Starts one rank's call on a communicator that may run other calls at the same time. `counts`
    /// are the rank's [`counts`](Self::counts). Pass the buffer that the call returns to
    /// [`result_at_once`](Self::result_at_once).
    ///
    /// # Errors
    /// The errors of the call.
    pub fn start_at_once<'a, T: Float, X: Transport + 'a>(
        &self,
        comm: &SharedCommunicator<'a, X>,
        counts: &'a Counts,
    ) -> Result<Pending<'a, X, Vec<T>>, Error> {
        comm.start(self.call_at_once(comm.rank().index(), counts), &self.plan())
    }

    /// The call of `rank` that owns its buffers.
    pub(crate) fn call_at_once<'a, T: Float>(
        &self,
        rank: usize,
        counts: &'a Counts,
    ) -> Call<'a, T, Vec<T>, Vec<T>> {
        let Buffers { data, recv, .. } = self.buffers::<T>(rank);
        let n_own = data.len();
        let (send, recv) = match self.window(rank) {
            Window::Own => (data[self.sent(rank, n_own)].to_vec(), recv),
            _ if self.is_in_place() => (Vec::new(), data),
            _ => (Vec::new(), recv),
        };
        self.call(rank, counts, n_own, send, recv)
    }

    /// The call of `rank`, which has `n_own` values.
    fn call<'a, T: Float, S, R>(
        &self,
        rank: usize,
        counts: &'a Counts,
        n_own: usize,
        send: S,
        recv: R,
    ) -> Call<'a, T, S, R> {
        let Counts { send: to, recv: from } = counts;
        let shares = match (self.deal, self.collective) {
            (Deal::Even, Collective::AllToAll) => Shares::Even(n_own),
            (Deal::Even, _) => Shares::Even(self.count),
            (_, Collective::AllToAll) => Shares::Exchanged { send: to, recv: from },
            _ => Shares::Given(to),
        };
        let call = Call::of(self.collective, shares, self.window(rank), send, recv);
        call.with_op(self.op.op()).with_root(Rank::new(self.root))
    }

    /// Part of the array that the buffers of `rank`'s call hold.
    fn window(&self, rank: usize) -> Window {
        match self.collective {
            Collective::Broadcast => Window::Whole,
            Collective::Scatter => Window::Own,
            Collective::Gather if rank != self.root => Window::Own,
            _ if self.is_in_place() => Window::Whole,
            _ => Window::Own,
        }
    }

    /// Range of the values that `rank` passes to the call, among its `n_own` values.
    fn sent(&self, rank: usize, n_own: usize) -> Range<usize> {
        match self.collective {
            Collective::AllGather | Collective::Gather => self.share(rank),
            Collective::Scatter if rank != self.root => 0..0,
            _ => 0..n_own,
        }
    }

    /// Returns whether the result of `rank` replaces its values.
    fn is_in_data(&self, rank: usize) -> bool {
        self.is_in_place() && self.window(rank) == Window::Whole
    }

    /// Like [`result`](Self::result), for the buffer that a call of
    /// [`start_at_once`](Self::start_at_once) returned.
    #[must_use]
    pub fn result_at_once<T: Float>(&self, rank: usize, returned: Vec<T>) -> Vec<T> {
        if self.is_in_data(rank) {
            let counts = Counts::NONE;
            self.result(rank, Buffers { data: returned, recv: Vec::new(), counts })
        } else {
            returned
        }
    }

    /// The result of `rank`, empty if it has none.
    ///
    /// # Panics
    /// If the call changed values that it must not touch.
    #[must_use]
    pub fn result<T: Float>(&self, rank: usize, buffers: Buffers<T>) -> Vec<T> {
        let Buffers { data, recv, .. } = buffers;
        // A call in place with unbiased rounding rounds the whole input.
        let keeps_input = self.rounding == Rounding::Nearest;
        if self.collective == Collective::ReduceScatter && self.in_place && keeps_input {
            let input = self.input::<T>(rank);
            let (before, share) = (self.dealt(&input, rank), self.share(rank));
            let others = |x: &[T]| data::bits(&[&x[..share.start], &x[share.end..]].concat());
            assert!(others(&before) == others(&data), "{self:?}: other shares changed");
        }
        if self.collective == Collective::ExclusiveScan && self.in_place && rank == 0 {
            let before = self.input::<T>(rank);
            assert!(data::bits(&before) == data::bits(&data), "{self:?}: rank 0's changed");
        }
        if self.is_in_data(rank) { data[self.result_range(rank)].to_vec() } else { recv }
    }

    /// Runs one rank's call to its end. Returns its result (empty if it has none) and report.
    ///
    /// # Errors
    /// The errors of the call.
    pub fn run_rank<T: Float, X: Transport>(
        &self,
        comm: &mut Communicator<X>,
    ) -> Result<(Vec<T>, Report), Error> {
        self.run_rank_at(&Places::slices(), comm)
    }

    /// Does the same with the rank's values in their place.
    pub(crate) fn run_rank_at<T: Float, X: Transport>(
        &self,
        places: &Places<'_>,
        comm: &mut Communicator<X>,
    ) -> Result<(Vec<T>, Report), Error> {
        let rank = comm.rank().index();
        let mut buffers = self.buffers::<T>(rank);
        let report = places.run(comm, self.call_on(rank, &mut buffers), &self.plan())?;
        Ok((self.result(rank, buffers), report))
    }
}
