//! Collectives on a device's memory (`--device`). The clock runs from values on the device to
//! results on the device.

use std::sync::Arc;
use std::time::Instant;

use anyhow::Context;
use foldwire::{Communicator, Float, Transport};
use foldwire_cuda::Driver;
use foldwire_workbench::device::DeviceArrays;

use super::implementation::{CompletedRun, Implementation, PlanImplementation, Run};
use super::runner::Runner;

/// A plan on a device's memory.
pub(super) struct DeviceImplementation<T> {
    row: PlanImplementation,
    driver: Arc<dyn Driver>,
    arrays: Option<DeviceArrays<T>>,
}

impl<T: Float> DeviceImplementation<T> {
    pub(super) const fn new(row: PlanImplementation, driver: Arc<dyn Driver>) -> Self {
        Self { row, driver, arrays: None }
    }
}

impl<X: Transport, T: Float> Implementation<Communicator<X>, T> for DeviceImplementation<T> {
    fn name(&self) -> &'static str {
        self.row.name
    }

    fn title(&self) -> String {
        format!("{}, on the device", self.row.title)
    }

    fn prepare(&mut self, runner: &mut Runner<'_, Communicator<X>, T>) -> anyhow::Result<()> {
        // Two problems need not fit at once.
        self.arrays = None;
        let lengths = runner.problem.buffer_lens();
        self.arrays = Some(DeviceArrays::new(&self.driver, runner.comm, lengths)?);
        Ok(())
    }

    fn run(&mut self, run: Run<'_, Communicator<X>, T>) -> anyhow::Result<CompletedRun> {
        let Run { comm, problem, buffers, start, .. } = run;
        let arrays = self.arrays.as_mut().context("the implementation was not prepared")?;
        arrays.upload(&buffers.send, &buffers.recv)?;
        let [counts, from_each] = problem.all_counts();
        let plan = self.row.plan::<T>(problem);
        start(comm)?;
        let done =
            arrays.run(comm, &plan, |send, recv| problem.call([&counts, &from_each], send, recv));
        let ended = Instant::now();
        let report = done.with_context(|| self.row.title.clone())?;
        arrays.download(&mut buffers.recv)?;
        Ok(CompletedRun { ended, report: Some(report), result_at: None })
    }
}

#[cfg(all(test, feature = "simulated"))]
mod tests {
    use std::sync::mpsc;
    use std::time::Duration;

    use foldwire::{Bound, Collective, Preset, Rank};
    use foldwire_cuda::DeviceError;
    use foldwire_cuda_host::{Faults, SimulatedDevice};
    use foldwire_threads::World;
    use foldwire_workbench::data::Data;
    use foldwire_workbench::ranks;
    use indicatif::ProgressBar;

    use super::super::Settings;
    use super::super::benchmark::{Benchmark, BenchmarkOutcome};
    use super::super::problem::Problem;
    use super::super::runner::{Barrier, barrier};
    use super::*;

    /// Runs the benchmark where rank 1's device has these faults. Fails if it does not end.
    fn outcomes(faults: Faults) -> anyhow::Result<Vec<BenchmarkOutcome>> {
        let (send, receive) = mpsc::channel();
        std::thread::spawn(move || {
            let settings = Settings {
                problem: Problem::sum(Collective::AllReduce, 0, 3, 0),
                counts: vec![3000],
                shares: vec![vec![1000; 3]],
                warmup: 0,
                repeat: 1,
                min_time: 0.0,
                check: true,
                in_flight: 1,
                overlap: None,
                has_links: false,
            };
            let data = Data::new(vec![1.0_f32; 3000], 3, "ones".to_owned());
            let ranks = World::new(3).run(|comm| {
                let faults = if comm.rank() == Rank(1) { faults } else { Faults::default() };
                let driver: Arc<dyn Driver> = SimulatedDevice::with_faults(faults);
                let bound = Bound::Absolute(1e-3);
                let row = PlanImplementation::preset(Preset::Raw, Collective::AllReduce, bound);
                let mut wait: Box<Barrier<'_, _>> = Box::new(barrier);
                let benchmark = Benchmark {
                    comm,
                    barrier: wait.as_mut(),
                    implementations: vec![Box::new(DeviceImplementation::new(row, driver))],
                    settings: &settings,
                    shares_memory: false,
                    data: &data,
                    progress: &ProgressBar::hidden(),
                };
                benchmark.run()
            });
            send.send(ranks::results(ranks))
        });
        receive.recv_timeout(Duration::from_secs(60)).expect("all ranks end")
    }

    #[test]
    fn a_rank_without_device_memory_ends_the_others() {
        let outcomes_without = outcomes(Faults::default()).expect("nothing fails");
        assert_eq!(outcomes_without[2].rows.len(), 1);
        for n in [0, 10, 40] {
            let error = outcomes(Faults { allocations: Some(n), ..Faults::default() });
            let error = error.expect_err("an allocation fails");
            let is_told = matches!(error.downcast_ref(), Some(DeviceError::OutOfMemory { .. }));
            assert!(is_told, "{n} allocations: {error:?}");
        }
    }
}
