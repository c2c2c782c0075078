//! Control variables of the MPI library, by its tool interface (MPI 4.0, section 15.3).

use std::ffi::{CString, c_char, c_int};
use std::mem::MaybeUninit;
use std::ptr;
use std::sync::OnceLock;

use mpi::ffi;

use super::SUCCESS;
use crate::Error;

/// Longest name or description that is read, in bytes; longer ones are cut.
const TEXT_BYTES: usize = 4096;

fn checked(code: c_int) -> Result<(), Error> {
    if code == SUCCESS { Ok(()) } else { Err(Error::Tool { code }) }
}

/// Opens the tool interface, once, and for good: MPICH 4.0 forgets its variables when it is closed.
fn open_interface() -> Result<(), Error> {
    static OPENED: OnceLock<c_int> = OnceLock::new();
    let code = *OPENED.get_or_init(|| {
        let mut provided = 0;
        // SAFETY: may be called at any time; writes one integer.
        unsafe { ffi::MPI_T_init_thread(ffi::RSMPI_THREAD_FUNNELED, &mut provided) }
    });
    checked(code)
}

/// A control variable that holds one `int` and belongs to no object.
pub(crate) struct Variable {
    handle: ffi::MPI_T_cvar_handle,
    /// The values that it may have, where the library names them.
    pub(crate) values: Vec<(c_int, String)>,
    /// What the library says of it.
    pub(crate) description: String,
}

impl Variable {
    /// The variable of this name, if MPI is up, the library has it, it is an `int`, and it can be
    /// set.
    pub(crate) fn open(name: &str) -> Option<Self> {
        if !mpi::is_initialized() || mpi::is_finalized() {
            return None;
        }
        open_interface().ok()?;
        let c_name = CString::new(name).ok()?;
        let mut index = 0;
        let mut datatype = MaybeUninit::uninit();
        let mut values = MaybeUninit::uninit();
        let mut description = [0 as c_char; TEXT_BYTES];
        let (mut name_bytes, mut description_bytes) = (0, TEXT_BYTES as c_int);
        let (mut verbosity, mut bind, mut scope) = (0, 0, 0);
        let mut n_bytes = 0;
        // SAFETY: MPI is up, and the interface open. MPI writes the variables that it is given and
        // at most `description_bytes` bytes of text; what is uninitialised is read only after
        // success.
        let values = unsafe {
            checked(ffi::MPI_T_cvar_get_index(c_name.as_ptr(), &mut index)).ok()?;
            checked(ffi::MPI_T_cvar_get_info(
                index,
                ptr::null_mut(),
                &mut name_bytes,
                &mut verbosity,
                datatype.as_mut_ptr(),
                values.as_mut_ptr(),
                description.as_mut_ptr(),
                &mut description_bytes,
                &mut bind,
                &mut scope,
            ))
            .ok()?;
            checked(ffi::MPI_Type_size(datatype.assume_init(), &mut n_bytes)).ok()?;
            values.assume_init()
        };
        let mut handle = MaybeUninit::uninit();
        let mut n_values = 0;
        if n_bytes as usize != size_of::<c_int>() {
            return None;
        }
        // SAFETY: as above; a variable that needs an object is refused by MPI, since none is given.
        let handle = unsafe {
            checked(ffi::MPI_T_cvar_handle_alloc(
                index,
                ptr::null_mut(),
                handle.as_mut_ptr(),
                &mut n_values,
            ))
            .ok()?;
            handle.assume_init()
        };
        let variable =
            Self { handle, values: enumeration(values), description: text(&description) };
        // Libraries differ in how they say that a variable cannot be set; all of them refuse.
        let settable = n_values == 1 && variable.read().and_then(|v| variable.write(v)).is_ok();
        settable.then_some(variable)
    }

    pub(crate) fn read(&self) -> Result<c_int, Error> {
        let mut value: c_int = 0;
        // SAFETY: the handle is ours, and its variable is one `int`, as `open` has seen.
        checked(unsafe { ffi::MPI_T_cvar_read(self.handle, ptr::from_mut(&mut value).cast()) })?;
        Ok(value)
    }

    pub(crate) fn write(&self, value: c_int) -> Result<(), Error> {
        // SAFETY: as in `read`; MPI copies the value.
        checked(unsafe { ffi::MPI_T_cvar_write(self.handle, ptr::from_ref(&value).cast()) })
    }
}

impl Drop for Variable {
    fn drop(&mut self) {
        // SAFETY: the handle is ours, and the interface open. An error has nobody to go to.
        unsafe { ffi::MPI_T_cvar_handle_free(&mut self.handle) };
    }
}

/// The items of an enumeration; none of none.
fn enumeration(values: ffi::MPI_T_enum) -> Vec<(c_int, String)> {
    let (mut n_items, mut name_bytes) = (0, 0);
    // Null in every library (MPI_T_ENUM_NULL is a cast that bindgen cannot read).
    if values.is_null() {
        return Vec::new();
    }
    // SAFETY: the enumeration is one that MPI gave us; no text is asked for.
    let code =
        unsafe { ffi::MPI_T_enum_get_info(values, &mut n_items, ptr::null_mut(), &mut name_bytes) };
    if code != SUCCESS {
        return Vec::new();
    }
    let item = |index| {
        let mut name = [0 as c_char; TEXT_BYTES];
        let (mut value, mut name_bytes) = (0, TEXT_BYTES as c_int);
        // SAFETY: as above; MPI writes at most `name_bytes` bytes.
        let code = unsafe {
            ffi::MPI_T_enum_get_item(values, index, &mut value, name.as_mut_ptr(), &mut name_bytes)
        };
        (code == SUCCESS).then(|| (value, text(&name)))
    };
    (0..n_items).filter_map(item).collect()
}

/// The text before the first zero.
fn text(bytes: &[c_char]) -> String {
    let bytes: Vec<u8> = bytes.iter().map(|&b| b as u8).take_while(|&b| b != 0).collect();
    String::from_utf8_lossy(&bytes).into_owned()
}
