//! What is asked about datatypes, and done with values of them.

use std::ffi::{c_int, c_void};

use super::{MpiErrorCode, MpiLibrary, checked};
use crate::ffi::abi::{Abi, MpiHandle};
use crate::signature::{Datatypes, Signature};

/// What MPI knows of datatypes, and does with their values.
pub(crate) trait DatatypeApi {
    /// What a datatype is made of.
    fn signature(&self, datatype: MpiHandle) -> Result<Signature, MpiErrorCode>;
    /// Bytes from one value of a datatype to the next.
    fn extent(&self, datatype: MpiHandle) -> Result<isize, MpiErrorCode>;
    /// A datatype of ours that is as this one, to be freed.
    fn keep_type(&self, datatype: MpiHandle) -> Result<MpiHandle, MpiErrorCode>;
    fn free_type(&self, datatype: MpiHandle);
    /// Packs `count` values of a datatype at `from` into these bytes, or the other way.
    ///
    /// # Safety
    /// The program's memory must be there; `packed` must be as long as the values.
    unsafe fn pack(
        &self,
        from: *const c_void,
        count: c_int,
        datatype: MpiHandle,
        packed: &mut [u8],
    ) -> Result<(), MpiErrorCode>;
    /// # Safety
    /// As of [`pack`](Self::pack).
    unsafe fn unpack(
        &self,
        packed: &[u8],
        to: *mut c_void,
        count: c_int,
        datatype: MpiHandle,
    ) -> Result<(), MpiErrorCode>;
}

// SAFETY of the blocks below: by the promise of `MpiApi` handles are good and MPI is up. MPI writes
// through pointers to locals of the type that its standard says, and reads them only during the
// call; what else holds is said at each block.
impl<A: Abi> DatatypeApi for MpiLibrary<A> {
    fn signature(&self, datatype: MpiHandle) -> Result<Signature, MpiErrorCode> {
        if Datatypes::base(self, datatype).is_some() {
            return Signature::of(self, datatype);
        }
        let [_, key] = self.keys()?;
        if let Some(number) = Self::number(self.functions.type_get_attr, datatype, key)? {
            return Ok(Signature::from_number(number));
        }
        let signature = Signature::of(self, datatype)?;
        if !signature.is_own {
            self.check_committed(datatype)?;
        }
        if let Some(number) = signature.to_number() {
            Self::set_number(self.functions.type_set_attr, datatype, key, number)?;
        }
        Ok(signature)
    }

    fn extent(&self, datatype: MpiHandle) -> Result<isize, MpiErrorCode> {
        let (mut lower, mut extent) = (0, 0);
        let datatype = A::restore(datatype);
        // SAFETY: see above.
        checked(unsafe {
            (self.functions.type_extent)(datatype, &raw mut lower, &raw mut extent)
        })?;
        Ok(extent)
    }

    fn keep_type(&self, datatype: MpiHandle) -> Result<MpiHandle, MpiErrorCode> {
        let datatype = A::restore(datatype);
        // Not `MPI_Type_dup`, which would have the program copy its attributes.
        // SAFETY: see above.
        let kept =
            self.made(|made| unsafe { (self.functions.type_contiguous)(1, datatype, made) })?;
        let mut typed = A::restore(kept);
        // SAFETY: see above.
        checked(unsafe { (self.functions.type_commit)(&raw mut typed) })?;
        Ok(kept)
    }

    fn free_type(&self, datatype: MpiHandle) {
        let mut datatype = A::restore(datatype);
        // SAFETY: see above. An error here has nobody to go to.
        let _ = unsafe { (self.functions.type_free)(&raw mut datatype) };
    }

    unsafe fn pack(
        &self,
        from: *const c_void,
        count: c_int,
        datatype: MpiHandle,
        packed: &mut [u8],
    ) -> Result<(), MpiErrorCode> {
        let (room, mut position) = (c_int::try_from(packed.len()).unwrap_or(c_int::MAX), 0);
        let (datatype, world) = (A::restore(datatype), A::restore(self.handles.comm_world));
        let packed = packed.as_mut_ptr().cast();
        // SAFETY: by the caller's promise; MPI writes within the room.
        checked(unsafe {
            (self.functions.pack)(from, count, datatype, packed, room, &raw mut position, world)
        })
    }

    unsafe fn unpack(
        &self,
        packed: &[u8],
        to: *mut c_void,
        count: c_int,
        datatype: MpiHandle,
    ) -> Result<(), MpiErrorCode> {
        let (room, mut position) = (c_int::try_from(packed.len()).unwrap_or(c_int::MAX), 0);
        let (datatype, world) = (A::restore(datatype), A::restore(self.handles.comm_world));
        let packed = packed.as_ptr().cast();
        // SAFETY: by the caller's promise; MPI reads within the room.
        checked(unsafe {
            (self.functions.unpack)(packed, room, &raw mut position, to, count, datatype, world)
        })
    }
}
