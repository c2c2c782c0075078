//! A collective as the program called it.

use std::ffi::{c_int, c_void};

use foldwire::op::OpCode;
use foldwire::schedule::Collective;

use crate::decide::{Ask, Why};
use crate::ffi::abi::Handle;
use crate::ffi::door::Counts;
use crate::ffi::library::{Code, Mpi};
use crate::ffi::memory::{Area, Areas};
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
#[derive(Debug)]
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
}

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
        key: c_int,
    ) -> Result<Checked, Why> {
        let is_rooted = matches!(
            self.collective,
            Collective::Broadcast | Collective::Reduce | Collective::Gather | Collective::Scatter
        );
        let root = match (is_rooted, usize::try_from(self.root)) {
            (false, _) => None,
            (true, Ok(root)) if root < size => Some(root),
            (true, _) => return Err(Why::Argument),
        };
        let seat = Seat { rank, size, root };
        let in_place = mpi.in_place();
        let is_in_place = match self.collective {
            Collective::Scatter => seat.is_root() && self.recv.start.addr() == in_place,
            Collective::Broadcast => false,
            // Of a reduction the root's, of a gather too.
            _ if is_rooted => seat.is_root() && self.send.start.addr() == in_place,
            _ => self.send.start.addr() == in_place,
        };
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
            (Some(counts), _) => counts.iter().try_fold(0usize, |sum, &n| sum.checked_add(n)),
            (None, Collective::AllReduce | Collective::Reduce | Collective::Broadcast) => {
                Some(number(counted.count)?)
            }
            (None, _) => number(counted.count)?.checked_mul(size),
        };
        let Signature { base, n_bytes: each, .. } =
            mpi.signature(counted.datatype, key).map_err(|_| Why::Argument)?;
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

    /// Whether what MPI says of ranks' shares is there at this rank: in a gather or a scatter at
    /// the root only.
    pub(crate) fn has_shares_at(&self, rank: usize) -> bool {
        !matches!(self.collective, Collective::Gather | Collective::Scatter)
            || usize::try_from(self.root) == Ok(rank)
    }

    /// What is sent, of so many values of its datatype.
    pub(crate) fn sent(&self, mpi: &dyn Mpi, key: c_int, count: usize) -> Result<Area, Code> {
        self.send.area(mpi, key, count)
    }

    /// Where it is received.
    pub(crate) fn received(&self, mpi: &dyn Mpi, key: c_int, count: usize) -> Result<Area, Code> {
        self.recv.area(mpi, key, count)
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

    #[allow(unsafe_code, reason = "hands on the promise of the program")]
    fn area(&self, mpi: &dyn Mpi, key: c_int, count: usize) -> Result<Area, Code> {
        let signature = mpi.signature(self.datatype, key)?;
        // SAFETY: the program called a collective with this buffer, and waits for it.
        Ok(unsafe { Area::new(self.start, count, self.datatype, signature) })
    }

    /// The shares of all ranks, by their counts and places, which were checked.
    pub(crate) fn shares(&self, mpi: &dyn Mpi, key: c_int, size: usize) -> Result<Areas, Code> {
        let counts = self.counts(size).ok().flatten().unwrap_or_default();
        if counts.iter().all(|&count| count == 0) {
            return Ok(Areas::default());
        }
        let places = self.places.and_then(|places| places.read(size)).unwrap_or_default();
        let parts = counts.into_iter().zip(places.into_iter().map(|place| place as isize));
        Areas::new(mpi, &self.area(mpi, key, 0)?, parts)
    }
}

impl Checked {
    /// How many values of this type each rank's share has.
    pub(crate) fn shares<T>(&self) -> Option<Vec<usize>> {
        let shares = self.shares.as_ref()?;
        Some(shares.iter().map(|n_bytes| n_bytes / size_of::<T>()).collect())
    }

    /// What the decision hangs on.
    pub(crate) const fn ask(&self, collective: Collective, is_near: bool) -> Ask {
        Ask { collective, base: self.base, n_bytes: self.n_bytes, op: self.op, is_near }
    }
}
