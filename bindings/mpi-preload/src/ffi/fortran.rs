//! Conversion of Fortran arguments. Handles are integers, and C's special addresses are variables.

use std::ffi::{CStr, c_int, c_void};
use std::mem;
use std::sync::OnceLock;

use super::abi::Abi;
use super::original::Original;
use super::symbols::Symbols;

/// A library function that converts a Fortran handle to a C handle.
pub struct FortranToC(Original);

/// For communicators.
pub static COMM: FortranToC = FortranToC(Original::new("MPI_Comm_f2c\0", "PMPI_Comm_f2c\0"));
/// For datatypes.
pub static TYPE: FortranToC = FortranToC(Original::new("MPI_Type_f2c\0", "PMPI_Type_f2c\0"));
/// For operations.
pub static OP: FortranToC = FortranToC(Original::new("MPI_Op_f2c\0", "PMPI_Op_f2c\0"));

/// A library function that converts a C handle to a Fortran handle.
pub struct CToFortran(Original);

/// For requests.
pub static REQUEST: CToFortran =
    CToFortran(Original::new("MPI_Request_c2f\0", "PMPI_Request_c2f\0"));

impl CToFortran {
    /// Returns the Fortran handle.
    pub fn integer_of<A: Abi>(&self, handle: A::Handle) -> c_int {
        type Function<A> = unsafe extern "C" fn(<A as Abi>::Handle) -> c_int;
        let address = self.0.address::<A>();
        // SAFETY: `address` is the library's function of this name. It takes a handle of the
        // library.
        unsafe { mem::transmute::<*mut c_void, Function<A>>(address)(handle) }
    }
}

impl FortranToC {
    /// Returns the C handle.
    #[allow(clippy::wrong_self_convention, reason = "converts the argument, not `self`")]
    pub fn from_integer<A: Abi>(&self, integer: c_int) -> A::Handle {
        type Function<A> = unsafe extern "C" fn(c_int) -> <A as Abi>::Handle;
        let address = self.0.address::<A>();
        // SAFETY: `address` is the library's function of this name. It accepts any number, which it
        // looks up in a table.
        unsafe { mem::transmute::<*mut c_void, Function<A>>(address)(integer) }
    }
}

/// Converts the address of a buffer to C. Fortran's `MPI_IN_PLACE` and `MPI_BOTTOM` are variables,
/// with one name for each naming convention of compilers.
#[must_use]
pub fn buffer<A: Abi>(start: *mut c_void) -> *mut c_void {
    static KNOWN: OnceLock<[[usize; 4]; 2]> = OnceLock::new();
    const NAMES: [[&CStr; 4]; 2] = [
        [
            c"mpi_fortran_in_place",
            c"mpi_fortran_in_place_",
            c"mpi_fortran_in_place__",
            c"MPI_FORTRAN_IN_PLACE",
        ],
        [
            c"mpi_fortran_bottom",
            c"mpi_fortran_bottom_",
            c"mpi_fortran_bottom__",
            c"MPI_FORTRAN_BOTTOM",
        ],
    ];
    let [in_place, bottom] = KNOWN.get_or_init(|| {
        let files: Vec<&CStr> = A::LIBRARIES.iter().chain(A::FORTRAN).copied().collect();
        let symbols = Symbols::of(&files);
        NAMES.map(|names| {
            names.map(|name| symbols.find_variable(name).map_or(0, <*mut c_void>::addr))
        })
    });
    if start.is_null() {
        start
    } else if in_place.contains(&start.addr()) {
        std::ptr::without_provenance_mut(A::IN_PLACE)
    } else if bottom.contains(&start.addr()) {
        std::ptr::null_mut()
    } else {
        start
    }
}

/// Stores the error code in the last argument of a Fortran function.
///
/// # Safety
/// `error` must be null or the address of an integer.
pub unsafe fn set_error(error: *mut c_int, code: c_int) {
    // SAFETY: the caller guarantees that `error` is null or the address of an integer.
    if let Some(error) = unsafe { error.as_mut() } {
        *error = code;
    }
}
