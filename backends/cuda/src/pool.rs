//! Devices and workspaces that a process has opened, for bindings whose callers name a device by
//! its number.

use crate::driver::StreamId;
use crate::{Cuda, DeviceError, DevicePtr, Driver, Workspace, WorkspaceConfig};
use foldwire::codec::{CodecId, Written};
use foldwire::device::{Device, DeviceCall, DeviceOp, Region};
use foldwire::op::OpCode;
use foldwire::{DType, Error};
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};
use std::task::Poll;

/// Devices and free workspaces of this process.
#[derive(Default)]
struct Pool {
    devices: BTreeMap<usize, Arc<dyn Driver>>,
    free: HashMap<(usize, WorkspaceConfig), Vec<Workspace>>,
}

static POOL: LazyLock<Mutex<Pool>> = LazyLock::new(Mutex::default);

fn pool() -> MutexGuard<'static, Pool> {
    POOL.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Opens device number `ordinal`, or returns it if it is open.
///
/// # Errors
/// As [`Cuda::open`].
pub fn device(ordinal: usize) -> Result<Arc<dyn Driver>, DeviceError> {
    Ok(match pool().devices.entry(ordinal) {
        Entry::Occupied(entry) => Arc::clone(entry.get()),
        Entry::Vacant(entry) => Arc::clone(entry.insert(Cuda::open(ordinal)?)),
    })
}

/// Makes a device of another kind known as number `ordinal`. No call uses one of this number now.
pub fn register(ordinal: usize, driver: Arc<dyn Driver>) {
    let mut pool = pool();
    pool.devices.insert(ordinal, driver);
    pool.free.retain(|(of, _), _| *of != ordinal);
}

/// Lends a workspace of these sizes. It is made if none is free, and kept for later calls.
/// `stream` is the caller's ([`Workspace::set_stream`]).
///
/// # Errors
/// As [`device`] and [`Workspace::with_config`].
pub fn lend(
    ordinal: usize,
    config: WorkspaceConfig,
    stream: Option<StreamId>,
) -> Result<LentWorkspace, DeviceError> {
    let free = pool().free.get_mut(&(ordinal, config)).and_then(Vec::pop);
    let mut workspace = match free {
        Some(workspace) => workspace,
        None => Workspace::with_config(&device(ordinal)?, config)?,
    };
    workspace.set_stream(stream);
    let (workspace, last_error) = (Some(workspace), LastError::default());
    Ok(LentWorkspace { key: (ordinal, config), workspace, last_error })
}

/// The error behind a call's [`Error::Device`], with the driver's words. It is there when the call
/// has given its workspace back.
#[derive(Clone, Debug, Default)]
pub struct LastError(Arc<Mutex<Option<DeviceError>>>);

impl LastError {
    /// Takes the error, if there was one.
    #[must_use]
    pub fn take(&self) -> Option<DeviceError> {
        self.place().take()
    }

    fn place(&self) -> MutexGuard<'_, Option<DeviceError>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A workspace of the process, which is free again when this is dropped.
#[derive(Debug)]
pub struct LentWorkspace {
    key: (usize, WorkspaceConfig),
    /// Present until it is dropped.
    workspace: Option<Workspace>,
    last_error: LastError,
}

impl LentWorkspace {
    /// Returns where the error of a call will be.
    #[must_use]
    pub fn last_error(&self) -> LastError {
        self.last_error.clone()
    }

    /// Copies bytes within the device before the call ([`Workspace::copy`]).
    ///
    /// # Errors
    /// As [`Workspace::copy`].
    pub fn copy(
        &mut self,
        from: DevicePtr,
        to: DevicePtr,
        n_bytes: usize,
    ) -> Result<(), DeviceError> {
        self.workspace.as_ref().map_or(Ok(()), |workspace| workspace.copy(from, to, n_bytes))
    }

    fn get(&mut self) -> Result<&mut Workspace, Error> {
        self.workspace.as_mut().ok_or(Error::Internal)
    }
}

impl Drop for LentWorkspace {
    fn drop(&mut self) {
        let Some(workspace) = self.workspace.take() else { return };
        match workspace.last_error() {
            None => pool().free.entry(self.key).or_default().push(workspace),
            // A workspace whose device failed is not lent again.
            Some(error) => *self.last_error.place() = Some(error.clone()),
        }
    }
}

impl Device for LentWorkspace {
    fn supports(&mut self, codec: CodecId, dtype: DType, op: OpCode) -> Result<bool, Error> {
        self.get()?.supports(codec, dtype, op)
    }

    fn begin(&mut self) -> Result<(), Error> {
        self.get()?.begin()
    }

    fn compute(
        &mut self,
        lane: usize,
        op: DeviceOp<'_>,
        n_values: usize,
        call: &DeviceCall,
    ) -> Poll<Result<Written, Error>> {
        self.get()?.compute(lane, op, n_values, call)
    }

    fn read(&mut self, values: Region, dtype: DType, to: &mut [u8]) -> Result<(), Error> {
        self.get()?.read(values, dtype, to)
    }

    fn value_range(&mut self, values: Region, dtype: DType) -> Result<[f64; 2], Error> {
        self.get()?.value_range(values, dtype)
    }

    fn poll_end(&mut self) -> Poll<Result<(), Error>> {
        self.get()?.poll_end()
    }
}
