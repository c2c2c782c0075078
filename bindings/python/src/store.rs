//! Stores in which ranks meet: the native class `Store`, and any Python object that offers `set`,
//! `get` and `wait`.
//!
//! The package's `_store.py` adapts other objects to these three methods, so this module calls only
//! them: `set(key, value)`, `get(key)` and `wait(key, seconds)`; the last two return bytes or None.

use std::net::TcpListener;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use foldwire::store::{self, StoreError};
use foldwire_bootstrap::{FileStore, MemoryStore, Root, TcpStore, Token};
use foldwire_c::errors::ApiError;
use foldwire_c::ffi::rust::{seconds, store_fault};
use foldwire_c::ffi::types::{FW_INVALID_ARGUMENT, FW_TRANSPORT_ERROR};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::failure::raise;

/// A store of this package.
#[pyclass(frozen, name = "Store", module = "foldwire._native")]
pub(crate) struct PyStore(Mutex<Box<dyn store::Store + Send>>);

impl PyStore {
    fn new(store: impl store::Store + Send + 'static) -> Self {
        Self(Mutex::new(Box::new(store)))
    }

    fn lock(&self) -> MutexGuard<'_, Box<dyn store::Store + Send>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Calls the store without the GIL.
    fn call<R: Send>(
        &self,
        py: Python<'_>,
        call: impl FnOnce(&mut dyn store::Store) -> Result<R, StoreError> + Send,
    ) -> PyResult<R> {
        py.detach(|| call(&mut **self.lock())).map_err(|error| raise(py, &store_fault(error)))
    }
}

/// Reads a token. Text that is empty means none.
fn token(text: Option<&str>) -> Result<Option<Token>, ApiError> {
    let text = text.filter(|text| !text.is_empty());
    let wrong = |error: foldwire_bootstrap::TokenTooShort| {
        ApiError::new(FW_INVALID_ARGUMENT, error.to_string())
    };
    text.map(Token::new).transpose().map_err(wrong)
}

/// Longest wait for a host's name.
const LONGEST_NAME_WAIT: Duration = Duration::from_secs(60);

/// Returns the first address of HOST:PORT. The host's name may come late, within the limit.
fn address(text: &str, limit: Duration) -> Result<std::net::SocketAddr, ApiError> {
    let root: Root = text.parse().map_err(|error: foldwire_bootstrap::RootParseError| {
        ApiError::new(FW_INVALID_ARGUMENT, error.to_string())
    })?;
    let addresses =
        root.resolve_by(Instant::now() + limit.min(LONGEST_NAME_WAIT)).map_err(|error| {
            ApiError::new(
                FW_TRANSPORT_ERROR,
                format!("cannot find the address of {text} ({error})"),
            )
        })?;
    Ok(addresses[0])
}

#[pymethods]
impl PyStore {
    /// A store in memory, for ranks that are threads.
    #[staticmethod]
    fn memory() -> Self {
        Self::new(MemoryStore::default())
    }

    /// A store in a folder.
    #[staticmethod]
    fn file(py: Python<'_>, folder: std::path::PathBuf) -> PyResult<Self> {
        let made = FileStore::new(&folder).map(Self::new);
        made.map_err(|error| {
            let message = format!("cannot use the folder {} ({error})", folder.display());
            raise(py, &ApiError::new(FW_INVALID_ARGUMENT, message))
        })
    }

    /// A store over TCP, hosted here or in another process.
    #[staticmethod]
    fn tcp(
        py: Python<'_>,
        at: &str,
        hosts: bool,
        secret: Option<&str>,
        limit: f64,
    ) -> PyResult<Self> {
        let made = py.detach(|| {
            let limit = seconds(limit, "limit")?;
            let (address, token) = (address(at, limit)?, token(secret)?);
            if !hosts {
                return Ok(Self::new(TcpStore::connect(address, token, limit)));
            }
            let hosted = TcpListener::bind(address).and_then(|it| TcpStore::host(it, token));
            hosted.map(Self::new).map_err(|error| {
                ApiError::new(FW_TRANSPORT_ERROR, format!("cannot listen at {at} ({error})"))
            })
        });
        made.map_err(|fault: ApiError| raise(py, &fault))
    }

    /// Sets a value.
    fn set(&self, py: Python<'_>, key: &str, value: &[u8]) -> PyResult<()> {
        self.call(py, |store| store.set(key, value))
    }

    /// Returns a value, or None.
    fn get<'py>(&self, py: Python<'py>, key: &str) -> PyResult<Option<Bound<'py, PyBytes>>> {
        let value = self.call(py, |store| store.get(key))?;
        Ok(value.map(|value| PyBytes::new(py, &value)))
    }

    /// Waits for a value, and returns it, or None.
    fn wait<'py>(
        &self,
        py: Python<'py>,
        key: &str,
        limit: f64,
    ) -> PyResult<Option<Bound<'py, PyBytes>>> {
        let limit = seconds(limit, "limit").map_err(|fault| raise(py, &fault))?;
        let value = self.call(py, |store| store.wait(key, limit))?;
        Ok(value.map(|value| PyBytes::new(py, &value)))
    }

    /// Returns whether this process hosts the store.
    fn is_hosted_here(&self) -> bool {
        self.lock().is_hosted_here()
    }

    /// Serves other processes, without waiting.
    fn progress(&self, py: Python<'_>) {
        py.detach(|| self.lock().progress());
    }
}

/// A Python object as a store. It keeps the first exception that the object raised.
pub(crate) struct ObjectStore {
    object: Py<PyAny>,
    raised: Option<PyErr>,
    has_progress: bool,
    is_hosted_here: bool,
}

impl ObjectStore {
    pub(crate) fn new(py: Python<'_>, object: Py<PyAny>) -> PyResult<Self> {
        let has_progress = object.bind(py).hasattr("progress")?;
        let is_hosted_here = object.bind(py).getattr("is_hosted_here");
        let is_hosted_here = is_hosted_here.is_ok_and(|it| it.is_truthy().unwrap_or(false));
        Ok(Self { object, raised: None, has_progress, is_hosted_here })
    }

    /// Takes the exception that the object raised.
    pub(crate) fn take_raised(&mut self) -> Option<PyErr> {
        self.raised.take()
    }

    /// Returns the exception for an error: that of the object, if it raised one.
    pub(crate) fn raise(self, py: Python<'_>, fault: &ApiError) -> PyErr {
        self.raised.unwrap_or_else(|| raise(py, fault))
    }

    fn call<R>(
        &mut self,
        call: impl FnOnce(&Bound<'_, PyAny>) -> PyResult<R>,
    ) -> Result<R, StoreError> {
        Python::try_attach(|py| call(self.object.bind(py)))
            .unwrap_or_else(|| Err(pyo3::exceptions::PyRuntimeError::new_err("Python has ended")))
            .map_err(|raised| {
                self.raised.get_or_insert(raised);
                StoreError::Failed
            })
    }
}

impl store::Store for ObjectStore {
    fn set(&mut self, key: &str, value: &[u8]) -> Result<(), StoreError> {
        store::check_entry(key, value)?;
        self.call(|object| {
            object.call_method1("set", (key, PyBytes::new(object.py(), value))).map(|_| ())
        })
    }

    fn get(&mut self, key: &str) -> Result<Option<Vec<u8>>, StoreError> {
        store::check_key(key)?;
        self.call(|object| object.call_method1("get", (key,))?.extract())
    }

    fn wait(&mut self, key: &str, limit: Duration) -> Result<Option<Vec<u8>>, StoreError> {
        store::check_key(key)?;
        let seconds = limit.as_secs_f64();
        self.call(|object| object.call_method1("wait", (key, seconds))?.extract())
    }

    fn progress(&mut self) {
        if self.has_progress {
            let _ = self.call(|object| object.call_method0("progress").map(|_| ()));
        }
    }

    fn is_hosted_here(&self) -> bool {
        self.is_hosted_here
    }
}
