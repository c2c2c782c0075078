//! All ranks of a group on one thread, and an all-reduce among them.

use anyhow::{Context, bail, ensure};
use foldwire::codec::CodecParams;
use foldwire::schedule::{ProgramSpec, Schedule};
use foldwire::transport::{FRAMES_PER_LANE, MIN_FRAME_BYTES};
use foldwire::{
    Bound, Collective, Communicator, Config, Error, Float, Op, Operation, Plan, Quantum, Rank,
    Report,
};
use foldwire_arguments::OpArg;
use foldwire_arguments::coding::CodecArg;
use foldwire_threads::{Endpoint, World, drive};
use foldwire_workbench::ranks;

/// Largest frame in bytes, as in the threads backend.
pub(super) const MAX_FRAME: usize = 256 * 1024 + 4096;
/// Largest overhead of a frame in bytes.
const FRAME_OVERHEAD: usize = 512;
/// Largest overhead of a part in a frame, in bytes.
const PART_OVERHEAD: usize = 64;
/// Number of frames of a rank: those of its lane, and the same number on links.
const N_FRAMES: usize = 2 * FRAMES_PER_LANE;

/// The calls that make an all-reduce along a schedule.
#[derive(Clone, Copy)]
pub(super) enum AllReduceMethod {
    /// One all-reduce.
    AllReduce(&'static dyn Schedule),
    /// A reduce and then a broadcast, for schedules that support both but no all-reduce.
    Rooted(&'static dyn Schedule),
}

impl AllReduceMethod {
    /// Returns the method for a schedule; `None` if the schedule supports neither.
    pub(super) fn of(schedule: &'static dyn Schedule) -> Option<Self> {
        let has = |collective| schedule.supports(collective);
        if has(Collective::AllReduce) {
            Some(Self::AllReduce(schedule))
        } else if has(Collective::Reduce) && has(Collective::Broadcast) {
            Some(Self::Rooted(schedule))
        } else {
            None
        }
    }

    pub(super) fn name(self) -> &'static str {
        self.schedule().name()
    }

    fn schedule(self) -> &'static dyn Schedule {
        match self {
            Self::AllReduce(schedule) | Self::Rooted(schedule) => schedule,
        }
    }

    /// Returns the number of parts of the array, and the number of parts that a message must hold.
    fn parts(self, n_ranks: usize) -> (usize, usize) {
        let collective = match self {
            Self::AllReduce(_) => Collective::AllReduce,
            Self::Rooted(_) => Collective::Reduce,
        };
        let call = ProgramSpec::new(collective, n_ranks, Rank(0));
        (self.schedule().n_parts(call), self.schedule().min_run(call))
    }

    /// Returns the size of the smallest frames that hold the parts of an array of `count` values
    /// that a message needs. Frames are small because all ranks share this machine's memory.
    fn frame_bytes<T: Float>(self, coding: CodecArg, n_ranks: usize, count: usize) -> usize {
        let (n_parts, run) = self.parts(n_ranks);
        let params = coding.of_params(CodecParams::new(Quantum::LOSSLESS));
        let codec = coding.codec.instance::<T>(&params);
        let longest = codec.as_dyn().max_encoded_len(count.div_ceil(n_parts));
        let part = longest.map_or(MAX_FRAME, |n_bytes| n_bytes + PART_OVERHEAD);
        (FRAME_OVERHEAD + run * part).clamp(MIN_FRAME_BYTES, MAX_FRAME)
    }

    /// Returns approximately the largest number of bytes that ranks and their operands take.
    pub(super) fn n_bytes<T: Float>(self, coding: CodecArg, n_ranks: usize, count: usize) -> u128 {
        let frame = self.frame_bytes::<T>(coding, n_ranks, count) as u128;
        let (n_parts, run) = self.parts(n_ranks);
        // In a pairwise exchange each rank sends to all others before it receives anything.
        let n_of_each = if n_parts == n_ranks && run == 1 { 2 * n_ranks } else { N_FRAMES };
        n_ranks as u128 * ((2 * count * T::BYTES) as u128 + n_of_each as u128 * frame)
    }
}

/// Result of an all-reduce.
pub(super) struct ReductionOutcome<T> {
    /// Result on rank 0.
    pub(super) result: Vec<T>,
    /// Bound on each operand.
    pub(super) bound: f64,
    /// Largest error that the library states, excluding rounding.
    pub(super) stated: f64,
    /// Number of ranks whose result has other bits than rank 0's.
    pub(super) n_others: usize,
}

/// The ranks, and a buffer for each.
pub(super) struct LocalRanks<T> {
    method: AllReduceMethod,
    comms: Vec<Communicator<Endpoint>>,
    buffers: Vec<Vec<T>>,
}

impl<T: Float> LocalRanks<T> {
    /// Makes ranks that reduce arrays of `count` values. Each rank has one lane, so that its frames
    /// take little memory.
    pub(super) fn new(
        method: AllReduceMethod,
        coding: CodecArg,
        n_ranks: usize,
        count: usize,
    ) -> Result<Self, Error> {
        let frame_bytes = method.frame_bytes::<T>(coding, n_ranks, count);
        let endpoints = World::new(n_ranks).frame_bytes(frame_bytes).endpoints();
        let config = Config::default().with_lanes(1);
        let comms = endpoints.into_iter().map(|one| Communicator::with_config(one, config));
        let comms = comms.collect::<Result<_, _>>()?;
        Ok(Self { method, comms, buffers: vec![Vec::new(); n_ranks] })
    }

    /// All-reduces copies of these arrays, one for each rank.
    pub(super) fn all_reduce(
        &mut self,
        arrays: &[Vec<T>],
        op: OpArg,
        plan: &Plan,
    ) -> anyhow::Result<ReductionOutcome<T>> {
        let Self { method, comms, buffers } = self;
        buffers.iter_mut().zip(arrays).for_each(|(buffer, array)| buffer.clone_from(array));
        let op: Op<'_, T> = op.into();
        let (bound, stated) = match *method {
            AllReduceMethod::AllReduce(schedule) => {
                let plan = plan.with_schedule(schedule);
                let ranks = comms.iter_mut().zip(&mut *buffers);
                finish(
                    ranks.map(|(comm, array)| {
                        comm.start(foldwire::Call::all_reduce(array, op), &plan)
                    }),
                )?
            }
            AllReduceMethod::Rooted(schedule) => {
                let (plan, root) = (plan.with_schedule(schedule), Rank(0));
                let ranks = comms.iter_mut().zip(&mut *buffers);
                let (bound, of_reduce) = finish(ranks.map(|(comm, array)| {
                    comm.start(foldwire::Call::reduce_in_place(array, op, root), &plan)
                }))?;
                // Keep the same quantization step, regardless of the value range of the result.
                let plan = if bound > 0.0 { plan.with_bound(Bound::Absolute(bound)) } else { plan };
                let ranks = comms.iter_mut().zip(&mut *buffers);
                let (_, of_broadcast) = finish(ranks.map(|(comm, array)| {
                    comm.start(foldwire::Call::broadcast(array, root), &plan)
                }))?;
                (bound, of_reduce + of_broadcast)
            }
        };
        let [first, others @ ..] = &buffers[..] else { bail!("there is no rank") };
        let bytes = |array| bytemuck::cast_slice::<T, u8>(array);
        let n_others = others.iter().filter(|other| bytes(other) != bytes(first)).count();
        Ok(ReductionOutcome { result: first.clone(), bound, stated, n_others })
    }
}

/// Runs a call on all ranks to completion. Returns its bound on operands and its stated worst case.
fn finish<'a, T: Float>(
    calls: impl Iterator<Item = Result<Operation<'a, Endpoint, T>, Error>>,
) -> anyhow::Result<(f64, f64)> {
    let reports = ranks::results(drive(calls.collect::<Result<Vec<_>, _>>()?))?;
    let first = reports.first().context("there is no rank")?;
    let is_same = |one: &Report| (one.bound, one.worst_case) == (first.bound, first.worst_case);
    ensure!(reports.iter().all(is_same), "ranks state other worst cases than each other");
    Ok((first.bound, first.worst_case.context("no worst case is stated")?))
}

#[cfg(test)]
mod tests {
    use foldwire::schedule::{Binomial, RecursiveDoubling, ScatterAllGather};

    use super::*;

    #[test]
    fn both_routes_sum_on_one_thread_and_say_what_they_promise() {
        let plan = Plan::foldwire(Bound::Absolute(0.5));
        let arrays: Vec<_> = (0..5_u8).map(|rank| vec![f32::from(rank) + 0.2; 100]).collect();
        for (schedule, stated) in
            [(&RecursiveDoubling as &'static dyn Schedule, 2.5), (&Binomial, 3.0)]
        {
            let method = AllReduceMethod::of(schedule).unwrap();
            let mut local_ranks =
                LocalRanks::new(method, "fz-light".parse().unwrap(), 5, 100).unwrap();
            let outcome = local_ranks.all_reduce(&arrays, OpArg::Sum, &plan).unwrap();
            assert_eq!((outcome.bound, outcome.stated, outcome.n_others), (0.5, stated, 0));
            assert!(outcome.result.iter().all(|sum| (sum - 11.0).abs() <= 2.5));
        }
        assert!(AllReduceMethod::of(&ScatterAllGather).is_none());
    }

    /// A schedule with n² messages must have short messages.
    #[test]
    fn memory_is_bounded_by_every_route() {
        let coding = "fz-light".parse().unwrap();
        for &schedule in foldwire::schedule::ALL {
            let Some(method) = AllReduceMethod::of(schedule) else { continue };
            let n_bytes = method.n_bytes::<f32>(coding, 512, 4096);
            assert!(n_bytes < 1 << 30, "{}: {n_bytes}", schedule.name());
        }
    }
}
