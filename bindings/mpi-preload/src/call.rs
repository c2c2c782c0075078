//! A collective as the program called it.

use std::ffi::{c_int, c_void};

use foldwire::op::OpCode;
use foldwire::schedule::Collective;

use crate::decide::{Ask, Why};
use crate::ffi::abi::Handle;
use crate::ffi::door::Counts;
use crate::ffi::library::{Code, Mpi};
use crate::ffi::memory::Area;
use crate::signature::Signature;

/// A buffer with its count and datatype, as passed.
#[derive(Clone, Copy, Debug)]
pub struct Passed {
    /// Where it begins, or `MPI_IN_PLACE`.
    pub start: *mut c_void,
    /// How many values, or a negative number, which MPI is to refuse.
    pub count: i64,
    /// Of which type.
    pub datatype: Handle,
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
    /// Of a reduce-scatter whose shares differ, their lengths.
    pub counts: Option<Counts>,
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
    /// The lengths of shares, where they differ, in values of the datatype.
    pub(crate) counts: Option<Vec<usize>>,
    pub(crate) is_in_place: bool,
    /// What the call is about on this rank, whose signature is that of all ranks.
    signature: Signature,
    /// Values of the datatype in the logical array.
    count: usize,
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
        let count = |count: i64| usize::try_from(count).map_err(|_| Why::Argument);
        let counts = match self.counts {
            None => None,
            Some(counts) => {
                let counts = counts.read(size).ok_or(Why::Argument)?;
                Some(counts.into_iter().map(count).collect::<Result<Vec<_>, _>>()?)
            }
        };
        let whole = match (&counts, self.collective) {
            (Some(counts), _) => counts.iter().try_fold(0usize, |sum, &n| sum.checked_add(n)),
            (None, Collective::AllReduce | Collective::Reduce | Collective::Broadcast) => {
                Some(count(counted.count)?)
            }
            (None, _) => count(counted.count)?.checked_mul(size),
        };
        let whole = whole.ok_or(Why::Argument)?;
        let signature = mpi.signature(counted.datatype, key).map_err(|_| Why::Argument)?;
        whole.checked_mul(signature.n_bytes).ok_or(Why::Argument)?;
        let own = mpi.own();
        let ops = [
            (own.sum, OpCode::Sum),
            (own.min, OpCode::Min),
            (own.max, OpCode::Max),
            (own.prod, OpCode::Prod),
        ];
        let op = ops.into_iter().find(|(known, _)| *known == self.op).map(|(_, op)| op);
        Ok(Checked { seat, op, counts, is_in_place, signature, count: whole })
    }

    /// What is sent, of so many values of its datatype.
    pub(crate) fn sent(&self, mpi: &dyn Mpi, key: c_int, count: usize) -> Result<Area, Code> {
        area(mpi, key, self.send, count)
    }

    /// Where it is received.
    pub(crate) fn received(&self, mpi: &dyn Mpi, key: c_int, count: usize) -> Result<Area, Code> {
        area(mpi, key, self.recv, count)
    }
}

#[allow(unsafe_code, reason = "hands on the promise of the program")]
fn area(mpi: &dyn Mpi, key: c_int, passed: Passed, count: usize) -> Result<Area, Code> {
    let signature = mpi.signature(passed.datatype, key)?;
    // SAFETY: the program called a collective with this buffer, and waits for it.
    Ok(unsafe { Area::new(passed.start, count, passed.datatype, signature) })
}

impl Checked {
    /// Values of this type in one of the datatype.
    pub(crate) const fn values_each<T>(&self) -> usize {
        self.signature.n_bytes / size_of::<T>()
    }

    /// What the decision hangs on.
    pub(crate) fn ask(&self, collective: Collective, is_near: bool) -> Ask {
        let n_bytes = self.count * self.signature.n_bytes;
        Ask { collective, base: self.signature.base, n_bytes, op: self.op, is_near }
    }
}
