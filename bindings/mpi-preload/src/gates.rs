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

use crate::decide::{COLLECTIVES, Why, place};
use crate::ffi::abi::Handle;
use crate::ffi::counts::Counts;
use crate::shadow::locked;

const N_COLLECTIVES: usize = COLLECTIVES.len();
const N_TYPES: usize = 64;
/// Bytes of the longest types that are kept.
const LONGEST: usize = 16;

/// The calls of one collective that are waited for in the call, or those that are not.
#[derive(Debug)]
pub struct Gate {
    /// Calls of fewer bytes are passed on.
    fewest: AtomicU64,
    /// Calls on fewer values of a type that is kept are passed on. 0: every call is looked at.
    /// [`SHUT`]: all are passed on, and not counted.
    fewest_values: AtomicU64,
    why: AtomicUsize,
    n_passed: AtomicU64,
}

const SHUT: u64 = u64::MAX;
/// More than any call has: all are passed on.
pub const ALL: u64 = u64::MAX - 1;
/// Stands for a number of values that no argument says.
pub const UNKNOWN: u64 = u64::MAX - 2;

impl Gate {
    const fn new() -> Self {
        Self {
            fewest: AtomicU64::new(0),
            fewest_values: AtomicU64::new(SHUT),
            why: AtomicUsize::new(0),
            n_passed: AtomicU64::new(0),
        }
    }

    /// True if all calls are passed on, and nobody counts them.
    #[inline]
    pub fn is_shut(&self) -> bool {
        self.fewest_values.load(Ordering::Relaxed) == SHUT
    }

    /// True if a call of so many bytes is passed on.
    fn is_short(&self, n_bytes: u64) -> bool {
        self.fewest_values.load(Ordering::Relaxed) > 0
            && n_bytes < self.fewest.load(Ordering::Relaxed)
    }

    fn shut(&self) {
        self.fewest_values.store(SHUT, Ordering::Relaxed);
    }

    fn pause(&self, is_paused: bool) {
        if !self.is_shut() {
            let fewest_values = match self.fewest.load(Ordering::Relaxed) {
                _ if is_paused => 0,
                ALL => ALL,
                fewest => fewest / LONGEST as u64,
            };
            self.fewest_values.store(fewest_values, Ordering::Relaxed);
        }
    }
}

/// How much a call is about, as far as its arguments say it without a question to MPI.
#[derive(Clone, Copy, Debug)]
pub struct Weight {
    collective: Collective,
    /// Values of the logical array, at most.
    pub(crate) n_values: u64,
    pub(crate) types: [usize; 2],
    /// An array with a number for each rank of this communicator, in place of them.
    pub(crate) counts: Option<(Counts, Handle)>,
}

impl Weight {
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
    pub fn shares(&mut self, gates: &Gates, count: impl Into<i64>) {
        self.n_values = self.n_values.max(gates.of_all(count.into())).min(UNKNOWN);
    }

    /// The call is on values of this type, beside the one that was said.
    #[inline]
    pub const fn datatype(&mut self, datatype: Handle) {
        let [_, other] = self.types;
        self.types = [datatype.0, if other == 0 { datatype.0 } else { other }];
    }

    /// It is on as many of each rank as this array says.
    #[inline]
    pub const fn counts(&mut self, counts: Counts) {
        self.n_values = UNKNOWN;
        // Of others each rank knows a part, and may have no array.
        if matches!(self.collective, Collective::AllGather | Collective::ReduceScatter) {
            self.counts = Some((counts, Handle(0)));
        }
    }

    /// On this communicator.
    #[inline]
    pub fn comm(&mut self, comm: impl FnOnce() -> Handle) {
        if let Some((_, known)) = &mut self.counts {
            *known = comm();
        }
    }
}

/// All gates of a library. They are shut before `MPI_Init` and after `MPI_Finalize`.
#[derive(Debug)]
pub struct Gates {
    gates: [[Gate; N_COLLECTIVES]; 2],
    /// MPI's own types that were seen. Nobody frees those.
    types: [AtomicUsize; N_TYPES],
    n_ranks: AtomicU64,
    /// True if threads may be in MPI at once, so that counting takes longer.
    is_shared: AtomicBool,
    /// Communicators whose next call has to be looked at, however short it is.
    n_wanted: Mutex<usize>,
}

impl Gates {
    /// All of them shut.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            gates: [const { [const { Gate::new() }; N_COLLECTIVES] }; 2],
            types: [const { AtomicUsize::new(0) }; N_TYPES],
            n_ranks: AtomicU64::new(1),
            is_shared: AtomicBool::new(true),
            n_wanted: Mutex::new(0),
        }
    }

    /// The gate of a collective.
    #[inline]
    pub const fn of(&self, collective: Collective, is_ahead: bool) -> &Gate {
        &self.gates[is_ahead as usize][place(collective)]
    }

    /// Counts a call if it is passed on for certain: it has so many values, and is of types that
    /// are kept. A type that the call does not use may be anything.
    #[inline]
    pub fn passes(&self, gate: &Gate, weight: &Weight) -> bool {
        let is_known = |number: usize| self.types[slot(number)].load(Ordering::Relaxed) == number;
        let [first, second] = weight.types;
        let passes = weight.n_values < gate.fewest_values.load(Ordering::Relaxed)
            && is_known(first)
            && (first == second || is_known(second));
        if passes {
            self.count(gate);
        }
        passes
    }

    /// The same of one whose values have so many bytes.
    pub fn passes_bytes(&self, gate: &Gate, n_bytes: u64) -> bool {
        let passes = gate.is_short(n_bytes);
        if passes {
            self.count(gate);
        }
        passes
    }

    #[inline]
    fn count(&self, gate: &Gate) {
        if self.is_shared.load(Ordering::Relaxed) {
            gate.n_passed.fetch_add(1, Ordering::Relaxed);
        } else {
            // Sooner done.
            let n_passed = gate.n_passed.load(Ordering::Relaxed);
            gate.n_passed.store(n_passed + 1, Ordering::Relaxed);
        }
    }

    /// The values of all ranks, if each has so many; a negative number is no small one.
    #[inline]
    pub fn of_all(&self, count: i64) -> u64 {
        (count as u64).saturating_mul(self.n_ranks.load(Ordering::Relaxed))
    }

    /// Sets the number of ranks, and whether they have threads.
    pub fn begin(&self, n_ranks: usize, is_shared: bool) {
        self.n_ranks.store(n_ranks as u64, Ordering::Relaxed);
        self.is_shared.store(is_shared, Ordering::Relaxed);
    }

    /// From now on a gate passes on calls of fewer bytes, for this reason.
    pub fn open(&self, collective: Collective, is_ahead: bool, (fewest, why): (u64, Why)) {
        let gate = self.of(collective, is_ahead);
        gate.why.store(why as usize, Ordering::Relaxed);
        gate.fewest.store(fewest.min(ALL), Ordering::Relaxed);
        gate.fewest_values.store(0, Ordering::Relaxed);
        gate.pause(*locked(&self.n_wanted) > 0);
    }

    /// One more communicator whose next call has to be looked at, or one less.
    pub fn want(&self, is_wanted: bool) {
        let mut n_wanted = locked(&self.n_wanted);
        *n_wanted = if is_wanted { *n_wanted + 1 } else { n_wanted.saturating_sub(1) };
        self.gates.iter().flatten().for_each(|gate| gate.pause(*n_wanted > 0));
    }

    /// Shuts all.
    pub fn shut(&self) {
        self.gates.iter().flatten().for_each(Gate::shut);
    }

    /// Keeps a type of MPI's own, which stays.
    pub fn keep_type(&self, number: usize, n_bytes: usize) {
        if n_bytes <= LONGEST {
            self.types[slot(number)].store(number, Ordering::Relaxed);
        }
    }

    /// How many calls were passed on here, and why.
    pub fn passed(&self) -> impl Iterator<Item = (Why, u64)> {
        self.gates.iter().flatten().map(|gate| {
            let why = Why::ALL[gate.why.load(Ordering::Relaxed)];
            (why, gate.n_passed.load(Ordering::Relaxed))
        })
    }
}

impl Default for Gates {
    fn default() -> Self {
        Self::new()
    }
}

/// The place where a type is kept. Handles are addresses, or numbers that differ in few bits.
#[inline]
const fn slot(number: usize) -> usize {
    ((number as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 58) as usize % N_TYPES
}
