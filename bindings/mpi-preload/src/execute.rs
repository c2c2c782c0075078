//! Executes taken calls: selects Foldwire's collective and the buffers.
//!
//! A call is prepared when the program makes it, started when the calls before it are complete, and
//! finished when it is done. A blocking call does all three at once.

use foldwire::layout::{Shares, Window};
use foldwire::op::OpCode;
use foldwire::schedule::Collective;
use foldwire::transport::Rank;
use foldwire::{Finished, Op, Pending, Report, SharedCommunicator};

use crate::call::{BufferArgs, CheckedCall, MpiCall};
use crate::decide::PassReason;
use crate::ffi::held_counts::HeldCounts;
use crate::ffi::library::{MpiApi, MpiErrorCode};
use crate::ffi::memory::{ArrayRegions, ArrayValues, Plain};
use crate::settings::{Settings, TransferMode};
use crate::signature::BaseType;
use crate::transport::PreloadEndpoint;

/// Foldwire's communicator over MPI messages.
pub(crate) type FoldwireComm = SharedCommunicator<'static, PreloadEndpoint>;

/// Starts a prepared call.
pub(crate) type PreparedCall =
    Box<dyn FnOnce(&FoldwireComm) -> Result<Box<dyn RunningStep>, CallError>>;

/// A running call, or one step of it.
pub(crate) trait RunningStep {
    /// Returns whether the step is done. Does not drive the communicator.
    fn is_done(&self) -> bool;

    /// Waits for the step, and stores the results in the program's buffer.
    fn finish(self: Box<Self>, mpi: &dyn MpiApi) -> Result<StepOutcome, NotExecuted>;
}

/// Result of a step: the next step, or the executed call.
pub(crate) enum StepOutcome {
    Continue(PreparedCall),
    Done(ExecutedCall),
}

/// Result of a call.
pub(crate) type CallOutcome = Result<ExecutedCall, NotExecuted>;

/// A call that Foldwire executed.
pub(crate) struct ExecutedCall {
    pub(crate) mode: TransferMode,
    pub(crate) report: Box<Report>,
}

/// Alternatives to an executed call.
pub(crate) enum NotExecuted {
    /// The MPI library must execute the call, or has done so.
    Pass(PassReason),
    /// The call fails.
    Fail(CallError),
}

/// Error of a call that was taken.
#[derive(Clone, Copy, Debug, thiserror::Error)]
pub(crate) enum CallError {
    #[error("{0}")]
    Foldwire(#[from] foldwire::Error),
    #[error("MPI error {0} while copying the program's array")]
    Mpi(MpiErrorCode),
    #[error("this rank sends itself another number of values than it receives from itself")]
    Count,
    #[error("a panic; please report it")]
    Panic,
}

impl From<MpiErrorCode> for CallError {
    fn from(code: MpiErrorCode) -> Self {
        Self::Mpi(code)
    }
}

impl From<PassReason> for NotExecuted {
    fn from(reason: PassReason) -> Self {
        Self::Pass(reason)
    }
}

impl<F: Into<CallError>> From<F> for NotExecuted {
    fn from(failure: F) -> Self {
        Self::Fail(failure.into())
    }
}

/// Runs all steps of a call and waits for each.
pub(crate) fn execute(
    prepared: PreparedCall,
    comm: &FoldwireComm,
    mpi: &dyn MpiApi,
) -> CallOutcome {
    finish(prepared(comm)?, comm, mpi)
}

/// Runs the remaining steps of a running call.
pub(crate) fn finish(
    mut step: Box<dyn RunningStep>,
    comm: &FoldwireComm,
    mpi: &dyn MpiApi,
) -> CallOutcome {
    loop {
        match step.finish(mpi)? {
            StepOutcome::Continue(prepared) => step = prepared(comm)?,
            StepOutcome::Done(executed) => return Ok(executed),
        }
    }
}

/// Prepares a call on values of this type in this mode.
pub(crate) fn prepare(
    mpi: &'static dyn MpiApi,
    call: &MpiCall,
    checked: &CheckedCall,
    base: BaseType,
    (mode, settings): (TransferMode, &Settings),
) -> Result<PreparedCall, CallError> {
    let context = CallContext { mpi, call, checked, mode, settings };
    match base {
        BaseType::F32 => context.prepare::<f32>(),
        BaseType::F64 => context.prepare::<f64>(),
        BaseType::I32 => context.prepare::<i32>(),
        BaseType::I64 => context.prepare::<i64>(),
        BaseType::Other => unreachable!("other types are passed on"),
    }
}

struct CallContext<'c> {
    mpi: &'static dyn MpiApi,
    call: &'c MpiCall,
    checked: &'c CheckedCall,
    mode: TransferMode,
    settings: &'c Settings,
}

/// Buffers of a call.
struct HeldBuffers<T> {
    send: ArrayValues<T>,
    recv: ArrayValues<T>,
    /// Program memory to which `recv` is written back, if `recv` is a copy.
    to: ArrayRegions,
}

/// Running call on elements of one type. `pending` is declared before `_counts`, so that it is
/// dropped before the counts that it borrows.
struct TypedStep<T: Plain> {
    pending: Pending<'static, PreloadEndpoint, ArrayValues<T>>,
    to: ArrayRegions,
    _counts: HeldCounts,
    /// False if this rank's own counts contradict each other. The call then runs, and fails at the
    /// end.
    is_as_expected: bool,
    mode: TransferMode,
}

fn operation<T>(op: Option<OpCode>) -> Op<'static, T> {
    match op {
        Some(OpCode::Min) => Op::Min,
        Some(OpCode::Max) => Op::Max,
        Some(OpCode::Prod) => Op::Prod,
        _ => Op::Sum,
    }
}

impl CallContext<'_> {
    fn prepare<T: Plain>(&self) -> Result<PreparedCall, CallError> {
        let Self { call, checked, mode, settings, .. } = *self;
        let fill = settings.fill.filter(|_| T::DTYPE.is_float());
        let plan = mode.plan(settings.spacing, fill);
        let plan = if settings.refuses_fill { plan.refusing_fill() } else { plan };
        let (role, in_place) = (checked.role, checked.is_in_place);
        let HeldBuffers { mut send, mut recv, mut to } = self.buffers::<T>()?;
        let mut counts = self.counts::<T>()?;
        let (size, is_root) = (role.size, role.is_root());
        let (n_send, n_recv) = (send.as_ref().len(), recv.as_ref().len());
        // If this rank's count is wrong, it still sends the number of values that its peers expect.
        // Otherwise they would wait forever.
        let n_expected = match (call.collective, &counts.shares) {
            _ if in_place => n_send,
            (Collective::AllGather, Some(shares)) => shares[role.rank],
            (Collective::AllGather, None) => n_recv / size,
            (Collective::AllToAll, None) => n_recv,
            (Collective::Gather, None) if is_root => n_recv / size,
            _ => n_send,
        };
        let mut is_as_expected = n_send == n_expected;
        if !is_as_expected {
            send = send.resized(n_expected);
        }
        // If the root of a scatter expects another number of values than it sends to each rank, it
        // receives nothing.
        let is_even_scatter = call.collective == Collective::Scatter && counts.shares.is_none();
        if is_even_scatter && is_root && !in_place && n_recv != n_send / size {
            is_as_expected = false;
            (recv, to) = (ArrayValues::zeros(n_send / size), ArrayRegions::default());
        }
        // If the rank of an all-to-all expects another number of values from itself than it sends
        // itself, it receives nothing either.
        if call.collective == Collective::AllToAll
            && let Some(sent) = &counts.shares
            && sent[role.rank] != counts.received[role.rank]
        {
            is_as_expected = false;
            counts.received[role.rank] = sent[role.rank];
            let n_received = counts.received.iter().sum();
            (recv, to) = (ArrayValues::zeros(n_received), ArrayRegions::default());
        }
        let root = Rank::new(role.root.unwrap_or(0));
        let op = operation::<T>(checked.op);
        let (collective, only_reads) = (call.collective, self.root_only_reads());
        Ok(Box::new(move |comm: &FoldwireComm| {
            let (n_send, n_recv) = (send.as_ref().len(), recv.as_ref().len());
            let shares = match (collective, counts.borrowed()) {
                (Collective::AllToAll, Some([send, recv])) => Shares::Exchanged { send, recv },
                (
                    Collective::ReduceScatter
                    | Collective::AllGather
                    | Collective::Gather
                    | Collective::Scatter,
                    Some([shares, _]),
                ) => Shares::Given(shares),
                (Collective::Gather, None) if !is_root => Shares::Even(n_send * size),
                (Collective::Scatter, None) if !is_root => Shares::Even(n_recv * size),
                (Collective::ReduceScatter | Collective::Scatter, None) => Shares::Even(n_send),
                (Collective::AllReduce | Collective::Reduce | Collective::AllToAll, _)
                    if !in_place =>
                {
                    Shares::Even(n_send)
                }
                (Collective::Broadcast, _) if only_reads => Shares::Even(n_send),
                _ => Shares::Even(n_recv),
            };
            let window = match collective {
                Collective::Broadcast if only_reads => Window::Input,
                Collective::Broadcast => Window::Whole,
                // In place, `send` holds a copy of the input.
                Collective::ReduceScatter | Collective::Scatter => Window::Own,
                Collective::AllToAll if matches!(shares, Shares::Exchanged { .. }) => Window::Own,
                _ if in_place => Window::Whole,
                _ => Window::Own,
            };
            let call = foldwire::Call::of(collective, shares, window, send, recv);
            let pending = comm.start(call.with_op(op).with_root(root), &plan);
            Ok(Box::new(TypedStep { pending: pending?, to, _counts: counts, is_as_expected, mode }))
        }))
    }

    /// Returns whether this rank is the root of an exact broadcast, which changes no value.
    fn root_only_reads(&self) -> bool {
        self.call.collective == Collective::Broadcast
            && self.checked.role.is_root()
            && !matches!(self.mode, TransferMode::Lossy(_))
    }

    fn buffers<T: Plain>(&self) -> Result<HeldBuffers<T>, CallError> {
        let Self { mpi, call, checked, .. } = *self;
        let (role, in_place) = (checked.role, checked.is_in_place);
        let (rank, size, is_root) = (role.rank, role.size, role.is_root());
        let own = |side: &BufferArgs| side.areas(mpi, 0..size);
        let all = |side: &BufferArgs| match side.counts {
            Some(_) => side.areas(mpi, 0..size),
            None => side.at(mpi, 0, side.count as usize * size),
        };
        let none = ArrayRegions::default;
        let (send, recv) = (&call.send, &call.recv);
        // Source, destination, and whether the old values of the destination are input.
        let (from, mut to, reads_old) = match call.collective {
            Collective::Broadcast if self.root_only_reads() => (own(recv)?, none(), false),
            Collective::Broadcast => (none(), own(recv)?, is_root),
            Collective::AllReduce | Collective::Reduce if in_place => (none(), own(recv)?, true),
            Collective::AllReduce => (own(send)?, own(recv)?, false),
            Collective::Reduce if is_root => (own(send)?, own(recv)?, false),
            Collective::Reduce => (own(send)?, none(), false),
            Collective::ReduceScatter => {
                let counts = recv.counts(size).ok().flatten();
                let counts = counts.unwrap_or_else(|| vec![recv.count as usize; size]);
                // In place, the array starts where the result goes. The rest of the array keeps its
                // values, as with MPI libraries.
                let side = if in_place { recv } else { send };
                let whole = side.at(mpi, 0, counts.iter().sum())?;
                (whole, recv.at(mpi, 0, counts[rank])?, false)
            }
            Collective::AllGather | Collective::Gather if in_place => (none(), all(recv)?, true),
            Collective::AllGather => (own(send)?, all(recv)?, false),
            Collective::AllToAll if in_place && recv.counts.is_none() => (none(), all(recv)?, true),
            Collective::AllToAll if in_place => (all(recv)?, all(recv)?, false),
            Collective::AllToAll => (all(send)?, all(recv)?, false),
            Collective::Gather if is_root => (own(send)?, all(recv)?, false),
            Collective::Gather => (own(send)?, none(), false),
            // In place, the root's share stays where it is.
            Collective::Scatter if in_place => (all(send)?, none(), false),
            Collective::Scatter if is_root => (all(send)?, own(recv)?, false),
            _ => (none(), own(recv)?, false),
        };
        let copies = in_place && call.collective == Collective::ReduceScatter;
        let send = from.for_reading::<T>(mpi, copies || from.overlaps(mpi, &to)?)?;
        let recv = if in_place && call.collective == Collective::Scatter {
            let shares = checked.shares::<T>();
            ArrayValues::zeros(shares.map_or(send.as_ref().len() / size, |shares| shares[rank]))
        } else if call.collective == Collective::Broadcast && reads_old && call.request.is_some() {
            // The program may broadcast the array on another communicator at the same time.
            to.for_reading::<T>(mpi, true)?
        } else {
            to.for_writing::<T>(mpi, reads_old)?
        };
        if call.request.is_some() && matches!(recv, ArrayValues::Copied(_)) {
            to.keep_type(mpi)?;
        }
        Ok(HeldBuffers { send, recv, to })
    }

    fn counts<T: Plain>(&self) -> Result<HeldCounts, CallError> {
        let Self { mpi, call, checked, .. } = *self;
        let mut counts =
            HeldCounts { shares: checked.shares::<T>().map(Into::into), received: Box::default() };
        if call.collective == Collective::AllToAll && call.recv.counts.is_some() {
            let from = if checked.is_in_place { &call.recv } else { &call.send };
            let of = |side: &BufferArgs| -> Box<[usize]> {
                let (bytes, _) = side.bytes(mpi, checked.role.size).unwrap_or_default();
                bytes.into_iter().map(|n_bytes| n_bytes / size_of::<T>()).collect()
            };
            (counts.shares, counts.received) = (Some(of(from)), of(&call.recv));
        }
        Ok(counts)
    }
}

impl<T: Plain> RunningStep for TypedStep<T> {
    fn is_done(&self) -> bool {
        self.pending.is_finished()
    }

    fn finish(self: Box<Self>, mpi: &dyn MpiApi) -> Result<StepOutcome, NotExecuted> {
        let Self { pending, to, is_as_expected, mode, _counts } = *self;
        let Finished { data, outcome } = pending.wait();
        let report = outcome?;
        to.write_back(mpi, &data)?;
        if is_as_expected {
            Ok(StepOutcome::Done(ExecutedCall { mode, report: report.into() }))
        } else {
            Err(CallError::Count.into())
        }
    }
}
