! Test of fwCommInitMpi in Fortran. Run by tests/all/fortran.rs.
program mpi_ranks
    use mpi_f08
    use foldwire
    use foldwire_mpi
    implicit none
    type(MPI_Comm) :: half
    type(c_ptr) :: world, part
    real(c_float) :: values(1000)
    real(c_double) :: total, totals(20)
    integer(c_int32_t) :: own, n
    integer :: rank, n_ranks

    call MPI_Init()
    call MPI_Comm_rank(MPI_COMM_WORLD, rank)
    call MPI_Comm_size(MPI_COMM_WORLD, n_ranks)
    call ok(fwCommInitMpi(world, MPI_COMM_WORLD%MPI_VAL) == FW_SUCCESS)
    call ok(fwCommUserRank(world, own) == FW_SUCCESS .and. own == rank)
    call ok(fwCommCount(world, n) == FW_SUCCESS .and. n == n_ranks)
    values = rank
    call ok(fwAllReduce(values, values, 1000_c_size_t, FW_FLOAT32, FW_SUM, comm=world) &
            == FW_SUCCESS)
    call ok(all(values == n_ranks * (n_ranks - 1) / 2))

    ! Every rank has one value that cancels, and one that is left.
    call ok(fwReproSum([1d300 * (rank - (n_ranks - 1) / 2d0), 1d-300], 2_c_size_t, FW_FLOAT64, &
                       total, world) == FW_SUCCESS)
    call ok(total == n_ranks * 1d-300)
    call ok(fwReproSums(spread(values(1:20), 1, 3), 20_c_size_t, 3_c_size_t, FW_FLOAT32, &
                        FW_ADJACENT, totals, world) == FW_SUCCESS)
    call ok(all(totals == 3d0 * n_ranks * values(1)))

    call MPI_Comm_split(MPI_COMM_WORLD, mod(rank, 2), -rank, half)
    call ok(fwCommInitMpi(part, half%MPI_VAL, fwConfig(timeout=60d0)) == FW_SUCCESS)
    call ok(fwCommCount(part, n) == FW_SUCCESS .and. n == (n_ranks + 1 - mod(rank, 2)) / 2)
    call ok(fwBarrier(part) == FW_SUCCESS)
    call ok(fwCommDestroy(part) == FW_SUCCESS .and. fwCommDestroy(world) == FW_SUCCESS)

    ! An MPI call that fails invalidates the group that it is in.
    call MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN)
    call MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN)
    call ok(fwGroupStart() == FW_SUCCESS)
    call ok(fwCommInitMpi(world, MPI_COMM_NULL%MPI_VAL) == FW_TRANSPORT_ERROR)
    call ok(fwGroupEnd() == FW_INVALID_ARGUMENT)
    if (rank == 0) print "(a)", "ranks agree"
    call MPI_Finalize()

contains

    subroutine ok(is_so)
        logical, intent(in) :: is_so
        if (is_so) return
        print "(a, i0, 2a)", "rank ", rank, ": ", fwGetLastError()
        call MPI_Abort(MPI_COMM_WORLD, 1)
    end subroutine

end program
