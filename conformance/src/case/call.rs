//! One rank's part of a [`Case`]: its buffers, the call, and which of the buffers has the result.
//!
//! The call is only started here, so that whoever runs it decides how it is driven: waited for,
//! polled, or dropped.

use super::{Case, Counts, Deal};
use crate::data;
use foldwire::{
    Collective, Communicator, Error, Float, Operation, Pending, Rank, Report, Rounding,
    SharedCommunicator, Transport,
};

/// One rank's values before the call and after it.
#[derive(Clone, Debug)]
pub struct Buffers<T> {
    /// What the rank contributes, and the result of calls in place.
    data: Vec<T>,
    /// Room for the result of calls out of place.
    recv: Vec<T>,
    counts: Counts,
}

impl<T> Buffers<T> {
    /// What a call in place is made on.
    pub fn in_place(&mut self) -> &mut [T] {
        &mut self.data
    }
}

impl Case {
    /// What `rank` starts with. Where it contributes nothing there is garbage.
    #[must_use]
    pub fn buffers<T: Float>(&self, rank: usize) -> Buffers<T> {
        let mut data = self.dealt(&self.input::<T>(rank), rank).into_owned();
        let garbage = T::from_f64(-77.0);
        let mut recv = vec![garbage; self.result_range(rank).len()];
        match self.collective {
            Collective::AllGather if self.in_place => {
                let share = self.share(rank);
                data[..share.start].fill(garbage);
                data[share.end..].fill(garbage);
            }
            Collective::Broadcast => {
                if rank != self.root {
                    data.fill(garbage);
                }
                recv.copy_from_slice(&data);
            }
            _ => {}
        }
        Buffers { data, recv, counts: self.counts(rank) }
    }

    /// Starts one rank's call.
    ///
    /// # Errors
    /// The call's.
    ///
    /// # Panics
    /// If the suite does not know the collective.
    pub fn start<'a, T: Float, X: Transport>(
        &self,
        comm: &'a mut Communicator<X>,
        buffers: &'a mut Buffers<T>,
    ) -> Result<Operation<'a, X, T>, Error> {
        let (plan, op, root) = (&self.plan(), self.op.op::<T>(), Rank::new(self.root));
        let rank = comm.rank().index();
        let (share, count) = (self.share(rank), self.count);
        let Buffers { data, recv, counts: Counts { send: counts, recv: expected } } = buffers;
        if self.deal != Deal::Even {
            return match (self.collective, self.is_in_place()) {
                (Collective::ReduceScatter, true) => {
                    comm.start_reduce_scatter_v_in_place(data, counts, op, plan)
                }
                (Collective::ReduceScatter, false) => {
                    comm.start_reduce_scatter_v(data, recv, counts, op, plan)
                }
                (Collective::AllGather, true) => {
                    comm.start_all_gather_v_in_place(data, counts, plan)
                }
                (Collective::AllGather, false) => {
                    comm.start_all_gather_v(&data[share], recv, counts, plan)
                }
                (Collective::Scatter, _) => {
                    let send = if rank == self.root { &data[..] } else { &[] };
                    comm.start_scatter_v(counts, send, recv, root, plan)
                }
                (Collective::Gather, _) => {
                    comm.start_gather_v(counts, &data[share], recv, root, plan)
                }
                (Collective::AllToAll, _) => {
                    comm.start_all_to_all_v(data, counts, recv, expected, plan)
                }
                (other, _) => panic!("the suite has no call by counts for {}", other.name()),
            };
        }
        match (self.collective, self.is_in_place()) {
            (Collective::AllReduce, true) => comm.start_all_reduce(data, op, plan),
            (Collective::AllReduce, false) => comm.start_all_reduce_into(data, recv, op, plan),
            (Collective::ReduceScatter, true) => comm.start_reduce_scatter_in_place(data, op, plan),
            (Collective::ReduceScatter, false) => comm.start_reduce_scatter(data, recv, op, plan),
            (Collective::AllGather, true) => comm.start_all_gather_in_place(data, plan),
            (Collective::AllGather, false) => comm.start_all_gather(&data[share], recv, plan),
            (Collective::Broadcast, true) => comm.start_broadcast(data, root, plan),
            (Collective::Broadcast, false) => comm.start_broadcast(recv, root, plan),
            (Collective::Scatter, _) => {
                let send = if rank == self.root { &data[..] } else { &[] };
                comm.start_scatter(count, send, recv, root, plan)
            }
            (Collective::Gather, _) => comm.start_gather(count, &data[share], recv, root, plan),
            (Collective::Reduce, true) => comm.start_reduce_in_place(data, op, root, plan),
            (Collective::Reduce, false) => comm.start_reduce(data, recv, op, root, plan),
            (Collective::AllToAll, true) => comm.start_all_to_all_in_place(data, plan),
            (Collective::AllToAll, false) => comm.start_all_to_all(data, recv, plan),
            (Collective::Scan, true) => comm.start_scan(data, op, plan),
            (Collective::Scan, false) => comm.start_scan_into(data, recv, op, plan),
            (Collective::ExclusiveScan, true) => comm.start_exclusive_scan(data, op, plan),
            (Collective::ExclusiveScan, false) => {
                comm.start_exclusive_scan_into(data, recv, op, plan)
            }
            (other, _) => panic!("the suite has no call for {}", other.name()),
        }
    }

    /// Starts one rank's call beside others, which gives its [`counts`](Self::counts). What it
    /// gives back is for [`result_at_once`](Self::result_at_once).
    ///
    /// # Errors
    /// The call's.
    ///
    /// # Panics
    /// If the suite does not know the collective.
    pub fn start_at_once<'a, T: Float, X: Transport + 'a>(
        &self,
        comm: &SharedCommunicator<'a, X>,
        counts: &'a Counts,
    ) -> Result<Pending<'a, X, T, Vec<T>>, Error> {
        let (plan, op, root) = (&self.plan(), self.op.op::<T>(), Rank::new(self.root));
        let rank = comm.rank().index();
        let (share, count) = (self.share(rank), self.count);
        let Buffers { data, recv, .. } = self.buffers::<T>(rank);
        if self.deal != Deal::Even {
            let Counts { send: counts, recv: expected } = counts;
            let own = |data: Vec<T>| Vec::from(&data[share]);
            return match (self.collective, self.is_in_place()) {
                (Collective::ReduceScatter, true) => {
                    comm.start_reduce_scatter_v_in_place(data, counts, op, plan)
                }
                (Collective::ReduceScatter, false) => {
                    comm.start_reduce_scatter_v(data, recv, counts, op, plan)
                }
                (Collective::AllGather, true) => {
                    comm.start_all_gather_v_in_place(data, counts, plan)
                }
                (Collective::AllGather, false) => {
                    comm.start_all_gather_v(own(data), recv, counts, plan)
                }
                (Collective::Scatter, _) => {
                    let send = if rank == self.root { data } else { Vec::new() };
                    comm.start_scatter_v(counts, send, recv, root, plan)
                }
                (Collective::Gather, _) => comm.start_gather_v(counts, own(data), recv, root, plan),
                (Collective::AllToAll, _) => {
                    comm.start_all_to_all_v(data, counts, recv, expected, plan)
                }
                (other, _) => panic!("the suite has no call by counts for {}", other.name()),
            };
        }
        match (self.collective, self.is_in_place()) {
            (Collective::AllReduce, true) => comm.start_all_reduce(data, op, plan),
            (Collective::AllReduce, false) => comm.start_all_reduce_into(data, recv, op, plan),
            (Collective::ReduceScatter, true) => comm.start_reduce_scatter_in_place(data, op, plan),
            (Collective::ReduceScatter, false) => comm.start_reduce_scatter(data, recv, op, plan),
            (Collective::AllGather, true) => comm.start_all_gather_in_place(data, plan),
            (Collective::AllGather, false) => {
                let own = Vec::from(&data[share]);
                comm.start_all_gather(own, recv, plan)
            }
            (Collective::Broadcast, true) => comm.start_broadcast(data, root, plan),
            (Collective::Broadcast, false) => comm.start_broadcast(recv, root, plan),
            (Collective::Scatter, _) => {
                let send = if rank == self.root { data } else { Vec::new() };
                comm.start_scatter(count, send, recv, root, plan)
            }
            (Collective::Gather, _) => {
                let own = Vec::from(&data[share]);
                comm.start_gather(count, own, recv, root, plan)
            }
            (Collective::Reduce, true) => comm.start_reduce_in_place(data, op, root, plan),
            (Collective::Reduce, false) => comm.start_reduce(data, recv, op, root, plan),
            (Collective::AllToAll, true) => comm.start_all_to_all_in_place(data, plan),
            (Collective::AllToAll, false) => comm.start_all_to_all(data, recv, plan),
            (Collective::Scan, true) => comm.start_scan(data, op, plan),
            (Collective::Scan, false) => comm.start_scan_into(data, recv, op, plan),
            (Collective::ExclusiveScan, true) => comm.start_exclusive_scan(data, op, plan),
            (Collective::ExclusiveScan, false) => {
                comm.start_exclusive_scan_into(data, recv, op, plan)
            }
            (other, _) => panic!("the suite has no call for {}", other.name()),
        }
    }

    /// As [`result`](Self::result), of what a call beside others gave back.
    #[must_use]
    pub fn result_at_once<T: Float>(&self, rank: usize, given_back: Vec<T>) -> Vec<T> {
        let moves_apart = matches!(self.collective, Collective::Scatter | Collective::Gather);
        if self.is_in_place() && !moves_apart {
            let counts = Counts::NONE;
            self.result(rank, Buffers { data: given_back, recv: Vec::new(), counts })
        } else {
            given_back
        }
    }

    /// The result of `rank` (empty where it has none).
    ///
    /// # Panics
    /// If the call changed what it must not touch.
    #[must_use]
    pub fn result<T: Float>(&self, rank: usize, buffers: Buffers<T>) -> Vec<T> {
        let Buffers { data, recv, .. } = buffers;
        // Unbiased rounding is of the whole array.
        let is_kept = self.rounding == Rounding::Nearest;
        if self.collective == Collective::ReduceScatter && self.in_place && is_kept {
            let input = self.input::<T>(rank);
            let (before, share) = (self.dealt(&input, rank), self.share(rank));
            let others = |x: &[T]| data::bits(&[&x[..share.start], &x[share.end..]].concat());
            assert!(others(&before) == others(&data), "{self:?}: other shares changed");
        }
        if self.collective == Collective::ExclusiveScan && self.in_place && rank == 0 {
            let before = self.input::<T>(rank);
            assert!(data::bits(&before) == data::bits(&data), "{self:?}: rank 0's changed");
        }
        let is_in_data = self.is_in_place()
            && !matches!(self.collective, Collective::Scatter | Collective::Gather);
        if is_in_data { data[self.result_range(rank)].to_vec() } else { recv }
    }

    /// One rank's call, to its end: its result (empty where it has none) and report.
    ///
    /// # Errors
    /// The call's.
    pub fn run_rank<T: Float, X: Transport>(
        &self,
        comm: &mut Communicator<X>,
    ) -> Result<(Vec<T>, Report), Error> {
        let rank = comm.rank().index();
        let mut buffers = self.buffers::<T>(rank);
        let report = self.start(comm, &mut buffers)?.wait()?;
        Ok((self.result(rank, buffers), report))
    }
}
