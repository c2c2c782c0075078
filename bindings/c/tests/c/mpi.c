/* Tests of fwCommInitMpi: MPI_COMM_WORLD, and halves of it in reverse order. Run by
 * tests/all/mpi.rs. */
#include "check.h"
#include <foldwire_mpi.h>

/* Alternates sums of MPI and Foldwire. Both have the same ranks. */
static void sums(fwComm_t comm, MPI_Comm mpi) {
    int rank, size;
    int32_t own, n;
    CHECK(MPI_Comm_rank(mpi, &rank) == MPI_SUCCESS && MPI_Comm_size(mpi, &size) == MPI_SUCCESS);
    OK(fwCommUserRank(comm, &own));
    OK(fwCommCount(comm, &n));
    CHECK(own == rank && n == size);
    for (int round = 0; round < 3; round++) {
        double one[1000], other[1000];
        for (int i = 0; i < 1000; i++) {
            one[i] = other[i] = rank + i + round;
        }
        OK(fwAllReduce(one, one, 1000, FW_FLOAT64, FW_SUM, NULL, comm, NULL));
        CHECK(MPI_Allreduce(MPI_IN_PLACE, other, 1000, MPI_DOUBLE, MPI_SUM, mpi) == MPI_SUCCESS);
        CHECK(memcmp(one, other, sizeof one) == 0);
    }
}

int main(int argc, char **argv) {
    fwComm_t world, half;
    MPI_Comm mpi;
    int rank;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    OK(fwCommInitMpi(&world, MPI_COMM_WORLD, NULL));
    sums(world, MPI_COMM_WORLD);
    CHECK(MPI_Comm_split(MPI_COMM_WORLD, rank % 2, -rank, &mpi) == MPI_SUCCESS);
    OK(fwCommInitMpi(&half, mpi, NULL));
    sums(half, mpi);
    sums(world, MPI_COMM_WORLD);
    OK(fwCommDestroy(half));
    OK(fwCommDestroy(world));
    MPI_Comm_free(&mpi);
    /* An MPI call that fails invalidates the group that it is in. */
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    OK(fwGroupStart());
    CHECK(fwCommInitMpi(&world, MPI_COMM_NULL, NULL) == FW_TRANSPORT_ERROR);
    FAILS(FW_INVALID_ARGUMENT, fwGroupEnd());
    CHECK(world == NULL);
    /* If rank 0 cannot create an id, all ranks get an error. */
    setenv("FOLDWIRE_ADDRESS", "0.0.0.0", 1);
    const fwResult result = fwCommInitMpi(&world, MPI_COMM_WORLD, NULL);
    CHECK(world == NULL && result == (rank == 0 ? FW_INVALID_ARGUMENT : FW_ABORTED));
    const char *says = rank == 0 ? "0.0.0.0" : "fwGetUniqueId failed on rank 0";
    CHECK(strstr(fwGetLastError(), says) != NULL);
    if (rank == 0) {
        printf("%d checks\n", n_checks);
    }
    MPI_Finalize();
    return 0;
}
