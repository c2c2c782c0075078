//! One collective on arrays of one length: each rank's input and share, and the exact result.

use std::ops::Range;

use foldwire::bound::{rounding, underflow};
use foldwire::layout::{Shares, Window, share};
use foldwire::{Call, Collective, Float, Rank, schedule};
use foldwire_arguments::OpArg;
use foldwire_workbench::data::Data;

/// A collective of `size` ranks on an array of `count` values, from the view of `rank`.
#[derive(Debug, Clone, Copy)]
pub(super) struct Problem {
    pub(super) collective: Collective,
    pub(super) op: OpArg,
    pub(super) root: Rank,
    /// Always false for scatter, gather, and an all-to-all with uneven shares.
    pub(super) in_place: bool,
    /// True if shares grow with the rank: rank r has r of the 1 + 2 + … + (size − 1) equal parts of
    /// the array. So rank 0's share is empty.
    pub(super) is_uneven: bool,
    pub(super) count: usize,
    pub(super) size: usize,
    pub(super) rank: usize,
}

impl Problem {
    /// The sum of equal shares, from one buffer to another; the root is rank 0.
    pub(super) const fn sum(
        collective: Collective,
        count: usize,
        size: usize,
        rank: usize,
    ) -> Self {
        let (op, root, in_place, is_uneven) = (OpArg::Sum, Rank(0), false, false);
        Self { collective, op, root, in_place, is_uneven, count, size, rank }
    }

    fn is_root(&self) -> bool {
        self.rank == self.root.index()
    }

    /// Returns a rank's share of the array.
    fn share(&self, rank: usize) -> Range<usize> {
        if !self.is_uneven || self.size == 1 {
            return share(self.count, self.size, rank);
        }
        // 0 + 1 + … + (n − 1)
        let sum = |n: usize| (n * (n - n.min(1)) / 2) as u128;
        let start = |rank| (self.count as u128 * sum(rank) / sum(self.size)) as usize;
        start(rank)..start(rank + 1)
    }

    /// Returns the call on these buffers. For uneven shares, `counts` holds the lengths of all
    /// shares, and `from_each` the lengths that an all-to-all receives from each rank.
    pub(super) fn call<'a, T: Float, S, R>(
        &self,
        [counts, from_each]: [&'a [usize]; 2],
        send: S,
        recv: R,
    ) -> Call<'a, T, S, R> {
        let shares = match self.collective {
            Collective::AllReduce | Collective::Broadcast | Collective::Reduce => None,
            Collective::Scan | Collective::ExclusiveScan => None,
            Collective::AllToAll => Some(Shares::Exchanged { send: counts, recv: from_each }),
            _ => Some(Shares::Given(counts)),
        };
        let shares = shares.filter(|_| self.is_uneven).unwrap_or(Shares::Even(self.count));
        let window = match self.collective {
            Collective::Broadcast => Window::Whole,
            Collective::Scatter | Collective::Gather => Window::Own,
            _ if self.in_place => Window::Whole,
            _ => Window::Own,
        };
        let call = Call::of(self.collective, shares, window, send, recv);
        call.with_op(self.op.into()).with_root(self.root)
    }

    /// Returns the lengths that [`call`](Self::call) needs.
    pub(super) fn all_counts(&self) -> [Vec<usize>; 2] {
        let counts = if self.is_uneven { self.counts() } else { Vec::new() };
        let own = counts.get(self.rank).map_or(0, |&own| own);
        let from_each = vec![own; counts.len()];
        [counts, from_each]
    }

    /// Returns the lengths of all ranks' shares.
    pub(super) fn counts(&self) -> Vec<usize> {
        (0..self.size).map(|rank| self.share(rank).len()).collect()
    }

    fn own_share(&self) -> Range<usize> {
        self.share(self.rank)
    }

    /// Returns this rank's input, as a range of the array.
    pub(super) fn contribution(&self) -> Range<usize> {
        match self.collective {
            Collective::AllGather | Collective::Gather => self.own_share(),
            Collective::Broadcast | Collective::Scatter if !self.is_root() => 0..0,
            _ => 0..self.count,
        }
    }

    /// Returns this rank's result, as a range of the array. For an all-to-all it is a range of the
    /// receive buffer.
    pub(super) fn result(&self) -> Range<usize> {
        match self.collective {
            Collective::AllToAll => 0..self.size * self.own_share().len(),
            Collective::ReduceScatter | Collective::Scatter => self.own_share(),
            Collective::Gather | Collective::Reduce if !self.is_root() => 0..0,
            Collective::ExclusiveScan if self.rank == 0 => 0..0,
            _ => 0..self.count,
        }
    }

    /// Returns the numbers of values in this rank's send and receive buffers.
    pub(super) fn buffer_lens(&self) -> [usize; 2] {
        let recv = if self.one_buffer() { self.count } else { self.result().len() };
        [self.contribution().len(), recv]
    }

    /// Returns whether input and result share a buffer that holds the whole array.
    pub(super) fn one_buffer(&self) -> bool {
        self.in_place || self.collective == Collective::Broadcast
    }

    /// Returns bus bandwidth over algorithm bandwidth, as nccl-tests define it (doc/PERFORMANCE.md
    /// there).
    pub(super) fn bus_factor(&self) -> f64 {
        let n = self.size as f64;
        match self.collective {
            Collective::AllReduce => 2.0 * (n - 1.0) / n,
            Collective::Broadcast
            | Collective::Reduce
            | Collective::Scan
            | Collective::ExclusiveScan => 1.0,
            _ => (n - 1.0) / n,
        }
    }

    /// Computes the exact result in f64, from index `first` of the array on.
    pub(super) fn exact<T: Float>(&self, data: &Data<T>, first: usize, out: &mut [f64]) {
        let mut values = vec![T::from_f64(0.0); out.len()];
        match self.collective {
            collective if collective.reduces() => {
                let call = schedule::ProgramSpec::new(collective, self.size, self.root);
                for rank in 0..call.n_operands(Rank::new(self.rank)) {
                    data.fill_known(rank, first, &mut values);
                    for (out, value) in out.iter_mut().zip(&values) {
                        let value = value.to_f64();
                        *out = if rank == 0 { value } else { combine(self.op, *out, value) };
                    }
                }
                let divisor = if self.op == OpArg::Avg { self.size as f64 } else { 1.0 };
                out.iter_mut().for_each(|out| *out /= divisor);
                return;
            }
            Collective::Broadcast | Collective::Scatter => {
                data.fill_known(self.root.index(), first, &mut values);
            }
            Collective::AllToAll => {
                let share = self.own_share();
                let mut place = first;
                while place < first + values.len() {
                    // Up to the end of one rank's values.
                    let (source, offset) = (place / share.len(), place % share.len());
                    let end = (first + values.len()).min(place - offset + share.len());
                    let piece = &mut values[place - first..end - first];
                    data.fill_known(source, share.start + offset, piece);
                    place = end;
                }
            }
            _ => {
                let end = first + values.len();
                for rank in 0..self.size {
                    let share = self.share(rank);
                    let (start, end) = (share.start.max(first), share.end.min(end));
                    if start < end {
                        data.fill_known(rank, start, &mut values[start - first..end - first]);
                    }
                }
            }
        }
        out.iter_mut().zip(&values).for_each(|(out, value)| *out = value.to_f64());
    }

    /// Returns a limit on the absolute values of partial results, for any order of the operands.
    /// The absolute values of operands are at most `magnitude`. Returns 0 if nothing is added or
    /// multiplied.
    pub(super) fn largest_partial(&self, magnitude: f64) -> f64 {
        match self.op {
            _ if !self.collective.reduces() => 0.0,
            OpArg::Sum | OpArg::Avg => self.size as f64 * magnitude,
            OpArg::Prod => magnitude.max(1.0).powf(self.size as f64),
            OpArg::Min | OpArg::Max => 0.0,
        }
    }

    /// Computes the limit of [`largest_partial`](Self::largest_partial) for each value of the
    /// array, from index `first` on. Leaves out operands that are not finite. Only for sums,
    /// averages and products: minima and maxima cannot overflow, so they need no limit.
    pub(super) fn partials<T: Float>(&self, data: &Data<T>, first: usize, out: &mut [f64]) {
        let call = schedule::ProgramSpec::new(self.collective, self.size, self.root);
        let mut values = vec![T::from_f64(0.0); out.len()];
        out.fill(if self.op == OpArg::Prod { 1.0 } else { 0.0 });
        for rank in 0..call.n_operands(Rank::new(self.rank)) {
            data.fill_known(rank, first, &mut values);
            for (out, value) in out.iter_mut().zip(&values) {
                let value = value.to_f64().abs();
                match self.op {
                    _ if !value.is_finite() => {}
                    OpArg::Prod => *out *= value.max(1.0),
                    _ => *out += value,
                }
            }
        }
    }

    /// Returns the largest rounding error in `T`, if absolute values are at most `magnitude`.
    /// Collectives that only move data do not round.
    pub(super) fn rounding<T: Float>(&self, magnitude: f64) -> f64 {
        if !self.collective.reduces() {
            return 0.0;
        }
        let n = self.size as f64;
        let largest = match self.op {
            OpArg::Sum => n * magnitude,
            OpArg::Avg | OpArg::Min | OpArg::Max => magnitude,
            // No partial product exceeds this.
            OpArg::Prod => magnitude.max(1.0).powf(n),
        };
        let underflow = match self.op {
            OpArg::Avg => underflow::<T>(self.size),
            _ => 0.0,
        };
        rounding::<T>(self.size, largest) + underflow
    }
}

/// Applies the operation to two values. As in Foldwire, the result is NaN if either value is.
fn combine(op: OpArg, a: f64, b: f64) -> f64 {
    let ordered = |pick: fn(f64, f64) -> f64| {
        if a.is_nan() || b.is_nan() { f64::NAN } else { pick(a, b) }
    };
    match op {
        OpArg::Sum | OpArg::Avg => a + b,
        OpArg::Min => ordered(f64::min),
        OpArg::Max => ordered(f64::max),
        OpArg::Prod => a * b,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problem(collective: Collective, rank: usize) -> Problem {
        let root = Rank(1);
        let (op, in_place, is_uneven) = (OpArg::Sum, false, false);
        Problem { collective, op, root, in_place, is_uneven, count: 7, size: 3, rank }
    }

    #[test]
    fn ranks_send_and_receive_what_the_collective_says() {
        let ranges = |collective, rank| {
            let problem = problem(collective, rank);
            (problem.contribution(), problem.result())
        };
        assert_eq!(ranges(Collective::AllReduce, 0), (0..7, 0..7));
        assert_eq!(ranges(Collective::ReduceScatter, 2), (0..7, 5..7));
        assert_eq!(ranges(Collective::AllGather, 0), (0..3, 0..7));
        assert_eq!(ranges(Collective::Broadcast, 0), (0..0, 0..7));
        assert_eq!(ranges(Collective::Scatter, 1), (0..7, 3..5));
        assert_eq!(ranges(Collective::Gather, 0), (0..3, 0..0));
        assert_eq!(ranges(Collective::Reduce, 1), (0..7, 0..7));
        assert_eq!(ranges(Collective::AllToAll, 0), (0..7, 0..9));
    }

    #[test]
    fn uneven_shares_grow_from_nothing_to_the_whole() {
        let of = |size, count| {
            let problem = problem(Collective::Gather, 0);
            Problem { is_uneven: true, size, count, ..problem }.counts()
        };
        assert_eq!(of(4, 600), [0, 100, 200, 300]);
        assert_eq!((of(1, 5), of(2, 5), of(3, 0)), (vec![5], vec![0, 5], vec![0, 0, 0]));
        assert_eq!(of(7, 1000).iter().sum::<usize>(), 1000);
        let exchange = Problem { is_uneven: true, ..problem(Collective::AllToAll, 2) };
        assert_eq!((exchange.counts(), exchange.result()), (vec![0, 2, 5], 0..15));
    }

    #[test]
    fn exact_results_by_hand() {
        // Rank r begins at value 2·r of six, and wraps.
        let data = Data::new(vec![1.0_f32, 2.0, 4.0, 8.0, 16.0, 32.0], 3, "test".into());
        let exact = |collective, op| {
            let mut out = [0.0; 7];
            Problem { op, ..problem(collective, 0) }.exact(&data, 0, &mut out);
            out
        };
        let sum = |op| exact(Collective::AllReduce, op);
        assert_eq!(sum(OpArg::Sum), [21.0, 42.0, 21.0, 42.0, 21.0, 42.0, 21.0]);
        assert_eq!(sum(OpArg::Avg)[..2], [7.0, 14.0]);
        assert_eq!(sum(OpArg::Min)[..3], [1.0, 2.0, 1.0]);
        assert_eq!(sum(OpArg::Max)[..3], [16.0, 32.0, 16.0]);
        assert_eq!(sum(OpArg::Prod)[..2], [64.0, 512.0]);
        let moved = |collective| exact(collective, OpArg::Sum);
        assert_eq!(moved(Collective::Broadcast), [4.0, 8.0, 16.0, 32.0, 1.0, 2.0, 4.0]);
        // Three values of rank 0, then two of rank 1, then two of rank 2.
        assert_eq!(moved(Collective::Gather), [1.0, 2.0, 4.0, 32.0, 1.0, 8.0, 16.0]);
        // The first three values of each rank, whose data begin at 1, 4 and 16.
        let mut exchanged = [0.0; 9];
        problem(Collective::AllToAll, 0).exact(&data, 0, &mut exchanged);
        assert_eq!(exchanged, [1.0, 2.0, 4.0, 4.0, 8.0, 16.0, 16.0, 32.0, 1.0]);
        let mut piece = [0.0; 3];
        problem(Collective::Gather, 0).exact(&data, 2, &mut piece);
        assert_eq!(piece, [4.0, 32.0, 1.0]);
    }

    #[test]
    fn nan_wins() {
        assert!(combine(OpArg::Min, f64::NAN, 1.0).is_nan());
        assert!(combine(OpArg::Max, 1.0, f64::NAN).is_nan());
    }

    #[test]
    fn movement_rounds_nothing_and_reductions_do() {
        assert_eq!(problem(Collective::AllGather, 0).rounding::<f32>(10.0), 0.0);
        let sum = problem(Collective::Reduce, 0).rounding::<f32>(10.0);
        assert!(sum > 0.0 && sum < 1e-3);
    }

    #[test]
    fn bus_factors_are_those_of_nccl_tests() {
        assert_eq!(problem(Collective::AllReduce, 0).bus_factor(), 4.0 / 3.0);
        assert_eq!(problem(Collective::AllGather, 0).bus_factor(), 2.0 / 3.0);
        assert_eq!(problem(Collective::Broadcast, 0).bus_factor(), 1.0);
    }
}
