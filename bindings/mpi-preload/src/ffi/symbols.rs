//! Look-up of functions and variables by name in loaded libraries.

use std::ffi::{CStr, c_void};
use std::mem;

/// Looks up symbols in loaded libraries.
pub struct Symbols {
    handles: Vec<*mut c_void>,
}

/// Returns whether one of these files is loaded.
pub(crate) fn is_any_loaded(files: &[&CStr]) -> bool {
    Symbols::of(files).handles.len() > 1
}

impl Symbols {
    /// Searches these files if they are loaded, and then the libraries behind this one in search
    /// order.
    #[must_use]
    pub fn of(files: &[&CStr]) -> Self {
        // SAFETY: the names end with a zero. With `RTLD_NOLOAD` no code runs.
        let open = |file: &&CStr| unsafe {
            libc::dlopen(file.as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD)
        };
        let mut handles: Vec<_> = files.iter().map(open).filter(|it| !it.is_null()).collect();
        handles.push(libc::RTLD_NEXT);
        Self { handles }
    }

    /// Returns the address of a symbol.
    #[must_use]
    pub fn find(&self, name: &CStr) -> Option<*mut c_void> {
        // SAFETY: handles from `dlopen`, which are never closed, and a name that ends with a zero.
        let look = |&handle: &*mut c_void| unsafe { libc::dlsym(handle, name.as_ptr()) };
        self.handles.iter().map(look).find(|address| !address.is_null())
    }

    /// Returns a function.
    ///
    /// # Safety
    /// A symbol of this name must be a function of type `F`.
    pub(crate) unsafe fn find_function<F: Copy>(&self, name: &CStr) -> Option<F> {
        const { assert!(size_of::<F>() == size_of::<*mut c_void>(), "`F` is a function") };
        // SAFETY: guaranteed by the caller.
        self.find(name).map(|address| unsafe { mem::transmute_copy::<*mut c_void, F>(&address) })
    }

    /// Returns the address of a variable. If the linker has given the program its own copy, all
    /// libraries use that copy, and this returns it.
    #[must_use]
    pub fn find_variable(&self, name: &CStr) -> Option<*mut c_void> {
        // SAFETY: as above.
        let copy = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
        if copy.is_null() { self.find(name) } else { Some(copy) }
    }
}
