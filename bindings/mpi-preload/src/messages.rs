//! The program's point-to-point messages.
//!
//! *Who decides.* The ranks agree in `MPI_Init` whether messages are compressed
//! (`message_consent`). Then the sender alone decides about each message of long floats between
//! ranks of this `MPI_COMM_WORLD`, and every receive opens compressed messages. The program's own
//! calls carry them, with its communicator, tag and request. So the MPI library matches messages as
//! always: any source, any tag, cancelled requests and the order of messages are its own.
//!
//! *Requests.* A program waits for its own requests, which the MPI library has made. A table holds
//! what is to be done when such a request completes: free the compressed message, or open it.
//! Functions that complete requests take its rows out before they call the library, since
//! afterwards another thread may get a request with the same handle. They put the rows of
//! incomplete requests back.

use std::cell::Cell;
use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use foldwire::Spacing;

use crate::call::BufferArgs;
use crate::comm_state::locked;
use crate::compressed_message::{CompressedMessage, Mark, UNIT};
use crate::ffi::abi::MpiHandle;
use crate::ffi::library::{MpiApi, MpiErrorCode, StatusPtr};
use crate::ffi::memory::Plain;
use crate::ffi::persistent_send::PersistentSend;
use crate::ffi::receive_buffer::{OpenError, ReceiveBuffer};
use crate::guard::guarded;
use crate::report::MessageTally;
use crate::settings::TransferMode;
use crate::signature::BaseType;

/// Agreement of the ranks, and facts about this rank.
pub(crate) struct MessagePlan {
    pub(crate) mode: TransferMode,
    pub(crate) spacing: Spacing,
    pub(crate) fill: Option<f64>,
    /// Messages of fewer bytes are passed on.
    pub(crate) min_bytes: usize,
    pub(crate) mark: Mark,
    /// For each rank of `MPI_COMM_WORLD`, whether it shares a node with this rank. Messages between
    /// such ranks are passed on. Empty if they are not.
    pub(crate) near: Vec<bool>,
    pub(crate) rank: usize,
    pub(crate) debug: bool,
}

/// State of the program's messages in this process.
pub(crate) struct Messages {
    mpi: &'static dyn MpiApi,
    plan: MessagePlan,
    /// Size of the smallest compressed message. Receives of fewer bytes are passed on.
    least_bytes: usize,
    /// Receivers of each communicator, by its number for messages.
    receivers: Mutex<BTreeMap<usize, Arc<Receivers>>>,
    n_numbers: AtomicUsize,
    pending: Mutex<HashMap<MpiHandle, PendingMessage>>,
    n_pending: AtomicUsize,
    /// Requests that the program has freed before they were complete.
    freed: Mutex<Vec<(MpiHandle, PendingMessage)>>,
    /// Number of them, with those that a thread has taken out to complete them. Only stored under
    /// the lock.
    n_freed: AtomicUsize,
    /// The thread that completes freed requests holds it. Other threads wait, so that none returns
    /// to the program before a message that it knows to be complete is open.
    completes_freed: Mutex<()>,
    tally: Mutex<MessageTally>,
}

thread_local! {
    /// True while this thread completes freed requests. The program's error handler may then call
    /// MPI.
    static COMPLETES_FREED: Cell<bool> = const { Cell::new(false) };
}

/// For each rank of a communicator, whether messages to it may be compressed.
type Receivers = Vec<bool>;

/// Work to do when a request completes.
pub(crate) enum PendingMessage {
    /// Free the compressed message.
    Send { _message: CompressedMessage },
    /// Let the program start its persistent send again.
    Persistent(PersistentSend),
    /// Open the received message, if it is compressed.
    Receive(PendingReceive),
}

/// A receive of the program.
pub(crate) struct PendingReceive {
    buffer: ReceiveBuffer,
    comm: MpiHandle,
    is_persistent: bool,
    /// Bytes of the message, or the error, once it has been opened.
    opened: Option<Result<usize, MpiErrorCode>>,
}

/// A send of the program.
pub(crate) struct SendArgs {
    pub(crate) buffer: BufferArgs,
    pub(crate) to: i32,
    pub(crate) comm: MpiHandle,
}

impl Messages {
    pub(crate) fn new(mpi: &'static dyn MpiApi, plan: MessagePlan) -> Self {
        Self {
            mpi,
            least_bytes: (plan.min_bytes / 16).next_multiple_of(UNIT).max(4 * UNIT),
            plan,
            receivers: Mutex::default(),
            n_numbers: AtomicUsize::new(0),
            pending: Mutex::default(),
            n_pending: AtomicUsize::new(0),
            freed: Mutex::default(),
            n_freed: AtomicUsize::new(0),
            completes_freed: Mutex::default(),
            tally: Mutex::default(),
        }
    }

    pub(crate) fn mpi(&self) -> &'static dyn MpiApi {
        self.mpi
    }

    pub(crate) fn tally(&self) -> MessageTally {
        locked(&self.tally).clone()
    }

    /// Compresses a message of the program, unless it is passed on.
    pub(crate) fn compressed(&self, send: &SendArgs) -> Option<CompressedMessage> {
        let (n_bytes, to) = self.eligible(send)?;
        // After a panic the message travels as it is.
        let compressed = guarded(|| match self.mpi.signature(send.buffer.datatype).ok()?.base? {
            BaseType::F32 => self.compress::<f32>(&send.buffer),
            BaseType::F64 => self.compress::<f64>(&send.buffer),
            _ => None,
        });
        let compressed = compressed.ok().flatten();
        let sent = compressed.as_ref().map(|compressed| compressed.bytes.as_ref().len());
        let error = compressed.as_ref().map_or(0.0, |compressed| compressed.error);
        locked(&self.tally).count(n_bytes, sent, error);
        if self.plan.debug {
            let (rank, words) = (
                self.plan.rank,
                sent.map_or("passed on (no_gain)".into(), |sent| format!("taken, {sent} bytes")),
            );
            // One write, so that lines of different ranks do not mix.
            let line = format!(
                "foldwire: rank {rank}: message of {n_bytes} bytes to rank {to}: {words}\n"
            );
            eprint!("{line}");
        }
        compressed
    }

    /// Bytes and receiver of a message that may be compressed.
    fn eligible(&self, send: &SendArgs) -> Option<(usize, usize)> {
        let n_bytes = self.eligible_bytes(&send.buffer)?;
        let to = usize::try_from(send.to).ok()?;
        if send.comm == self.mpi.handles().comm_null {
            return None;
        }
        let is_receiver = self.receivers(send.comm).ok()?.get(to).copied().unwrap_or(false);
        is_receiver.then_some((n_bytes, to))
    }

    /// Remembers a persistent send of the program, unless all its messages are passed on.
    pub(crate) fn add_persistent(&self, request: MpiHandle, send: SendArgs, tag: i32) {
        if self.eligible(&send).is_none() {
            return;
        }
        // Without a copy of the datatype the messages are passed on.
        if let Ok(send) = PersistentSend::new(self.mpi, send, tag) {
            self.add(request, PendingMessage::Persistent(send));
        }
    }

    /// Starts a persistent send with a compressed message. Returns `None` if the message is passed
    /// on: then the program's request is to be started.
    pub(crate) fn start(&self, request: MpiHandle) -> Option<Result<(), MpiErrorCode>> {
        let (request, mut pending) = self.take([request])?.pop()??;
        let started = match &mut pending {
            PendingMessage::Persistent(send) if send.active().is_none() => {
                self.compressed(send.args()).map(|message| send.start(self.mpi, message))
            }
            _ => None,
        };
        self.add(request, pending);
        started
    }

    /// Bytes of a message that is long enough, of one element type.
    fn eligible_bytes(&self, buffer: &BufferArgs) -> Option<usize> {
        let n_bytes = self.n_bytes(buffer.count, buffer.datatype)?;
        // A compressed message's count of bytes is an `int`.
        if n_bytes < self.plan.min_bytes || i32::try_from(n_bytes).is_err() {
            return None;
        }
        let signature = self.mpi.signature(buffer.datatype).ok()?;
        let is_read = !(buffer.start.is_null() && signature.is_own);
        (is_read && signature.base.is_some_and(BaseType::is_float)).then_some(n_bytes)
    }

    /// Bytes of `count` values.
    fn n_bytes(&self, count: i64, datatype: MpiHandle) -> Option<usize> {
        if datatype == self.mpi.handles().datatype_null {
            return None;
        }
        let each = self.mpi.type_bytes(datatype).ok()?;
        usize::try_from(count).ok()?.checked_mul(each)
    }

    fn compress<T: Plain + foldwire::Float>(
        &self,
        buffer: &BufferArgs,
    ) -> Option<CompressedMessage> {
        let count = usize::try_from(buffer.count).ok()?;
        let values = buffer.at(self.mpi, 0, count).ok()?.for_reading::<T>(self.mpi, false).ok()?;
        let MessagePlan { mode, spacing, fill, mark, .. } = self.plan;
        CompressedMessage::of(values.as_ref(), mode, (spacing, fill), (mark, self.least_bytes))
    }

    /// Ranks of a communicator to which compressed messages may travel.
    fn receivers(&self, comm: MpiHandle) -> Result<Arc<Receivers>, MpiErrorCode> {
        if let Some(number) = self.mpi.message_number(comm)?
            && let Some(known) = locked(&self.receivers).get(&number)
        {
            return Ok(Arc::clone(known));
        }
        let receivers = Arc::new(match self.mpi.is_inter(comm)? {
            true => Receivers::new(),
            false => {
                let ranks = self.mpi.world_ranks(comm)?.into_iter();
                let is_near = |rank: usize| self.plan.near.get(rank).copied().unwrap_or(false);
                ranks.map(|rank| rank.is_some_and(|rank| !is_near(rank))).collect()
            }
        });
        let number = self.n_numbers.fetch_add(1, Ordering::Relaxed) + 1;
        self.mpi.set_message_number(comm, number)?;
        locked(&self.receivers).insert(number, Arc::clone(&receivers));
        Ok(receivers)
    }

    /// Handles a communicator that the program is about to free. Its receives may still be pending.
    pub(crate) fn before_comm_free(&self, comm: MpiHandle) {
        if let Ok(Some(number)) = self.mpi.message_number(comm) {
            locked(&self.receivers).remove(&number);
        }
        let world = self.mpi.handles().comm_world;
        let moves = |pending: &mut PendingMessage| match pending {
            PendingMessage::Receive(receive) if receive.comm == comm => receive.comm = world,
            PendingMessage::Persistent(send) if send.args().comm == comm => send.pass_on(self.mpi),
            _ => {}
        };
        locked(&self.pending).values_mut().for_each(moves);
    }

    /// Returns whether a received message may be compressed, by its size.
    pub(crate) fn may_be_compressed(&self, n_bytes: usize) -> bool {
        n_bytes >= self.least_bytes && n_bytes.is_multiple_of(UNIT)
    }

    /// Returns whether a compressed message fits into the buffer of a receive.
    pub(crate) fn fits(&self, buffer: &BufferArgs) -> bool {
        self.n_bytes(buffer.count, buffer.datatype).is_some_and(|n| n >= self.least_bytes)
    }

    pub(crate) fn has_pending(&self) -> bool {
        self.n_pending.load(Ordering::Acquire) > 0
    }

    /// Buffer of a receive into which a compressed message fits; `None` for any other. The library
    /// has accepted the receive.
    pub(crate) fn receive(
        &self,
        buffer: &BufferArgs,
        comm: MpiHandle,
        is_persistent: bool,
    ) -> Option<PendingReceive> {
        if !self.fits(buffer) {
            return None;
        }
        let buffer = ReceiveBuffer::new(self.mpi, buffer)
            .unwrap_or_else(|code| self.abort("no signature of a datatype", code));
        Some(PendingReceive { buffer, comm, is_persistent, opened: None })
    }

    /// Opens the received message if it is compressed, and corrects its status.
    ///
    /// # Errors
    /// The MPI error code for the program.
    pub(crate) fn open(
        &self,
        receive: &mut PendingReceive,
        status: StatusPtr,
    ) -> Result<(), MpiErrorCode> {
        let Some(n_bytes) = self.mpi.received_bytes(status) else { return Ok(()) };
        let opened = match receive.opened {
            Some(opened) => opened,
            None if !self.may_be_compressed(n_bytes) => return Ok(()),
            // MPI reports a message that is too long when the request completes.
            None if n_bytes > receive.buffer.capacity() => {
                self.erase(receive);
                return Ok(());
            }
            None => match guarded(|| receive.buffer.open(self.mpi, self.plan.mark, n_bytes)) {
                Ok(Ok(None)) => return Ok(()),
                Ok(Ok(Some(n_bytes))) => Ok(n_bytes),
                Ok(Err(error)) => Err(self.code_of(error)),
                Err(_) => Err(self.code_of(OpenError::Damaged)),
            },
        };
        receive.opened = Some(opened);
        self.mpi.set_received_bytes(status, opened.unwrap_or(receive.buffer.capacity()));
        opened.map(drop)
    }

    /// Error code for the program. Prints an error that MPI does not know.
    fn code_of(&self, error: OpenError) -> MpiErrorCode {
        let [truncated, other, _] = self.mpi.codes();
        let words = match error {
            OpenError::Truncated => return truncated,
            OpenError::Damaged => "it is damaged".to_owned(),
            OpenError::Mpi(code) => self.mpi.words(code),
        };
        let rank = self.plan.rank;
        eprintln!("foldwire: rank {rank}: error: a message cannot be read: {words}");
        other
    }

    /// Remembers what is to be done when a request completes.
    pub(crate) fn add(&self, request: MpiHandle, pending: PendingMessage) {
        if request == self.mpi.handles().request_null {
            return;
        }
        let mut all = locked(&self.pending);
        // A library may have one handle for all sends that are complete from the start. Then the
        // compressed message of the earlier one is not needed any more.
        all.insert(request, pending);
        self.n_pending.store(all.len(), Ordering::Release);
    }

    /// Remembers a receive of the program, with a copy of its datatype.
    pub(crate) fn add_receive(&self, request: MpiHandle, receive: PendingReceive) {
        let PendingReceive { buffer, comm, is_persistent, opened } = receive;
        match buffer.with_kept_type(self.mpi) {
            Ok(buffer) => {
                let receive = PendingReceive { buffer, comm, is_persistent, opened };
                self.add(request, PendingMessage::Receive(receive));
            }
            Err(code) => self.abort("no copy of a datatype", code),
        }
    }

    /// Ends the job, since the program would take a compressed message for its values.
    fn abort(&self, what: &str, code: MpiErrorCode) -> ! {
        eprintln!("foldwire: error: {what}: {}", self.mpi.words(code));
        self.mpi.abort()
    }

    /// Takes out what is to be done for these requests; `None` if there is nothing.
    pub(crate) fn take(
        &self,
        requests: impl IntoIterator<Item = MpiHandle>,
    ) -> Option<Vec<Option<(MpiHandle, PendingMessage)>>> {
        if !self.has_pending() {
            return None;
        }
        let mut all = locked(&self.pending);
        let taken: Vec<_> = requests
            .into_iter()
            .map(|request| all.remove(&request).map(|pending| (request, pending)))
            .collect();
        self.n_pending.store(all.len(), Ordering::Release);
        taken.iter().any(Option::is_some).then_some(taken)
    }

    /// Does what is to be done for a complete request.
    ///
    /// # Errors
    /// The MPI error code for the program.
    pub(crate) fn complete(
        &self,
        (request, pending): (MpiHandle, PendingMessage),
        status: StatusPtr,
    ) -> Result<(), MpiErrorCode> {
        let mut receive = match pending {
            PendingMessage::Send { .. } => return Ok(()),
            PendingMessage::Persistent(_) => {
                self.add(request, pending);
                return Ok(());
            }
            PendingMessage::Receive(receive) => receive,
        };
        let opened = self.open(&mut receive, status);
        if receive.is_persistent {
            receive.opened = None;
            self.add(request, PendingMessage::Receive(receive));
        }
        opened
    }

    /// Handles a row whose request has completed with an error of MPI. Open MPI then frees even a
    /// persistent request.
    pub(crate) fn complete_failed(
        &self,
        (request, mut pending): (MpiHandle, PendingMessage),
        is_freed: bool,
    ) {
        if let PendingMessage::Receive(receive) = &mut pending {
            self.erase(receive);
            receive.opened = None;
        }
        if pending.is_persistent() && !is_freed {
            self.add(request, pending);
        }
    }

    /// Erases the beginning of a compressed message from the buffer of a receive that has failed.
    pub(crate) fn erase(&self, receive: &mut PendingReceive) {
        // An error here would be an error of the buffer, which MPI has used before.
        let _ = guarded(|| receive.buffer.erase(self.mpi, self.plan.mark));
    }

    /// Keeps a request that the program frees before it is complete.
    pub(crate) fn keep_freed(&self, request: MpiHandle, pending: PendingMessage) {
        let mut freed = locked(&self.freed);
        freed.push((request, pending));
        self.n_freed.fetch_add(1, Ordering::Release);
    }

    /// Completes requests that the program has freed. Runs after each call for messages: a message
    /// that the call has received may say that a freed receive is complete.
    pub(crate) fn advance_freed(&self) {
        if self.n_freed.load(Ordering::Acquire) == 0 || COMPLETES_FREED.get() {
            return;
        }
        let _lock = locked(&self.completes_freed);
        COMPLETES_FREED.set(true);
        let mut all = std::mem::take(&mut *locked(&self.freed));
        let mut status = self.mpi.status_buffer(1);
        all.retain_mut(|(request, pending)| match self.mpi.test(*request, status.start()) {
            Ok(false) => true,
            Ok(true) => {
                if let PendingMessage::Receive(receive) = pending {
                    // The program has no request that could report an error.
                    let _ = self.open(receive, status.start());
                    if receive.is_persistent {
                        self.mpi.free_request(*request);
                    }
                }
                false
            }
            Err(_) => false,
        });
        let mut freed = locked(&self.freed);
        freed.append(&mut all);
        self.n_freed.store(freed.len(), Ordering::Release);
        COMPLETES_FREED.set(false);
    }

    /// Frees the requests that the program has freed, before `MPI_Finalize`.
    pub(crate) fn end(&self) {
        self.advance_freed();
        for (request, pending) in std::mem::take(&mut *locked(&self.freed)) {
            self.mpi.free_request(request);
            // The MPI library may still send the compressed message.
            std::mem::forget(pending);
        }
        self.n_freed.store(0, Ordering::Release);
    }
}

impl PendingMessage {
    /// Returns whether the program's request can be started again after it is complete.
    pub(crate) const fn is_persistent(&self) -> bool {
        match self {
            Self::Send { .. } => false,
            Self::Persistent(_) => true,
            Self::Receive(receive) => receive.is_persistent,
        }
    }
}

impl PendingReceive {
    pub(crate) const fn comm(&self) -> MpiHandle {
        self.comm
    }
}
