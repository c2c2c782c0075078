//! State of a process between `MPI_Init` and `MPI_Finalize`, and the path of a collective through
//! it.

mod init_finalize;

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, Once, OnceLock};

use foldwire::SuspectedFill;
use foldwire::op::OpCode;

use crate::agree::{AgreedCall, LocalView};
use crate::background::Background;
use crate::call::{CheckedCall, KeptTypes, MpiCall};
use crate::comm_state::{CommState, CommStates, ReadyComm, SharedCommState, locked};
use crate::decide::{
    COLLECTIVES, PassReason, RankPlacement, certain_pass_reason, decide, index_of, smallest_taken,
};
use crate::execute::{
    CallError, CallOutcome, ExecutedCall, NotExecuted, PreparedCall, execute, prepare,
};
use crate::ffi::FloatEnvironment;
use crate::ffi::abi::MpiHandle;
use crate::ffi::library::{MpiApi, MpiErrorCode};
use crate::ffi::message_calls::MessageLayer;
use crate::ffi::program_request::ProgramRequest;
use crate::ffi::progress::ProgressCallback;
use crate::filter::CallFilters;
use crate::guard::{caught, guarded};
use crate::negotiate;
use crate::queue::QueuedCall;
use crate::report::CallTally;
use crate::rules::MatchedNames;
use crate::settings::{Settings, TransferMode};

/// State of the preload library in this process.
pub(crate) struct PreloadState {
    mpi: &'static dyn MpiApi,
    filters: &'static CallFilters,
    /// Registration of the callback that advances non-blocking calls.
    progress: Option<ProgressCallback>,
    /// Completed when the callback is registered.
    progress_started: Once,
    /// True between `MPI_Init` and `MPI_Finalize`. Collectives of programs that use MPI sessions
    /// only are passed on.
    is_active: AtomicBool,
    info: OnceLock<ProcessInfo>,
    comm_states: CommStates,
    background: Background,
    tally: Mutex<CallTally>,
    /// True once this rank has warned of a value that seems to be a fill value.
    has_warned_of_fill: AtomicBool,
    /// Returns whether Fortran functions are loaded whose calls for messages Foldwire does not see.
    has_fortran: fn() -> bool,
    /// State of messages if they are compressed.
    messages: OnceLock<MessageLayer>,
}

struct ProcessInfo {
    settings: Settings,
    rank: usize,
    size: usize,
    /// Reason why all calls are passed on, if they are.
    pass_all: Option<PassReason>,
}

impl PreloadState {
    pub(crate) fn new(
        mpi: &'static dyn MpiApi,
        filters: &'static CallFilters,
        progress: Option<ProgressCallback>,
        has_fortran: fn() -> bool,
    ) -> Self {
        Self {
            mpi,
            filters,
            progress,
            progress_started: Once::new(),
            is_active: AtomicBool::new(false),
            info: OnceLock::new(),
            comm_states: CommStates::default(),
            background: Background::default(),
            tally: Mutex::default(),
            has_warned_of_fill: AtomicBool::new(false),
            has_fortran,
            messages: OnceLock::new(),
        }
    }

    /// State of messages if they are compressed.
    #[inline]
    pub(crate) fn messages(&self) -> Option<&MessageLayer> {
        self.messages.get()
    }

    fn info(&self) -> Option<&ProcessInfo> {
        self.info.get().filter(|_| self.is_active.load(Ordering::Acquire))
    }

    /// Handles a collective. Returns its result, with a request if it is non-blocking. Returns
    /// `None` if the MPI library must execute the call.
    pub(crate) fn collective(
        &'static self,
        call: &MpiCall,
    ) -> Option<Result<Option<MpiHandle>, MpiErrorCode>> {
        let info = self.info()?;
        let lacks_progress = call.request.is_some() && self.progress.is_none();
        let result = match info.pass_all.or(lacks_progress.then_some(PassReason::NoProgress)) {
            Some(reason) => Err(NotExecuted::Pass(reason)),
            None => caught(|| self.execute_or_enqueue(info, call))
                .unwrap_or(Err(CallError::Panic.into())),
        };
        let not_executed = match result {
            Ok(request) => return Some(Ok(request)),
            Err(not_executed) => not_executed,
        };
        let fails = matches!(not_executed, NotExecuted::Fail(_));
        self.record(info, call, Err(not_executed));
        fails.then(|| Err(self.mpi.raise(call.comm)))
    }

    /// Executes a taken call if it is blocking. Otherwise queues it and returns its request.
    fn execute_or_enqueue(
        &'static self,
        info: &ProcessInfo,
        call: &MpiCall,
    ) -> Result<Option<MpiHandle>, NotExecuted> {
        let shared = self.comm_state(call).ok_or(PassReason::Argument)?;
        let (mut state, prepared) = self.decide(info, call, &shared)?;
        let ready = state.ready()?;
        if call.request.is_some() {
            return Ok(Some(self.enqueue(call, prepared, ready, &shared)?));
        }
        let _environment = FloatEnvironment::default_for_now();
        self.drain(ready);
        let executed = execute(prepared, &ready.comm, self.mpi)?;
        self.record(info, call, Ok(executed));
        Ok(None)
    }

    /// Decides whether Foldwire takes a call, creates the Foldwire communicator if necessary, and
    /// prepares the call.
    ///
    /// A non-blocking call must not wait for other ranks. A blocking call must not hold the lock
    /// during a collective of the MPI library: calls in progress on the communicator could not
    /// advance meanwhile, and other ranks might never reach that collective.
    fn decide<'s>(
        &'static self,
        info: &ProcessInfo,
        call: &MpiCall,
        shared: &'s SharedCommState,
    ) -> Result<(MutexGuard<'s, CommState>, PreparedCall), NotExecuted> {
        let settings = &info.settings;
        let is_nonblocking = call.request.is_some();
        let mut state = locked(shared);
        // A rank that logs its calls sees those of collectives that are off. Other ranks do not.
        let is_off = || smallest_taken(call.collective, settings) == Err(PassReason::Off);
        // The other ranks also create the communicator in this call, whether it is taken or not.
        // Nothing is in progress yet on this communicator, so waiting under the lock is safe.
        if state.is_setup_due() && !is_nonblocking && !is_off() {
            self.set_up(&mut state, call.comm)?;
        }
        let rank_and_size = state.rank_and_size()?;
        if call.is_known_in_part() {
            // Skip the agreement if the settings take no call of this collective.
            smallest_taken(call.collective, settings)?;
        }
        let checked = match (call.is_known_in_part(), is_nonblocking) {
            (false, _) => Some(call.checked(self.mpi, rank_and_size)?),
            (true, false) => {
                drop(state);
                let checked = self.agree(call, rank_and_size)?;
                state = locked(shared);
                Some(checked)
            }
            // The ranks exchange what they know when the queue reaches the call (`negotiate`).
            (true, true) => None,
        };
        if let CommState::Pending(pending) = &mut *state {
            // Placement and names are placeholders: `certain_pass_reason` considers all of them.
            let input = |it: &CheckedCall| {
                it.decision_input(call.collective, (RankPlacement::Near, MatchedNames::Unknown))
            };
            let reason = checked.as_ref().and_then(|it| certain_pass_reason(&input(it), settings));
            reason.map_or(Ok(()), Err)?;
            if is_nonblocking {
                if !std::mem::replace(&mut pending.is_setup_due, true) {
                    self.filters.set_setup_due(true);
                }
                return Err(PassReason::NotReady.into());
            }
            self.set_up(&mut state, call.comm)?;
        }
        let ready = state.ready()?;
        let prepared = match checked {
            None => self.negotiate(call, rank_and_size, ready),
            Some(checked) => {
                self.prepare_if_taken(info, call, &checked, (ready.placement, ready.names))?
            }
        };
        Ok((state, prepared))
    }

    /// Queues a non-blocking call and returns its request.
    fn enqueue(
        &'static self,
        call: &MpiCall,
        prepared: PreparedCall,
        ready: &mut ReadyComm,
        shared: &SharedCommState,
    ) -> Result<MpiHandle, CallError> {
        let program_request = ProgramRequest::new(self.mpi)?;
        let request = program_request.handle();
        ready.queue.push(QueuedCall { call: *call, program_request }, prepared);
        self.step(ready);
        if !ready.queue.is_empty() {
            self.begin_progress();
            self.background.add(shared);
        }
        Ok(request)
    }

    fn log(&self, info: &ProcessInfo, call: &MpiCall, what: &dyn fmt::Display) {
        // For the formatting of floats.
        let _environment = FloatEnvironment::default_for_now();
        let name = COLLECTIVES[index_of(call.collective)].name;
        let kind = if call.request.is_some() { "non-blocking " } else { "" };
        let [sent, received] = call.counts(self.mpi);
        let rank = info.rank;
        // One write, so that lines of different ranks do not mix.
        let line = format!("foldwire: rank {rank}: {kind}{name} ({sent}, {received}): {what}\n");
        eprint!("{line}");
    }

    /// Creates the Foldwire communicator if possible, and updates the filters.
    fn set_up(&self, state: &mut CommState, comm: MpiHandle) -> Result<(), CallError> {
        let Some(info) = self.info.get() else { return Ok(()) };
        let _environment = FloatEnvironment::default_for_now();
        let was_setup_due = state.is_setup_due();
        let result = state.set_up(self.mpi, comm, &info.settings.rules);
        if was_setup_due && !state.is_setup_due() {
            self.filters.set_setup_due(false);
        }
        Ok(result?)
    }

    fn comm_state(&self, call: &MpiCall) -> Option<SharedCommState> {
        if call.comm == self.mpi.handles().comm_null {
            return None;
        }
        self.comm_states.of(self.mpi, call.comm).ok()
    }

    /// Prepares a call if Foldwire takes it.
    fn prepare_if_taken(
        &self,
        info: &ProcessInfo,
        call: &MpiCall,
        checked: &CheckedCall,
        placement_and_names: (RankPlacement, MatchedNames),
    ) -> Result<PreparedCall, NotExecuted> {
        let settings = &info.settings;
        let input = checked.decision_input(call.collective, placement_and_names);
        let mode = decide(&input, settings)?;
        let base = input.base.ok_or(PassReason::Type)?;
        Ok(prepare(self.mpi, call, checked, base, (mode, settings))?)
    }

    /// Counts a call that is complete, failed or passed on, and logs it if requested.
    fn record(&self, info: &ProcessInfo, call: &MpiCall, outcome: CallOutcome) {
        let debug = info.settings.debug;
        match outcome {
            Ok(ExecutedCall { mode, report }) => {
                locked(&self.tally).take(call.collective, mode, &report);
                if let Some(fill) = report.suspected_fill
                    && !self.has_warned_of_fill.swap(true, Ordering::Relaxed)
                {
                    self.log(info, call, &format_args!("warning: {}", SuspectedFill(fill)));
                }
                if debug {
                    self.log(info, call, &format_args!("taken ({}): {report}", describe(mode)));
                }
            }
            Err(NotExecuted::Pass(reason)) => {
                locked(&self.tally).pass(reason);
                if debug {
                    self.log(info, call, &format_args!("passed on ({})", reason.name()));
                }
            }
            Err(NotExecuted::Fail(error)) => {
                self.log(info, call, &format_args!("error: {error}"));
                locked(&self.tally).fail();
            }
        }
    }

    /// Counts a non-blocking call that is complete or failed. Completes the program's request,
    /// which otherwise reports an error when it is dropped.
    fn record_later(&self, queued: QueuedCall, outcome: CallOutcome) {
        let (QueuedCall { call, program_request }, Some(info)) = (queued, self.info.get()) else {
            return;
        };
        let fails = matches!(outcome, Err(NotExecuted::Fail(_)));
        self.record(info, &call, outcome);
        if !fails {
            program_request.succeed();
        }
    }

    /// Advances the non-blocking calls of all communicators. Returns whether any made progress.
    pub(crate) fn advance(&self) -> bool {
        self.background.advance(|ready| self.step(ready))
    }

    /// Advances the queued calls of one communicator. Returns whether any made progress.
    fn step(&self, ready: &mut ReadyComm) -> bool {
        let ReadyComm { queue, comm, .. } = ready;
        let moved = guarded(|| {
            queue.advance(comm, self.mpi, |queued, outcome| self.record_later(queued, outcome))
        });
        moved.unwrap_or_else(|_| {
            // After a panic, all queued calls fail.
            let n_failed = queue.clear();
            (0..n_failed).for_each(|_| locked(&self.tally).fail());
            true
        })
    }

    /// Waits for the queued calls of one communicator.
    fn drain(&self, ready: &mut ReadyComm) {
        let ReadyComm { queue, comm, .. } = ready;
        queue.drain(comm, self.mpi, |queued, outcome| self.record_later(queued, outcome));
    }

    /// Agrees with all ranks about a blocking call whose counts no rank knows completely.
    fn agree(
        &self,
        call: &MpiCall,
        rank_and_size: (usize, usize),
    ) -> Result<CheckedCall, PassReason> {
        let mut numbers = LocalView::numbers(
            call.view(self.mpi, rank_and_size),
            call.n_shared_lengths(rank_and_size.1),
        );
        let result = self.mpi.all_reduce(call.comm, &mut numbers, OpCode::Max);
        result.map_err(|_| PassReason::Argument)?;
        call.agreed(self.mpi, rank_and_size, AgreedCall::of(&numbers)?)
    }

    /// Prepares a non-blocking call whose counts no rank knows completely. It begins with the
    /// agreement that [`agree`](Self::agree) makes for a blocking call.
    fn negotiate(
        &'static self,
        call: &MpiCall,
        rank_and_size: (usize, usize),
        ready: &ReadyComm,
    ) -> PreparedCall {
        let mpi = self.mpi;
        let kept = call.with_kept_types(mpi, rank_and_size);
        let view = kept.as_ref().map_err(|&reason| reason);
        let view = view.and_then(|(call, _)| call.view(mpi, rank_and_size));
        let numbers = LocalView::numbers(view, call.n_shared_lengths(rank_and_size.1));
        let (call, types) = kept.unwrap_or((*call, KeptTypes::default()));
        let (raw, placement_and_names) = (ready.raw, (ready.placement, ready.names));
        negotiate::negotiate(
            numbers,
            Box::new(move |largest| {
                let info = self.info.get().ok_or(foldwire::Error::Internal)?;
                let checked = AgreedCall::of(largest)
                    .and_then(|agreed| call.agreed(mpi, rank_and_size, agreed));
                let checked = checked.map_err(NotExecuted::from);
                match checked.and_then(|checked| {
                    self.prepare_if_taken(info, &call, &checked, placement_and_names)
                }) {
                    Err(NotExecuted::Pass(reason)) => {
                        Ok(negotiate::forward(mpi, (call, types), raw, reason))
                    }
                    decision => decision,
                }
            }),
        )
    }

    /// Handles a communicator that the program is about to free.
    pub(crate) fn before_comm_free(&self, comm: MpiHandle) {
        if self.info().is_some() && comm != self.mpi.handles().comm_null {
            // After a panic the Foldwire communicator leaks, which does no other harm.
            let _ = guarded(|| {
                if let Some(shared) = self.comm_states.take(self.mpi, comm) {
                    self.close_comm(&shared);
                }
                if let Some(MessageLayer(messages)) = self.messages() {
                    messages.before_comm_free(comm);
                }
            });
        }
    }

    /// Completes the calls of a communicator and drops its state.
    fn close_comm(&self, shared: &SharedCommState) {
        let mut state = locked(shared);
        if let CommState::Ready(ready) = &mut *state {
            self.drain(ready);
        }
        if state.is_setup_due() {
            self.filters.set_setup_due(false);
        }
        // Other references to the state may exist. Their owners find nothing to do in this state.
        *state = CommState::PassedOn(PassReason::Communicator);
        drop(state);
        self.background.remove(shared);
    }
}

fn describe(mode: TransferMode) -> String {
    match mode {
        TransferMode::Off => "off".into(),
        TransferMode::Raw => "raw".into(),
        TransferMode::Lossless => "lossless".into(),
        TransferMode::Lossy(bound) => bound.to_string(),
    }
}
