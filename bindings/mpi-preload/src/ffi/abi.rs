//! What differs between MPI libraries in binary: handles, constants, names of libraries. A program
//! in C beside the tests compares it with their headers.

use std::ffi::{CStr, c_int, c_void};

use crate::signature::Base;

/// A handle of any library's. Only MPI and the program make them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Handle(pub(crate) usize);

/// A family of MPI libraries that programs can be run with without being compiled anew.
pub trait Abi: Sized + Send + Sync + 'static {
    /// A handle as C passes it.
    type Handle: Copy + 'static;

    /// The library's name.
    const NAME: &'static str;
    /// The files that may have the functions of C, and those of Fortran.
    const LIBRARIES: &'static [&'static CStr];
    /// Fortran's functions, where they do not go through C's names.
    const FORTRAN: &'static [&'static CStr];

    /// `MPI_IN_PLACE`.
    const IN_PLACE: usize;
    /// `MPI_ANY_SOURCE`.
    const ANY_SOURCE: c_int;
    /// `MPI_COMM_TYPE_SHARED`.
    const SHARED: c_int;
    /// Where in `MPI_Status`, in units of `int`, are `MPI_SOURCE` and `MPI_ERROR`; and its length.
    const STATUS: [usize; 3];
    /// `MPI_ERR_TRUNCATE`, `MPI_ERR_OTHER`, `MPI_ERR_IN_STATUS`, `MPI_ERR_NO_MEM`,
    /// `MPI_ERR_COUNT`.
    const ERRORS: [c_int; 5];
    /// `MPI_COMBINER_NAMED`, `_DUP`, `_CONTIGUOUS`, `_STRUCT`.
    const COMBINERS: [c_int; 4];

    /// The handle without its library's type.
    fn erase(handle: Self::Handle) -> Handle;
    /// The handle with its library's type.
    fn restore(handle: Handle) -> Self::Handle;
    /// A handle of the library's own: its symbol in Open MPI, its number in MPICH.
    fn own(name: &CStr, number: u32, find: &dyn Fn(&CStr) -> Option<*mut c_void>)
    -> Option<Handle>;
}

/// Open MPI 4 and 5: handles are addresses of its own structures.
#[derive(Debug)]
pub struct OpenMpi;

impl Abi for OpenMpi {
    type Handle = *mut c_void;

    const NAME: &'static str = "Open MPI";
    const LIBRARIES: &'static [&'static CStr] = &[c"libmpi.so.40"];
    const FORTRAN: &'static [&'static CStr] = &[c"libmpi_mpifh.so.40"];
    const IN_PLACE: usize = 1;
    const ANY_SOURCE: c_int = -1;
    const SHARED: c_int = 0;
    const STATUS: [usize; 3] = [0, 2, 6];
    const ERRORS: [c_int; 5] = [15, 16, 18, 39, 2];
    const COMBINERS: [c_int; 4] = [0, 1, 2, 11];

    fn erase(handle: *mut c_void) -> Handle {
        Handle(handle.expose_provenance())
    }

    fn restore(handle: Handle) -> *mut c_void {
        std::ptr::with_exposed_provenance_mut(handle.0)
    }

    fn own(name: &CStr, _: u32, find: &dyn Fn(&CStr) -> Option<*mut c_void>) -> Option<Handle> {
        find(name).map(Self::erase)
    }
}

/// MPICH 3 and 4 and what has its binary interface (Intel MPI, MVAPICH): handles are integers.
#[derive(Debug)]
pub struct Mpich;

impl Abi for Mpich {
    type Handle = c_int;

    const NAME: &'static str = "MPICH";
    const LIBRARIES: &'static [&'static CStr] = &[c"libmpich.so.12", c"libmpi.so.12"];
    const FORTRAN: &'static [&'static CStr] = &[];
    const IN_PLACE: usize = usize::MAX;
    const ANY_SOURCE: c_int = -2;
    const SHARED: c_int = 1;
    const STATUS: [usize; 3] = [2, 4, 5];
    const ERRORS: [c_int; 5] = [14, 15, 17, 34, 2];
    const COMBINERS: [c_int; 4] = [1, 2, 3, 12];

    fn erase(handle: c_int) -> Handle {
        Handle(handle as u32 as usize)
    }

    fn restore(handle: Handle) -> c_int {
        handle.0 as u32 as c_int
    }

    fn own(_: &CStr, number: u32, _: &dyn Fn(&CStr) -> Option<*mut c_void>) -> Option<Handle> {
        Some(Handle(number as usize))
    }
}

/// The handles that we use or know, of a library that is loaded.
#[derive(Debug)]
pub(crate) struct Own {
    pub(crate) comm_world: Handle,
    pub(crate) comm_null: Handle,
    pub(crate) datatype_null: Handle,
    pub(crate) info_null: Handle,
    pub(crate) request_null: Handle,
    pub(crate) errors_return: Handle,
    pub(crate) byte: Handle,
    pub(crate) int64: Handle,
    pub(crate) sum: Handle,
    pub(crate) min: Handle,
    pub(crate) max: Handle,
    pub(crate) prod: Handle,
    /// Types that we know, if they have so many bytes: those of C and Fortran may have others.
    pub(crate) types: Vec<(Handle, [Option<Base>; 2])>,
}

impl Own {
    /// `None` if the library lacks one.
    pub(crate) fn of<A: Abi>(find: &dyn Fn(&CStr) -> Option<*mut c_void>) -> Option<Self> {
        let own = |name, number| A::own(name, number, find);
        let float = [Some(Base::F32), Some(Base::F64)];
        let signed = [Some(Base::I32), Some(Base::I64)];
        let types = [
            (c"ompi_mpi_float", 0x4c00_040a, float),
            (c"ompi_mpi_double", 0x4c00_080b, float),
            (c"ompi_mpi_real", 0x4c00_041c, float),
            (c"ompi_mpi_dblprec", 0x4c00_081f, float),
            (c"ompi_mpi_real4", 0x4c00_0427, float),
            (c"ompi_mpi_real8", 0x4c00_0829, float),
            (c"ompi_mpi_int", 0x4c00_0405, signed),
            (c"ompi_mpi_long", 0x4c00_0807, signed),
            (c"ompi_mpi_long_long_int", 0x4c00_0809, signed),
            (c"ompi_mpi_int32_t", 0x4c00_0439, signed),
            (c"ompi_mpi_int64_t", 0x4c00_083a, signed),
            (c"ompi_mpi_integer", 0x4c00_041b, signed),
            (c"ompi_mpi_integer4", 0x4c00_0430, signed),
            (c"ompi_mpi_integer8", 0x4c00_0831, signed),
        ];
        // A library without Fortran lacks some of the types; no program can pass those.
        let known = |(name, number, bases)| own(name, number).map(|handle| (handle, bases));
        Some(Self {
            comm_world: own(c"ompi_mpi_comm_world", 0x4400_0000)?,
            comm_null: own(c"ompi_mpi_comm_null", 0x0400_0000)?,
            datatype_null: own(c"ompi_mpi_datatype_null", 0x0c00_0000)?,
            info_null: own(c"ompi_mpi_info_null", 0x1c00_0000)?,
            request_null: own(c"ompi_request_null", 0x2c00_0000)?,
            errors_return: own(c"ompi_mpi_errors_return", 0x5400_0001)?,
            byte: own(c"ompi_mpi_byte", 0x4c00_010d)?,
            int64: own(c"ompi_mpi_int64_t", 0x4c00_083a)?,
            sum: own(c"ompi_mpi_op_sum", 0x5800_0003)?,
            min: own(c"ompi_mpi_op_min", 0x5800_0002)?,
            max: own(c"ompi_mpi_op_max", 0x5800_0001)?,
            prod: own(c"ompi_mpi_op_prod", 0x5800_0004)?,
            types: types.into_iter().filter_map(known).collect(),
        })
    }
}
