//! `--in-flight N`: N concurrent calls on a [`SharedCommunicator`], each with its own buffers.
//!
//! A run starts all calls and waits for all of them. Its time is divided by their number. The
//! result of every call is checked.

use std::rc::Rc;
use std::time::Instant;

use anyhow::Context;
use foldwire::Transport;
use foldwire::{DType, Error, Float, Op, Pending, Plan, Rank, Report, SharedCommunicator};
use foldwire_fields::memory;
use foldwire_fields::usage::usage;

use super::benchmark::{Benchmark, Settings};
use super::call_mode::{self, BackendExtras, BenchInputs, CallMode};
use super::implementation::{
    CompletedRun, Implementation, PlanImplementation, ProblemBuffers, Run,
};
use super::output::{BenchHead, BenchResults};
use super::problem::Problem;
use super::runner::{AnyCommunicator, Runner};
use super::{config, plans, progress};
use crate::job;

/// Makes several calls at once. It supports only `f32`, because each further type would be compiled
/// again for every transport.
pub(super) struct ConcurrentCalls;

impl CallMode<f32> for ConcurrentCalls {
    fn run_rank<'a, X: Transport + 'a>(
        inputs: BenchInputs<'a, f32>,
        endpoint: X,
        extras: BackendExtras<'a, X, f32>,
    ) -> anyhow::Result<BenchResults> {
        let BenchInputs { args, settings, data, pools, .. } = inputs;
        let head = BenchHead::new(&inputs, &endpoint);
        let n_calls = settings.in_flight;
        if endpoint.rank() == Rank(0) {
            call_mode::remark_short_frames(&inputs, &endpoint);
        }
        // All calls of a communicator have the same threads.
        let config = config(args)?.with_threads(pools.of(None));
        let comm = SharedCommunicator::with_config(endpoint, config, n_calls);
        let comm = comm.map_err(|error| match error {
            Error::TooFewChannels { have, .. } => anyhow::Error::from(usage!(
                "--in-flight {n_calls} is too much here: there is room for {have} calls at once; \
                 ask for fewer, or for fewer --lanes"
            )),
            error => error.into(),
        })?;
        let mut implementations: Vec<Box<dyn Implementation<SharedCommunicator<'a, X>, f32> + 'a>> =
            Vec::new();
        for of in plans(args, DType::F32, data.shape(), pools) {
            let (send, recv) = (Vec::new(), Vec::new());
            implementations.push(Box::new(ConcurrentImplementation {
                of,
                settings,
                n_calls,
                send,
                recv,
            }));
        }
        let progress = progress(comm.rank().index());
        let mut wait = job::barrier_of(extras.library);
        let shares_memory = head.shares_memory(settings);
        let (barrier, progress) = (wait.as_mut(), &progress);
        let benchmark =
            Benchmark { comm, barrier, implementations, settings, shares_memory, data, progress };
        Ok(BenchResults { head, outcome: benchmark.run()? })
    }
}

impl<'a, X: Transport + 'a> AnyCommunicator for SharedCommunicator<'a, X> {
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

/// A plan that runs in several calls at once.
struct ConcurrentImplementation<'a, T> {
    of: PlanImplementation,
    settings: &'a Settings,
    n_calls: usize,
    /// Buffers of each call.
    send: Vec<Rc<[T]>>,
    recv: Vec<Vec<T>>,
}

impl<'a, X: Transport + 'a, T: Float> Implementation<SharedCommunicator<'a, X>, T>
    for ConcurrentImplementation<'a, T>
{
    fn name(&self) -> &'static str {
        self.of.name
    }

    fn title(&self) -> String {
        self.of.title.clone()
    }

    fn prepare(
        &mut self,
        runner: &mut Runner<'_, SharedCommunicator<'a, X>, T>,
    ) -> anyhow::Result<()> {
        let ProblemBuffers { send, recv } = &runner.buffers;
        self.send = (0..self.n_calls).map(|_| Rc::from(&send[..])).collect();
        let empty = (0..self.n_calls).map(|_| memory::zeroed(recv.len()));
        self.recv = empty.collect::<Result<_, _>>()?;
        Ok(())
    }

    fn run(&mut self, run: Run<'_, SharedCommunicator<'a, X>, T>) -> anyhow::Result<CompletedRun> {
        let Run { comm, problem, start, work, .. } = run;
        if problem.one_buffer() {
            for (send, recv) in self.send.iter().zip(&mut self.recv) {
                recv[problem.contribution()].copy_from_slice(send);
            }
        }
        let buffers: Vec<_> = self.send.iter().cloned().zip(self.recv.drain(..)).collect();
        let nth = self.settings.counts.iter().position(|&count| count == problem.count);
        let counts = nth.map_or(&[][..], |nth| &self.settings.shares[nth]);
        let plan = self.of.plan::<T>(problem);
        start(comm)?;
        let mut calls = Vec::with_capacity(self.n_calls);
        for (send, recv) in buffers {
            calls.push(begin(comm, problem, counts, send, recv, &plan)?);
        }
        if let Some(work) = work {
            // One pass makes progress on all calls.
            work.run(|| {
                comm.progress();
            });
        }
        let mut report = None;
        for call in calls {
            let (recv, call_report) =
                call.wait().into_result().with_context(|| self.of.title.clone())?;
            self.recv.push(recv);
            report = Some(call_report);
        }
        Ok(CompletedRun { ended: Instant::now(), report, result_at: None })
    }

    fn can_overlap(&self) -> bool {
        true
    }

    fn clear_results(&mut self) {
        for recv in &mut self.recv {
            recv.fill(T::from_f64(f64::NAN));
        }
    }

    fn n_results(&self) -> usize {
        self.n_calls
    }

    fn fetch(&mut self, nth: usize, buffers: &mut ProblemBuffers<T>) {
        buffers.recv.copy_from_slice(&self.recv[nth]);
    }
}

fn begin<'a, X: Transport + 'a, T: Float>(
    comm: &SharedCommunicator<'a, X>,
    problem: &Problem,
    counts: &'a [usize],
    send: Rc<[T]>,
    recv: Vec<T>,
    plan: &Plan,
) -> Result<Pending<'a, X, Vec<T>>, Error> {
    comm.start(problem.call([counts, &[]], send, recv), plan)
}
