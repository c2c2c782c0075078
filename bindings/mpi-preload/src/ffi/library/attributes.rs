//! MPI attributes with two numbers for each communicator, of collectives and of messages, and one
//! for each datatype.

use std::ffi::{c_int, c_void};
use std::ptr;

use super::functions::{GetAttribute, SetAttribute};
use super::{CommApi, MpiErrorCode, MpiLibrary, SUCCESS, checked};
use crate::ffi::abi::{Abi, MpiHandle};

/// Numbers of communicators.
pub(crate) trait AttributeApi {
    /// Creates the attribute keys for communicators and datatypes. Duplicates do not inherit the
    /// attributes. Also creates the copy of `MPI_COMM_SELF`. Must be called once, before the other
    /// functions.
    fn make_keys(&self) -> Result<(), MpiErrorCode>;
    /// Number of a communicator, if it has one.
    fn comm_number(&self, comm: MpiHandle) -> Result<Option<usize>, MpiErrorCode>;
    fn set_comm_number(&self, comm: MpiHandle, number: usize) -> Result<(), MpiErrorCode>;
    /// Number of a communicator for messages, if it has one. Another number than that of
    /// collectives, since a thread may send a message while another thread calls a collective.
    fn message_number(&self, comm: MpiHandle) -> Result<Option<usize>, MpiErrorCode>;
    fn set_message_number(&self, comm: MpiHandle, number: usize) -> Result<(), MpiErrorCode>;
}

// SAFETY of the blocks below: callers of `MpiApi` guarantee valid handles and an initialised MPI.
// MPI writes through pointers to locals of the types in its standard, and accesses them only during
// the call. Each block states what else it relies on.
impl<A: Abi> AttributeApi for MpiLibrary<A> {
    fn make_keys(&self) -> Result<(), MpiErrorCode> {
        let mut keys = [0; 3];
        let (copy, delete) = (copy_none::<A::Handle> as _, delete_none::<A::Handle> as _);
        let extra = ptr::null_mut();
        // SAFETY: see above. The functions exist as long as the process.
        unsafe {
            checked((self.functions.comm_create_keyval)(copy, delete, &raw mut keys[0], extra))?;
            checked((self.functions.type_create_keyval)(copy, delete, &raw mut keys[1], extra))?;
            checked((self.functions.comm_create_keyval)(copy, delete, &raw mut keys[2], extra))?;
        }
        let self_comm = self.split(self.handles.comm_self, 0)?;
        let _ = (self.keys.set(keys), self.self_comm.set(self_comm));
        Ok(())
    }

    fn comm_number(&self, comm: MpiHandle) -> Result<Option<usize>, MpiErrorCode> {
        Self::number(self.functions.comm_get_attr, comm, self.keys()?[0])
    }

    fn set_comm_number(&self, comm: MpiHandle, number: usize) -> Result<(), MpiErrorCode> {
        Self::set_number(self.functions.comm_set_attr, comm, self.keys()?[0], number)
    }

    fn message_number(&self, comm: MpiHandle) -> Result<Option<usize>, MpiErrorCode> {
        Self::number(self.functions.comm_get_attr, comm, self.keys()?[2])
    }

    fn set_message_number(&self, comm: MpiHandle, number: usize) -> Result<(), MpiErrorCode> {
        Self::set_number(self.functions.comm_set_attr, comm, self.keys()?[2], number)
    }
}

impl<A: Abi> MpiLibrary<A> {
    /// Keys for communicators and datatypes, and for the messages of communicators.
    pub(super) fn keys(&self) -> Result<[c_int; 3], MpiErrorCode> {
        self.keys.get().copied().ok_or(A::ERRORS[1])
    }

    /// Number of a communicator or a datatype. `attribute` is MPI's function that reads attributes
    /// of that kind of object.
    pub(super) fn number(
        attribute: GetAttribute<A>,
        handle: MpiHandle,
        key: c_int,
    ) -> Result<Option<usize>, MpiErrorCode> {
        let (mut value, mut flag) = (ptr::null_mut::<c_void>(), 0);
        let place = (&raw mut value).cast();
        // SAFETY: `MpiApi` guarantees a valid handle. MPI writes a pointer, which is the stored
        // number.
        checked(unsafe { attribute(A::restore(handle), key, place, &raw mut flag) })?;
        Ok((flag != 0).then(|| value.addr()))
    }

    pub(super) fn set_number(
        set: SetAttribute<A>,
        handle: MpiHandle,
        key: c_int,
        number: usize,
    ) -> Result<(), MpiErrorCode> {
        let number = ptr::without_provenance_mut(number);
        // SAFETY: `MpiApi` guarantees a valid handle. MPI never dereferences an attribute.
        checked(unsafe { set(A::restore(handle), key, number) })
    }
}

/// Keeps duplicates from inheriting the attribute.
unsafe extern "C" fn copy_none<H>(
    _: H,
    _: c_int,
    _: *mut c_void,
    _: *mut c_void,
    _: *mut c_void,
    flag: *mut c_int,
) -> c_int {
    // SAFETY: MPI passes the address of a writable integer.
    unsafe { *flag = 0 };
    SUCCESS
}

unsafe extern "C" fn delete_none<H>(_: H, _: c_int, _: *mut c_void, _: *mut c_void) -> c_int {
    SUCCESS
}
