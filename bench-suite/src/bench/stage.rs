//! Where contestants run: one rank's communicator and buffers, the clock, and what ranks tell each
//! other.

use std::time::Instant;

use foldwire::layout::share;
use foldwire::schedule::RecursiveDoubling;
use foldwire::{Communicator, Float, Op, Plan, Transport};
use foldwire_fields::memory::{self, NoMemory};

use super::contestant::{Buffers, Contestant, Done};
use super::data::Data;
use super::problem::Problem;
use super::verdict::Verdict;
use crate::memory::Memcpy;

/// Waits until all ranks have called it.
pub(crate) type Barrier<X> = dyn FnMut(&mut Communicator<X>) -> anyhow::Result<()>;

/// A barrier over any transport: nobody knows the sum before everybody has given a value.
pub(crate) fn barrier<X: Transport>(comm: &mut Communicator<X>) -> anyhow::Result<()> {
    let plan = Plan::raw().with_schedule(&RecursiveDoubling);
    comm.all_reduce(&mut [0.0_f32], Op::Sum, &plan)?;
    Ok(())
}

/// Tells every rank every rank's numbers, in rank order; as many from each.
pub(crate) fn tell<X: Transport>(
    comm: &mut Communicator<X>,
    mine: &[f64],
) -> anyhow::Result<Vec<Vec<f64>>> {
    let mut all = vec![0.0; mine.len() * comm.size()];
    comm.all_gather(mine, &mut all, &Plan::raw())?;
    Ok((0..comm.size()).map(|rank| all[share(all.len(), comm.size(), rank)].to_vec()).collect())
}

/// One rank's place in a benchmark of one problem.
pub(super) struct Stage<'a, X: Transport, T> {
    pub(super) comm: &'a mut Communicator<X>,
    pub(super) barrier: &'a mut Barrier<X>,
    pub(super) problem: Problem,
    pub(super) buffers: Buffers<T>,
}

impl<'a, X: Transport, T: Float> Stage<'a, X, T> {
    /// # Errors
    /// When there is no memory for the buffers.
    pub(super) fn new(
        comm: &'a mut Communicator<X>,
        barrier: &'a mut Barrier<X>,
        problem: Problem,
        data: &Data<T>,
    ) -> Result<Self, NoMemory> {
        let [n_sent, n_received] = problem.buffer_lens();
        let mut send = memory::zeroed(n_sent)?;
        data.fill(problem.rank, problem.contribution().start, &mut send);
        let buffers = Buffers { send, recv: memory::zeroed(n_received)? };
        Ok(Self { comm, barrier, problem, buffers })
    }

    /// This rank's time of one run, in seconds.
    pub(super) fn run(
        &mut self,
        contestant: &mut dyn Contestant<X, T>,
    ) -> anyhow::Result<(f64, Done)> {
        let Self { comm, barrier, problem, buffers } = self;
        if problem.one_buffer() {
            let at = problem.contribution();
            buffers.recv[at].copy_from_slice(&buffers.send);
        }
        let mut started = Instant::now();
        let mut start = |comm: &mut Communicator<X>| {
            barrier(comm)?;
            started = Instant::now();
            Ok(())
        };
        let done = contestant.run(comm, problem, buffers, &mut start)?;
        Ok(((done.ended - started).as_secs_f64(), done))
    }

    /// As [`run`](Self::run), into a buffer that held nothing of an earlier result, and then looks
    /// at the result.
    pub(super) fn run_checked(
        &mut self,
        contestant: &mut dyn Contestant<X, T>,
        data: &Data<T>,
    ) -> anyhow::Result<(f64, Done, Verdict)>
    where
        T: Into<f64>,
    {
        self.buffers.recv.fill(T::from_f64(f64::NAN));
        let (time, done) = self.run(contestant)?;
        let place = self.problem.result();
        let default = if self.problem.one_buffer() { place.start } else { 0 };
        let at = done.result_at.unwrap_or(default);
        // What is not Foldwire's has no error but rounding.
        let worst_case = done.report.map_or(Some(0.0), |report| report.worst_case);
        let rounding = self.problem.rounding::<T>(data.magnitude());
        let allowed = worst_case.map(|worst| worst + rounding);
        let result = &self.buffers.recv[at..at + place.len()];
        let verdict = Verdict::of(&self.problem, data, result, allowed);
        Ok((time, done, verdict))
    }

    /// This rank's time, in seconds, of a copy of its own while all others copy theirs.
    pub(super) fn copy(&mut self, memcpy: &mut Memcpy<'_, T>) -> anyhow::Result<f64> {
        (self.barrier)(self.comm)?;
        Ok(memcpy.run().as_secs_f64())
    }

    /// The largest of all ranks' numbers.
    pub(super) fn largest(&mut self, mine: f64) -> anyhow::Result<f64> {
        let all = tell(self.comm, &[mine])?;
        Ok(all.into_iter().flatten().fold(f64::NEG_INFINITY, f64::max))
    }
}
