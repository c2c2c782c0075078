//! Fast filter for calls that certainly go to the MPI library. An exported function compares two
//! numbers, increments a counter and jumps. `state` inspects the other calls.
//!
//! A full inspection of such a call would reach the same result, from facts that are equal on all
//! ranks. So one rank may pass the call on here while another rank inspects it. For this the size
//! here must never be below the bytes of the whole logical array, from which the inspection
//! decides. If a rank may know only a part of the call's counts, an inspection may begin with an
//! agreement of all ranks. The filter passes on such calls only if it passes on all calls.
//!
//! The filter costs a few nanoseconds. For comparison: MPI libraries reduce a single value in less
//! than 200 ns.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use foldwire::schedule::Collective;

use crate::comm_state::locked;
use crate::decide::{COLLECTIVES, PassReason, index_of};
use crate::ffi::abi::MpiHandle;

const N_COLLECTIVES: usize = COLLECTIVES.len();
const N_KEPT_TYPES: usize = 64;
/// Bytes of the longest predefined datatypes that the filters keep.
const MAX_TYPE_BYTES: usize = 16;

/// Filter for the blocking or the non-blocking calls of one collective.
#[derive(Debug)]
pub struct CallFilter {
    /// Calls of fewer bytes are passed on.
    min_bytes: AtomicU64,
    /// Calls on fewer values of a kept datatype are passed on. 0: every call is inspected.
    /// [`ALL_UNCOUNTED`]: all calls are passed on and not counted.
    min_values: AtomicU64,
    reason: AtomicUsize,
    n_passed: AtomicU64,
}

const ALL_UNCOUNTED: u64 = u64::MAX;
/// Threshold above every length: all calls are passed on and counted.
pub const ALL: u64 = u64::MAX - 1;
/// Number of values of a call whose arguments do not contain the number.
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

    /// True if all calls are passed on without being counted.
    #[inline]
    pub fn passes_all_uncounted(&self) -> bool {
        self.min_values.load(Ordering::Relaxed) == ALL_UNCOUNTED
    }

    /// Returns whether a call of `n_bytes` bytes is passed on.
    pub(crate) fn passes_bytes_uncounted(&self, n_bytes: u64) -> bool {
        self.min_values.load(Ordering::Relaxed) > 0
            && n_bytes < self.min_bytes.load(Ordering::Relaxed)
    }

    fn pass_all_uncounted(&self) {
        self.min_values.store(ALL_UNCOUNTED, Ordering::Relaxed);
    }

    /// While paused, the filter passes no call on, so that every call is inspected.
    fn set_paused(&self, is_paused: bool) {
        if !self.passes_all_uncounted() {
            let min_values = match self.min_bytes.load(Ordering::Relaxed) {
                _ if is_paused => 0,
                ALL => ALL,
                // Fewer values of any kept datatype have fewer than `min_bytes` bytes.
                min_bytes => min_bytes / MAX_TYPE_BYTES as u64,
            };
            self.min_values.store(min_values, Ordering::Relaxed);
        }
    }
}

/// Size of a call, from its arguments alone, without calls to MPI.
#[derive(Clone, Copy, Debug)]
pub struct CallSize {
    collective: Collective,
    /// Number of values in the logical array, or more.
    pub(crate) n_values: u64,
    /// Numbers of the datatype arguments' handles.
    types: [usize; 2],
}

impl CallSize {
    /// Size of a call of this collective, before its arguments are set.
    #[must_use]
    #[inline]
    pub const fn of(collective: Collective) -> Self {
        Self { collective, n_values: 0, types: [0; 2] }
    }

    /// Sets the only number of values: that of the array, or in a reduce-scatter that of each
    /// rank's share.
    #[inline]
    pub fn values(&mut self, filters: &CallFilters, count: impl Into<i64>) {
        match self.collective {
            Collective::ReduceScatter => self.shares(filters, count),
            _ => self.n_values = count.into() as u64,
        }
    }

    /// Sets the number of values in each rank's share. A call may have two such arguments. The
    /// larger one counts, since the other may be insignificant.
    #[inline]
    pub fn shares(&mut self, filters: &CallFilters, count: impl Into<i64>) {
        self.n_values = self.n_values.max(filters.for_all_ranks(count.into())).min(UNKNOWN);
    }

    /// Adds a datatype.
    #[inline]
    pub const fn datatype(&mut self, datatype: MpiHandle) {
        let [_, other] = self.types;
        self.types = [datatype.0, if other == 0 { datatype.0 } else { other }];
    }

    /// Records that the number of values is in an array, which may be insignificant on this rank.
    #[inline]
    pub const fn counts(&mut self) {
        self.n_values = UNKNOWN;
    }
}

/// Filters for all collectives of a library. Before `MPI_Init` and after `MPI_Finalize` they pass
/// on all calls without counting them.
#[derive(Debug)]
pub struct CallFilters {
    filters: [[CallFilter; N_COLLECTIVES]; 2],
    /// Predefined datatypes in use. They are never freed.
    types: [AtomicUsize; N_KEPT_TYPES],
    /// Number of ranks of `MPI_COMM_WORLD`.
    n_ranks: AtomicU64,
    /// True if several threads may be in MPI at once, so that counters need atomic increments.
    is_shared: AtomicBool,
    /// Number of communicators whose next blocking call must be inspected, however short it is.
    n_setups_due: Mutex<usize>,
}

impl CallFilters {
    /// Filters that pass on all calls without counting them.
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

    /// Filter of a collective.
    #[inline]
    pub const fn of(&self, collective: Collective, is_nonblocking: bool) -> &CallFilter {
        &self.filters[is_nonblocking as usize][index_of(collective)]
    }

    /// Counts the call and returns true if it is passed on for certain: all calls are, or it has
    /// few values and its datatypes are kept ones. An insignificant datatype argument may hold any
    /// value, so an unknown one only causes an inspection.
    #[inline]
    pub fn passes(&self, filter: &CallFilter, size: &CallSize) -> bool {
        let is_known =
            |number: usize| self.types[type_slot(number)].load(Ordering::Relaxed) == number;
        let [first, second] = size.types;
        let min_values = filter.min_values.load(Ordering::Relaxed);
        let passes = size.n_values < min_values
            && ((is_known(first) && (first == second || is_known(second))) || min_values == ALL);
        if passes {
            self.count(filter);
        }
        passes
    }

    /// Counts the call and returns true if a call of `n_bytes` bytes is passed on for certain.
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
            // Faster than an atomic increment.
            let n_passed = filter.n_passed.load(Ordering::Relaxed);
            filter.n_passed.store(n_passed + 1, Ordering::Relaxed);
        }
    }

    /// Number of values of all ranks if each has `count`. A negative count becomes a huge number.
    #[inline]
    pub fn for_all_ranks(&self, count: i64) -> u64 {
        (count as u64).saturating_mul(self.n_ranks.load(Ordering::Relaxed))
    }

    /// Sets the number of ranks, and whether several threads may be in MPI at once.
    pub fn set_ranks(&self, n_ranks: usize, is_shared: bool) {
        self.n_ranks.store(n_ranks as u64, Ordering::Relaxed);
        self.is_shared.store(is_shared, Ordering::Relaxed);
    }

    /// Makes the filter pass on and count calls of fewer than `min_bytes` bytes, for this reason.
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

    /// Adds or removes a communicator whose next blocking call must be inspected.
    pub fn set_setup_due(&self, is_due: bool) {
        let mut n_setups_due = locked(&self.n_setups_due);
        *n_setups_due = if is_due { *n_setups_due + 1 } else { n_setups_due.saturating_sub(1) };
        self.filters.iter().flatten().for_each(|filter| filter.set_paused(*n_setups_due > 0));
    }

    /// Makes all filters pass on all calls without counting them.
    pub fn pass_all_uncounted(&self) {
        self.filters.iter().flatten().for_each(CallFilter::pass_all_uncounted);
    }

    /// Keeps a predefined datatype, which is never freed.
    pub fn keep_type(&self, number: usize, n_bytes: usize) {
        if n_bytes <= MAX_TYPE_BYTES {
            self.types[type_slot(number)].store(number, Ordering::Relaxed);
        }
    }

    /// Numbers of calls that each filter passed on, with the reason.
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

/// Slot of a kept datatype. Handles are addresses, or numbers that differ in few bits.
#[inline]
const fn type_slot(number: usize) -> usize {
    ((number as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 58) as usize % N_KEPT_TYPES
}
