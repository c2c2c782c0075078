//! A collective call of the program: its arguments, and the checks that MPI would make.

use std::ffi::{c_int, c_void};
use std::iter;
use std::ops::Range;

use foldwire::op::OpCode;
use foldwire::schedule::Collective;

use crate::agree::{AgreedCall, LocalView, total};
use crate::decide::{DecisionInput, PassReason, RankPlacement};
use crate::ffi::abi::MpiHandle;
use crate::ffi::counts::CountArray;
use crate::ffi::interceptor::RequestPointer;
use crate::ffi::library::{MpiApi, MpiErrorCode};
use crate::ffi::memory::{ArrayRegion, ArrayRegions, KeptType};
use crate::rules::MatchedNames;
use crate::signature::{BaseType, Signature};

/// A buffer argument with its count and datatype.
#[derive(Clone, Copy, Debug)]
pub struct BufferArgs {
    /// Address of the buffer, or `MPI_IN_PLACE`.
    pub start: *mut c_void,
    /// Number of values. The program may pass a negative number; the MPI library must refuse it.
    pub count: i64,
    /// Datatype of the values.
    pub datatype: MpiHandle,
    /// Number of values in each rank's share, if the shares differ.
    pub counts: Option<CountArray>,
    /// Displacement of each share, in values of the datatype; `None` if the shares are contiguous.
    pub displs: Option<CountArray>,
}

/// A collective with its arguments. `each_function!` lists the arguments that each MPI function
/// has. The fields of arguments that a function lacks are unused.
#[derive(Clone, Copy, Debug)]
pub struct MpiCall {
    /// Collective operation.
    pub collective: Collective,
    /// Buffer to send.
    pub send: BufferArgs,
    /// Buffer to receive into, or the only buffer of a broadcast.
    pub recv: BufferArgs,
    /// Reduction operation.
    pub op: MpiHandle,
    /// Root rank.
    pub root: c_int,
    /// Communicator.
    pub comm: MpiHandle,
    /// Address to which the call writes its request; `None` for a blocking call.
    pub request: Option<RequestPointer>,
}

/// Copies of the datatypes that a call uses.
pub(crate) type KeptTypes = Vec<KeptType>;

/// Position of this rank in a call, which determines the buffers that it uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RankRole {
    pub(crate) rank: usize,
    pub(crate) size: usize,
    /// `None` for collectives without a root.
    pub(crate) root: Option<usize>,
}

impl RankRole {
    pub(crate) fn is_root(self) -> bool {
        self.root == Some(self.rank)
    }
}

/// A call with checked arguments, which Foldwire may take.
pub(crate) struct CheckedCall {
    pub(crate) role: RankRole,
    pub(crate) op: Option<OpCode>,
    /// Bytes of each rank's share, if the call has an array of counts or the ranks agreed on
    /// shares.
    shares: Option<Vec<usize>>,
    pub(crate) is_in_place: bool,
    /// Element type; `None` if there are several.
    base: Option<BaseType>,
    /// Bytes of the whole logical array.
    n_bytes: usize,
}

impl MpiCall {
    /// Checks the arguments on which the decision depends.
    ///
    /// # Errors
    /// The reason why MPI must judge the call.
    pub(crate) fn checked(
        &self,
        mpi: &dyn MpiApi,
        (rank, size): (usize, usize),
    ) -> Result<CheckedCall, PassReason> {
        let role = self.role((rank, size))?;
        let is_in_place = self.is_in_place(mpi, role);
        // The buffer whose count, or counts, give the length of the whole array.
        let counted = match self.collective {
            Collective::Gather if !role.is_root() => self.send,
            Collective::Scatter if role.is_root() => self.send,
            _ => self.recv,
        };
        if counted.datatype == mpi.handles().datatype_null {
            return Err(PassReason::Argument);
        }
        let counts = counted.counts(size)?;
        let whole = match (&counts, self.collective) {
            (Some(counts), _) => Some(total(counts)?),
            (None, Collective::AllReduce | Collective::Reduce | Collective::Broadcast) => {
                Some(number(counted.count)?)
            }
            (None, _) => number(counted.count)?.checked_mul(size),
        };
        let Signature { base, n_bytes: each, is_own, .. } =
            mpi.signature(counted.datatype).map_err(|_| PassReason::Argument)?;
        // MPI defines its operations for predefined datatypes only.
        if self.collective.reduces() && !is_own {
            return Err(PassReason::Type);
        }
        self.check_sides(mpi, role)?;
        let n_bytes =
            whole.and_then(|whole| whole.checked_mul(each)).ok_or(PassReason::Argument)?;
        let shares = counts.map(|counts| counts.into_iter().map(|n| n * each).collect());
        let handles = mpi.handles();
        let ops = [
            (handles.sum, OpCode::Sum),
            (handles.min, OpCode::Min),
            (handles.max, OpCode::Max),
            (handles.prod, OpCode::Prod),
        ];
        let op = ops.into_iter().find(|(known, _)| *known == self.op).map(|(_, op)| op);
        Ok(CheckedCall { role, op, shares, is_in_place, base, n_bytes })
    }

    /// Searches for errors that the MPI library would detect on this rank alone.
    ///
    /// # Errors
    /// The MPI library would refuse the call.
    fn check_sides(&self, mpi: &dyn MpiApi, role: RankRole) -> Result<(), PassReason> {
        let mut is_own = true;
        let used = self.sides(mpi, role);
        for (side, _) in [&self.send, &self.recv].into_iter().zip(used).filter(|(_, used)| *used) {
            if side.start.addr() == mpi.in_place() || (side.counts.is_none() && side.count < 0) {
                return Err(PassReason::Argument);
            }
            if side.counts.is_none() && side.count == 0 {
                continue;
            }
            if side.datatype == mpi.handles().datatype_null {
                return Err(PassReason::Argument);
            }
            // This fails for an uncommitted datatype, too.
            let signature = mpi.signature(side.datatype).map_err(|_| PassReason::Argument)?;
            is_own &= signature.is_own;
            // A null pointer is valid with a derived datatype that contains absolute addresses.
            if side.start.is_null() && side.counts.is_none() && signature.is_own {
                return Err(PassReason::Argument);
            }
        }
        let is_aliased = used == [true; 2] && is_own && self.is_aliased(mpi, role);
        if is_aliased && mpi.refuses_aliases(self.collective) {
            return Err(PassReason::Argument);
        }
        Ok(())
    }

    /// Returns whether this rank's share has the same address in the send buffer and in the receive
    /// buffer. An empty share has no address.
    fn is_aliased(&self, mpi: &dyn MpiApi, role: RankRole) -> bool {
        let (send, recv) = (&self.send, &self.recv);
        if send.datatype != recv.datatype {
            return false;
        }
        let same = |a: Option<CountArray>, b: Option<CountArray>| {
            a.map(CountArray::addr) == b.map(CountArray::addr)
        };
        match self.collective {
            Collective::AllToAll => {
                send.start == recv.start
                    && send.count == recv.count
                    && same(send.counts, recv.counts)
                    && same(send.displs, recv.displs)
            }
            Collective::AllGather | Collective::Gather => {
                send.count > 0 && recv.share(mpi, role) == Some(send.start.addr())
            }
            Collective::Scatter => {
                recv.count > 0 && send.share(mpi, role) == Some(recv.start.addr())
            }
            _ => send.start == recv.start,
        }
    }

    /// Returns this rank's position.
    ///
    /// # Errors
    /// MPI must judge the root.
    pub(crate) fn role(&self, (rank, size): (usize, usize)) -> Result<RankRole, PassReason> {
        let root = match (self.collective.has_root(), usize::try_from(self.root)) {
            (false, _) => None,
            (true, Ok(root)) if root < size => Some(root),
            (true, _) => return Err(PassReason::Argument),
        };
        Ok(RankRole { rank, size, root })
    }

    fn is_in_place(&self, mpi: &dyn MpiApi, role: RankRole) -> bool {
        let in_place = mpi.in_place();
        match self.collective {
            Collective::Scatter => role.is_root() && self.recv.start.addr() == in_place,
            Collective::Broadcast => false,
            // Only the root can be in place.
            _ if self.collective.has_root() => role.is_root() && self.send.start.addr() == in_place,
            _ => self.send.start.addr() == in_place,
        }
    }

    /// Returns whether a rank may know only a part of the call's counts.
    pub(crate) const fn is_known_in_part(&self) -> bool {
        matches!(self.collective, Collective::Gather | Collective::Scatter | Collective::AllToAll)
            && (self.send.counts.is_some() || self.recv.counts.is_some())
    }

    /// Number of shares whose lengths the ranks must exchange if
    /// [`is_known_in_part`](Self::is_known_in_part). In an all-to-all, each rank knows the lengths
    /// of all shares that it sends and receives.
    pub(crate) fn n_shared_lengths(&self, size: usize) -> usize {
        if self.collective.has_root() { size } else { 0 }
    }

    /// Returns whether MPI uses the send buffer and the receive buffer on this rank.
    pub(crate) fn sides(&self, mpi: &dyn MpiApi, role: RankRole) -> [bool; 2] {
        let has_both = !self.is_in_place(mpi, role);
        match self.collective {
            Collective::Broadcast => [false, true],
            Collective::Gather | Collective::Reduce => [has_both, role.is_root()],
            Collective::Scatter => [role.is_root(), has_both],
            _ => [has_both, true],
        }
    }

    /// Copies the call and its datatypes, since the program may free its datatypes before the call
    /// runs.
    ///
    /// # Errors
    /// The reason why MPI must judge the call.
    pub(crate) fn with_kept_types(
        &self,
        mpi: &'static dyn MpiApi,
        rank_and_size: (usize, usize),
    ) -> Result<(Self, KeptTypes), PassReason> {
        let (mut call, mut kept) = (*self, KeptTypes::default());
        let [sends, receives] = self.sides(mpi, self.role(rank_and_size)?);
        for (side, is_used) in [(&mut call.send, sends), (&mut call.recv, receives)] {
            if is_used && side.datatype != mpi.handles().datatype_null {
                let one = KeptType::of(mpi, side.datatype).map_err(|_| PassReason::Argument)?;
                side.datatype = one.datatype;
                kept.push(one);
            }
        }
        Ok((call, kept))
    }

    /// Returns the part of the call's counts and types that this rank knows.
    ///
    /// # Errors
    /// The reason why MPI must judge the call.
    pub(crate) fn view(
        &self,
        mpi: &dyn MpiApi,
        (rank, size): (usize, usize),
    ) -> Result<LocalView, PassReason> {
        let role = self.role((rank, size))?;
        self.check_sides(mpi, role)?;
        let has_one_side = self.is_in_place(mpi, role);
        let mut view = LocalView::default();
        let mut known = |side: &BufferArgs| -> Result<Vec<usize>, PassReason> {
            let (shares, base) = side.bytes(mpi, size)?;
            let whole = total(&shares)?;
            if whole > 0 {
                view.bases.push(base);
            }
            view.n_bytes = view.n_bytes.max(whole);
            Ok(shares)
        };
        if !self.collective.has_root() {
            known(&self.recv)?;
            if !has_one_side {
                known(&self.send)?;
            }
            return Ok(view);
        }
        let (all, own) = match self.collective {
            Collective::Gather => (&self.recv, &self.send),
            _ => (&self.send, &self.recv),
        };
        let mut shares = vec![None; size];
        if role.is_root() {
            shares = known(all)?.into_iter().map(Some).collect();
        }
        if !has_one_side {
            let own = known(own)?.first().copied();
            if role.is_root() && shares[rank] != own {
                return Err(PassReason::Argument);
            }
            shares[rank] = own;
        }
        view.shares = shares;
        Ok(view)
    }

    /// Returns the checked call, with the counts and the type on which the ranks agreed.
    pub(crate) fn agreed(
        &self,
        mpi: &dyn MpiApi,
        rank_and_size: (usize, usize),
        agreed: AgreedCall,
    ) -> Result<CheckedCall, PassReason> {
        let role = self.role(rank_and_size)?;
        let is_in_place = self.is_in_place(mpi, role);
        let AgreedCall { base, n_bytes, shares } = agreed;
        Ok(CheckedCall { role, op: None, shares: Some(shares), is_in_place, base, n_bytes })
    }

    /// Returns whether the arrays of counts are significant on this rank. In a gather or scatter
    /// they are significant on the root only.
    pub(crate) fn has_shares_at(&self, rank: usize) -> bool {
        !matches!(self.collective, Collective::Gather | Collective::Scatter)
            || usize::try_from(self.root) == Ok(rank)
    }

    /// Numbers of values sent and received, for log messages. Adds up all shares that this rank
    /// knows.
    pub(crate) fn counts(&self, mpi: &dyn MpiApi) -> [i64; 2] {
        let comm = self.comm;
        let is_plain = comm != mpi.handles().comm_null && mpi.is_inter(comm) == Ok(false);
        let place = if is_plain { mpi.rank_and_size(comm).ok() } else { None };
        let of = |side: &BufferArgs| match (side.counts, place) {
            (None, _) => side.count,
            (Some(counts), Some((rank, size)))
                if self.has_shares_at(rank) && side.start.addr() != mpi.in_place() =>
            {
                counts.read(size).unwrap_or_default().into_iter().fold(0, i64::saturating_add)
            }
            (Some(_), _) => 0,
        };
        let received = of(&self.recv);
        match (self.collective, self.recv.counts) {
            // The counts describe both buffers.
            (Collective::ReduceScatter, Some(_)) => [received; 2],
            _ => [of(&self.send), received],
        }
    }
}

fn number(count: i64) -> Result<usize, PassReason> {
    usize::try_from(count).map_err(|_| PassReason::Argument)
}

impl BufferArgs {
    /// Number of values in each rank's share; `None` if the shares have equal lengths.
    pub(crate) fn counts(&self, size: usize) -> Result<Option<Vec<usize>>, PassReason> {
        let Some(counts) = self.counts else { return Ok(None) };
        let counts = counts.read(size).ok_or(PassReason::Argument)?;
        counts.into_iter().map(number).collect::<Result<_, _>>().map(Some)
    }

    /// Bytes of each share (or of the only one) and the element type. Ignores the datatype if there
    /// are no values.
    pub(crate) fn bytes(
        &self,
        mpi: &dyn MpiApi,
        size: usize,
    ) -> Result<(Vec<usize>, Option<BaseType>), PassReason> {
        let counts = match self.counts(size)? {
            Some(counts) => counts,
            None => vec![number(self.count)?],
        };
        if counts.iter().all(|&count| count == 0) {
            return Ok((counts, None));
        }
        if self.datatype == mpi.handles().datatype_null {
            return Err(PassReason::Argument);
        }
        let Signature { base, n_bytes: each, .. } =
            mpi.signature(self.datatype).map_err(|_| PassReason::Argument)?;
        let bytes = counts.into_iter().map(|count| count.checked_mul(each));
        Ok((bytes.collect::<Option<_>>().ok_or(PassReason::Argument)?, base))
    }

    /// Address of this rank's share in a buffer of a predefined datatype.
    fn share(&self, mpi: &dyn MpiApi, role: RankRole) -> Option<usize> {
        let first = match self.displs.or(self.counts) {
            Some(_) => *self.displs?.read(role.size)?.get(role.rank)?,
            None => self.count.checked_mul(role.rank as i64)?,
        };
        let n_bytes = mpi.signature(self.datatype).ok()?.n_bytes as i64;
        Some(self.start.addr().wrapping_add_signed(first.checked_mul(n_bytes)? as isize))
    }

    /// Regions of `count` values of the datatype, beginning with value `first`.
    pub(crate) fn at(
        &self,
        mpi: &dyn MpiApi,
        first: usize,
        count: usize,
    ) -> Result<ArrayRegions, MpiErrorCode> {
        ArrayRegions::new(
            mpi,
            &ArrayRegion::start_of(mpi, self)?,
            iter::once((count, first as isize)),
        )
    }

    /// Regions of the shares of `ranks`. The counts and displacements were checked before. Without
    /// arrays of counts, this is the region of the whole buffer.
    pub(crate) fn areas(
        &self,
        mpi: &dyn MpiApi,
        ranks: Range<usize>,
    ) -> Result<ArrayRegions, MpiErrorCode> {
        let read = |numbers: CountArray| {
            let numbers = numbers.read(ranks.end).unwrap_or_default();
            numbers.get(ranks.start..).unwrap_or_default().to_vec()
        };
        let counts = self.counts.map_or_else(|| vec![self.count], read);
        let displs = self.displs.map_or_else(|| vec![0], read);
        if counts.iter().all(|&count| count == 0) {
            return Ok(ArrayRegions::default());
        }
        let parts = counts.into_iter().zip(displs);
        let parts = parts.map(|(count, place)| (number(count).unwrap_or(0), place as isize));
        ArrayRegions::new(mpi, &ArrayRegion::start_of(mpi, self)?, parts)
    }
}

impl CheckedCall {
    /// Number of values of this type in each rank's share.
    pub(crate) fn shares<T>(&self) -> Option<Vec<usize>> {
        let shares = self.shares.as_ref()?;
        Some(shares.iter().map(|n_bytes| n_bytes / size_of::<T>()).collect())
    }

    /// Facts on which the decision depends.
    pub(crate) const fn decision_input(
        &self,
        collective: Collective,
        (placement, names): (RankPlacement, MatchedNames),
    ) -> DecisionInput {
        DecisionInput {
            collective,
            base: self.base,
            n_bytes: self.n_bytes,
            op: self.op,
            placement,
            names,
        }
    }
}
