//! MPI's blocking collectives on slices. They mean the same as Foldwire's collectives of the same
//! names.

use std::ffi::c_int;
use std::marker::PhantomData;

use foldwire::layout::share;
use foldwire::{Collective, Float, Rank};
use mpi::topology::{Communicator, SimpleCommunicator};

use crate::ffi::{self, CallMemory};
use crate::{BufferSide, Error};

/// Choice between MPI's two functions for a collective: one for equal shares, and one for shares of
/// any length.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FunctionForm {
    /// Function for shares of the same length, such as `MPI_Allgather` and
    /// `MPI_Reduce_scatter_block`, or the only function.
    Equal,
    /// Function for shares of any length, such as `MPI_Allgatherv` and `MPI_Reduce_scatter`.
    Counts,
}

/// Reduction operation of MPI.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum Operation {
    Sum,
    Min,
    Max,
    Prod,
}

/// Parameters of a call, without its buffers.
#[derive(Clone, Debug)]
pub struct Call {
    pub(crate) collective: Collective,
    pub(crate) count: usize,
    pub(crate) op: Operation,
    pub(crate) root: Rank,
    pub(crate) form: FunctionForm,
    /// Lengths and starts of the ranks' shares, in MPI's types.
    pub(crate) counts: Vec<c_int>,
    pub(crate) starts: Vec<c_int>,
}

impl Call {
    /// Describes a collective on an array of `count` values between `size` ranks, by its first
    /// [`form`](Self::forms). Collectives without an operation or a root ignore `op` or `root`.
    ///
    /// # Errors
    /// [`Error::TooLong`], [`Error::NoSuchCall`].
    pub fn new(
        collective: Collective,
        count: usize,
        size: usize,
        op: Operation,
        root: Rank,
    ) -> Result<Self, Error> {
        if root.index() >= size {
            return Err(Error::NoSuchCall { collective });
        }
        // An all-to-all may receive one value more from each rank.
        if c_int::try_from(count.saturating_add(size)).is_err() {
            return Err(Error::TooLong { count });
        }
        let shares = (0..size).map(|rank| share(count, size, rank));
        let (counts, starts) = shares.map(|s| (s.len() as c_int, s.start as c_int)).unzip();
        let form = Self::forms(collective, count, size)[0];
        Ok(Self { collective, count, op, root, form, counts, starts })
    }

    /// Describes a collective in which rank r's share has `shares[r]` values. It uses the function
    /// for shares of any length, and exists for collectives that divide the array.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn of_shares(
        collective: Collective,
        shares: &[usize],
        op: Operation,
        root: Rank,
    ) -> Result<Self, Error> {
        let (size, count) = (shares.len(), shares.iter().sum());
        // An all-to-all receives this rank's share from every rank.
        let most = shares.iter().max().map_or(0, |share| share.saturating_mul(size));
        if c_int::try_from(most).is_err() {
            return Err(Error::TooLong { count });
        }
        if !Self::forms(collective, 0, size).contains(&FunctionForm::Counts) {
            return Err(Error::NoSuchCall { collective });
        }
        let call = Self::new(collective, count, size, op, root)?;
        let mut end = 0;
        let starts = shares.iter().map(|&share| (end, end += share as c_int).0).collect();
        let counts = shares.iter().map(|&share| share as c_int).collect();
        Ok(Self { form: FunctionForm::Counts, counts, starts, ..call })
    }

    /// Selects the function of this form, one of [`forms`](Self::forms). With unequal shares, the
    /// function for equal shares would write beyond buffers, so it is not among the forms.
    ///
    /// # Errors
    /// [`Error::NoSuchCall`] for a form that the call does not have.
    pub fn with_form(self, form: FunctionForm) -> Result<Self, Error> {
        let (collective, size) = (self.collective, self.counts.len());
        // `forms` derives from a count whether shares are equal. 0 divides evenly, and 1 does not.
        let example_count = usize::from(!self.is_equal());
        if Self::forms(collective, example_count, size).contains(&form) {
            Ok(Self { form, ..self })
        } else {
            Err(Error::NoSuchCall { collective })
        }
    }

    /// Returns the functions for a call, with the one that programs usually call first.
    /// Reduce-scatter defaults to `MPI_Reduce_scatter`, as in the OSU benchmarks. Other collectives
    /// use the function for equal shares if shares are equal.
    #[must_use]
    pub fn forms(collective: Collective, count: usize, size: usize) -> &'static [FunctionForm] {
        let is_even = count.is_multiple_of(size);
        match collective {
            Collective::ReduceScatter if is_even => &[FunctionForm::Counts, FunctionForm::Equal],
            Collective::AllGather
            | Collective::Scatter
            | Collective::Gather
            | Collective::AllToAll
                if is_even =>
            {
                &[FunctionForm::Equal, FunctionForm::Counts]
            }
            Collective::ReduceScatter
            | Collective::AllGather
            | Collective::Scatter
            | Collective::Gather
            | Collective::AllToAll => &[FunctionForm::Counts],
            _ => &[FunctionForm::Equal],
        }
    }

    /// Returns whether all shares have the same length.
    fn is_equal(&self) -> bool {
        self.counts.iter().all(|&share| share == self.counts[0])
    }

    /// Returns the numbers of values that `rank` sends and receives.
    fn lengths(&self, rank: Rank) -> (usize, usize) {
        let all = self.count;
        let share = self.counts[rank.index()] as usize;
        let at_root = if rank == self.root { all } else { 0 };
        match self.collective {
            Collective::AllReduce | Collective::Scan => (all, all),
            Collective::ExclusiveScan => (all, if rank == Rank(0) { 0 } else { all }),
            Collective::ReduceScatter => (all, share),
            Collective::AllGather => (share, all),
            Collective::Scatter => (at_root, share),
            Collective::Gather => (share, at_root),
            Collective::Reduce => (all, at_root),
            Collective::AllToAll => (all, share * self.counts.len()),
            // Broadcast has one buffer.
            _ => (0, all),
        }
    }
}

/// Buffers of the caller.
#[derive(Debug)]
pub enum Buffers<'a, T> {
    /// One buffer for the whole array. MPI gets `MPI_IN_PLACE` where it accepts that; broadcast
    /// always has one buffer. Each rank's contribution is at its place in the array. So is the
    /// result, except that a reduce-scatter writes it to the start.
    InPlace(&'a mut [T]),
    /// Two buffers, with exactly the values that this rank sends and receives.
    Split {
        /// Values that this rank sends.
        send: &'a [T],
        /// Space for this rank's result.
        recv: &'a mut [T],
    },
}

/// A duplicated communicator with MPI's collectives.
pub struct Native {
    comm: SimpleCommunicator,
    /// Only the thread that initialised MPI may call it.
    one_thread: PhantomData<*const ()>,
}

impl Native {
    /// Duplicates `communicator`. Calls on the duplicate return errors instead of aborting the job.
    /// All ranks call this function together.
    ///
    /// # Errors
    /// MPI's errors.
    pub fn duplicate(communicator: &impl Communicator) -> Result<Self, Error> {
        Ok(Self { comm: ffi::duplicate(communicator)?, one_thread: PhantomData })
    }

    /// Runs a collective. All ranks make the same call.
    ///
    /// # Errors
    /// MPI's errors; [`Error::Length`]; [`Error::NoSuchCall`] for calls that MPI or Foldwire does
    /// not support in place.
    pub fn run<T: Float>(&self, call: &Call, buffers: Buffers<'_, T>) -> Result<(), Error> {
        let (rank, collective) = (Rank::new(self.comm.rank() as usize), call.collective);
        let check = |buffer, need, have| match need == have {
            true => Ok(()),
            false => Err(Error::Length { buffer, need, have }),
        };
        if call.counts.len() != self.comm.size() as usize {
            return Err(Error::NoSuchCall { collective });
        }
        let memory = match buffers {
            Buffers::InPlace(_)
                if matches!(collective, Collective::Scatter | Collective::Gather) =>
            {
                return Err(Error::NoSuchCall { collective });
            }
            Buffers::Split { .. } if collective == Collective::Broadcast => {
                return Err(Error::NoSuchCall { collective });
            }
            // In place, a rank must send to each rank as many values as it receives from it.
            Buffers::InPlace(_) if collective == Collective::AllToAll && !call.is_equal() => {
                return Err(Error::NoSuchCall { collective });
            }
            Buffers::InPlace(data) => {
                check(BufferSide::Recv, call.count, data.len())?;
                CallMemory::in_place(data)
            }
            Buffers::Split { send, recv } => {
                let (sends, receives) = call.lengths(rank);
                check(BufferSide::Send, sends, send.len())?;
                check(BufferSide::Recv, receives, recv.len())?;
                CallMemory::split(send, recv)
            }
        };
        ffi::collective(&self.comm, call, memory)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_shares_take_the_plain_function_and_others_counts() {
        let first = |collective, count| Call::forms(collective, count, 4)[0];
        assert_eq!(first(Collective::AllGather, 8), FunctionForm::Equal);
        assert_eq!(first(Collective::AllGather, 9), FunctionForm::Counts);
        assert_eq!(first(Collective::ReduceScatter, 8), FunctionForm::Counts);
        assert_eq!(first(Collective::Broadcast, 9), FunctionForm::Equal);
    }

    #[test]
    fn unequal_shares_cannot_take_the_plain_function() {
        for collective in Collective::ALL {
            let call = |count| Call::new(collective, count, 3, Operation::Sum, Rank(0)).unwrap();
            for form in [FunctionForm::Equal, FunctionForm::Counts] {
                for count in [0, 6, 7] {
                    let outcome = call(count).with_form(form).map(|call| call.form);
                    let is_one = Call::forms(collective, count, 3).contains(&form);
                    let refusal = Err(Error::NoSuchCall { collective });
                    assert_eq!(outcome, if is_one { Ok(form) } else { refusal });
                }
            }
        }
        let gather = Call::new(Collective::AllGather, 7, 3, Operation::Sum, Rank(0)).unwrap();
        assert!(gather.with_form(FunctionForm::Equal).is_err());
    }

    #[test]
    fn a_call_knows_every_ranks_share() {
        let call = Call::new(Collective::Gather, 7, 3, Operation::Sum, Rank(2)).unwrap();
        assert_eq!((&call.counts[..], &call.starts[..]), (&[3, 2, 2][..], &[0, 3, 5][..]));
        assert_eq!(call.lengths(Rank(0)), (3, 0));
        assert_eq!(call.lengths(Rank(2)), (2, 7));
        let exchange = Call::new(Collective::AllToAll, 7, 3, Operation::Sum, Rank(0)).unwrap();
        assert_eq!([0, 1].map(|rank| exchange.lengths(Rank(rank))), [(7, 9), (7, 6)]);
    }

    #[test]
    fn shares_may_be_given() {
        let of = |collective, shares: &[usize]| {
            Call::of_shares(collective, shares, Operation::Sum, Rank(0))
        };
        let call = of(Collective::AllGather, &[0, 2, 4]).unwrap();
        assert_eq!(
            (call.count, &call.counts[..], &call.starts[..]),
            (6, &[0, 2, 4][..], &[0, 0, 2][..])
        );
        assert_eq!((call.form, call.lengths(Rank(2))), (FunctionForm::Counts, (4, 6)));
        assert!(call.with_form(FunctionForm::Equal).is_err(), "though 6 divide evenly among 3");
        let exchange = of(Collective::AllToAll, &[0, 2, 4]).unwrap();
        assert_eq!(exchange.lengths(Rank(2)), (6, 12));
        assert!(of(Collective::AllReduce, &[1, 2]).is_err());
        assert!(of(Collective::AllToAll, &[0, 1 << 30, 1]).is_err());
    }

    #[test]
    fn calls_beyond_mpi_are_refused() {
        let call = |count, root| Call::new(Collective::Reduce, count, 3, Operation::Sum, root);
        let count = 1 << 31;
        assert_eq!(call(count, Rank(0)).unwrap_err(), Error::TooLong { count });
        let collective = Collective::Reduce;
        assert_eq!(call(1, Rank(3)).unwrap_err(), Error::NoSuchCall { collective });
    }
}
