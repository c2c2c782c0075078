//! The native extension module `foldwire._native` of Foldwire for Python. Users import the package
//! `python/foldwire`, which calls the few functions below.
//!
//! | module | contents |
//! |---|---|
//! | `ffi` | address and type of numpy arrays; all `unsafe` code |
//! | `codec` | compression of arrays to bytes |
//! | `communicator` | the classes `Comm` and `Plan` |
//! | `endpoint` | the communicators of one endpoint, behind a lock |
//! | `failure` | conversion of errors to `foldwire.Error` |
//! | `join` | functions that create communicators |
//! | `launch` | the command of this name |
//! | `report` | the class `Report`, and the words about a fill value |
//! | `request` | the class `Request` |
//! | `store` | stores in which ranks meet |
//! | `simulated` | with the feature of this name: a simulated device, for tests |
//!
//! `foldwire_c::ffi::rust` checks memory and makes the calls. The C bindings use the same code, so
//! generic code is compiled once for both.
//!
//! *The GIL.* A thread releases the GIL before it waits for an endpoint or for the network, also
//! when an object is dropped. A thread that owns an endpoint may take the GIL. So ranks that are
//! threads of one process cannot deadlock.

mod codec;
mod communicator;
mod endpoint;
mod failure;
mod ffi;
mod join;
#[cfg(unix)]
mod launch;
mod report;
mod request;
#[cfg(feature = "simulated")]
mod simulated;
mod store;

use foldwire::DType;
use foldwire::transport::MAX_LANES;
use pyo3::prelude::*;

/// The native module of the package `foldwire`.
#[pymodule]
fn _native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    let codes: Vec<(&str, u8, usize, bool)> = DType::ALL
        .iter()
        .map(|dtype| (dtype.name(), *dtype as u8, dtype.n_bytes(), dtype.is_float()))
        .collect();
    module.add("DTYPES", codes)?;
    module.add("VERSION", env!("CARGO_PKG_VERSION"))?;
    module.add("MAX_LANES", MAX_LANES)?;
    module.add("HAS_DEVICES", cfg!(feature = "cuda"))?;
    module.add("HDF5_FILTER", (ffi::hdf5::FILTER_ID, (&raw const ffi::hdf5::FILTER).addr()))?;
    module.add("HDF5_FUNCTIONS", ffi::hdf5::FUNCTIONS)?;
    module.add_class::<communicator::PyCommunicator>()?;
    module.add_class::<report::PyReport>()?;
    module.add_class::<request::PyRequest>()?;
    module.add_class::<communicator::PyPlan>()?;
    module.add_class::<store::PyStore>()?;
    #[cfg(feature = "simulated")]
    module.add_class::<simulated::PySimulatedDevice>()?;
    #[cfg(unix)]
    module.add_function(wrap_pyfunction!(launch::launch, module)?)?;
    module.add_function(wrap_pyfunction!(join::threads, module)?)?;
    module.add_function(wrap_pyfunction!(join::unique_id, module)?)?;
    module.add_function(wrap_pyfunction!(join::unknown_variables, module)?)?;
    module.add_function(wrap_pyfunction!(join::join, module)?)?;
    module.add_function(wrap_pyfunction!(join::meet, module)?)?;
    module.add_function(wrap_pyfunction!(join::rejoin, module)?)?;
    module.add_function(wrap_pyfunction!(report::suspected_fill, module)?)?;
    module.add_function(wrap_pyfunction!(codec::compress, module)?)?;
    module.add_function(wrap_pyfunction!(codec::decompress, module)?)?;
    module.add_function(wrap_pyfunction!(codec::info, module)?)?;
    module.add_function(wrap_pyfunction!(set_hdf5_functions, module)?)
}

/// Lends the filter the functions that `HDF5_FUNCTIONS` names, by their addresses.
#[pyfunction]
fn set_hdf5_functions(addresses: [usize; 6]) {
    ffi::hdf5::set_functions(addresses);
}
