! fwCommInitMpi for Fortran: a Foldwire communicator of the ranks of an MPI communicator.
!
! Compile it with the program, by the MPI library's compiler, after foldwire.f90. MPI carries the
! unique id, Foldwire's own transport the data; foldwire_mpi.h says more.
module foldwire_mpi
    use, intrinsic :: iso_c_binding
    use foldwire
    implicit none
    private
    public :: fwCommInitMpi

contains

    ! Makes this rank of those of an MPI communicator, an integer as mpif.h and the module mpi have
    ! it; of mpi_f08 it is the communicator's member MPI_VAL. All ranks call it together; in a group
    ! the communicator is made when the group ends.
    !
    ! FW_ABORTED: rank 0 could not make the unique id. FW_INTERNAL_ERROR: MPI failed, if it returns.
    function fwCommInitMpi(comm, mpi_comm, config) result(code)
        use mpi, only: MPI_BYTE, MPI_SUCCESS
        type(c_ptr), intent(out) :: comm
        integer, intent(in) :: mpi_comm
        type(fwConfig), intent(in), optional :: config
        integer(c_int32_t) :: code, made
        ! The id, and then whether it is one.
        integer(c_int8_t) :: said(FW_UNIQUE_ID_BYTES + 1)
        type(fwUniqueId) :: id
        integer :: rank, n_ranks, error
        external :: MPI_Comm_rank, MPI_Comm_size, MPI_Bcast

        comm = c_null_ptr
        code = FW_INTERNAL_ERROR
        call MPI_Comm_rank(mpi_comm, rank, error)
        if (error /= MPI_SUCCESS) return
        call MPI_Comm_size(mpi_comm, n_ranks, error)
        if (error /= MPI_SUCCESS) return
        said = 0
        made = FW_SUCCESS
        if (rank == 0) then
            made = fwGetUniqueId(id)
            if (made == FW_SUCCESS) said = [id%internal, 1_c_int8_t]
        end if
        call MPI_Bcast(said, size(said), MPI_BYTE, 0, mpi_comm, error)
        if (error /= MPI_SUCCESS) return
        id%internal = said(1:FW_UNIQUE_ID_BYTES)
        if (said(FW_UNIQUE_ID_BYTES + 1) == 1) then
            code = fwCommInitRank(comm, int(n_ranks, c_int32_t), id, int(rank, c_int32_t), config)
        else if (rank == 0) then
            code = made
        else
            ! Refused, and so is the group that this may be in.
            code = fwCommInitRank(comm, 0_c_int32_t, id, int(rank, c_int32_t), config)
            code = FW_ABORTED
        end if
    end function

end module
