//! The functions that the program would call without Foldwire.
//!
//! The dynamic linker searches libraries in an order. Here a library is *in front* of another if it
//! comes first in that order, and *behind* it if it comes later.

use std::ffi::{CStr, c_int, c_void};
use std::mem::MaybeUninit;
use std::process;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

use super::abi::Abi;
use super::symbols::{Symbols, is_any_loaded};

/// A function to which Foldwire passes calls on: the function of a tool that is loaded behind
/// Foldwire's library, or else the MPI library's `PMPI_` function.
pub struct Original {
    name: &'static CStr,
    pmpi_name: &'static CStr,
    address: AtomicPtr<c_void>,
    is_missing: AtomicBool,
}

impl Original {
    /// Creates an entry. `name` is the function's name for programs (`MPI_…`), and `pmpi_name` its
    /// name in the MPI library (`PMPI_…`). Both must end with a zero.
    ///
    /// # Panics
    /// A name has no zero at its end, or another zero.
    #[must_use]
    pub const fn new(name: &'static str, pmpi_name: &'static str) -> Self {
        Self {
            name: c_name(name),
            pmpi_name: c_name(pmpi_name),
            address: AtomicPtr::new(ptr::null_mut()),
            is_missing: AtomicBool::new(false),
        }
    }

    /// Address of the function if it was found before, else null.
    #[must_use]
    #[inline]
    pub fn cached(&self) -> *mut c_void {
        self.address.load(Ordering::Relaxed)
    }

    /// Address of the function, never null; `None` if the library lacks it.
    #[must_use]
    #[inline]
    pub fn find<A: Abi>(&self) -> Option<*mut c_void> {
        let cached = self.cached();
        if cached.is_null() { self.resolve::<A>() } else { Some(cached) }
    }

    #[cold]
    fn resolve<A: Abi>(&self) -> Option<*mut c_void> {
        if self.is_missing.load(Ordering::Relaxed) {
            return None;
        }
        let files: Vec<&CStr> = A::LIBRARIES.iter().chain(A::FORTRAN).copied().collect();
        let found = Symbols::of(&files).find(self.pmpi_name);
        let found = found.map(|own| tool_behind(self.name, own).unwrap_or(own));
        match found {
            Some(found) => self.address.store(found, Ordering::Relaxed),
            None => self.is_missing.store(true, Ordering::Relaxed),
        }
        found
    }

    /// Address of the function, never null. Exits if the MPI library lacks the function: without
    /// Foldwire, the dynamic linker would not even have started the program.
    #[must_use]
    #[inline]
    pub fn address<A: Abi>(&self) -> *mut c_void {
        self.find::<A>().unwrap_or_else(|| self.give_up())
    }

    #[cold]
    fn give_up(&self) -> ! {
        let name = self.pmpi_name.to_string_lossy();
        eprintln!("foldwire: error: the MPI library of this program has no {name}");
        process::exit(1)
    }
}

/// Returns a name of C.
///
/// # Panics
/// It has no zero at its end, or another zero.
#[must_use]
pub const fn c_name(text: &'static str) -> &'static CStr {
    match CStr::from_bytes_with_nul(text.as_bytes()) {
        Ok(name) => name,
        Err(_) => panic!("a name ends with a zero"),
    }
}

/// Returns the function of this name in a tool that is loaded behind Foldwire's library, if there
/// is one. `own` is the MPI library's own function. MPI's profiling interface lets a tool replace a
/// function by defining it under the name without `P`. If Foldwire always called the `PMPI_`
/// functions, it would bypass such a tool.
fn tool_behind(name: &CStr, own: *mut c_void) -> Option<*mut c_void> {
    // SAFETY: the name ends with a zero.
    let next = unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) };
    let is_of_tool = !next.is_null() && file_of(next)?.1 != file_of(own)?.1;
    is_of_tool.then_some(next)
}

/// File that contains a function, and the file's base address.
fn file_of(function: *mut c_void) -> Option<(String, usize)> {
    let mut found = MaybeUninit::<libc::Dl_info>::zeroed();
    // SAFETY: the function writes the structure, or returns 0.
    let found = unsafe {
        if libc::dladdr(function, found.as_mut_ptr()) == 0 {
            return None;
        }
        found.assume_init()
    };
    if found.dli_fname.is_null() {
        return None;
    }
    // SAFETY: the name of a loaded file, which ends with a zero.
    let name = unsafe { CStr::from_ptr(found.dli_fname) };
    Some((name.to_string_lossy().into_owned(), found.dli_fbase.addr()))
}

/// File in front of Foldwire's library that defines a function of this name. The program calls that
/// function instead of Foldwire's.
pub(crate) fn in_front(name: &CStr) -> Option<String> {
    // SAFETY: the name ends with a zero.
    let first = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
    let own = file_of(in_front as fn(&CStr) -> Option<String> as *mut c_void)?;
    let (file, begins) = file_of(first)?;
    (begins != own.1).then_some(file)
}

/// Advice to the user about a file in front of Foldwire's library.
pub(crate) fn advice(file: &str) -> String {
    format!("{file} has MPI's functions too, and comes first; put this library first in LD_PRELOAD")
}

/// Warns that a library in front of this one took the program's calls. To be called at the end of a
/// process in which no MPI call reached this library. Warns only if MPI was initialized, and only
/// on rank 0, if a launcher's variable gives the rank.
pub(crate) fn warn_if_passed_by<A: Abi>() {
    type Initialized = unsafe extern "C" fn(*mut c_int) -> c_int;
    let rank = ["OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK"].map(std::env::var_os);
    let is_first = rank.into_iter().flatten().all(|rank| rank == "0");
    if !is_first || !is_any_loaded(A::LIBRARIES) {
        return;
    }
    // SAFETY: the library's function of this name has this type.
    let found = unsafe { Symbols::of(A::LIBRARIES).find_function(c"PMPI_Initialized") };
    let Some::<Initialized>(initialized) = found else { return };
    let mut was_initialized = 0;
    // SAFETY: the function may be called at any time.
    unsafe { initialized(&raw mut was_initialized) };
    if was_initialized != 0
        && let Some(file) = in_front(c"MPI_Init")
    {
        eprintln!("foldwire: warning: MPI_Init did not reach this library; {}", advice(&file));
    }
}
