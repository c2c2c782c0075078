//! A running call on a device's memory, as the caller drives it.

use super::call_state::CallState;
use super::device_operands::DeviceOperands;
use super::{Call, Communicator};
use crate::device::{Device, OnDevice};
use crate::element::Element;
use crate::error::Error;
use crate::handle::{Advance, Handle, Limited, Progress};
use crate::plan::Plan;
use crate::report::Report;
use crate::transport::Transport;
use crate::wait::Limits;
use alloc::boxed::Box;
use core::fmt;
use core::task::Waker;
use core::time::Duration;

/// A collective call on a device's memory in progress. Poll it, wait for it, or `.await` it.
///
/// Dropping an unfinished call poisons the communicator on all ranks, and waits for the device.
pub type DeviceOperation<'a, X> = Handle<RunningDeviceCall<'a, X>>;

/// A collective call in progress, with its communicator and its buffers in a device's memory.
pub struct RunningDeviceCall<'a, X: Transport> {
    comm: &'a mut Communicator<X>,
    work: DeviceOperands<'a>,
    call: CallState<'a>,
}

impl<'a, X: Transport> RunningDeviceCall<'a, X> {
    pub(super) fn start<T, S, R>(
        comm: &'a mut Communicator<X>,
        device: &'a mut dyn Device,
        call: Call<'a, T, S, R>,
        plan: &Plan,
    ) -> Result<DeviceOperation<'a, X>, Error>
    where
        T: Element,
        S: OnDevice<T>,
        R: OnDevice<T>,
    {
        let rank = comm.rank();
        let (request, mut work, plan) = DeviceOperands::of(call, Box::new(device), rank, plan)?;
        let call = CallState::start(comm, request, &mut work, &plan)?;
        Ok(Handle(Self { comm, work, call }))
    }
}

impl<X: Transport> Advance for RunningDeviceCall<'_, X> {
    type Output = Report;

    fn advance(&mut self) -> Result<Progress, Error> {
        let progress = self.call.advance(self.comm, &mut self.work)?;
        Ok(self.work.keep_polling(progress))
    }

    fn output(&mut self) -> Result<Report, Error> {
        let report = self.call.finish(self.comm);
        self.work.end().map(|()| report)
    }

    fn idle(&mut self) {
        self.comm.idle(self.call.limits, self.call.rest());
    }

    fn register(&mut self, waker: &Waker) -> bool {
        self.comm.transport.register(waker)
    }
}

impl<X: Transport> Limited for RunningDeviceCall<'_, X> {
    fn limits(&mut self) -> &mut Limits {
        &mut self.call.limits
    }

    fn now(&self) -> Duration {
        self.comm.transport.now()
    }
}

impl<X: Transport> Drop for RunningDeviceCall<'_, X> {
    fn drop(&mut self) {
        self.call.give_up(self.comm, None);
    }
}

impl<X: Transport> fmt::Debug for RunningDeviceCall<'_, X> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.call.describe(f)
    }
}
