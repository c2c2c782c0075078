! A Fortran program that knows nothing of Foldwire. It uses the modules `mpi` and `mpi_f08`.
module by_mpi
contains
    subroutine sums(n, rank, size, good)
        use mpi
        implicit none
        integer, intent(in) :: n, rank, size
        logical, intent(inout) :: good
        real(8) :: a(n), b(n)
        real(4) :: c(n)
        real(8) :: whole(n * size), back(n * size)
        integer :: i, error, of, counts(size), places(size), requests(2)
        do i = 1, n
            a(i) = mod(i, 100) + rank
            c(i) = real(a(i), 4)
        end do
        call MPI_Allreduce(a, b, n, MPI_DOUBLE_PRECISION, MPI_SUM, MPI_COMM_WORLD, error)
        call MPI_Allreduce(MPI_IN_PLACE, c, n, MPI_REAL, MPI_SUM, MPI_COMM_WORLD, error)
        do i = 1, n
            good = good .and. b(i) == mod(i, 100) * size + size * (size - 1) / 2
            good = good .and. c(i) == mod(i, 100) * size + size * (size - 1) / 2
        end do
        b = 0
        do i = 1, n
            c(i) = real(a(i), 4)
        end do
        call MPI_Iallreduce(a, b, n, MPI_DOUBLE_PRECISION, MPI_SUM, MPI_COMM_WORLD, requests(1), &
            error)
        call MPI_Iallreduce(MPI_IN_PLACE, c, n, MPI_REAL, MPI_SUM, MPI_COMM_WORLD, requests(2), &
            error)
        call MPI_Waitall(2, requests, MPI_STATUSES_IGNORE, error)
        do i = 1, n
            good = good .and. b(i) == mod(i, 100) * size + size * (size - 1) / 2
            good = good .and. c(i) == mod(i, 100) * size + size * (size - 1) / 2
        end do
        good = good .and. all(requests == MPI_REQUEST_NULL)
        ! Shares lie in reverse order of ranks.
        counts = n
        places = [((size - of) * n, of = 1, size)]
        call MPI_Allgatherv(a, n, MPI_DOUBLE_PRECISION, whole, counts, places, &
            MPI_DOUBLE_PRECISION, MPI_COMM_WORLD, error)
        call MPI_Alltoallv(whole, counts, places, MPI_DOUBLE_PRECISION, back, counts, places, &
            MPI_DOUBLE_PRECISION, MPI_COMM_WORLD, error)
        do i = 1, n * size
            good = good .and. back(i) == mod(mod(i - 1, n) + 1, 100) + rank
        end do
        call MPI_Gatherv(a, n, MPI_DOUBLE_PRECISION, back, counts, places, &
            MPI_DOUBLE_PRECISION, 0, MPI_COMM_WORLD, error)
        if (rank == 0) good = good .and. all(back == whole)
        b = 0
        call MPI_Scatterv(back, counts, places, MPI_DOUBLE_PRECISION, b, n, &
            MPI_DOUBLE_PRECISION, 0, MPI_COMM_WORLD, error)
        good = good .and. all(a == b)
        do of = 1, size
            do i = 1, n
                good = good .and. whole(places(of) + i) == mod(i, 100) + of - 1
            end do
        end do
    end subroutine
end module

module by_f08
contains
    subroutine totals(n, rank, size, good)
        use mpi_f08
        implicit none
        integer, intent(in) :: n, rank, size
        logical, intent(inout) :: good
        real(8), asynchronous :: a(n), b(n)
        type(MPI_Request) :: request
        integer :: i
        do i = 1, n
            a(i) = mod(i, 100) + rank
        end do
        call MPI_Iallreduce(a, b, n, MPI_DOUBLE_PRECISION, MPI_SUM, MPI_COMM_WORLD, request)
        call MPI_Wait(request, MPI_STATUS_IGNORE)
        call MPI_Allreduce(MPI_IN_PLACE, a, n, MPI_DOUBLE_PRECISION, MPI_SUM, MPI_COMM_WORLD)
        do i = 1, n
            good = good .and. b(i) == a(i)
            good = good .and. a(i) == size * mod(i, 100) + size * (size - 1) / 2
        end do
    end subroutine
end module

program unmodified
    use mpi
    use by_mpi
    use by_f08
    implicit none
    integer :: rank, size, error
    logical :: good
    good = .true.
    call MPI_Init(error)
    call MPI_Comm_rank(MPI_COMM_WORLD, rank, error)
    call MPI_Comm_size(MPI_COMM_WORLD, size, error)
    call sums(20000, rank, size, good)
    call totals(20000, rank, size, good)
    if (.not. good) stop 1
    if (rank == 0) print *, "good"
    call MPI_Finalize(error)
end program
