//! A collective as the program called it.

use std::ffi::{c_int, c_void};
use std::iter;
use std::ops::Range;

use foldwire::op::OpCode;
use foldwire::schedule::Collective;

use crate::agree::{Agreed, View, total};
use crate::decide::{Ask, Ranks, Why, reduces};
use crate::ffi::abi::Handle;
use crate::ffi::counts::Counts;
use crate::ffi::door::Place;
use crate::ffi::library::{Code, Mpi};
use crate::ffi::memory::{Area, Areas, KeptType};
use crate::rules::Names;
use crate::signature::{Base, Signature};

/// A buffer with its count and datatype, as passed.
#[derive(Clone, Copy, Debug)]
pub struct Passed {
    /// Where it begins, or `MPI_IN_PLACE`.
    pub start: *mut c_void,
    /// How many values, or a negative number, which MPI is to refuse.
    pub count: i64,
    /// Of which type.
    pub datatype: Handle,
    /// Where ranks' shares differ, how many values each has.
    pub counts: Option<Counts>,
    /// And where each begins, in values of the datatype; `None`: one after the other.
    pub places: Option<Counts>,
}

/// A collective with its arguments. What a function lacks is as in its row of the table of entries.
#[derive(Clone, Copy, Debug)]
pub struct Call {
    /// Which.
    pub collective: Collective,
    /// What is sent.
    pub send: Passed,
    /// What is received; of a broadcast, its buffer.
    pub recv: Passed,
    /// The operation.
    pub op: Handle,
    /// The root.
    pub root: c_int,
    /// The communicator.
    pub comm: Handle,
    /// Of one that the program does not wait for in the call, where the request goes.
    pub request: Option<Place>,
}

/// Datatypes of ours that a call uses.
pub(crate) type KeptTypes = Vec<KeptType>;

/// Which of a rank's buffers count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Seat {
    pub(crate) rank: usize,
    pub(crate) size: usize,
    /// `None` of collectives without one.
    pub(crate) root: Option<usize>,
}

impl Seat {
    pub(crate) fn is_root(self) -> bool {
        self.root == Some(self.rank)
    }
}

/// A call that may be taken, its arguments checked.
pub(crate) struct Checked {
    pub(crate) seat: Seat,
    pub(crate) op: Option<OpCode>,
    /// The bytes of ranks' shares, where they differ and all ranks know them.
    shares: Option<Vec<usize>>,
    pub(crate) is_in_place: bool,
    /// What the values are.
    base: Option<Base>,
    /// Bytes of the logical array.
    n_bytes: usize,
}

impl Call {
    /// Checks what the decision needs.
    ///
    /// # Errors
    /// Why MPI is to judge it.
    pub(crate) fn checked(
        &self,
        mpi: &dyn Mpi,
        (rank, size): (usize, usize),
    ) -> Result<Checked, Why> {
        let seat = self.seat((rank, size))?;
        let is_in_place = self.is_in_place(mpi, seat);
        let counted = match self.collective {
            Collective::Gather if !seat.is_root() => self.send,
            Collective::Scatter if seat.is_root() => self.send,
            _ => self.recv,
        };
        if counted.datatype == mpi.own().datatype_null {
            return Err(Why::Argument);
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
            mpi.signature(counted.datatype).map_err(|_| Why::Argument)?;
        // MPI's operations are for MPI's own types.
        if reduces(self.collective) && !is_own {
            return Err(Why::Type);
        }
        self.check_sides(mpi, seat)?;
        let n_bytes = whole.and_then(|whole| whole.checked_mul(each)).ok_or(Why::Argument)?;
        let shares = counts.map(|counts| counts.into_iter().map(|n| n * each).collect());
        let own = mpi.own();
        let ops = [
            (own.sum, OpCode::Sum),
            (own.min, OpCode::Min),
            (own.max, OpCode::Max),
            (own.prod, OpCode::Prod),
        ];
        let op = ops.into_iter().find(|(known, _)| *known == self.op).map(|(_, op)| op);
        Ok(Checked { seat, op, shares, is_in_place, base, n_bytes })
    }

    /// Finds what the MPI library would refuse by itself, on this rank alone.
    ///
    /// # Errors
    /// It is to refuse it, then.
    fn check_sides(&self, mpi: &dyn Mpi, seat: Seat) -> Result<(), Why> {
        let mut is_own = true;
        let used = self.sides(mpi, seat);
        for (side, _) in [&self.send, &self.recv].into_iter().zip(used).filter(|(_, used)| *used) {
            if side.start.addr() == mpi.in_place() || (side.counts.is_none() && side.count < 0) {
                return Err(Why::Argument);
            }
            if side.counts.is_none() && side.count == 0 {
                continue;
            }
            if side.datatype == mpi.own().datatype_null {
                return Err(Why::Argument);
            }
            // An error also where nobody has committed it.
            let signature = mpi.signature(side.datatype).map_err(|_| Why::Argument)?;
            is_own &= signature.is_own;
            // Absolute addresses are in types that the program has made.
            if side.start.is_null() && side.counts.is_none() && signature.is_own {
                return Err(Why::Argument);
            }
        }
        let is_aliased = used == [true; 2] && is_own && self.is_aliased(mpi, seat);
        if is_aliased && mpi.refuses_aliases(self.collective) {
            return Err(Why::Argument);
        }
        Ok(())
    }

    /// True if this rank's own share is sent from where it is received.
    fn is_aliased(&self, mpi: &dyn Mpi, seat: Seat) -> bool {
        let (send, recv) = (&self.send, &self.recv);
        if send.datatype != recv.datatype {
            return false;
        }
        let same =
            |a: Option<Counts>, b: Option<Counts>| a.map(Counts::addr) == b.map(Counts::addr);
        match self.collective {
            Collective::AllToAll => {
                send.start == recv.start
                    && send.count == recv.count
                    && same(send.counts, recv.counts)
                    && same(send.places, recv.places)
            }
            Collective::AllGather | Collective::Gather => {
                recv.share(mpi, seat) == Some(send.start.addr())
            }
            Collective::Scatter => send.share(mpi, seat) == Some(recv.start.addr()),
            _ => send.start == recv.start,
        }
    }

    fn is_rooted(&self) -> bool {
        use Collective::{Broadcast, Gather, Reduce, Scatter};
        matches!(self.collective, Broadcast | Reduce | Gather | Scatter)
    }

    fn seat(&self, (rank, size): (usize, usize)) -> Result<Seat, Why> {
        let root = match (self.is_rooted(), usize::try_from(self.root)) {
            (false, _) => None,
            (true, Ok(root)) if root < size => Some(root),
            (true, _) => return Err(Why::Argument),
        };
        Ok(Seat { rank, size, root })
    }

    fn is_in_place(&self, mpi: &dyn Mpi, seat: Seat) -> bool {
        let in_place = mpi.in_place();
        match self.collective {
            Collective::Scatter => seat.is_root() && self.recv.start.addr() == in_place,
            Collective::Broadcast => false,
            // Of a reduction the root's, of a gather too.
            _ if self.is_rooted() => seat.is_root() && self.send.start.addr() == in_place,
            _ => self.send.start.addr() == in_place,
        }
    }

    /// Whether each rank knows only a part of what the call is about.
    pub(crate) const fn is_known_in_part(&self) -> bool {
        matches!(self.collective, Collective::Gather | Collective::Scatter | Collective::AllToAll)
            && (self.send.counts.is_some() || self.recv.counts.is_some())
    }

    /// Of how many shares the ranks tell each other the lengths.
    pub(crate) fn n_told(&self, size: usize) -> usize {
        if self.is_rooted() { size } else { 0 }
    }

    /// Which of what is sent and received MPI looks at here.
    fn sides(&self, mpi: &dyn Mpi, seat: Seat) -> [bool; 2] {
        let has_both = !self.is_in_place(mpi, seat);
        match self.collective {
            Collective::Broadcast => [false, true],
            Collective::Gather | Collective::Reduce => [has_both, seat.is_root()],
            Collective::Scatter => [seat.is_root(), has_both],
            _ => [has_both, true],
        }
    }

    /// The same call for as long as what comes with it is there: the program may free its datatypes
    /// before the call is carried out.
    ///
    /// # Errors
    /// Why MPI is to judge it.
    pub(crate) fn kept(
        &self,
        mpi: &'static dyn Mpi,
        place: (usize, usize),
    ) -> Result<(Self, KeptTypes), Why> {
        let (mut call, mut kept) = (*self, KeptTypes::default());
        let [sends, receives] = self.sides(mpi, self.seat(place)?);
        for (side, is_used) in [(&mut call.send, sends), (&mut call.recv, receives)] {
            if is_used && side.datatype != mpi.own().datatype_null {
                let one = KeptType::of(mpi, side.datatype).map_err(|_| Why::Argument)?;
                side.datatype = one.datatype;
                kept.push(one);
            }
        }
        Ok((call, kept))
    }

    /// What this rank knows of such a call.
    ///
    /// # Errors
    /// Why MPI is to judge it.
    pub(crate) fn view(&self, mpi: &dyn Mpi, (rank, size): (usize, usize)) -> Result<View, Why> {
        let seat = self.seat((rank, size))?;
        self.check_sides(mpi, seat)?;
        let has_one_side = self.is_in_place(mpi, seat);
        let mut view = View::default();
        let mut known = |side: &Passed| -> Result<Vec<usize>, Why> {
            let (shares, base) = side.bytes(mpi, size)?;
            let whole = total(&shares)?;
            if whole > 0 {
                view.bases.push(base);
            }
            view.n_bytes = view.n_bytes.max(whole);
            Ok(shares)
        };
        if !self.is_rooted() {
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
        if seat.is_root() {
            shares = known(all)?.into_iter().map(Some).collect();
        }
        if !has_one_side {
            let own = known(own)?.first().copied();
            if seat.is_root() && shares[rank] != own {
                return Err(Why::Argument);
            }
            shares[rank] = own;
        }
        view.shares = shares;
        Ok(view)
    }

    /// Such a call after the ranks have told each other.
    pub(crate) fn agreed(
        &self,
        mpi: &dyn Mpi,
        place: (usize, usize),
        agreed: Agreed,
    ) -> Result<Checked, Why> {
        let seat = self.seat(place)?;
        let is_in_place = self.is_in_place(mpi, seat);
        let Agreed { base, n_bytes, shares } = agreed;
        Ok(Checked { seat, op: None, shares: Some(shares), is_in_place, base, n_bytes })
    }

    /// Whether what MPI says of ranks' shares is there at this rank: in a gather or a scatter at
    /// the root only.
    pub(crate) fn has_shares_at(&self, rank: usize) -> bool {
        !matches!(self.collective, Collective::Gather | Collective::Scatter)
            || usize::try_from(self.root) == Ok(rank)
    }

    /// How many values are sent and received, for people: of shares all that are said at this rank.
    pub(crate) fn counts(&self, mpi: &dyn Mpi) -> [i64; 2] {
        let comm = self.comm;
        let is_plain = comm != mpi.own().comm_null && mpi.is_inter(comm) == Ok(false);
        let place = if is_plain { mpi.rank_and_size(comm).ok() } else { None };
        let of = |side: &Passed| match (side.counts, place) {
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
            (Collective::ReduceScatter, Some(_)) => [received; 2],
            _ => [of(&self.send), received],
        }
    }
}

fn number(count: i64) -> Result<usize, Why> {
    usize::try_from(count).map_err(|_| Why::Argument)
}

impl Passed {
    /// How many values of each rank are here; `None`: of all alike.
    pub(crate) fn counts(&self, size: usize) -> Result<Option<Vec<usize>>, Why> {
        let Some(counts) = self.counts else { return Ok(None) };
        let counts = counts.read(size).ok_or(Why::Argument)?;
        counts.into_iter().map(number).collect::<Result<_, _>>().map(Some)
    }

    /// The bytes of each share, or of the one that is here, and what the values are. The type of
    /// none is not looked at.
    pub(crate) fn bytes(
        &self,
        mpi: &dyn Mpi,
        size: usize,
    ) -> Result<(Vec<usize>, Option<Base>), Why> {
        let counts = match self.counts(size)? {
            Some(counts) => counts,
            None => vec![number(self.count)?],
        };
        if counts.iter().all(|&count| count == 0) {
            return Ok((counts, None));
        }
        if self.datatype == mpi.own().datatype_null {
            return Err(Why::Argument);
        }
        let Signature { base, n_bytes: each, .. } =
            mpi.signature(self.datatype).map_err(|_| Why::Argument)?;
        let bytes = counts.into_iter().map(|count| count.checked_mul(each));
        Ok((bytes.collect::<Option<_>>().ok_or(Why::Argument)?, base))
    }

    /// Where this rank's share begins among all, of a type of MPI's own.
    fn share(&self, mpi: &dyn Mpi, seat: Seat) -> Option<usize> {
        let first = match self.places.or(self.counts) {
            Some(_) => *self.places?.read(seat.size)?.get(seat.rank)?,
            None => self.count.checked_mul(seat.rank as i64)?,
        };
        let n_bytes = mpi.signature(self.datatype).ok()?.n_bytes as i64;
        Some(self.start.addr().wrapping_add_signed(first.checked_mul(n_bytes)? as isize))
    }

    /// Nothing yet of what is here.
    #[allow(unsafe_code, reason = "hands on the promise of the program")]
    fn area(&self, mpi: &dyn Mpi) -> Result<Area, Code> {
        let signature = mpi.signature(self.datatype)?;
        // SAFETY: the program called a collective with this buffer, and leaves it alone until that
        // is done.
        Ok(unsafe { Area::new(self.start, 0, self.datatype, signature) })
    }

    /// So many values of the datatype from this one on.
    pub(crate) fn at(&self, mpi: &dyn Mpi, first: usize, count: usize) -> Result<Areas, Code> {
        Areas::new(mpi, &self.area(mpi)?, iter::once((count, first as isize)))
    }

    /// What is here: shares of these ranks by their counts and places, which were checked, or the
    /// one that there is.
    pub(crate) fn areas(&self, mpi: &dyn Mpi, ranks: Range<usize>) -> Result<Areas, Code> {
        let read = |numbers: Counts| {
            let numbers = numbers.read(ranks.end).unwrap_or_default();
            numbers.get(ranks.start..).unwrap_or_default().to_vec()
        };
        let counts = self.counts.map_or_else(|| vec![self.count], read);
        let places = self.places.map_or_else(|| vec![0], read);
        if counts.iter().all(|&count| count == 0) {
            return Ok(Areas::default());
        }
        let parts = counts.into_iter().zip(places);
        let parts = parts.map(|(count, place)| (number(count).unwrap_or(0), place as isize));
        Areas::new(mpi, &self.area(mpi)?, parts)
    }
}

impl Checked {
    /// How many values of this type each rank's share has.
    pub(crate) fn shares<T>(&self) -> Option<Vec<usize>> {
        let shares = self.shares.as_ref()?;
        Some(shares.iter().map(|n_bytes| n_bytes / size_of::<T>()).collect())
    }

    /// What the decision hangs on.
    pub(crate) const fn ask(&self, collective: Collective, (ranks, names): (Ranks, Names)) -> Ask {
        Ask { collective, base: self.base, n_bytes: self.n_bytes, op: self.op, ranks, names }
    }
}
