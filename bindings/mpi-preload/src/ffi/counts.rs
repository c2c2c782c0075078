//! Arrays with a number for each rank, of `int` or of large counts.

use std::ffi::c_int;

use crate::filter::UNKNOWN;

/// Array of counts or displacements from the program.
#[derive(Clone, Copy, Debug)]
pub enum CountArray {
    /// Array of `int`.
    Int(*const c_int),
    /// Array of `MPI_Count` or `MPI_Aint`.
    Large(*const i64),
}

/// Integer type of counts.
pub trait CountType: Sized {
    /// Wraps an array with a number for each rank of the communicator.
    fn array(start: *const Self) -> CountArray;
    /// Start of the array, or null if it has the other type.
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

/// Start of the array; null if there is none.
#[must_use]
pub fn start<N: CountType>(counts: Option<CountArray>) -> *const N {
    counts.map_or(std::ptr::null(), N::start)
}

impl CountArray {
    /// Wraps an array with a number for each rank of the communicator.
    #[must_use]
    pub fn of<N: CountType>(start: *const N) -> Self {
        N::array(start)
    }

    /// Address of the array.
    pub(crate) fn addr(self) -> usize {
        match self {
            Self::Int(start) => start.addr(),
            Self::Large(start) => start.addr(),
        }
    }

    /// Sum over `size` ranks; at least [`UNKNOWN`] if a count is negative or the array is missing.
    pub(crate) fn total(self, size: usize) -> u64 {
        let numbers = self.numbers(size);
        numbers.map_or(UNKNOWN, |all| all.map(|n| n as u64).fold(0, u64::saturating_add))
    }

    /// Numbers of `size` ranks; `None` if the array is missing.
    pub(crate) fn read(self, size: usize) -> Option<Vec<i64>> {
        self.numbers(size).map(Iterator::collect)
    }

    fn numbers(self, size: usize) -> Option<impl Iterator<Item = i64>> {
        // SAFETY: the program passed this array to a collective, so it has a number for each rank.
        let number = move |rank| unsafe {
            match self {
                Self::Int(start) => start.add(rank).read().into(),
                Self::Large(start) => start.add(rank).read(),
            }
        };
        (self.addr() != 0).then(|| (0..size).map(number))
    }
}
