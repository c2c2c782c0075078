//! Interface to the MPI library that the program has loaded.

mod attributes;
mod communicators;
mod datatypes;
mod error_handlers;
mod functions;
mod generalized_requests;
mod messages;
mod packing;
mod probes;
mod statuses;
mod types;
mod vector_collectives;

use std::ffi::{CStr, c_char, c_int};
use std::sync::{Mutex, OnceLock};

use foldwire::schedule::Collective;

use attributes::AttributeApi;
pub(crate) use communicators::CommApi;
use error_handlers::QuietComm;
use functions::FunctionTable;
use generalized_requests::RequestApi;
use messages::MessageApi;
pub(crate) use statuses::{StatusApi, StatusBuffer, StatusPtr};
use types::DatatypeApi;
use vector_collectives::VectorApi;

use super::abi::{Abi, LibraryHandles, MpiHandle};
use super::symbols::Symbols;

/// Error code of the MPI library.
pub(crate) type MpiErrorCode = c_int;
pub(crate) const SUCCESS: c_int = 0;

/// MPI for the other modules, independent of the library's handle type.
///
/// Handles that are passed must be valid handles of MPI or of the program. MPI must be initialised
/// and not finalised.
pub(crate) trait MpiApi:
    CommApi + StatusApi + AttributeApi + RequestApi + VectorApi + DatatypeApi + Send + Sync
{
    /// Predefined handles of the library.
    fn handles(&self) -> &LibraryHandles;
    /// Address of `MPI_IN_PLACE`.
    fn in_place(&self) -> usize;
    /// Returns whether several threads of the program may call MPI, at once or one after the other.
    fn is_threaded(&self) -> bool;
    /// Returns whether the library refuses aliased buffers in this collective.
    fn refuses_aliases(&self, collective: Collective) -> bool;
    /// Ends the job.
    fn abort(&self) -> !;
    /// MPI's text for an error code.
    fn words(&self, code: MpiErrorCode) -> String;
}

/// A loaded MPI library.
pub struct MpiLibrary<A: Abi> {
    functions: FunctionTable<A>,
    handles: LibraryHandles,
    /// Attribute keys for communicators and datatypes, and for the messages of communicators.
    keys: OnceLock<[c_int; 3]>,
    /// A copy of `MPI_COMM_SELF` that returns errors.
    self_comm: OnceLock<MpiHandle>,
    /// Communicators whose errors are hidden.
    quiet: Mutex<Vec<QuietComm>>,
    /// True if communicators may have no error handler.
    has_unset_handlers: OnceLock<bool>,
    /// True if the library's check for aliased buffers is enabled.
    checks_aliases: OnceLock<bool>,
}

// SAFETY: it holds addresses of functions, and of structures that only the library uses.
unsafe impl<A: Abi> Send for MpiLibrary<A> {}
// SAFETY: as above. The program has agreed with MPI which threads may call it.
unsafe impl<A: Abi> Sync for MpiLibrary<A> {}

const fn checked(code: c_int) -> Result<(), MpiErrorCode> {
    if code == SUCCESS { Ok(()) } else { Err(code) }
}

/// Returns the text that `write` writes.
fn text(write: impl FnOnce(*mut c_char, *mut c_int) -> c_int) -> Result<String, MpiErrorCode> {
    // `MPI_MAX_LIBRARY_VERSION_STRING`, the longest of such constants in any library.
    let (mut text, mut length) = ([0 as c_char; 8192], 0);
    checked(write(text.as_mut_ptr(), &raw mut length))?;
    // SAFETY: the array ends with a zero, since MPI writes less than its whole length.
    Ok(unsafe { CStr::from_ptr(text.as_ptr()) }.to_string_lossy().into_owned())
}

impl<A: Abi> MpiLibrary<A> {
    /// Finds the library that the program has loaded.
    ///
    /// # Errors
    /// Names what is missing.
    pub fn find(symbols: &Symbols) -> Result<Self, String> {
        let handles = LibraryHandles::of::<A>(&|name| symbols.find_variable(name));
        let handles = handles.ok_or_else(|| {
            format!("the program's MPI library is not {}: it lacks handles", A::NAME)
        })?;
        let functions = FunctionTable::find(symbols).map_err(|name| {
            format!(
                "the program's MPI library is not {}: it lacks {}",
                A::NAME,
                name.to_string_lossy()
            )
        })?;
        let (keys, self_comm, quiet, has_unset_handlers, checks_aliases) = Default::default();
        Ok(Self { functions, handles, keys, self_comm, quiet, has_unset_handlers, checks_aliases })
    }

    /// Returns the handle that `make` writes.
    fn made(&self, make: impl FnOnce(*mut A::Handle) -> c_int) -> Result<MpiHandle, MpiErrorCode> {
        let mut made = A::restore(self.handles.request_null);
        checked(make(&raw mut made))?;
        Ok(A::erase(made))
    }
}

// SAFETY of the blocks below: callers of the trait guarantee valid handles and an initialised MPI.
// MPI writes through pointers to locals of the types in its standard, and accesses them only during
// the call. Each block states what else it relies on.
impl<A: Abi> MpiApi for MpiLibrary<A> {
    fn handles(&self) -> &LibraryHandles {
        &self.handles
    }

    fn in_place(&self) -> usize {
        A::IN_PLACE
    }

    fn is_threaded(&self) -> bool {
        let mut level = 0;
        // SAFETY: see above.
        let code = unsafe { (self.functions.query_thread)(&raw mut level) };
        // `MPI_THREAD_SINGLE` is the lowest level, and 0 in all families.
        code != SUCCESS || level > 0
    }

    fn refuses_aliases(&self, collective: Collective) -> bool {
        A::refuses_aliases(collective)
            && *self.checks_aliases.get_or_init(|| self.probe_alias_check())
    }

    fn abort(&self) -> ! {
        // SAFETY: see above.
        let _ = unsafe { (self.functions.abort)(A::restore(self.handles.comm_world), 1) };
        std::process::exit(1)
    }

    fn words(&self, code: MpiErrorCode) -> String {
        // SAFETY: the array has space for the longest text and its terminator.
        let message =
            text(|start, length| unsafe { (self.functions.error_string)(code, start, length) });
        message.unwrap_or_else(|_| format!("error {code}"))
    }
}
