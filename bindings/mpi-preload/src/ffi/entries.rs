//! The table of the functions that are exported, and what it becomes: C's functions, C's with large
//! counts, Fortran's. A function is there in all of them, or ranks that call it by different names
//! would wait for each other.

/// Calls `$with! { $abi; row }` for each collective: core's name, C's with the name behind it, the
/// same with large counts, Fortran's names, the name behind those, and the arguments. The names of
/// arguments are their kinds: `send`, `recv` and `data` are buffers, `count` and `datatype` are of
/// both, `send_…` and `recv_…` of one; `…_counts` and `…_places` (displacements) are arrays.
#[doc(hidden)]
#[macro_export]
macro_rules! each_function {
    ($with:ident, $abi:ty) => {
        $crate::$with! { $abi; AllReduce,
        MPI_Allreduce c"PMPI_Allreduce", MPI_Allreduce_c c"PMPI_Allreduce_c",
        mpi_allreduce mpi_allreduce_ mpi_allreduce__ MPI_ALLREDUCE ompi_allreduce_f,
        c"pmpi_allreduce_", (send recv count datatype op comm) }
        $crate::$with! { $abi; Broadcast,
        MPI_Bcast c"PMPI_Bcast", MPI_Bcast_c c"PMPI_Bcast_c",
        mpi_bcast mpi_bcast_ mpi_bcast__ MPI_BCAST ompi_bcast_f,
        c"pmpi_bcast_", (data count datatype root comm) }
        $crate::$with! { $abi; Reduce,
        MPI_Reduce c"PMPI_Reduce", MPI_Reduce_c c"PMPI_Reduce_c",
        mpi_reduce mpi_reduce_ mpi_reduce__ MPI_REDUCE ompi_reduce_f,
        c"pmpi_reduce_", (send recv count datatype op root comm) }
        $crate::$with! { $abi; AllGather,
        MPI_Allgather c"PMPI_Allgather", MPI_Allgather_c c"PMPI_Allgather_c",
        mpi_allgather mpi_allgather_ mpi_allgather__ MPI_ALLGATHER ompi_allgather_f,
        c"pmpi_allgather_", (send send_count send_type recv recv_count recv_type comm) }
        $crate::$with! { $abi; AllGather,
        MPI_Allgatherv c"PMPI_Allgatherv", MPI_Allgatherv_c c"PMPI_Allgatherv_c",
        mpi_allgatherv mpi_allgatherv_ mpi_allgatherv__ MPI_ALLGATHERV ompi_allgatherv_f,
        c"pmpi_allgatherv_", (
            send send_count send_type recv recv_counts recv_places recv_type comm) }
        $crate::$with! { $abi; AllToAll,
        MPI_Alltoall c"PMPI_Alltoall", MPI_Alltoall_c c"PMPI_Alltoall_c",
        mpi_alltoall mpi_alltoall_ mpi_alltoall__ MPI_ALLTOALL ompi_alltoall_f,
        c"pmpi_alltoall_", (send send_count send_type recv recv_count recv_type comm) }
        $crate::$with! { $abi; AllToAll,
        MPI_Alltoallv c"PMPI_Alltoallv", MPI_Alltoallv_c c"PMPI_Alltoallv_c",
        mpi_alltoallv mpi_alltoallv_ mpi_alltoallv__ MPI_ALLTOALLV ompi_alltoallv_f,
        c"pmpi_alltoallv_", (
            send send_counts send_places send_type recv recv_counts recv_places recv_type comm) }
        $crate::$with! { $abi; Gather,
        MPI_Gather c"PMPI_Gather", MPI_Gather_c c"PMPI_Gather_c",
        mpi_gather mpi_gather_ mpi_gather__ MPI_GATHER ompi_gather_f,
        c"pmpi_gather_", (send send_count send_type recv recv_count recv_type root comm) }
        $crate::$with! { $abi; Gather,
        MPI_Gatherv c"PMPI_Gatherv", MPI_Gatherv_c c"PMPI_Gatherv_c",
        mpi_gatherv mpi_gatherv_ mpi_gatherv__ MPI_GATHERV ompi_gatherv_f,
        c"pmpi_gatherv_", (
            send send_count send_type recv recv_counts recv_places recv_type root comm) }
        $crate::$with! { $abi; Scatter,
        MPI_Scatter c"PMPI_Scatter", MPI_Scatter_c c"PMPI_Scatter_c",
        mpi_scatter mpi_scatter_ mpi_scatter__ MPI_SCATTER ompi_scatter_f,
        c"pmpi_scatter_", (send send_count send_type recv recv_count recv_type root comm) }
        $crate::$with! { $abi; Scatter,
        MPI_Scatterv c"PMPI_Scatterv", MPI_Scatterv_c c"PMPI_Scatterv_c",
        mpi_scatterv mpi_scatterv_ mpi_scatterv__ MPI_SCATTERV ompi_scatterv_f,
        c"pmpi_scatterv_", (
            send send_counts send_places send_type recv recv_count recv_type root comm) }
        $crate::$with! { $abi; ReduceScatter,
        MPI_Reduce_scatter_block c"PMPI_Reduce_scatter_block",
        MPI_Reduce_scatter_block_c c"PMPI_Reduce_scatter_block_c",
        mpi_reduce_scatter_block mpi_reduce_scatter_block_ mpi_reduce_scatter_block__
            MPI_REDUCE_SCATTER_BLOCK ompi_reduce_scatter_block_f,
        c"pmpi_reduce_scatter_block_", (send recv count datatype op comm) }
        $crate::$with! { $abi; ReduceScatter,
        MPI_Reduce_scatter c"PMPI_Reduce_scatter",
        MPI_Reduce_scatter_c c"PMPI_Reduce_scatter_c",
        mpi_reduce_scatter mpi_reduce_scatter_ mpi_reduce_scatter__
            MPI_REDUCE_SCATTER ompi_reduce_scatter_f,
        c"pmpi_reduce_scatter_", (send recv recv_counts datatype op comm) }
    };
}

/// The same for collectives that are not waited for in the call.
#[doc(hidden)]
#[macro_export]
macro_rules! each_that_begins {
    ($with:ident, $abi:ty) => {
        $crate::$with! { $abi; AllReduce,
        MPI_Iallreduce c"PMPI_Iallreduce", MPI_Iallreduce_c c"PMPI_Iallreduce_c",
        mpi_iallreduce mpi_iallreduce_ mpi_iallreduce__ MPI_IALLREDUCE ompi_iallreduce_f,
        c"pmpi_iallreduce_", (send recv count datatype op comm request) }
        $crate::$with! { $abi; Broadcast,
        MPI_Ibcast c"PMPI_Ibcast", MPI_Ibcast_c c"PMPI_Ibcast_c",
        mpi_ibcast mpi_ibcast_ mpi_ibcast__ MPI_IBCAST ompi_ibcast_f,
        c"pmpi_ibcast_", (data count datatype root comm request) }
        $crate::$with! { $abi; Reduce,
        MPI_Ireduce c"PMPI_Ireduce", MPI_Ireduce_c c"PMPI_Ireduce_c",
        mpi_ireduce mpi_ireduce_ mpi_ireduce__ MPI_IREDUCE ompi_ireduce_f,
        c"pmpi_ireduce_", (send recv count datatype op root comm request) }
        $crate::$with! { $abi; AllGather,
        MPI_Iallgather c"PMPI_Iallgather", MPI_Iallgather_c c"PMPI_Iallgather_c",
        mpi_iallgather mpi_iallgather_ mpi_iallgather__ MPI_IALLGATHER ompi_iallgather_f,
        c"pmpi_iallgather_", (send send_count send_type recv recv_count recv_type comm request) }
        $crate::$with! { $abi; AllGather,
        MPI_Iallgatherv c"PMPI_Iallgatherv", MPI_Iallgatherv_c c"PMPI_Iallgatherv_c",
        mpi_iallgatherv mpi_iallgatherv_ mpi_iallgatherv__ MPI_IALLGATHERV ompi_iallgatherv_f,
        c"pmpi_iallgatherv_", (
            send send_count send_type recv recv_counts recv_places recv_type comm request) }
        $crate::$with! { $abi; AllToAll,
        MPI_Ialltoall c"PMPI_Ialltoall", MPI_Ialltoall_c c"PMPI_Ialltoall_c",
        mpi_ialltoall mpi_ialltoall_ mpi_ialltoall__ MPI_IALLTOALL ompi_ialltoall_f,
        c"pmpi_ialltoall_", (send send_count send_type recv recv_count recv_type comm request) }
        $crate::$with! { $abi; AllToAll,
        MPI_Ialltoallv c"PMPI_Ialltoallv", MPI_Ialltoallv_c c"PMPI_Ialltoallv_c",
        mpi_ialltoallv mpi_ialltoallv_ mpi_ialltoallv__ MPI_IALLTOALLV ompi_ialltoallv_f,
        c"pmpi_ialltoallv_", (
            send send_counts send_places send_type recv recv_counts recv_places recv_type comm
            request) }
        $crate::$with! { $abi; Gather,
        MPI_Igather c"PMPI_Igather", MPI_Igather_c c"PMPI_Igather_c",
        mpi_igather mpi_igather_ mpi_igather__ MPI_IGATHER ompi_igather_f,
        c"pmpi_igather_", (send send_count send_type recv recv_count recv_type root comm request) }
        $crate::$with! { $abi; Gather,
        MPI_Igatherv c"PMPI_Igatherv", MPI_Igatherv_c c"PMPI_Igatherv_c",
        mpi_igatherv mpi_igatherv_ mpi_igatherv__ MPI_IGATHERV ompi_igatherv_f,
        c"pmpi_igatherv_", (
            send send_count send_type recv recv_counts recv_places recv_type root comm request) }
        $crate::$with! { $abi; Scatter,
        MPI_Iscatter c"PMPI_Iscatter", MPI_Iscatter_c c"PMPI_Iscatter_c",
        mpi_iscatter mpi_iscatter_ mpi_iscatter__ MPI_ISCATTER ompi_iscatter_f,
        c"pmpi_iscatter_", (send send_count send_type recv recv_count recv_type root comm request) }
        $crate::$with! { $abi; Scatter,
        MPI_Iscatterv c"PMPI_Iscatterv", MPI_Iscatterv_c c"PMPI_Iscatterv_c",
        mpi_iscatterv mpi_iscatterv_ mpi_iscatterv__ MPI_ISCATTERV ompi_iscatterv_f,
        c"pmpi_iscatterv_", (
            send send_counts send_places send_type recv recv_count recv_type root comm request) }
        $crate::$with! { $abi; ReduceScatter,
        MPI_Ireduce_scatter_block c"PMPI_Ireduce_scatter_block",
        MPI_Ireduce_scatter_block_c c"PMPI_Ireduce_scatter_block_c",
        mpi_ireduce_scatter_block mpi_ireduce_scatter_block_ mpi_ireduce_scatter_block__
            MPI_IREDUCE_SCATTER_BLOCK ompi_ireduce_scatter_block_f,
        c"pmpi_ireduce_scatter_block_", (send recv count datatype op comm request) }
        $crate::$with! { $abi; ReduceScatter,
        MPI_Ireduce_scatter c"PMPI_Ireduce_scatter",
        MPI_Ireduce_scatter_c c"PMPI_Ireduce_scatter_c",
        mpi_ireduce_scatter mpi_ireduce_scatter_ mpi_ireduce_scatter__
            MPI_IREDUCE_SCATTER ompi_ireduce_scatter_f,
        c"pmpi_ireduce_scatter_", (send recv recv_counts datatype op comm request) }
    };
}

/// A collective in C, with `int` and with large counts.
#[doc(hidden)]
#[macro_export]
macro_rules! in_c {
    ($abi:ty; $collective:ident, $name:ident $behind:literal, $large:ident $large_behind:literal,
     $($fortran:ident)*, $fortran_behind:literal, ($($arg:ident)*)) => {
        $crate::in_c! {
            @$abi; $collective, $name $behind, ::core::ffi::c_int, ($($arg)*),
            |call| ORIGINAL.address::<$abi>()
        }
        // A program may ask whether the library has this, as by a weak symbol, and finds ours.
        // Where the library has none, the one without large counts does it.
        $crate::in_c! {
            @$abi; $collective, $large $large_behind, i64, ($($arg)*),
            |call| match ORIGINAL.find::<$abi>() {
                Some(address) => address,
                None => {
                    $(let Some($arg) = $crate::narrow!(call(), $arg, $arg) else {
                        return DOOR.refuse_count(&call());
                    };)*
                    return $crate::original!($abi, $name $behind, (
                        $($crate::narrowed!($arg, $arg) =>
                            $crate::c_type!($abi, ::core::ffi::c_int, $arg)),*
                    ) -> ::core::ffi::c_int);
                }
            }
        }
    };
    (@$abi:ty; $collective:ident, $name:ident $behind:literal, $count:ty, ($($arg:ident)*),
     |$made:ident| $address:expr) => {
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(
            $($arg: $crate::c_type!($abi, $count, $arg)),*
        ) -> ::core::ffi::c_int {
            use $crate::ffi::door::{Call, Collective, Gate, Weight, call};
            use $crate::ffi::next::Original;

            static ORIGINAL: Original = Original::new(concat!(stringify!($name), "\0"), $behind);
            static GATE: &Gate =
                DOOR.gates.of(Collective::$collective, $crate::is_ahead!($($arg)*));

            #[allow(clippy::too_many_arguments, reason = "as many as MPI's function has")]
            fn made($($arg: $crate::c_type!($abi, $count, $arg)),*) -> Call {
                let mut call = call(Collective::$collective);
                $($crate::set_argument!($abi, call, $arg, $arg);)*
                call
            }

            type Function =
                unsafe extern "C" fn($($crate::c_type!($abi, $count, $arg)),*)
                    -> ::core::ffi::c_int;

            /// A call that does not go on at once. Apart from the entry, which so has nothing to
            /// save, and jumps.
            ///
            /// # Safety
            /// As the entry's.
            #[allow(clippy::too_many_arguments, reason = "as many as MPI's function has")]
            #[inline(never)]
            unsafe extern "C" fn look(
                $($arg: $crate::c_type!($abi, $count, $arg)),*
            ) -> ::core::ffi::c_int {
                if !GATE.is_shut() {
                    let mut weight = Weight::of(Collective::$collective);
                    $($crate::weigh!($abi, weight, $arg, $arg);)*
                    if !DOOR.passes(GATE, &weight)
                        && let Some(code) = DOOR.collective(&made($($arg),*))
                    {
                        return code;
                    }
                }
                #[allow(unused_variables, reason = "of those with large counts")]
                let $made = || made($($arg),*);
                let address = $address;
                // SAFETY: the library's function of this name, or a tool's in place of it, which
                // has these arguments, gets what the program gave.
                unsafe {
                    ::core::mem::transmute::<*mut ::core::ffi::c_void, Function>(address)(
                        $($arg),*
                    )
                }
            }

            let known = ORIGINAL.known();
            let passes = !known.is_null() && (GATE.is_shut() || {
                let mut weight = Weight::of(Collective::$collective);
                $($crate::weigh!($abi, weight, $arg, $arg);)*
                DOOR.gates.passes(GATE, &weight)
            });
            // SAFETY: as in `look`.
            unsafe {
                let next = match passes {
                    true => ::core::mem::transmute::<*mut ::core::ffi::c_void, Function>(known),
                    false => look,
                };
                next($($arg),*)
            }
        }
    };
}

/// A collective in Fortran, by all names that compilers give it.
#[doc(hidden)]
#[macro_export]
macro_rules! in_fortran {
    ($abi:ty; $collective:ident, $name:ident $behind:literal, $large:ident $large_behind:literal,
     $($fortran:ident)*, $fortran_behind:literal, $args:tt) => {
        $($crate::in_fortran! { @$abi; $collective, $fortran, $fortran_behind, $args })*
    };
    (@$abi:ty; $collective:ident, $name:ident, $behind:literal, ($($arg:ident)*)) => {
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(
            $($arg: $crate::fortran_type!($arg),)*
            error: *mut ::core::ffi::c_int,
        ) {
            use $crate::ffi::door::{Collective, Gate, Weight, call};
            use $crate::ffi::next::Original;

            static ORIGINAL: Original = Original::new(concat!(stringify!($name), "\0"), $behind);
            static GATE: &Gate =
                DOOR.gates.of(Collective::$collective, $crate::is_ahead!($($arg)*));

            type Function = unsafe extern "C" fn(
                $($crate::fortran_type!($arg),)* *mut ::core::ffi::c_int,
            );

            /// A call that does not go on at once. Apart from the entry, which so has nothing to
            /// save, and jumps.
            ///
            /// # Safety
            /// Arguments must be as Fortran passes them: addresses of integers that are there. The
            /// error is null, where Fortran 2008 leaves it out, or an integer to be written.
            #[allow(clippy::too_many_arguments, reason = "as many as MPI's function has")]
            #[inline(never)]
            unsafe extern "C" fn look(
                $($arg: $crate::fortran_type!($arg),)*
                error: *mut ::core::ffi::c_int,
            ) {
                if !GATE.is_shut() {
                    let mut weight = Weight::of(Collective::$collective);
                    // SAFETY: by the caller's promise.
                    unsafe {
                        $($crate::weigh!(
                            $abi, weight, $arg, $crate::from_fortran!($abi, $arg, $arg)
                        );)*
                    }
                    if !DOOR.passes(GATE, &weight) {
                        let mut call = call(Collective::$collective);
                        // SAFETY: by the caller's promise.
                        unsafe {
                            $($crate::set_argument!(
                                $abi, call, $arg, $crate::from_fortran!($abi, $arg, $arg)
                            );)*
                            if let Some(code) = DOOR.collective(&call) {
                                $crate::ffi::fortran::set_error(error, code);
                                return;
                            }
                        }
                    }
                }
                // SAFETY: the library's function of this name, or a tool's in place of it, which
                // has these arguments, gets what the program gave.
                unsafe {
                    let original = ::core::mem::transmute::<*mut ::core::ffi::c_void, Function>(
                        ORIGINAL.address::<$abi>(),
                    );
                    original($($arg,)* error)
                }
            }

            let known = ORIGINAL.known();
            let passes = !known.is_null() && (GATE.is_shut() || {
                let mut weight = Weight::of(Collective::$collective);
                // SAFETY: Fortran passes addresses of integers that are there.
                unsafe {
                    $($crate::weigh!(
                        $abi, weight, $arg, $crate::from_fortran!($abi, $arg, $arg)
                    );)*
                }
                DOOR.gates.passes(GATE, &weight)
            });
            // SAFETY: as in `look`.
            unsafe {
                let next = match passes {
                    true => ::core::mem::transmute::<*mut ::core::ffi::c_void, Function>(known),
                    false => look,
                };
                next($($arg,)* error)
            }
        }
    };
}

/// The function behind ours of this name, with these arguments.
#[doc(hidden)]
#[macro_export]
macro_rules! original {
    ($abi:ty, $name:ident $behind:literal, ($($arg:expr => $type:ty),*) $(-> $result:ty)?) => {{
        static ORIGINAL: $crate::ffi::next::Original =
            $crate::ffi::next::Original::new(concat!(stringify!($name), "\0"), $behind);
        type Function = unsafe extern "C" fn($($type),*) $(-> $result)?;
        // SAFETY: the library's function of this name, which has these arguments, gets what the
        // program gave.
        unsafe {
            let original = ::core::mem::transmute::<*mut ::core::ffi::c_void, Function>(
                ORIGINAL.address::<$abi>(),
            );
            original($($arg),*)
        }
    }};
}

/// Exports all functions of C for a family of MPI libraries.
#[macro_export]
macro_rules! entries {
    ($abi:ty) => {
        static DOOR: $crate::ffi::door::Door<$abi> = $crate::ffi::door::Door::new();

        $crate::each_function! { in_c, $abi }
        $crate::each_that_begins! { in_c, $abi }

        #[cfg(target_os = "linux")]
        #[used]
        #[unsafe(link_section = ".fini_array")]
        static AT_EXIT: extern "C" fn() = {
            extern "C" fn at_exit() {
                DOOR.at_exit();
            }
            at_exit
        };

        type Int = ::core::ffi::c_int;
        type Any = *mut ::core::ffi::c_void;
        type HandlePlace = *mut <$abi as $crate::ffi::abi::Abi>::Handle;

        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn MPI_Init(argc: *mut Int, argv: Any) -> Int {
            let code = $crate::original!(
                $abi, MPI_Init c"PMPI_Init", (argc => *mut Int, argv => Any) -> Int
            );
            if code == 0 {
                DOOR.begin();
            }
            code
        }

        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn MPI_Init_thread(
            argc: *mut Int, argv: Any, required: Int, provided: *mut Int,
        ) -> Int {
            let code = $crate::original!(
                $abi, MPI_Init_thread c"PMPI_Init_thread",
                (argc => *mut Int, argv => Any, required => Int, provided => *mut Int) -> Int
            );
            if code == 0 {
                DOOR.begin();
            }
            code
        }

        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn MPI_Finalize() -> Int {
            DOOR.end();
            $crate::original!($abi, MPI_Finalize c"PMPI_Finalize", () -> Int)
        }

        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn MPI_Comm_free(comm: HandlePlace) -> Int {
            // SAFETY: null, which MPI refuses, or a handle of the program's.
            if let Some(&comm) = unsafe { comm.as_ref() } {
                DOOR.forget(<$abi as $crate::ffi::abi::Abi>::erase(comm));
            }
            $crate::original!($abi, MPI_Comm_free c"PMPI_Comm_free", (comm => HandlePlace) -> Int)
        }

        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn MPI_Comm_disconnect(comm: HandlePlace) -> Int {
            // SAFETY: null, which MPI refuses, or a handle of the program's.
            if let Some(&comm) = unsafe { comm.as_ref() } {
                DOOR.forget(<$abi as $crate::ffi::abi::Abi>::erase(comm));
            }
            $crate::original!($abi, MPI_Comm_disconnect c"PMPI_Comm_disconnect", (comm => HandlePlace) -> Int)
        }
    };
}

/// Exports all functions of Fortran, for a family in which they do not go through C's names; beside
/// [`entries`](crate::entries).
#[macro_export]
macro_rules! fortran_entries {
    ($abi:ty) => {
        $crate::each_function! { in_fortran, $abi }
        $crate::each_that_begins! { in_fortran, $abi }

        $crate::fortran_entries! { @init $abi;
            mpi_init mpi_init_ mpi_init__ MPI_INIT ompi_init_f }
        $crate::fortran_entries! { @init_thread $abi;
            mpi_init_thread mpi_init_thread_ mpi_init_thread__ MPI_INIT_THREAD ompi_init_thread_f }
        $crate::fortran_entries! { @finalize $abi;
            mpi_finalize mpi_finalize_ mpi_finalize__ MPI_FINALIZE ompi_finalize_f }
        $crate::fortran_entries! { @free c"pmpi_comm_free_" $abi;
            mpi_comm_free mpi_comm_free_ mpi_comm_free__ MPI_COMM_FREE ompi_comm_free_f }
        $crate::fortran_entries! { @free c"pmpi_comm_disconnect_" $abi;
            mpi_comm_disconnect mpi_comm_disconnect_ mpi_comm_disconnect__ MPI_COMM_DISCONNECT
            ompi_comm_disconnect_f }
    };
    (@init $abi:ty; $($name:ident)*) => {
        $(#[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(error: *mut Int) {
            $crate::original!($abi, $name c"pmpi_init_", (error => *mut Int));
            DOOR.begin();
        })*
    };
    (@init_thread $abi:ty; $($name:ident)*) => {
        $(#[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(required: *mut Int, provided: *mut Int, error: *mut Int) {
            $crate::original!(
                $abi, $name c"pmpi_init_thread_",
                (required => *mut Int, provided => *mut Int, error => *mut Int)
            );
            DOOR.begin();
        })*
    };
    (@finalize $abi:ty; $($name:ident)*) => {
        $(#[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(error: *mut Int) {
            DOOR.end();
            $crate::original!($abi, $name c"pmpi_finalize_", (error => *mut Int));
        })*
    };
    (@free $behind:literal $abi:ty; $($name:ident)*) => {
        $(#[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(comm: *mut Int, error: *mut Int) {
            // SAFETY: Fortran passes the address of an integer that is there.
            let handle = unsafe { $crate::ffi::fortran::COMM.from_integer::<$abi>(*comm) };
            DOOR.forget(<$abi as $crate::ffi::abi::Abi>::erase(handle));
            $crate::original!($abi, $name $behind, (comm => *mut Int, error => *mut Int));
        })*
    };
}
