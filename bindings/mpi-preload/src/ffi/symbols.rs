//! Functions and variables by their names, in libraries that the program has loaded.

use std::ffi::{CStr, c_void};

/// Finds symbols in libraries that are loaded.
pub struct Symbols {
    handles: Vec<*mut c_void>,
}

/// Whether one of these files is loaded.
pub(crate) fn is_any_loaded(files: &[&CStr]) -> bool {
    Symbols::of(files).handles.len() > 1
}

impl Symbols {
    /// In these files, as far as they are loaded, and then behind this library in the order of
    /// search.
    #[must_use]
    pub fn of(files: &[&CStr]) -> Self {
        // SAFETY: the names end with a zero; with `RTLD_NOLOAD` no code is run.
        let open = |file: &&CStr| unsafe {
            libc::dlopen(file.as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD)
        };
        let mut handles: Vec<_> = files.iter().map(open).filter(|it| !it.is_null()).collect();
        handles.push(libc::RTLD_NEXT);
        Self { handles }
    }

    /// The address of a symbol.
    #[must_use]
    pub fn find(&self, name: &CStr) -> Option<*mut c_void> {
        // SAFETY: handles that `dlopen` gave, which are never closed, and the name ends with a
        // zero.
        let look = |&handle: &*mut c_void| unsafe { libc::dlsym(handle, name.as_ptr()) };
        self.handles.iter().map(look).find(|address| !address.is_null())
    }

    /// The address of a variable: the program's own copy of it, if the linker has given it one,
    /// which all libraries use then.
    #[must_use]
    pub fn find_variable(&self, name: &CStr) -> Option<*mut c_void> {
        // SAFETY: as above.
        let copy = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
        if copy.is_null() { self.find(name) } else { Some(copy) }
    }
}
