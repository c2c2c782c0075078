//! A rank with all that comes of one endpoint: its communicators, those split from them, and calls
//! under way. One thread at a time may be in it.
//!
//! Another thread may look at a communicator's [`Signals`] meanwhile, and end its calls: they fail
//! when they next look at the network. The thread that is inside drops the communicator when it
//! leaves.

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
use crate::ffi::call::{CoreCommunicator, DynCall};
use crate::ffi::process::OwnerProcess;
use crate::ffi::types::{FW_IN_USE, FW_INTERNAL_ERROR, FW_INVALID_HANDLE, FW_SUCCESS, fwResult};
use crate::handle_table::{self, HandleEntry, HandleKind};
use crate::transport::AnyTransport;

/// A communicator with a channel for messages, if its calls leave one.
pub(crate) fn with_messages(
    transport: AnyTransport,
    config: Config,
    n_calls: usize,
) -> Result<CoreCommunicator, Error> {
    let mut config = config;
    config.messages = n_calls < MAX_CHANNELS;
    SharedCommunicator::with_config(transport, config, n_calls)
}

/// What communicators of one endpoint share.
pub(crate) struct SharedEndpoint {
    state: Mutex<AssertSend<EndpointState>>,
    /// The process that made it.
    process: OwnerProcess,
    /// Its end may wait for the network.
    may_linger: bool,
    /// Communicators that were aborted, and are not dropped yet; whether there are any.
    aborted: Mutex<Vec<usize>>,
    has_aborted: AtomicBool,
}

/// A communicator, as threads see it while another one is inside.
pub(crate) struct Signals {
    stopper: Stopper,
    /// Why it can make no more calls, as far as a call has seen it.
    failure: AtomicI32,
}

impl Signals {
    /// Ends the calls on it.
    pub(crate) fn stop(&self) {
        self.stopper.stop();
    }

    /// Why it can make no more calls, or `FW_SUCCESS`.
    pub(crate) fn failure(&self) -> fwResult {
        self.failure.load(Ordering::Acquire)
    }
}

/// By their handles.
#[derive(Default)]
pub(crate) struct EndpointState {
    /// Above the communicators: calls that are dropped are given up on them.
    pub(crate) requests: HashMap<usize, CommRequest>,
    pub(crate) comms: HashMap<usize, CommEntry>,
}

/// A communicator.
pub(crate) struct CommEntry {
    pub(crate) comm: CoreCommunicator,
    /// What its last call did.
    pub(crate) report: Report,
    signals: Arc<Signals>,
}

/// A call under way that the caller has a handle of.
pub(crate) struct CommRequest {
    pub(crate) call: Box<dyn DynCall>,
    /// The handle of its communicator.
    pub(crate) comm: usize,
}

/// The state, for one thread.
pub(crate) struct EndpointGuard<'f> {
    endpoint: &'f SharedEndpoint,
    /// `None` once it has left.
    state: Option<MutexGuard<'f, AssertSend<EndpointState>>>,
}

impl Deref for EndpointGuard<'_> {
    type Target = EndpointState;

    fn deref(&self) -> &EndpointState {
        self.state.as_ref().expect("it is there until the drop").as_ref()
    }
}

impl DerefMut for EndpointGuard<'_> {
    fn deref_mut(&mut self) -> &mut EndpointState {
        self.state.as_mut().expect("it is there until the drop").as_mut()
    }
}

/// Leaves, and drops what was aborted meanwhile.
impl Drop for EndpointGuard<'_> {
    fn drop(&mut self) {
        // A panic's state is left alone.
        while !thread::panicking() {
            // Seldom there is one, and a look costs less than a swap.
            let has_aborted = &self.endpoint.has_aborted;
            if has_aborted.load(Ordering::SeqCst) && has_aborted.swap(false, Ordering::SeqCst) {
                self.drop_aborted_comms();
            }
            self.state = None;
            // A thread that aborted one a moment ago found this one inside, and left it the rest.
            if !self.endpoint.has_aborted.load(Ordering::SeqCst) {
                break;
            }
            let Ok(state) = self.endpoint.state.try_lock() else { break };
            self.state = Some(state);
        }
    }
}

impl EndpointGuard<'_> {
    fn drop_aborted_comms(&mut self) {
        let aborted = mem::take(&mut *self.endpoint.aborted());
        for comm in aborted {
            // Ranks that wait for the next call hear of it by one that is begun and given up.
            if let Some(entry) = self.comms.get(&comm).filter(|one| !one.comm.is_poisoned()) {
                drop(entry.comm.start_barrier());
            }
            if self.comms.len() > 1 || !self.endpoint.may_linger {
                self.remove_comm(comm);
                continue;
            }
            // Its end waits for what the network still has to send; the caller wanted one at once.
            self.requests_of(comm).into_iter().for_each(|request| self.abort_request(request));
            let state = AssertSend::new(mem::take(&mut **self));
            // Without a thread it is dropped here.
            let _ = thread::Builder::new().spawn(move || drop(state));
        }
    }
}

impl SharedEndpoint {
    /// A family of one communicator, and its handle.
    pub(crate) fn create(
        transport: AnyTransport,
        config: Config,
        n_calls: usize,
    ) -> Result<usize, ApiError> {
        let may_linger = matches!(transport, AnyTransport::Tcp(_));
        let comm = with_messages(transport, config, n_calls)?;
        let endpoint = Arc::new(Self {
            state: Mutex::new(AssertSend::new(EndpointState::default())),
            process: OwnerProcess::this(),
            may_linger,
            aborted: Mutex::default(),
            has_aborted: AtomicBool::new(false),
        });
        let mut guard = endpoint.enter()?;
        guard.add_comm(&endpoint, comm)
    }

    /// # Errors
    /// A fault in a process that was forked off that which made it.
    pub(crate) fn check_process(&self, what: &str) -> Result<(), ApiError> {
        if self.process.is_this() {
            return Ok(());
        }
        let message = format!(
            "this {what} is of process {}, of which this one is a fork; make a communicator here",
            self.process.id
        );
        Err(ApiError::new(FW_INVALID_HANDLE, message))
    }

    /// Goes in.
    ///
    /// # Errors
    /// A fault if another thread is inside, or a panic left it half way, or in another process.
    pub(crate) fn enter(&self) -> Result<EndpointGuard<'_>, ApiError> {
        self.check_process("communicator")?;
        match self.state.try_lock() {
            Ok(state) => Ok(EndpointGuard { endpoint: self, state: Some(state) }),
            Err(TryLockError::WouldBlock) => {
                let message = "another thread is inside a call on this communicator, or on one of \
                               the same origin; they take one call at a time";
                Err(ApiError::new(FW_IN_USE, message))
            }
            Err(TryLockError::Poisoned(_)) => {
                let message = "a panic has left this communicator half way; destroy it";
                Err(ApiError::new(FW_INTERNAL_ERROR, message))
            }
        }
    }

    /// Has a communicator dropped, whose handle is free: now, or when the thread that is inside
    /// leaves.
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
    /// Takes a communicator in; its handle.
    pub(crate) fn add_comm(
        &mut self,
        endpoint: &Arc<SharedEndpoint>,
        comm: CoreCommunicator,
    ) -> Result<usize, ApiError> {
        let failure = AtomicI32::new(FW_SUCCESS);
        let signals = Arc::new(Signals { stopper: comm.stopper(), failure });
        let (rank, size) = (comm.rank().index(), comm.size());
        let kind = HandleKind::Comm { rank, size, signals: Arc::clone(&signals) };
        let handle = handle_table::insert(HandleEntry { kind, endpoint: Arc::clone(endpoint) })?;
        self.comms.insert(handle, CommEntry { comm, report: Report::default(), signals });
        Ok(handle)
    }

    /// The communicator of a handle.
    pub(crate) fn entry(&mut self, handle: usize) -> Result<&mut CommEntry, ApiError> {
        self.comms.get_mut(&handle).ok_or_else(gone)
    }

    /// Takes a call under way in; its handle.
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

    /// Drives a call to its end; its handle is free afterwards.
    pub(crate) fn finish(&mut self, handle: usize) -> Result<(), ApiError> {
        handle_table::remove(handle);
        let CommRequest { call, comm } = self.requests.remove(&handle).ok_or_else(gone)?;
        let report = call.wait().map_err(ApiError::from);
        self.record(comm, report)
    }

    /// Keeps what a call of a communicator has reported, or that it has ended the communicator.
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

    /// Lets other threads see what has become of a communicator.
    pub(crate) fn publish_failure(&self, comm: usize) {
        let Some(entry) = self.comms.get(&comm) else { return };
        if entry.signals.failure() == FW_SUCCESS
            && let Some(error) = entry.comm.failure()
        {
            entry.signals.failure.store(code_of(&error), Ordering::Release);
        }
    }

    /// Advances all that is under way. Whether something moved.
    pub(crate) fn progress(&self) -> bool {
        // Any of them drives all calls over the endpoint; one that was shrunk is no longer here.
        self.comms.values().next().is_some_and(|entry| entry.comm.progress())
    }

    /// The handles of calls under way on a communicator.
    pub(crate) fn requests_of(&self, comm: usize) -> Vec<usize> {
        let of = self.requests.iter().filter(|(_, request)| request.comm == comm);
        of.map(|(&handle, _)| handle).collect()
    }

    /// Gives a call up.
    fn abort_request(&mut self, request: usize) {
        handle_table::remove(request);
        self.requests.remove(&request);
    }

    /// Drops a communicator with its calls.
    pub(crate) fn remove_comm(&mut self, comm: usize) {
        self.requests_of(comm).into_iter().for_each(|request| self.abort_request(request));
        self.comms.remove(&comm);
    }
}

/// A handle that another thread has freed since it was looked up.
fn gone() -> ApiError {
    ApiError::new(FW_INVALID_HANDLE, "this communicator or request is gone")
}
