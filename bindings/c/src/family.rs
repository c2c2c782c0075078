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

use crate::border::{Fault, code_of};
use crate::ffi::call::{Comm, Running};
use crate::ffi::movable::Movable;
use crate::ffi::process::Process;
use crate::ffi::types::{FW_IN_USE, FW_INTERNAL_ERROR, FW_INVALID_HANDLE, FW_SUCCESS, fwResult};
use crate::handles::{self, Entry, Kind};
use crate::wire::Wire;

/// A communicator with a channel for messages, if its calls leave one.
pub(crate) fn with_messages(wire: Wire, config: Config, n_calls: usize) -> Result<Comm, Error> {
    let mut config = config;
    config.messages = n_calls < MAX_CHANNELS;
    SharedCommunicator::with_config(wire, config, n_calls)
}

/// What communicators of one endpoint share.
pub(crate) struct Family {
    state: Mutex<Movable<State>>,
    /// The process that made it.
    process: Process,
    /// Its end may wait for the network.
    may_linger: bool,
    /// Communicators that were aborted, and are not dropped yet; whether there are any.
    doomed: Mutex<Vec<usize>>,
    has_doomed: AtomicBool,
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
pub(crate) struct State {
    /// Above the communicators: calls that are dropped are given up on them.
    pub(crate) requests: HashMap<usize, Request>,
    pub(crate) comms: HashMap<usize, Member>,
}

/// A communicator.
pub(crate) struct Member {
    pub(crate) comm: Comm,
    /// What its last call did.
    pub(crate) report: Report,
    signals: Arc<Signals>,
}

/// A call under way that the caller has a handle of.
pub(crate) struct Request {
    pub(crate) call: Box<dyn Running>,
    /// The handle of its communicator.
    pub(crate) comm: usize,
}

/// The state, for one thread.
pub(crate) struct Inside<'f> {
    family: &'f Family,
    /// `None` once it has left.
    state: Option<MutexGuard<'f, Movable<State>>>,
}

impl Deref for Inside<'_> {
    type Target = State;

    fn deref(&self) -> &State {
        self.state.as_ref().expect("it is there until the drop").as_ref()
    }
}

impl DerefMut for Inside<'_> {
    fn deref_mut(&mut self) -> &mut State {
        self.state.as_mut().expect("it is there until the drop").as_mut()
    }
}

/// Leaves, and drops what was aborted meanwhile.
impl Drop for Inside<'_> {
    fn drop(&mut self) {
        // A panic's state is left alone.
        while !thread::panicking() {
            // Seldom there is one, and a look costs less than a swap.
            let has_doomed = &self.family.has_doomed;
            if has_doomed.load(Ordering::SeqCst) && has_doomed.swap(false, Ordering::SeqCst) {
                self.bury();
            }
            self.state = None;
            // A thread that aborted one a moment ago found this one inside, and left it the rest.
            if !self.family.has_doomed.load(Ordering::SeqCst) {
                break;
            }
            let Ok(state) = self.family.state.try_lock() else { break };
            self.state = Some(state);
        }
    }
}

impl Inside<'_> {
    fn bury(&mut self) {
        let doomed = mem::take(&mut *self.family.doomed());
        for comm in doomed {
            // Ranks that wait for the next call hear of it by one that is begun and given up.
            if let Some(member) = self.comms.get(&comm).filter(|one| !one.comm.is_poisoned()) {
                drop(member.comm.start_barrier());
            }
            if self.comms.len() > 1 || !self.family.may_linger {
                self.end(comm);
                continue;
            }
            // Its end waits for what the network still has to send; the caller wanted one at once.
            self.requests_of(comm).into_iter().for_each(|request| self.give_up(request));
            let state = Movable::new(mem::take(&mut **self));
            // Without a thread it is dropped here.
            let _ = thread::Builder::new().spawn(move || drop(state));
        }
    }
}

impl Family {
    /// A family of one communicator, and its handle.
    pub(crate) fn found(wire: Wire, config: Config, n_calls: usize) -> Result<usize, Fault> {
        let may_linger = matches!(wire, Wire::Tcp(_));
        let comm = with_messages(wire, config, n_calls)?;
        let family = Arc::new(Self {
            state: Mutex::new(Movable::new(State::default())),
            process: Process::this(),
            may_linger,
            doomed: Mutex::default(),
            has_doomed: AtomicBool::new(false),
        });
        let mut inside = family.enter()?;
        inside.add(&family, comm)
    }

    /// # Errors
    /// A fault in a process that was forked off that which made it.
    pub(crate) fn check_process(&self, what: &str) -> Result<(), Fault> {
        if self.process.is_this() {
            return Ok(());
        }
        let message = format!(
            "this {what} is of process {}, of which this one is a fork; make a communicator here",
            self.process.id
        );
        Err(Fault::new(FW_INVALID_HANDLE, message))
    }

    /// Goes in.
    ///
    /// # Errors
    /// A fault if another thread is inside, or a panic left it half way, or in another process.
    pub(crate) fn enter(&self) -> Result<Inside<'_>, Fault> {
        self.check_process("communicator")?;
        match self.state.try_lock() {
            Ok(state) => Ok(Inside { family: self, state: Some(state) }),
            Err(TryLockError::WouldBlock) => {
                let message = "another thread is inside a call on this communicator, or on one of \
                               the same origin; they take one call at a time";
                Err(Fault::new(FW_IN_USE, message))
            }
            Err(TryLockError::Poisoned(_)) => {
                let message = "a panic has left this communicator half way; destroy it";
                Err(Fault::new(FW_INTERNAL_ERROR, message))
            }
        }
    }

    /// Has a communicator dropped, whose handle is free: now, or when the thread that is inside
    /// leaves.
    pub(crate) fn doom(&self, comm: usize) {
        self.doomed().push(comm);
        self.has_doomed.store(true, Ordering::SeqCst);
        drop(self.enter());
    }

    fn doomed(&self) -> MutexGuard<'_, Vec<usize>> {
        self.doomed.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Takes a communicator in; its handle.
    pub(crate) fn add(&mut self, family: &Arc<Family>, comm: Comm) -> Result<usize, Fault> {
        let failure = AtomicI32::new(FW_SUCCESS);
        let signals = Arc::new(Signals { stopper: comm.stopper(), failure });
        let (rank, size) = (comm.rank().index(), comm.size());
        let kind = Kind::Comm { rank, size, signals: Arc::clone(&signals) };
        let handle = handles::insert(Entry { kind, family: Arc::clone(family) })?;
        self.comms.insert(handle, Member { comm, report: Report::default(), signals });
        Ok(handle)
    }

    /// The communicator of a handle.
    pub(crate) fn member(&mut self, handle: usize) -> Result<&mut Member, Fault> {
        self.comms.get_mut(&handle).ok_or_else(gone)
    }

    /// Takes a call under way in; its handle.
    pub(crate) fn keep(
        &mut self,
        family: &Arc<Family>,
        comm: usize,
        call: Box<dyn Running>,
    ) -> Result<usize, Fault> {
        let handle = handles::insert(Entry { kind: Kind::Request, family: Arc::clone(family) })?;
        self.requests.insert(handle, Request { call, comm });
        Ok(handle)
    }

    /// Drives a call to its end; its handle is free afterwards.
    pub(crate) fn finish(&mut self, handle: usize) -> Result<(), Fault> {
        handles::remove(handle);
        let Request { call, comm } = self.requests.remove(&handle).ok_or_else(gone)?;
        let report = call.wait().map_err(Fault::from);
        self.note(comm, report)
    }

    /// Keeps what a call of a communicator has reported, or that it has ended the communicator.
    pub(crate) fn note(&mut self, comm: usize, report: Result<Report, Fault>) -> Result<(), Fault> {
        match report {
            Ok(report) => {
                if let Some(member) = self.comms.get_mut(&comm) {
                    member.report = report;
                }
                Ok(())
            }
            Err(fault) => {
                self.observe(comm);
                Err(fault)
            }
        }
    }

    /// Lets other threads see what has become of a communicator.
    pub(crate) fn observe(&self, comm: usize) {
        let Some(member) = self.comms.get(&comm) else { return };
        if member.signals.failure() == FW_SUCCESS
            && let Some(error) = member.comm.failure()
        {
            member.signals.failure.store(code_of(&error), Ordering::Release);
        }
    }

    /// Advances all that is under way. Whether something moved.
    pub(crate) fn progress(&self) -> bool {
        // Any of them drives all calls over the endpoint; one that was shrunk is no longer here.
        self.comms.values().next().is_some_and(|member| member.comm.progress())
    }

    /// The handles of calls under way on a communicator.
    pub(crate) fn requests_of(&self, comm: usize) -> Vec<usize> {
        let of = self.requests.iter().filter(|(_, request)| request.comm == comm);
        of.map(|(&handle, _)| handle).collect()
    }

    /// Gives a call up.
    fn give_up(&mut self, request: usize) {
        handles::remove(request);
        self.requests.remove(&request);
    }

    /// Drops a communicator with its calls.
    pub(crate) fn end(&mut self, comm: usize) {
        self.requests_of(comm).into_iter().for_each(|request| self.give_up(request));
        self.comms.remove(&comm);
    }
}

/// A handle that another thread has freed since it was looked up.
fn gone() -> Fault {
    Fault::new(FW_INVALID_HANDLE, "this communicator or request is gone")
}
