//! Copies between values of a datatype and bytes. One value may be longer than an `int` counts.

use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicU16, Ordering};

use super::{DatatypeApi, MpiErrorCode, MpiLibrary, checked};
use crate::ffi::abi::{Abi, MpiHandle};

/// Copies between values of a datatype and bytes.
pub(crate) trait PackingApi {
    /// Packs `count` values of a datatype into bytes.
    ///
    /// # Safety
    /// `from` must point to `count` values of the datatype, and `packed` must have the length of
    /// the packed values.
    unsafe fn pack(
        &self,
        from: *const c_void,
        count: c_int,
        datatype: MpiHandle,
        packed: &mut [u8],
    ) -> Result<(), MpiErrorCode>;
    /// Unpacks `count` values of a datatype.
    ///
    /// # Safety
    /// `to` must point to writable memory for `count` values of the datatype, and `packed` must
    /// have the length of the packed values.
    unsafe fn unpack(
        &self,
        packed: &[u8],
        to: *mut c_void,
        count: c_int,
        datatype: MpiHandle,
    ) -> Result<(), MpiErrorCode>;
}

/// Buffer of an MPI function: address, count and datatype.
type TypedBuffer<A> = (*mut c_void, c_int, <A as Abi>::Handle);

/// Bytes in each block of a datatype of many bytes.
const BLOCK_BYTES: usize = 1 << 30;

// SAFETY of the blocks below: callers of `MpiApi` guarantee valid handles, and the memory. MPI
// reads or writes at most `packed.len()` bytes there. Pointers are to locals of the types in its
// standard, as long as the counts that are passed with them.
impl<A: Abi> PackingApi for MpiLibrary<A> {
    unsafe fn pack(
        &self,
        from: *const c_void,
        count: c_int,
        datatype: MpiHandle,
        packed: &mut [u8],
    ) -> Result<(), MpiErrorCode> {
        let (datatype, world) = (A::restore(datatype), A::restore(self.handles.comm_world));
        let (n_bytes, packed) = (packed.len(), packed.as_mut_ptr().cast());
        if let Ok(room) = c_int::try_from(n_bytes) {
            let pack = self.functions.pack;
            let mut position = 0;
            // SAFETY: see above.
            return checked(unsafe {
                pack(from, count, datatype, packed, room, &raw mut position, world)
            });
        }
        if let Some(pack) = self.functions.pack_c {
            let (count, room, mut position) = (count.into(), n_bytes as i64, 0);
            // SAFETY: see above.
            return checked(unsafe {
                pack(from, count, datatype, packed, room, &raw mut position, world)
            });
        }
        let bytes = self.bytes_type(n_bytes)?;
        let to = (packed, 1, A::restore(bytes));
        // SAFETY: see above.
        let copied = unsafe { self.copy((from.cast_mut(), count, datatype), to) };
        self.free_type(bytes);
        copied
    }

    unsafe fn unpack(
        &self,
        packed: &[u8],
        to: *mut c_void,
        count: c_int,
        datatype: MpiHandle,
    ) -> Result<(), MpiErrorCode> {
        let (datatype, world) = (A::restore(datatype), A::restore(self.handles.comm_world));
        let (n_bytes, packed) = (packed.len(), packed.as_ptr().cast::<c_void>());
        if let Ok(room) = c_int::try_from(n_bytes) {
            let unpack = self.functions.unpack;
            let mut position = 0;
            // SAFETY: see above.
            return checked(unsafe {
                unpack(packed, room, &raw mut position, to, count, datatype, world)
            });
        }
        if let Some(unpack) = self.functions.unpack_c {
            let (count, room, mut position) = (count.into(), n_bytes as i64, 0);
            // SAFETY: see above.
            return checked(unsafe {
                unpack(packed, room, &raw mut position, to, count, datatype, world)
            });
        }
        let bytes = self.bytes_type(n_bytes)?;
        let from = (packed.cast_mut(), 1, A::restore(bytes));
        // SAFETY: see above.
        let copied = unsafe { self.copy(from, (to, count, datatype)) };
        self.free_type(bytes);
        copied
    }
}

impl<A: Abi> MpiLibrary<A> {
    /// Copies values by a message to this rank itself, whose counts are those of the datatypes.
    ///
    /// # Safety
    /// The memory must be as MPI requires for a send and a receive.
    unsafe fn copy(
        &self,
        (from, n_from, of_from): TypedBuffer<A>,
        (to, n_to, of_to): TypedBuffer<A>,
    ) -> Result<(), MpiErrorCode> {
        // Threads may copy at once, each with a tag of its own. MPI allows tags up to 32767.
        static N_COPIES: AtomicU16 = AtomicU16::new(0);
        let tag = c_int::from(N_COPIES.fetch_add(1, Ordering::Relaxed) & 0x7fff);
        let (comm, status) = (self.self_comm()?, A::STATUS_IGNORE);
        let status = std::ptr::with_exposed_provenance_mut(status);
        let send_recv = self.functions.send_recv;
        // SAFETY: the caller guarantees the memory, and MPI ignores this status.
        checked(unsafe {
            send_recv(from, n_from, of_from, 0, tag, to, n_to, of_to, 0, tag, comm, status)
        })
    }

    /// Creates a datatype of this many bytes. The caller must free it.
    fn bytes_type(&self, n_bytes: usize) -> Result<MpiHandle, MpiErrorCode> {
        let starts: Vec<isize> = (0..n_bytes).step_by(BLOCK_BYTES).map(|at| at as isize).collect();
        let len = |&start: &isize| (n_bytes - start as usize).min(BLOCK_BYTES) as c_int;
        let lens: Vec<c_int> = starts.iter().map(len).collect();
        let (n, byte) = (starts.len() as c_int, A::restore(self.handles.byte));
        // SAFETY: see above.
        let made = self.made(|made| unsafe {
            (self.functions.type_hindexed)(n, lens.as_ptr(), starts.as_ptr(), byte, made)
        })?;
        let mut raw = A::restore(made);
        // SAFETY: see above.
        checked(unsafe { (self.functions.type_commit)(&raw mut raw) })?;
        Ok(made)
    }
}
