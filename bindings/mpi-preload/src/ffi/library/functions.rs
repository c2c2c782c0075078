//! Table of the MPI functions that Foldwire itself calls by their `PMPI_` names.

use std::ffi::{CStr, c_char, c_int, c_void};

use super::generalized_requests::{CancelFn, FreeFn, PollFn, QueryFn, WaitFn};
use crate::ffi::abi::Abi;
use crate::ffi::symbols::Symbols;

/// Defines a table with a field for each function, with the type from MPI's standard for this
/// library's handles. Functions in `late` may be missing: they come from later versions of MPI, or
/// are MPICH's extensions (`PMPIX_`).
macro_rules! functions {
    (
        needed { $($name:ident: $symbol:literal ($($arg:ty),*);)* }
        late { $($late:ident: $late_symbol:literal ($($late_arg:ty),*);)* }
    ) => {
        /// MPI functions that Foldwire itself calls.
        pub(crate) struct FunctionTable<A: Abi> {
            $(pub(super) $name: unsafe extern "C" fn($($arg),*) -> c_int,)*
            $(pub(super) $late: Option<unsafe extern "C" fn($($late_arg),*) -> c_int>,)*
        }

        impl<A: Abi> FunctionTable<A> {
            pub(super) fn find(symbols: &Symbols) -> Result<Self, &'static CStr> {
                // SAFETY: a symbol of this name is the function of MPI's standard with these
                // arguments.
                unsafe {
                    Ok(Self {
                        $($name: symbols.find_function($symbol).ok_or($symbol)?,)*
                        $($late: symbols.find_function($late_symbol),)*
                    })
                }
            }
        }
    };
}

type CopyAttribute<A> = unsafe extern "C" fn(
    <A as Abi>::Handle,
    c_int,
    *mut c_void,
    *mut c_void,
    *mut c_void,
    *mut c_int,
) -> c_int;
type DeleteAttribute<A> =
    unsafe extern "C" fn(<A as Abi>::Handle, c_int, *mut c_void, *mut c_void) -> c_int;

pub(super) type GetAttribute<A> =
    unsafe extern "C" fn(<A as Abi>::Handle, c_int, *mut c_void, *mut c_int) -> c_int;
pub(super) type SetAttribute<A> =
    unsafe extern "C" fn(<A as Abi>::Handle, c_int, *mut c_void) -> c_int;

functions! {
    needed {
    comm_rank: c"PMPI_Comm_rank" (A::Handle, *mut c_int);
    comm_size: c"PMPI_Comm_size" (A::Handle, *mut c_int);
    comm_remote_size: c"PMPI_Comm_remote_size" (A::Handle, *mut c_int);
    comm_test_inter: c"PMPI_Comm_test_inter" (A::Handle, *mut c_int);
    comm_split: c"PMPI_Comm_split" (A::Handle, c_int, c_int, *mut A::Handle);
    comm_split_type: c"PMPI_Comm_split_type"
        (A::Handle, c_int, c_int, A::Handle, *mut A::Handle);
    comm_group: c"PMPI_Comm_group" (A::Handle, *mut A::Handle);
    group_translate_ranks: c"PMPI_Group_translate_ranks"
        (A::Handle, c_int, *const c_int, A::Handle, *mut c_int);
    group_free: c"PMPI_Group_free" (*mut A::Handle);
    query_thread: c"PMPI_Query_thread" (*mut c_int);
    library_version: c"PMPI_Get_library_version" (*mut c_char, *mut c_int);
    comm_get_name: c"PMPI_Comm_get_name" (A::Handle, *mut c_char, *mut c_int);
    comm_free: c"PMPI_Comm_free" (*mut A::Handle);
    comm_set_errhandler: c"PMPI_Comm_set_errhandler" (A::Handle, A::Handle);
    comm_get_errhandler: c"PMPI_Comm_get_errhandler" (A::Handle, *mut A::Handle);
    errhandler_free: c"PMPI_Errhandler_free" (*mut A::Handle);
    comm_call_errhandler: c"PMPI_Comm_call_errhandler" (A::Handle, c_int);
    comm_create_keyval: c"PMPI_Comm_create_keyval"
        (CopyAttribute<A>, DeleteAttribute<A>, *mut c_int, *mut c_void);
    comm_get_attr: c"PMPI_Comm_get_attr" (A::Handle, c_int, *mut c_void, *mut c_int);
    comm_set_attr: c"PMPI_Comm_set_attr" (A::Handle, c_int, *mut c_void);
    type_create_keyval: c"PMPI_Type_create_keyval"
        (CopyAttribute<A>, DeleteAttribute<A>, *mut c_int, *mut c_void);
    type_get_attr: c"PMPI_Type_get_attr" (A::Handle, c_int, *mut c_void, *mut c_int);
    type_set_attr: c"PMPI_Type_set_attr" (A::Handle, c_int, *mut c_void);
    type_size: c"PMPI_Type_size_x" (A::Handle, *mut i64);
    type_extent: c"PMPI_Type_get_extent" (A::Handle, *mut isize, *mut isize);
    type_envelope: c"PMPI_Type_get_envelope"
        (A::Handle, *mut c_int, *mut c_int, *mut c_int, *mut c_int);
    type_contents: c"PMPI_Type_get_contents"
        (A::Handle, c_int, c_int, c_int, *mut c_int, *mut isize, *mut A::Handle);
    type_free: c"PMPI_Type_free" (*mut A::Handle);
    type_contiguous: c"PMPI_Type_contiguous" (c_int, A::Handle, *mut A::Handle);
    type_hindexed: c"PMPI_Type_create_hindexed"
        (c_int, *const c_int, *const isize, A::Handle, *mut A::Handle);
    type_commit: c"PMPI_Type_commit" (*mut A::Handle);
    pack: c"PMPI_Pack"
        (*const c_void, c_int, A::Handle, *mut c_void, c_int, *mut c_int, A::Handle);
    unpack: c"PMPI_Unpack"
        (*const c_void, c_int, *mut c_int, *mut c_void, c_int, A::Handle, A::Handle);
    send_recv: c"PMPI_Sendrecv"
        (*const c_void, c_int, A::Handle, c_int, c_int, *mut c_void, c_int, A::Handle, c_int, c_int,
         A::Handle, *mut c_int);
    all_reduce: c"PMPI_Allreduce"
        (*const c_void, *mut c_void, c_int, A::Handle, A::Handle, A::Handle);
    all_reduce_start: c"PMPI_Iallreduce"
        (*const c_void, *mut c_void, c_int, A::Handle, A::Handle, A::Handle, *mut A::Handle);
    gather_shares: c"PMPI_Igatherv"
        (*const c_void, c_int, A::Handle, *mut c_void, *const c_int, *const c_int, A::Handle, c_int,
         A::Handle, *mut A::Handle);
    scatter_shares: c"PMPI_Iscatterv"
        (*const c_void, *const c_int, *const c_int, A::Handle, *mut c_void, c_int, A::Handle, c_int,
         A::Handle, *mut A::Handle);
    all_to_all_shares: c"PMPI_Ialltoallv"
        (*const c_void, *const c_int, *const c_int, A::Handle, *mut c_void, *const c_int,
         *const c_int, A::Handle, A::Handle, *mut A::Handle);
    isend: c"PMPI_Isend"
        (*const c_void, c_int, A::Handle, c_int, c_int, A::Handle, *mut A::Handle);
    issend: c"PMPI_Issend"
        (*const c_void, c_int, A::Handle, c_int, c_int, A::Handle, *mut A::Handle);
    irecv: c"PMPI_Irecv"
        (*mut c_void, c_int, A::Handle, c_int, c_int, A::Handle, *mut A::Handle);
    test_some: c"PMPI_Testsome" (c_int, *mut A::Handle, *mut c_int, *mut c_int, *mut c_int);
    cancel: c"PMPI_Cancel" (*mut A::Handle);
    test_cancelled: c"PMPI_Test_cancelled" (*const c_int, *mut c_int);
    test: c"PMPI_Test" (*mut A::Handle, *mut c_int, *mut c_int);
    request_get_status: c"PMPI_Request_get_status" (A::Handle, *mut c_int, *mut c_int);
    request_free: c"PMPI_Request_free" (*mut A::Handle);
    get_count: c"PMPI_Get_count" (*const c_int, A::Handle, *mut c_int);
    grequest_start: c"PMPI_Grequest_start"
        (QueryFn, FreeFn, CancelFn, *mut c_void, *mut A::Handle);
    grequest_complete: c"PMPI_Grequest_complete" (A::Handle);
    error_class: c"PMPI_Error_class" (c_int, *mut c_int);
    error_string: c"PMPI_Error_string" (c_int, *mut c_char, *mut c_int);
    abort: c"PMPI_Abort" (A::Handle, c_int);
    }
    late {
    type_envelope_c: c"PMPI_Type_get_envelope_c"
        (A::Handle, *mut i64, *mut i64, *mut i64, *mut i64, *mut c_int);
    type_contents_c: c"PMPI_Type_get_contents_c"
        (A::Handle, i64, i64, i64, i64, *mut c_int, *mut isize, *mut i64, *mut A::Handle);
    pack_c: c"PMPI_Pack_c"
        (*const c_void, i64, A::Handle, *mut c_void, i64, *mut i64, A::Handle);
    unpack_c: c"PMPI_Unpack_c"
        (*const c_void, i64, *mut i64, *mut c_void, i64, A::Handle, A::Handle);
    gather_shares_c: c"PMPI_Igatherv_c"
        (*const c_void, i64, A::Handle, *mut c_void, *const i64, *const i64, A::Handle, c_int,
         A::Handle, *mut A::Handle);
    scatter_shares_c: c"PMPI_Iscatterv_c"
        (*const c_void, *const i64, *const i64, A::Handle, *mut c_void, i64, A::Handle, c_int,
         A::Handle, *mut A::Handle);
    all_to_all_shares_c: c"PMPI_Ialltoallv_c"
        (*const c_void, *const i64, *const i64, A::Handle, *mut c_void, *const i64, *const i64,
         A::Handle, A::Handle, *mut A::Handle);
    elements: c"PMPI_Get_elements_x" (*const c_int, A::Handle, *mut i64);
    set_elements: c"PMPI_Status_set_elements_x" (*mut c_int, A::Handle, i64);
    request_is_complete: c"PMPIX_Request_is_complete" (A::Handle);
    grequest_start_with_wait: c"PMPIX_Grequest_start"
        (QueryFn, FreeFn, CancelFn, PollFn, WaitFn, *mut c_void, *mut A::Handle);
    }
}
