//! Operations on communicators.

use std::ffi::c_int;

use foldwire::op::OpCode;

use super::{MessageApi, MpiErrorCode, MpiLibrary, checked, text};
use crate::ffi::abi::{Abi, MpiHandle};

/// Operations on communicators.
pub(crate) trait CommApi {
    fn rank_and_size(&self, comm: MpiHandle) -> Result<(usize, usize), MpiErrorCode>;
    fn is_inter(&self, comm: MpiHandle) -> Result<bool, MpiErrorCode>;
    /// Name on this rank.
    fn comm_name(&self, comm: MpiHandle) -> Result<String, MpiErrorCode>;
    /// Returns whether all ranks belong to the program's `MPI_COMM_WORLD`. Involves no other rank.
    fn is_within_world(&self, comm: MpiHandle) -> Result<bool, MpiErrorCode>;
    /// Rank in the program's `MPI_COMM_WORLD` of each rank; `None` for ranks of other worlds.
    /// Involves no other rank.
    fn world_ranks(&self, comm: MpiHandle) -> Result<Vec<Option<usize>>, MpiErrorCode>;
    /// Number of ranks in the remote group of an intercommunicator.
    fn remote_size(&self, comm: MpiHandle) -> Result<usize, MpiErrorCode>;
    /// Creates a communicator between the same ranks that returns errors. It inherits no attributes
    /// and no topology from the program's communicator.
    fn split(&self, comm: MpiHandle, rank: usize) -> Result<MpiHandle, MpiErrorCode>;
    /// Lowest rank on the same node as this rank.
    fn lowest_rank_on_node(&self, comm: MpiHandle, rank: usize) -> Result<i64, MpiErrorCode>;
    fn free(&self, comm: MpiHandle);
    /// Calls the program's error handler for a failed call. Returns the error code of the call,
    /// `MPI_ERR_OTHER`.
    fn raise(&self, comm: MpiHandle) -> MpiErrorCode;
    /// Calls the program's error handler for a count that is too large. Returns the error code,
    /// `MPI_ERR_COUNT`.
    fn refuse_count(&self, comm: MpiHandle) -> MpiErrorCode;
}

// SAFETY of the blocks below: callers of `MpiApi` guarantee valid handles and an initialised MPI.
// MPI writes through pointers to locals of the types in its standard, and accesses them only during
// the call. Each block states what else it relies on.
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
        // SAFETY: see above. The array has space for the longest name and its terminator.
        text(|start, length| unsafe { name(comm, start, length) })
    }

    fn is_within_world(&self, comm: MpiHandle) -> Result<bool, MpiErrorCode> {
        if comm == self.handles.comm_world {
            return Ok(true);
        }
        Ok(self.world_ranks(comm)?.iter().all(Option::is_some))
    }

    fn world_ranks(&self, comm: MpiHandle) -> Result<Vec<Option<usize>>, MpiErrorCode> {
        let (_, size) = self.rank_and_size(comm)?;
        let group = |comm| {
            // SAFETY: see above.
            self.made(|made| unsafe { (self.functions.comm_group)(A::restore(comm), made) })
        };
        let (group, world) = (group(comm)?, group(self.handles.comm_world)?);
        let (group, world) = (A::restore(group), A::restore(world));
        let ranks: Vec<c_int> = (0..size as c_int).collect();
        let mut places = vec![0; size];
        // SAFETY: see above. Both arrays have `size` ranks, and this function owns both groups.
        let code = unsafe {
            let translate = self.functions.group_translate_ranks;
            let code = translate(group, size as c_int, ranks.as_ptr(), world, places.as_mut_ptr());
            for mut group in [group, world] {
                (self.functions.group_free)(&raw mut group);
            }
            code
        };
        // A rank outside the world is `MPI_UNDEFINED`, which is negative.
        let rank = |place: c_int| usize::try_from(place).ok();
        checked(code).map(|()| places.into_iter().map(rank).collect())
    }

    fn remote_size(&self, comm: MpiHandle) -> Result<usize, MpiErrorCode> {
        let mut size = 0;
        // SAFETY: see above.
        checked(unsafe { (self.functions.comm_remote_size)(A::restore(comm), &raw mut size) })?;
        Ok(size as usize)
    }

    fn split(&self, comm: MpiHandle, rank: usize) -> Result<MpiHandle, MpiErrorCode> {
        // If MPI cannot create another communicator, the program must not see the error.
        let made = self.quietly(comm, || {
            let (split, comm) = (self.functions.comm_split, A::restore(comm));
            // SAFETY: see above.
            self.made(|made| unsafe { split(comm, 0, rank as c_int, made) })
        })??;
        self.set_handler(made, self.handles.errors_return)?;
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
        // SAFETY: see above. Nothing can handle an error here.
        let _ = unsafe { (self.functions.comm_free)(&raw mut comm) };
    }

    fn raise(&self, comm: MpiHandle) -> MpiErrorCode {
        self.call_handler(comm, A::ERRORS[1])
    }

    fn refuse_count(&self, comm: MpiHandle) -> MpiErrorCode {
        self.call_handler(comm, A::ERRORS[4])
    }
}
