! Tests of the module foldwire, with one thread that runs two ranks. Run by tests/all/fortran.rs.
module adding
    use, intrinsic :: iso_c_binding
    implicit none
contains
    subroutine adds(input, inout, n, context) bind(c)
        integer(c_size_t), value :: n
        real(c_double), intent(in) :: input(n)
        real(c_double), intent(inout) :: inout(n)
        type(c_ptr), value :: context
        if (.not. c_associated(context)) inout = inout + input
    end subroutine
end module

program calls
    use foldwire
    use adding
    implicit none
    integer, parameter :: n = 1000
    integer(c_size_t), parameter :: count = n, one = 1
    type(c_ptr), target, asynchronous :: comms(0:1), requests(0:1)
    type(c_ptr) :: parts(0:1)
    type(fwConfig) :: config
    type(fwPlan) :: plan
    type(fwReport) :: report
    type(fwUniqueId) :: id
    real(c_double), asynchronous :: x(n, 0:1), y(n, 0:1), scalar(0:1)
    integer(c_int64_t) :: whole(4, 0:1), places(2), n_values
    complex(c_double), asynchronous :: waves(2)
    integer(c_int8_t), allocatable :: bytes(:)
    integer(c_int32_t) :: number, op, done, state, kind_of
    integer(c_size_t) :: most, n_bytes, n_back
    real(c_double) :: bound, total, totals(2)
    real(c_float) :: terms(3, 2)
    type(c_ptr), target :: solo(1)
    integer :: rank, i, n_checks = 0

    ! The types have the sizes of the C structs. The library refuses other sizes.
    call ok(c_sizeof(config) == config%size .and. c_sizeof(plan) == plan%size)
    call ok(c_sizeof(report) == report%size .and. c_sizeof(id) == FW_UNIQUE_ID_BYTES)
    call succeeds(fwGetVersion(number))
    call ok(number == 10000 * FW_VERSION_MAJOR + 100 * FW_VERSION_MINOR + FW_VERSION_PATCH)

    config%timeout = 60
    call succeeds(fwCommInitAll(comms, 2, config))
    do rank = 0, 1
        x(:, rank) = [(sin(1d-2 * i) + rank, i=1, n)]
    end do

    ! A group of blocking exact calls on both ranks.
    call succeeds(fwGroupStart())
    do rank = 0, 1
        call succeeds(fwAllReduce(x(:, rank), y(:, rank), count, FW_FLOAT64, FW_SUM, &
                                  comm=comms(rank)))
    end do
    call succeeds(fwGroupEnd())
    call ok(all(y(:, 0) == x(:, 0) + x(:, 1)) .and. all(y(:, 0) == y(:, 1)))

    ! Calls with a bound and with requests.
    call succeeds(fwPlanParse("abs:1e-3,codec:dense ", plan))
    call ok(fwName(plan%codec) == "dense" .and. plan%bound_kind == FW_ABSOLUTE)
    call succeeds(fwGroupStart())
    do rank = 0, 1
        call succeeds(fwAllReduce(x(:, rank), y(:, rank), count, FW_FLOAT64, FW_AVG, plan, &
                                  comms(rank), requests(rank)))
    end do
    call succeeds(fwGroupEnd())
    call succeeds(fwWaitAll(2_c_size_t, requests))
    call ok(all(abs(y(:, 0) - (x(:, 0) + x(:, 1)) / 2) <= 1d-3) .and. all(y(:, 0) == y(:, 1)))
    call succeeds(fwCommReport(comms(0), report))
    call ok(fwName(report%codec) == "dense" .and. report%worst_case > 0)

    ! A scalar, integers, fwSetName, messages, a user-defined operation.
    scalar = [1d0, 2d0]
    whole = reshape([1_c_int64_t, 2_c_int64_t, 3_c_int64_t, 4_c_int64_t, &
                     5_c_int64_t, 6_c_int64_t, 7_c_int64_t, 8_c_int64_t], [4, 2])
    call fwSetName(plan%codec, "lossless")
    plan%mode = FW_LOSSLESS
    plan%bound_kind = FW_NO_BOUND
    plan%bound = 0
    call succeeds(fwRedOpCreate(op, c_funloc(adds), c_null_ptr))
    call succeeds(fwGroupStart())
    do rank = 0, 1
        call succeeds(fwAllReduce(scalar(rank), scalar(rank), one, FW_FLOAT64, FW_MAX, plan, &
                                  comms(rank)))
        call succeeds(fwAllReduce(whole(:, rank), whole(:, rank), 4_c_size_t, FW_INT64, FW_PROD, &
                                  comm=comms(rank)))
        call succeeds(fwAllReduce(x(:, rank), y(:, rank), count, FW_FLOAT64, op, comm=comms(rank)))
    end do
    call succeeds(fwGroupEnd())
    call succeeds(fwRedOpDestroy(op))
    call ok(all(scalar == 2d0) .and. all(whole(:, 0) == [5, 12, 21, 32]))
    call ok(all(y(:, 1) == x(:, 0) + x(:, 1)))
    call succeeds(fwSend(x(:, 0), count, FW_FLOAT64, 0, 7, comm=comms(1), request=requests(0)))
    call succeeds(fwRecv(y(:, 1), count, FW_FLOAT64, 1, 7, comms(0), requests(1)))
    call succeeds(fwWaitAll(2_c_size_t, requests))
    call ok(all(y(:, 1) == x(:, 0)))
    call succeeds(fwTest(requests(0), done))
    call succeeds(fwWait(requests(1)))
    call ok(done == 1)

    ! A sum with a fill value is the fill value.
    call succeeds(fwPlanParse("abs:1e-3", plan))
    plan%fill = -9999
    plan%fill_kind = FW_FILL_MISSING
    y = x
    y(7, 1) = -9999
    call succeeds(fwGroupStart())
    do rank = 0, 1
        call succeeds(fwAllReduce(y(:, rank), y(:, rank), count, FW_FLOAT64, FW_SUM, plan, &
                                  comms(rank)))
    end do
    call succeeds(fwGroupEnd())
    call ok(all(y(7, :) == -9999))
    call ok(all(abs(y(:6, 0) - x(:6, 0) - x(:6, 1)) <= 2d-3) .and. all(y(:, 0) == y(:, 1)))

    ! Invalid arguments.
    call ok(fwAllReduce(x, y, count, 99, FW_SUM, comm=comms(0)) == FW_INVALID_ARGUMENT)
    call ok(len(fwGetLastError()) > 0 .and. fwGetErrorString(FW_SUCCESS) == "no error")
    call ok(fwPlanParse("fast", plan) == FW_INVALID_ARGUMENT)
    call succeeds(fwCommGetAsyncError(comms(0), state))
    call ok(state == FW_SUCCESS)

    ! Ranks with a unique id, which is passed by value.
    call succeeds(fwGetUniqueId(id))
    call succeeds(fwGroupStart())
    do rank = 0, 1
        call succeeds(fwCommInitRank(parts(rank), 2, id, rank, config))
    end do
    call succeeds(fwGroupEnd())
    call succeeds(fwCommUserRank(parts(1), number))
    call ok(number == 1)

    ! The codec without communication.
    call succeeds(fwPlanParse("abs:1e-3", plan))
    call succeeds(fwCompressMaxSize(count, FW_FLOAT64, most))
    allocate (bytes(most))
    call succeeds(fwCompress(x(:, 0), count, FW_FLOAT64, plan, bytes, most, n_bytes))
    call succeeds(fwCompressFill(x(:, 0), count, FW_FLOAT64, 1d20, plan, bytes, most, n_bytes))
    call succeeds(fwCompressedInfo(bytes, n_bytes, kind_of, n_values, bound))
    call ok(kind_of == FW_FLOAT64 .and. n_values == n .and. bound > 0)
    call succeeds(fwDecompress(bytes, n_bytes, FW_FLOAT64, y(:, 0), count, n_back))
    call ok(n_back == count .and. all(abs(x(:, 0) - y(:, 0)) <= 1d-3))

    ! Reproducible sums of one rank, of single and double precision.
    call succeeds(fwCommInitAll(solo, 1, config))
    call succeeds(fwReproSum([1d308, 1d308, 0.5d0, -1d308, -1d308], 5_c_size_t, FW_FLOAT64, total, &
                             solo(1)))
    call ok(total == 0.5d0)
    terms = reshape([1e0, 1e-9, -1e0, 2e0, 3e0, 4e0], [3, 2])
    call succeeds(fwReproSums(terms, 2_c_size_t, 3_c_size_t, FW_FLOAT32, FW_ADJACENT, totals, &
                              solo(1)))
    call ok(totals(1) == real(1e-9, c_double) .and. totals(2) == 9d0)
    call succeeds(fwReproSums(transpose(terms), 2_c_size_t, 3_c_size_t, FW_FLOAT32, FW_STRIDED, &
                              totals, solo(1)))
    call ok(totals(1) == real(1e-9, c_double) .and. totals(2) == 9d0)

    ! Extremes and where they are, and sums of complex numbers.
    places = [7_c_int64_t, 9_c_int64_t]
    call succeeds(fwMaxLoc(totals, places, 2_c_size_t, FW_FLOAT64, solo(1)))
    call succeeds(fwMinLoc(totals, places, 2_c_size_t, FW_FLOAT64, solo(1), requests(0)))
    call succeeds(fwWait(requests(0)))
    call ok(totals(2) == 9d0 .and. all(places == [7, 9]))
    waves = [(1d0, -2d0), (3d0, 4d0)]
    call succeeds(fwAllReduce(waves, waves, 2_c_size_t, FW_COMPLEX128, FW_SUM, &
                              comm=solo(1)))
    call ok(waves(1) == (1d0, -2d0) .and. waves(2) == (3d0, 4d0))
    call ok(fwAllReduce(waves, waves, 2_c_size_t, FW_COMPLEX128, FW_MAX, &
                        comm=solo(1)) == FW_UNSUPPORTED)
    call succeeds(fwCommDestroy(solo(1)))

    do rank = 0, 1
        call succeeds(fwCommDestroy(comms(rank)))
        call succeeds(fwCommAbort(parts(rank)))
    end do
    print "(i0, a)", n_checks, " checks"

contains

    subroutine ok(is_so)
        logical, intent(in) :: is_so
        n_checks = n_checks + 1
        if (is_so) return
        print "(a, i0, 2a)", "after check ", n_checks, "; last error: ", fwGetLastError()
        error stop 1
    end subroutine

    subroutine succeeds(code)
        integer(c_int32_t), intent(in) :: code
        call ok(code == FW_SUCCESS)
    end subroutine

end program
