//! Stores in which ranks meet: the native class `Store`, and any Python object that offers `set`,
//! `get` and `wait`.
//!
//! The package's `_store.py` adapts other objects to these three methods, so this module calls only
//! them: `set(key, value)`, `get(key)` and `wait(key, seconds)`; the last two return bytes or None.

use std::net::{SocketAddr, TcpListener};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use foldwire::store::{self, StoreError};
use foldwire_bootstrap::{FileStore, MemoryStore, Root, TcpStore, Token};
use foldwire_c::errors::ApiError;
use foldwire_c::ffi::rust::{from_store, seconds, with_stop_check};
use foldwire_c::ffi::types::{FW_INVALID_ARGUMENT, FW_TRANSPORT_ERROR};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::endpoint::{Raised, SIGNALS};
use crate::failure::raise;
use crate::join::with_signals;

/// A store of this package. Threads may share it: no wait keeps the others out.
#[pyclass(frozen, name = "Store", module = "foldwire._native")]
pub(crate) struct PyStore {
    store: SharedStore,
    is_hosted_here: bool,
}

/// A store that threads share.
enum SharedStore {
    /// Each call has a clone, which has the same values.
    Memory(MemoryStore),
    File(FileStore),
    /// The host's side over TCP, and the number of threads that call it or wait for the lock.
    Host(Box<Mutex<TcpStore>>, AtomicUsize),
    Clients(Clients),
}

/// Connections to a store over TCP. Each call has one to itself.
struct Clients {
    address: SocketAddr,
    token: Option<Token>,
    limit: Duration,
    /// Connections that no call uses, and the exceptions of their signal handlers.
    idle: Mutex<Vec<(TcpStore, Arc<Raised>)>>,
}

/// The error of a store, and the exception that ended the wait, if one did.
struct Failure(StoreError, Option<PyErr>);

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        Self(error, None)
    }
}

/// Longest time for which a waiting thread keeps the lock of a store.
const SLICE: Duration = Duration::from_millis(50);
/// Longest wait for which a host is asked at once.
const ASKED: Duration = Duration::from_secs(1);
/// Time in which another thread takes the lock.
const PAUSE: Duration = Duration::from_millis(1);

impl Clients {
    fn connect(&self) -> (TcpStore, Arc<Raised>) {
        let (raised, mut last_check) = (Arc::<Raised>::default(), Instant::now());
        let handler = Arc::clone(&raised);
        let store = TcpStore::connect(self.address, self.token.clone(), self.limit);
        (store.with_stop_check(move || handler.handles_signals(&mut last_check)), raised)
    }

    /// Locks the connections. Nothing panics while they are locked.
    fn idle(&self) -> MutexGuard<'_, Vec<(TcpStore, Arc<Raised>)>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn call<R>(
        &self,
        call: impl FnOnce(&mut dyn store::Store) -> Result<R, StoreError>,
    ) -> Result<R, Failure> {
        let idle = self.idle().pop();
        let (mut store, raised) = idle.unwrap_or_else(|| self.connect());
        let made = call(&mut store).map_err(|error| Failure(error, raised.take()));
        self.idle().push((store, raised));
        made
    }
}

impl SharedStore {
    /// Calls the store.
    fn call<R>(
        &self,
        call: impl FnOnce(&mut dyn store::Store) -> Result<R, StoreError>,
    ) -> Result<R, Failure> {
        match self {
            Self::Memory(store) => Ok(call(&mut store.clone())?),
            Self::File(store) => Ok(call(&mut store.clone())?),
            Self::Host(store, n_callers) => {
                n_callers.fetch_add(1, Ordering::Relaxed);
                let made = call(&mut *store.lock().unwrap_or_else(PoisonError::into_inner));
                n_callers.fetch_sub(1, Ordering::Relaxed);
                Ok(made?)
            }
            Self::Clients(clients) => clients.call(call),
        }
    }

    /// Waits for a key, at most for `limit`, until it is time for signals and other threads.
    fn wait(&self, key: &str, limit: Duration) -> Result<Option<Vec<u8>>, Failure> {
        let slice = match self {
            Self::Host(_, n_callers) if n_callers.load(Ordering::Relaxed) > 0 => Duration::ZERO,
            Self::Host(..) => SLICE,
            Self::Clients(_) => ASKED,
            Self::Memory(_) | Self::File(_) => SIGNALS,
        };
        let value = self.call(|store| store.wait(key, limit.min(slice)))?;
        if value.is_none() && matches!(self, Self::Host(..)) {
            // The lock is not fair: whoever returns to it at once gets it again.
            thread::sleep(PAUSE.min(limit));
        }
        Ok(value)
    }
}

impl PyStore {
    fn new(store: SharedStore) -> Self {
        let is_hosted_here = matches!(store, SharedStore::Host(..));
        Self { store, is_hosted_here }
    }

    /// Calls the store without the GIL.
    fn call<R: Send>(
        &self,
        py: Python<'_>,
        call: impl FnOnce(&SharedStore) -> Result<R, Failure> + Send,
    ) -> PyResult<R> {
        py.detach(|| call(&self.store)).map_err(|Failure(error, raised)| {
            raised.unwrap_or_else(|| raise(py, &from_store(error)))
        })
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
fn address(text: &str, limit: Duration) -> Result<SocketAddr, ApiError> {
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
        Self::new(SharedStore::Memory(MemoryStore::default()))
    }

    /// A store in a folder.
    #[staticmethod]
    fn file(py: Python<'_>, folder: std::path::PathBuf) -> PyResult<Self> {
        let made = FileStore::new(&folder);
        made.map(|store| Self::new(SharedStore::File(store))).map_err(|error| {
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
        let limit = seconds(limit, "limit").map_err(|fault| raise(py, &fault))?;
        let token = token(secret).map_err(|fault| raise(py, &fault))?;
        let at = at.to_owned();
        with_signals(py, "foldwire store", move || {
            let address = address(&at, limit)?;
            if !hosts {
                let clients = Clients { address, token, limit, idle: Mutex::default() };
                return Ok(Self::new(SharedStore::Clients(clients)));
            }
            let hosted = TcpListener::bind(address).and_then(|it| TcpStore::host(it, token));
            let shared =
                |store| SharedStore::Host(Box::new(Mutex::new(store)), AtomicUsize::new(0));
            hosted.map(|store| Self::new(shared(store))).map_err(|error| {
                ApiError::new(FW_TRANSPORT_ERROR, format!("cannot listen at {at} ({error})"))
            })
        })
    }

    /// Sets a value.
    fn set(&self, py: Python<'_>, key: &str, value: &[u8]) -> PyResult<()> {
        self.call(py, |store| store.call(|store| store.set(key, value)))
    }

    /// Returns a value, or None.
    fn get<'py>(&self, py: Python<'py>, key: &str) -> PyResult<Option<Bound<'py, PyBytes>>> {
        let value = self.call(py, |store| store.call(|store| store.get(key)))?;
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
        let start = Instant::now();
        loop {
            let left = limit.saturating_sub(start.elapsed());
            let value = self.call(py, |store| store.wait(key, left))?;
            if value.is_some() || left.is_zero() {
                return Ok(value.map(|value| PyBytes::new(py, &value)));
            }
            py.check_signals()?;
        }
    }

    /// Returns whether this process hosts the store.
    fn is_hosted_here(&self) -> bool {
        self.is_hosted_here
    }

    /// Serves other processes, without waiting.
    fn progress(&self, py: Python<'_>) -> PyResult<()> {
        self.call(py, |store| {
            store.call(|store| {
                store.progress();
                Ok(())
            })
        })
    }
}

/// A Python object as a store. It keeps the first exception that the object, or a signal handler,
/// raised, and fails from then on.
pub(crate) struct ObjectStore {
    object: Py<PyAny>,
    raised: Arc<Raised>,
    has_progress: bool,
    is_hosted_here: bool,
}

impl ObjectStore {
    pub(crate) fn new(py: Python<'_>, object: Py<PyAny>) -> PyResult<Self> {
        let has_progress = object.bind(py).hasattr("progress")?;
        let is_hosted_here = object.bind(py).getattr("is_hosted_here");
        let is_hosted_here = is_hosted_here.is_ok_and(|it| it.is_truthy().unwrap_or(false));
        Ok(Self { object, raised: Arc::default(), has_progress, is_hosted_here })
    }

    /// Calls `then`, which uses this store and a network. Both stop once the object or a signal
    /// handler raises.
    pub(crate) fn watched<R>(&mut self, then: impl FnOnce(&mut Self) -> R) -> R {
        let (raised, mut last_check) = (Arc::clone(&self.raised), Instant::now());
        let goes_on = move || !raised.is_some() && raised.handles_signals(&mut last_check);
        with_stop_check(Box::new(goes_on), || then(self))
    }

    /// Returns what was made with this store, or the exception that the object raised. `raise`
    /// makes the exception for another error.
    pub(crate) fn outcome<R>(
        self,
        made: Result<R, ApiError>,
        raise: impl FnOnce(&ApiError) -> PyErr,
    ) -> PyResult<R> {
        match self.raised.take() {
            Some(raised) => Err(raised),
            None => made.map_err(|fault| raise(&fault)),
        }
    }

    /// Calls the object, unless a signal handler raises.
    fn call<R>(
        &mut self,
        call: impl FnOnce(&Bound<'_, PyAny>) -> PyResult<R>,
    ) -> Result<R, StoreError> {
        if self.raised.is_some() {
            return Err(StoreError::Failed);
        }
        self.attached(|object| {
            object.py().check_signals()?;
            call(object)
        })
    }

    fn attached<R>(
        &mut self,
        call: impl FnOnce(&Bound<'_, PyAny>) -> PyResult<R>,
    ) -> Result<R, StoreError> {
        Python::try_attach(|py| call(self.object.bind(py)))
            .unwrap_or_else(|| Err(pyo3::exceptions::PyRuntimeError::new_err("Python has ended")))
            .map_err(|raised| {
                self.raised.keep(raised);
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
        if self.has_progress && !self.raised.is_some() {
            // Its exception ends the next call, and the waits of `watched`.
            let _ = self.attached(|object| object.call_method0("progress").map(|_| ()));
        }
    }

    fn is_hosted_here(&self) -> bool {
        self.is_hosted_here
    }
}
