//! Entry point for the program: each library for `LD_PRELOAD` has one [`Interceptor`], which all
//! exported functions call.
//!
//! An exported function first applies a filter, which costs a few nanoseconds
//! ([`filter`](crate::filter)). The filter passes most calls on to the MPI library. The rest of
//! this crate decides about the other calls.

use std::collections::BTreeSet;
use std::ffi::{c_int, c_void};
use std::process;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock};

pub use foldwire::schedule::Collective;

use super::abi::{Abi, MpiHandle, Mpich, OpenMpi, Standard};
use super::counts::CountArray;
use super::fork::is_forked;
use super::fortran::REQUEST;
use super::library::{CommApi, MpiApi, MpiLibrary, SUCCESS};
use super::message_calls::MessageLayer;
use super::original::warn_if_passed_by;
use super::progress::ProgressCallback;
use super::symbols::{Symbols, is_any_loaded};
use crate::call::RankRole;
pub use crate::call::{BufferArgs, MpiCall};
use crate::comm_state::locked;
pub use crate::filter::{CallFilter, CallSize};
use crate::filter::{CallFilters, UNKNOWN};
use crate::guard::guarded;
use crate::signature::Datatypes;
use crate::state::PreloadState;

/// The MPI library that the program has loaded, and the state of Foldwire in this process.
pub struct Interceptor<A: Abi> {
    loaded: OnceLock<LoadedLibrary<A>>,
    /// Filters for calls that certainly go to the MPI library.
    pub filters: CallFilters,
    /// Last datatype that turned out not to be predefined, so that the next call with it skips the
    /// query. It may be freed: a predefined datatype never gets a freed handle.
    last_derived_type: AtomicUsize,
}

struct LoadedLibrary<A: Abi> {
    state: &'static PreloadState,
    library: &'static MpiLibrary<A>,
}

impl<A: Abi> Interceptor<A> {
    /// An interceptor without a library. The first call loads it.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            loaded: OnceLock::new(),
            filters: CallFilters::new(),
            last_derived_type: AtomicUsize::new(0),
        }
    }

    fn loaded(&'static self) -> &'static LoadedLibrary<A> {
        self.loaded.get_or_init(|| {
            let symbols = Symbols::of(A::LIBRARIES);
            let found = guarded(|| {
                // Another MPI library has functions of the same names with other handle types.
                let all = [OpenMpi::LIBRARIES, Mpich::LIBRARIES, Standard::LIBRARIES];
                let is_other = all.into_iter().any(is_any_loaded) && !is_any_loaded(A::LIBRARIES);
                if is_other {
                    return Err(format!("the program's MPI library is not {}", A::NAME));
                }
                MpiLibrary::find(&symbols)
            });
            let library =
                found.unwrap_or_else(|_| Err("a panic".into())).unwrap_or_else(|reason| {
                    eprintln!(
                        "foldwire: error: {reason}; is this preloaded under another library?"
                    );
                    process::exit(1)
                });
            let library: &'static MpiLibrary<A> = Box::leak(Box::new(library));
            let progress = ProgressCallback::find(&symbols);
            let has_fortran = || is_any_loaded(A::FORTRAN);
            let state = PreloadState::new(library, &self.filters, progress, has_fortran);
            LoadedLibrary { state: Box::leak(Box::new(state)), library }
        })
    }

    /// Called after `MPI_Init`.
    pub fn after_init(&'static self) {
        self.loaded().state.begin();
    }

    /// Called before `MPI_Finalize`.
    pub fn before_finalize(&self) {
        if let Some(loaded) = self.loaded.get().filter(|_| !is_forked()) {
            loaded.state.end();
        }
    }

    /// Called at the end of the process.
    pub fn at_exit(&self) {
        if self.loaded.get().is_none() && !is_forked() {
            // Nothing can handle a panic here.
            let _ = guarded(warn_if_passed_by::<A>);
        }
    }

    /// Called before a communicator is freed.
    pub fn before_comm_free(&self, comm: MpiHandle) {
        if let Some(loaded) = self.loaded.get().filter(|_| !is_forked()) {
            loaded.state.before_comm_free(comm);
        }
    }

    /// State of messages if they are compressed.
    #[inline]
    pub fn messages(&'static self) -> Option<&'static MessageLayer> {
        self.loaded.get()?.state.messages().filter(|_| !is_forked())
    }

    /// Returns whether a call certainly goes to the MPI library. `size` is the call's size.
    #[inline]
    pub fn passes(&self, filter: &CallFilter, size: &CallSize, call: &MpiCall) -> bool {
        self.filters.passes(filter, size) || self.passes_if_short(filter, size, call)
    }

    /// Slower variant of the filter, for datatypes that the filters have not stored and for arrays
    /// of counts. It computes the call's bytes.
    #[inline(never)]
    fn passes_if_short(&self, filter: &CallFilter, size: &CallSize, call: &MpiCall) -> bool {
        let Some(LoadedLibrary { library, .. }) = self.loaded.get() else { return false };
        // If even an empty call is inspected, the size has no influence.
        filter.passes_bytes_uncounted(0)
            && self
                .n_bytes(library, size.n_values, call)
                .is_some_and(|n_bytes| self.filters.passes_bytes(filter, n_bytes))
    }

    /// Bytes of a call's logical array, or more; `None` if only an inspection can tell. `n_values`
    /// is the number of values if the call has no array of counts.
    ///
    /// Reads only the arguments that MPI uses on this rank. The others may have any value, and MPI
    /// libraries crash on a datatype that is none.
    fn n_bytes(&self, library: &MpiLibrary<A>, n_values: u64, call: &MpiCall) -> Option<u64> {
        let MpiCall { collective, comm, .. } = *call;
        if comm == library.handles().comm_null {
            return None;
        }
        let counts = match collective {
            Collective::AllGather | Collective::ReduceScatter => call.recv.counts,
            _ => None,
        };
        let has_place =
            counts.is_some() || matches!(collective, Collective::Gather | Collective::Scatter);
        let role = if has_place {
            // In an intercommunicator other arguments are significant, and the counts may belong to
            // the remote group.
            if library.is_inter(comm) != Ok(false) {
                return None;
            }
            call.role(library.rank_and_size(comm).ok()?).ok()?
        } else if collective.has_root() && call.root < 0 {
            // `MPI_ROOT` or `MPI_PROC_NULL`: an intercommunicator.
            return None;
        } else {
            // The call has one datatype for both buffers, or no root.
            RankRole { rank: 0, size: 1, root: None }
        };
        let n_values = counts.map_or(n_values, |counts| counts.total(role.size));
        if n_values >= UNKNOWN {
            // The other ranks may have more values, even if this rank's have no bytes.
            return None;
        }
        let mut n_bytes = 0;
        let used = call.sides(library, role);
        for (side, _) in [&call.send, &call.recv].into_iter().zip(used).filter(|(_, used)| *used) {
            if side.datatype.0 != 0 && side.datatype != library.handles().datatype_null {
                n_bytes = n_bytes.max(self.type_size(library, side.datatype));
            }
        }
        Some(n_values.saturating_mul(n_bytes))
    }

    /// Bytes of a value. Stores predefined datatypes in the filters for later calls.
    fn type_size(&self, library: &MpiLibrary<A>, datatype: MpiHandle) -> u64 {
        let Ok(n_bytes) = Datatypes::n_bytes(library, datatype) else { return u64::MAX };
        if self.last_derived_type.load(Ordering::Relaxed) != datatype.number() {
            match library.is_named(datatype) {
                Ok(true) => self.filters.keep_type(datatype.number(), n_bytes),
                _ => self.last_derived_type.store(datatype.number(), Ordering::Relaxed),
            }
        }
        n_bytes as u64
    }

    /// Handles a collective. Returns its result, or `None` if the library must execute it.
    pub fn collective(&self, call: &MpiCall) -> Option<c_int> {
        let LoadedLibrary { state, library } = self.loaded.get().filter(|_| !is_forked())?;
        if call.request.is_some_and(RequestPointer::is_null) {
            // Let MPI report the null pointer.
            return None;
        }
        // If each rank knows only some counts of a non-blocking call, Foldwire may find later that
        // the MPI library must execute it. Then it is too late to report a count that is too large
        // for `int`. So convert the counts now.
        let may_be_forwarded = call.request.is_some() && call.is_known_in_part();
        let call = match may_be_forwarded && !library.has_large_counts() {
            true => match self.narrow(call) {
                Ok(narrow) => narrow.call,
                Err(CountTooLarge) => return Some(self.refuse_count(call)),
            },
            false => *call,
        };
        let code = state.collective(&call)?.map_or_else(
            |code| code,
            |request| {
                if let Some((place, request)) = call.request.zip(request) {
                    // SAFETY: the program wants the request of this call at this address.
                    unsafe { place.write::<A>(request) };
                }
                SUCCESS
            },
        );
        Some(code)
    }

    /// Returns the error code for a count that is too large for a library without large counts.
    pub fn refuse_count(&self, call: &MpiCall) -> c_int {
        self.loaded.get().map_or(A::ERRORS[4], |loaded| loaded.library.refuse_count(call.comm))
    }

    /// Converts large counts to `int`.
    ///
    /// # Errors
    /// A number is too large.
    pub fn narrow(&self, call: &MpiCall) -> Result<NarrowedCall, CountTooLarge> {
        let mut narrow = NarrowedCall { call: *call, arrays: Vec::new() };
        let narrowed = [&mut narrow.call.send, &mut narrow.call.recv];
        let used = self.counts_used(call);
        for ((side, used), narrowed) in [&call.send, &call.recv].into_iter().zip(used).zip(narrowed)
        {
            if !used {
                // Any value may stand where MPI ignores the count.
                narrowed.count = 0;
            }
            c_int::try_from(narrowed.count).map_err(|_| CountTooLarge)?;
            for (large, narrowed) in
                [(side.counts, &mut narrowed.counts), (side.displs, &mut narrowed.displs)]
            {
                let Some(counts @ CountArray::Large(_)) = large else { continue };
                let start = match self.narrow_counts(call, side, counts)? {
                    None => std::ptr::null(),
                    // The library may read the array until the request is complete, and does not
                    // report when that is.
                    Some(counts) if call.request.is_some() => kept_forever(counts).as_ptr(),
                    Some(counts) => {
                        let start = counts.as_ptr();
                        narrow.arrays.push(counts);
                        start
                    }
                };
                *narrowed = Some(CountArray::Int(start));
            }
        }
        Ok(narrow)
    }

    /// Returns whether MPI uses the counts of the send buffer and of the receive buffer on this
    /// rank. True if that is unknown. MPI then checks the call.
    fn counts_used(&self, call: &MpiCall) -> [bool; 2] {
        let MpiCall { collective, comm, root, .. } = *call;
        let Some(LoadedLibrary { library, .. }) = self.loaded.get() else { return [true; 2] };
        // Other calls have one count, or an array.
        let has_two = matches!(
            collective,
            Collective::AllGather | Collective::AllToAll | Collective::Gather | Collective::Scatter
        );
        if !has_two || comm == library.handles().comm_null {
            return [true; 2];
        }
        match library.is_inter(comm) {
            Ok(false) => {
                let role = library.rank_and_size(comm).ok().and_then(|place| call.role(place).ok());
                role.map_or([true; 2], |role| call.sides(*library, role))
            }
            // The root of an intercommunicator uses one buffer, each rank of the other group the
            // other one, and the remaining ranks of the root's group none.
            Ok(true) if collective.has_root() => {
                let (is_root, is_opposite) = (root == A::ROOT, root >= 0);
                match collective {
                    Collective::Gather => [is_opposite, is_root],
                    _ => [is_root, is_opposite],
                }
            }
            _ => [true; 2],
        }
    }

    /// Converts an array of counts to `int`. Returns `None` if the array is missing, if MPI does
    /// not read it on this rank, or if its length is unknown. MPI then checks the call.
    fn narrow_counts(
        &self,
        call: &MpiCall,
        side: &BufferArgs,
        counts: CountArray,
    ) -> Result<Option<Vec<c_int>>, CountTooLarge> {
        let Some(LoadedLibrary { library, .. }) = self.loaded.get() else { return Ok(None) };
        if call.comm == library.handles().comm_null || side.start.addr() == A::IN_PLACE {
            return Ok(None);
        }
        let Ok((rank, size)) = library.rank_and_size(call.comm) else { return Ok(None) };
        // In an intercommunicator the shares belong to the ranks of the remote group.
        let is_inter = side.displs.is_some() && library.is_inter(call.comm) == Ok(true);
        let (has_shares, size) = match is_inter {
            true => {
                let is_rooted = matches!(call.collective, Collective::Gather | Collective::Scatter);
                let Ok(size) = library.remote_size(call.comm) else { return Ok(None) };
                (!is_rooted || call.root == A::ROOT, size)
            }
            false => (call.has_shares_at(rank), size),
        };
        let counts = if has_shares { counts.read(size) } else { None };
        let Some(counts) = counts else { return Ok(None) };
        let narrow = |count| c_int::try_from(count).map_err(|_| CountTooLarge);
        counts.into_iter().map(narrow).collect::<Result<_, _>>().map(Some)
    }
}

/// A call with `int` counts, converted from large counts.
pub struct NarrowedCall {
    /// The converted call.
    pub call: MpiCall,
    /// Converted arrays, except for those that are kept forever.
    arrays: Vec<Vec<c_int>>,
}

/// Stores these numbers forever. Equal arrays share one copy.
fn kept_forever(counts: Vec<c_int>) -> &'static [c_int] {
    static KEPT: Mutex<BTreeSet<&'static [c_int]>> = Mutex::new(BTreeSet::new());
    let mut kept = locked(&KEPT);
    if let Some(&known) = kept.get(&counts[..]) {
        return known;
    }
    let counts: &'static [c_int] = counts.leak();
    kept.insert(counts);
    counts
}

/// A count is too large for `int`.
#[derive(Clone, Copy, Debug)]
pub struct CountTooLarge;

impl<A: Abi> Default for Interceptor<A> {
    fn default() -> Self {
        Self::new()
    }
}

/// Returns a call of this collective in which all arguments are empty, for the caller to fill in.
#[must_use]
pub const fn empty_call(collective: Collective) -> MpiCall {
    let nothing = BufferArgs {
        start: std::ptr::null_mut(),
        count: 0,
        datatype: MpiHandle(0),
        counts: None,
        displs: None,
    };
    let (op, comm) = (MpiHandle(0), MpiHandle(0));
    MpiCall { collective, send: nothing, recv: nothing, op, root: 0, comm, request: None }
}

/// Address at which the program wants a request.
#[derive(Clone, Copy, Debug)]
pub enum RequestPointer {
    /// C handle.
    C(*mut c_void),
    /// Fortran handle.
    Fortran(*mut c_int),
}

impl<H> From<*mut H> for RequestPointer {
    fn from(place: *mut H) -> Self {
        Self::C(place.cast())
    }
}

impl RequestPointer {
    /// # Safety
    /// The pointer must be valid for writing a handle of this kind.
    unsafe fn write<A: Abi>(self, request: MpiHandle) {
        let request = A::restore(request);
        // SAFETY: the caller guarantees it.
        unsafe {
            match self {
                Self::C(place) => place.cast::<A::Handle>().write(request),
                Self::Fortran(place) => place.write(REQUEST.integer_of::<A>(request)),
            }
        }
    }

    const fn is_null(self) -> bool {
        match self {
            Self::C(place) => place.is_null(),
            Self::Fortran(place) => place.is_null(),
        }
    }
}
