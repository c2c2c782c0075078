/* fwCommInitMpi: a Foldwire communicator of the ranks of an MPI communicator.
 *
 * It needs no library beside libfoldwire_c: the function is compiled with the program, by the
 * compiler of whatever MPI library the program uses. MPI carries the unique id, Foldwire's own
 * transport (memory or TCP) the data; so MPI may be busy meanwhile, and need not know threads. On
 * several hosts set FOLDWIRE_IFACE or FOLDWIRE_ADDRESS for all ranks.
 *
 *     mpicc sum.c $(pkg-config --cflags --libs foldwire)
 */
#ifndef FOLDWIRE_MPI_H
#define FOLDWIRE_MPI_H

#include <foldwire.h>
#include <mpi.h>

/* Makes this rank of those of mpi, which is as it was afterwards, with the same rank and size. All
 * ranks of mpi call it together, and wait for each other as in fwCommInitRank; in a group, when the
 * group ends. mpi is of one group of ranks, not an intercommunicator. config may be NULL.
 *
 * FW_ABORTED: rank 0 could not make the unique id. FW_INTERNAL_ERROR: MPI failed, if it returns. */
static inline fwResult fwCommInitMpi(fwComm_t *comm, MPI_Comm mpi, const fwConfig *config) {
    /* The id, and then whether it is one. */
    unsigned char said[sizeof(fwUniqueId) + 1] = {0};
    fwResult made = FW_SUCCESS;
    fwUniqueId id = {{0}};
    int rank = 0, size = 0;
    size_t i;

    if (comm != NULL) {
        *comm = NULL;
    }
    if (MPI_Comm_rank(mpi, &rank) != MPI_SUCCESS || MPI_Comm_size(mpi, &size) != MPI_SUCCESS) {
        return FW_INTERNAL_ERROR;
    }
    if (rank == 0) {
        made = fwGetUniqueId(&id);
        if (made == FW_SUCCESS) {
            for (i = 0; i < sizeof id.internal; i++) {
                said[i] = id.internal[i];
            }
            said[sizeof id.internal] = 1;
        }
    }
    if (MPI_Bcast(said, (int)sizeof said, MPI_UNSIGNED_CHAR, 0, mpi) != MPI_SUCCESS) {
        return FW_INTERNAL_ERROR;
    }
    if (said[sizeof id.internal] == 0) {
        if (rank != 0) {
            /* Refused, and so is the group that this may be in. */
            (void)fwCommInitRank(comm, 0, id, rank, config);
        }
        return rank == 0 ? made : FW_ABORTED;
    }
    for (i = 0; i < sizeof id.internal; i++) {
        id.internal[i] = said[i];
    }
    return fwCommInitRank(comm, size, id, rank, config);
}

#endif
