//! Binary differences between MPI libraries: handles, constants, file names. A C program in
//! `tests/c` compares them with the libraries' headers.

use std::ffi::{CStr, c_int, c_void};

use foldwire::schedule::Collective;

use crate::signature::BaseType;

/// Handle of any MPI library. Only MPI and the program create handles.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct MpiHandle(pub(crate) usize);

impl MpiHandle {
    /// Bits of the handle.
    #[must_use]
    pub const fn number(self) -> usize {
        self.0
    }
}

/// A predefined handle in each family.
#[derive(Clone, Copy, Debug)]
pub struct KnownHandle {
    /// Symbol in Open MPI. Its address is the handle.
    open_mpi: &'static CStr,
    /// Number in MPICH.
    mpich: u32,
    /// Number in the standard ABI.
    standard: u16,
}

/// A family of MPI libraries with one binary interface. A program runs with each library of its
/// family without recompilation.
pub trait Abi: Sized + Send + Sync + 'static {
    /// Handle type in C.
    type Handle: Copy + 'static;

    /// Name of the library.
    const NAME: &'static str;
    /// Files that may contain the C functions, and sometimes the Fortran functions.
    const LIBRARIES: &'static [&'static CStr];
    /// Files of the Fortran functions, if these do not call the exported C functions.
    const FORTRAN: &'static [&'static CStr];

    /// `MPI_IN_PLACE`.
    const IN_PLACE: usize;
    /// `MPI_ANY_SOURCE`.
    const ANY_SOURCE: c_int;
    /// `MPI_ROOT`.
    const ROOT: c_int;
    /// `MPI_COMM_TYPE_SHARED`.
    const COMM_TYPE_SHARED: c_int;
    /// Offsets of `MPI_SOURCE` and `MPI_ERROR` in `MPI_Status`, and its size, in units of `int`.
    const STATUS: [usize; 3];
    /// `MPI_STATUS_IGNORE` and `MPI_STATUSES_IGNORE`.
    const STATUS_IGNORE: usize;
    /// `MPI_ERR_TRUNCATE`, `MPI_ERR_OTHER`, `MPI_ERR_IN_STATUS`, `MPI_ERR_NO_MEM`,
    /// `MPI_ERR_COUNT`, `MPI_ERR_PENDING`.
    const ERRORS: [c_int; 6];
    /// `MPI_COMBINER_NAMED`, `_DUP`, `_CONTIGUOUS`, `_STRUCT`.
    const COMBINERS: [c_int; 4];

    /// Returns whether the library refuses aliased send and receive buffers, if its argument checks
    /// are enabled.
    fn refuses_aliases(collective: Collective) -> bool;
    /// Returns whether communicators may have no error handler, in a library with this version
    /// text. Such a communicator reports `MPI_ERRORS_ARE_FATAL`, but the library calls the handler
    /// of `MPI_COMM_SELF` or, if that has none, of `MPI_COMM_WORLD`.
    fn has_unset_handlers(version: &str) -> bool;
    /// Converts a handle of this family.
    fn erase(handle: Self::Handle) -> MpiHandle;
    /// Converts a handle back.
    fn restore(handle: MpiHandle) -> Self::Handle;
    /// Predefined handle in this family, if it exists. `find` returns the address of a symbol in
    /// the library.
    fn handle(
        known: &KnownHandle,
        find: &dyn Fn(&CStr) -> Option<*mut c_void>,
    ) -> Option<MpiHandle>;
}

/// Open MPI 4 and 5. Handles are addresses of the library's structures.
#[derive(Debug)]
pub struct OpenMpi;

impl Abi for OpenMpi {
    type Handle = *mut c_void;

    const NAME: &'static str = "Open MPI";
    const LIBRARIES: &'static [&'static CStr] = &[c"libmpi.so.40"];
    const FORTRAN: &'static [&'static CStr] = &[c"libmpi_mpifh.so.40"];
    const IN_PLACE: usize = 1;
    const ANY_SOURCE: c_int = -1;
    const ROOT: c_int = -4;
    const COMM_TYPE_SHARED: c_int = 0;
    const STATUS: [usize; 3] = [0, 2, 6];
    const STATUS_IGNORE: usize = 0;
    const ERRORS: [c_int; 6] = [15, 16, 18, 39, 2, 19];
    const COMBINERS: [c_int; 4] = [0, 1, 2, 11];

    fn refuses_aliases(collective: Collective) -> bool {
        matches!(collective, Collective::AllReduce | Collective::Reduce)
    }

    fn has_unset_handlers(_: &str) -> bool {
        false
    }

    fn erase(handle: *mut c_void) -> MpiHandle {
        MpiHandle(handle.expose_provenance())
    }

    fn restore(handle: MpiHandle) -> *mut c_void {
        std::ptr::with_exposed_provenance_mut(handle.0)
    }

    fn handle(
        known: &KnownHandle,
        find: &dyn Fn(&CStr) -> Option<*mut c_void>,
    ) -> Option<MpiHandle> {
        find(known.open_mpi).map(Self::erase)
    }
}

/// MPICH 3 and 4, and libraries with the same ABI (Intel MPI, MVAPICH). Handles are integers.
#[derive(Debug)]
pub struct Mpich;

impl Abi for Mpich {
    type Handle = c_int;

    const NAME: &'static str = "MPICH";
    const LIBRARIES: &'static [&'static CStr] = &[c"libmpich.so.12", c"libmpi.so.12"];
    const FORTRAN: &'static [&'static CStr] = &[];
    const IN_PLACE: usize = usize::MAX;
    const ANY_SOURCE: c_int = -2;
    const ROOT: c_int = -3;
    const COMM_TYPE_SHARED: c_int = 1;
    const STATUS: [usize; 3] = [2, 4, 5];
    const STATUS_IGNORE: usize = 1;
    const ERRORS: [c_int; 6] = [14, 15, 17, 34, 2, 18];
    const COMBINERS: [c_int; 4] = [1, 2, 3, 12];

    fn refuses_aliases(_: Collective) -> bool {
        true
    }

    fn has_unset_handlers(_: &str) -> bool {
        true
    }

    fn erase(handle: c_int) -> MpiHandle {
        MpiHandle(handle as u32 as usize)
    }

    fn restore(handle: MpiHandle) -> c_int {
        handle.0 as u32 as c_int
    }

    fn handle(known: &KnownHandle, _: &dyn Fn(&CStr) -> Option<*mut c_void>) -> Option<MpiHandle> {
        Some(MpiHandle(known.mpich as usize))
    }
}

/// The standard ABI of MPI 5, in any library. Handles are pointers, with small numbers for the
/// predefined ones. The ABI has no Fortran.
#[derive(Debug)]
pub struct Standard;

impl Abi for Standard {
    type Handle = *mut c_void;

    const NAME: &'static str = "library with the standard binary interface of MPI 5";
    const LIBRARIES: &'static [&'static CStr] = &[c"libmpi_abi.so.1"];
    const FORTRAN: &'static [&'static CStr] = &[];
    const IN_PLACE: usize = 1;
    const ANY_SOURCE: c_int = -1;
    const ROOT: c_int = -4;
    const COMM_TYPE_SHARED: c_int = 221;
    const STATUS: [usize; 3] = [0, 2, 8];
    const STATUS_IGNORE: usize = 0;
    const ERRORS: [c_int; 6] = [15, 16, 19, 39, 2, 18];
    const COMBINERS: [c_int; 4] = [101, 102, 103, 110];

    fn refuses_aliases(_: Collective) -> bool {
        true
    }

    fn has_unset_handlers(version: &str) -> bool {
        !version.starts_with("Open MPI")
    }

    fn erase(handle: *mut c_void) -> MpiHandle {
        OpenMpi::erase(handle)
    }

    fn restore(handle: MpiHandle) -> *mut c_void {
        OpenMpi::restore(handle)
    }

    fn handle(known: &KnownHandle, _: &dyn Fn(&CStr) -> Option<*mut c_void>) -> Option<MpiHandle> {
        Some(MpiHandle(known.standard.into()))
    }
}

const fn known(open_mpi: &'static CStr, mpich: u32, standard: u16) -> KnownHandle {
    KnownHandle { open_mpi, mpich, standard }
}

const FLOAT: [Option<BaseType>; 2] = [Some(BaseType::F32), Some(BaseType::F64)];
const SIGNED: [Option<BaseType>; 2] = [Some(BaseType::I32), Some(BaseType::I64)];

/// Supported predefined datatypes, with their element types for sizes of 4 and 8 bytes.
pub const TYPES: [(KnownHandle, [Option<BaseType>; 2]); 14] = [
    (known(c"ompi_mpi_float", 0x4c00_040a, 0x210), FLOAT),
    (known(c"ompi_mpi_double", 0x4c00_080b, 0x214), FLOAT),
    (known(c"ompi_mpi_real", 0x4c00_041c, 0x21a), FLOAT),
    (known(c"ompi_mpi_dblprec", 0x4c00_081f, 0x21c), FLOAT),
    (known(c"ompi_mpi_real4", 0x4c00_0427, 0x2d2), FLOAT),
    (known(c"ompi_mpi_real8", 0x4c00_0829, 0x2da), FLOAT),
    (known(c"ompi_mpi_int", 0x4c00_0405, 0x209), SIGNED),
    (known(c"ompi_mpi_long", 0x4c00_0807, 0x20a), SIGNED),
    (known(c"ompi_mpi_long_long_int", 0x4c00_0809, 0x20b), SIGNED),
    (known(c"ompi_mpi_int32_t", 0x4c00_0439, 0x250), SIGNED),
    (known(c"ompi_mpi_int64_t", 0x4c00_083a, 0x258), SIGNED),
    (known(c"ompi_mpi_integer", 0x4c00_041b, 0x219), SIGNED),
    (known(c"ompi_mpi_integer4", 0x4c00_0430, 0x2d1), SIGNED),
    (known(c"ompi_mpi_integer8", 0x4c00_0831, 0x2d9), SIGNED),
];

/// Defines [`LIBRARY_HANDLES`] and `LibraryHandles` from a row for each handle.
macro_rules! library_handles {
    ($($name:ident: $open_mpi:literal $mpich:literal $standard:literal;)*) => {
        /// Predefined handles that Foldwire uses, in the order of the fields of `LibraryHandles`.
        pub const LIBRARY_HANDLES: &[KnownHandle] = &[$(known($open_mpi, $mpich, $standard)),*];

        /// Predefined handles of the loaded library.
        #[derive(Debug)]
        pub(crate) struct LibraryHandles {
            $(pub(crate) $name: MpiHandle,)*
            /// Supported datatypes, with their element types for sizes of 4 and 8 bytes. C and
            /// Fortran types may have other sizes, too.
            pub(crate) types: Vec<(MpiHandle, [Option<BaseType>; 2])>,
        }

        impl LibraryHandles {
            /// Returns `None` if the library lacks a handle.
            pub(crate) fn of<A: Abi>(find: &dyn Fn(&CStr) -> Option<*mut c_void>) -> Option<Self> {
                // A library without Fortran lacks some of the types. No program can pass those.
                let types = TYPES.iter().filter_map(|(known, bases)| {
                    A::handle(known, find).map(|handle| (handle, *bases))
                });
                let types = types.collect();
                Some(Self {
                    $($name: A::handle(&known($open_mpi, $mpich, $standard), find)?,)*
                    types,
                })
            }
        }
    };
}

library_handles! {
    comm_world: c"ompi_mpi_comm_world" 0x4400_0000 0x101;
    comm_self: c"ompi_mpi_comm_self" 0x4400_0001 0x102;
    comm_null: c"ompi_mpi_comm_null" 0x0400_0000 0x100;
    datatype_null: c"ompi_mpi_datatype_null" 0x0c00_0000 0x200;
    info_null: c"ompi_mpi_info_null" 0x1c00_0000 0x130;
    request_null: c"ompi_request_null" 0x2c00_0000 0x180;
    errors_are_fatal: c"ompi_mpi_errors_are_fatal" 0x5400_0000 0x141;
    errors_return: c"ompi_mpi_errors_return" 0x5400_0001 0x143;
    byte: c"ompi_mpi_byte" 0x4c00_010d 0x247;
    int64: c"ompi_mpi_int64_t" 0x4c00_083a 0x258;
    sum: c"ompi_mpi_op_sum" 0x5800_0003 0x21;
    min: c"ompi_mpi_op_min" 0x5800_0002 0x22;
    max: c"ompi_mpi_op_max" 0x5800_0001 0x23;
    prod: c"ompi_mpi_op_prod" 0x5800_0004 0x24;
}
