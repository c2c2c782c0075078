/* fwCommInitMpi: a Foldwire communicator of the ranks of an MPI communicator.
 *
 * The function is compiled with the program, so it works with any MPI library and needs no library
 * except libfoldwire_c. MPI sends only the unique id. Data goes over Foldwire's own transport
 * (memory or TCP), so the program can use MPI at the same time, and MPI needs no thread support. On
 * several hosts, set FOLDWIRE_IFACE or FOLDWIRE_ADDRESS on all ranks.
 *
 *     mpicc sum.c $(pkg-config --cflags --libs foldwire)
 */
#ifndef FOLDWIRE_MPI_H
#define FOLDWIRE_MPI_H

#include <foldwire.h>
#include <mpi.h>

/* Creates a communicator of the ranks of mpi, with the same rank and size. All ranks of mpi call
 * this function together, and wait for each other like in fwCommInitRank. In a group, they wait
 * when the group ends. mpi is not changed, and must not be an intercommunicator. config may be
 * NULL.
 *
 * Errors: those of fwCommInitRank; FW_ABORTED if rank 0 could not create the unique id;
 * FW_TRANSPORT_ERROR if an MPI call failed (fwGetLastError does not describe that). */
static inline fwResult fwCommInitMpi(fwComm_t *comm, MPI_Comm mpi, const fwConfig *config) {
    /* The id, followed by 1 if rank 0 has created it. */
    unsigned char said[sizeof(fwUniqueId) + 1] = {0};
    fwResult made = FW_SUCCESS, failed = FW_TRANSPORT_ERROR;
    fwUniqueId id = {{0}};
    int rank = 0, size = 0;
    size_t i;

    if (comm != NULL) {
        *comm = NULL;
    }
    if (MPI_Comm_rank(mpi, &rank) == MPI_SUCCESS && MPI_Comm_size(mpi, &size) == MPI_SUCCESS) {
        if (rank == 0) {
            made = fwGetUniqueId(&id);
            if (made == FW_SUCCESS) {
                for (i = 0; i < sizeof id.internal; i++) {
                    said[i] = id.internal[i];
                }
                said[sizeof id.internal] = 1;
            }
        }
        if (MPI_Bcast(said, (int)sizeof said, MPI_UNSIGNED_CHAR, 0, mpi) == MPI_SUCCESS) {
            if (said[sizeof id.internal] == 1) {
                for (i = 0; i < sizeof id.internal; i++) {
                    id.internal[i] = said[i];
                }
                return fwCommInitRank(comm, size, id, rank, config);
            }
            failed = FW_ABORTED;
        }
    }
    if (made != FW_SUCCESS) {
        return made;
    }
    /* This call fails on purpose, to invalidate the group that it may be in. */
    (void)fwCommInitRank(comm, 0, id, rank, config);
    return failed;
}

#endif
