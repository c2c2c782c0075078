//! Devices and workspaces that a process has opened, for bindings whose callers name a device by
//! its number.
//!
//! Several calls in progress need a workspace each. Each owns its buffers, or borrows them for
//! longer than the communicator lives:
//!
//! ```no_run
//! use foldwire::{Call, Error, Op, Plan, SharedCommunicator, Transport};
//! use foldwire_cuda::{DeviceBuffer, WorkspaceConfig, pool};
//!
//! fn twice<'a, X: Transport>(
//!     comm: &SharedCommunicator<'a, X>,
//!     x: DeviceBuffer<f32>,
//!     y: DeviceBuffer<f32>,
//! ) -> Result<[DeviceBuffer<f32>; 2], Error> {
//!     let config = WorkspaceConfig::new(comm.n_lanes(), comm.frame_bytes());
//!     let start = |buffer: DeviceBuffer<f32>| {
//!         let workspace = pool::lend(0, config, None);
//!         comm.start_on(Box::new(workspace), Call::all_reduce(buffer, Op::Sum), &Plan::raw())
//!     };
//!     let (x, y) = (start(x)?, start(y)?);
//!     Ok([x.wait().into_result()?.0, y.wait().into_result()?.0])
//! }
//! ```
//!
//! A buffer cannot end before its call:
//!
//! ```compile_fail,E0597
//! # use foldwire::{Call, Error, Op, Plan, SharedCommunicator, Transport};
//! # use foldwire_cuda::{DeviceBuffer, WorkspaceConfig, pool};
//! fn early<'a, X: Transport>(comm: &SharedCommunicator<'a, X>) -> Result<(), Error> {
//!     let config = WorkspaceConfig::new(comm.n_lanes(), comm.frame_bytes());
//!     let workspace = pool::lend(0, config, None);
//!     let call = {
//!         let gpu = pool::device(0).unwrap();
//!         let mut x = DeviceBuffer::from_values(&gpu, &[1.0_f32]).unwrap();
//!         comm.start_on(Box::new(workspace), Call::all_reduce(x.output(), Op::Sum), &Plan::raw())?
//!     };
//!     call.wait().into_result().map(drop)
//! }
//! ```

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
/// If the workspace cannot be made, or a [copy](LentWorkspace::copy) fails, the call on it ends
/// with [`Error::Device`], and tells the other ranks.
#[must_use]
pub fn lend(ordinal: usize, config: WorkspaceConfig, stream: Option<StreamId>) -> LentWorkspace {
    let free = pool().free.get_mut(&(ordinal, config)).and_then(Vec::pop);
    let made = || {
        let driver = device(ordinal)?;
        match Workspace::with_config(&driver, config) {
            Err(DeviceError::OutOfMemory { .. }) if end_unused(ordinal) => {
                Workspace::with_config(&driver, config)
            }
            made => made,
        }
    };
    let mut workspace = free.map_or_else(made, Ok);
    if let Ok(workspace) = &mut workspace {
        workspace.set_stream(stream);
    }
    let (workspace, last_error) = (Some(workspace), LastError::default());
    LentWorkspace { key: (ordinal, config), workspace, last_error }
}

/// Ends the workspaces of a device that no call uses. Returns whether there were any.
fn end_unused(ordinal: usize) -> bool {
    let mut unused = Vec::new();
    pool().free.retain(|(of, _), workspaces| {
        let is_other = *of != ordinal;
        if !is_other {
            unused.append(workspaces);
        }
        is_other
    });
    // They end here, outside of the lock, because that may wait for the device.
    !unused.is_empty()
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
    /// The workspace, or why there is none. Present until this is dropped.
    workspace: Option<Result<Workspace, DeviceError>>,
    last_error: LastError,
}

impl LentWorkspace {
    /// Returns where the error of a call will be.
    #[must_use]
    pub fn last_error(&self) -> LastError {
        self.last_error.clone()
    }

    /// Copies bytes within the device before the call ([`Workspace::copy`]).
    pub fn copy(&mut self, from: DevicePtr, to: DevicePtr, n_bytes: usize) {
        if let Some(Ok(workspace)) = &self.workspace
            && let Err(error) = workspace.copy(from, to, n_bytes)
        {
            self.workspace = Some(Err(error));
        }
    }

    fn get(&mut self) -> Result<&mut Workspace, Error> {
        match &mut self.workspace {
            Some(Ok(workspace)) => Ok(workspace),
            Some(Err(error)) => Err(Error::Device { kind: error.kind() }),
            None => Err(Error::Internal),
        }
    }
}

impl Drop for LentWorkspace {
    fn drop(&mut self) {
        let failure = match self.workspace.take() {
            Some(Ok(workspace)) if workspace.last_error().is_none() => {
                pool().free.entry(self.key).or_default().push(workspace);
                None
            }
            // A workspace whose device failed is not lent again.
            Some(Ok(workspace)) => workspace.last_error().cloned(),
            Some(Err(error)) => Some(error),
            None => None,
        };
        *self.last_error.place() = failure;
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

    fn encode_ahead(
        &mut self,
        lane: usize,
        values: Region,
        codec: CodecId,
        call: &DeviceCall,
    ) -> Result<bool, Error> {
        self.get()?.encode_ahead(lane, values, codec, call)
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
