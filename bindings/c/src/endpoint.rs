//! The state of one transport endpoint: its communicators, those split from them, and calls in
//! progress. A lock allows one thread at a time.
//!
//! Meanwhile another thread may use a communicator's [`Signals`] to query its state and to abort
//! its calls. Aborted calls fail when they next poll the network. The thread that holds the lock
//! drops an aborted communicator before it releases the lock.

use std::collections::HashMap;
use std::mem;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::thread;

use foldwire::transport::MAX_CHANNELS;
use foldwire::{Config, Error, Report, SharedCommunicator, Stopper};

use crate::errors::{ApiError, code_of};
use crate::ffi::assert_send::AssertSend;
use crate::ffi::call::CoreCommunicator;
use crate::ffi::device::ArrayMemory;
use crate::ffi::process::OwnerProcess;
use crate::ffi::started::{AbortedCall, DynCall};
use crate::ffi::types::{
    FW_ABORTED, FW_IN_USE, FW_INTERNAL_ERROR, FW_INVALID_HANDLE, FW_SUCCESS, fwResult,
};
use crate::handle_table::{self, HandleEntry, HandleKind};
use crate::transport::{AnyTransport, GrownCommunicator};

/// Creates the communicator of all ranks of a transport. It has a channel for messages, unless its
/// calls take all channels.
///
/// # Errors
/// The errors of [`SharedCommunicator::with_config`].
pub fn with_messages(
    transport: AnyTransport,
    config: Config,
    n_calls: usize,
) -> Result<CoreCommunicator, Error> {
    let mut config = config;
    config.messages = n_calls < MAX_CHANNELS;
    SharedCommunicator::with_config(transport, config, n_calls)
}

/// The communicators and requests of one endpoint, behind a lock.
pub(crate) struct SharedEndpoint {
    state: Mutex<AssertSend<EndpointState>>,
    /// The process that created it.
    process: OwnerProcess,
    /// True if dropping the last communicator may wait for the network.
    may_linger: bool,
    /// Communicators that were aborted, and are not dropped yet.
    aborted: Mutex<Vec<usize>>,
    /// True if `aborted` has entries. Cheaper to read than the mutex.
    has_aborted: AtomicBool,
}

/// The part of a communicator that any thread may use, without the lock.
pub(crate) struct Signals {
    stopper: Stopper,
    /// Error that made the communicator unusable, or `FW_SUCCESS`. Calls update it when they
    /// finish.
    failure: AtomicI32,
}

impl Signals {
    /// Aborts the communicator's calls.
    pub(crate) fn stop(&self) {
        self.stopper.stop();
    }

    /// Returns the error that made the communicator unusable, or `FW_SUCCESS`.
    pub(crate) fn failure(&self) -> fwResult {
        self.failure.load(Ordering::Acquire)
    }
}

/// Communicators and requests, by handle.
#[derive(Default)]
pub(crate) struct EndpointState {
    /// First, because fields are dropped in order: dropping a call aborts it on its communicator.
    pub(crate) requests: HashMap<usize, CommRequest>,
    pub(crate) comms: HashMap<usize, CommEntry>,
}

/// A communicator, and data about its calls.
pub(crate) struct CommEntry {
    pub(crate) comm: CoreCommunicator,
    /// Where the arrays of its collectives are.
    pub(crate) memory: ArrayMemory,
    /// Report of the last successful call.
    pub(crate) report: Report,
    /// The survivors' bytes for newcomers, if the group has grown.
    pub(crate) facts: Vec<u8>,
    signals: Arc<Signals>,
}

/// A call in progress that the caller has a request for.
pub(crate) struct CommRequest {
    pub(crate) call: Box<dyn DynCall>,
    /// Handle of its communicator.
    pub(crate) comm: usize,
}

/// Lock guard of an endpoint's state.
pub(crate) struct EndpointGuard<'f> {
    endpoint: &'f SharedEndpoint,
    /// `None` after the lock was released, in `drop`.
    state: Option<MutexGuard<'f, AssertSend<EndpointState>>>,
}

impl Deref for EndpointGuard<'_> {
    type Target = EndpointState;

    fn deref(&self) -> &EndpointState {
        self.state.as_ref().expect("the guard holds the lock until it is dropped").as_ref()
    }
}

impl DerefMut for EndpointGuard<'_> {
    fn deref_mut(&mut self) -> &mut EndpointState {
        self.state.as_mut().expect("the guard holds the lock until it is dropped").as_mut()
    }
}

/// Drops communicators that were aborted meanwhile, and releases the lock.
impl Drop for EndpointGuard<'_> {
    fn drop(&mut self) {
        // After a panic, leave the state alone.
        while !thread::panicking() {
            // Aborts are rare, and a load costs less than a swap.
            let has_aborted = &self.endpoint.has_aborted;
            if has_aborted.load(Ordering::SeqCst) && has_aborted.swap(false, Ordering::SeqCst) {
                self.drop_aborted_comms();
            }
            self.state = None;
            // A thread that aborted a communicator just before found the lock taken, and left the
            // drop to this thread. Lock again to do it.
            if !self.endpoint.has_aborted.load(Ordering::SeqCst) {
                break;
            }
            let Ok(state) = self.endpoint.state.try_lock() else { break };
            self.state = Some(state);
        }
    }
}

impl EndpointGuard<'_> {
    /// Drops the communicators in `aborted`.
    fn drop_aborted_comms(&mut self) {
        let aborted = mem::take(&mut *self.endpoint.aborted());
        for comm in aborted {
            // The thread that held the lock may have destroyed it meanwhile.
            let Some(entry) = self.comms.get(&comm) else { continue };
            // Starting and aborting a call notifies ranks that wait for this rank's next call.
            if !entry.comm.is_poisoned() {
                drop(entry.comm.start_barrier());
            }
            if self.comms.len() > 1 || !self.endpoint.may_linger {
                self.remove_comm(comm);
                continue;
            }
            // Dropping the last communicator waits until the network has sent everything. An abort
            // must not wait, so another thread drops the state. Aborted requests borrow nothing of
            // it, and stay.
            self.requests.values_mut().for_each(CommRequest::abort);
            let mut state = mem::take(&mut **self);
            self.requests = mem::take(&mut state.requests);
            let state = AssertSend::new(state);
            // If no thread can be created, the closure, and so the state, is dropped here.
            let _ = thread::Builder::new().spawn(move || drop(state));
        }
    }
}

impl SharedEndpoint {
    /// Creates an endpoint with one communicator, and returns the communicator's handle.
    pub(crate) fn create(
        transport: AnyTransport,
        config: Config,
        n_calls: usize,
    ) -> Result<usize, ApiError> {
        let may_linger = matches!(transport, AnyTransport::Tcp(_));
        Self::of(with_messages(transport, config, n_calls)?, may_linger, ArrayMemory::Host)
    }

    /// Creates an endpoint of the communicator of a group that has grown, and returns its handle.
    pub(crate) fn of_grown(
        grown: GrownCommunicator,
        memory: ArrayMemory,
    ) -> Result<usize, ApiError> {
        let GrownCommunicator { comm, facts, .. } = grown;
        let handle = Self::of(comm, true, memory)?;
        let (endpoint, ..) = handle_table::comm(handle)?;
        endpoint.enter()?.entry(handle)?.facts = facts;
        Ok(handle)
    }

    fn of(
        comm: CoreCommunicator,
        may_linger: bool,
        memory: ArrayMemory,
    ) -> Result<usize, ApiError> {
        let endpoint = Arc::new(Self {
            state: Mutex::new(AssertSend::new(EndpointState::default())),
            process: OwnerProcess::this(),
            may_linger,
            aborted: Mutex::default(),
            has_aborted: AtomicBool::new(false),
        });
        let mut guard = endpoint.enter()?;
        guard.add_comm(&endpoint, comm, memory)
    }

    /// Checks that the current process created the endpoint.
    ///
    /// # Errors
    /// If the current process is a fork of the one that created it.
    pub(crate) fn check_process(&self, what: &str) -> Result<(), ApiError> {
        if self.process.is_this() {
            return Ok(());
        }
        let message = format!(
            "this {what} belongs to process {}, and this process is a fork of it; create a \
             communicator in this process",
            self.process.id
        );
        Err(ApiError::new(FW_INVALID_HANDLE, message))
    }

    /// Tries to lock the state.
    ///
    /// # Errors
    /// If another thread holds the lock, an earlier panic has poisoned it, or another process
    /// created the endpoint.
    pub(crate) fn enter(&self) -> Result<EndpointGuard<'_>, ApiError> {
        self.check_process("communicator")?;
        match self.state.try_lock() {
            Ok(state) => Ok(EndpointGuard { endpoint: self, state: Some(state) }),
            Err(TryLockError::WouldBlock) => {
                let message = "another thread is in a call on this communicator, or on one that \
                               was split from it or into it; only one call at a time is allowed";
                Err(ApiError::new(FW_IN_USE, message))
            }
            Err(TryLockError::Poisoned(_)) => {
                let message = "an earlier panic left this communicator unusable; destroy it";
                Err(ApiError::new(FW_INTERNAL_ERROR, message))
            }
        }
    }

    /// Drops an aborted communicator whose handle was freed: now, or when the thread that holds the
    /// lock releases it.
    pub(crate) fn drop_aborted(&self, comm: usize) {
        self.aborted().push(comm);
        self.has_aborted.store(true, Ordering::SeqCst);
        drop(self.enter());
    }

    fn aborted(&self) -> MutexGuard<'_, Vec<usize>> {
        self.aborted.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl EndpointState {
    /// Adds a communicator and returns its handle.
    pub(crate) fn add_comm(
        &mut self,
        endpoint: &Arc<SharedEndpoint>,
        comm: CoreCommunicator,
        memory: ArrayMemory,
    ) -> Result<usize, ApiError> {
        let failure = AtomicI32::new(FW_SUCCESS);
        let signals = Arc::new(Signals { stopper: comm.stopper(), failure });
        let (rank, size) = (comm.rank().index(), comm.size());
        let kind = HandleKind::Comm { rank, size, signals: Arc::clone(&signals) };
        let handle = handle_table::insert(HandleEntry { kind, endpoint: Arc::clone(endpoint) })?;
        let report = Report::default();
        self.comms.insert(handle, CommEntry { comm, memory, report, facts: Vec::new(), signals });
        Ok(handle)
    }

    /// Returns the communicator of a handle.
    pub(crate) fn entry(&mut self, handle: usize) -> Result<&mut CommEntry, ApiError> {
        self.comms.get_mut(&handle).ok_or_else(gone)
    }

    /// Adds a running call and returns its handle.
    pub(crate) fn add_request(
        &mut self,
        endpoint: &Arc<SharedEndpoint>,
        comm: usize,
        call: Box<dyn DynCall>,
    ) -> Result<usize, ApiError> {
        let handle = handle_table::insert(HandleEntry {
            kind: HandleKind::Request,
            endpoint: Arc::clone(endpoint),
        })?;
        self.requests.insert(handle, CommRequest { call, comm });
        Ok(handle)
    }

    /// Waits until a call has finished, and frees its handle.
    pub(crate) fn finish(&mut self, handle: usize) -> Result<(), ApiError> {
        handle_table::remove(handle);
        let CommRequest { call, comm } = self.requests.remove(&handle).ok_or_else(gone)?;
        self.record(comm, call.wait())
    }

    /// Stores the report of a finished call. After an error, publishes whether the communicator is
    /// unusable.
    pub(crate) fn record(
        &mut self,
        comm: usize,
        report: Result<Report, ApiError>,
    ) -> Result<(), ApiError> {
        match report {
            Ok(report) => {
                if let Some(entry) = self.comms.get_mut(&comm) {
                    entry.report = report;
                }
                Ok(())
            }
            Err(fault) => {
                self.publish_failure(comm);
                Err(fault)
            }
        }
    }

    /// Copies a communicator's failure to its signals, for other threads.
    pub(crate) fn publish_failure(&self, comm: usize) {
        let Some(entry) = self.comms.get(&comm) else { return };
        if entry.signals.failure() == FW_SUCCESS
            && let Some(error) = entry.comm.failure()
        {
            entry.signals.failure.store(code_of(&error), Ordering::Release);
        }
    }

    /// Advances all calls in progress. Returns whether one of them made progress.
    pub(crate) fn progress(&self) -> bool {
        // Any communicator advances all calls of the endpoint.
        self.comms.values().next().is_some_and(|entry| entry.comm.progress())
    }

    /// Returns the handles of a communicator's requests.
    pub(crate) fn requests_of(&self, comm: usize) -> Vec<usize> {
        let of = self.requests.iter().filter(|(_, request)| request.comm == comm);
        of.map(|(&handle, _)| handle).collect()
    }

    /// Frees the handle of a communicator and takes the communicator out.
    ///
    /// # Errors
    /// If another thread has aborted it since its handle was looked up. That thread has freed the
    /// handle, and the communicator is dropped with the lock.
    pub(crate) fn take_comm(&mut self, comm: usize) -> Result<CommEntry, ApiError> {
        if !handle_table::take(comm) {
            let message = "another thread has aborted this communicator";
            return Err(ApiError::new(FW_ABORTED, message));
        }
        self.comms.remove(&comm).ok_or_else(gone)
    }

    /// Drops a communicator, and aborts its calls.
    pub(crate) fn remove_comm(&mut self, comm: usize) {
        let of = self.requests.values_mut().filter(|request| request.comm == comm);
        of.for_each(CommRequest::abort);
        self.comms.remove(&comm);
    }
}

impl CommRequest {
    /// Drops the call. The request stays until the caller waits for it, and returns `FW_ABORTED`.
    fn abort(&mut self) {
        self.call = Box::new(AbortedCall);
    }
}

/// The error for a handle that another thread has freed since it was looked up.
pub(crate) fn gone() -> ApiError {
    ApiError::new(FW_INVALID_HANDLE, "this communicator or request was freed by another thread")
}
