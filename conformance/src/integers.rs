//! Checks that every schedule moves and reduces integers exactly, even if the plan has a bound.

use crate::Backend;
use crate::case::ROUTES;
use crate::data::{self, Random};
use crate::places::Places;
use crate::suite::{Make, PATIENT};
use foldwire::op::OpCode;
use foldwire::schedule::Schedule;
use foldwire::{
    Bound, Call, Collective, Communicator, Element, Error, Incoming, Op, Outgoing, Plan, Rank,
    Transport,
};

/// Tests the narrowest and the widest integers, one of them signed. `make` takes the bytes of a
/// frame, or `None` for the backend's default.
pub(crate) fn integers(make: &Make<'_>, size: usize) {
    all_calls::<i8, _>(&make(Some(20_000)), size);
    all_calls::<u64, _>(&make(None), size);
}

/// Tests every collective with every schedule that supports it, and a message, on integers of one
/// type. The bounds of the plans do not apply to integers.
///
/// # Panics
/// If a result is wrong.
pub fn all_calls<T: Element, B: Backend>(backend: &B, size: usize) {
    let places = Places::of(backend, size);
    let outcomes = backend.run(size, |mut comm| -> Result<(), Error> {
        comm.config_mut().timeout = PATIENT;
        for (seed, &(collective, schedule)) in ROUTES.iter().enumerate() {
            let counts = [1003, 0, 1, size - 1, 9001];
            let case = IntegerCase { size, seed, count: counts[seed % counts.len()] };
            case.call::<T, _>(&places, &mut comm, collective, schedule)?;
        }
        IntegerCase { size, seed: ROUTES.len(), count: 9001 }.pass_on::<T, _>(&mut comm)
    });
    for (rank, outcome) in backend.ranks(size).zip(outcomes) {
        assert_eq!(outcome, Ok(()), "{size} ranks, {}: rank {rank}", T::DTYPE);
    }
}

/// Size, seed and count of a call, from which each rank's values follow.
struct IntegerCase {
    size: usize,
    seed: usize,
    count: usize,
}

impl IntegerCase {
    /// Bits of a rank's values; a narrower type uses the lowest bits.
    fn bits(&self, rank: usize) -> Vec<u64> {
        let mut random = Random((self.seed * self.size + rank) as u64);
        (0..self.count).map(|_| random.bits()).collect()
    }

    fn values<T: Element>(&self, rank: usize) -> Vec<T> {
        self.bits(rank).into_iter().map(data::from_bits).collect()
    }

    /// Expected result of `op` on these ranks' values. Sums and products are computed modulo 2⁶⁴
    /// for all types. Their lowest bits are the result for a narrower type.
    fn reduced<T: Element>(&self, op: &Op<'_, T>, ranks: std::ops::Range<usize>) -> Vec<T> {
        let of_bits = |f: fn(u64, u64) -> u64| {
            let all = ranks.clone().map(|rank| self.bits(rank));
            let reduced = all.reduce(|a, b| a.iter().zip(&b).map(|(&a, &b)| f(a, b)).collect());
            reduced.unwrap_or_default().into_iter().map(data::from_bits).collect()
        };
        let by_order = |wants_less: bool| {
            let all = ranks.clone().map(|rank| self.values::<T>(rank));
            let pick = |a: T, b: T| if (a < b) == wants_less { a } else { b };
            let reduced = all.reduce(|a, b| a.iter().zip(&b).map(|(&a, &b)| pick(a, b)).collect());
            reduced.unwrap_or_default()
        };
        match op {
            Op::Sum => of_bits(u64::wrapping_add),
            Op::Prod => of_bits(u64::wrapping_mul),
            Op::Min => by_order(true),
            _ => by_order(false),
        }
    }

    /// Makes a call with each operation, some of them with a bound in the plan, and checks the
    /// results. Devices take part in no call with a user-defined operation.
    fn call<T: Element, X: Transport>(
        &self,
        places: &Places<'_>,
        comm: &mut Communicator<X>,
        collective: Collective,
        schedule: &'static dyn Schedule,
    ) -> Result<(), Error> {
        let larger = |a: T, b: T| if a > b { a } else { b };
        let all_larger = |acc: &mut [T], other: &[T]| {
            assert_eq!(acc.len(), other.len());
            acc.iter_mut().zip(other).for_each(|(a, &b)| *a = larger(*a, b));
        };
        let users = [Op::User(&larger), Op::UserSlices(&all_larger)];
        let ops = [Op::Sum, Op::Min, Op::Prod, Op::Max].into_iter().chain(users);
        for (i, op) in ops.enumerate() {
            let plan = [Plan::foldwire(Bound::Relative(0.1)), Plan::raw()][i % 2];
            let slices = Places::slices();
            let places = if op.code() == OpCode::User { &slices } else { places };
            self.call_with(places, comm, collective, op, &plan.with_schedule(schedule))?;
        }
        Ok(())
    }

    fn call_with<T: Element, X: Transport>(
        &self,
        places: &Places<'_>,
        comm: &mut Communicator<X>,
        collective: Collective,
        op: Op<'_, T>,
        plan: &Plan,
    ) -> Result<(), Error> {
        let &Self { size, seed, count } = self;
        let (rank, root) = (comm.rank().index(), Rank::new(seed % size));
        let (own, share) = (self.values::<T>(rank), comm.share(count));
        let is_root = rank == root.index();
        let garbage: T = data::from_bits(0xa5a5_a5a5_a5a5_a5a5);
        let buffer = |n: usize| vec![garbage; n];
        let all = || self.reduced(&op, 0..size);
        let whole = self.values::<T>(root.index());
        let (got, want) = match collective {
            Collective::AllReduce => {
                let mut data = own;
                places.run(comm, Call::all_reduce(&mut data, op), plan)?;
                (data, all())
            }
            Collective::ReduceScatter => {
                let mut recv = buffer(share.len());
                places.run(comm, Call::reduce_scatter(own, &mut recv, op), plan)?;
                (recv, all()[share].to_vec())
            }
            Collective::AllGather => {
                let mut recv = buffer(count);
                places.run(comm, Call::all_gather(&whole[share], &mut recv), plan)?;
                (recv, whole)
            }
            Collective::Broadcast => {
                let mut data = if is_root { own } else { buffer(count) };
                places.run(comm, Call::broadcast(&mut data, root), plan)?;
                (data, whole)
            }
            Collective::Scatter => {
                let mut recv = buffer(share.len());
                let send = if is_root { &own[..] } else { &[] };
                places.run(comm, Call::scatter(count, send, &mut recv, root), plan)?;
                (recv, whole[share].to_vec())
            }
            Collective::Gather => {
                let mut recv = buffer(if is_root { count } else { 0 });
                let call = Call::gather(count, &whole[share], &mut recv, root);
                places.run(comm, call, plan)?;
                (recv, if is_root { whole } else { Vec::new() })
            }
            Collective::Reduce => {
                let mut recv = buffer(if is_root { count } else { 0 });
                places.run(comm, Call::reduce(own, &mut recv, op, root), plan)?;
                (recv, if is_root { all() } else { Vec::new() })
            }
            Collective::Scan => {
                let mut data = own;
                places.run(comm, Call::scan(&mut data, op), plan)?;
                (data, self.reduced(&op, 0..rank + 1))
            }
            Collective::ExclusiveScan => {
                let mut recv = buffer(if rank == 0 { 0 } else { count });
                places.run(comm, Call::exclusive_scan_into(own, &mut recv, op), plan)?;
                (recv, self.reduced(&op, 0..rank))
            }
            Collective::AllToAll => {
                let n = share.len();
                let mut recv = buffer(n * size);
                places.run(comm, Call::all_to_all(own, &mut recv), plan)?;
                let from = |rank| self.values::<T>(rank)[share.clone()].to_vec();
                (recv, (0..size).flat_map(from).collect())
            }
            other => panic!("the suite has no call for {}", other.name()),
        };
        let name = (collective.name(), plan.schedule.map(Schedule::name), op.code());
        assert!(got == want, "{name:?} of {count} {}, rank {rank} of {size}", T::DTYPE);
        Ok(())
    }

    /// Sends each rank's values to the next rank, and checks that an average is rejected.
    fn pass_on<T: Element, X: Transport>(&self, comm: &mut Communicator<X>) -> Result<(), Error> {
        let (rank, size) = (comm.rank().index(), self.size);
        let [before, after] = [rank + size - 1, rank + 1].map(|rank| rank % size);
        let (own, mut got) = (self.values::<T>(rank), self.values::<T>(rank));
        let recv = Incoming::new(Rank::new(before), 7, &mut got);
        let send = Outgoing::new(Rank::new(after), 7, &own);
        comm.send_recv(send, recv, &Plan::foldwire(Bound::Relative(0.1)))?;
        assert!(got == self.values::<T>(before), "{}, from rank {before}", T::DTYPE);

        let refused = comm.all_reduce(&mut got, Op::Avg, &Plan::raw()).map(drop);
        assert_eq!(refused, Err(Error::NoIntegerAverage { dtype: T::DTYPE }));
        let sum = comm.all_reduce_scalar(T::ONE, Op::Sum)?;
        assert!(sum == data::from_bits(size as u64), "{sum:?} of {size}");
        Ok(())
    }
}
