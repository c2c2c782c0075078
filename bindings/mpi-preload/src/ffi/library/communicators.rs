//! What is asked about communicators.

use std::ffi::c_int;

use foldwire::op::OpCode;

use super::{MessageApi, MpiErrorCode, MpiLibrary, checked, text};
use crate::ffi::abi::{Abi, MpiHandle};

/// What MPI knows of communicators, and does to them.
pub(crate) trait CommApi {
    fn rank_and_size(&self, comm: MpiHandle) -> Result<(usize, usize), MpiErrorCode>;
    fn is_inter(&self, comm: MpiHandle) -> Result<bool, MpiErrorCode>;
    /// The name that the program has given it on this rank.
    fn comm_name(&self, comm: MpiHandle) -> Result<String, MpiErrorCode>;
    /// Whether all ranks are of the program's own `MPI_COMM_WORLD`; no rank hears of another.
    fn is_within_world(&self, comm: MpiHandle) -> Result<bool, MpiErrorCode>;
    /// How many ranks the other group of an intercommunicator has.
    fn remote_size(&self, comm: MpiHandle) -> Result<usize, MpiErrorCode>;
    /// A communicator between the same ranks that carries nothing of the program's (no attributes,
    /// no topology) and returns errors.
    fn split(&self, comm: MpiHandle, rank: usize) -> Result<MpiHandle, MpiErrorCode>;
    /// The lowest rank that shares memory with this one.
    fn lowest_rank_on_node(&self, comm: MpiHandle, rank: usize) -> Result<i64, MpiErrorCode>;
    fn free(&self, comm: MpiHandle);
    /// Has the program hear of an error, as it wants to; what the call is to return.
    fn raise(&self, comm: MpiHandle) -> MpiErrorCode;
    /// The same of a count that is too large.
    fn refuse_count(&self, comm: MpiHandle) -> MpiErrorCode;
}

// SAFETY of the blocks below: by the promise of `MpiApi` handles are good and MPI is up. MPI writes
// through pointers to locals of the type that its standard says, and reads them only during the
// call; what else holds is said at each block.
impl<A: Abi> CommApi for MpiLibrary<A> {
    fn rank_and_size(&self, comm: MpiHandle) -> Result<(usize, usize), MpiErrorCode> {
        let (mut rank, mut size) = (0, 0);
        // SAFETY: see above.
        unsafe {
            checked((self.functions.comm_rank)(A::restore(comm), &raw mut rank))?;
            checked((self.functions.comm_size)(A::restore(comm), &raw mut size))?;
        }
        Ok((rank as usize, size as usize))
    }

    fn is_inter(&self, comm: MpiHandle) -> Result<bool, MpiErrorCode> {
        let mut flag = 0;
        // SAFETY: see above.
        checked(unsafe { (self.functions.comm_test_inter)(A::restore(comm), &raw mut flag) })?;
        Ok(flag != 0)
    }

    fn comm_name(&self, comm: MpiHandle) -> Result<String, MpiErrorCode> {
        let (name, comm) = (self.functions.comm_get_name, A::restore(comm));
        // SAFETY: see above; there is room for the longest name and its end.
        text(|start, length| unsafe { name(comm, start, length) })
    }

    fn is_within_world(&self, comm: MpiHandle) -> Result<bool, MpiErrorCode> {
        let world = self.handles.comm_world;
        if comm == world {
            return Ok(true);
        }
        let (_, size) = self.rank_and_size(comm)?;
        let group = |comm| {
            // SAFETY: see above.
            self.made(|made| unsafe { (self.functions.comm_group)(A::restore(comm), made) })
        };
        let (own, all) = (A::restore(group(comm)?), A::restore(group(world)?));
        let ranks: Vec<c_int> = (0..size as c_int).collect();
        let mut places = vec![0; size];
        // SAFETY: see above. Both arrays have as many ranks as is said; the groups are ours.
        let code = unsafe {
            let translate = self.functions.group_translate_ranks;
            let code = translate(own, size as c_int, ranks.as_ptr(), all, places.as_mut_ptr());
            for mut group in [own, all] {
                (self.functions.group_free)(&raw mut group);
            }
            code
        };
        // A rank that is not there is `MPI_UNDEFINED`, which is negative.
        checked(code).map(|()| places.iter().all(|&place| place >= 0))
    }

    fn remote_size(&self, comm: MpiHandle) -> Result<usize, MpiErrorCode> {
        let mut size = 0;
        // SAFETY: see above.
        checked(unsafe { (self.functions.comm_remote_size)(A::restore(comm), &raw mut size) })?;
        Ok(size as usize)
    }

    fn split(&self, comm: MpiHandle, rank: usize) -> Result<MpiHandle, MpiErrorCode> {
        // Where there is no room for one more, the program is not to hear of it.
        let made = self.quietly(comm, || {
            let (split, comm) = (self.functions.comm_split, A::restore(comm));
            // SAFETY: see above.
            self.made(|made| unsafe { split(comm, 0, rank as c_int, made) })
        })??;
        let returns = A::restore(self.handles.errors_return);
        // SAFETY: see above.
        checked(unsafe { (self.functions.comm_set_errhandler)(A::restore(made), returns) })?;
        Ok(made)
    }

    fn lowest_rank_on_node(&self, comm: MpiHandle, rank: usize) -> Result<i64, MpiErrorCode> {
        let info = A::restore(self.handles.info_null);
        // SAFETY: see above.
        let near = self.made(|made| unsafe {
            (self.functions.comm_split_type)(
                A::restore(comm),
                A::COMM_TYPE_SHARED,
                rank as c_int,
                info,
                made,
            )
        })?;
        let mut lowest = [rank as i64];
        let found = self.all_reduce(near, &mut lowest, OpCode::Min);
        self.free(near);
        found.map(|()| lowest[0])
    }

    fn free(&self, comm: MpiHandle) {
        let mut comm = A::restore(comm);
        // SAFETY: see above. An error here has nobody to go to.
        let _ = unsafe { (self.functions.comm_free)(&raw mut comm) };
    }

    fn raise(&self, comm: MpiHandle) -> MpiErrorCode {
        self.call_handler(comm, A::ERRORS[1])
    }

    fn refuse_count(&self, comm: MpiHandle) -> MpiErrorCode {
        self.call_handler(comm, A::ERRORS[4])
    }
}

impl<A: Abi> MpiLibrary<A> {
    /// Has the program hear of an error.
    fn call_handler(&self, comm: MpiHandle, code: MpiErrorCode) -> MpiErrorCode {
        // SAFETY: a communicator of the program's, by the promise of `MpiApi`.
        let _ = unsafe { (self.functions.comm_call_errhandler)(A::restore(comm), code) };
        code
    }
}
