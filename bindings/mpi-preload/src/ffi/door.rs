//! Where the program comes in: one [`Door`] in each library for `LD_PRELOAD`, through which all
//! functions that it exports go.
//!
//! A call meets a gate first, which costs some nanoseconds ([`gates`](crate::gates)). The rest
//! of this package decides about calls that it does not pass on.

use std::collections::BTreeSet;
use std::ffi::{c_int, c_void};
use std::process;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock};

pub use foldwire::schedule::Collective;

use super::abi::{Abi, Handle, Mpich, OpenMpi, Standard};
use super::counts::Counts;
use super::fork::is_forked;
use super::fortran::REQUEST;
use super::library::{Communicators, Library, Mpi, SUCCESS};
use super::next::warn_if_passed_by;
use super::progress::Progress;
use super::symbols::{Symbols, is_any_loaded};
pub use crate::call::{Call, Passed};
pub use crate::gates::{Gate, Weight};
use crate::gates::{Gates, UNKNOWN};
use crate::guard::guarded;
use crate::shadow::locked;
use crate::signature::Datatypes;
use crate::state::State;

/// The MPI library that the program has loaded, and what we keep beside it.
pub struct Door<A: Abi> {
    inside: OnceLock<Inside<A>>,
    /// Which calls are passed on for certain.
    pub gates: Gates,
    /// The last type that was none of MPI's own: its handle is never one of those.
    made_type: AtomicUsize,
}

struct Inside<A: Abi> {
    state: &'static State,
    library: &'static Library<A>,
}

impl<A: Abi> Door<A> {
    /// Not opened yet.
    #[must_use]
    pub const fn new() -> Self {
        Self { inside: OnceLock::new(), gates: Gates::new(), made_type: AtomicUsize::new(0) }
    }

    fn inside(&'static self) -> &'static Inside<A> {
        self.inside.get_or_init(|| {
            let symbols = Symbols::of(A::LIBRARIES);
            let found = guarded(|| {
                // Another family's functions would be found by the same names.
                let all = [OpenMpi::LIBRARIES, Mpich::LIBRARIES, Standard::LIBRARIES];
                let is_other = all.into_iter().any(is_any_loaded) && !is_any_loaded(A::LIBRARIES);
                if is_other {
                    return Err(format!("this is no {}", A::NAME));
                }
                Library::find(&symbols)
            });
            let library = found.unwrap_or_else(|_| Err("a panic".into())).unwrap_or_else(|why| {
                eprintln!("foldwire: error: {why}; is this preloaded under another library?");
                process::exit(1)
            });
            let library: &'static Library<A> = Box::leak(Box::new(library));
            let state = State::new(library, &self.gates, Progress::find(&symbols));
            Inside { state: Box::leak(Box::new(state)), library }
        })
    }

    /// What is called after `MPI_Init`.
    pub fn begin(&'static self) {
        self.inside().state.begin();
    }

    /// What is called before `MPI_Finalize`.
    pub fn end(&self) {
        if let Some(inside) = self.inside.get().filter(|_| !is_forked()) {
            inside.state.end();
        }
    }

    /// The process ends.
    pub fn at_exit(&self) {
        if self.inside.get().is_none() && !is_forked() {
            // A panic has nobody to go to.
            let _ = guarded(warn_if_passed_by::<A>);
        }
    }

    /// What is called before a communicator is freed.
    pub fn forget(&self, comm: Handle) {
        if let Some(inside) = self.inside.get().filter(|_| !is_forked()) {
            inside.state.forget(comm);
        }
    }

    /// True if a call is the library's for certain.
    #[inline]
    pub fn passes(&self, gate: &Gate, weight: &Weight) -> bool {
        self.gates.passes(gate, weight) || self.passes_if_short(gate, weight)
    }

    /// The same of one whose types are not known, or whose length is in an array.
    #[inline(never)]
    fn passes_if_short(&self, gate: &Gate, weight: &Weight) -> bool {
        let Some(Inside { library, .. }) = self.inside.get() else { return false };
        let n_values = match weight.counts {
            Some((counts, comm)) if comm != library.own().comm_null => {
                // Between two groups they may be the other group's.
                match (library.is_inter(comm), library.rank_and_size(comm)) {
                    (Ok(false), Ok((_, size))) => counts.total(size),
                    _ => UNKNOWN,
                }
            }
            _ => weight.n_values,
        };
        let mut n_bytes = 0;
        for number in weight.types {
            let datatype = Handle(number);
            if number != 0 && datatype != library.own().datatype_null {
                n_bytes = n_bytes.max(self.type_size(library, datatype));
            }
        }
        self.gates.passes_bytes(gate, n_values.saturating_mul(n_bytes))
    }

    /// Bytes of a value. MPI's own types are kept for later calls.
    fn type_size(&self, library: &Library<A>, datatype: Handle) -> u64 {
        let Ok(n_bytes) = Datatypes::n_bytes(library, datatype) else { return u64::MAX };
        if self.made_type.load(Ordering::Relaxed) != datatype.number() {
            match library.is_named(datatype) {
                Ok(true) => self.gates.keep_type(datatype.number(), n_bytes),
                _ => self.made_type.store(datatype.number(), Ordering::Relaxed),
            }
        }
        n_bytes as u64
    }

    /// A collective: what it returns, or `None` if the library is to carry it out.
    pub fn collective(&self, call: &Call) -> Option<c_int> {
        let Inside { state, library } = self.inside.get().filter(|_| !is_forked())?;
        if call.request.is_some_and(Place::is_null) {
            // For MPI to judge.
            return None;
        }
        // A call that is not waited for may come back to the library, when nobody can be told of
        // what does not fit.
        let may_come_back = call.request.is_some() && call.is_known_in_part();
        let call = match may_come_back && !library.has_large_counts() {
            true => match self.narrow(call) {
                Ok(narrow) => narrow.call,
                Err(DoesNotFit) => return Some(self.refuse_count(call)),
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
    pub fn refuse_count(&self, call: &Call) -> c_int {
        self.inside.get().map_or(A::ERRORS[4], |inside| inside.library.refuse_count(call.comm))
    }

    /// A call with large counts as one with `int`.
    ///
    /// # Errors
    /// A number is too large.
    pub fn narrow(&self, call: &Call) -> Result<Narrow, DoesNotFit> {
        let mut narrow = Narrow { call: *call, arrays: Vec::new() };
        let made = [&mut narrow.call.send, &mut narrow.call.recv];
        for (side, made) in [&call.send, &call.recv].into_iter().zip(made) {
            c_int::try_from(side.count).map_err(|_| DoesNotFit)?;
            for (large, made) in [(side.counts, &mut made.counts), (side.places, &mut made.places)]
            {
                let Some(counts @ Counts::Large(_)) = large else { continue };
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
                *made = Some(Counts::Int(start));
            }
        }
        Ok(narrow)
    }

    /// An array with a number for each rank as `int`; none where the program passed none or MPI
    /// looks at none, or where nobody knows how many there are: MPI is to judge such a call.
    fn narrow_counts(
        &self,
        call: &Call,
        side: &Passed,
        counts: Counts,
    ) -> Result<Option<Vec<c_int>>, DoesNotFit> {
        let Some(Inside { library, .. }) = self.inside.get() else { return Ok(None) };
        if call.comm == library.own().comm_null || side.start.addr() == A::IN_PLACE {
            return Ok(None);
        }
        let Ok((rank, size)) = library.rank_and_size(call.comm) else { return Ok(None) };
        // Shares are those of the other group's ranks there.
        let is_inter = side.places.is_some() && library.is_inter(call.comm) == Ok(true);
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
        let narrow = |count| c_int::try_from(count).map_err(|_| DoesNotFit);
        counts.into_iter().map(narrow).collect::<Result<_, _>>().map(Some)
    }
}

/// A call with `int` that was made of one with large counts.
pub struct Narrow {
    /// It.
    pub call: Call,
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
pub struct DoesNotFit;

impl<A: Abi> Default for Door<A> {
    fn default() -> Self {
        Self::new()
    }
}

/// A call of which nothing is said yet.
#[must_use]
pub const fn call(collective: Collective) -> Call {
    let nothing = Passed {
        start: std::ptr::null_mut(),
        count: 0,
        datatype: Handle(0),
        counts: None,
        places: None,
    };
    let (op, comm) = (Handle(0), Handle(0));
    Call { collective, send: nothing, recv: nothing, op, root: 0, comm, request: None }
}

/// Where the program wants a request.
#[derive(Clone, Copy, Debug)]
pub enum Place {
    /// As C's handle.
    C(*mut c_void),
    /// As Fortran's.
    Fortran(*mut c_int),
}

impl<H> From<*mut H> for Place {
    fn from(place: *mut H) -> Self {
        Self::C(place.cast())
    }
}

impl Place {
    /// # Safety
    /// A handle of this kind may be written there.
    unsafe fn write<A: Abi>(self, request: Handle) {
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
