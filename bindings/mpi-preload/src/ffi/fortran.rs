//! Arguments of Fortran's: handles are integers, and what C passes as constants has addresses.

use std::ffi::{CStr, c_int, c_void};
use std::mem;
use std::sync::OnceLock;

use super::abi::Abi;
use super::original::Original;
use super::symbols::Symbols;

/// A function that makes C's handle of Fortran's.
pub struct FortranToC(Original);

/// Of communicators.
pub static COMM: FortranToC = FortranToC(Original::new("MPI_Comm_f2c\0", "PMPI_Comm_f2c\0"));
/// Of datatypes.
pub static TYPE: FortranToC = FortranToC(Original::new("MPI_Type_f2c\0", "PMPI_Type_f2c\0"));
/// Of operations.
pub static OP: FortranToC = FortranToC(Original::new("MPI_Op_f2c\0", "PMPI_Op_f2c\0"));

/// A function that makes Fortran's handle of C's.
pub struct CToFortran(Original);

/// Of requests.
pub static REQUEST: CToFortran =
    CToFortran(Original::new("MPI_Request_c2f\0", "PMPI_Request_c2f\0"));

impl CToFortran {
    /// Fortran's handle.
    pub fn integer_of<A: Abi>(&self, handle: A::Handle) -> c_int {
        type Function<A> = unsafe extern "C" fn(<A as Abi>::Handle) -> c_int;
        let address = self.0.address::<A>();
        // SAFETY: the library's function of this name, and a handle of the library's.
        unsafe { mem::transmute::<*mut c_void, Function<A>>(address)(handle) }
    }
}

impl FortranToC {
    /// C's handle.
    #[allow(clippy::wrong_self_convention, reason = "converts what is passed")]
    pub fn from_integer<A: Abi>(&self, integer: c_int) -> A::Handle {
        type Function<A> = unsafe extern "C" fn(c_int) -> <A as Abi>::Handle;
        let address = self.0.address::<A>();
        // SAFETY: the library's function of this name; it looks numbers up in a table.
        unsafe { mem::transmute::<*mut c_void, Function<A>>(address)(integer) }
    }
}

/// The address of a buffer as C passes it: Fortran's `MPI_IN_PLACE` and `MPI_BOTTOM` are variables,
/// of which there is one for each way compilers name them.
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

/// Fortran's last argument.
///
/// # Safety
/// Null, or the address of an integer.
pub unsafe fn set_error(error: *mut c_int, code: c_int) {
    // SAFETY: by the caller's promise.
    if let Some(error) = unsafe { error.as_mut() } {
        *error = code;
    }
}
