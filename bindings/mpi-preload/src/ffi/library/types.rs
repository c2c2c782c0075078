//! Operations on datatypes and their values.

use super::packing::PackingApi;
use super::{MpiErrorCode, MpiLibrary, checked};
use crate::ffi::abi::{Abi, MpiHandle};
use crate::signature::{Datatypes, Signature};

/// Operations on datatypes and their values.
pub(crate) trait DatatypeApi: PackingApi {
    /// Type signature of a datatype.
    fn signature(&self, datatype: MpiHandle) -> Result<Signature, MpiErrorCode>;
    /// Bytes of one value of a datatype, without gaps.
    fn type_bytes(&self, datatype: MpiHandle) -> Result<usize, MpiErrorCode>;
    /// Bytes from one value of a datatype to the next.
    fn extent(&self, datatype: MpiHandle) -> Result<isize, MpiErrorCode>;
    /// Creates a datatype that is equal to this one. The caller must free it.
    fn keep_type(&self, datatype: MpiHandle) -> Result<MpiHandle, MpiErrorCode>;
    fn free_type(&self, datatype: MpiHandle);
}

// SAFETY of the blocks below: callers of `MpiApi` guarantee valid handles and an initialised MPI.
// MPI writes through pointers to locals of the types in its standard, and accesses them only during
// the call. Each block states what else it relies on.
impl<A: Abi> DatatypeApi for MpiLibrary<A> {
    fn signature(&self, datatype: MpiHandle) -> Result<Signature, MpiErrorCode> {
        if Datatypes::base(self, datatype).is_some() {
            return Signature::of(self, datatype);
        }
        let [_, key, _] = self.keys()?;
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

    fn type_bytes(&self, datatype: MpiHandle) -> Result<usize, MpiErrorCode> {
        Datatypes::n_bytes(self, datatype)
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
        // `MPI_Type_dup` would call the program's functions that copy attributes. SAFETY: see
        // above.
        let kept =
            self.made(|made| unsafe { (self.functions.type_contiguous)(1, datatype, made) })?;
        let mut typed = A::restore(kept);
        // SAFETY: see above.
        checked(unsafe { (self.functions.type_commit)(&raw mut typed) })?;
        Ok(kept)
    }

    fn free_type(&self, datatype: MpiHandle) {
        let mut datatype = A::restore(datatype);
        // SAFETY: see above. Nothing can handle an error here.
        let _ = unsafe { (self.functions.type_free)(&raw mut datatype) };
    }
}
