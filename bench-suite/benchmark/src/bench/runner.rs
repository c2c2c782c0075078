//! Runs implementations: one rank's communicator and buffers, the clock, and the exchange of
//! measurements between ranks.

use std::time::Instant;

use anyhow::Context;
use foldwire::schedule::RecursiveDoubling;
use foldwire::{Communicator, Error, Float, Op, Plan, Rank, Report, Transport};
use foldwire_fields::memory::{self, NoMemory};
use foldwire_workbench::data::Data;
use foldwire_workbench::memory::Memcpy;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::implementation::{CompletedRun, Implementation, ProblemBuffers, Run};
use super::overlap::{self, OverlapWork};
use super::problem::Problem;
use super::result_check::ResultCheck;
use super::row::median;

/// One rank's communicator, of any type.
pub(crate) trait AnyCommunicator {
    fn rank(&self) -> Rank;

    fn size(&self) -> usize;

    /// Replaces `data` by its sum over all ranks.
    fn sum(&mut self, data: &mut [f32], plan: &Plan) -> Result<Report, Error>;

    /// Gathers every rank's `mine` in `all`, in rank order.
    fn gather(&mut self, mine: &[u8], all: &mut [u8]) -> Result<Report, Error>;
}

impl<X: Transport> AnyCommunicator for Communicator<X> {
    fn rank(&self) -> Rank {
        self.rank()
    }

    fn size(&self) -> usize {
        self.size()
    }

    fn sum(&mut self, data: &mut [f32], plan: &Plan) -> Result<Report, Error> {
        self.all_reduce(data, Op::Sum, plan)
    }

    fn gather(&mut self, mine: &[u8], all: &mut [u8]) -> Result<Report, Error> {
        self.all_gather(mine, all, &Plan::raw())
    }
}

/// Waits until all ranks have called it.
pub(crate) type Barrier<'b, C> = dyn FnMut(&mut C) -> anyhow::Result<()> + 'b;

/// A barrier over any transport: no rank knows a sum before all ranks have contributed.
pub(crate) fn barrier<C: AnyCommunicator>(comm: &mut C) -> anyhow::Result<()> {
    let plan = Plan::raw().with_schedule(&RecursiveDoubling);
    comm.sum(&mut [0.0], &plan)?;
    Ok(())
}

/// Returns every rank's value, in rank order. Values travel as JSON, which preserves the bits of
/// finite floats. Floats that may be infinite or NaN need [`bits`].
pub(crate) fn gather_json<V: Serialize + DeserializeOwned>(
    comm: &mut dyn AnyCommunicator,
    mine: &V,
) -> anyhow::Result<Vec<V>> {
    let all = gather_padded(comm, serde_json::to_vec(mine)?)?;
    all.iter().map(|value| Ok(serde_json::from_slice(value)?)).collect()
}

/// Returns all ranks' texts, padded with blanks to the longest.
fn gather_padded(comm: &mut dyn AnyCommunicator, mut mine: Vec<u8>) -> Result<Vec<Vec<u8>>, Error> {
    let mut lens = vec![[0; size_of::<u64>()]; comm.size()];
    comm.gather(&(mine.len() as u64).to_le_bytes(), lens.as_flattened_mut())?;
    let longest = lens.into_iter().map(u64::from_le_bytes).max().unwrap_or(0) as usize;
    mine.resize(longest, b' ');
    let mut all = vec![0; longest * comm.size()];
    comm.gather(&mine, &mut all)?;
    Ok(all.chunks_exact(longest).map(<[u8]>::to_vec).collect())
}

/// Serialises floats as their bits (`#[serde(with = "bits")]`), since JSON has neither NaN nor
/// infinities.
pub(crate) mod bits {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub(crate) fn serialize<S: Serializer>(x: &f64, serializer: S) -> Result<S::Ok, S::Error> {
        x.to_bits().serialize(serializer)
    }

    pub(crate) fn deserialize<'d, D: Deserializer<'d>>(deserializer: D) -> Result<f64, D::Error> {
        u64::deserialize(deserializer).map(f64::from_bits)
    }
}

/// One rank's communicator, barrier and buffers for one problem.
pub(super) struct Runner<'a, C: AnyCommunicator, T> {
    pub(super) comm: &'a mut C,
    pub(super) barrier: &'a mut Barrier<'a, C>,
    pub(super) problem: Problem,
    pub(super) buffers: ProblemBuffers<T>,
}

impl<'a, C: AnyCommunicator, T: Float> Runner<'a, C, T> {
    /// Makes a runner with buffers for the problem. The send buffer holds this rank's input.
    ///
    /// # Errors
    /// Fails if there is no memory for the buffers.
    pub(super) fn new(
        comm: &'a mut C,
        barrier: &'a mut Barrier<'a, C>,
        problem: Problem,
        data: &Data<T>,
    ) -> Result<Self, NoMemory> {
        let [n_sent, n_received] = problem.buffer_lens();
        let mut send = memory::zeroed(n_sent)?;
        data.fill(problem.rank, problem.contribution().start, &mut send);
        let mut recv = memory::zeroed(n_received)?;
        // The first call must not pay for the page faults of fresh memory.
        recv.fill(T::from_f64(0.0));
        let buffers = ProblemBuffers { send, recv };
        Ok(Self { comm, barrier, problem, buffers })
    }

    /// Runs the implementation once, and returns this rank's time in seconds.
    pub(super) fn run(
        &mut self,
        implementation: &mut dyn Implementation<C, T>,
    ) -> anyhow::Result<(f64, CompletedRun)> {
        let run = self.run_with(implementation, None)?;
        run.context("the implementation did not run")
    }

    /// Runs like [`run`](Self::run), with `work` between the start and the completion of the call
    /// if given. Returns `None` if the implementation does not support that.
    fn run_with(
        &mut self,
        implementation: &mut dyn Implementation<C, T>,
        work: Option<&OverlapWork>,
    ) -> anyhow::Result<Option<(f64, CompletedRun)>> {
        if work.is_some() && !implementation.can_overlap() {
            return Ok(None);
        }
        let Self { comm, barrier, problem, buffers } = self;
        if problem.one_buffer() {
            let at = problem.contribution();
            buffers.recv[at].copy_from_slice(&buffers.send);
        }
        let mut started = Instant::now();
        let mut start = |comm: &mut C| {
            barrier(comm)?;
            started = Instant::now();
            Ok(())
        };
        let run = Run { comm: &mut **comm, problem, buffers, start: &mut start, work };
        let completed = implementation.run(run)?;
        Ok(Some(((completed.ended - started).as_secs_f64(), completed)))
    }

    /// Returns this rank's seconds for the work, while all ranks compute.
    pub(super) fn work(&mut self, work: &OverlapWork) -> anyhow::Result<f64> {
        (self.barrier)(self.comm)?;
        let started = Instant::now();
        work.run(|| {});
        Ok(started.elapsed().as_secs_f64())
    }

    /// Returns work that takes about as long as a run, and polls `n_polls` times.
    pub(super) fn work_like(
        &mut self,
        implementation: &mut dyn Implementation<C, T>,
        n_polls: usize,
    ) -> anyhow::Result<OverlapWork> {
        let wanted = self.slowest(|runner| Ok(runner.run(implementation)?.0))?;
        let mut work = OverlapWork::trial(n_polls);
        for _ in 0..overlap::N_TRIALS {
            work = work.lasting(wanted, self.slowest(|runner| runner.work(&work))?);
        }
        Ok(work)
    }

    /// Returns the median over several runs of the slowest rank's time.
    fn slowest(
        &mut self,
        mut run: impl FnMut(&mut Self) -> anyhow::Result<f64>,
    ) -> anyhow::Result<f64> {
        let mut times = Vec::new();
        for _ in 0..overlap::N_RUNS {
            let time = run(self)?;
            times.push(self.largest(time)?);
        }
        Ok(median(&times))
    }

    /// Returns this rank's seconds of the work alone, and of a run with the work. Returns `None` if
    /// the implementation does not support that.
    pub(super) fn run_beside(
        &mut self,
        implementation: &mut dyn Implementation<C, T>,
        work: &OverlapWork,
    ) -> anyhow::Result<Option<[f64; 2]>> {
        let alone = self.work(work)?;
        Ok(self.run_with(implementation, Some(work))?.map(|(time, _)| [alone, time]))
    }

    /// Runs with cleared buffers, and with `work` during the call if given, then checks all
    /// results. Returns `None` if the implementation does not support work during calls.
    pub(super) fn check(
        &mut self,
        implementation: &mut dyn Implementation<C, T>,
        data: &Data<T>,
        work: Option<&OverlapWork>,
    ) -> anyhow::Result<Option<ResultCheck>>
    where
        T: Into<f64>,
    {
        self.buffers.recv.fill(T::from_f64(f64::NAN));
        implementation.clear_results();
        let Some((_, completed)) = self.run_with(implementation, work)? else { return Ok(None) };
        let place = self.problem.result();
        let default = if self.problem.one_buffer() { place.start } else { 0 };
        let at = completed.result_at.unwrap_or(default);
        // Other libraries have no error except rounding.
        let worst_case = completed.report.map_or(Some(0.0), |report| report.worst_case);
        let rounding = self.problem.rounding::<T>(data.magnitude());
        let allowed = worst_case.map(|worst| worst + rounding);
        let mut result_check = ResultCheck::default();
        for nth in 0..implementation.n_results() {
            implementation.fetch(nth, &mut self.buffers);
            let result = &self.buffers.recv[at..at + place.len()];
            result_check = result_check.and(ResultCheck::of(&self.problem, data, result, allowed));
        }
        Ok(Some(result_check))
    }

    /// Returns this rank's time of a copy in seconds, while all ranks copy.
    pub(super) fn copy(&mut self, memcpy: &mut Memcpy<'_, T>) -> anyhow::Result<f64> {
        (self.barrier)(self.comm)?;
        Ok(memcpy.run().as_secs_f64())
    }

    /// Returns the largest of all ranks' numbers.
    pub(super) fn largest(&mut self, mine: f64) -> anyhow::Result<f64> {
        // The time of a failed run is infinite, which JSON cannot represent.
        let all = gather_json(self.comm, &mine.to_bits())?;
        Ok(all.into_iter().map(f64::from_bits).fold(f64::NEG_INFINITY, f64::max))
    }
}
