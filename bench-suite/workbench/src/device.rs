//! The device of `--device`. A build without the feature `cuda` has none.

#[cfg(feature = "cuda")]
pub use built_in::{DeviceArrays, DeviceOption, open};
#[cfg(not(feature = "cuda"))]
pub use none::{DeviceOption, open};

#[cfg(feature = "cuda")]
mod built_in {
    use std::sync::Arc;

    use crate::streams;
    use anyhow::Context;
    use foldwire::{Call, Communicator, Float, Plan, Report, Transport};
    use foldwire_cuda::{Cuda, DeviceBuffer, DeviceError, Driver, Transfer, Workspace};
    use foldwire_fields::usage::usage;

    /// A device, if there is one.
    pub type DeviceOption = Option<Arc<dyn Driver>>;

    /// Opens the device that `--device` names.
    ///
    /// # Errors
    /// If there is no such device, with what to do about it.
    pub fn open(name: Option<&str>) -> anyhow::Result<DeviceOption> {
        let Some(name) = name else { return Ok(None) };
        let number = match name.split_once(':') {
            None if name == "cuda" => Some(0),
            Some(("cuda", number)) => number.parse().ok(),
            _ => None,
        };
        let number =
            number.ok_or_else(|| usage!("there is no device {name}; write cuda, or cuda:1"))?;
        let device = Cuda::open(number).context("--device")?;
        streams::remark(format_args!("device: {}", device.description()));
        Ok(Some(device))
    }

    /// A rank's input and result on a device, and the workspace of its calls.
    #[derive(Debug)]
    pub struct DeviceArrays<T> {
        workspace: Workspace,
        transfer: Transfer,
        /// Input.
        pub send: DeviceBuffer<T>,
        /// Result.
        pub recv: DeviceBuffer<T>,
    }

    impl<T: Float> DeviceArrays<T> {
        /// Allocates arrays of these lengths.
        ///
        /// # Errors
        /// If the device has too little memory.
        pub fn new<X: Transport>(
            driver: &Arc<dyn Driver>,
            comm: &Communicator<X>,
            [n_sent, n_received]: [usize; 2],
        ) -> Result<Self, DeviceError> {
            Ok(Self {
                workspace: Workspace::new(driver, comm)?,
                transfer: Transfer::new(driver, n_sent.max(n_received) * T::BYTES)?,
                send: DeviceBuffer::new(driver, n_sent)?,
                recv: DeviceBuffer::new(driver, n_received)?,
            })
        }

        /// Copies values to both arrays.
        ///
        /// # Errors
        /// If the device fails.
        pub fn upload(&mut self, send: &[T], recv: &[T]) -> Result<(), DeviceError> {
            self.transfer.upload(send, &mut self.send)?;
            self.transfer.upload(recv, &mut self.recv)
        }

        /// Copies the result to the host.
        ///
        /// # Errors
        /// If the device fails.
        pub fn download(&mut self, recv: &mut [T]) -> Result<(), DeviceError> {
            self.transfer.download(&self.recv, recv)
        }

        /// Runs the call that `call` makes of the two arrays.
        ///
        /// # Errors
        /// The error of the call, with the device's words.
        pub fn run<'a, X: Transport>(
            &'a mut self,
            comm: &mut Communicator<X>,
            plan: &Plan,
            call: impl FnOnce(DeviceArray<'a, T>, DeviceArray<'a, T>) -> DeviceCall<'a, T>,
        ) -> anyhow::Result<Report> {
            let Self { workspace, send, recv, .. } = self;
            let done = comm.run_on(workspace, call(send.input(), recv.output()), plan);
            done.map_err(|error| match workspace.last_error() {
                Some(reason) => anyhow::Error::new(error).context(reason.to_string()),
                None => error.into(),
            })
        }
    }

    type DeviceArray<'a, T> = foldwire::device::DeviceSlice<'a, T>;
    type DeviceCall<'a, T> = Call<'a, T, DeviceArray<'a, T>, DeviceArray<'a, T>>;
}

#[cfg(not(feature = "cuda"))]
mod none {
    use std::convert::Infallible;

    use foldwire_fields::usage::usage;

    /// No device.
    pub type DeviceOption = Option<Infallible>;

    /// Refuses `--device`.
    ///
    /// # Errors
    /// If the user named a device.
    pub fn open(name: Option<&str>) -> anyhow::Result<DeviceOption> {
        name.map_or(Ok(None), |_| {
            Err(usage!("this foldwire was built without devices; build it with --features cuda")
                .into())
        })
    }
}
