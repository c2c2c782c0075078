//! Places of the values of calls: slices of the host, or copies in the memory of a device.
//!
//! A check makes its calls on slices, through [`Places`]. For a rank with a device, `Places` copies
//! both buffers of a call to the device, runs the call there, and copies the result back. So each
//! check is written once.

use crate::{Backend, Case, Operation};
use foldwire::codec::CodecId;
use foldwire::device::{Device, DeviceSlice, OnDevice, Region};
use foldwire::{
    Call, Communicator, DType, Element, Error, Plan, Rank, Report, Rounding, Sampling,
    SharedCommunicator, Transport,
};
use std::fmt;
use std::future::Future;
use std::marker::PhantomData;
use std::ops::Range;
use std::pin::{Pin, pin};
use std::task::{Context, Waker};

/// A device whose memory can hold the values of calls.
pub trait DeviceMemory: Sync {
    /// Makes what one call at a time needs, on a communicator with this many lanes and with frames
    /// of this many bytes.
    fn device(&self, n_lanes: usize, frame_bytes: usize) -> Box<dyn Device>;

    /// Allocates memory of the device, with a copy of these bytes.
    fn copy_in(&self, bytes: &[u8]) -> Box<dyn DeviceBytes>;

    /// Returns whether the device has this codec for values of this type. It must refuse calls with
    /// any other codec.
    fn has(&self, codec: CodecId, dtype: DType) -> bool;
}

/// Bytes in a device's memory, which are freed when they are dropped.
pub trait DeviceBytes {
    /// Address of the first byte, a multiple of 8.
    fn address(&self) -> u64;

    /// Copies the bytes to the host. `to` has as many.
    fn copy_out(&self, to: &mut [u8]);
}

/// Place of each rank's values.
pub(crate) struct Places<'m>(Vec<Option<&'m dyn DeviceMemory>>);

/// A call of a [`SharedCommunicator`] that waits for its end. Returns the buffer with the result.
pub(crate) type Waiting<'w, T> = Box<dyn FnOnce() -> Result<(Vec<T>, Report), Error> + 'w>;

impl<'m> Places<'m> {
    /// Places of the values of a backend's ranks.
    pub(crate) fn of<B: Backend>(backend: &'m B, size: usize) -> Self {
        Self((0..size).map(|rank| backend.memory(rank)).collect())
    }

    /// All ranks have slices.
    pub(crate) const fn slices() -> Self {
        Self(Vec::new())
    }

    fn at(&self, rank: Rank) -> Option<&'m dyn DeviceMemory> {
        self.0.get(rank.index()).copied().flatten()
    }

    /// Returns whether this rank's values are on a device.
    pub(crate) fn is_on_device(&self, rank: Rank) -> bool {
        self.at(rank).is_some()
    }

    /// Returns whether every device must be able to run the case.
    pub(crate) fn support(&self, case: &Case) -> bool {
        let is_simple = case.op != Operation::Norm && case.rounding == Rounding::Nearest;
        let has = |memory: &&dyn DeviceMemory| is_simple && memory.has(case.coding(), case.dtype);
        self.0.iter().flatten().all(has)
    }

    /// The same case, or a similar one that every device supports. A device scans all values for a
    /// relative bound.
    pub(crate) fn adapt(&self, case: &Case) -> Case {
        if self.0.iter().all(Option::is_none) {
            return *case;
        }
        let mut case = Case { sampling: Sampling::Never, rounding: Rounding::Nearest, ..*case };
        if case.op == Operation::Norm {
            case.op = Operation::Sum;
        }
        if !self.support(&case) {
            case.codec = CodecId::FzStatic;
        }
        case
    }

    /// Runs a call to its end.
    pub(crate) fn run<T, S, R, X>(
        &self,
        comm: &mut Communicator<X>,
        call: Call<'_, T, S, R>,
        plan: &Plan,
    ) -> Result<Report, Error>
    where
        T: Element,
        S: AsRef<[T]>,
        R: AsMut<[T]>,
        X: Transport,
    {
        let Some(memory) = self.at(comm.rank()) else { return comm.run(call, plan) };
        let mut device = memory.device(comm.n_lanes(), comm.transport().frame_capacity());
        let mut copies = None;
        let call = call.map_buffers(|send, mut recv| {
            let from = Copied::of(memory, send.as_ref());
            let to = Copied::of(memory, recv.as_mut());
            let names = (from.name(), to.name());
            copies = Some((from, to, recv));
            names
        });
        let report = comm.run_on(&mut *device, call, plan)?;
        if let Some((_, to, mut recv)) = copies {
            to.copy_out(recv.as_mut());
        }
        Ok(report)
    }

    /// Starts a call, polls it, and drops it. Returns its error if it could not start.
    pub(crate) fn abandon<T: Element, X: Transport>(
        &self,
        comm: &mut Communicator<X>,
        call: Call<'_, T, &[T; 0], &mut [T]>,
        plan: &Plan,
        n_polls: usize,
    ) -> Result<(), Error> {
        let poll = |call: Pin<&mut dyn Future<Output = Result<Report, Error>>>| {
            let mut call = call;
            for _ in 0..n_polls {
                let _ = call.as_mut().poll(&mut Context::from_waker(Waker::noop()));
            }
        };
        let Some(memory) = self.at(comm.rank()) else {
            poll(pin!(comm.start(call, plan)?));
            return Ok(());
        };
        let mut device = memory.device(comm.n_lanes(), comm.transport().frame_capacity());
        let call = call.map_buffers(|_, data| (Copied::of(memory, &[]), Copied::of(memory, data)));
        poll(pin!(comm.start_on(&mut *device, call, plan)?));
        Ok(())
    }

    /// Starts a call on a communicator that may run other calls at the same time.
    pub(crate) fn start<'w, 'a: 'w, T: Element, X: Transport + 'a>(
        &self,
        comm: &'w SharedCommunicator<'a, X>,
        call: Call<'a, T, Vec<T>, Vec<T>>,
        plan: &Plan,
    ) -> Result<Waiting<'w, T>, Error> {
        let Some(memory) = self.at(comm.rank()) else {
            let call = comm.start(call, plan)?;
            return Ok(Box::new(move || call.wait().into_result()));
        };
        let call =
            call.map_buffers(|send, recv| (Copied::of(memory, &send), Copied::of(memory, &recv)));
        let device = memory.device(comm.n_lanes(), comm.frame_bytes());
        let call = comm.start_on(device, call, plan)?;
        Ok(Box::new(move || {
            let (result, report) = call.wait().into_result()?;
            let mut values = vec![T::ZERO; result.n_values];
            result.copy_out(&mut values);
            Ok((values, report))
        }))
    }
}

/// A copy of values in a device's memory.
struct Copied<T> {
    bytes: Box<dyn DeviceBytes>,
    n_values: usize,
    of: PhantomData<T>,
}

impl<T: Element> Copied<T> {
    fn of(memory: &dyn DeviceMemory, values: &[T]) -> Self {
        let bytes = memory.copy_in(bytemuck::cast_slice(values));
        Self { bytes, n_values: values.len(), of: PhantomData }
    }

    /// The values as a call's buffer. The copy must outlive the call.
    fn name(&self) -> DeviceSlice<'static, T> {
        DeviceSlice::new(self.bytes.address(), self.n_values)
    }

    fn copy_out(&self, to: &mut [T]) {
        self.bytes.copy_out(bytemuck::cast_slice_mut(to));
    }
}

/// A call may own a copy.
impl<T> OnDevice<T> for Copied<T> {
    fn region(&self) -> Region {
        Region { address: self.bytes.address(), n_values: self.n_values }
    }
}

/// A backend some of whose ranks have their values on a device.
#[derive(Clone, Copy)]
pub struct OnDevices<'m, B> {
    /// The backend that moves frames.
    pub backend: B,
    /// The device.
    pub memory: &'m dyn DeviceMemory,
    /// Returns whether a rank's values are there. Other ranks have slices.
    pub has_device: fn(usize) -> bool,
}

impl<B: fmt::Debug> fmt::Debug for OnDevices<'_, B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OnDevices").field("backend", &self.backend).finish_non_exhaustive()
    }
}

impl<B: Backend> Backend for OnDevices<'_, B> {
    type Transport = B::Transport;

    fn run_transports<R: Send>(
        &self,
        size: usize,
        body: impl Fn(Self::Transport) -> R + Sync,
    ) -> Vec<R> {
        self.backend.run_transports(size, body)
    }

    fn ranks(&self, size: usize) -> Range<usize> {
        self.backend.ranks(size)
    }

    fn gather(&self, own: Vec<u64>) -> Vec<u64> {
        self.backend.gather(own)
    }

    fn memory(&self, rank: usize) -> Option<&dyn DeviceMemory> {
        (self.has_device)(rank).then_some(self.memory)
    }
}
