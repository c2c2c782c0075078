//! Foldwire for Python: what `foldwire._native` holds. The package around it, `python/foldwire`,
//! has what users call, and makes of it the few calls below.
//!
//! | module | what it is |
//! |---|---|
//! | `ffi` | numpy's arrays: where they lie, what they hold; all `unsafe` code |
//! | `codec` | arrays as bytes |
//! | `communicator` | `PyCommunicator` and `PyRequest`: calls, blocking and not |
//! | `endpoint` | all communicators of one link, behind a lock that is waited for without the GIL |
//! | `failure` | what Rust returns, as `foldwire.Error` |
//! | `report` | what a call did, as a dict |
//!
//! Memory is checked, and calls are made, by `foldwire_c::ffi::rust`, which the C interface has as
//! well: what is generic over types is compiled once for both.
//!
//! *The GIL.* Whoever waits for the lock of a family, or for a network, has let the GIL go; who
//! holds that lock may take the GIL. So ranks that are threads of one process do not wait for each
//! other in a circle.

mod codec;
mod communicator;
mod endpoint;
mod failure;
mod ffi;
mod report;

use foldwire::DType;
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
    module.add_class::<communicator::PyCommunicator>()?;
    module.add_class::<communicator::PyRequest>()?;
    module.add_class::<communicator::PyPlan>()?;
    module.add_function(wrap_pyfunction!(communicator::threads, module)?)?;
    module.add_function(wrap_pyfunction!(communicator::unique_id, module)?)?;
    module.add_function(wrap_pyfunction!(communicator::join, module)?)?;
    module.add_function(wrap_pyfunction!(codec::compress, module)?)?;
    module.add_function(wrap_pyfunction!(codec::decompress, module)?)?;
    module.add_function(wrap_pyfunction!(codec::info, module)?)
}
