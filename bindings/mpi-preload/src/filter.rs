//! Which calls are the MPI library's for certain, before anything else is asked: an entry compares
//! two numbers, counts, and jumps. A call that is not certain is looked at (`state`).
//!
//! Looking at a call that is passed on here would end in the same way, by what is equal on all
//! ranks. So ranks may differ: one passes a call on at once, another looks at the same call first.
//!
//! Cost: some nanoseconds. MPI libraries reduce a single value in less than 200.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use foldwire::schedule::Collective;

use crate::comm_state::locked;
use crate::decide::{COLLECTIVES, PassReason, index_of};
use crate::ffi::abi::MpiHandle;
use crate::ffi::counts::CountArray;

const N_COLLECTIVES: usize = COLLECTIVES.len();
const N_KEPT_TYPES: usize = 64;
/// Bytes of the longest types that are kept.
const MAX_TYPE_BYTES: usize = 16;

/// The calls of one collective that are waited for in the call, or those that are not.
#[derive(Debug)]
pub struct CallFilter {
    /// Calls of fewer bytes are passed on.
    min_bytes: AtomicU64,
    /// Calls on fewer values of a type that is kept are passed on. 0: every call is looked at.
    /// [`ALL_UNCOUNTED`]: all are passed on, and not counted.
    min_values: AtomicU64,
    reason: AtomicUsize,
    n_passed: AtomicU64,
}

const ALL_UNCOUNTED: u64 = u64::MAX;
/// More than any call has: all are passed on.
pub const ALL: u64 = u64::MAX - 1;
/// Stands for a number of values that no argument says.
pub const UNKNOWN: u64 = u64::MAX - 2;

impl CallFilter {
    const fn new() -> Self {
        Self {
            min_bytes: AtomicU64::new(0),
            min_values: AtomicU64::new(ALL_UNCOUNTED),
            reason: AtomicUsize::new(0),
            n_passed: AtomicU64::new(0),
        }
    }

    /// True if all calls are passed on, and nobody counts them.
    #[inline]
    pub fn passes_all_uncounted(&self) -> bool {
        self.min_values.load(Ordering::Relaxed) == ALL_UNCOUNTED
    }

    /// True if a call of so many bytes is passed on.
    fn passes_bytes_uncounted(&self, n_bytes: u64) -> bool {
        self.min_values.load(Ordering::Relaxed) > 0
            && n_bytes < self.min_bytes.load(Ordering::Relaxed)
    }

    fn pass_all_uncounted(&self) {
        self.min_values.store(ALL_UNCOUNTED, Ordering::Relaxed);
    }

    fn set_paused(&self, is_paused: bool) {
        if !self.passes_all_uncounted() {
            let min_values = match self.min_bytes.load(Ordering::Relaxed) {
                _ if is_paused => 0,
                ALL => ALL,
                min_bytes => min_bytes / MAX_TYPE_BYTES as u64,
            };
            self.min_values.store(min_values, Ordering::Relaxed);
        }
    }
}

/// How much a call is about, as far as its arguments say it without a question to MPI.
#[derive(Clone, Copy, Debug)]
pub struct CallSize {
    collective: Collective,
    /// Values of the logical array, at most.
    pub(crate) n_values: u64,
    pub(crate) types: [usize; 2],
    /// An array with a number for each rank of this communicator, in place of them.
    pub(crate) counts: Option<(CountArray, MpiHandle)>,
}

impl CallSize {
    /// A call of this collective, of which nothing else is said yet.
    #[must_use]
    #[inline]
    pub const fn of(collective: Collective) -> Self {
        Self { collective, n_values: 0, types: [0; 2], counts: None }
    }

    /// It is on so many values.
    #[inline]
    pub fn values(&mut self, count: impl Into<i64>) {
        self.n_values = count.into() as u64;
    }

    /// It is on so many of each rank; of two numbers one may mean nothing.
    #[inline]
    pub fn shares(&mut self, filters: &CallFilters, count: impl Into<i64>) {
        self.n_values = self.n_values.max(filters.for_all_ranks(count.into())).min(UNKNOWN);
    }

    /// The call is on values of this type, beside the one that was said.
    #[inline]
    pub const fn datatype(&mut self, datatype: MpiHandle) {
        let [_, other] = self.types;
        self.types = [datatype.0, if other == 0 { datatype.0 } else { other }];
    }

    /// It is on as many of each rank as this array says.
    #[inline]
    pub const fn counts(&mut self, counts: CountArray) {
        self.n_values = UNKNOWN;
        // Of others each rank knows a part, and may have no array.
        if matches!(self.collective, Collective::AllGather | Collective::ReduceScatter) {
            self.counts = Some((counts, MpiHandle(0)));
        }
    }

    /// On this communicator.
    #[inline]
    pub fn comm(&mut self, comm: impl FnOnce() -> MpiHandle) {
        if let Some((_, known)) = &mut self.counts {
            *known = comm();
        }
    }
}

/// All gates of a library. They are shut before `MPI_Init` and after `MPI_Finalize`.
#[derive(Debug)]
pub struct CallFilters {
    filters: [[CallFilter; N_COLLECTIVES]; 2],
    /// MPI's own types that were seen. Nobody frees those.
    types: [AtomicUsize; N_KEPT_TYPES],
    n_ranks: AtomicU64,
    /// True if threads may be in MPI at once, so that counting takes longer.
    is_shared: AtomicBool,
    /// Communicators whose next call has to be looked at, however short it is.
    n_setups_due: Mutex<usize>,
}

impl CallFilters {
    /// All of them shut.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            filters: [const { [const { CallFilter::new() }; N_COLLECTIVES] }; 2],
            types: [const { AtomicUsize::new(0) }; N_KEPT_TYPES],
            n_ranks: AtomicU64::new(1),
            is_shared: AtomicBool::new(true),
            n_setups_due: Mutex::new(0),
        }
    }

    /// The gate of a collective.
    #[inline]
    pub const fn of(&self, collective: Collective, is_nonblocking: bool) -> &CallFilter {
        &self.filters[is_nonblocking as usize][index_of(collective)]
    }

    /// Counts a call if it is passed on for certain: it has so many values, and is of types that
    /// are kept. A type that the call does not use may be anything.
    #[inline]
    pub fn passes(&self, filter: &CallFilter, size: &CallSize) -> bool {
        let is_known =
            |number: usize| self.types[type_slot(number)].load(Ordering::Relaxed) == number;
        let [first, second] = size.types;
        let passes = size.n_values < filter.min_values.load(Ordering::Relaxed)
            && is_known(first)
            && (first == second || is_known(second));
        if passes {
            self.count(filter);
        }
        passes
    }

    /// The same of one whose values have so many bytes.
    pub fn passes_bytes(&self, filter: &CallFilter, n_bytes: u64) -> bool {
        let passes = filter.passes_bytes_uncounted(n_bytes);
        if passes {
            self.count(filter);
        }
        passes
    }

    #[inline]
    fn count(&self, filter: &CallFilter) {
        if self.is_shared.load(Ordering::Relaxed) {
            filter.n_passed.fetch_add(1, Ordering::Relaxed);
        } else {
            // Sooner done.
            let n_passed = filter.n_passed.load(Ordering::Relaxed);
            filter.n_passed.store(n_passed + 1, Ordering::Relaxed);
        }
    }

    /// The values of all ranks, if each has so many; a negative number is no small one.
    #[inline]
    pub fn for_all_ranks(&self, count: i64) -> u64 {
        (count as u64).saturating_mul(self.n_ranks.load(Ordering::Relaxed))
    }

    /// Sets the number of ranks, and whether they have threads.
    pub fn set_ranks(&self, n_ranks: usize, is_shared: bool) {
        self.n_ranks.store(n_ranks as u64, Ordering::Relaxed);
        self.is_shared.store(is_shared, Ordering::Relaxed);
    }

    /// From now on a gate passes on calls of fewer bytes, for this reason.
    pub fn set_threshold(
        &self,
        collective: Collective,
        is_nonblocking: bool,
        (min_bytes, reason): (u64, PassReason),
    ) {
        let filter = self.of(collective, is_nonblocking);
        filter.reason.store(reason as usize, Ordering::Relaxed);
        filter.min_bytes.store(min_bytes.min(ALL), Ordering::Relaxed);
        filter.min_values.store(0, Ordering::Relaxed);
        filter.set_paused(*locked(&self.n_setups_due) > 0);
    }

    /// One more communicator whose next call has to be looked at, or one less.
    pub fn set_setup_due(&self, is_due: bool) {
        let mut n_setups_due = locked(&self.n_setups_due);
        *n_setups_due = if is_due { *n_setups_due + 1 } else { n_setups_due.saturating_sub(1) };
        self.filters.iter().flatten().for_each(|filter| filter.set_paused(*n_setups_due > 0));
    }

    /// Shuts all.
    pub fn pass_all_uncounted(&self) {
        self.filters.iter().flatten().for_each(CallFilter::pass_all_uncounted);
    }

    /// Keeps a type of MPI's own, which stays.
    pub fn keep_type(&self, number: usize, n_bytes: usize) {
        if n_bytes <= MAX_TYPE_BYTES {
            self.types[type_slot(number)].store(number, Ordering::Relaxed);
        }
    }

    /// How many calls were passed on here, and why.
    pub fn passed(&self) -> impl Iterator<Item = (PassReason, u64)> {
        self.filters.iter().flatten().map(|filter| {
            let reason = PassReason::ALL[filter.reason.load(Ordering::Relaxed)];
            (reason, filter.n_passed.load(Ordering::Relaxed))
        })
    }
}

impl Default for CallFilters {
    fn default() -> Self {
        Self::new()
    }
}

/// The place where a type is kept. Handles are addresses, or numbers that differ in few bits.
#[inline]
const fn type_slot(number: usize) -> usize {
    ((number as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 58) as usize % N_KEPT_TYPES
}
