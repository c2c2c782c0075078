//! The class `SimulatedDevice`, with which tests of the Python package put arrays on a device that
//! the CPU simulates. No wheel has it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use foldwire_cuda::{DeviceBuffer, DeviceError, Driver, pool};
use foldwire_cuda_host::{Faults, SimulatedDevice};
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

/// A simulated device.
#[pyclass(frozen, name = "SimulatedDevice", module = "foldwire._native")]
pub(crate) struct PySimulatedDevice {
    device: Arc<SimulatedDevice>,
    driver: Arc<dyn Driver>,
    arrays: Mutex<HashMap<u64, DeviceBuffer<u8>>>,
}

fn raise(error: &DeviceError) -> PyErr {
    PyRuntimeError::new_err(error.to_string())
}

impl PySimulatedDevice {
    fn arrays(&self) -> MutexGuard<'_, HashMap<u64, DeviceBuffer<u8>>> {
        self.arrays.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[pymethods]
impl PySimulatedDevice {
    /// Makes the device with this number.
    #[new]
    fn new(ordinal: usize) -> Self {
        let device = SimulatedDevice::new();
        let driver: Arc<dyn Driver> = device.clone();
        pool::register(ordinal, Arc::clone(&driver));
        Self { device, driver, arrays: Mutex::default() }
    }

    /// Makes a stream.
    fn stream(&self) -> PyResult<u64> {
        Ok(self.driver.new_stream().map_err(|error| raise(&error))?.0)
    }

    /// Copies bytes to the device, and returns their address.
    fn put(&self, bytes: &[u8]) -> PyResult<u64> {
        let buffer =
            DeviceBuffer::from_values(&self.driver, bytes).map_err(|error| raise(&error))?;
        let address = buffer.ptr().0;
        self.arrays().insert(address, buffer);
        Ok(address)
    }

    /// Copies bytes from the device.
    fn get<'py>(&self, py: Python<'py>, address: u64) -> PyResult<Bound<'py, PyBytes>> {
        let arrays = self.arrays();
        let buffer =
            arrays.get(&address).ok_or_else(|| PyRuntimeError::new_err("no such array"))?;
        let bytes = buffer.to_vec(&self.driver).map_err(|error| raise(&error))?;
        Ok(PyBytes::new(py, &bytes))
    }

    /// Makes the device refuse all launches after this many.
    fn refuse_launches(&self, n_launches: usize) {
        self.device.plant(Faults { launches: Some(n_launches), ..Faults::default() });
    }
}
