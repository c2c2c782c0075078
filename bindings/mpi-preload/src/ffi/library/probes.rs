//! Probes that find out whether the library would refuse a call. The library checks arguments only
//! in the call itself, and then it may execute the call.

use std::ffi::c_int;

use super::{MpiErrorCode, MpiLibrary, SUCCESS, checked};
use crate::ffi::abi::{Abi, MpiHandle};
use crate::signature::Datatypes;

// SAFETY of the blocks below: callers of `MpiApi` guarantee valid handles, from the program or from
// this library. Pointers are to locals as long as the counts that are passed with them.
impl<A: Abi> MpiLibrary<A> {
    /// A copy of `MPI_COMM_SELF` that returns errors. It exists from `MPI_Init` on: later the
    /// program may have used up all communicators.
    pub(super) fn self_comm(&self) -> Result<A::Handle, MpiErrorCode> {
        self.self_comm.get().map(|&comm| A::restore(comm)).ok_or(A::ERRORS[1])
    }

    /// # Errors
    /// The library's error code for an uncommitted datatype.
    pub(super) fn check_committed(&self, datatype: MpiHandle) -> Result<(), MpiErrorCode> {
        if Datatypes::base(self, datatype).is_some() {
            return Ok(());
        }
        let (self_comm, mut packed, mut position) = (self.self_comm()?, [0u8; 8], 0);
        let packed = packed.as_mut_ptr();
        let (from, datatype) = (packed.cast_const().cast(), A::restore(datatype));
        // The libraries check the datatype even if there are no values. SAFETY: see above. MPI
        // reads nothing and writes nothing.
        checked(self.probe(|| unsafe {
            (self.functions.pack)(from, 0, datatype, packed.cast(), 8, &raw mut position, self_comm)
        })?)
    }

    /// Returns whether the library refuses to reduce an array into itself. Users and builds can
    /// disable this check.
    pub(super) fn probe_alias_check(&self) -> bool {
        let Ok(self_comm) = self.self_comm() else { return false };
        let mut values = [0i64; 2];
        let place = values.as_mut_ptr();
        let (int64, sum) = (A::restore(self.handles.int64), A::restore(self.handles.sum));
        // SAFETY: see above. A library without the check copies the array to itself.
        let code = self.probe(|| unsafe {
            (self.functions.all_reduce)(
                place.cast_const().cast(),
                place.cast(),
                2,
                int64,
                sum,
                self_comm,
            )
        });
        code.is_ok_and(|code| code != SUCCESS)
    }

    /// Makes a call on [`self_comm`](Self::self_comm) that may fail, and hides the error from the
    /// program. Open MPI reports some of these errors on `MPI_COMM_WORLD`.
    fn probe(&self, call: impl FnOnce() -> c_int) -> Result<c_int, MpiErrorCode> {
        match self.has_unset_handlers() {
            true => Ok(call()),
            false => self.quietly(self.handles.comm_world, call),
        }
    }
}
