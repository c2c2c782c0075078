//! A rank with all that comes of one endpoint: its communicators, those split from them, and calls
//! under way. One thread at a time may be in it.

use std::collections::HashMap;
use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Mutex, MutexGuard, TryLockError};

use foldwire::transport::MAX_CHANNELS;
use foldwire::{Config, Error, Report, SharedCommunicator};

use crate::border::Fault;
use crate::ffi::call::{Comm, Running};
use crate::ffi::movable::Movable;
use crate::ffi::types::{FW_IN_USE, FW_INTERNAL_ERROR, FW_INVALID_HANDLE};
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
}

/// A call under way that the caller has a handle of.
pub(crate) struct Request {
    pub(crate) call: Box<dyn Running>,
    /// The handle of its communicator.
    pub(crate) comm: usize,
}

/// The state, for one thread.
pub(crate) struct Inside<'f>(MutexGuard<'f, Movable<State>>);

impl Deref for Inside<'_> {
    type Target = State;

    fn deref(&self) -> &State {
        self.0.as_ref()
    }
}

impl DerefMut for Inside<'_> {
    fn deref_mut(&mut self) -> &mut State {
        self.0.as_mut()
    }
}

impl Family {
    /// A family of one communicator, and its handle.
    pub(crate) fn found(wire: Wire, config: Config, n_calls: usize) -> Result<usize, Fault> {
        let comm = with_messages(wire, config, n_calls)?;
        let family = Arc::new(Self { state: Mutex::new(Movable::new(State::default())) });
        let mut inside = family.enter()?;
        inside.add(&family, comm)
    }

    /// Goes in.
    ///
    /// # Errors
    /// A fault if another thread is inside, or a panic left it half way.
    pub(crate) fn enter(&self) -> Result<Inside<'_>, Fault> {
        match self.state.try_lock() {
            Ok(state) => Ok(Inside(state)),
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
}

impl State {
    /// Takes a communicator in; its handle.
    pub(crate) fn add(&mut self, family: &Arc<Family>, comm: Comm) -> Result<usize, Fault> {
        let kind = Kind::Comm { rank: comm.rank().index(), size: comm.size() };
        let handle = handles::insert(Entry { kind, family: Arc::clone(family) })?;
        self.comms.insert(handle, Member { comm, report: Report::default() });
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
        self.note(comm, call.wait())
    }

    /// Keeps what a call of a communicator has reported.
    pub(crate) fn note(&mut self, comm: usize, report: Result<Report, Error>) -> Result<(), Fault> {
        let report = report?;
        if let Some(member) = self.comms.get_mut(&comm) {
            member.report = report;
        }
        Ok(())
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
}

/// A handle that another thread has freed since it was looked up.
fn gone() -> Fault {
    Fault::new(FW_INVALID_HANDLE, "this communicator or request is gone")
}
