! fwCommInitMpi for Fortran: a Foldwire communicator of the ranks of an MPI communicator.
!
! Compile this file with the program, with the compiler of the MPI library, after foldwire.f90. MPI
! sends only the unique id. Data goes over Foldwire's own transport. See foldwire_mpi.h.
module foldwire_mpi
    use, intrinsic :: iso_c_binding
    use foldwire
    implicit none
    private
    public :: fwCommInitMpi

contains

    ! Creates a communicator of the ranks of an MPI communicator. mpi_comm is the integer handle of
    ! mpif.h and of the module mpi; with mpi_f08, pass its member MPI_VAL. All ranks call this
    ! function together. In a group, the communicator is created when the group ends.
    !
    ! Errors: those of fwCommInitRank; FW_ABORTED if rank 0 could not create the unique id;
    ! FW_TRANSPORT_ERROR if an MPI call failed (fwGetLastError does not describe that).
    function fwCommInitMpi(comm, mpi_comm, config) result(code)
        use mpi, only: MPI_BYTE, MPI_SUCCESS
        type(c_ptr), intent(out) :: comm
        integer, intent(in) :: mpi_comm
        type(fwConfig), intent(in), optional :: config
        integer(c_int32_t) :: code, made
        ! The id, followed by 1 if rank 0 has created it.
        integer(c_int8_t) :: said(FW_UNIQUE_ID_BYTES + 1)
        type(fwUniqueId) :: id
        integer :: rank, n_ranks, error
        external :: MPI_Comm_rank, MPI_Comm_size, MPI_Bcast

        comm = c_null_ptr
        code = FW_TRANSPORT_ERROR
        made = FW_SUCCESS
        said = 0
        rank = 0
        call MPI_Comm_rank(mpi_comm, rank, error)
        if (error == MPI_SUCCESS) call MPI_Comm_size(mpi_comm, n_ranks, error)
        if (error == MPI_SUCCESS) then
            if (rank == 0) then
                made = fwGetUniqueId(id)
                if (made == FW_SUCCESS) said = [id%internal, 1_c_int8_t]
            end if
            call MPI_Bcast(said, size(said), MPI_BYTE, 0, mpi_comm, error)
        end if
        id%internal = said(1:FW_UNIQUE_ID_BYTES)
        if (error == MPI_SUCCESS) then
            if (said(FW_UNIQUE_ID_BYTES + 1) == 1) then
                code = fwCommInitRank(comm, int(n_ranks, c_int32_t), id, int(rank, c_int32_t), &
                                      config)
                return
            end if
            code = FW_ABORTED
        end if
        if (made /= FW_SUCCESS) then
            code = made
        else
            ! This call fails on purpose, to invalidate the group that it may be in.
            made = fwCommInitRank(comm, 0_c_int32_t, id, int(rank, c_int32_t), config)
        end if
    end function

end module
