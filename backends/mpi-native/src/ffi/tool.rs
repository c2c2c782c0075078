//! Control variables of the MPI library, by its tool interface (MPI 4.0, section 15.3).

use std::ffi::{CString, c_char, c_int};
use std::mem::MaybeUninit;
use std::ptr;
use std::sync::OnceLock;

use mpi::ffi;

use super::SUCCESS;
use crate::Error;

/// Longest name or description that is read, in bytes. Longer ones are cut.
const TEXT_BYTES: usize = 4096;

fn checked(code: c_int) -> Result<(), Error> {
    if code == SUCCESS { Ok(()) } else { Err(Error::Tool { code }) }
}

/// Opens the tool interface once, and never closes it: MPICH 4.0 forgets its variables when it is
/// closed.
fn open_interface() -> Result<(), Error> {
    static OPENED: OnceLock<c_int> = OnceLock::new();
    let code = *OPENED.get_or_init(|| {
        let mut provided = 0;
        // SAFETY: may be called at any time; writes one integer.
        unsafe { ffi::MPI_T_init_thread(ffi::RSMPI_THREAD_FUNNELED, &mut provided) }
    });
    checked(code)
}

/// Control variable that holds one `int` and is not bound to an object.
pub(crate) struct Variable {
    handle: ffi::MPI_T_cvar_handle,
    /// Possible values with their names, if the library names them.
    pub(crate) values: Vec<(c_int, String)>,
    /// Description by the library.
    pub(crate) description: String,
}

impl Variable {
    /// Opens a variable by name. Returns `None` unless MPI is initialised and not finalised, and
    /// the library has the variable, as a settable `int`.
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
        // SAFETY: MPI is initialised, and the interface open. MPI writes the variables that it
        // receives and at most `description_bytes` bytes of text. Uninitialised variables are read
        // only after success.
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
        // SAFETY: as above. MPI rejects a variable that is bound to an object, since none is
        // passed.
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
        // Libraries differ in how they mark a variable as read-only, but all reject a write to it.
        let settable = n_values == 1 && variable.read().and_then(|v| variable.write(v)).is_ok();
        settable.then_some(variable)
    }

    pub(crate) fn read(&self) -> Result<c_int, Error> {
        let mut value: c_int = 0;
        // SAFETY: the handle is ours, and `open` has checked that its variable is one `int`.
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
        // SAFETY: the handle is ours, and the interface is open. An error is ignored, since drop
        // cannot return it.
        unsafe { ffi::MPI_T_cvar_handle_free(&mut self.handle) };
    }
}

/// Returns the items of an enumeration; none for a null enumeration.
fn enumeration(values: ffi::MPI_T_enum) -> Vec<(c_int, String)> {
    let (mut n_items, mut name_bytes) = (0, 0);
    // MPI_T_ENUM_NULL is null in every library (it is a cast that bindgen cannot read).
    if values.is_null() {
        return Vec::new();
    }
    // SAFETY: the enumeration came from MPI, and no text is requested.
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

/// Returns the text before the first zero.
fn text(bytes: &[c_char]) -> String {
    let bytes: Vec<u8> = bytes.iter().map(|&b| b as u8).take_while(|&b| b != 0).collect();
    String::from_utf8_lossy(&bytes).into_owned()
}
