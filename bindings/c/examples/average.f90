! Averages an array within an error bound. Each process is one rank.
!
!     gfortran -c $(pkg-config --variable=includedir foldwire)/foldwire.f90
!     gfortran average.f90 foldwire.o $(pkg-config --libs foldwire) -o average
!     for rank in 0 1 2; do
!         FOLDWIRE_JOB=$$ FOLDWIRE_RANK=$rank FOLDWIRE_SIZE=3 ./average &
!     done; wait
program average
    use foldwire
    implicit none
    type(c_ptr) :: comm
    type(fwPlan) :: plan
    type(fwReport) :: report
    integer(c_int32_t) :: rank, n_ranks
    real(c_float), allocatable :: field(:, :)
    integer :: i, j

    call check(fwCommInitEnv(comm))
    call check(fwCommUserRank(comm, rank))
    call check(fwCommCount(comm, n_ranks))

    allocate (field(1000, 1000))
    do j = 1, 1000
        do i = 1, 1000
            field(i, j) = real(rank) + sin(1e-3 * real(i)) * cos(2e-3 * real(j))
        end do
    end do

    ! Each rank's values are kept within 1/10000 of the value range. Without a plan: exact.
    call check(fwPlanParse("rel:1e-4", plan))
    call check(fwAllReduce(field, field, size(field, kind=c_size_t), FW_FLOAT32, FW_AVG, plan, &
                           comm))
    call check(fwCommReport(comm, report))
    print "(a, i0, a, i0, a, f0.2, a, es7.1, 2(a, f3.1), a)", "rank ", rank, " of ", n_ranks, &
        ": ", sum(field) / real(size(field)), "; within ", report%worst_case, ", ", &
        1e-6 * real(report%raw_bytes), " MB sent as ", 1e-6 * real(report%wire_bytes), " MB"
    call check(fwCommDestroy(comm))

contains

    subroutine check(code)
        integer(c_int32_t), intent(in) :: code
        if (code == FW_SUCCESS) return
        print "(3a)", fwGetErrorString(code), ": ", fwGetLastError()
        error stop 1
    end subroutine

end program
