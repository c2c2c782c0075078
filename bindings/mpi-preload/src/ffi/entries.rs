//! Table of the exported functions, and macros that expand its rows to C functions, C functions
//! with large counts, and Fortran functions. Foldwire must export each collective under all names.
//! Otherwise ranks that call it by different names would wait for each other.

/// Calls `$with! { $abi; row }` for each blocking and each non-blocking collective. A row has
/// Foldwire's collective, whether the call is non-blocking, the arguments, and the names in C, in C
/// with large counts, and in Fortran. The MPI library exports its own functions with a `P` before
/// the C name, or a `p` before the second Fortran name.
///
/// An argument is named by its kind. `send` and `recv` are buffers. `count` and `datatype` describe
/// both buffers, `send_…` and `recv_…` one of them. `…_counts` and `…_displs` are arrays. A
/// non-blocking collective has a `request` at the end.
#[doc(hidden)]
#[macro_export]
macro_rules! each_function {
    ($with:ident, $abi:ty) => {
        $crate::each_function! { @$with $abi;
            AllReduce (send recv count datatype op comm)
                [MPI_Allreduce MPI_Allreduce_c
                 mpi_allreduce mpi_allreduce_ mpi_allreduce__ MPI_ALLREDUCE ompi_allreduce_f]
                [MPI_Iallreduce MPI_Iallreduce_c
                 mpi_iallreduce mpi_iallreduce_ mpi_iallreduce__ MPI_IALLREDUCE ompi_iallreduce_f]
            Broadcast (recv count datatype root comm)
                [MPI_Bcast MPI_Bcast_c mpi_bcast mpi_bcast_ mpi_bcast__ MPI_BCAST ompi_bcast_f]
                [MPI_Ibcast MPI_Ibcast_c
                 mpi_ibcast mpi_ibcast_ mpi_ibcast__ MPI_IBCAST ompi_ibcast_f]
            Reduce (send recv count datatype op root comm)
                [MPI_Reduce MPI_Reduce_c
                 mpi_reduce mpi_reduce_ mpi_reduce__ MPI_REDUCE ompi_reduce_f]
                [MPI_Ireduce MPI_Ireduce_c
                 mpi_ireduce mpi_ireduce_ mpi_ireduce__ MPI_IREDUCE ompi_ireduce_f]
            AllGather (send send_count send_type recv recv_count recv_type comm)
                [MPI_Allgather MPI_Allgather_c
                 mpi_allgather mpi_allgather_ mpi_allgather__ MPI_ALLGATHER ompi_allgather_f]
                [MPI_Iallgather MPI_Iallgather_c
                 mpi_iallgather mpi_iallgather_ mpi_iallgather__ MPI_IALLGATHER ompi_iallgather_f]
            AllGather (send send_count send_type recv recv_counts recv_displs recv_type comm)
                [MPI_Allgatherv MPI_Allgatherv_c
                 mpi_allgatherv mpi_allgatherv_ mpi_allgatherv__ MPI_ALLGATHERV ompi_allgatherv_f]
                [MPI_Iallgatherv MPI_Iallgatherv_c
                 mpi_iallgatherv mpi_iallgatherv_ mpi_iallgatherv__
                 MPI_IALLGATHERV ompi_iallgatherv_f]
            AllToAll (send send_count send_type recv recv_count recv_type comm)
                [MPI_Alltoall MPI_Alltoall_c
                 mpi_alltoall mpi_alltoall_ mpi_alltoall__ MPI_ALLTOALL ompi_alltoall_f]
                [MPI_Ialltoall MPI_Ialltoall_c
                 mpi_ialltoall mpi_ialltoall_ mpi_ialltoall__ MPI_IALLTOALL ompi_ialltoall_f]
            AllToAll (
                send send_counts send_displs send_type recv recv_counts recv_displs recv_type comm)
                [MPI_Alltoallv MPI_Alltoallv_c
                 mpi_alltoallv mpi_alltoallv_ mpi_alltoallv__ MPI_ALLTOALLV ompi_alltoallv_f]
                [MPI_Ialltoallv MPI_Ialltoallv_c
                 mpi_ialltoallv mpi_ialltoallv_ mpi_ialltoallv__ MPI_IALLTOALLV ompi_ialltoallv_f]
            Gather (send send_count send_type recv recv_count recv_type root comm)
                [MPI_Gather MPI_Gather_c
                 mpi_gather mpi_gather_ mpi_gather__ MPI_GATHER ompi_gather_f]
                [MPI_Igather MPI_Igather_c
                 mpi_igather mpi_igather_ mpi_igather__ MPI_IGATHER ompi_igather_f]
            Gather (send send_count send_type recv recv_counts recv_displs recv_type root comm)
                [MPI_Gatherv MPI_Gatherv_c
                 mpi_gatherv mpi_gatherv_ mpi_gatherv__ MPI_GATHERV ompi_gatherv_f]
                [MPI_Igatherv MPI_Igatherv_c
                 mpi_igatherv mpi_igatherv_ mpi_igatherv__ MPI_IGATHERV ompi_igatherv_f]
            Scatter (send send_count send_type recv recv_count recv_type root comm)
                [MPI_Scatter MPI_Scatter_c
                 mpi_scatter mpi_scatter_ mpi_scatter__ MPI_SCATTER ompi_scatter_f]
                [MPI_Iscatter MPI_Iscatter_c
                 mpi_iscatter mpi_iscatter_ mpi_iscatter__ MPI_ISCATTER ompi_iscatter_f]
            Scatter (send send_counts send_displs send_type recv recv_count recv_type root comm)
                [MPI_Scatterv MPI_Scatterv_c
                 mpi_scatterv mpi_scatterv_ mpi_scatterv__ MPI_SCATTERV ompi_scatterv_f]
                [MPI_Iscatterv MPI_Iscatterv_c
                 mpi_iscatterv mpi_iscatterv_ mpi_iscatterv__ MPI_ISCATTERV ompi_iscatterv_f]
            ReduceScatter (send recv count datatype op comm)
                [MPI_Reduce_scatter_block MPI_Reduce_scatter_block_c
                 mpi_reduce_scatter_block mpi_reduce_scatter_block_ mpi_reduce_scatter_block__
                 MPI_REDUCE_SCATTER_BLOCK ompi_reduce_scatter_block_f]
                [MPI_Ireduce_scatter_block MPI_Ireduce_scatter_block_c
                 mpi_ireduce_scatter_block mpi_ireduce_scatter_block_ mpi_ireduce_scatter_block__
                 MPI_IREDUCE_SCATTER_BLOCK ompi_ireduce_scatter_block_f]
            ReduceScatter (send recv recv_counts datatype op comm)
                [MPI_Reduce_scatter MPI_Reduce_scatter_c
                 mpi_reduce_scatter mpi_reduce_scatter_ mpi_reduce_scatter__
                 MPI_REDUCE_SCATTER ompi_reduce_scatter_f]
                [MPI_Ireduce_scatter MPI_Ireduce_scatter_c
                 mpi_ireduce_scatter mpi_ireduce_scatter_ mpi_ireduce_scatter__
                 MPI_IREDUCE_SCATTER ompi_ireduce_scatter_f]
        }
    };
    (@$with:ident $abi:ty;
     $($collective:ident ($($arg:ident)*) [$($now:ident)*] [$($later:ident)*])*) => {
        $(
            $crate::$with! { $abi; $collective false ($($arg)*) $($now)* }
            $crate::$with! { $abi; $collective true ($($arg)* request) $($later)* }
        )*
    };
}

/// Exports a collective in C, with `int` and with large counts.
#[doc(hidden)]
#[macro_export]
macro_rules! in_c {
    ($abi:ty; $collective:ident $is_nonblocking:literal ($($arg:ident)*)
     $name:ident $large:ident $($fortran:ident)*) => {
        $crate::entry! {
            $abi; $collective $is_nonblocking $name concat!("P", stringify!($name), "\0");
            ($($arg: $crate::c_type!($abi, ::core::ffi::c_int, $arg) = $arg),*) ()
                -> ::core::ffi::c_int,
            |code| code,
            |call| ORIGINAL.address::<$abi>()
        }
        // A program may test for the function with large counts, for example by a weak symbol. It
        // finds this function even if the library has none. Then this function calls the library's
        // function with `int` counts.
        $crate::entry! {
            $abi; $collective $is_nonblocking $large concat!("P", stringify!($large), "\0");
            ($($arg: $crate::c_type!($abi, i64, $arg) = $arg),*) () -> ::core::ffi::c_int,
            |code| code,
            |call| match ORIGINAL.find::<$abi>() {
                Some(address) => address,
                None => {
                    let call = call();
                    let Ok(narrow) = INTERCEPTOR.narrow(&call) else {
                        return INTERCEPTOR.refuse_count(&call);
                    };
                    return $crate::original!($abi, $name concat!("P", stringify!($name), "\0"), (
                        $($crate::narrowed!(narrow.call, $arg, $arg) =>
                            $crate::c_type!($abi, ::core::ffi::c_int, $arg)),*
                    ) -> ::core::ffi::c_int);
                }
            }
        }
    };
}

/// Exports a collective in Fortran, under each name that compilers use.
#[doc(hidden)]
#[macro_export]
macro_rules! in_fortran {
    ($abi:ty; $collective:ident $is_nonblocking:literal $args:tt
     $c:ident $large:ident $first:ident $second:ident $($rest:ident)*) => {
        $crate::in_fortran! { @$abi; $collective $is_nonblocking $args $second $first }
        $crate::in_fortran! { @$abi; $collective $is_nonblocking $args $second $second }
        $($crate::in_fortran! { @$abi; $collective $is_nonblocking $args $second $rest })*
    };
    (@$abi:ty; $collective:ident $is_nonblocking:literal ($($arg:ident)*)
     $second:ident $name:ident) => {
        $crate::entry! {
            $abi; $collective $is_nonblocking $name concat!("p", stringify!($second), "\0");
            // SAFETY: Fortran passes addresses of valid integers.
            ($($arg: $crate::fortran_type!($arg) =
                unsafe { $crate::from_fortran!($abi, $arg, $arg) }),*)
            (error: *mut ::core::ffi::c_int),
            // SAFETY: null, where Fortran 2008 omits the argument, or the address of a writable
            // integer.
            |code| unsafe { $crate::ffi::fortran::set_error(error, code) },
            |call| ORIGINAL.address::<$abi>()
        }
    };
}

/// Exports the function `$name`. Calls are passed on to the function of this name in a tool that is
/// loaded behind Foldwire's library, or else to the MPI library's function `$behind`. `$type` and
/// `$value` are the types of the arguments and their C values. `$returned` computes the result of a
/// taken call from the code `$code`. `$address` is the function to which calls are passed on; it
/// can build the call with `$made()`.
#[doc(hidden)]
#[macro_export]
macro_rules! entry {
    ($abi:ty; $collective:ident $is_nonblocking:literal $name:ident $behind:expr;
     ($($arg:ident: $type:ty = $value:expr),*) ($($error:ident: $error_type:ty)?) $(-> $result:ty)?,
     |$code:ident| $returned:expr, |$made:ident| $address:expr) => {
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($arg: $type,)* $($error: $error_type)?) $(-> $result)? {
            use $crate::ffi::interceptor::{Collective, CallFilter, CallSize, empty_call};
            use $crate::ffi::original::Original;

            static ORIGINAL: Original = Original::new(concat!(stringify!($name), "\0"), $behind);
            static FILTER: &CallFilter =
                INTERCEPTOR.filters.of(Collective::$collective, $is_nonblocking);

            type Function = unsafe extern "C" fn($($type,)* $($error_type)?) $(-> $result)?;

            /// Inspects a call that the filter does not pass on. A separate function, so that the
            /// exported function saves no registers and ends in a jump.
            ///
            /// # Safety
            /// The same as for the exported function.
            #[allow(clippy::too_many_arguments, reason = "MPI's function has as many")]
            #[inline(never)]
            unsafe extern "C" fn inspect($($arg: $type,)* $($error: $error_type)?) $(-> $result)? {
                let $made = || {
                    let mut call = empty_call(Collective::$collective);
                    $($crate::set_argument!($abi, call, $arg, $value);)*
                    call
                };
                if !FILTER.passes_all_uncounted() {
                    let mut size = CallSize::of(Collective::$collective);
                    $($crate::set_size_argument!($abi, size, $arg, $value);)*
                    let call = $made();
                    if !INTERCEPTOR.passes(FILTER, &size, &call)
                        && let Some($code) = INTERCEPTOR.collective(&call)
                    {
                        return $returned;
                    }
                }
                let address = $address;
                // SAFETY: `address` is the function of this name in the library, or in a tool. It
                // takes these arguments, and receives those of the program.
                unsafe {
                    let next =
                        ::core::mem::transmute::<*mut ::core::ffi::c_void, Function>(address);
                    next($($arg,)* $($error)?)
                }
            }

            let cached = ORIGINAL.cached();
            let passes = !cached.is_null() && (FILTER.passes_all_uncounted() || {
                let mut size = CallSize::of(Collective::$collective);
                $($crate::set_size_argument!($abi, size, $arg, $value);)*
                INTERCEPTOR.filters.passes(FILTER, &size)
            });
            // SAFETY: as in `inspect`.
            unsafe {
                let next = match passes {
                    true => ::core::mem::transmute::<*mut ::core::ffi::c_void, Function>(cached),
                    false => inspect,
                };
                next($($arg,)* $($error)?)
            }
        }
    };
}

/// Calls the function that the program would call without Foldwire.
#[doc(hidden)]
#[macro_export]
macro_rules! original {
    ($abi:ty, $name:ident $behind:expr, ($($arg:expr => $type:ty),*) $(-> $result:ty)?) => {{
        static ORIGINAL: $crate::ffi::original::Original =
            $crate::ffi::original::Original::new(concat!(stringify!($name), "\0"), $behind);
        type Function = unsafe extern "C" fn($($type),*) $(-> $result)?;
        // SAFETY: the library's function of this name takes these arguments, and receives those of
        // the program.
        unsafe {
            let original = ::core::mem::transmute::<*mut ::core::ffi::c_void, Function>(
                ORIGINAL.address::<$abi>(),
            );
            original($($arg),*)
        }
    }};
}

/// Exports all C functions for a family of MPI libraries.
#[macro_export]
macro_rules! entries {
    ($abi:ty) => {
        static INTERCEPTOR: $crate::ffi::interceptor::Interceptor<$abi> =
            $crate::ffi::interceptor::Interceptor::new();

        $crate::each_function! { in_c, $abi }

        #[cfg(target_os = "linux")]
        #[used]
        #[unsafe(link_section = ".fini_array")]
        static AT_EXIT: extern "C" fn() = {
            extern "C" fn at_exit() {
                INTERCEPTOR.at_exit();
            }
            at_exit
        };

        type Int = ::core::ffi::c_int;
        type Any = *mut ::core::ffi::c_void;
        type HandlePtr = *mut <$abi as $crate::ffi::abi::Abi>::Handle;

        $crate::message_entries! { $abi }
        $crate::entries! { @begin $abi; MPI_Init (argc: *mut Int, argv: Any) }
        $crate::entries! { @begin $abi;
            MPI_Init_thread (argc: *mut Int, argv: Any, required: Int, provided: *mut Int) }
        $crate::entries! { @free $abi; MPI_Comm_free }
        $crate::entries! { @free $abi; MPI_Comm_disconnect }

        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn MPI_Finalize() -> Int {
            INTERCEPTOR.before_finalize();
            $crate::original!($abi, MPI_Finalize "PMPI_Finalize\0", () -> Int)
        }
    };
    (@begin $abi:ty; $name:ident ($($arg:ident: $type:ty),*)) => {
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($arg: $type),*) -> Int {
            let code = $crate::original!(
                $abi, $name concat!("P", stringify!($name), "\0"), ($($arg => $type),*) -> Int
            );
            if code == 0 {
                INTERCEPTOR.after_init();
            }
            code
        }
    };
    (@free $abi:ty; $name:ident) => {
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(comm: HandlePtr) -> Int {
            // SAFETY: null, which MPI refuses, or a handle of the program.
            if let Some(&comm) = unsafe { comm.as_ref() } {
                INTERCEPTOR.before_comm_free(<$abi as $crate::ffi::abi::Abi>::erase(comm));
            }
            $crate::original!(
                $abi, $name concat!("P", stringify!($name), "\0"), (comm => HandlePtr) -> Int
            )
        }
    };
}

/// Exports all Fortran functions, for a family whose Fortran functions do not call the exported C
/// functions. Used in addition to [`entries`](crate::entries).
#[macro_export]
macro_rules! fortran_entries {
    ($abi:ty) => {
        $crate::each_function! { in_fortran, $abi }

        $crate::fortran_entries! { @init $abi;
            mpi_init mpi_init_ mpi_init__ MPI_INIT ompi_init_f }
        $crate::fortran_entries! { @init_thread $abi;
            mpi_init_thread mpi_init_thread_ mpi_init_thread__ MPI_INIT_THREAD ompi_init_thread_f }
        $crate::fortran_entries! { @finalize $abi;
            mpi_finalize mpi_finalize_ mpi_finalize__ MPI_FINALIZE ompi_finalize_f }
        $crate::fortran_entries! { @free "pmpi_comm_free_\0" $abi;
            mpi_comm_free mpi_comm_free_ mpi_comm_free__ MPI_COMM_FREE ompi_comm_free_f }
        $crate::fortran_entries! { @free "pmpi_comm_disconnect_\0" $abi;
            mpi_comm_disconnect mpi_comm_disconnect_ mpi_comm_disconnect__ MPI_COMM_DISCONNECT
            ompi_comm_disconnect_f }
    };
    (@init $abi:ty; $($name:ident)*) => {
        $(#[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(error: *mut Int) {
            $crate::original!($abi, $name "pmpi_init_\0", (error => *mut Int));
            INTERCEPTOR.after_init();
        })*
    };
    (@init_thread $abi:ty; $($name:ident)*) => {
        $(#[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(required: *mut Int, provided: *mut Int, error: *mut Int) {
            $crate::original!(
                $abi, $name "pmpi_init_thread_\0",
                (required => *mut Int, provided => *mut Int, error => *mut Int)
            );
            INTERCEPTOR.after_init();
        })*
    };
    (@finalize $abi:ty; $($name:ident)*) => {
        $(#[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(error: *mut Int) {
            INTERCEPTOR.before_finalize();
            $crate::original!($abi, $name "pmpi_finalize_\0", (error => *mut Int));
        })*
    };
    (@free $behind:literal $abi:ty; $($name:ident)*) => {
        $(#[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(comm: *mut Int, error: *mut Int) {
            // SAFETY: Fortran passes the address of a valid integer.
            let handle = unsafe { $crate::ffi::fortran::COMM.from_integer::<$abi>(*comm) };
            INTERCEPTOR.before_comm_free(<$abi as $crate::ffi::abi::Abi>::erase(handle));
            $crate::original!($abi, $name $behind, (comm => *mut Int, error => *mut Int));
        })*
    };
}
