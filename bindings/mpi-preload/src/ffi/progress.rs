//! How calls move along while the program is in MPI for something else: Open MPI calls back all who
//! have registered, from whatever function of its waits.
//!
//! MPICH has that from version 4.2 on, but not with sends and receives inside.

use std::ffi::{c_int, c_void};
use std::mem;
use std::sync::OnceLock;

use super::symbols::Symbols;
use crate::state::State;

type Callback = unsafe extern "C" fn() -> c_int;
type Change = unsafe extern "C" fn(Callback) -> c_int;

/// The library's functions for that.
pub(crate) struct Progress {
    register: Change,
    unregister: Change,
}

/// What is called back for: a process has one library of ours.
static STATE: OnceLock<&'static State> = OnceLock::new();

impl Progress {
    /// `None` if the library has no such functions.
    pub(crate) fn find(symbols: &Symbols) -> Option<Self> {
        let find = |name| {
            // SAFETY: Open MPI's functions of these names have this type since its first version.
            symbols.find(name).map(|found| unsafe { mem::transmute::<*mut c_void, Change>(found) })
        };
        let register = find(c"opal_progress_register")?;
        Some(Self { register, unregister: find(c"opal_progress_unregister")? })
    }

    /// From now on calls move along.
    pub(crate) fn begin(&self, state: &'static State) {
        let _ = STATE.set(state);
        // SAFETY: the function is there as long as the process, and MPI is up.
        let _ = unsafe { (self.register)(advance) };
    }

    /// No longer.
    pub(crate) fn end(&self) {
        // SAFETY: as above.
        let _ = unsafe { (self.unregister)(advance) };
    }
}

/// Says how much has moved; where nothing has, the library may let others have the core.
unsafe extern "C" fn advance() -> c_int {
    STATE.get().map_or(0, |state| c_int::from(state.advance()))
}
