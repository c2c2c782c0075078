! Foldwire for Fortran: the functions and constants of foldwire.h, under the same names.
!
! foldwire.h documents each function. Compile this file together with the program, because module
! files work with one compiler only. Link like a C program:
!
!     gfortran -c $(pkg-config --variable=includedir foldwire)/foldwire.f90
!     gfortran program.f90 foldwire.o $(pkg-config --libs foldwire) -o program
!
! Communicators and requests are type(c_ptr). An absent plan, configuration or request argument is
! NULL in C: an exact call, default settings, a blocking call. Variables of type(fwPlan),
! type(fwConfig), type(fwMemory) and type(fwReport) start with the values of FW_..._INIT.
!
! Arrays must be contiguous. For other arrays the compiler passes a temporary copy, which does not
! exist until a call with a request has finished. Arrays and handles that such a call, or a group,
! uses after it returns need the attribute asynchronous.
!
! Requires GNU Fortran 9 or newer, or another compiler with the C interoperability of Fortran 2018.
module foldwire
    use, intrinsic :: iso_c_binding
    implicit none
    public

    integer, parameter :: fwResult = c_int32_t, fwDataType = c_int32_t, fwRedOp = c_int32_t

    integer(c_int32_t), parameter :: FW_SUCCESS = 0
    integer(c_int32_t), parameter :: FW_INVALID_ARGUMENT = 1
    integer(c_int32_t), parameter :: FW_INVALID_HANDLE = 2
    integer(c_int32_t), parameter :: FW_INVALID_USAGE = 3
    integer(c_int32_t), parameter :: FW_IN_USE = 4
    integer(c_int32_t), parameter :: FW_UNSUPPORTED = 5
    integer(c_int32_t), parameter :: FW_NO_ROOM = 6
    integer(c_int32_t), parameter :: FW_MISMATCH = 7
    integer(c_int32_t), parameter :: FW_TIMEOUT = 8
    integer(c_int32_t), parameter :: FW_PEER_LOST = 9
    integer(c_int32_t), parameter :: FW_ABORTED = 10
    integer(c_int32_t), parameter :: FW_POISONED = 11
    integer(c_int32_t), parameter :: FW_EXCLUDED = 12
    integer(c_int32_t), parameter :: FW_DAMAGED = 13
    integer(c_int32_t), parameter :: FW_TRANSPORT_ERROR = 14
    integer(c_int32_t), parameter :: FW_INTERNAL_ERROR = 15
    integer(c_int32_t), parameter :: FW_DEVICE_ERROR = 16

    ! FW_FLOAT32 is real(c_float), FW_FLOAT64 real(c_double), FW_INT8 integer(c_int8_t), and so on.
    ! Fortran has no unsigned types and no 16-bit floats; those codes are for arrays from C.
    integer(c_int32_t), parameter :: FW_FLOAT32 = 1
    integer(c_int32_t), parameter :: FW_FLOAT64 = 2
    integer(c_int32_t), parameter :: FW_FLOAT16 = 3
    integer(c_int32_t), parameter :: FW_BFLOAT16 = 4
    integer(c_int32_t), parameter :: FW_INT8 = 5
    integer(c_int32_t), parameter :: FW_UINT8 = 6
    integer(c_int32_t), parameter :: FW_INT16 = 7
    integer(c_int32_t), parameter :: FW_UINT16 = 8
    integer(c_int32_t), parameter :: FW_INT32 = 9
    integer(c_int32_t), parameter :: FW_UINT32 = 10
    integer(c_int32_t), parameter :: FW_INT64 = 11
    integer(c_int32_t), parameter :: FW_UINT64 = 12
    ! complex(c_float_complex) and complex(c_double_complex).
    integer(c_int32_t), parameter :: FW_COMPLEX64 = 33
    integer(c_int32_t), parameter :: FW_COMPLEX128 = 34

    integer(c_int32_t), parameter :: FW_SUM = 1
    integer(c_int32_t), parameter :: FW_AVG = 2
    integer(c_int32_t), parameter :: FW_MIN = 3
    integer(c_int32_t), parameter :: FW_MAX = 4
    integer(c_int32_t), parameter :: FW_PROD = 5
    integer(c_int32_t), parameter :: FW_BAND = 16
    integer(c_int32_t), parameter :: FW_BOR = 17
    integer(c_int32_t), parameter :: FW_BXOR = 18
    integer(c_int32_t), parameter :: FW_LAND = 19
    integer(c_int32_t), parameter :: FW_LOR = 20
    integer(c_int32_t), parameter :: FW_LXOR = 21

    integer(c_int32_t), parameter :: FW_EXACT = 0
    integer(c_int32_t), parameter :: FW_LOSSLESS = 1
    integer(c_int32_t), parameter :: FW_COMPRESS = 2
    integer(c_int32_t), parameter :: FW_AUTO = 3

    ! Values of several sums: the columns of x(count, n_sums) or the rows of x(n_sums, count).
    integer(c_int32_t), parameter :: FW_ADJACENT = 0
    integer(c_int32_t), parameter :: FW_STRIDED = 1

    integer(c_int32_t), parameter :: FW_NO_BOUND = 0
    integer(c_int32_t), parameter :: FW_ABSOLUTE = 1
    integer(c_int32_t), parameter :: FW_RELATIVE = 2
    integer(c_int32_t), parameter :: FW_PSNR = 3

    integer(c_int32_t), parameter :: FW_NO_FILL = 0
    integer(c_int32_t), parameter :: FW_FILL_MISSING = 1
    integer(c_int32_t), parameter :: FW_FILL_NUMBER = 2

    integer(c_int32_t), parameter :: FW_EACH_OPERAND = 0
    integer(c_int32_t), parameter :: FW_RESULT = 1

    integer(c_int32_t), parameter :: FW_CHECKSUM_AS_NEEDED = 0
    integer(c_int32_t), parameter :: FW_CHECKSUM_ALWAYS = 1
    integer(c_int32_t), parameter :: FW_CHECKSUM_NEVER = 2

    integer(c_int32_t), parameter :: FW_MEMORY_HOST = 0
    integer(c_int32_t), parameter :: FW_MEMORY_DEVICE = 1

    integer(c_int32_t), parameter :: FW_UNIQUE_ID_BYTES = 128
    integer(c_int32_t), parameter :: FW_SPLIT_NOCOLOR = -1
    integer(c_int32_t), parameter :: FW_VERSION_MAJOR = 0
    integer(c_int32_t), parameter :: FW_VERSION_MINOR = 1
    integer(c_int32_t), parameter :: FW_VERSION_PATCH = 0
    integer(c_int32_t), parameter :: FW_NAME_BYTES = 32

    type, bind(c) :: fwUniqueId
        integer(c_int8_t) :: internal(FW_UNIQUE_ID_BYTES) = 0
    end type

    ! The first member of these types is their size in bytes. Only for 64-bit machines.
    type, bind(c) :: fwConfig
        integer(c_size_t) :: size = 48
        integer(c_int32_t) :: calls = 0
        integer(c_int32_t) :: lanes = 0
        real(c_double) :: timeout = 0
        real(c_double) :: deadline = 0
        real(c_double) :: link_rate = 0
        integer(c_int32_t) :: checksum = FW_CHECKSUM_AS_NEEDED
        integer(c_int32_t) :: reserved = 0
    end type

    type, bind(c) :: fwPlan
        integer(c_size_t) :: size = 160
        integer(c_int32_t) :: mode = FW_EXACT
        integer(c_int32_t) :: bound_kind = FW_NO_BOUND
        real(c_double) :: bound = 0
        integer(c_int32_t) :: scope = FW_EACH_OPERAND
        integer(c_int32_t) :: setting = 0
        character(c_char) :: codec(FW_NAME_BYTES) = c_null_char
        character(c_char) :: schedule(FW_NAME_BYTES) = c_null_char
        integer(c_size_t) :: shape(3) = 0
        integer(c_size_t) :: exact_below = 0
        integer(c_int32_t) :: is_unbiased = 0
        integer(c_int32_t) :: lanes = 0
        integer(c_int64_t) :: seed = 0
        real(c_double) :: fill = 0
        integer(c_int32_t) :: fill_kind = FW_NO_FILL
        integer(c_int32_t) :: refuses_fill = 0
    end type

    ! Arrays in the memory of a device are variables with the attribute device of CUDA Fortran, or
    ! dummies of addresses from C.
    type, bind(c) :: fwMemory
        integer(c_size_t) :: size = 24
        integer(c_int32_t) :: kind = FW_MEMORY_HOST
        integer(c_int32_t) :: device = 0
        type(c_ptr) :: stream = c_null_ptr
    end type

    ! The functions are c_funloc of functions with the interfaces of foldwire.h; job is c_loc of
    ! text that ends with c_null_char.
    type, bind(c) :: fwStore
        integer(c_size_t) :: size = 48
        type(c_ptr) :: context = c_null_ptr
        type(c_funptr) :: set = c_null_funptr
        type(c_funptr) :: get = c_null_funptr
        type(c_funptr) :: wait = c_null_funptr
        type(c_ptr) :: job = c_null_ptr
    end type

    type, bind(c) :: fwAdmission
        integer(c_size_t) :: size = 48
        integer(c_int32_t) :: n_ranks = 0
        integer(c_int32_t) :: reserved = 0
        real(c_double) :: limit = 60
        real(c_double) :: patience = 5
        type(c_ptr) :: facts = c_null_ptr
        integer(c_size_t) :: n_fact_bytes = 0
    end type

    type, bind(c) :: fwReport
        integer(c_size_t) :: size = 128
        real(c_double) :: seconds = 0
        real(c_double) :: bound = 0
        real(c_double) :: worst_case = 0
        integer(c_int64_t) :: raw_bytes = 0
        integer(c_int64_t) :: wire_bytes = 0
        integer(c_int64_t) :: n_messages = 0
        character(c_char) :: codec(FW_NAME_BYTES) = c_null_char
        character(c_char) :: schedule(FW_NAME_BYTES) = c_null_char
        real(c_double) :: suspected_fill = 0
    end type

    interface
        integer(fwResult) function fwGetVersion(version) bind(c, name="fwGetVersion")
            import
            integer(c_int32_t), intent(out) :: version
        end function

        integer(fwResult) function fwCommInitAll(comms, n_ranks, config) &
            bind(c, name="fwCommInitAll")
            import
            type(c_ptr), intent(out) :: comms(*)
            integer(c_int32_t), value :: n_ranks
            type(fwConfig), intent(in), optional :: config
        end function

        integer(fwResult) function fwGetUniqueId(id) bind(c, name="fwGetUniqueId")
            import
            type(fwUniqueId), intent(out) :: id
        end function

        integer(fwResult) function fwCommInitRank(comm, n_ranks, id, rank, config) &
            bind(c, name="fwCommInitRank")
            import
            type(c_ptr), intent(out) :: comm
            integer(c_int32_t), value :: n_ranks
            type(fwUniqueId), value :: id
            integer(c_int32_t), value :: rank
            type(fwConfig), intent(in), optional :: config
        end function

        integer(fwResult) function fwCommInitEnv(comm, config) bind(c, name="fwCommInitEnv")
            import
            type(c_ptr), intent(out) :: comm
            type(fwConfig), intent(in), optional :: config
        end function

        integer(fwResult) function fwCommCount(comm, count) bind(c, name="fwCommCount")
            import
            type(c_ptr), value :: comm
            integer(c_int32_t), intent(out) :: count
        end function

        integer(fwResult) function fwCommUserRank(comm, rank) bind(c, name="fwCommUserRank")
            import
            type(c_ptr), value :: comm
            integer(c_int32_t), intent(out) :: rank
        end function

        integer(fwResult) function fwCommReport(comm, report) bind(c, name="fwCommReport")
            import
            type(c_ptr), value :: comm
            type(fwReport), intent(inout) :: report
        end function

        integer(fwResult) function fwCommSetMemory(comm, memory) bind(c, name="fwCommSetMemory")
            import
            type(c_ptr), value :: comm
            type(fwMemory), intent(in), optional :: memory
        end function

        integer(fwResult) function fwCommSplit(comm, color, key, new_comm, config) &
            bind(c, name="fwCommSplit")
            import
            type(c_ptr), value :: comm
            integer(c_int32_t), value :: color, key
            type(c_ptr), intent(out) :: new_comm
            type(fwConfig), intent(in), optional :: config
        end function

        integer(fwResult) function fwCommShrink(comm, patience, new_comm) &
            bind(c, name="fwCommShrink")
            import
            type(c_ptr), value :: comm
            real(c_double), value :: patience
            type(c_ptr), intent(out) :: new_comm
        end function

        integer(fwResult) function fwCommInitStore(comm, n_ranks, store, rank, config) &
            bind(c, name="fwCommInitStore")
            import
            type(c_ptr), intent(out) :: comm
            integer(c_int32_t), value :: n_ranks
            type(fwStore), intent(in) :: store
            integer(c_int32_t), value :: rank
            type(fwConfig), intent(in), optional :: config
        end function

        integer(fwResult) function fwCommAdmit(comm, store, admission, new_comm) &
            bind(c, name="fwCommAdmit")
            import
            type(c_ptr), value :: comm
            type(fwStore), intent(in) :: store
            type(fwAdmission), intent(in), optional :: admission
            type(c_ptr), intent(out) :: new_comm
        end function

        integer(fwResult) function fwCommRejoin(comm, store, limit, config) &
            bind(c, name="fwCommRejoin")
            import
            type(c_ptr), intent(out) :: comm
            type(fwStore), intent(in) :: store
            real(c_double), value :: limit
            type(fwConfig), intent(in), optional :: config
        end function

        integer(fwResult) function fwCommFacts(comm, facts, capacity, n_bytes) &
            bind(c, name="fwCommFacts")
            import
            type(c_ptr), value :: comm, facts
            integer(c_size_t), value :: capacity
            integer(c_size_t), intent(out) :: n_bytes
        end function

        integer(fwResult) function fwCommDestroy(comm) bind(c, name="fwCommDestroy")
            import
            type(c_ptr), value :: comm
        end function

        integer(fwResult) function fwCommAbort(comm) bind(c, name="fwCommAbort")
            import
            type(c_ptr), value :: comm
        end function

        integer(fwResult) function fwCommGetAsyncError(comm, async_error) &
            bind(c, name="fwCommGetAsyncError")
            import
            type(c_ptr), value :: comm
            integer(c_int32_t), intent(out) :: async_error
        end function

        integer(fwResult) function fwRedOpCreate(op, function, context) &
            bind(c, name="fwRedOpCreate")
            import
            integer(c_int32_t), intent(out) :: op
            type(c_funptr), value :: function
            type(c_ptr), value :: context
        end function

        integer(fwResult) function fwRedOpDestroy(op) bind(c, name="fwRedOpDestroy")
            import
            integer(c_int32_t), value :: op
        end function

        integer(fwResult) function fwAllReduce(send, recv, count, data_type, op, plan, comm, &
            request) bind(c, name="fwAllReduce")
            import
            !GCC$ attributes no_arg_check :: send
            !DIR$ ignore_tkr send
            type(*), intent(in), asynchronous :: send(*)
            !GCC$ attributes no_arg_check :: recv
            !DIR$ ignore_tkr recv
            type(*), intent(inout), asynchronous :: recv(*)
            integer(c_size_t), value :: count
            integer(c_int32_t), value :: data_type, op
            type(fwPlan), intent(in), optional :: plan
            type(c_ptr), value :: comm
            type(c_ptr), intent(inout), optional, asynchronous :: request
        end function

        integer(fwResult) function fwBroadcast(send, recv, count, data_type, root, plan, comm, &
            request) bind(c, name="fwBroadcast")
            import
            !GCC$ attributes no_arg_check :: send
            !DIR$ ignore_tkr send
            type(*), intent(in), asynchronous :: send(*)
            !GCC$ attributes no_arg_check :: recv
            !DIR$ ignore_tkr recv
            type(*), intent(inout), asynchronous :: recv(*)
            integer(c_size_t), value :: count
            integer(c_int32_t), value :: data_type, root
            type(fwPlan), intent(in), optional :: plan
            type(c_ptr), value :: comm
            type(c_ptr), intent(inout), optional, asynchronous :: request
        end function

        integer(fwResult) function fwReduce(send, recv, count, data_type, op, root, plan, comm, &
            request) bind(c, name="fwReduce")
            import
            !GCC$ attributes no_arg_check :: send
            !DIR$ ignore_tkr send
            type(*), intent(in), asynchronous :: send(*)
            !GCC$ attributes no_arg_check :: recv
            !DIR$ ignore_tkr recv
            type(*), intent(inout), asynchronous :: recv(*)
            integer(c_size_t), value :: count
            integer(c_int32_t), value :: data_type, op, root
            type(fwPlan), intent(in), optional :: plan
            type(c_ptr), value :: comm
            type(c_ptr), intent(inout), optional, asynchronous :: request
        end function

        integer(fwResult) function fwReduceScatter(send, recv, count, data_type, op, plan, comm, &
            request) bind(c, name="fwReduceScatter")
            import
            !GCC$ attributes no_arg_check :: send
            !DIR$ ignore_tkr send
            type(*), intent(in), asynchronous :: send(*)
            !GCC$ attributes no_arg_check :: recv
            !DIR$ ignore_tkr recv
            type(*), intent(inout), asynchronous :: recv(*)
            integer(c_size_t), value :: count
            integer(c_int32_t), value :: data_type, op
            type(fwPlan), intent(in), optional :: plan
            type(c_ptr), value :: comm
            type(c_ptr), intent(inout), optional, asynchronous :: request
        end function

        integer(fwResult) function fwReduceScatterV(send, recv, counts, data_type, op, plan, &
            comm, request) bind(c, name="fwReduceScatterV")
            import
            !GCC$ attributes no_arg_check :: send
            !DIR$ ignore_tkr send
            type(*), intent(in), asynchronous :: send(*)
            !GCC$ attributes no_arg_check :: recv
            !DIR$ ignore_tkr recv
            type(*), intent(inout), asynchronous :: recv(*)
            integer(c_size_t), intent(in) :: counts(*)
            integer(c_int32_t), value :: data_type, op
            type(fwPlan), intent(in), optional :: plan
            type(c_ptr), value :: comm
            type(c_ptr), intent(inout), optional, asynchronous :: request
        end function

        integer(fwResult) function fwAllGather(send, recv, count, data_type, plan, comm, request) &
            bind(c, name="fwAllGather")
            import
            !GCC$ attributes no_arg_check :: send
            !DIR$ ignore_tkr send
            type(*), intent(in), asynchronous :: send(*)
            !GCC$ attributes no_arg_check :: recv
            !DIR$ ignore_tkr recv
            type(*), intent(inout), asynchronous :: recv(*)
            integer(c_size_t), value :: count
            integer(c_int32_t), value :: data_type
            type(fwPlan), intent(in), optional :: plan
            type(c_ptr), value :: comm
            type(c_ptr), intent(inout), optional, asynchronous :: request
        end function

        integer(fwResult) function fwAllGatherV(send, recv, counts, data_type, plan, comm, &
            request) bind(c, name="fwAllGatherV")
            import
            !GCC$ attributes no_arg_check :: send
            !DIR$ ignore_tkr send
            type(*), intent(in), asynchronous :: send(*)
            !GCC$ attributes no_arg_check :: recv
            !DIR$ ignore_tkr recv
            type(*), intent(inout), asynchronous :: recv(*)
            integer(c_size_t), intent(in) :: counts(*)
            integer(c_int32_t), value :: data_type
            type(fwPlan), intent(in), optional :: plan
            type(c_ptr), value :: comm
            type(c_ptr), intent(inout), optional, asynchronous :: request
        end function

        integer(fwResult) function fwGather(send, recv, count, data_type, root, plan, comm, &
            request) bind(c, name="fwGather")
            import
            !GCC$ attributes no_arg_check :: send
            !DIR$ ignore_tkr send
            type(*), intent(in), asynchronous :: send(*)
            !GCC$ attributes no_arg_check :: recv
            !DIR$ ignore_tkr recv
            type(*), intent(inout), asynchronous :: recv(*)
            integer(c_size_t), value :: count
            integer(c_int32_t), value :: data_type, root
            type(fwPlan), intent(in), optional :: plan
            type(c_ptr), value :: comm
            type(c_ptr), intent(inout), optional, asynchronous :: request
        end function

        integer(fwResult) function fwGatherV(send, recv, counts, data_type, root, plan, comm, &
            request) bind(c, name="fwGatherV")
            import
            !GCC$ attributes no_arg_check :: send
            !DIR$ ignore_tkr send
            type(*), intent(in), asynchronous :: send(*)
            !GCC$ attributes no_arg_check :: recv
            !DIR$ ignore_tkr recv
            type(*), intent(inout), asynchronous :: recv(*)
            integer(c_size_t), intent(in) :: counts(*)
            integer(c_int32_t), value :: data_type, root
            type(fwPlan), intent(in), optional :: plan
            type(c_ptr), value :: comm
            type(c_ptr), intent(inout), optional, asynchronous :: request
        end function

        integer(fwResult) function fwScatter(send, recv, count, data_type, root, plan, comm, &
            request) bind(c, name="fwScatter")
            import
            !GCC$ attributes no_arg_check :: send
            !DIR$ ignore_tkr send
            type(*), intent(in), asynchronous :: send(*)
            !GCC$ attributes no_arg_check :: recv
            !DIR$ ignore_tkr recv
            type(*), intent(inout), asynchronous :: recv(*)
            integer(c_size_t), value :: count
            integer(c_int32_t), value :: data_type, root
            type(fwPlan), intent(in), optional :: plan
            type(c_ptr), value :: comm
            type(c_ptr), intent(inout), optional, asynchronous :: request
        end function

        integer(fwResult) function fwScatterV(send, recv, counts, data_type, root, plan, comm, &
            request) bind(c, name="fwScatterV")
            import
            !GCC$ attributes no_arg_check :: send
            !DIR$ ignore_tkr send
            type(*), intent(in), asynchronous :: send(*)
            !GCC$ attributes no_arg_check :: recv
            !DIR$ ignore_tkr recv
            type(*), intent(inout), asynchronous :: recv(*)
            integer(c_size_t), intent(in) :: counts(*)
            integer(c_int32_t), value :: data_type, root
            type(fwPlan), intent(in), optional :: plan
            type(c_ptr), value :: comm
            type(c_ptr), intent(inout), optional, asynchronous :: request
        end function

        integer(fwResult) function fwAllToAll(send, recv, count, data_type, plan, comm, request) &
            bind(c, name="fwAllToAll")
            import
            !GCC$ attributes no_arg_check :: send
            !DIR$ ignore_tkr send
            type(*), intent(in), asynchronous :: send(*)
            !GCC$ attributes no_arg_check :: recv
            !DIR$ ignore_tkr recv
            type(*), intent(inout), asynchronous :: recv(*)
            integer(c_size_t), value :: count
            integer(c_int32_t), value :: data_type
            type(fwPlan), intent(in), optional :: plan
            type(c_ptr), value :: comm
            type(c_ptr), intent(inout), optional, asynchronous :: request
        end function

        integer(fwResult) function fwAllToAllV(send, send_counts, recv, recv_counts, data_type, &
            plan, comm, request) bind(c, name="fwAllToAllV")
            import
            !GCC$ attributes no_arg_check :: send
            !DIR$ ignore_tkr send
            type(*), intent(in), asynchronous :: send(*)
            integer(c_size_t), intent(in) :: send_counts(*)
            !GCC$ attributes no_arg_check :: recv
            !DIR$ ignore_tkr recv
            type(*), intent(inout), asynchronous :: recv(*)
            integer(c_size_t), intent(in) :: recv_counts(*)
            integer(c_int32_t), value :: data_type
            type(fwPlan), intent(in), optional :: plan
            type(c_ptr), value :: comm
            type(c_ptr), intent(inout), optional, asynchronous :: request
        end function

        integer(fwResult) function fwScan(send, recv, count, data_type, op, plan, comm, request) &
            bind(c, name="fwScan")
            import
            !GCC$ attributes no_arg_check :: send
            !DIR$ ignore_tkr send
            type(*), intent(in), asynchronous :: send(*)
            !GCC$ attributes no_arg_check :: recv
            !DIR$ ignore_tkr recv
            type(*), intent(inout), asynchronous :: recv(*)
            integer(c_size_t), value :: count
            integer(c_int32_t), value :: data_type, op
            type(fwPlan), intent(in), optional :: plan
            type(c_ptr), value :: comm
            type(c_ptr), intent(inout), optional, asynchronous :: request
        end function

        integer(fwResult) function fwExclusiveScan(send, recv, count, data_type, op, plan, comm, &
            request) bind(c, name="fwExclusiveScan")
            import
            !GCC$ attributes no_arg_check :: send
            !DIR$ ignore_tkr send
            type(*), intent(in), asynchronous :: send(*)
            !GCC$ attributes no_arg_check :: recv
            !DIR$ ignore_tkr recv
            type(*), intent(inout), asynchronous :: recv(*)
            integer(c_size_t), value :: count
            integer(c_int32_t), value :: data_type, op
            type(fwPlan), intent(in), optional :: plan
            type(c_ptr), value :: comm
            type(c_ptr), intent(inout), optional, asynchronous :: request
        end function

        integer(fwResult) function fwBarrier(comm, request) bind(c, name="fwBarrier")
            import
            type(c_ptr), value :: comm
            type(c_ptr), intent(inout), optional, asynchronous :: request
        end function

        integer(fwResult) function fwMaxLoc(values, indices, count, data_type, comm, request) &
            bind(c, name="fwMaxLoc")
            import
            !GCC$ attributes no_arg_check :: values
            !DIR$ ignore_tkr values
            type(*), intent(inout), asynchronous :: values(*)
            integer(c_int64_t), intent(inout), asynchronous :: indices(*)
            integer(c_size_t), value :: count
            integer(c_int32_t), value :: data_type
            type(c_ptr), value :: comm
            type(c_ptr), intent(inout), optional, asynchronous :: request
        end function

        integer(fwResult) function fwMinLoc(values, indices, count, data_type, comm, request) &
            bind(c, name="fwMinLoc")
            import
            !GCC$ attributes no_arg_check :: values
            !DIR$ ignore_tkr values
            type(*), intent(inout), asynchronous :: values(*)
            integer(c_int64_t), intent(inout), asynchronous :: indices(*)
            integer(c_size_t), value :: count
            integer(c_int32_t), value :: data_type
            type(c_ptr), value :: comm
            type(c_ptr), intent(inout), optional, asynchronous :: request
        end function

        integer(fwResult) function fwReproSum(values, count, data_type, sum, comm) &
            bind(c, name="fwReproSum")
            import
            !GCC$ attributes no_arg_check :: values
            !DIR$ ignore_tkr values
            type(*), intent(in) :: values(*)
            integer(c_size_t), value :: count
            integer(c_int32_t), value :: data_type
            real(c_double), intent(out) :: sum
            type(c_ptr), value :: comm
        end function

        integer(fwResult) function fwReproSums(values, n_sums, count, data_type, layout, sums, &
            comm) bind(c, name="fwReproSums")
            import
            !GCC$ attributes no_arg_check :: values
            !DIR$ ignore_tkr values
            type(*), intent(in) :: values(*)
            integer(c_size_t), value :: n_sums, count
            integer(c_int32_t), value :: data_type, layout
            real(c_double), intent(out) :: sums(*)
            type(c_ptr), value :: comm
        end function

        integer(fwResult) function fwSend(send, count, data_type, peer, tag, plan, comm, request) &
            bind(c, name="fwSend")
            import
            !GCC$ attributes no_arg_check :: send
            !DIR$ ignore_tkr send
            type(*), intent(in), asynchronous :: send(*)
            integer(c_size_t), value :: count
            integer(c_int32_t), value :: data_type, peer, tag
            type(fwPlan), intent(in), optional :: plan
            type(c_ptr), value :: comm
            type(c_ptr), intent(inout), optional, asynchronous :: request
        end function

        integer(fwResult) function fwRecv(recv, count, data_type, peer, tag, comm, request) &
            bind(c, name="fwRecv")
            import
            !GCC$ attributes no_arg_check :: recv
            !DIR$ ignore_tkr recv
            type(*), intent(inout), asynchronous :: recv(*)
            integer(c_size_t), value :: count
            integer(c_int32_t), value :: data_type, peer, tag
            type(c_ptr), value :: comm
            type(c_ptr), intent(inout), optional, asynchronous :: request
        end function

        integer(fwResult) function fwSendRecv(send, send_count, destination, recv, recv_count, &
            source, data_type, tag, plan, comm) bind(c, name="fwSendRecv")
            import
            !GCC$ attributes no_arg_check :: send
            !DIR$ ignore_tkr send
            type(*), intent(in) :: send(*)
            integer(c_size_t), value :: send_count
            integer(c_int32_t), value :: destination
            !GCC$ attributes no_arg_check :: recv
            !DIR$ ignore_tkr recv
            type(*), intent(inout) :: recv(*)
            integer(c_size_t), value :: recv_count
            integer(c_int32_t), value :: source, data_type, tag
            type(fwPlan), intent(in), optional :: plan
            type(c_ptr), value :: comm
        end function

        integer(fwResult) function fwTest(request, done) bind(c, name="fwTest")
            import
            type(c_ptr), intent(inout) :: request
            integer(c_int32_t), intent(out) :: done
        end function

        integer(fwResult) function fwWait(request) bind(c, name="fwWait")
            import
            type(c_ptr), intent(inout) :: request
        end function

        integer(fwResult) function fwWaitAll(n, requests) bind(c, name="fwWaitAll")
            import
            integer(c_size_t), value :: n
            type(c_ptr), intent(inout) :: requests(*)
        end function

        integer(fwResult) function fwGroupStart() bind(c, name="fwGroupStart")
            import
        end function

        integer(fwResult) function fwGroupEnd() bind(c, name="fwGroupEnd")
            import
        end function

        integer(fwResult) function fwCompressMaxSize(count, data_type, max_bytes) &
            bind(c, name="fwCompressMaxSize")
            import
            integer(c_size_t), value :: count
            integer(c_int32_t), value :: data_type
            integer(c_size_t), intent(out) :: max_bytes
        end function

        integer(fwResult) function fwCompress(values, count, data_type, plan, compressed, &
            capacity, n_bytes) bind(c, name="fwCompress")
            import
            !GCC$ attributes no_arg_check :: values
            !DIR$ ignore_tkr values
            type(*), intent(in) :: values(*)
            integer(c_size_t), value :: count
            integer(c_int32_t), value :: data_type
            type(fwPlan), intent(in), optional :: plan
            !GCC$ attributes no_arg_check :: compressed
            !DIR$ ignore_tkr compressed
            type(*), intent(inout) :: compressed(*)
            integer(c_size_t), value :: capacity
            integer(c_size_t), intent(out) :: n_bytes
        end function

        integer(fwResult) function fwCompressFill(values, count, data_type, fill_value, plan, &
            compressed, capacity, n_bytes) bind(c, name="fwCompressFill")
            import
            !GCC$ attributes no_arg_check :: values
            !DIR$ ignore_tkr values
            type(*), intent(in) :: values(*)
            integer(c_size_t), value :: count
            integer(c_int32_t), value :: data_type
            real(c_double), value :: fill_value
            type(fwPlan), intent(in), optional :: plan
            !GCC$ attributes no_arg_check :: compressed
            !DIR$ ignore_tkr compressed
            type(*), intent(inout) :: compressed(*)
            integer(c_size_t), value :: capacity
            integer(c_size_t), intent(out) :: n_bytes
        end function

        real(c_double) function fwSuspectedFill() bind(c, name="fwSuspectedFill")
            import
        end function

        integer(fwResult) function fwCompressedInfo(compressed, n_bytes, data_type, count, bound) &
            bind(c, name="fwCompressedInfo")
            import
            !GCC$ attributes no_arg_check :: compressed
            !DIR$ ignore_tkr compressed
            type(*), intent(in) :: compressed(*)
            integer(c_size_t), value :: n_bytes
            integer(c_int32_t), intent(out), optional :: data_type
            integer(c_int64_t), intent(out), optional :: count
            real(c_double), intent(out), optional :: bound
        end function

        integer(fwResult) function fwDecompress(compressed, n_bytes, data_type, values, capacity, &
            count) bind(c, name="fwDecompress")
            import
            !GCC$ attributes no_arg_check :: compressed
            !DIR$ ignore_tkr compressed
            type(*), intent(in) :: compressed(*)
            integer(c_size_t), value :: n_bytes
            integer(c_int32_t), value :: data_type
            !GCC$ attributes no_arg_check :: values
            !DIR$ ignore_tkr values
            type(*), intent(inout) :: values(*)
            integer(c_size_t), value :: capacity
            integer(c_size_t), intent(out) :: count
        end function

        function foldwire_plan_parse(text, plan) result(code) bind(c, name="fwPlanParse")
            import :: c_char, c_int32_t, fwPlan
            character(c_char), intent(in) :: text(*)
            type(fwPlan), intent(out) :: plan
            integer(c_int32_t) :: code
        end function

        function foldwire_error_string(code) result(text) bind(c, name="fwGetErrorString")
            import :: c_int32_t, c_ptr
            integer(c_int32_t), value :: code
            type(c_ptr) :: text
        end function

        function foldwire_last_error() result(text) bind(c, name="fwGetLastError")
            import :: c_ptr
            type(c_ptr) :: text
        end function

        function foldwire_length(text) result(length) bind(c, name="strlen")
            import :: c_ptr, c_size_t
            type(c_ptr), value :: text
            integer(c_size_t) :: length
        end function
    end interface

    private :: foldwire_plan_parse, foldwire_error_string, foldwire_last_error, foldwire_length
    private :: text_at

contains

    ! fwPlanParse for a Fortran string; trailing blanks are ignored.
    function fwPlanParse(text, plan) result(code)
        character(*), intent(in) :: text
        type(fwPlan), intent(out) :: plan
        integer(c_int32_t) :: code
        code = foldwire_plan_parse(trim(text) // c_null_char, plan)
    end function

    function fwGetErrorString(code) result(text)
        integer(c_int32_t), intent(in) :: code
        character(:), allocatable :: text
        text = text_at(foldwire_error_string(code))
    end function

    function fwGetLastError() result(text)
        character(:), allocatable :: text
        text = text_at(foldwire_last_error())
    end function

    ! Returns the name of a codec or schedule in a plan or report.
    function fwName(room) result(text)
        character(c_char), intent(in) :: room(FW_NAME_BYTES)
        character(:), allocatable :: text
        integer :: i
        text = ""
        do i = 1, FW_NAME_BYTES
            if (room(i) == c_null_char) exit
            text = text // room(i)
        end do
    end function

    ! Sets the name of a codec or schedule in a plan. Names are truncated to 31 characters.
    subroutine fwSetName(room, text)
        character(c_char), intent(out) :: room(FW_NAME_BYTES)
        character(*), intent(in) :: text
        integer :: i
        room = c_null_char
        do i = 1, min(len_trim(text), FW_NAME_BYTES - 1)
            room(i) = text(i:i)
        end do
    end subroutine

    function text_at(place) result(text)
        type(c_ptr), intent(in) :: place
        character(:), allocatable :: text
        character(c_char), pointer :: characters(:)
        integer :: i, length
        length = int(foldwire_length(place))
        call c_f_pointer(place, characters, [length])
        allocate (character(length) :: text)
        do i = 1, length
            text(i:i) = characters(i)
        end do
    end function

end module
