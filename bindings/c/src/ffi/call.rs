//! A collective as the caller gave it: checked once, started now or when its group ends.
//!
//! One struct for all of them. What a rank's buffers hold is one table ([`Call::new`]); what it is
//! to core is another ([`Call::start`]).

use std::ffi::c_void;
use std::ops::Range;
use std::pin::Pin;
use std::ptr;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use foldwire::layout::{self, Window};
use foldwire::op::OpCode;
use foldwire::{
    Bound, Collective, DType, Element, Error, Op, Pending, Plan, Rank, Report, SharedCommunicator,
};

use super::memory::{Source, Values, bytes};
use super::operations::{Function, Operation, operation};
use crate::border::Fault;
use crate::ffi::types::{FW_NO_BOUND, FW_UNSUPPORTED, fwDataType, fwPlan};
use crate::plan;
use crate::wire::Wire;

/// A rank of a communicator.
pub(crate) type Comm = SharedCommunicator<'static, Wire>;

/// Which collective.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    AllReduce,
    ReduceScatter,
    AllGather,
    Broadcast,
    Reduce,
    Gather,
    Scatter,
    AllToAll,
    Scan,
    ExclusiveScan,
    Barrier,
}

impl Kind {
    /// What it is to core; a barrier is none.
    const fn collective(self) -> Option<Collective> {
        Some(match self {
            Self::AllReduce => Collective::AllReduce,
            Self::ReduceScatter => Collective::ReduceScatter,
            Self::AllGather => Collective::AllGather,
            Self::Broadcast => Collective::Broadcast,
            Self::Reduce => Collective::Reduce,
            Self::Gather => Collective::Gather,
            Self::Scatter => Collective::Scatter,
            Self::AllToAll => Collective::AllToAll,
            Self::Scan => Collective::Scan,
            Self::ExclusiveScan => Collective::ExclusiveScan,
            Self::Barrier => return None,
        })
    }

    /// Whether the caller's count is that of one rank's share.
    const fn has_shares(self) -> bool {
        use Kind::{AllGather, AllToAll, Gather, ReduceScatter, Scatter};
        matches!(self, ReduceScatter | AllGather | Gather | Scatter | AllToAll)
    }
}

/// How long arrays are, in values.
#[derive(Clone, Debug)]
pub(crate) enum Counts {
    /// As the caller's count says: the array of a reduction, or one rank's share.
    Same(usize),
    /// Of each rank's share.
    Given(Rc<[usize]>),
    /// Of what goes to each rank, and of what comes from it.
    Exchanged(Rc<[usize]>, Rc<[usize]>),
}

impl Counts {
    /// What `rank` has of what all have.
    fn shares(&self, kind: Kind, rank: usize, size: usize) -> Result<Shares, Fault> {
        let overflow = || Fault::argument("the counts add up to more than memory can hold");
        let add = |counts: &[usize]| {
            counts.iter().try_fold(0usize, |sum, &n| sum.checked_add(n)).ok_or_else(overflow)
        };
        match self {
            Self::Same(own) => {
                let n_shares = if kind.has_shares() { size } else { 1 };
                let whole = own.checked_mul(n_shares).ok_or_else(overflow)?;
                let before = if kind.has_shares() { own * rank } else { 0 };
                Ok(Shares { own: *own, before, whole, back: whole })
            }
            Self::Given(counts) => {
                let (before, whole) = (add(&counts[..rank])?, add(counts)?);
                Ok(Shares { own: counts[rank], before, whole, back: whole })
            }
            Self::Exchanged(send, recv) => {
                Ok(Shares { own: 0, before: 0, whole: add(send)?, back: add(recv)? })
            }
        }
    }
}

/// Numbers of values.
struct Shares {
    own: usize,
    /// Of the ranks before.
    before: usize,
    whole: usize,
    /// Of an all-to-all: what comes.
    back: usize,
}

/// How the buffers of a call lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Apart,
    /// The shorter one is its part of the longer one, or they are the same.
    InPlace,
}

/// A collective whose arguments were checked, and whose arrays are there as long as it is, and as
/// what is started of it is.
#[derive(Debug)]
pub(crate) struct Call {
    kind: Kind,
    counts: Counts,
    dtype: DType,
    op: Operation,
    root: usize,
    is_root: bool,
    said: fwPlan,
    plan: Plan,
    send: (*const c_void, usize),
    recv: (*const c_void, usize),
    place: Place,
}

/// The type with this code.
pub(crate) fn dtype(code: fwDataType) -> Result<DType, Fault> {
    let dtype = u8::try_from(code).ok().and_then(DType::from_code);
    dtype.ok_or_else(|| Fault::argument(format!("{code} is no type of values")))
}

/// Expands `$body` for the type `$T` that a code stands for.
macro_rules! with_type {
    ($dtype:expr, $T:ident => $body:expr) => {
        with_type!($dtype, $T => $body; F32 f32, F64 f64, F16 foldwire::f16, Bf16 foldwire::bf16,
            I8 i8, U8 u8, I16 i16, U16 u16, I32 i32, U32 u32, I64 i64, U64 u64)
    };
    ($dtype:expr, $T:ident => $body:expr; $($name:ident $type:ty),*) => {
        match $dtype {
            $(foldwire::DType::$name => {
                type $T = $type;
                $body
            })*
            other => Err($crate::border::Fault::new(
                $crate::ffi::types::FW_UNSUPPORTED,
                format!("there are no calls on {other}"),
            )),
        }
    };
}
pub(crate) use with_type;

impl Call {
    /// A call of the rank `rank` of `size`.
    ///
    /// # Errors
    /// A fault if a buffer or the root cannot be.
    ///
    /// # Safety
    /// Unless an error comes of it, both buffers must be there until the call is over, as long as
    /// foldwire.h says, and nobody else may use what is written to, or write the other, meanwhile.
    #[allow(clippy::too_many_arguments, reason = "a collective has that many")]
    pub(crate) unsafe fn new(
        kind: Kind,
        counts: Counts,
        send: *const c_void,
        recv: *mut c_void,
        dtype: DType,
        op: Operation,
        root: i32,
        said: fwPlan,
        (rank, size): (usize, usize),
    ) -> Result<Self, Fault> {
        let Shares { own, before, whole, back } = counts.shares(kind, rank, size)?;
        let root = usize::try_from(root).ok().filter(|&root| root < size).ok_or_else(|| {
            Fault::argument(format!("root {root} does not exist; there are {size} ranks"))
        })?;
        let is_root = rank == root;
        let at_root = |n: usize| if is_root { n } else { 0 };
        // Values sent, values received, and of what is in place: where in the longer one.
        let (n_send, n_recv, offset) = match kind {
            Kind::AllReduce | Kind::Scan => (own, own, 0),
            Kind::ExclusiveScan => (own, if rank == 0 && recv.is_null() { 0 } else { own }, 0),
            Kind::Broadcast => (at_root(own), own, 0),
            Kind::Reduce => (own, at_root(own), 0),
            Kind::ReduceScatter => (whole, own, before),
            Kind::AllGather => (own, whole, before),
            Kind::Gather => (own, at_root(whole), before),
            Kind::Scatter => (at_root(whole), own, before),
            Kind::AllToAll => (whole, back, 0),
            Kind::Barrier => (0, 0, 0),
        };
        let each = dtype.n_bytes();
        let sent = bytes(send, n_send, each)?;
        let received = bytes(recv, n_recv, each)?;
        for (start, n) in [(sent.start, n_send), (received.start, n_recv)] {
            if n > 0 && start % each != 0 {
                return Err(Fault::argument(format!("an array of {dtype} is not aligned")));
            }
        }
        let shifted = |long: usize, short: usize| {
            let offset = offset.checked_mul(each);
            offset.and_then(|offset| long.checked_add(offset)) == Some(short)
        };
        let is_in_place = match n_send.cmp(&n_recv) {
            std::cmp::Ordering::Less => shifted(received.start, sent.start),
            std::cmp::Ordering::Equal => sent.start == received.start,
            std::cmp::Ordering::Greater => shifted(sent.start, received.start),
        };
        let overlap = sent.start < received.end && received.start < sent.end;
        let place = match (overlap, is_in_place && !matches!(counts, Counts::Exchanged(..))) {
            (false, _) => Place::Apart,
            (true, true) => Place::InPlace,
            (true, false) => {
                let message = "the arrays to send and to receive overlap, and not as foldwire.h \
                               has calls in place";
                return Err(Fault::argument(message));
            }
        };
        let plan = plan::to_core(&said)?;
        if matches!(op, Operation::User(_)) && (plan.bound.is_some() || !plan.codec.is_exact()) {
            let message = "an operation of your own is exact; give it a plan without a bound";
            return Err(Fault::new(FW_UNSUPPORTED, message));
        }
        let (send, recv) = ((send, n_send), (recv.cast_const(), n_recv));
        Ok(Self { kind, counts, dtype, op, root, is_root, said, plan, send, recv, place })
    }

    /// Starts it, on a communicator as it was made for.
    pub(crate) fn start(&self, comm: &Comm) -> Result<Box<dyn Running>, Fault> {
        with_type!(self.dtype, T => self.start_typed::<T>(comm, false))
    }

    /// Checks it, without making it.
    pub(crate) fn check(&self, comm: &Comm) -> Result<(), Fault> {
        check(comm, |comm| with_type!(self.dtype, T => self.start_typed::<T>(comm, true)))
    }

    /// Starts it, or `only_checks`: then no array is written.
    fn start_typed<T: Element>(
        &self,
        comm: &Comm,
        only_checks: bool,
    ) -> Result<Box<dyn Running>, Fault> {
        let Self { kind, is_root, send, recv, place, .. } = *self;
        let (plan, root) = (&self.plan, Rank::new(self.root));
        let user = match self.op {
            Operation::User(callback) => Some(callback.of_type::<T>()),
            Operation::Known(_) => None,
        };
        let op = match &user {
            // SAFETY: the call that is made of it is dropped before the function beside it.
            Some(function) => Op::User(unsafe { outlive(&**function) }),
            None => operation::<T>(self.op.code())?,
        };
        let [given, other] = match &self.counts {
            Counts::Same(_) => [None, None],
            Counts::Given(counts) => [Some(Rc::clone(counts)), None],
            Counts::Exchanged(to, from) => [Some(Rc::clone(to)), Some(Rc::clone(from))],
        };
        let lent = |counts: &Option<Rc<[usize]>>| {
            // SAFETY: the call that is made of them is dropped before the counts beside it.
            counts.as_deref().map(|counts| unsafe { outlive(counts) })
        };
        let shares = match (&self.counts, lent(&given), lent(&other)) {
            (_, Some(send), Some(recv)) => layout::Shares::Exchanged { send, recv },
            (_, Some(counts), None) => layout::Shares::Given(counts),
            // Checked in `new`.
            (Counts::Same(count), ..) if kind.has_shares() => {
                layout::Shares::Even(count * comm.size())
            }
            (Counts::Same(count), ..) => layout::Shares::Even(*count),
            _ => unreachable!("counts that were given are lent"),
        };
        // Of arrays that overlap only one is lent: the longer one, or else what is sent is copied
        // before what is received is lent.
        // SAFETY: by the promise of `new`.
        let lend = |(start, n): (*const c_void, usize)| unsafe { Values::<T>::lend(start, n) };
        let Some(collective) = kind.collective() else {
            return Ok(Box::new(Started::<f32, [f32; 0]> {
                pending: comm.start_barrier()?,
                _counts: [None, None],
                _user: None,
            }));
        };
        let none = Source::Copied(Vec::new());
        let (window, send, recv) = match (kind, place) {
            (Kind::Broadcast, _) => {
                let mut data = lend(recv)?;
                if is_root && place == Place::Apart && !only_checks {
                    data.as_mut().copy_from_slice(lend(send)?.as_ref());
                }
                (Window::Whole, none, data)
            }
            (Kind::Gather | Kind::Scatter, Place::InPlace) => {
                let send = Source::Copied(lend(send)?.as_ref().to_vec());
                (Window::Own, send, lend(recv)?)
            }
            // The longer one, of which the other is a part.
            (_, Place::InPlace) => {
                (Window::Whole, none, lend(if send.1 > recv.1 { send } else { recv })?)
            }
            (_, Place::Apart) => (Window::Own, Source::Lent(lend(send)?), lend(recv)?),
        };
        let call = foldwire::Call::of(collective, shares, window, send, recv);
        let pending = comm.start(call.with_op(op).with_root(root), plan)?;
        Ok(Box::new(Started { pending, _counts: [given, other], _user: user }))
    }

    /// Of an all-reduce that can be one of several in a group call: its bound, and what all of them
    /// must have in common, which is the type, the operation, and all of the plan but the bound.
    pub(crate) fn in_group(&self) -> Option<(Bound, (DType, OpCode, fwPlan))> {
        // A codec that loses nothing takes any bound, and one that keeps none takes none.
        let any = self.plan.codec.is_exact().then_some(Bound::Absolute(1.0));
        let bound = self.plan.bound.or(any)?;
        let rest = fwPlan { bound_kind: FW_NO_BOUND, bound: 0.0, ..self.said };
        let is_one = self.kind == Kind::AllReduce && !matches!(self.op, Operation::User(_));
        is_one.then_some((bound, (self.dtype, self.op.code(), rest)))
    }

    /// The addresses of its arrays, and whether they are written.
    pub(crate) fn ranges(&self) -> [(Range<usize>, bool); 2] {
        let range = |(start, n): (*const c_void, usize)| {
            if n == 0 { 0..0 } else { start.addr()..start.addr() + n * self.dtype.n_bytes() }
        };
        let (send, recv) = (range(self.send), range(self.recv));
        match self.place {
            Place::Apart => [(send, false), (recv, true)],
            Place::InPlace => {
                [(send.start.min(recv.start)..send.end.max(recv.end), true), (0..0, false)]
            }
        }
    }

    /// The plan, checked.
    pub(crate) const fn plan(&self) -> &Plan {
        &self.plan
    }

    /// The array that becomes the result of an all-reduce, with what is sent in it.
    pub(crate) fn gathered<T: Element>(&self) -> Result<Values<T>, Fault> {
        // SAFETY: by the promise of `new`.
        let mut data = unsafe { Values::<T>::lend(self.recv.0, self.recv.1) }?;
        if self.place == Place::Apart {
            // SAFETY: by the promise of `new`; the arrays do not overlap.
            let send = unsafe { Values::<T>::lend(self.send.0, self.send.1) }?;
            data.as_mut().copy_from_slice(send.as_ref());
        }
        Ok(data)
    }
}

/// Checks the call that `start` starts, without making it.
pub(crate) fn check<R>(
    comm: &Comm,
    start: impl FnOnce(&Comm) -> Result<R, Fault>,
) -> Result<(), Fault> {
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

pub(super) type PendingOf<T> = Pending<'static, Wire, T, Values<T>>;

/// # Safety
/// The value must not be used after what it is borrowed of is gone.
unsafe fn outlive<V: ?Sized + 'static>(value: &V) -> &'static V {
    // SAFETY: only the lifetime changes; the caller sees to it.
    unsafe { &*ptr::from_ref(value) }
}

/// A call under way, of any type.
pub(crate) trait Running: Future<Output = Result<Report, Error>> + Unpin {
    /// Whether it is done, as far as it has been driven.
    fn is_finished(&self) -> bool;

    /// Drives all calls over the transport until this one is done.
    fn wait(self: Box<Self>) -> Result<Report, Error>;

    /// The same with another limit of time without any progress.
    fn with_timeout(self: Box<Self>, timeout: Duration) -> Box<dyn Running>;
}

/// A message under way, as a call.
pub(super) fn running<T: Element>(pending: PendingOf<T>) -> Box<dyn Running> {
    Box::new(Started { pending, _counts: [None, None], _user: None })
}

struct Started<T: Element, R: AsMut<[T]> + 'static> {
    /// Above what it refers to, and so dropped before it.
    pending: Pending<'static, Wire, T, R>,
    _counts: [Option<Rc<[usize]>>; 2],
    _user: Option<Rc<Function<T>>>,
}

impl<T: Element, R: AsMut<[T]> + Unpin + 'static> Running for Started<T, R> {
    fn is_finished(&self) -> bool {
        self.pending.is_finished()
    }

    fn wait(self: Box<Self>) -> Result<Report, Error> {
        let Self { pending, _counts, _user } = *self;
        pending.wait().outcome
    }

    fn with_timeout(self: Box<Self>, timeout: Duration) -> Box<dyn Running> {
        let Self { pending, _counts, _user } = *self;
        Box::new(Self { pending: pending.with_timeout(timeout), _counts, _user })
    }
}

impl<T: Element, R: AsMut<[T]> + Unpin + 'static> Future for Started<T, R> {
    type Output = Result<Report, Error>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.pending).poll(context).map(|finished| finished.outcome)
    }
}
