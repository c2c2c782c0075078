//! Table of the exported functions, and macros that expand its rows to C functions, C functions
//! with large counts, and Fortran functions. Foldwire must export each collective under all names.
//! Otherwise ranks that call it by different names would wait for each other.

/// Calls `$with! { $abi; row }` for each blocking and each non-blocking collective. A row has
/// Foldwire's collective, whether the call is non-blocking, the arguments, and the name in C, in
/// small and in capital letters. From these follow the names in C with large counts (`_c`) and in
/// Fortran. The MPI library exports its own functions with a `P` before the C name, or a `p` before
/// the Fortran name that ends with one `_`.
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
                [MPI_Allreduce allreduce ALLREDUCE] [MPI_Iallreduce iallreduce IALLREDUCE]
            Broadcast (recv count datatype root comm)
                [MPI_Bcast bcast BCAST] [MPI_Ibcast ibcast IBCAST]
            Reduce (send recv count datatype op root comm)
                [MPI_Reduce reduce REDUCE] [MPI_Ireduce ireduce IREDUCE]
            AllGather (send send_count send_type recv recv_count recv_type comm)
                [MPI_Allgather allgather ALLGATHER] [MPI_Iallgather iallgather IALLGATHER]
            AllGather (send send_count send_type recv recv_counts recv_displs recv_type comm)
                [MPI_Allgatherv allgatherv ALLGATHERV] [MPI_Iallgatherv iallgatherv IALLGATHERV]
            AllToAll (send send_count send_type recv recv_count recv_type comm)
                [MPI_Alltoall alltoall ALLTOALL] [MPI_Ialltoall ialltoall IALLTOALL]
            AllToAll (
                send send_counts send_displs send_type recv recv_counts recv_displs recv_type comm)
                [MPI_Alltoallv alltoallv ALLTOALLV] [MPI_Ialltoallv ialltoallv IALLTOALLV]
            Gather (send send_count send_type recv recv_count recv_type root comm)
                [MPI_Gather gather GATHER] [MPI_Igather igather IGATHER]
            Gather (send send_count send_type recv recv_counts recv_displs recv_type root comm)
                [MPI_Gatherv gatherv GATHERV] [MPI_Igatherv igatherv IGATHERV]
            Scatter (send send_count send_type recv recv_count recv_type root comm)
                [MPI_Scatter scatter SCATTER] [MPI_Iscatter iscatter ISCATTER]
            Scatter (send send_counts send_displs send_type recv recv_count recv_type root comm)
                [MPI_Scatterv scatterv SCATTERV] [MPI_Iscatterv iscatterv ISCATTERV]
            ReduceScatter (send recv count datatype op comm)
                [MPI_Reduce_scatter_block reduce_scatter_block REDUCE_SCATTER_BLOCK]
                [MPI_Ireduce_scatter_block ireduce_scatter_block IREDUCE_SCATTER_BLOCK]
            ReduceScatter (send recv recv_counts datatype op comm)
                [MPI_Reduce_scatter reduce_scatter REDUCE_SCATTER]
                [MPI_Ireduce_scatter ireduce_scatter IREDUCE_SCATTER]
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
     $name:ident $small:ident $capital:ident) => {
        $crate::entry! {
            $abi; $collective $is_nonblocking stringify!($name), $crate::behind!($name);
            ($($arg: $crate::c_type!($abi, ::core::ffi::c_int, $arg) = $arg),*) ()
                -> ::core::ffi::c_int,
            |code| code,
            |call| ORIGINAL.address::<$abi>()
        }
        // A program may test for the function with large counts, for example by a weak symbol. It
        // finds this function even if the library has none. Then this function calls the library's
        // function with `int` counts.
        $crate::entry! {
            $abi; $collective $is_nonblocking
            concat!(stringify!($name), "_c"), concat!("P", stringify!($name), "_c\0");
            ($($arg: $crate::c_type!($abi, i64, $arg) = $arg),*) () -> ::core::ffi::c_int,
            |code| code,
            |call| match ORIGINAL.find::<$abi>() {
                Some(address) => address,
                None => {
                    let call = call();
                    let Ok(narrow) = INTERCEPTOR.narrow(&call) else {
                        return INTERCEPTOR.refuse_count(&call);
                    };
                    return $crate::original!($abi, stringify!($name), $crate::behind!($name), (
                        $($crate::narrowed!(narrow.call, $arg, $arg) =>
                            $crate::c_type!($abi, ::core::ffi::c_int, $arg)),*
                    ) -> ::core::ffi::c_int);
                }
            }
        }
    };
}

/// Name of a C function in the MPI library.
#[doc(hidden)]
#[macro_export]
macro_rules! behind {
    ($name:ident) => {
        concat!("P", stringify!($name), "\0")
    };
}

/// Exports a collective in Fortran, under each name that compilers use.
#[doc(hidden)]
#[macro_export]
macro_rules! in_fortran {
    ($abi:ty; $collective:ident $is_nonblocking:literal $args:tt
     $name:ident $small:ident $capital:ident) => {
        $crate::each_fortran_name! {
            in_fortran! { @$abi; $collective $is_nonblocking $args } $small $capital
        }
    };
    (@$abi:ty; $collective:ident $is_nonblocking:literal ($($arg:ident)*)
     $symbol:expr, $behind:expr) => {
        $crate::entry! {
            $abi; $collective $is_nonblocking $symbol, $behind;
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

/// Calls `$with! { before symbol, behind }` for each name that compilers have for a function of
/// Fortran. `$behind` is its name in the MPI library.
#[doc(hidden)]
#[macro_export]
macro_rules! each_fortran_name {
    ($with:ident! $before:tt $small:ident $capital:ident) => {
        $crate::each_fortran_name! { @$with! $before $small concat!("mpi_", stringify!($small)) }
        $crate::each_fortran_name! {
            @$with! $before $small concat!("mpi_", stringify!($small), "_")
        }
        $crate::each_fortran_name! {
            @$with! $before $small concat!("mpi_", stringify!($small), "__")
        }
        $crate::each_fortran_name! {
            @$with! $before $small concat!("MPI_", stringify!($capital))
        }
        $crate::each_fortran_name! {
            @$with! $before $small concat!("ompi_", stringify!($small), "_f")
        }
    };
    (@$with:ident! { $($before:tt)* } $small:ident $symbol:expr) => {
        $crate::$with! { $($before)* $symbol, concat!("pmpi_", stringify!($small), "_\0") }
    };
}

/// Exports the function `$symbol`. Calls are passed on to the function of this name in a tool that
/// is loaded behind Foldwire's library, or else to the MPI library's function `$behind`. `$type`
/// and `$value` are the types of the arguments and their C values. `$returned` computes the result
/// of a taken call from the code `$code`. `$address` is the function to which calls are passed on;
/// it can build the call with `$made()`.
#[doc(hidden)]
#[macro_export]
macro_rules! entry {
    ($abi:ty; $collective:ident $is_nonblocking:literal $symbol:expr, $behind:expr;
     ($($arg:ident: $type:ty = $value:expr),*) ($($error:ident: $error_type:ty)?) $(-> $result:ty)?,
     |$code:ident| $returned:expr, |$made:ident| $address:expr) => {
        const _: () = {
            #[unsafe(export_name = $symbol)]
            unsafe extern "C" fn exported($($arg: $type,)* $($error: $error_type)?) $(-> $result)? {
                use $crate::ffi::interceptor::{Collective, CallFilter, CallSize, empty_call};
                use $crate::ffi::original::Original;

                static ORIGINAL: Original = Original::new(concat!($symbol, "\0"), $behind);
                static FILTER: &CallFilter =
                    INTERCEPTOR.filters.of(Collective::$collective, $is_nonblocking);

                type Address = *mut ::core::ffi::c_void;
                type Function = unsafe extern "C" fn($($type,)* $($error_type)?) $(-> $result)?;

                /// Inspects a call that the filter does not pass on. A separate function, so that
                /// the exported function saves no registers and ends in a jump.
                ///
                /// # Safety
                /// The same as for the exported function.
                #[allow(clippy::too_many_arguments, reason = "MPI's function has as many")]
                #[inline(never)]
                unsafe extern "C" fn inspect(
                    $($arg: $type,)* $($error: $error_type)?
                ) $(-> $result)? {
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
                    // SAFETY: `address` is the function of this name in the library, or in a tool.
                    // It takes these arguments, and receives those of the program.
                    unsafe {
                        let next = ::core::mem::transmute::<Address, Function>(address);
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
                        true => ::core::mem::transmute::<Address, Function>(cached),
                        false => inspect,
                    };
                    next($($arg,)* $($error)?)
                }
            }
        };
    };
}

/// Calls the function `$symbol` that the program would call without Foldwire.
#[doc(hidden)]
#[macro_export]
macro_rules! original {
    ($abi:ty, $symbol:expr, $behind:expr, ($($arg:expr => $type:ty),*) $(-> $result:ty)?) => {{
        static ORIGINAL: $crate::ffi::original::Original =
            $crate::ffi::original::Original::new(concat!($symbol, "\0"), $behind);
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

/// Exports the function `$symbol`, which evaluates `$body`. There `$next` calls the function that
/// the program would call without Foldwire.
#[doc(hidden)]
#[macro_export]
macro_rules! exported {
    ($abi:ty; ($($arg:ident: $type:ty),*) $(-> $result:ty)?, |$next:ident| $body:expr,
     $symbol:expr, $behind:expr) => {
        const _: () = {
            #[unsafe(export_name = $symbol)]
            #[allow(clippy::too_many_arguments, reason = "MPI's function has as many")]
            unsafe extern "C" fn exported($($arg: $type),*) $(-> $result)? {
                let $next = |$($arg: $type),*| $crate::original!(
                    $abi, $symbol, $behind, ($($arg => $type),*) $(-> $result)?
                );
                $body
            }
        };
    };
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
        type Handle = <$abi as $crate::ffi::abi::Abi>::Handle;
        type HandlePtr = *mut Handle;

        $crate::each_message_function! { message_entries, $abi }
        $crate::entries! { @$abi;
            MPI_Init (argc: *mut Int, argv: Any) |next| begun(next(argc, argv));
            MPI_Init_thread (argc: *mut Int, argv: Any, required: Int, provided: *mut Int)
                |next| begun(next(argc, argv, required, provided));
            MPI_Comm_free (comm: HandlePtr) |next| { before_free(comm); next(comm) };
            MPI_Comm_disconnect (comm: HandlePtr) |next| { before_free(comm); next(comm) };
            MPI_Finalize () |next| { INTERCEPTOR.before_finalize(); next() };
        }

        /// Called after `MPI_Init`, with its result.
        fn begun(code: Int) -> Int {
            if code == 0 {
                INTERCEPTOR.after_init();
            }
            code
        }

        /// Called before a communicator of the program is freed.
        fn before_free(comm: HandlePtr) {
            // SAFETY: null, which MPI refuses, or a handle of the program.
            if let Some(&comm) = unsafe { comm.as_ref() } {
                INTERCEPTOR.before_comm_free(<$abi as $crate::ffi::abi::Abi>::erase(comm));
            }
        }
    };
    (@$abi:ty; $($name:ident $args:tt |$next:ident| $body:expr;)*) => {
        $($crate::exported! {
            $abi; $args -> Int, |$next| $body, stringify!($name), $crate::behind!($name)
        })*
    };
}

/// Exports all Fortran functions, for a family whose Fortran functions do not call the exported C
/// functions. Used in addition to [`entries`](crate::entries).
#[macro_export]
macro_rules! fortran_entries {
    ($abi:ty) => {
        $crate::each_function! { in_fortran, $abi }

        $crate::fortran_entries! { @$abi;
            init INIT (error) |next| { next(error); INTERCEPTOR.after_init() };
            init_thread INIT_THREAD (required provided error)
                |next| { next(required, provided, error); INTERCEPTOR.after_init() };
            finalize FINALIZE (error) |next| { INTERCEPTOR.before_finalize(); next(error) };
            comm_free COMM_FREE (comm error)
                |next| { before_free_by_fortran(comm); next(comm, error) };
            comm_disconnect COMM_DISCONNECT (comm error)
                |next| { before_free_by_fortran(comm); next(comm, error) };
        }

        fn before_free_by_fortran(comm: *mut Int) {
            // SAFETY: Fortran passes the address of a valid integer.
            let mut comm = unsafe { $crate::ffi::fortran::COMM.from_integer::<$abi>(*comm) };
            before_free(&raw mut comm);
        }
    };
    (@$abi:ty;
     $($small:ident $capital:ident ($($arg:ident)*) |$next:ident| $body:expr;)*) => {
        $($crate::each_fortran_name! {
            exported! { $abi; ($($arg: *mut Int),*), |$next| $body, } $small $capital
        })*
    };
}
