//! Collectives on a device's memory (`--device`). The clock runs from values on the device to
//! results on the device.

use std::sync::Arc;
use std::time::Instant;

use anyhow::Context;
use foldwire::{Communicator, Float, Transport};
use foldwire_cuda::{DeviceBuffer, Driver, Transfer, Workspace};

use super::implementation::{
    CompletedRun, Implementation, PlanImplementation, ProblemBuffers, StartClock,
};
use super::problem::Problem;
use super::runner::Runner;

/// A plan on a device's memory.
pub(super) struct DeviceImplementation<T> {
    row: PlanImplementation,
    driver: Arc<dyn Driver>,
    memory: Option<DeviceMemory<T>>,
}

/// A problem's buffers on the device.
struct DeviceMemory<T> {
    workspace: Workspace,
    transfer: Transfer,
    send: DeviceBuffer<T>,
    recv: DeviceBuffer<T>,
}

impl<T: Float> DeviceImplementation<T> {
    pub(super) const fn new(row: PlanImplementation, driver: Arc<dyn Driver>) -> Self {
        Self { row, driver, memory: None }
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
        let Self { driver, memory, .. } = self;
        // Two problems need not fit at once.
        *memory = None;
        let [n_sent, n_received] = runner.problem.buffer_lens();
        *memory = Some(DeviceMemory {
            workspace: Workspace::new(driver, runner.comm)?,
            transfer: Transfer::new(driver, n_sent.max(n_received) * T::BYTES)?,
            send: DeviceBuffer::new(driver, n_sent)?,
            recv: DeviceBuffer::new(driver, n_received)?,
        });
        Ok(())
    }

    fn run(
        &mut self,
        comm: &mut Communicator<X>,
        problem: &Problem,
        buffers: &mut ProblemBuffers<T>,
        start: &mut StartClock<'_, Communicator<X>>,
    ) -> anyhow::Result<CompletedRun> {
        let memory = self.memory.as_mut().context("the implementation was not prepared")?;
        let DeviceMemory { workspace, transfer, send, recv } = memory;
        transfer.upload(&buffers.send, send)?;
        transfer.upload(&buffers.recv, recv)?;
        let [counts, from_each] = problem.all_counts();
        let plan = self.row.plan::<T>(problem);
        start(comm)?;
        let call = problem.call([&counts, &from_each], send.input(), recv.output());
        let done = comm.run_on(workspace, call, &plan);
        let ended = Instant::now();
        let report = done.with_context(|| match workspace.last_error() {
            Some(error) => format!("{}: {error}", self.row.title),
            None => self.row.title.clone(),
        })?;
        transfer.download(recv, &mut buffers.recv)?;
        Ok(CompletedRun { ended, report: Some(report), result_at: None })
    }
}
