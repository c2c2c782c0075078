//! A running call on a device's memory, as the caller drives it.

use super::call_state::CallState;
use super::device_operands::DeviceOperands;
use super::{Call, Communicator, Request};
use crate::bound::Quantum;
use crate::codec::CodecParams;
use crate::device::{Device, Region};
use crate::element::Element;
use crate::error::Error;
use crate::handle::{Advance, Handle, Limited, Progress};
use crate::op::OpCode;
use crate::plan::Plan;
use crate::report::Report;
use crate::transport::Transport;
use crate::wait::Limits;
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
        S: Into<Region>,
        R: Into<Region>,
    {
        let (request, regions) = call.into_regions(comm.rank())?;
        let plan = match request.op {
            // No bound can be kept for these.
            OpCode::Prod | OpCode::User if plan.is_auto => plan.exactly(),
            _ => Plan { is_auto: false, ..*plan },
        };
        let kind = (request.dtype, request.op);
        let params = CodecParams::new(Quantum::LOSSLESS);
        let mut work = DeviceOperands::new(device, request.window, regions, kind, params)?;
        let request = Request { lengths: work.lengths(), ..request };
        let call = match CallState::start(comm, request, &mut work, &plan) {
            Ok(call) => call,
            Err(error) => {
                work.end()?;
                return Err(error);
            }
        };
        Ok(Handle(Self { comm, work, call }))
    }
}

impl<X: Transport> Advance for RunningDeviceCall<'_, X> {
    type Output = Report;

    fn advance(&mut self) -> Result<Progress, Error> {
        self.call.advance(self.comm, &mut self.work)
    }

    fn output(&mut self) -> Result<Report, Error> {
        self.work.end()?;
        Ok(self.call.finish(self.comm))
    }

    fn idle(&mut self) {
        // No frame arrives when the device is done, so poll again at once.
        if !self.work.take_is_computing() {
            self.comm.idle(self.call.limits, self.call.rest());
        }
    }

    fn register(&mut self, waker: &Waker) -> bool {
        !self.work.take_is_computing() && self.comm.transport.register(waker)
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
        // The call has failed, or `output` has reported the device's error.
        let _ = self.work.end();
    }
}

impl<X: Transport> fmt::Debug for RunningDeviceCall<'_, X> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.call.describe(f)
    }
}
