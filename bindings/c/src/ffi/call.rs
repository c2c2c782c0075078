//! A collective with checked arguments, started at once or when its group ends.
//!
//! One struct represents all collectives. [`CheckedCollective::new`] has the table of buffer
//! lengths for each collective. [`CheckedCollective::start`] converts a collective to a call of
//! core.

use std::ffi::c_void;
use std::fmt::Display;
use std::ops::Range;
use std::ptr;
use std::sync::Arc;

use foldwire::device::DeviceSlice;
use foldwire::layout::{self, Window};
use foldwire::op::OpCode;
use foldwire::schedule::{Portion, ProgramSpec};
use foldwire::{Bound, Collective, DType, Element, Error, Op, Plan, Rank, SharedCommunicator};

use super::device::{self, ArrayMemory, DeviceStream, LentDevice};
use super::memory::{LentArray, SendBuffer, bytes};
use super::operations::{ReduceOperation, operation};
use super::started::{DynCall, LentCounts, StartedCall, explained};
use crate::errors::ApiError;
use crate::ffi::types::{FW_COMPLEX64, FW_COMPLEX128, FW_UNSUPPORTED, fwDataType};
use crate::transport::AnyTransport;

/// Core's communicator for one rank, over the transport of this library.
pub type CoreCommunicator = SharedCommunicator<'static, AnyTransport>;

/// Returns whether the caller's count is the length of one rank's block, not of the whole array.
const fn has_blocks(collective: Option<Collective>) -> bool {
    use Collective::{AllGather, AllToAll, Gather, ReduceScatter, Scatter};
    matches!(collective, Some(ReduceScatter | AllGather | Gather | Scatter | AllToAll))
}

/// Array lengths of a collective, in values.
#[derive(Clone, Debug)]
pub enum ValueCounts {
    /// One count: the length of the whole array of a reduction, or of one rank's block.
    Same(usize),
    /// Length of each rank's block.
    Given(Arc<[usize]>),
    /// Lengths of the blocks to each rank, and of the blocks from each rank.
    Exchanged(Arc<[usize]>, Arc<[usize]>),
}

impl ValueCounts {
    /// Multiplies all counts.
    ///
    /// # Errors
    /// If one overflows.
    pub(crate) fn times(self, width: usize) -> Result<Self, ApiError> {
        if width == 1 {
            return Ok(self);
        }
        let all = |counts: &[usize]| -> Result<Arc<[usize]>, ApiError> {
            counts.iter().map(|&count| times(count, width)).collect()
        };
        Ok(match self {
            Self::Same(count) => Self::Same(times(count, width)?),
            Self::Given(counts) => Self::Given(all(&counts)?),
            Self::Exchanged(to, from) => Self::Exchanged(all(&to)?, all(&from)?),
        })
    }

    /// Checks that there is a count for each of `size` ranks.
    ///
    /// # Errors
    /// If there are more or fewer.
    pub(super) fn check_size(&self, size: usize) -> Result<(), ApiError> {
        let all = match self {
            Self::Same(_) => [None, None],
            Self::Given(counts) => [Some(counts), None],
            Self::Exchanged(to, from) => [Some(to), Some(from)],
        };
        match all.into_iter().flatten().map(|counts| counts.len()).find(|&n| n != size) {
            Some(n) => Err(ApiError::argument(format!("there are {n} counts for {size} ranks"))),
            None => Ok(()),
        }
    }

    /// Computes where the block of `rank` lies in the whole array.
    ///
    /// # Errors
    /// If the counts overflow.
    fn shares(
        &self,
        collective: Option<Collective>,
        rank: usize,
        size: usize,
    ) -> Result<ShareSizes, ApiError> {
        let overflow = || ApiError::argument("the counts add up to more than memory can hold");
        let add = |counts: &[usize]| {
            counts.iter().try_fold(0usize, |sum, &n| sum.checked_add(n)).ok_or_else(overflow)
        };
        match self {
            Self::Same(own) => {
                let (n_blocks, n_before) =
                    if has_blocks(collective) { (size, rank) } else { (1, 0) };
                let whole = own.checked_mul(n_blocks).ok_or_else(overflow)?;
                let before = own * n_before;
                Ok(ShareSizes { own: *own, before, whole, whole_recv: whole })
            }
            Self::Given(counts) => {
                let (before, whole) = (add(&counts[..rank])?, add(counts)?);
                Ok(ShareSizes { own: counts[rank], before, whole, whole_recv: whole })
            }
            Self::Exchanged(send, recv) => {
                Ok(ShareSizes { own: 0, before: 0, whole: add(send)?, whole_recv: add(recv)? })
            }
        }
    }
}

/// Position of a rank's block in the whole array, in values.
struct ShareSizes {
    /// Length of this rank's block. 0 in an all-to-all with counts for each rank.
    own: usize,
    /// Length of the blocks of lower ranks.
    before: usize,
    /// Length of all blocks. In an all-to-all, of the blocks that are sent.
    whole: usize,
    /// In an all-to-all, length of the blocks that are received. Otherwise equal to `whole`.
    whole_recv: usize,
}

impl ShareSizes {
    /// Returns the length of a portion of the array.
    const fn length(&self, portion: Portion) -> usize {
        match portion {
            Portion::Nothing => 0,
            Portion::Share => self.own,
            Portion::Whole | Portion::Row => self.whole,
            Portion::Column => self.whole_recv,
        }
    }
}

/// Overlap of the two buffers of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum BufferOverlap {
    Apart,
    /// The shorter buffer is this rank's block of the longer one, or both are the same.
    InPlace,
}

/// A collective with checked arguments. Its arrays stay valid as long as this value and every call
/// that is started from it.
#[derive(Debug)]
pub(crate) struct CheckedCollective {
    /// `None` for a barrier.
    collective: Option<Collective>,
    counts: ValueCounts,
    dtype: DType,
    op: ReduceOperation,
    root: usize,
    is_root: bool,
    plan: Plan,
    send: (*const c_void, usize),
    recv: (*const c_void, usize),
    overlap: BufferOverlap,
}

/// Looks up the type with this code.
///
/// # Errors
/// If there is no such type, or it is complex.
pub(crate) fn dtype(code: fwDataType) -> Result<DType, ApiError> {
    if matches!(code, FW_COMPLEX64 | FW_COMPLEX128) {
        let message = "complex values are for collectives and messages only; pass their parts as \
                       twice as many floats";
        return Err(ApiError::argument(message));
    }
    let dtype = u8::try_from(code).ok().and_then(DType::from_code);
    dtype.ok_or_else(|| ApiError::argument(format!("unknown type code {code}")))
}

/// Looks up the type with this code: the type of its parts, and the number of parts of a value, two
/// if it is complex.
pub(crate) fn parts(code: fwDataType) -> Result<(DType, usize), ApiError> {
    match code {
        FW_COMPLEX64 => Ok((DType::F32, 2)),
        FW_COMPLEX128 => Ok((DType::F64, 2)),
        _ => Ok((dtype(code)?, 1)),
    }
}

/// Returns the number of parts of `count` values.
pub(crate) fn times(count: usize, width: usize) -> Result<usize, ApiError> {
    let overflow = || ApiError::argument(format!("{count} values are more than memory holds"));
    count.checked_mul(width).ok_or_else(overflow)
}

/// A rank as a number of the caller, which may be negative or too large.
pub(crate) trait RankNumber: Copy + Display + TryInto<usize> {}
impl<N: Copy + Display + TryInto<usize>> RankNumber for N {}

/// Returns a number as the index of one of `size` ranks.
///
/// # Errors
/// If there is no such rank.
pub(crate) fn existing(
    number: impl RankNumber,
    what: &str,
    size: usize,
) -> Result<usize, ApiError> {
    let rank = number.try_into().ok().filter(|&rank| rank < size);
    let none = || format!("{what} {number} does not exist; there are {size} ranks");
    rank.ok_or_else(|| ApiError::argument(none()))
}

/// Evaluates `$body` with `$T` as the Rust type of a [`DType`].
macro_rules! with_type {
    ($dtype:expr, $T:ident => $body:expr) => {
        foldwire::with_type!($dtype, $T => $body, else Err($crate::errors::ApiError::new(
            $crate::ffi::types::FW_UNSUPPORTED,
            format!("calls do not support values of type {}", $dtype),
        )))
    };
}
pub(crate) use with_type;

/// Same as `with_type`, of floats alone. `$refused` makes the error's message from another type.
macro_rules! with_float {
    ($dtype:expr, $refused:expr, $T:ident => $body:expr) => {
        foldwire::with_float!($dtype, $T => $body, else Err($crate::errors::ApiError::new(
            $crate::ffi::types::FW_UNSUPPORTED,
            $refused($dtype),
        )))
    };
}
pub(crate) use with_float;

impl CheckedCollective {
    /// Checks the arguments of a collective on rank `rank` of `size`. A barrier is `None`, and has
    /// no values.
    ///
    /// # Errors
    /// If a buffer or the root is invalid.
    ///
    /// # Safety
    /// If this returns `Ok`, both buffers must exist until the call has finished, with the lengths
    /// that foldwire.h states. Until then nobody else may use the buffer that is written, nor write
    /// the other buffer.
    #[allow(clippy::too_many_arguments, reason = "a collective has this many arguments")]
    pub(crate) unsafe fn new(
        collective: Option<Collective>,
        counts: ValueCounts,
        send: *const c_void,
        recv: *mut c_void,
        dtype: DType,
        op: ReduceOperation,
        root: impl RankNumber,
        plan: Plan,
        (rank, size): (usize, usize),
    ) -> Result<Self, ApiError> {
        let sizes = counts.shares(collective, rank, size)?;
        let root = existing(root, "root", size)?;
        let is_root = rank == root;
        let portions = collective.map(|collective| {
            let (spec, rank) =
                (ProgramSpec::new(collective, size, Rank::new(root)), Rank::new(rank));
            [spec.input(rank), spec.output(rank)]
        });
        let mut lengths = portions.unwrap_or([Portion::Nothing; 2]).map(|part| sizes.length(part));
        if collective == Some(Collective::ExclusiveScan) && !recv.is_null() {
            // Rank 0 has no result, but may pass an array.
            lengths[1] = sizes.own;
        }
        let [n_send, n_recv] = lengths;
        let each = dtype.n_bytes();
        let sent = bytes(send, n_send, each)?;
        let received = bytes(recv, n_recv, each)?;
        for (start, n) in [(sent.start, n_send), (received.start, n_recv)] {
            if n > 0 && start % each != 0 {
                return Err(ApiError::argument(format!(
                    "an array of {dtype} values is not aligned"
                )));
            }
        }
        // The shorter array of a call in place is this rank's block of the longer one.
        let shifted = |long: usize, short: usize| {
            let offset = sizes.before.checked_mul(each);
            offset.and_then(|offset| long.checked_add(offset)) == Some(short)
        };
        let is_in_place = match n_send.cmp(&n_recv) {
            std::cmp::Ordering::Less => shifted(received.start, sent.start),
            std::cmp::Ordering::Equal => sent.start == received.start,
            std::cmp::Ordering::Greater => shifted(sent.start, received.start),
        };
        let overlaps = sent.start < received.end && received.start < sent.end;
        let overlap = match (overlaps, is_in_place && !matches!(counts, ValueCounts::Exchanged(..)))
        {
            (false, _) => BufferOverlap::Apart,
            (true, true) => BufferOverlap::InPlace,
            (true, false) => {
                let message = "the send and receive arrays overlap, but are not in place as \
                               foldwire.h defines it";
                return Err(ApiError::argument(message));
            }
        };
        op.check(dtype)?;
        if matches!(op, ReduceOperation::User(_))
            && (plan.bound.is_some() || !plan.codec.is_exact())
        {
            let message = "a user-defined operation is exact; use a plan without a bound";
            return Err(ApiError::new(FW_UNSUPPORTED, message));
        }
        let (send, recv) = ((send, n_send), (recv.cast_const(), n_recv));
        Ok(Self { collective, counts, dtype, op, root, is_root, plan, send, recv, overlap })
    }

    /// Starts the collective. `comm` must have the rank and size that were passed to
    /// [`new`](Self::new).
    pub(crate) fn start(
        &self,
        comm: &CoreCommunicator,
        memory: ArrayMemory,
    ) -> Result<Box<dyn DynCall>, ApiError> {
        self.start_or_check(comm, memory, false)
    }

    /// Checks that the collective can be started, without starting it.
    pub(crate) fn check(
        &self,
        comm: &CoreCommunicator,
        memory: ArrayMemory,
    ) -> Result<(), ApiError> {
        check(comm, |comm| self.start_or_check(comm, memory, true))
    }

    /// Checks that the send and the receive array have these numbers of values.
    pub(super) fn check_lengths(&self, lengths: [usize; 2]) -> Result<(), ApiError> {
        let needed = [("send", self.send.1), ("receive", self.recv.1)];
        for ((what, need), have) in needed.into_iter().zip(lengths) {
            if need > 0 && have != need {
                let message = format!("the {what} array has {have} values, but needs {need}");
                return Err(ApiError::argument(message));
            }
        }
        Ok(())
    }

    /// Starts the collective. With `only_checks`, writes no array.
    fn start_or_check(
        &self,
        comm: &CoreCommunicator,
        memory: ArrayMemory,
        only_checks: bool,
    ) -> Result<Box<dyn DynCall>, ApiError> {
        let Some(collective) = self.collective else {
            let pending = comm.start_barrier()?;
            let (_counts, _user, explain) = ([None, None], None, None);
            return Ok(Box::new(StartedCall::<f32, _> { pending, _counts, _user, explain }));
        };
        match memory {
            ArrayMemory::Host => {
                with_type!(self.dtype, T => self.start_typed::<T>(collective, comm, only_checks))
            }
            ArrayMemory::Device(stream) => with_type!(self.dtype, T => {
                self.start_on::<T>(collective, comm, stream, only_checks)
            }),
        }
    }

    /// Lends the counts of each rank, and describes the shares. The first part of the result must
    /// live until the call is dropped.
    fn shares(&self, size: usize) -> (LentCounts, layout::Shares<'static>) {
        let [given, other] = match &self.counts {
            ValueCounts::Same(_) => [None, None],
            ValueCounts::Given(counts) => [Some(Arc::clone(counts)), None],
            ValueCounts::Exchanged(to, from) => [Some(Arc::clone(to)), Some(Arc::clone(from))],
        };
        let lent = |counts: &Option<Arc<[usize]>>| {
            // SAFETY: `StartedCall` drops the call before the counts.
            counts.as_deref().map(|counts| unsafe { outlive(counts) })
        };
        let shares = match (&self.counts, lent(&given), lent(&other)) {
            (_, Some(send), Some(recv)) => layout::Shares::Exchanged { send, recv },
            (_, Some(counts), None) => layout::Shares::Given(counts),
            // `new` has checked that this does not overflow.
            (ValueCounts::Same(count), ..) if has_blocks(self.collective) => {
                layout::Shares::Even(count * size)
            }
            (ValueCounts::Same(count), ..) => layout::Shares::Even(*count),
            _ => unreachable!("counts that were given are lent"),
        };
        ([given, other], shares)
    }

    /// Starts the collective on a device's memory. With `only_checks`, writes no array.
    fn start_on<T: Element>(
        &self,
        collective: Collective,
        comm: &CoreCommunicator,
        stream: DeviceStream,
        only_checks: bool,
    ) -> Result<Box<dyn DynCall>, ApiError> {
        let Self { is_root, send, recv, overlap, .. } = *self;
        // A user-defined operation is an error here: it is a function of the host.
        let (op, root) = (operation::<T>(self.op.code())?, Rank::new(self.root));
        let (_counts, shares) = self.shares(comm.size());
        let region =
            |(start, n): (*const c_void, usize)| DeviceSlice::<T>::new(start.addr() as u64, n);
        let none = DeviceSlice::new(0, 0);
        let mut first = None;
        let (window, send, recv) = match (collective, overlap) {
            (Collective::Broadcast, _) => {
                if is_root && overlap == BufferOverlap::Apart && !only_checks {
                    let (from, to) = (send.0.addr(), recv.0.addr());
                    first = Some((from..from + recv.1 * T::BYTES, to));
                }
                (Window::Whole, none, region(recv))
            }
            // The root's block is where it belongs, and a device may have two names for it.
            (Collective::Scatter, _) | (_, BufferOverlap::Apart) => {
                (Window::Own, region(send), region(recv))
            }
            (_, BufferOverlap::InPlace) => {
                (Window::Whole, none, region(if send.1 > recv.1 { send } else { recv }))
            }
        };
        let call = foldwire::Call::of(collective, shares, window, send, recv);
        let call = call.with_op(op).with_root(root);
        let LentDevice { device, explain } = device::lend(comm, stream, first)?;
        let pending = explained(comm.start_on(device, call, &self.plan), Some(&explain))?;
        Ok(Box::new(StartedCall::<T, _> { pending, _counts, _user: None, explain: Some(explain) }))
    }

    /// Starts the collective on the host's memory. With `only_checks`, writes no array.
    fn start_typed<T: Element>(
        &self,
        collective: Collective,
        comm: &CoreCommunicator,
        only_checks: bool,
    ) -> Result<Box<dyn DynCall>, ApiError> {
        let Self { is_root, send, recv, overlap, .. } = *self;
        let (plan, root) = (&self.plan, Rank::new(self.root));
        let user = self.op.function::<T>();
        let op = match &user {
            // SAFETY: `StartedCall` drops the call before the function.
            Some(function) => Op::UserSlices(unsafe { outlive(&**function) }),
            None => operation::<T>(self.op.code())?,
        };
        let (_counts, shares) = self.shares(comm.size());
        // If the arrays overlap, the call borrows only one: the longer array, or the receive array
        // after the input was copied.
        // SAFETY: guaranteed by the caller of `new`.
        let lend = |(start, n): (*const c_void, usize)| unsafe { LentArray::<T>::lend(start, n) };
        let none = SendBuffer::Copied(Vec::new());
        let (window, send, recv) = match (collective, overlap) {
            (Collective::Broadcast, _) => {
                let mut data = lend(recv)?;
                if is_root && overlap == BufferOverlap::Apart && !only_checks {
                    data.as_mut().copy_from_slice(lend(send)?.as_ref());
                }
                (Window::Whole, none, data)
            }
            (Collective::Scatter, BufferOverlap::InPlace) => {
                let send = SendBuffer::Copied(lend(send)?.as_ref().to_vec());
                (Window::Own, send, lend(recv)?)
            }
            // The longer array contains the shorter one.
            (_, BufferOverlap::InPlace) => {
                (Window::Whole, none, lend(if send.1 > recv.1 { send } else { recv })?)
            }
            (_, BufferOverlap::Apart) => (Window::Own, SendBuffer::Lent(lend(send)?), lend(recv)?),
        };
        let call = foldwire::Call::of(collective, shares, window, send, recv);
        let pending = comm.start(call.with_op(op).with_root(root), plan)?;
        Ok(Box::new(StartedCall { pending, _counts, _user: user, explain: None }))
    }

    /// Returns the bound and the grouping key of an all-reduce that can be part of a group call, or
    /// `None` for other calls. All-reduces with equal keys can run as one group call. The key is
    /// the type, the operation, and the plan without its bound.
    pub(crate) fn in_group(&self) -> Option<(Bound, (DType, OpCode, Plan))> {
        // A lossless codec accepts any bound. A lossy plan without a bound cannot be grouped.
        let any = self.plan.codec.is_exact().then_some(Bound::Absolute(1.0));
        let bound = self.plan.bound.or(any)?;
        let mut rest = self.plan;
        rest.bound = None;
        let is_known = matches!(self.op, ReduceOperation::Known(_));
        let can_group = self.collective == Some(Collective::AllReduce) && is_known;
        can_group.then_some((bound, (self.dtype, self.op.code(), rest)))
    }

    /// Returns the address range of each array, and whether the call writes it.
    pub(crate) fn ranges(&self) -> [(Range<usize>, bool); 2] {
        let range = |(start, n): (*const c_void, usize)| {
            if n == 0 { 0..0 } else { start.addr()..start.addr() + n * self.dtype.n_bytes() }
        };
        let (send, recv) = (range(self.send), range(self.recv));
        match self.overlap {
            BufferOverlap::Apart => [(send, false), (recv, true)],
            BufferOverlap::InPlace => {
                [(send.start.min(recv.start)..send.end.max(recv.end), true), (0..0, false)]
            }
        }
    }

    /// Returns core's plan.
    pub(crate) const fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Returns the result array of an all-reduce, filled with this rank's input.
    pub(crate) fn gathered<T: Element>(&self) -> Result<LentArray<T>, ApiError> {
        // SAFETY: guaranteed by the caller of `new`.
        let mut data = unsafe { LentArray::<T>::lend(self.recv.0, self.recv.1) }?;
        if self.overlap == BufferOverlap::Apart {
            // SAFETY: guaranteed by the caller of `new`; the arrays do not overlap.
            let send = unsafe { LentArray::<T>::lend(self.send.0, self.send.1) }?;
            data.as_mut().copy_from_slice(send.as_ref());
        }
        Ok(data)
    }
}

/// Checks that the call that `start` starts would be accepted, without starting it.
pub(crate) fn check<R>(
    comm: &CoreCommunicator,
    start: impl FnOnce(&CoreCommunicator) -> Result<R, ApiError>,
) -> Result<(), ApiError> {
    let mut refused = None;
    let checked = comm.check(|comm| {
        start(comm).map_err(|fault| {
            let error = fault.error.unwrap_or(Error::Internal);
            refused = Some(fault);
            error
        })
    });
    checked.map_err(|error| refused.unwrap_or_else(|| error.into()))
}

/// Extends the lifetime of a reference.
///
/// # Safety
/// The result must not be used after the referenced value was dropped.
unsafe fn outlive<V: ?Sized + 'static>(value: &V) -> &'static V {
    // SAFETY: only the lifetime changes; the caller guarantees that it is long enough.
    unsafe { &*ptr::from_ref(value) }
}
