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
