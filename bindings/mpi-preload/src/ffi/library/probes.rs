//! Questions that find out whether the library would refuse a call. It judges the program's
//! arguments only in the call itself, and then it may carry that out.

use std::ffi::c_int;

use super::{CommApi, MpiErrorCode, MpiLibrary, SUCCESS, checked};
use crate::ffi::abi::{Abi, MpiHandle};
use crate::signature::Datatypes;

// SAFETY of the blocks below: handles are as the program passed them or ours, by the promise of
// `MpiApi`, and pointers are to locals that are as long as the counts beside them say.
impl<A: Abi> MpiLibrary<A> {
    /// A communicator of this rank alone, on which the program hears of no error.
    fn self_comm(&self) -> Result<A::Handle, MpiErrorCode> {
        if let Some(&self_comm) = self.self_comm.get() {
            return Ok(A::restore(self_comm));
        }
        let made = self.split(self.handles.comm_self, 0)?;
        // Two threads may make it at once; then one more is there until the end.
        Ok(A::restore(*self.self_comm.get_or_init(|| made)))
    }

    /// # Errors
    /// The library's code where it takes no values of this type: nobody has committed it.
    pub(super) fn check_committed(&self, datatype: MpiHandle) -> Result<(), MpiErrorCode> {
        if Datatypes::base(self, datatype).is_some() {
            return Ok(());
        }
        let (self_comm, mut packed, mut position) = (self.self_comm()?, [0u8; 8], 0);
        let packed = packed.as_mut_ptr();
        let (from, datatype) = (packed.cast_const().cast(), A::restore(datatype));
        // Both libraries look at the type, although there are no values.
        // SAFETY: see above; nothing is read, and the room is longer than nothing.
        checked(self.probe(|| unsafe {
            (self.functions.pack)(from, 0, datatype, packed.cast(), 8, &raw mut position, self_comm)
        })?)
    }

    /// True if the library refuses to reduce an array into itself. Libraries may be built, or told,
    /// not to look.
    pub(super) fn probe_alias_check(&self) -> bool {
        let Ok(self_comm) = self.self_comm() else { return false };
        let mut values = [0i64; 2];
        let place = values.as_mut_ptr();
        let (int64, sum) = (A::restore(self.handles.int64), A::restore(self.handles.sum));
        // SAFETY: see above; a library that does not refuse copies the array to itself.
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

    /// A question whose answer may be an error, which the program is not to hear of. Open MPI tells
    /// of some errors on `MPI_COMM_WORLD`, whatever the communicator is.
    fn probe(&self, call: impl FnOnce() -> c_int) -> Result<c_int, MpiErrorCode> {
        self.quietly(self.handles.comm_world, call)
    }

    /// Makes calls about whose errors the program is not to hear of this communicator.
    pub(super) fn quietly<R>(
        &self,
        comm: MpiHandle,
        inside: impl FnOnce() -> R,
    ) -> Result<R, MpiErrorCode> {
        let comm = A::restore(comm);
        let returns = A::restore(self.handles.errors_return);
        // SAFETY: see above. What was got is set again, and then freed.
        unsafe {
            let handler = self.made(|made| (self.functions.comm_get_errhandler)(comm, made))?;
            let mut handler = A::restore(handler);
            checked((self.functions.comm_set_errhandler)(comm, returns))?;
            let answer = inside();
            (self.functions.comm_set_errhandler)(comm, handler);
            (self.functions.errhandler_free)(&raw mut handler);
            Ok(answer)
        }
    }
}
