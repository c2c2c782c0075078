//! Where the program comes in: one [`Interceptor`] in each library for `LD_PRELOAD`, through which all
//! functions that it exports go.
//!
//! A call meets a gate first, which costs some nanoseconds ([`filters`](crate::filters)). The rest
//! of this package decides about calls that it does not pass on.

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
use super::original::warn_if_passed_by;
use super::progress::ProgressCallback;
use super::symbols::{Symbols, is_any_loaded};
pub use crate::call::{BufferArgs, MpiCall};
use crate::comm_state::locked;
pub use crate::filter::{CallFilter, CallSize};
use crate::filter::{CallFilters, UNKNOWN};
use crate::guard::guarded;
use crate::signature::Datatypes;
use crate::state::PreloadState;

/// The MPI library that the program has loaded, and what we keep beside it.
pub struct Interceptor<A: Abi> {
    loaded: OnceLock<LoadedLibrary<A>>,
    /// Which calls are passed on for certain.
    pub filters: CallFilters,
    /// The last type that was none of MPI's own: its handle is never one of those.
    last_derived_type: AtomicUsize,
}

struct LoadedLibrary<A: Abi> {
    state: &'static PreloadState,
    library: &'static MpiLibrary<A>,
}

impl<A: Abi> Interceptor<A> {
    /// Not opened yet.
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
                // Another family's functions would be found by the same names.
                let all = [OpenMpi::LIBRARIES, Mpich::LIBRARIES, Standard::LIBRARIES];
                let is_other = all.into_iter().any(is_any_loaded) && !is_any_loaded(A::LIBRARIES);
                if is_other {
                    return Err(format!("this is no {}", A::NAME));
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
            let state = PreloadState::new(library, &self.filters, ProgressCallback::find(&symbols));
            LoadedLibrary { state: Box::leak(Box::new(state)), library }
        })
    }

    /// What is called after `MPI_Init`.
    pub fn after_init(&'static self) {
        self.loaded().state.begin();
    }

    /// What is called before `MPI_Finalize`.
    pub fn before_finalize(&self) {
        if let Some(loaded) = self.loaded.get().filter(|_| !is_forked()) {
            loaded.state.end();
        }
    }

    /// The process ends.
    pub fn at_exit(&self) {
        if self.loaded.get().is_none() && !is_forked() {
            // A panic has nobody to go to.
            let _ = guarded(warn_if_passed_by::<A>);
        }
    }

    /// What is called before a communicator is freed.
    pub fn before_comm_free(&self, comm: MpiHandle) {
        if let Some(loaded) = self.loaded.get().filter(|_| !is_forked()) {
            loaded.state.before_comm_free(comm);
        }
    }

    /// True if a call is the library's for certain.
    #[inline]
    pub fn passes(&self, filter: &CallFilter, size: &CallSize) -> bool {
        self.filters.passes(filter, size) || self.passes_if_short(filter, size)
    }

    /// The same of one whose types are not known, or whose length is in an array.
    #[inline(never)]
    fn passes_if_short(&self, filter: &CallFilter, size: &CallSize) -> bool {
        let Some(LoadedLibrary { library, .. }) = self.loaded.get() else { return false };
        let n_values = match size.counts {
            Some((counts, comm)) if comm != library.handles().comm_null => {
                // Between two groups they may be the other group's.
                match (library.is_inter(comm), library.rank_and_size(comm)) {
                    (Ok(false), Ok((_, size))) => counts.total(size),
                    _ => UNKNOWN,
                }
            }
            _ => size.n_values,
        };
        let mut n_bytes = 0;
        for number in size.types {
            let datatype = MpiHandle(number);
            if number != 0 && datatype != library.handles().datatype_null {
                n_bytes = n_bytes.max(self.type_size(library, datatype));
            }
        }
        self.filters.passes_bytes(filter, n_values.saturating_mul(n_bytes))
    }

    /// Bytes of a value. MPI's own types are kept for later calls.
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

    /// A collective: what it returns, or `None` if the library is to carry it out.
    pub fn collective(&self, call: &MpiCall) -> Option<c_int> {
        let LoadedLibrary { state, library } = self.loaded.get().filter(|_| !is_forked())?;
        if call.request.is_some_and(RequestPointer::is_null) {
            // For MPI to judge.
            return None;
        }
        // A call that is not waited for may come back to the library, when nobody can be told of
        // what does not fit.
        let may_come_back = call.request.is_some() && call.is_known_in_part();
        let call = match may_come_back && !library.has_large_counts() {
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
                    // SAFETY: where the program wants the request of this call.
                    unsafe { place.write::<A>(request) };
                }
                SUCCESS
            },
        );
        Some(code)
    }

    /// What a call returns of which a count is too large for a library without large counts.
    pub fn refuse_count(&self, call: &MpiCall) -> c_int {
        self.loaded.get().map_or(A::ERRORS[4], |loaded| loaded.library.refuse_count(call.comm))
    }

    /// A call with large counts as one with `int`.
    ///
    /// # Errors
    /// A number is too large.
    pub fn narrow(&self, call: &MpiCall) -> Result<NarrowedCall, CountTooLarge> {
        let mut narrow = NarrowedCall { call: *call, arrays: Vec::new() };
        let made = [&mut narrow.call.send, &mut narrow.call.recv];
        for (side, made) in [&call.send, &call.recv].into_iter().zip(made) {
            c_int::try_from(side.count).map_err(|_| CountTooLarge)?;
            for (large, made) in [(side.counts, &mut made.counts), (side.displs, &mut made.displs)]
            {
                let Some(counts @ CountArray::Large(_)) = large else { continue };
                let start = match self.narrow_counts(call, side, counts)? {
                    None => std::ptr::null(),
                    // The library may read them until the request is complete, and nobody tells us
                    // when.
                    Some(counts) if call.request.is_some() => kept_forever(counts).as_ptr(),
                    Some(counts) => {
                        let start = counts.as_ptr();
                        narrow.arrays.push(counts);
                        start
                    }
                };
                *made = Some(CountArray::Int(start));
            }
        }
        Ok(narrow)
    }

    /// An array with a number for each rank as `int`; none where the program passed none or MPI
    /// looks at none, or where nobody knows how many there are: MPI is to judge such a call.
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
        // Shares are those of the other group's ranks there.
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

/// A call with `int` that was made of one with large counts.
pub struct NarrowedCall {
    /// It.
    pub call: MpiCall,
    /// What it points to, unless that stays.
    arrays: Vec<Vec<c_int>>,
}

/// These numbers where they stay; those that were kept before are kept once.
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

/// What a function without large counts cannot do.
#[derive(Clone, Copy, Debug)]
pub struct CountTooLarge;

impl<A: Abi> Default for Interceptor<A> {
    fn default() -> Self {
        Self::new()
    }
}

/// A call of which nothing is said yet.
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

/// Where the program wants a request.
#[derive(Clone, Copy, Debug)]
pub enum RequestPointer {
    /// As C's handle.
    C(*mut c_void),
    /// As Fortran's.
    Fortran(*mut c_int),
}

impl<H> From<*mut H> for RequestPointer {
    fn from(place: *mut H) -> Self {
        Self::C(place.cast())
    }
}

impl RequestPointer {
    /// # Safety
    /// A handle of this kind may be written there.
    unsafe fn write<A: Abi>(self, request: MpiHandle) {
        let request = A::restore(request);
        // SAFETY: by the caller's promise.
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
