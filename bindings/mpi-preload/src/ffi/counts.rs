//! Arrays with a number for each rank, as C passes them: with `int`, or with large counts.

use std::ffi::c_int;

use crate::filter::UNKNOWN;

/// Lengths of all ranks' shares, or where they begin, as C passes them.
#[derive(Clone, Copy, Debug)]
pub enum CountArray {
    /// As `int`.
    Int(*const c_int),
    /// As `MPI_Count` or `MPI_Aint`.
    Large(*const i64),
}

/// What may be counted with.
pub trait CountType: Sized {
    /// An array of them, as long as the communicator has ranks.
    fn array(start: *const Self) -> CountArray;
    /// Such an array, or null if it is one of the others.
    fn start(counts: CountArray) -> *const Self;
}

impl CountType for c_int {
    fn array(start: *const Self) -> CountArray {
        CountArray::Int(start)
    }

    fn start(counts: CountArray) -> *const Self {
        match counts {
            CountArray::Int(start) => start,
            CountArray::Large(_) => std::ptr::null(),
        }
    }
}

impl CountType for i64 {
    fn array(start: *const Self) -> CountArray {
        CountArray::Large(start)
    }

    fn start(counts: CountArray) -> *const Self {
        match counts {
            CountArray::Int(_) => std::ptr::null(),
            CountArray::Large(start) => start,
        }
    }
}

/// Where such an array begins; null without one.
#[must_use]
pub fn start<N: CountType>(counts: Option<CountArray>) -> *const N {
    counts.map_or(std::ptr::null(), N::start)
}

impl CountArray {
    /// An array of them, as long as the communicator has ranks.
    #[must_use]
    pub fn of<N: CountType>(start: *const N) -> Self {
        N::array(start)
    }

    /// Where they lie.
    pub(crate) fn addr(self) -> usize {
        match self {
            Self::Int(start) => start.addr(),
            Self::Large(start) => start.addr(),
        }
    }

    /// All of so many ranks together; at least [`UNKNOWN`] if one is negative or there is no array.
    pub(crate) fn total(self, size: usize) -> u64 {
        let numbers = self.numbers(size);
        numbers.map_or(UNKNOWN, |all| all.map(|n| n as u64).fold(0, u64::saturating_add))
    }

    /// Those of so many ranks; `None`: there is no array.
    pub(crate) fn read(self, size: usize) -> Option<Vec<i64>> {
        self.numbers(size).map(Iterator::collect)
    }

    fn numbers(self, size: usize) -> Option<impl Iterator<Item = i64>> {
        // SAFETY: the program called a collective with this array, which has a count for each rank.
        let number = move |rank| unsafe {
            match self {
                Self::Int(start) => start.add(rank).read().into(),
                Self::Large(start) => start.add(rank).read(),
            }
        };
        (self.addr() != 0).then(|| (0..size).map(number))
    }
}
